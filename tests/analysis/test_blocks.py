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
