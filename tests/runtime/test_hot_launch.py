"""Repeated launches of a derivative: native code launches them, and only those that it may."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tilewright.runtime import gradients
from tilewright.runtime.derived_buffers import BufferSizes
from tilewright.runtime.native import launcher
from tilewright.runtime.native.runtime import runtime

torch = pytest.importorskip("torch")


@tw.jit
def scaled_rows(x_ptr, w_ptr, y_ptr, n, stride, factor, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * stride + at, mask=at < n)
    w = tl.load(w_ptr + at, mask=at < n)
    tl.store(y_ptr + row * stride + at, x * w * factor, mask=at < n)


@tw.jit
def swish(x_ptr, y_ptr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at)
    tl.store(y_ptr + at, x * tl.sigmoid(x))


class Rows:
    """A launch of the kernel's gradient, and what it computes.

    Args:
        distance: of the begins of two rows of x; below the width, rows overlap.
    """

    def __init__(self, rows: int = 4, width: int = 16, dtype: Any = None) -> None:
        self.kind = {"dtype": dtype or torch.float32}
        self.x, self.dy = (torch.randn(rows, width, **self.kind) for _ in range(2))
        self.w, self.y = torch.randn(width, **self.kind), torch.empty(rows, width, **self.kind)
        self.dx, self.dw = torch.empty_like(self.x), torch.empty_like(self.w)

    def check(self, backward: Any, n: Any = None, factor: Any = 2.0, **more: Any) -> None:
        rows, width = self.x.shape
        n = width if n is None else n
        for array in (self.dx, self.dw):
            array.fill_(torch.nan)
        backward[(rows,)](
            self.x, self.w, self.y, n, width, factor, BLOCK=16,
            grads={"y_ptr": self.dy}, into={"x_ptr": self.dx, "w_ptr": self.dw}, **more,
        )  # fmt: skip
        dx = self.dy * self.w * factor
        dx[:, int(n) :] = 0
        dw = (self.dy * self.x * factor).sum(0)
        dw[int(n) :] = 0
        torch.testing.assert_close(self.dx, dx)
        torch.testing.assert_close(self.dw, dw)


def native_is_supported() -> bool:
    return scaled_rows.native_chain() is not None and runtime() is not None


native = pytest.mark.skipif(not native_is_supported(), reason="no native launches here")


@native
def test_a_repeated_launch_is_native(in_python: list[int]) -> None:
    """The first launch derives, the second tells native code the key, the others are native; also
    with workers, whose buffers are new each time, and with other arrays."""
    backward = tw.grad(scaled_rows)
    for _ in range(2):
        Rows().check(backward)
    before = len(in_python)
    for _ in range(3):
        Rows().check(backward)
    assert len(in_python) == before == 2


def test_other_types_with_the_same_numbers(in_python: list[int]) -> None:
    backward = tw.grad(scaled_rows)
    for dtype in [torch.float32] * 3 + [torch.float64] * 3 + [torch.float32, torch.float64] * 2:
        Rows(dtype=dtype).check(backward)
    assert len(backward.kernels) == 2


def test_other_numbers_of_the_same_types() -> None:
    backward = tw.grad(scaled_rows)
    for n in (16, 16, 16, 15, 14, 15, 14, 14, 16):
        Rows().check(backward, n)
    assert len(backward.kernels) == 3


def test_integers_that_are_no_plain_ints() -> None:
    """Python launches them."""

    class N(IntEnum):
        FEW = 5
        MORE = 7

    backward = tw.grad(scaled_rows)
    for n in (N.FEW, N.FEW, N.FEW, N.MORE, N.MORE, 5, 7, 7, N.FEW):
        Rows().check(backward, n)


def test_an_integer_where_a_float_was() -> None:
    """Its value is in the key, though the launcher was made for a float."""
    backward = tw.grad(scaled_rows)
    for factor in (2.0, 2.0, 2.0, 3, 3, 3, 5, 5, 3, 2.5, 2.0):
        Rows().check(backward, factor=factor)
    assert len(backward.kernels) == 3, "a launch with an integer is not proven"


def test_floats_are_not_part_of_the_key() -> None:
    backward = tw.grad(scaled_rows)
    for factor in (2.0, 2.0, 2.0, 3.5, 4.5):
        Rows().check(backward, factor=factor)
    assert len(backward.kernels) == 1


@native
def test_layouts_are_compared_at_each_launch() -> None:
    backward = tw.grad(scaled_rows)
    for _ in range(3):
        Rows().check(backward)
    wrong = Rows()
    wrong.dx = torch.empty(4, 32)[:, ::2]
    with pytest.raises(ValueError, match="the derivative of x_ptr has shape"):
        wrong.check(backward)


def test_overlapping_arrays_are_errors_at_each_launch() -> None:
    backward = tw.grad(scaled_rows)
    for _ in range(3):
        Rows().check(backward)
        wrong = Rows()
        wrong.dx = wrong.x
        with pytest.raises(ValueError, match="shares memory"):
            wrong.check(backward)


def test_accumulated_gradients() -> None:
    backward = tw.grad(scaled_rows)
    rows = Rows()
    rows.check(backward)
    dx, dw = rows.dx.clone(), rows.dw.clone()
    for times in range(2, 6):
        backward[(4,)](
            rows.x, rows.w, rows.y, 16, 16, 2.0, BLOCK=16, accumulate=True,
            grads={"y_ptr": rows.dy}, into={"x_ptr": rows.dx, "w_ptr": rows.dw},
        )  # fmt: skip
        torch.testing.assert_close(rows.dx, times * dx)
        torch.testing.assert_close(rows.dw, times * dw)


def test_elements_that_are_not_loaded_are_zeroed_at_each_launch() -> None:
    backward = tw.grad(scaled_rows)
    for _ in range(4):
        Rows().check(backward, 10)


def test_what_no_program_loads_is_zeroed_at_each_launch() -> None:
    """Arrays with as many elements as the launch writes, and longer ones, with the same numbers."""
    backward = tw.grad(swish)
    for length in (16, 16, 16, 20, 16, 20, 20, 16):
        x, dx = np.linspace(-1, 1, length), np.full(length, np.nan)
        grads, into = {"y_ptr": np.ones(length)}, {"x_ptr": dx}
        backward[(1,)](x, np.empty(length), BLOCK=16, grads=grads, into=into)
        s = 1 / (1 + np.exp(-x))
        expected = s * (1 + x * (1 - s))
        expected[16:] = 0
        np.testing.assert_allclose(dx, expected, rtol=1e-12)


@native
@pytest.mark.parametrize("ones", [torch.ones, np.ones])
def test_other_layouts_are_errors_at_each_launch(ones: Any) -> None:
    backward = tw.grad(swish)

    def launch(dx: Any) -> None:
        x, y, dy = ones((4, 4)), ones((4, 4)), ones((4, 4))
        backward[(1,)](x, y, BLOCK=16, grads={"y_ptr": dy}, into={"x_ptr": dx})

    for _ in range(3):
        launch(ones((4, 4)))
        with pytest.raises(ValueError, match="the derivative of x_ptr has shape"):
            launch(ones((4, 4)).T)
        with pytest.raises(ValueError, match="the derivative of x_ptr has shape"):
            launch(ones((2, 8)))


@native
@pytest.mark.parametrize("dropped", ["integers", "layouts"])
def test_each_part_of_the_key_is_needed(dropped: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without integers by value, or layouts, one of the tests above fails."""
    made = launcher.make_launcher

    def without(kernel: Any, fallback: Any, in_key: Any, mappings: Any) -> Any:
        in_key = in_key._replace(**{dropped: frozenset()})
        return made(kernel, fallback, in_key=in_key, mappings=mappings)

    monkeypatch.setattr(launcher, "make_launcher", without)
    if dropped == "integers":
        with pytest.raises(AssertionError):
            test_other_numbers_of_the_same_types()
        with pytest.raises(AssertionError):
            test_an_integer_where_a_float_was()
    else:
        with pytest.raises(AssertionError):
            test_what_no_program_loads_is_zeroed_at_each_launch()
        for ones in (torch.ones, np.ones):
            with pytest.raises(pytest.fail.Exception):
                test_other_layouts_are_errors_at_each_launch(ones)


