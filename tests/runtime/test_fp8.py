"""All kinds of fp8 in a launch, on memory of bytes; the CPU and the interpreter must agree."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tests.ir_values import floats_in, numbers
from tilewright.frontend.defaults import FP8_TYPES
from tilewright.ir.types import scalar_type


@tw.jit
def fp8_kernel(x_ptr, y_ptr, out_ptr, n, TYPE: tl.constexpr):
    i = tl.arange(0, 8)
    a = tl.load(x_ptr + i, mask=i < n, other=1.5)
    b = tl.full((8,), 0.25, TYPE)
    d = tl.maximum(a, b) + (-a) * b
    tl.store(y_ptr + i, d)
    c = tl.where(a > b, a, b).to(tl.float32)
    tl.store(out_ptr + i, c + tl.sum(a, 0).to(tl.float32) + tl.max(a, 0).to(tl.float32))


@pytest.mark.parametrize("short", FP8_TYPES)
def test_launch_on_bytes(short: str, monkeypatch: pytest.MonkeyPatch) -> None:
    element = scalar_type(short)
    x = floats_in(np.array([-1.5, -1, -0.5, 0, 0.25, 0.5, 1, 1.75]), element)
    found: list[tuple[bytes, bytes]] = []
    for interpret in ("0", "1"):
        monkeypatch.setenv("TRITON_INTERPRET", interpret)
        y, out = np.zeros(8, np.int8), np.zeros(8, np.float32)
        given = (tw.reinterpret(bits, element) for bits in (x.view(np.int8), y))
        fp8_kernel[(1,)](*given, out, 6, TYPE=element)
        found.append((y.tobytes(), out.tobytes()))
    assert found[0] == found[1]
    a = np.array([-1.5, -1, -0.5, 0, 0.25, 0.5, 1.5, 1.5])
    np.testing.assert_array_equal(out[:6] - out[0], np.maximum(a, 0.25)[:6] - 0.25)
    exact = np.maximum(a, 0.25) - a * 0.25
    got = numbers(y.view(element.numpy)).astype(np.float64)
    assert (np.abs(got - exact) <= 2**-3).all()
