"""Loops with several products in tensor memory, and products of computed operands.

They run on a machine on which products end as late as they may; each op of the protocol is removed
once, and the machine must find that.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from itertools import accumulate

import pytest

from tests.gpu import products
from tests.gpu.programs import Program, source_of
from tests.targets.nvidia.tensor_products import CHIP, all_of, check, in_loop, lowered
from tilewright.base.diagnostics import InterpreterError
from tilewright.compiler.driver import compile
from tilewright.ir.core import Module, Op
from tilewright.ops.control import Barrier, For
from tilewright.ops.roles import Arrive, Roles, WaitBarrier
from tilewright.ops.tensor_memory import (
    AllocateTensor,
    CommitProducts,
    LoadTensor,
    StoreTensor,
    TensorPart,
    columns_of,
)


def attention(
    keys: int = 256, causal: bool = False, d: int = 64, block: int = 64, rows: int = 128
) -> Program:
    return products.attention(d, keys, keys, (rows, block), causal, heads=1)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("keys", "d", "stages"), [(128, 64, 2), (384, 64, 3), (256, 128, 2)])
def test_attention(keys: int, d: int, stages: int, causal: bool) -> None:
    """Scores and results of each iteration are loaded from tensor memory; the weights, a computed
    operand of two bytes, are stored to it."""
    program = attention(keys, causal, d)
    module, counts = lowered(program, num_stages=stages)
    loops = 1 + causal
    assert (counts["tensor_mma"], counts["mma"]) == (2 * loops, 0)
    assert counts["rings"]
    (memory,) = all_of(module, AllocateTensor)
    assert memory.type.shape == (128, 64 + d + 32)  # the loops of a causal kernel share the columns
    parts = {part.column: columns_of(part.type) for part in all_of(module, TensorPart)}
    assert sorted(parts) == [0, *accumulate(parts[c] for c in sorted(parts)[:-1])]
    check(program, module)
    check(program, module, seed=keys)


def test_weights_of_few_rows_go_through_shared_memory() -> None:
    """An operand in tensor memory has 128 rows."""
    module, counts = lowered(attention(rows=64), num_stages=2)
    assert counts["tensor_mma"] == 2
    assert not all_of(module, StoreTensor)
    check(attention(rows=64), module)


@pytest.mark.parametrize(("block", "count"), [(16, 0), (32, 2)])
def test_sixteen_warps_share_no_fewer_than_eight_columns_each(block: int, count: int) -> None:
    program = attention(128, rows=64, block=block)
    module, counts = lowered(program, num_warps=16)
    assert counts["tensor_mma"] == count
    check(program, module)


@pytest.mark.parametrize("warps", [4, 8])
@pytest.mark.parametrize("causal", [False, True])
def test_code_of_attention(warps: int, causal: bool) -> None:
    options = {"num_warps": warps, "num_stages": 3}
    kernel = compile(source_of(attention(causal=causal, d=128))[0], target=CHIP, options=options)
    text = kernel.asm["ptx"]
    assert isinstance(text, str)
    assert "mma.sync" not in text
    assert text.count("tcgen05.mma.cta_group::1.kind::f16 ") == (8 + 4) * (1 + causal)
    assert len(re.findall(r"tcgen05\.mma\S* \[%r\d+\], \[%r\d+\], ", text)) == 4 * (1 + causal)
    assert len(re.findall(r"tcgen05\.st\S*\.32x32b\.x(16|32)\.", text)) == 1 + causal
    assert kernel.asm["cubin"]


# -- mutants --------------------------------------------------------------------------------------


def _compute(module: Module) -> list[Op]:
    """The ops of the loop of the computing warps."""
    (both,) = all_of(module, Roles)
    return [op for op in both.compute.walk() if in_loop(op)]


def _without(cls: type[Op], number: int) -> Callable[[Module], None]:
    def spoil(module: Module) -> None:
        [op for op in _compute(module) if isinstance(op, cls)][number].erase()

    spoil.__name__ = f"_without_{cls.__name__}_{number}"
    return spoil


def _without_the_barrier(module: Module) -> None:
    """One barrier of an iteration orders all loads before the products that overwrite them. Stores
    of weights to tensor memory end with one."""
    (barrier,) = [op for op in _compute(module) if isinstance(op, Barrier)]
    barrier.erase()


def _constant_parity(module: Module) -> None:
    """The waits for products have the parity of the first iteration in all."""
    waits = [op for op in _compute(module) if isinstance(op, WaitBarrier)]
    for op in waits:
        commit = op.prev
        if isinstance(commit, CommitProducts):
            loop = op.parent_op()
            assert isinstance(loop, For)
            number = loop.body.args.index(op.parity)
            op.set_operand(2, loop.inits[number - 1])


def _load_before_the_wait(module: Module) -> None:
    for load in [op for op in _compute(module) if isinstance(op, LoadTensor)]:
        wait = load.prev
        while not isinstance(wait, WaitBarrier):
            assert wait is not None
            wait = wait.prev
        wait.erase()


MUTANTS = [
    *(_without(WaitBarrier, i) for i in range(4)),
    *(_without(Arrive, i) for i in range(2)),
    *(_without(CommitProducts, i) for i in range(4)),
    _without_the_barrier, _constant_parity, _load_before_the_wait,
]  # fmt: skip


@cache
def _subject(rows: int) -> tuple[Program, Module]:
    """What is spoiled in copies; right itself."""
    program = attention(256, rows=rows)
    module, _ = lowered(program, num_stages=2)
    check(program, module)
    return program, module


@pytest.mark.sampled(3)
@pytest.mark.parametrize("spoil", MUTANTS)
def test_mutants_are_found(spoil: Callable[[Module], None]) -> None:
    program, module = _subject(64 if spoil is _without_the_barrier else 128)
    module = module.clone()
    spoil(module)
    with pytest.raises((InterpreterError, AssertionError)):
        check(program, module)


# -- other loops ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("program", "count"),
    [
        (products.computed(3, 128, 64), 0),  # what it loads is an operand, and computed with
        (products.weighted("fp16", 3, 128, 64), 1),
        (products.biased(3, 128, 64), 2),
        (products.attention_gradients(64, 128, (64, 64), False), 5),
    ],
    ids=["computed", "weighted", "biased", "gradients"],
)
@pytest.mark.parametrize("stages", [2, 3])
def test_other_loops(program: Program, count: int, stages: int) -> None:
    module, counts = lowered(program, num_stages=stages)
    assert counts["tensor_mma"] == count
    check(program, module)
    for seed in range(2):
        check(program, module, seed)
