"""Gradients of elements that a loaded index picks, as the label's of a row of logits.

If the mask of the load bounds the index, such that no other program has the element, the program
itself adds to what it has stored; otherwise another kernel adds atomically."""

from __future__ import annotations

import math
from typing import Any

import pytest

import tilewright as tw
import tilewright.language as tl
from tilewright.runtime.jit import InterpretedFunction

torch = pytest.importorskip("torch")

KINDS = pytest.mark.parametrize("jit", [tw.jit, InterpretedFunction], ids=["cpu", "interpreter"])
LABELS = [3, 0, 36, -100, 17, 99]  # two are none of the row


@tw.jit
def log_of_sum(x_ptr, n, BLOCK: tl.constexpr):
    m = -float("inf")
    total = 0.0
    for start in range(0, n, BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + at, mask=at < n, other=-float("inf")).to(tl.float32)
        largest = tl.maximum(m, tl.max(x, 0))
        total = total * tl.exp(m - largest) + tl.sum(tl.exp(x - largest), 0)
        m = largest
    return m + tl.log(total)


def cross_entropy(x_ptr, label_ptr, y_ptr, n, stride, end, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    label = tl.load(label_ptr + row)
    x_ptr += row * stride
    inside = (label >= 0) & (label < end)
    picked = tl.load(x_ptr + label, mask=inside, other=0.0).to(tl.float32)
    loss = tl.where(inside, log_of_sum(x_ptr, n, BLOCK) - picked, 0.0)
    tl.store(y_ptr + row, loss)


def with_early_return(x_ptr, label_ptr, y_ptr, n, stride, end, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    label = tl.load(label_ptr + row)
    if (label < 0) | (label >= n):
        tl.store(y_ptr + row, 0.0)
        return
    x_ptr += row * stride
    picked = tl.load(x_ptr + label, mask=(label >= 0) & (label < end)).to(tl.float32)
    tl.store(y_ptr + row, log_of_sum(x_ptr, n, BLOCK) - picked)


def bounded_on_one_side(x_ptr, label_ptr, y_ptr, n, stride, end, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    label = tl.load(label_ptr + row)
    label = tl.where(label < n, label, -1)
    x_ptr += row * stride
    picked = tl.load(x_ptr + label, mask=label >= 0, other=0.0).to(tl.float32)
    loss = tl.where(label >= 0, log_of_sum(x_ptr, n, BLOCK) - picked, 0.0)
    tl.store(y_ptr + row, loss)


def picked_in_a_branch(x_ptr, label_ptr, y_ptr, n, stride, end, BLOCK: tl.constexpr):
    """The row is read outside of the branch, so its gradient is stored after that of the branch."""
    row = tl.program_id(0)
    label = tl.load(label_ptr + row)
    x_ptr += row * stride
    loss = log_of_sum(x_ptr, n, BLOCK)
    inside = (label >= 0) & (label < end)
    picked = loss
    if inside:
        picked = tl.load(x_ptr + label, mask=inside).to(tl.float32)
    tl.store(y_ptr + row, loss - picked)


def rows_by_turns(x_ptr, label_ptr, y_ptr, n, stride, end, rows, BLOCK: tl.constexpr):
    """Row after row of a program, as persistent kernels have them."""
    for row in tl.range(tl.program_id(0), rows, tl.num_programs(0)):
        label = tl.load(label_ptr + row)
        inside = (label >= 0) & (label < end)
        picked = tl.load(x_ptr + row * stride + label, mask=inside, other=0.0).to(tl.float32)
        loss = tl.where(inside, log_of_sum(x_ptr + row * stride, n, BLOCK) - picked, 0.0)
        tl.store(y_ptr + row, loss)


def chunks_of_rows(x_ptr, label_ptr, y_ptr, n, stride, end, rows, BLOCK: tl.constexpr):
    """The rows are one after the other, and each is a tile. Some are skipped, and the labels are in
    a branch with their rows."""
    each = tl.cdiv(rows, tl.num_programs(0))
    first = tl.program_id(0) * each
    for row in tl.range(first, tl.minimum(first + each, rows)):
        label = tl.load(label_ptr + row)
        inside = (label >= 0) & (label < end)
        if inside:
            picked = tl.load(x_ptr + row * stride + label, mask=inside).to(tl.float32)
            at = tl.arange(0, 4 * BLOCK)
            x = tl.load(x_ptr + row * stride + at, mask=at < n, other=-float("inf"))
            x = x.to(tl.float32)
            largest = tl.max(x, 0)
            tl.store(y_ptr + row, largest + tl.log(tl.sum(tl.exp(x - largest), 0)) - picked)


def label_of_another_turn(x_ptr, label_ptr, y_ptr, n, stride, end, rows, BLOCK: tl.constexpr):
    """The element belongs to the same program, but to the row that it has next or had before."""
    for row in tl.range(tl.program_id(0) * 2, tl.program_id(0) * 2 + 2):
        other = tl.program_id(0) * 4 + 1 - row
        label = tl.load(label_ptr + other)
        inside = (label >= 0) & (label < end)
        picked = tl.load(x_ptr + other * stride + label, mask=inside, other=0.0).to(tl.float32)
        loss = tl.where(inside, log_of_sum(x_ptr + row * stride, n, BLOCK) - picked, 0.0)
        tl.store(y_ptr + row, loss)


def expected(x: Any, dy: Any) -> Any:
    leaf = x.double().requires_grad_()
    labels = torch.tensor([label if 0 <= label < x.shape[1] else -100 for label in LABELS])
    losses = torch.nn.functional.cross_entropy(leaf, labels, reduction="none")
    return torch.autograd.grad(losses, leaf, dy.double())[0]


def gradient(kernel: Any, x: Any, dy: Any, stride: int, end: int, **more: Any) -> tuple[Any, Any]:
    """The gradient of x, and what computed it."""
    y = torch.zeros(len(LABELS))
    dx = torch.full_like(x, math.nan, dtype=more.pop("dtype", x.dtype))
    backward = tw.grad(kernel, **more)
    args = x, torch.tensor(LABELS), y, x.shape[1], stride, end
    backward[(len(LABELS),)](*args, BLOCK=16, grads={"y_ptr": dy}, into={"x_ptr": dx})
    return dx, backward


def atomics(backward: Any) -> list[int]:
    return [str(k.asm["ttir"]).count("atomic.rmw") for k in backward.kernels]


@KINDS
@pytest.mark.parametrize("kernel", [cross_entropy, with_early_return])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
def test_a_picked_element_of_the_row_is_added_by_its_program(
    kernel: Any, dtype: Any, jit: Any
) -> None:
    x, dy = torch.randn(len(LABELS), 37).to(dtype), torch.randn(len(LABELS))
    dx, backward = gradient(jit(kernel), x, dy, 37, 37, deterministic=True)
    tolerance = 1e-5 if dtype == torch.float32 else 2e-3
    torch.testing.assert_close(dx.double(), expected(x, dy), rtol=tolerance, atol=tolerance)
    assert "x_ptr: stored, then added by the same program for line" in backward.explain()
    if jit is tw.jit:
        assert atomics(backward) == [0]


def test_gradients_are_accumulated() -> None:
    x, dy = torch.randn(len(LABELS), 37), torch.randn(len(LABELS))
    dx, backward = gradient(tw.jit(cross_entropy), x, dy, 37, 37)
    once = dx.clone()
    args = x, torch.tensor(LABELS), torch.zeros(len(LABELS)), 37, 37, 37
    more = {"grads": {"y_ptr": dy}, "into": {"x_ptr": dx}}
    backward[(len(LABELS),)](*args, BLOCK=16, accumulate=True, **more)
    torch.testing.assert_close(dx, 2 * once)


def test_rows_with_gaps_keep_their_elements_apart() -> None:
    whole, dy = torch.randn(len(LABELS), 50), torch.randn(len(LABELS))
    x = whole[:, :37]
    y, into = torch.zeros(len(LABELS)), torch.full_like(whole, 7.0)
    backward = tw.grad(tw.jit(cross_entropy), deterministic=True)
    args = x, torch.tensor(LABELS), y, 37, 50, 37
    more = {"grads": {"y_ptr": dy}, "into": {"x_ptr": into[:, :37]}}
    backward[(len(LABELS),)](*args, BLOCK=16, **more)
    torch.testing.assert_close(into[:, :37].double(), expected(x, dy), rtol=1e-5, atol=1e-5)
    assert (into[:, 37:] == 7.0).all()


@pytest.mark.parametrize(
    ("kernel", "stride", "end"),
    [
        (cross_entropy, 37, 38),
        (with_early_return, 37, 38),
        (picked_in_a_branch, 37, 37),
        (bounded_on_one_side, 37, 37),
    ],
)
def test_elements_that_others_may_have_are_added_atomically(
    kernel: Any, stride: int, end: int
) -> None:
    """An element behind the row is the next row's; what follows a branch overwrites it; and of one
    bound nothing follows."""
    x, dy = torch.randn(len(LABELS), 37), torch.randn(len(LABELS))
    dx, backward = gradient(tw.jit(kernel), x, dy, stride, end)
    torch.testing.assert_close(dx.double(), expected(x, dy), rtol=1e-5, atol=1e-5)
    assert sum(atomics(backward)) == 1
    assert "then added atomically for line" in backward.explain()


def test_a_barrier_separates_the_row_from_the_picked_element() -> None:
    """On a GPU, other threads have stored the row."""
    x, dy = torch.randn(len(LABELS), 37), torch.randn(len(LABELS))
    _, backward = gradient(tw.jit(cross_entropy), x, dy, 37, 37)
    (kernel,) = backward.kernels
    text = str(kernel.asm["ttir"])
    last_loop = text.rindex("control.for")
    assert "program.barrier" in text[last_loop:]
    assert text.rindex("mem.load") > text.rindex("program.barrier")


def gradient_of_rows(kernel: Any, x: Any, dy: Any, programs: int, end: int = 37) -> tuple[Any, Any]:
    """The gradient by a kernel whose programs have several rows, and what computed it."""
    rows = len(LABELS)
    dx = torch.full_like(x, math.nan)
    args = x, torch.tensor(LABELS), torch.zeros(rows), 37, 37, end, rows
    backward = tw.grad(kernel)
    backward[(programs,)](*args, BLOCK=16, grads={"y_ptr": dy}, into={"x_ptr": dx})
    return dx, backward


@KINDS
@pytest.mark.parametrize("programs", [1, 4])
@pytest.mark.parametrize("kernel", [rows_by_turns, chunks_of_rows])
def test_each_iteration_adds_the_element_of_its_row(kernel: Any, programs: int, jit: Any) -> None:
    x, dy = torch.randn(len(LABELS), 37), torch.randn(len(LABELS))
    dx, backward = gradient_of_rows(jit(kernel), x, dy, programs)
    torch.testing.assert_close(dx.double(), expected(x, dy), rtol=1e-5, atol=1e-5)
    assert "then added by the same program for line" in backward.explain()
    if jit is tw.jit:
        assert atomics(backward) == [0]


@pytest.mark.parametrize("end", [37, 38])
def test_elements_that_other_iterations_may_have_are_added_atomically(end: int) -> None:
    """Rows of one program are stored one after the other: an iteration must not add to another's
    before that has stored it."""
    kernel = label_of_another_turn if end == 37 else rows_by_turns
    x, dy = torch.randn(len(LABELS), 37), torch.randn(len(LABELS))
    dx, backward = gradient_of_rows(tw.jit(kernel), x, dy, 3, end)
    labels = torch.tensor([label if 0 <= label < 37 else -100 for label in LABELS])
    if end == 37:
        other = torch.arange(6) ^ 1
        inside = (labels[other] >= 0).double()
        leaf = x.double().requires_grad_()
        picked = leaf[other, labels[other].clamp(min=0)]
        want = torch.autograd.grad((leaf.logsumexp(1) - picked) * inside, leaf, dy.double())[0]
    else:
        want = expected(x, dy)
    torch.testing.assert_close(dx.double(), want, rtol=1e-5, atol=1e-5)
    assert sum(atomics(backward)) > 0
    assert "added atomically" in backward.explain()
