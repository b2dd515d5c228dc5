"""Gradients are autotuned like kernels: over configurations of their own, with results on disk."""

from __future__ import annotations

from typing import Any

import pytest

import tilewright as tw
import tilewright.language as tl
from benchmarks.gradients.kernels import matmul
from tilewright.base.diagnostics import AutotunerError
from tilewright.runtime.gradients import Gradient
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


def test_a_launch_computes_its_tuning_key_once(monkeypatch: pytest.MonkeyPatch) -> None:
    backward, keys = tuned(), list[Any]()
    Squares().launch(backward)
    tuning_key = Gradient.tuning_key

    def counted(self: Gradient, named: Any) -> Any:
        keys.append(tuning_key(self, named))
        return keys[-1]

    monkeypatch.setattr(Gradient, "tuning_key", counted)
    Squares().check(backward)
    assert len(keys) == 1


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
    """That of x alone, of both inputs, and of both in a fixed order; and of both inputs that of w,
    which a kernel of its own computes."""
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
    assert len(searches) == 6


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
    with pytest.raises(AutotunerError, match="may be stored more than once"):
        launch([bad, tw.Config({"BLOCK": 32, "STEP": 16})])


PRODUCTS = [
    tw.Config({"BLOCK_M": 16, "BLOCK_N": 16, "BLOCK_K": 32}),
    tw.Config({"BLOCK_M": 32, "BLOCK_N": 16, "BLOCK_K": 16}),
]


class Products:
    """Launches of the gradient of a product, whose times are those of a table.

    Args:
        times: of each configuration, that of the gradients of both operands, of the left one and of
            the right one.
    """

    def __init__(self, times: list[tuple[float, float, float]], monkeypatch: Any) -> None:
        self.launched: list[tuple[str, int]] = []  # the operands, and the configuration's BLOCK_M
        self.times = {
            (names, config.kwargs["BLOCK_M"]): time
            for config, of_config in zip(PRODUCTS, times, strict=True)
            for names, time in zip(("ab", "a", "b"), of_config, strict=True)
        }
        run = Gradient.run

        def recorded(gradient: Any, *args: Any, **kwargs: Any) -> Any:
            if not kwargs.get("warmup"):
                names = "".join(name[0] for name in kwargs["into"])
                self.launched.append((names, kwargs["BLOCK_M"]))
            return run(gradient, *args, **kwargs)

        monkeypatch.setattr(Gradient, "run", recorded)
        monkeypatch.setattr(Gradient, "_native_launch", lambda *_: None)
        self.backward = tw.autotune(PRODUCTS, key=["m", "n", "k"], do_bench=self.bench)(
            tw.grad(matmul)
        )

    def bench(self, launch: Any, quantiles: Any = None) -> Any:
        launch()
        time = self.times[self.launched[-1]]
        return [time] * 3

    def launch(self, accumulate: bool = False) -> list[tuple[str, int]]:
        """Launch, check the gradients, and return what was launched last for each operand."""
        a, b, dc = torch.randn(40, 30), torch.randn(30, 50), torch.randn(40, 50)
        begin = 1.0 if accumulate else torch.nan
        da, db = torch.full_like(a, begin), torch.full_like(b, begin)
        more = {"accumulate": True} if accumulate else {}
        self.launched.clear()
        self.backward[lambda meta: (tw.cdiv(40, meta["BLOCK_M"]) * tw.cdiv(50, meta["BLOCK_N"]),)](
            a, b, torch.empty(40, 50), 40, 50, 30, GROUP=2, WRAPS=False,
            grads={"c_ptr": dc}, into={"a_ptr": da, "b_ptr": db}, **more,
        )  # fmt: skip
        torch.testing.assert_close(da, dc @ b.T + int(accumulate), rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(db, a.T @ dc + int(accumulate), rtol=1e-4, atol=1e-4)
        return self.launched


def test_each_kernel_of_a_gradient_has_a_separate_configuration_if_that_is_faster(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    products = Products([(10, 3, 6), (11, 6, 3)], monkeypatch)
    assert products.launch()[-2:] == [("a", 16), ("b", 32)]
    assert products.launch() == [("a", 16), ("b", 32)]
    assert products.launch(accumulate=True)[-2:] == [("a", 16), ("b", 32)]


def test_kernels_of_a_gradient_are_launched_together_if_that_is_faster(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    products = Products([(10, 5, 6), (11, 7, 5)], monkeypatch)
    assert products.launch()[-1:] == [("ab", 16)]
    assert products.launch() == [("ab", 16)]


def test_an_array_in_place_is_not_overwritten_before_all_gradients_are_computed() -> None:
    """Its gradient takes the place of that of the result."""
    backward = tw.grad(tw.jit(scale))
    x, w, y = torch.randn(4, 50), torch.randn(50), torch.randn(4, 50)
    dy = torch.randn(4, 50)
    into = {"x_ptr": x, "y_ptr": dy}
    parts = backward.parts(x, w, y, 50, 50, grid=(4,), BLOCK=16, grads={"y_ptr": dy}, into=into)
    assert parts == (("x_ptr", "y_ptr"),)


def test_a_grid_function_is_evaluated_before_the_launch(in_python: list[int]) -> None:
    """So that repeated launches with the same grid are native."""
    backward = tw.grad(tw.jit(square))
    for _ in range(5):
        Squares().check(backward, BLOCK=16)
    assert len(in_python) == 2 or not tw.jit(square).native_chain()
