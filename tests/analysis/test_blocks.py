"""Blocks of memory, against the addresses that kernels access."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.analysis.block_kernels import CASES, Case
from tests.analysis.recording import Array, Moment, elements, kernel_ir, moments
from tilewright.analysis.blocks import Block, BlockFinder, NoBlock
from tilewright.analysis.polynomial import Polynomial


def described(block: Block, moment: Moment) -> tuple[Array, Array]:
    """The addresses of a block's elements, and which of them it touches, in the tile's shape."""

    def number(polynomial: Polynomial) -> int:
        return polynomial.value({atom: moment.number(atom) for atom in polynomial.atoms()})

    lengths = [axis.extent for axis in block.axes]
    total = np.full(lengths, number(block.offset), object)
    touched = np.full(lengths, not block.never)
    for place, axis in enumerate(block.axes):
        along = [-1 if a == place else 1 for a in range(len(lengths))]
        index = np.arange(axis.extent).astype(object) + number(axis.begin)
        inside = np.full(axis.extent, True)
        for bound in axis.lower:
            inside &= index >= number(bound)
        for bound in axis.upper:
            inside &= index < number(bound)
        if axis.wrap is not None:
            by = number(axis.wrap)
            wrapped = [(abs(i) % abs(by)) * (1 if i >= 0 else -1) if by else 0 for i in index]
            index = np.array(wrapped, object)
        if axis.limit is not None:
            assert axis.other is not None
            index = np.where(index < number(axis.limit), index, number(axis.other))
        total = total + (index * number(axis.stride)).reshape(along)
        touched &= inside.reshape(along)
    for condition in block.conditions:
        touched &= bool(np.ravel(moment.values[condition])[0])
    shape = moment.addresses.shape
    total = np.asarray(total, object).reshape(shape)
    touched = np.asarray(touched).reshape(shape)
    for conjunct in block.residual:
        array = moment.values[conjunct.value]
        order = [axis for axis in conjunct.axes if axis is not None]
        array = array[tuple(0 if a is None else slice(None) for a in conjunct.axes)]
        array = np.transpose(array, np.argsort(order))
        touched &= array.reshape([n if a in order else 1 for a, n in enumerate(shape)])
    base = moment.number(block.base)
    addresses = (base + total * block.element_bytes) % 2**64
    return np.asarray(addresses, object).reshape(shape), touched


def assumptions_hold(block: Block, finder: BlockFinder, moment: Moment) -> bool:
    """Whether nothing wraps that the block takes not to."""
    signed = [(value, "i") for value in block.read_signed]
    for value, kind in [(value, "") for value in block.assumed] + signed:
        if value not in moment.values:
            continue
        array = moment.values[value]
        if kind:
            array = array.astype(f"{kind}{array.itemsize}")
        exact = elements(finder.forms.of(value), value, moment.values)
        if not np.array_equal(array.astype(object), exact):
            return False
    return True


def kind_of(found: Block | NoBlock) -> str:
    if isinstance(found, NoBlock):
        return found.code.value
    if any(axis.wrap is not None for axis in found.axes):
        return "wrap"
    if any(axis.limit is not None for axis in found.axes):
        return "limit"
    return "residual" if found.residual else "block"


def check_case(case: Case) -> list[str]:
    """Compare the blocks of a kernel with what it touches; the kinds of its accesses."""
    module = kernel_ir(case.text, case.signature, **case.constants)
    finder = BlockFinder()
    found: dict[object, Block | NoBlock] = {}
    checked = 0
    for args in case.arguments():
        for moment in moments(module, case.grid, args):
            op: Any = moment.op
            block = found.get(op) or found.setdefault(op, finder.of(op))
            if isinstance(block, NoBlock):
                continue
            if not assumptions_hold(block, finder, moment):
                assert case.wraps, block
                continue
            addresses, touched = described(block, moment)
            assert np.array_equal(touched, moment.mask), block
            assert np.array_equal(addresses[touched], moment.addresses[touched]), block
            checked += 1
    assert checked or case.wraps or not any(isinstance(block, Block) for block in found.values())
    return [kind_of(block) for block in found.values()]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_block_covers_the_touched_elements(case: Case) -> None:
    kinds = check_case(case)
    assert len(kinds) == len(case.expected), kinds
    for kind, expected in zip(kinds, case.expected, strict=True):
        assert expected in (kind, "any"), kinds


DESCENDING = {
    "bounded": "(i[:, None] < n) & (j[None, :] < 192)",
    "unbounded": "None",
}


@pytest.mark.parametrize("mask", DESCENDING.values(), ids=DESCENDING)
@pytest.mark.parametrize("column", [0, 64, 128])
def test_what_descends_row_by_row_begins_at_a_row_and_a_column(mask: str, column: int) -> None:
    """A constant that is the sum of those of two axes is divided between them: hardware takes an
    index below 0 for one outside of the array."""
    text = f"""
    def kernel(x, m, n):
        j = {column} + tl.arange(0, 64)
        for block in range(tl.cdiv(n, 16) - 1, -1, -1):
            i = block * 16 + tl.arange(0, 16)
            tl.load(x + i[:, None] * 192 + j[None, :], mask={mask}, volatile=True)
    """
    module, finder = kernel_ir(text, "*fp32, i32, i32"), BlockFinder()
    begins: set[tuple[int, ...]] = set()
    for moment in moments(module, (1,), [1 << 40, 0, 60]):
        op: Any = moment.op
        block = finder.of(op)
        assert isinstance(block, Block)
        assert not block.offset
        numbers = {a: moment.number(a) for axis in block.axes for a in axis.begin.atoms()}
        begins.add(tuple(axis.begin.value(numbers) for axis in block.axes))
    assert begins == {(row, column) for row in (0, 16, 32, 48)}


def test_one_program_id_in_two_axes_is_divided_between_them() -> None:
    text = """
    def kernel(x):
        i = tl.program_id(0) * 16 + tl.arange(0, 16)
        tl.load(x + i[:, None] * 192 + i[None, :], volatile=True)
    """
    op: Any = moments(kernel_ir(text, "*fp32"), (1,), [1 << 40])[0].op
    block = BlockFinder().of(op)
    assert isinstance(block, Block)
    assert [axis.begin.text(lambda _: "pid") for axis in block.axes] == ["16*pid", "16*pid"]


BATCHES = {
    "argument": ("b * t + row * s + col", "b < n", ["pid < n"]),
    "constants": (
        "b * 4096 + tl.program_id(1) * 512 + row * s + col",
        "(b < n) & (tl.program_id(1) < 8)",
        ["pid < n", "pid < 8"],
    ),
    "twice": ("b * t + row * s + col", "2 * b < 10", ["pid < 5"]),
    "unsigned": ("b * t + row * s + col", "b.to(tl.uint32) < 7", ["pid < 7"]),
}


@pytest.mark.parametrize("case", BATCHES.values(), ids=BATCHES)
def test_bound_of_a_batch_is_that_of_an_axis(case: tuple[str, str, list[str]]) -> None:
    """And no condition, so that hardware can check it: a descriptor of `[1, 64, 64]` has one."""
    index, mask, expected = case
    text = f"""
    def kernel(x, n, m, s, t):
        b = tl.program_id(0)
        row = tl.program_id(2) * 4 + tl.arange(0, 4)[:, None]
        col = tl.arange(0, 8)[None, :]
        tl.load(x + {index}, mask=({mask}) & (row < m) & (col < s), volatile=True)
    """
    made = moments(kernel_ir(text, "*fp32, i32, i32, i32, i32"), (1,), [1 << 40, 9, 8, 7, 6])
    op: Any = made[0].op
    block = BlockFinder().of(op)
    assert isinstance(block, Block)
    assert not block.conditions
    bounds = [
        f"{axis.begin.text(lambda _: 'pid')} < {axis.upper[0].text(lambda _: 'n')}"
        for axis in block.axes[2:]
    ]
    assert sorted(bounds) == sorted(expected)
