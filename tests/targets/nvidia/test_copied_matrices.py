"""Tiles that operands, or scores, are computed from are copied by the warp that copies operands."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest

from tests.gpu import products
from tests.gpu.programs import Program
from tests.targets.nvidia.test_products import check, lowered
from tilewright.base import knobs
from tilewright.base.diagnostics import InterpreterError
from tilewright.ir.core import Module, Op
from tilewright.ir.types import shape_of
from tilewright.ops.gpu import Allocate, AllocateRing, Fetch
from tilewright.ops.memory import Load
from tilewright.ops.nvidia import LoadBlock
from tilewright.ops.roles import Arrive, ExpectBytes, WaitBarrier


def _all(module: Module, kind: type[Op]) -> list[Op]:
    return [op for op in module.walk() if isinstance(op, kind)]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("lines", ["n", "k"])
@pytest.mark.parametrize("type", ["i8", "fp16", "bf16", "fp32"])
@pytest.mark.parametrize("stages", [2, 3])
def test_weights_are_copied(type: str, lines: str, stages: int) -> None:
    for steps in (0, stages, stages + 1, 9):  # a single step is no loop
        program = products.weighted(type, steps, 64, 64, lines)
        module, counts = lowered(program, 4, stages, tensor_copies=True)
        assert counts["rings"] == 1
        assert len(_all(module, LoadBlock)) == 3
        assert not _all(module, Load)
        for seed in (None, 1):
            check(program, module, seed=seed)


@pytest.mark.parametrize("depth", [16, 32, 64])
def test_few_rows_of_packed_weights_are_copied(depth: int) -> None:
    """Fewer than 8 rows have no swizzle."""
    for steps in (0, 3, 4, 9):
        program = products.packed(steps, 64, 128, depth)
        module, counts = lowered(program, 4, 3, tensor_copies=True)
        assert counts["rings"] == 1
        assert len(_all(module, LoadBlock)) == 2
        check(program, module)


def test_they_have_the_slots_of_operands() -> None:
    """All are released together, and so have slots that cost no program."""
    module, _ = lowered(products.weighted("i8", 9, 64, 64), 4, 2, tensor_copies=True)
    rings = [op for op in module.walk() if isinstance(op, Allocate | AllocateRing)]
    tiles = [op.type for op in rings if len(shape_of(op.type)) == 3]
    assert {shape_of(tile)[0] for tile in tiles} == {8}
    assert len(_all(module, Arrive)) == 1


def test_a_second_program_is_worth_more() -> None:
    """Three slots with the weights leave no room for a second program, those of operands do."""
    program = products.weighted("fp32", 5, 128, 128)
    module, counts = lowered(program, 8, 3, tensor_copies=True)
    assert counts["rings"] == 1
    assert len(_all(module, LoadBlock)) == 2
    check(program, module)


def test_the_part_is_disabled_by_its_name() -> None:
    program = products.weighted("i8", 5, 64, 64)
    with knobs.compilation.scope():
        knobs.compilation.disabled_passes = "copied_matrices"
        module, _ = lowered(program, 4, 3, tensor_copies=True)
    assert len(_all(module, LoadBlock)) == 2
    check(program, module)


def _early_arrival(module: Module) -> None:
    """Release the slots before the weights are loaded from theirs."""
    (arrival,) = _all(module, Arrive)
    first = next(op for op in _all(module, Fetch) if op.parent is arrival.parent)
    assert arrival.parent is not None
    body = arrival.parent
    arrival.remove()
    body.insert_before(arrival, first)


def _without(kind: type[Op], number: int) -> Callable[[Module], None]:
    return lambda module: _all(module, kind)[number].erase()


def _fewer_bytes(module: Module) -> None:
    (op,) = _all(module, ExpectBytes)
    assert isinstance(op, ExpectBytes)
    op.bytes -= 64


MUTANTS = {
    "no wait for full slots": _without(WaitBarrier, 0),
    "no wait for empty slots": _without(WaitBarrier, 1),
    "no copy of operands": _without(LoadBlock, 0),
    "no copy of weights": _without(LoadBlock, 1),
    "no copy of scales": _without(LoadBlock, 2),
    "no arrival": _without(Arrive, 0),
    "arrival before the loads": _early_arrival,
    "fewer bytes": _fewer_bytes,
}


@cache
def _subject(lines: str) -> tuple[Program, Module]:
    """What is spoiled in copies; right itself."""
    program = products.weighted("i8", 12, 64, 64, lines)
    module, _ = lowered(program, 4, 2, tensor_copies=True)
    check(program, module)
    return program, module


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", MUTANTS)
@pytest.mark.parametrize("lines", ["n", "k"])
def test_mutants_are_found(name: str, lines: str) -> None:
    program, module = _subject(lines)
    module = module.clone()
    MUTANTS[name](module)
    with pytest.raises((InterpreterError, AssertionError)):
        check(program, module)


@pytest.mark.parametrize("stages", [2, 3])
def test_biases_are_copied(stages: int) -> None:
    """Their sums with a product have other uses, but each is an operand of the second product."""
    for steps in (0, stages, stages + 1, 9):
        program = products.biased(steps, 64, 64)
        module, counts = lowered(program, 4, stages, tensor_copies=True)
        assert counts["rings"] == 1
        assert len(_all(module, LoadBlock)) == 3
        for seed in (None, 1):
            check(program, module, seed=seed)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("number", range(3))
@pytest.mark.parametrize("kind", [LoadBlock, Arrive, ExpectBytes])
def test_mutants_of_biases_are_found(kind: type[Op], number: int) -> None:
    program = products.biased(12, 64, 64)
    module, _ = lowered(program, 4, 2, tensor_copies=True)
    check(program, module)
    _without(kind, number)(module)
    with pytest.raises((InterpreterError, AssertionError)):
        check(program, module)


def test_mutant_that_releases_biases_before_the_loads_is_found() -> None:
    program = products.biased(12, 64, 64)
    module, _ = lowered(program, 4, 2, tensor_copies=True)
    fetch = next(op for op in _all(module, Fetch))
    body = fetch.parent
    assert body is not None
    arrival = next(op for op in _all(module, Arrive) if isinstance(op, Arrive) and op.loads)
    arrival.remove()
    body.insert_before(arrival, fetch)
    with pytest.raises((InterpreterError, AssertionError)):
        check(program, module)
