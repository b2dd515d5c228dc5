"""Blocks of tensors that one thread stores, interpreted by a machine on which that ends late.

Each op of the protocol is removed or changed once: the machine must find that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tests.gpu import products
from tests.gpu.programs import HOPPER, Program, source_of
from tests.targets.nvidia.test_products import check, compiled, count, lowered, square
from tilewright.base.diagnostics import InterpreterError
from tilewright.compiler.driver import compile
from tilewright.ir.core import Module, Op
from tilewright.ops.control import Barrier
from tilewright.ops.gpu import Publish, WriteBuffer
from tilewright.ops.memory import Store
from tilewright.ops.nvidia import StoreBlock, WaitStores


def stored(program: Program, warps: int, stages: int) -> Module:
    """The IR of a program whose result is stored as a block, and nothing else."""
    module, counts = lowered(program, warps, stages, tensor_copies=True)
    assert counts["stored blocks"] == count(module, StoreBlock) == 1
    assert count(module, Store) == 0
    return module


@pytest.mark.parametrize("warps", [4, 8])
@pytest.mark.parametrize("stages", [2, 3])
def test_matmul(warps: int, stages: int) -> None:
    """One tile, for any number of iterations, and tiles that reach beyond the matrix."""
    shapes = [(128, 128, 32 * steps) for steps in range(stages + 2)]
    for shape in (*shapes, (136, 144, 32), (16, 16, 64)):
        program = products.matmul("fp16", "fp16", "nn", shape, (128, 128, 32))
        module = stored(program, warps, stages)
        check(program, module)


@pytest.mark.parametrize("out", ["fp16", "bf16"])
def test_matmul_of_other_types(out: str) -> None:
    program = products.matmul("fp16", out, "nt", (64, 256, 64), (64, 256, 32))
    check(program, stored(program, 4, 3))


@tw.jit
def products_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
    ONE: tl.constexpr,
):  # fmt: skip
    """One program for all tiles; if ONE, all of them are stored to the first tile."""
    columns = tl.cdiv(N, BN)
    for tile in range(tl.cdiv(M, BM) * columns):
        row, column = tile // columns, tile % columns
        m, n = row * BM + tl.arange(0, BM), column * BN + tl.arange(0, BN)
        acc = tl.zeros((BM, BN), tl.float32)
        for step in range(tl.cdiv(K, BK)):
            k = step * BK + tl.arange(0, BK)
            a = tl.load(a_ptr + m[:, None] * K + k, mask=(m[:, None] < M) & (k < K), other=0.0)
            b = tl.load(b_ptr + k[:, None] * N + n, mask=(k[:, None] < K) & (n < N), other=0.0)
            acc = tl.dot(a, b, acc)
        if ONE:
            m, n = tl.arange(0, BM), tl.arange(0, BN)
        inside = (m[:, None] < M) & (n < N)
        tl.store(c_ptr + m[:, None] * N + n, acc.to(tl.float16), mask=inside)


def many(m: int, n: int, k: int, one: bool = False) -> Program:
    a, b = products.matrix("fp16", m, k), products.matrix("fp16", k, n)
    exact = (a.astype(np.float32) @ b.astype(np.float32)).astype(np.float16)
    if one:
        last = exact[m - 64 :, n - 64 :]
        exact = np.zeros((m, n), np.float16)
        exact[:64, :64] = last
    args = [a, b, np.zeros((m, n), np.float16), m, n, k]
    constants = {"BM": 64, "BN": 64, "BK": 32, "ONE": one}
    return Program(products_kernel, args, constants, (1,), 1e-2, [a, b, exact])


@pytest.mark.parametrize("stages", [2, 3])
@pytest.mark.parametrize("shape", [(0, 64, 64), (64, 64, 64), (80, 144, 96), (192, 64, 160)])
def test_loop_of_tiles(stages: int, shape: tuple[int, int, int]) -> None:
    """The next tile's copies and products run while a block is stored."""
    program = many(*shape)
    module = stored(program, 4, stages)
    check(program, module)
    check(program, module, seed=stages)


def test_tiles_that_are_stored_to_the_same_place() -> None:
    program = many(128, 128, 64, one=True)
    check(program, stored(program, 4, 2))


def test_descriptors() -> None:
    program = products.persistent(3, 5, 64, 64, programs=1, transposed=True)
    module, _ = lowered(program, 4, 3, tensor_copies=True)
    check(program, module)


def test_attention() -> None:
    """The result is a block; the sums are stored by all threads, to another array."""
    program = products.attention(64, 128, 128, (128, 32), causal=False, heads=1)
    module, _ = lowered(program, 4, 2, tensor_copies=True)
    assert (count(module, StoreBlock), count(module, Store)) == (1, 1)
    check(program, module)


# -- the machine finds what is wrong --------------------------------------------------------------


def all_of(module: Module, cls: type[Op]) -> list[Op]:
    return [op for op in module.walk() if isinstance(op, cls)]


def without(cls: type[Op], which: int) -> Callable[[Module], None]:
    def spoil(module: Module) -> None:
        all_of(module, cls)[which].erase()

    return spoil


def without_barrier_after(cls: type[Op]) -> Callable[[Module], None]:
    def spoil(module: Module) -> None:
        barrier = all_of(module, cls)[0].next
        assert isinstance(barrier, Barrier)
        barrier.erase()

    return spoil


