"""Gradients of loops that carry a state: compiled for the CPU, and through torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tests.autodiff.recurrences import LOOPS, interpreted
from tests.frontend.kernels import function_from
from tilewright.base.diagnostics import CompilationError
from tilewright.ops.atomic import AtomicRMW

torch = pytest.importorskip("torch")


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", LOOPS)
def test_gradients_equal_those_of_the_interpreter(name: str) -> None:
    text, args, cotangents, expected = interpreted(name)
    into = {n: np.full_like(args[n], np.nan) for n in ("x_ptr", "w_ptr")}
    backward = tw.grad(tw.jit(function_from(text)))
    for _ in range(3):  # the first in Python, the others in native code
        backward[(2,)](**args, grads=cotangents, into=into)
        for key, value in expected.items():
            np.testing.assert_allclose(into[key], value, rtol=1e-10, atol=1e-13)
            into[key].fill(np.nan)


@tw.jit
def selective_scan(
    x_ptr, dt_ptr, a_ptr, b_ptr, c_ptr, y_ptr, T, D, N: tl.constexpr, BLOCK: tl.constexpr
):
    sequence = tl.program_id(1)
    d = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    s = tl.arange(0, N)
    inside = d < D
    a = tl.load(a_ptr + d[:, None] * N + s[None, :], mask=inside[:, None])
    h = tl.zeros([BLOCK, N], a_ptr.dtype.element_ty)
    for t in range(T):
        row = sequence * T + t
        x = tl.load(x_ptr + row * D + d, mask=inside)
        dt = tl.load(dt_ptr + row * D + d, mask=inside)
        b = tl.load(b_ptr + row * N + s)
        c = tl.load(c_ptr + row * N + s)
        h = tl.exp(dt[:, None] * a) * h + (dt * x)[:, None] * b[None, :]
        tl.store(y_ptr + row * D + d, tl.sum(h * c[None, :], 1), mask=inside)


def scanned(**options: Any) -> Any:
    return tw.autograd_function(
        selective_scan,
        grid=lambda a: (tw.cdiv(a["D"], a["BLOCK"]), a["x_ptr"].shape[0]),
        outputs={"y_ptr": lambda a: torch.empty_like(a["x_ptr"])},
        **options,
    )


def inputs(T: int) -> list[Any]:
    torch.manual_seed(0)
    shapes = ((2, T, 6), (2, T, 6), (6, 4), (2, T, 4), (2, T, 4))
    return [torch.rand(*shape, dtype=torch.float64, requires_grad=True) for shape in shapes]


@pytest.mark.parametrize("T", [0, 1, 5])
def test_a_selective_scan_passes_gradcheck(T: int) -> None:
    scan = scanned()
    assert torch.autograd.gradcheck(lambda *a: scan(*a, T=T, D=6, N=4, BLOCK=4), inputs(T))
    if T == 5:
        text = scan.gradient.explain()
        assert "what it carries is stored, up to 5 times, 640 bytes for each program" in text
        modules = [k.src.module(None) for k in scan.gradient.kernels]
        assert not any(isinstance(op, AtomicRMW) for m in modules for op in m.walk())


def test_tapes_are_limited() -> None:
    args = inputs(50)
    with pytest.raises(CompilationError, match="more than tape_bytes=1000"):
        scanned(tape_bytes=1000)(*args, T=50, D=6, N=4, BLOCK=4).sum().backward()
