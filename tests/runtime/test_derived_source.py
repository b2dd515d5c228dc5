"""`source()` of derivatives."""

from __future__ import annotations

import numpy as np

import tilewright as tw
import tilewright.language as tl


@tw.jit
def scale_rows(x_ptr, w_ptr, y_ptr, n, stride, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    w = tl.load(w_ptr + at, mask=at < n)
    x = tl.load(x_ptr + row * stride + at, mask=at < n)
    tl.store(y_ptr + row * stride + at, x * w, mask=at < n)


def test_the_source_of_a_gradient_with_workers() -> None:
    x, w = np.ones((9, 5), np.float32), np.ones(5, np.float32)
    y, dx, dw = np.zeros_like(x), np.zeros_like(x), np.zeros_like(w)
    backward = tw.grad(scale_rows)
    assert backward.source() == ""
    call = backward[(9,)]
    call(x, w, y, 5, 5, BLOCK=8, grads={"y_ptr": x}, into={"x_ptr": dx, "w_ptr": dw})
    text = backward.source()
    compile(text, "<source>", "exec")
    assert text.startswith("# variant 0\nimport tilewright as tw\nimport tilewright.language as tl")
    assert "def scale_rows_vjp(" in text
    assert "    # w_ptr_partial: ptr<fp32>" in text
    assert "tl.store(" in text
    second = tw.grad(backward)
    more = {"directions": {"x_ptr": x}, "into": {"x_ptr": dx}, "into_grads": {"y_ptr": y}}
    second[(9,)](x, w, x + 1, 5, 5, BLOCK=8, grads={"y_ptr": x + 2}, **more)
    assert "def scale_rows_jvp_vjp(" in second.source()
    assert "def scale_rows_jvp(" in second.source()
