"""Products in tensor memory: interpreted by a machine on which they end late, and assembled.

Each op of the protocol is removed or changed once: the machine must find that.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tests.covering import covering
from tests.gpu import products
from tests.gpu.programs import Program, source_of
from tests.targets.nvidia.tensor_products import (
    CHIP,
    all_of,
    check,
    in_loop,
    insert_before,
    lowered,
    product,
)
from tilewright.base import knobs
from tilewright.base.diagnostics import InterpreterError
from tilewright.compiler.driver import compile
from tilewright.ir.core import Module, Op
from tilewright.ir.types import BF16, FP8E4NV, FP8E5, FP32, I8, I32, U8
from tilewright.ops.arith import Constant, Xor
from tilewright.ops.control import For
from tilewright.ops.roles import Arrive, InitBarriers, Roles, WaitBarrier
from tilewright.ops.tensor_memory import CommitProducts, LoadTensor, TensorMma, TensorWait
from tilewright.targets.nvidia.features import processor
from tilewright.targets.nvidia.resources import resources_of
from tilewright.targets.nvidia.tensor_mma import instruction_descriptor
from tilewright.targets.protocol import GPUTarget


@pytest.mark.parametrize("stages", [2, 3, 5])
def test_any_number_of_steps(stages: int) -> None:
    for steps in (0, 1, 2, stages, 9):
        program = product(steps)
        module, counts = lowered(program, num_stages=stages)
        assert (counts["tensor_mma"], counts["rings"], counts["mma"]) == (1, 1, 0)
        check(program, module)
        for seed in range(3):
            check(program, module, seed)


@pytest.mark.parametrize("type", ["fp16", "bf16", "fp32", "fp8e4nv", "fp8e5", "i8"])
@pytest.mark.parametrize("orders", ["nn", "nt", "tn", "tt"])
def test_types_and_orders(type: str, orders: str) -> None:
    """Operands of 16 bits may lie across K; of others, only what a product can read is taken."""
    program = product(orders=orders, type=type)
    module, counts = lowered(program)
    across = type in ("fp16", "bf16")
    assert counts["tensor_mma"] == int(across or orders == "nt")
    check(program, module)


@pytest.mark.parametrize("warps", [4, 8])
@pytest.mark.parametrize(
    "tile", [(64, 16), (64, 256), (128, 16), (128, 256), (256, 32), (256, 256)]
)
def test_tiles(tile: tuple[int, int], warps: int) -> None:
    program = product(3, tile=tile)
    module, counts = lowered(program, num_warps=warps)
    assert counts["tensor_mma"] == 1
    check(program, module, seed=1)


@pytest.mark.parametrize(
    ("program", "options"),
    [
        (product(tile=(32, 32)), {}),
        (product(tile=(128, 8)), {}),
        (product(), {"num_warps": 2}),
        (product(), {"num_stages": 1}),
        (product(), {"tensor_copies": False}),
        (products.matmul("fp32", "fp32", "nt", (128, 32, 64), (128, 32, 32), "ieee"), {}),
    ],
)
def test_other_products_are_computed_by_warps(program: Program, options: dict[str, Any]) -> None:
    module, counts = lowered(program, **options)
    assert not counts["tensor_mma"]
    check(program, module)


@pytest.mark.parametrize("stages", [2, 4])
def test_loop_that_no_warp_copies_for(stages: int) -> None:
    """Each product waits for itself, where `specialize_warps` does not run after all."""
    program = product(6)
    with knobs.compilation.scope():
        knobs.compilation.disabled_passes = "specialize_warps"
        module, counts = lowered(program, num_stages=stages)
    assert (counts["tensor_mma"], counts["rings"]) == (1, 0)
    assert not any(isinstance(op, Roles) for op in module.walk())
    check(program, module)
    with knobs.compilation.scope():
        knobs.compilation.disabled_passes = "specialize_warps"
        options = {"num_stages": stages, "num_warps": 4}
        assert compile(source_of(program)[0], target=CHIP, options=options).asm["cubin"]


@tw.jit
def walking_kernel(
    a_ptr, b_ptr, c_ptr, M, K, N: tl.constexpr, BM: tl.constexpr, BK: tl.constexpr
):  # fmt: skip
    """One program walks over all blocks of rows."""
    n, inner = tl.arange(0, N), tl.arange(0, BK)
    for row in tl.range(0, M, BM, num_stages=1):
        m = row + tl.arange(0, BM)
        acc = tl.zeros((BM, N), tl.float32)
        for k in range(0, K, BK):
            a = tl.load(a_ptr + m[:, None] * K + (k + inner)[None, :])
            b = tl.load(b_ptr + n[None, :] * K + (k + inner)[:, None])
            acc = tl.dot(a, b, acc)
        tl.store(c_ptr + m[:, None] * N + n[None, :], acc)


def test_loop_in_a_loop() -> None:
    """Each sum starts in the memory of the one before, and waits by a barrier of its own."""
    m, n, k = 384, 32, 192
    a, b = products.matrix("fp16", m, k), products.matrix("fp16", k, n)
    exact, bound = products.product(a, b, "fp16")
    rows = np.ascontiguousarray(b.T)
    expected = [a, rows, exact.astype(np.float32)]
    program = Program(
        walking_kernel, [a, rows, np.zeros((m, n), np.float32), m, k],
        {"N": n, "BM": 128, "BK": 64}, (1,), bound.max(), expected,
    )  # fmt: skip
    module, counts = lowered(program)
    assert (counts["tensor_mma"], counts["rings"]) == (1, 1)
    check(program, module)
    for seed in range(3):
        check(program, module, seed)
    assert compile(source_of(program)[0], target=CHIP, options={"num_stages": 3}).asm["cubin"]


def test_instruction_descriptor() -> None:
    """PTX ISA, "Instruction descriptor": 4-5 the type of results; 7-9 and 10-12 of operands;
    15 and 16 operands across K; 17-22 columns / 8; 24-28 rows / 16."""
    found = instruction_descriptor((BF16, BF16, FP32), (128, 256), across=(False, True))
    assert found == 1 << 4 | 1 << 7 | 1 << 10 | 1 << 16 | 32 << 17 | 8 << 24
    found = instruction_descriptor((FP8E4NV, FP8E5, FP32), (64, 32), across=(False, False))
    assert found == 1 << 4 | 1 << 10 | 4 << 17 | 4 << 24
    found = instruction_descriptor((I8, U8, I32), (128, 16), across=(False, False))
    assert found == 2 << 4 | 1 << 7 | 2 << 17 | 8 << 24


# -- mutants --------------------------------------------------------------------------------------


def _without_release(module: Module) -> None:
    """No commit releases slots, nor do their barriers count one."""
    for op in [op for op in all_of(module, CommitProducts) if in_loop(op)]:
        op.erase()
    for op in all_of(module, InitBarriers):
        op.arrivals = tuple(n - 1 if n > 1 else n for n in op.arrivals)


def _release_before_the_product(module: Module) -> None:
    for op in [op for op in all_of(module, CommitProducts) if in_loop(op)]:
        (mma,) = (o for o in op.parent if isinstance(o, TensorMma))
        op.remove()
        insert_before(op, mma)


def _without_the_last_wait(module: Module) -> None:
    (load,) = all_of(module, LoadTensor)
    last = [op for op in load.parent if isinstance(op, WaitBarrier)][-1]
    last.erase()


def _commit_before_the_loop(module: Module) -> None:
    """The last wait is for products that were started before the loop: none."""
    (load,) = all_of(module, LoadTensor)
    (loop,) = [op for op in load.parent if isinstance(op, For)]
    ops: list[Op] = []
    op = loop.next
    while op is not None and not isinstance(op, TensorWait):
        ops.append(op)
        op = op.next
    for op in ops:
        op.remove()
        insert_before(op, loop)


def _without_waits(copying: bool) -> Callable[[Module], None]:
    def spoil(module: Module) -> None:
        (both,) = all_of(module, Roles)
        region = both.copy if copying else both.compute
        for op in [op for op in region.walk() if isinstance(op, WaitBarrier) and in_loop(op)]:
            op.erase()

    spoil.__name__ = f"_without_waits_of_{'copies' if copying else 'products'}"
    return spoil


def _with_other_parity(copying: bool) -> Callable[[Module], None]:
    def spoil(module: Module) -> None:
        (both,) = all_of(module, Roles)
        region = both.copy if copying else both.compute
        for op in [op for op in region.walk() if isinstance(op, WaitBarrier) and in_loop(op)]:
            one = Constant(1, I32)
            insert_before(one, op)
            other = Xor(op.parity, one.result)
            insert_before(other, op)
            op.set_operand(2, other.result)

    spoil.__name__ = f"_with_other_parity_of_{'copies' if copying else 'products'}"
    return spoil


def _without_arrivals(module: Module) -> None:
    for op in all_of(module, Arrive):
        op.erase()


MUTANTS = [
    _without_release, _release_before_the_product, _without_the_last_wait,
    _commit_before_the_loop, _without_waits(True), _without_waits(False),
    _with_other_parity(True), _with_other_parity(False), _without_arrivals,
]  # fmt: skip


@cache
def _subject() -> tuple[Program, Module]:
    """What is spoiled in copies; right itself."""
    program = product(9)
    module, _ = lowered(program, num_stages=3)
    check(program, module)
    return program, module


@pytest.mark.sampled(3)
@pytest.mark.parametrize("spoil", MUTANTS)
def test_mutants_are_found(spoil: Callable[[Module], None]) -> None:
    program, module = _subject()
    module = module.clone()
    spoil(module)
    with pytest.raises((InterpreterError, AssertionError)):
        check(program, module)


# -- code -----------------------------------------------------------------------------------------


KINDS = {"fp16": "f16", "bf16": "f16", "fp32": "tf32", "fp8e4nv": "f8f6f4"}


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("type", "warps", "chip"), covering(KINDS, [4, 8], [100, 103]))
def test_instructions(type: str, warps: int, chip: int) -> None:
    """Of a tile of 256 x 256: two blocks of rows, four steps along 128 bytes of K; each thread of
    eight warps loads a row."""
    source, _ = source_of(product(3, type=type, tile=(256, 256)))
    options = {"num_warps": warps, "num_stages": 2}
    kernel = compile(source, target=GPUTarget("cuda", chip, 32), options=options)
    text = kernel.asm["ptx"]
    assert isinstance(text, str)
    assert text.count(f"tcgen05.mma.cta_group::1.kind::{KINDS[type]} ") == 2 * 4
    assert text.count("tcgen05.commit.cta_group::1") == 2
    loads = re.findall(r"tcgen05\.ld\.sync\.aligned\.32x32b\.x(\d+)\.b32", text)
    assert sum(map(int, loads)) == 256 * 256 // (32 * warps)
    assert re.search(r"tcgen05\.alloc\S+ \[%r\d+\], 512;", text)
    assert kernel.metadata.tmem_size == 512
    report = resources_of(processor(chip), kernel.metadata)
    columns = next(r for r in report if r.name == "columns of tensor memory")
    assert (columns.used, columns.limit) == (512, 512)
    occupancy = next(r for r in report if r.name == "occupancy")
    assert occupancy.note.startswith("1 CTA of ")
    assert "mma.sync" not in text
    assert kernel.asm["cubin"]


@pytest.mark.parametrize("warps", [4, 8])
def test_instructions_of_few_rows(warps: int) -> None:
    """16 rows of each warp, half of the columns of each of eight warps."""
    source, _ = source_of(product(3, tile=(64, 256)))
    kernel = compile(source, target=CHIP, options={"num_warps": warps, "num_stages": 2})
    text = kernel.asm["ptx"]
    assert isinstance(text, str)
    assert text.count("tcgen05.mma.cta_group::1.kind::f16 ") == 4
    loads = re.findall(r"tcgen05\.ld\.sync\.aligned\.16x256b\.x(\d+)\.b32", text)
    assert list(map(int, loads)) == [16] * (8 // warps)
    assert re.search(r"tcgen05\.alloc\S+ \[%r\d+\], 256;", text)
    assert kernel.asm["cubin"]


@pytest.mark.parametrize(("chip", "count"), [(100, 4), (103, 0), (110, 4)])
def test_int8_of_a_chip(chip: int, count: int) -> None:
    """Four steps along 128 bytes of K."""
    source, _ = source_of(product(3, type="i8"))
    kernel = compile(source, target=GPUTarget("cuda", chip, 32), options={"num_stages": 2})
    text = kernel.asm["ptx"]
    assert isinstance(text, str)
    assert text.count("tcgen05.mma.cta_group::1.kind::i8 ") == count
    assert ("mma.sync" in text) == (not count)
    assert kernel.asm["cubin"]


def test_hopper_and_others_have_none() -> None:
    source, _ = source_of(product(3))
    for chip in (90, 120):
        text = compile(source, target=GPUTarget("cuda", chip, 32)).asm["ptx"]
        assert isinstance(text, str)
        assert "tcgen05" not in text
