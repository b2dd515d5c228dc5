"""Gradients are autotuned like kernels: over configurations of their own, with results on disk."""

from __future__ import annotations

from typing import Any

import pytest

import tilewright as tw
import tilewright.language as tl
from tilewright.base.diagnostics import AutotunerError
from tilewright.runtime.tuning.search import Search

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.usefixtures("tuning")
CONFIGS = [tw.Config({"BLOCK": 16}), tw.Config({"BLOCK": 64})]


def scale(x_ptr, w_ptr, y_ptr, n, stride, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    for start in range(0, n, BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * stride + at, mask=at < n)
        w = tl.load(w_ptr + at, mask=at < n)
        tl.store(y_ptr + row * stride + at, x * w, mask=at < n)


def square(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n)
    tl.store(y_ptr + at, x * x, mask=at < n)


def grid(meta: dict[str, Any]) -> tuple[int, ...]:
    return (tw.cdiv(meta["n"], meta["BLOCK"]),)


class Squares:
    """A launch of the gradient of `square`, and what it is."""

    def __init__(self, n: int = 50) -> None:
        self.n = n
        self.x, self.dy, self.dx = torch.randn(n), torch.randn(n), torch.full((n,), torch.nan)

    def launch(self, backward: Any, **more: Any) -> None:
        backward[grid](
            self.x, torch.empty_like(self.x), self.n,
            grads={"y_ptr": self.dy}, into={"x_ptr": self.dx}, **more,
        )  # fmt: skip

    def check(self, backward: Any, **more: Any) -> None:
        self.launch(backward, **more)
        torch.testing.assert_close(self.dx, 2 * self.x * self.dy)


def tuned(kernel: Any = None) -> Any:
    return tw.autotune(CONFIGS, key=["n"])(tw.grad(kernel or tw.jit(square)))


@pytest.fixture
def searches(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Counts the searches."""
    found: list[int] = []
    run = Search.run

    def counted(self: Any, *args: Any) -> Any:
        found.append(1)
        return run(self, *args)

    monkeypatch.setattr(Search, "run", counted)
    return found


def test_a_gradient_is_tuned_once_for_each_key(searches: list[int]) -> None:
    backward = tuned()
    for n in (50, 50, 80, 50):
        Squares(n).check(backward)
    assert len(searches) == 2
    assert set(backward.configs_timings) == set(CONFIGS)


def test_the_gradient_of_an_autotuned_kernel_is_autotuned(searches: list[int]) -> None:
    """Over the same configurations, and apart from the kernel."""
    kernel = tw.autotune(CONFIGS, key=["n"])(tw.jit(square))
    backward = tw.grad(kernel)
    squares = Squares()
    kernel[grid](squares.x, torch.empty_like(squares.x), squares.n)
    squares.check(backward)
    assert len(searches) == 2
    assert set(backward.configs_timings) == set(CONFIGS)


def test_heuristics_are_those_of_the_kernel() -> None:
    kernel = tw.heuristics({"BLOCK": lambda args: 16 if args["n"] < 60 else 32})(tw.jit(square))
    backward = tw.grad(kernel)
    for n in (50, 80):
        squares, count = Squares(n), tw.cdiv(n, 16 if n < 60 else 32)
        backward[(count,)](
            squares.x, torch.empty_like(squares.x), n,
            grads={"y_ptr": squares.dy}, into={"x_ptr": squares.dx},
        )  # fmt: skip
        torch.testing.assert_close(squares.dx, 2 * squares.x * squares.dy)


def test_trial_runs_do_not_accumulate() -> None:
    squares = Squares()
    squares.dx.fill_(1.0)
    squares.launch(tuned(), accumulate=True)
    torch.testing.assert_close(squares.dx, 1 + 2 * squares.x * squares.dy)


def test_results_are_stored_on_disk(searches: list[int]) -> None:
    kernel = tw.jit(square)
    Squares().check(tuned(kernel))
    again = tuned(kernel)
    Squares().check(again)
    assert len(searches) == 1
    assert set(again.configs_timings) == set(CONFIGS)


def test_each_gradient_of_a_kernel_is_tuned(searches: list[int]) -> None:
    """That of x alone, of both inputs, and of both in a fixed order."""
    kernel = tw.jit(scale)
    x, w, dy = torch.randn(4, 50), torch.randn(50), torch.randn(4, 50)
    expected = {"x_ptr": dy * w, "w_ptr": (dy * x).sum(0)}
    for fixed in (False, True):
        backward = tw.autotune(CONFIGS, key=["n"])(tw.grad(kernel, deterministic=fixed))
        for names in (("x_ptr",), ("x_ptr", "w_ptr")):
            into = {name: torch.empty_like(expected[name]) for name in names}
            args = x, w, torch.empty_like(x), 50, 50
            backward[(4,)](*args, grads={"y_ptr": dy}, into=into)
            for name in names:
                torch.testing.assert_close(into[name], expected[name])
    assert len(searches) == 4


def test_configurations_without_a_gradient_are_skipped() -> None:
    """Programs of 24 elements of which 32 are stored overlap; all of them: an error."""

    def overlapping(x_ptr, y_ptr, n, BLOCK: tl.constexpr, STEP: tl.constexpr):
        at = tl.program_id(0) * STEP + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + at, mask=at < n)
        tl.store(y_ptr + at, x * x, mask=at < n)

    def launch(configs: list[Any]) -> Any:
        backward = tw.autotune(configs, key=["n"])(tw.grad(tw.jit(overlapping)))
        squares = Squares()
        backward[lambda meta: (tw.cdiv(50, meta["STEP"]),)](
            squares.x, torch.empty_like(squares.x), 50,
            grads={"y_ptr": squares.dy}, into={"x_ptr": squares.dx},
        )  # fmt: skip
        torch.testing.assert_close(squares.dx, 2 * squares.x * squares.dy)
        return backward.best_config

    bad, good = tw.Config({"BLOCK": 32, "STEP": 24}), tw.Config({"BLOCK": 32, "STEP": 32})
    assert launch([bad, good]) is good
    with pytest.raises(AutotunerError, match="it is not known that each element is stored once"):
        launch([bad, tw.Config({"BLOCK": 32, "STEP": 16})])


def test_a_grid_function_is_evaluated_before_the_launch(in_python: list[int]) -> None:
    """So that repeated launches with the same grid are native."""
    backward = tw.grad(tw.jit(square))
    for _ in range(5):
        Squares().check(backward, BLOCK=16)
    assert len(in_python) == 2 or not tw.jit(square).native_chain()