@native
def test_arrays_are_taken_by_their_names(in_python: list[int]) -> None:
    """In any order; Python launches other arrays, or a missing one, and has the errors."""
    backward = tw.grad(scaled_rows)
    rows = Rows()
    for _ in range(3):
        rows.check(backward)
    before = len(in_python)
    into = {"w_ptr": rows.dw, "x_ptr": rows.dx}
    args = rows.x, rows.w, rows.y, 16, 16, 2.0

    def launch(into: Any, **more: Any) -> Any:
        for array in (rows.dx, rows.dw):
            array.fill_(torch.nan)
        return backward[(4,)](*args, BLOCK=16, grads={"y_ptr": rows.dy}, into=into, **more)

    launch(into)
    assert len(in_python) == before
    torch.testing.assert_close(rows.dw, (rows.dy * rows.x * 2).sum(0))
    torch.testing.assert_close(rows.dx, rows.dy * rows.w * 2)
    for _ in range(3):
        launch({"x_ptr": rows.dx})
        torch.testing.assert_close(rows.dx, rows.dy * rows.w * 2)
        assert rows.dw.isnan().all()
    launch(into)
    torch.testing.assert_close(rows.dw, (rows.dy * rows.x * 2).sum(0))
    for wrong in ({"x_ptr": rows.dx, "z_ptr": rows.dw}, {**into, "n": rows.dw}):
        with pytest.raises((ValueError, TypeError)):
            launch(wrong)
    with pytest.raises(TypeError, match="into"):
        backward[(4,)](*args, BLOCK=16, grads={"y_ptr": rows.dy})
    launch(into, warmup=True)
    assert rows.dx.isnan().all(), "a warm-up launches nothing"


