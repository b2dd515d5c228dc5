"""A kernel of the program's own in compiled functions: `benchmarks/torch_cuda_cases.py`.

Imported after tilewright has been installed as `triton`, or without.
"""

from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.library import triton_op, wrap_triton

if TYPE_CHECKING:
    import tilewright as triton
    import tilewright.language as tl
else:
    import triton
    import triton.language as tl


@triton.jit
def scale_and_add(x, y, out, n, FACTOR: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < n
    total = tl.load(x + i, mask=inside) * FACTOR + tl.load(y + i, mask=inside)
    tl.store(out + i, total, mask=inside)


@triton.autotune([triton.Config({"BLOCK": block}) for block in (256, 1024)], key=["n"])
@triton.jit
def tuned_double(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < n
    tl.store(out + i, tl.load(x + i, mask=inside) * 2, mask=inside)


@triton_op("tile_benchmarks::scaled_sum", mutates_args={})  # pyright: ignore[reportUntypedFunctionDecorator]
def scaled_sum(x: Tensor, y: Tensor) -> Tensor:
    out = torch.empty_like(x)
    n = x.numel()
    wrap_triton(scale_and_add)[(triton.cdiv(n, 1024),)](x, y, out, n, FACTOR=3.0, BLOCK=1024)
    return out


def plain_and_tuned(x: Tensor, y: Tensor) -> Tensor:
    out, doubled = torch.empty_like(x), torch.empty_like(x)
    n = x.numel()
    scale_and_add[(triton.cdiv(n, 512),)](x, y, out, n, FACTOR=3.0, BLOCK=512)
    tuned_double[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](out, doubled, n)
    return torch.relu(doubled + 1)
