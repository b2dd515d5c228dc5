"""The kernel that docs/tour.md follows: each row divided by the root of its mean square."""

import tilewright as tw
import tilewright.language as tl


@tw.jit
def mean_square(x, n):
    return tl.sum(x * x, axis=0) / n


@tw.jit
def rms_norm(x_ptr, out_ptr, stride, n, BLOCK: tl.constexpr):
    start = tl.program_id(0) * stride
    column = tl.arange(0, BLOCK)
    inside = column < n
    x = tl.load(x_ptr + start + column, mask=inside, other=0.0)
    scale = tl.rsqrt(mean_square(x, n) + 1e-6)
    tl.store(out_ptr + start + column, x * scale, mask=inside)


__tilewright_signatures__ = {
    "rms_norm": ("x_ptr=*fp32:16, out_ptr=*fp32:16, stride=i32:16, n=i32", {"BLOCK": 512}),
}