@native
def test_a_launch_is_repeated_by_its_holder(in_python: list[int]) -> None:
    """`backward[grid]` that was kept before the first launch is native from the third on."""
    backward, rows = tw.grad(swish), Rows(1, 16)
    launch = backward[(1,)]
    for _ in range(4):
        launch(rows.x, rows.y, BLOCK=16, grads={"y_ptr": rows.dy}, into={"x_ptr": rows.dx})
    assert len(in_python) == 2


@native
def test_tangents_are_launched_natively(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    planned = gradients.Tangents._planned

    def counted(self: Any, *args: Any) -> Any:
        calls.append(1)
        return planned(self, *args)

    monkeypatch.setattr(gradients.Tangents, "_planned", counted)
    both, rows = tw.jvp(swish), Rows(1, 16)
    s = torch.sigmoid(rows.x)
    for _ in range(5):
        both[(1,)](rows.x, rows.y, BLOCK=16, tangents={"x_ptr": rows.dy}, into={"y_ptr": rows.dx})
        torch.testing.assert_close(rows.dx, rows.dy * s * (1 + rows.x * (1 - s)))
        rows.dx.fill_(torch.nan)
    assert len(calls) == 2
    with pytest.raises((TypeError, KeyError)):
        both[(1,)](
            rows.x, rows.y, BLOCK=16, accumulate=True, tangents={"x_ptr": rows.dy},
            into={"y_ptr": rows.dx},
        )  # fmt: skip


@native
def test_memory_that_cannot_be_allocated_is_an_error() -> None:
    backward, rows = tw.grad(scaled_rows), Rows()
    for _ in range(2):
        rows.check(backward)
    workspace = BufferSizes.workspace

    def fail() -> Any:
        raise MemoryError("no memory")

    def failing(self: BufferSizes, of_wrt: Any) -> Any:
        found = workspace(self, of_wrt)
        assert found is not None
        return found._replace(allocate=fail)

    rows = Rows(5)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(BufferSizes, "workspace", failing)
        for _ in range(2):
            rows.check(backward)
    with pytest.raises(MemoryError, match="no memory"):
        rows.check(backward)
