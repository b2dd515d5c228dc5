"""Attention in a loop over programs: the queries of the next program are copied ahead, too."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest

from tests.gpu import products
from tests.gpu.programs import Program
from tests.targets.nvidia.test_products import check, compiled, count
from tests.targets.nvidia.test_specialize_warps import MUTANTS
from tilewright.base import knobs
from tilewright.base.diagnostics import InterpreterError
from tilewright.ir.core import Module, Op
from tilewright.ir.passes import PassContext
from tilewright.ops.control import Barrier, For, ProgramId
from tilewright.ops.memory import Load
from tilewright.ops.nvidia import LoadBlock
from tilewright.ops.roles import Arrive, Roles, WaitBarrier

EIGHT = {"num_warps": 8, "num_stages": 2}


def attention(keys: int, causal: bool, heads: int = 2) -> Program:
    """Of which one program fits on a multiprocessor."""
    return products.attention(128, keys, keys, (128, 128), causal, heads)


def looped(program: Program) -> tuple[Module, PassContext]:
    module, ctx = compiled(program, **EIGHT)
    assert ctx.counts["persistent"] == 1, ctx.remarks
    assert not count(module, ProgramId)
    return module, ctx


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("keys", [128, 256, 384])
def test_results(causal: bool, keys: int) -> None:
    """Of one iteration, which is peeled, up to three, in programs of two heads. Numbers of blocks
    meet each number of iterations, and both masks, once."""
    program = attention(keys, causal)
    module, ctx = looped(program)
    assert ctx.counts["held operands"] == 1
    assert ctx.counts["rotated"] == (2 if causal else 1)
    late, random = (1, 3) if keys // 128 % 2 == causal else (6, 2)
    check(program, module, blocks=late)
    check(program, module, seed=keys, blocks=random)


@pytest.mark.parametrize("causal", [False, True])
def test_other_warps_only_compute(causal: bool) -> None:
    """No warp that computes loads operands, or waits for all others."""
    module, _ = looped(attention(256, causal))
    (roles,) = (op for op in module.walk() if isinstance(op, Roles))
    inside = [op for region in (roles.compute,) for op in region.walk()]
    assert not any(isinstance(op, Load | Barrier) for op in inside)
    assert sum(isinstance(op, LoadBlock) for op in roles.copy.walk()) == (5 if causal else 3)


def test_queries_without_a_slot() -> None:
    """They are loaded by the warps that compute."""
    program = attention(384, True)
    with knobs.compilation.scope():
        knobs.compilation.disabled_passes = "held_operands"
        module, ctx = looped(program)
    assert not ctx.counts["held operands"]
    assert any(isinstance(op, Load) for op in module.walk())
    for blocks in (1, 3):
        check(program, module, blocks=blocks)


def test_two_programs_on_a_multiprocessor_hide_each_others_ends() -> None:
    program = products.attention(64, 256, 256, (128, 64), False)
    _, ctx = compiled(program, **EIGHT)
    assert not ctx.counts["persistent"]


# -- the machine finds what is wrong --------------------------------------------------------------


def _of_queries(module: Module, cls: type[Op]) -> list[Op]:
    """The ops of a kind in the body of the loop over programs, outside of others."""
    loops = [op for op in module.walk() if isinstance(op, For)]
    outer = [op for op in loops if isinstance(op.parent_op(), Roles)]
    assert len(outer) == 2
    return [op for loop in outer for op in loop.body if isinstance(op, cls)]


def _without(cls: type[Op], which: int) -> Callable[[Module], None]:
    return lambda module: _of_queries(module, cls)[which].erase()


def _early_release(module: Module) -> None:
    """Release the queries when they have arrived."""
    (arrival,) = _of_queries(module, Arrive)
    wait = next(op for op in _of_queries(module, WaitBarrier) if op.parent is arrival.parent)
    arrival.remove()
    assert wait.parent is not None
    wait.parent.insert_after(arrival, wait)


HELD = {
    "no wait for the queries": _without(WaitBarrier, 0),
    "no wait for a free slot": _without(WaitBarrier, 1),
    "no release": _without(Arrive, 0),
    "no copy": _without(LoadBlock, 0),
    "released at once": _early_release,
}


@cache
def _subject(keys: int, causal: bool, heads: int) -> tuple[Program, Module]:
    """What is spoiled in copies."""
    program = attention(keys, causal, heads)
    return program, looped(program)[0]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", HELD)
@pytest.mark.parametrize("causal", [False, True])
def test_mutants_of_the_copy_of_queries(name: str, causal: bool) -> None:
    """With one iteration in a program: in longer ones, the slots of keys keep order, too."""
    program, module = _subject(128, causal, 5)
    module = module.clone()
    HELD[name](module)
    with pytest.raises((InterpreterError, AssertionError)):
        check(program, module, blocks=1)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", MUTANTS)
def test_mutants_of_the_rings(name: str) -> None:
    program, module = _subject(384, True, 2)
    module = module.clone()
    MUTANTS[name](module)
    with pytest.raises((InterpreterError, AssertionError)):
        check(program, module, blocks=1)