def published_late(module: Module) -> None:
    """Publish after the barrier: another thread may store before."""
    (publish,) = all_of(module, Publish)
    barrier, region = publish.next, publish.parent
    assert barrier is not None
    assert region is not None
    publish.remove()
    region.insert_after(publish, barrier)


def waited_for_late(module: Module) -> None:
    wait = all_of(module, WaitStores)[0]
    assert isinstance(wait, WaitStores)
    wait.pending += 1


MUTANTS: dict[str, Callable[[Module], None]] = {
    "no wait in the loop": without(WaitStores, 0),
    "no wait at the end": without(WaitStores, -1),
    "a wait for an earlier store": waited_for_late,
    "no publication": without(Publish, 0),
    "publication after the barrier": published_late,
    "no barrier between writes and the store": without_barrier_after(Publish),
    "no barrier between the wait and writes": without_barrier_after(WaitStores),
    "no write": without(WriteBuffer, 0),
    "no store": without(StoreBlock, 0),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_mutants_are_found(name: str) -> None:
    program = many(128, 128, 64)
    module = stored(program, 4, 2)
    check(program, module)
    MUTANTS[name](module)
    with pytest.raises((InterpreterError, AssertionError)):
        check(program, module)


def test_wait_for_reads_alone_is_too_little_where_stores_overlap() -> None:
    program = many(128, 128, 64, one=True)
    module = stored(program, 4, 2)
    wait = all_of(module, WaitStores)[0]
    assert isinstance(wait, WaitStores)
    wait.read = True
    with pytest.raises(InterpreterError, match="a block is being stored"):
        check(program, module)


# -- stores that stay as they are -----------------------------------------------------------------


@tw.jit
def refused_kernel(
    a_ptr, b_ptr, c_ptr, flag_ptr, ldc, M, CASE: tl.constexpr,
):  # fmt: skip
    m, n, k = tl.arange(0, 64), tl.arange(0, 64), tl.arange(0, 64)
    a, b = tl.load(a_ptr + m[:, None] * 64 + k), tl.load(b_ptr + k[:, None] * 64 + n)
    c = tl.dot(a, b).to(tl.float16)
    place = c_ptr + m[:, None] * ldc + n
    if CASE == "read":
        tl.store(flag_ptr, tl.load(c_ptr).to(tl.int32))
    if CASE == "hole":
        tl.store(place, c, mask=((m[:, None] & 1) > 0) & (n < 64))
    elif CASE == "wrap":
        tl.store(c_ptr + (m[:, None] % M) * ldc + n, c)
    elif CASE == "cache":
        tl.store(place, c, cache_modifier=".cs")
    else:
        tl.store(place, c)
    if CASE == "flag":
        tl.atomic_add(flag_ptr, 1, sem="release")
    if CASE == "written twice":
        tl.store(c_ptr + n, tl.zeros((64,), tl.float16))


REFUSED = {
    "read": "other accesses of the kernel may overlap",
    "written twice": "other accesses of the kernel may overlap",
    "flag": "may let other programs read the memory: atomic.rmw",
    "hole": "the mask does not consist of bounds",
    "wrap": "rows that wrap around",
    "cache": "the store has caching hints",
}


def refused(case: str) -> Program:
    a, b = products.matrix("fp16", 64, 64), products.matrix("fp16", 64, 64)
    args = [a, b, np.zeros((64, 64), np.float16), np.zeros(1, np.int32), 64, 48]
    return Program(refused_kernel, args, {"CASE": case})


@pytest.mark.parametrize("case", REFUSED)
def test_refusals(case: str) -> None:
    module, ctx = compiled(refused(case), num_warps=4)
    assert count(module, StoreBlock) == 0
    line = next(r for r in ctx.missed_remarks if r.by == "store_blocks")
    assert REFUSED[case] in line.text
    assert line.loc is not None


@pytest.mark.parametrize("option", ["tensor_copies", "tensor_stores"])
def test_options(option: str) -> None:
    module, _ = compiled(refused(""), num_warps=4)
    assert count(module, StoreBlock) == 1
    module, ctx = compiled(refused(""), num_warps=4, **{option: False})
    assert count(module, StoreBlock) == 0
    assert not [r for r in ctx.missed_remarks if r.by == "store_blocks"]


def test_arrays_that_overlap() -> None:
    """A result that is written over an operand is stored by all threads."""
    program = many(64, 64, 64)
    a, b, _, *rest = program.args
    module, _ = compiled(replace(program, args=[a, b, a, *rest]), num_warps=4)
    assert count(module, StoreBlock) == 0


@pytest.mark.parametrize("name", ["tiled", "tiles"])
def test_assembler_serialises_nothing(name: str) -> None:
    program = square(4, type="fp16") if name == "tiled" else many(256, 256, 64)
    source, _ = source_of(program)
    plain = compile(source, HOPPER, {"tensor_stores": False}).metadata
    kernel = compile(source, HOPPER).metadata
    assert len(kernel.tensor_maps) == len(plain.tensor_maps) + (name == "tiles")
    assert kernel.n_regs <= plain.n_regs
    assert kernel.shared <= plain.shared
    assert kernel.n_spills == 0
