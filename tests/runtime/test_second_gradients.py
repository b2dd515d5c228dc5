"""The gradient of a gradient: `grad(grad(kernel))`, and double backward through torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tests.autodiff.cases import NAMES, OVERLAPPING, case
from tests.autodiff.harness import copied
from tests.autodiff.recurrences import LOOPS, arguments, kernel
from tests.frontend.kernels import function_from

torch = pytest.importorskip("torch")
STEP = 1e-6


def check(text: str, grid: Any, args: Any, wrt: Any, outputs: Any, constexprs: Any) -> None:
    """Compare with differences of the gradient, and with its transpose."""
    rng = np.random.default_rng(0)
    grid = grid if isinstance(grid, tuple) else (grid,)
    forward = tw.jit(function_from(text))
    tables = tuple(name for name in args if name.startswith("starts"))
    backward = tw.grad(forward, tables=tables)
    random = {n: rng.standard_normal(args[n].shape) for n in (*wrt, *outputs)}
    directions, grads = {n: random[n] for n in wrt}, {n: random[n] for n in outputs}

    def gradient(moved: Any, of: Any) -> Any:
        forward[grid](**moved, **constexprs)
        found = {n: np.full_like(args[n], np.nan) for n in wrt}
        backward[grid](**moved, **constexprs, grads=of, into=found)
        return sum(np.vdot(found[n], directions[n]) for n in wrt)

    into = {n: np.full_like(args[n], np.nan) for n in wrt}
    into_grads = {n: np.full_like(args[n], np.nan) for n in outputs}
    given = copied(args)
    forward[grid](**given, **constexprs)
    before = {n: given[n].copy() for n in outputs}
    tw.grad(backward)[grid](
        **given, **constexprs, grads=grads, directions=directions, into=into, into_grads=into_grads
    )
    for n in outputs:  # the kernel's results are left as they are
        np.testing.assert_array_equal(given[n], before[n])
    other = {n: rng.standard_normal(args[n].shape) for n in (*wrt, *outputs)}
    ends: list[float] = []
    for sign in (1, -1):
        moved = {k: v + sign * STEP * other[k] if k in wrt else v for k, v in copied(args).items()}
        ends.append(gradient(moved, grads))
    slope = (ends[0] - ends[1]) / (2 * STEP)
    by_second = sum(np.vdot(into[n], other[n]) for n in wrt)
    assert abs(by_second - slope) <= 1e-5 * max(1.0, abs(slope))
    by_grads = sum(np.vdot(into_grads[n], other[n]) for n in outputs)
    expected = gradient(copied(args), {n: other[n] for n in outputs})
    assert abs(by_grads - expected) <= 1e-9 * max(1.0, abs(expected))


@pytest.mark.parametrize(
    ("expression", "limits"),
    [
        ("tl.log(1 + tl.exp(x)) * tl.log(1 + tl.exp(x))", (0, 2)),
        ("x * libdevice.log1p(tl.exp(x))", (0, 2)), ("x * tl.sigmoid(x)", (0, 0)),
        ("1 - 2 / (tl.exp(2 * x) + 1)", (0, 0)), ("1 / tl.sqrt(1 + tl.exp(-x))", (0, 0)),
    ],
)  # fmt: skip
def test_exponentials_that_overflow(expression: str, limits: tuple[float, float]) -> None:
    text = f"""
def kernel(x_ptr, y_ptr):
    at = tl.arange(0, 2)
    x = tl.load(x_ptr + at)
    tl.store(y_ptr + at, {expression.replace("libdevice", "tl.extra.libdevice")})
"""
    x, found, ones = np.array([-1e4, 1e4]), np.empty(2), np.ones(2)
    second = tw.grad(tw.grad(tw.jit(function_from(text))))
    second[(1,)](
        x, np.empty(2), grads={"y_ptr": ones}, directions={"x_ptr": ones}, into={"x_ptr": found}
    )
    np.testing.assert_array_equal(found, limits)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", [*NAMES, OVERLAPPING])
def test_second_gradients(name: str) -> None:
    text, grid, args, wrt, outputs, constexprs = case(name)
    check(text, grid, args, wrt, outputs, constexprs)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", LOOPS)
def test_second_gradients_of_states(name: str) -> None:
    check(kernel(LOOPS[name]), 2, arguments(3), ("x_ptr", "w_ptr"), ("y_ptr",), {})


@tw.jit
def rms_norm(x_ptr, w_ptr, y_ptr, n, stride, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * stride + at, mask=at < n, other=0.0)
    w = tl.load(w_ptr + at, mask=at < n)
    r = tl.rsqrt(tl.sum(x * x, 0) / n + 0.1)
    tl.store(y_ptr + row * stride + at, x * r * w, mask=at < n)


@tw.jit
def recurrent(x_ptr, w_ptr, y_ptr, n, stride, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    w = tl.load(w_ptr + i)
    h = w * 0
    for t in range(n):
        h = tl.sin(h * w + tl.load(x_ptr + t * stride + i))
        tl.store(y_ptr + t * stride + i, h)


@pytest.mark.parametrize(("function", "grid", "size"), [(rms_norm, (3,), 5), (recurrent, (1,), 4)])
def test_double_backward_through_torch(function: Any, grid: Any, size: int) -> None:
    torch.manual_seed(0)
    made = tw.autograd_function(
        function, grid=grid, outputs={"y_ptr": lambda a: torch.empty_like(a["x_ptr"])}
    )
    x = torch.rand(3, size, dtype=torch.float64, requires_grad=True)
    w = torch.rand(size, dtype=torch.float64, requires_grad=True)
    count = 5 if function is rms_norm else 3
    block = 8 if function is rms_norm else 4

    def run(x: Any, w: Any) -> Any:
        return made(x, w, n=count, stride=size, BLOCK=block)

    assert torch.autograd.gradgradcheck(run, (x, w))
    assert torch.autograd.gradgradcheck(lambda w: run(x.detach(), w), (w,))


def test_a_penalty_on_the_gradient_in_half_precision() -> None:
    """The weight's gradient is added up by workers, in fp32."""
    torch.manual_seed(0)
    made = tw.autograd_function(
        rms_norm, grid=(64,), outputs={"y_ptr": lambda a: torch.empty_like(a["x_ptr"])}
    )
    x, w = torch.rand(64, 32), torch.rand(32)
    found: list[Any] = []
    for kind in (torch.float16, torch.float64):
        a, b = x.to(kind).requires_grad_(), w.to(kind).requires_grad_()
        y = made(a, b, n=32, stride=32, BLOCK=32)
        (dx,) = torch.autograd.grad(y.square().sum(), a, create_graph=True)
        found.append(torch.autograd.grad(dx.square().sum(), (a, b)))
    for narrow, wide in zip(*found, strict=True):
        torch.testing.assert_close(narrow.double(), wide, rtol=2e-2, atol=2e-2)


def test_what_the_gradient_of_a_gradient_does_not_take() -> None:
    backward = tw.grad(rms_norm, outputs=("y_ptr",))
    with pytest.raises(ValueError, match="takes wrt, outputs and aux from that"):
        tw.grad(backward, wrt=("x_ptr",))
    ones = np.ones(4)
    with pytest.raises(ValueError, match="grads has 'w_ptr', which is not one of"):
        tw.grad(backward)[(1,)](grads={"w_ptr": ones}, directions={}, into={})
