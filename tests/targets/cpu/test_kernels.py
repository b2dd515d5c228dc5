"""Whole kernels, from source, compiled for the CPU and interpreted: memory must end up alike."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tests.covering import covering
from tests.frontend.kernels import function_from
from tests.targets.cpu.harness import PLAIN_AVX2, assert_same, both, host, run_compiled
from tilewright.compiler import ASTSource
from tilewright.ir.interpret import interpret
from tilewright.ir.parser import parse_module
from tilewright.ir.types import scalar_type

F32, I32 = "*fp32", "*i32"


def ir_of(
    fn: Any, signature: dict[str, str], constexprs: dict[str, Any], disjoint: bool = True
) -> Any:
    """The kernel's tile IR after all passes."""
    types = signature | dict.fromkeys(constexprs, "constexpr")
    pointers = [i for i, t in enumerate(signature.values()) if t.startswith("*")]
    attrs = {(i,): [["tw.alias", n]] for n, i in enumerate(pointers)} if disjoint else {}
    source = ASTSource(fn, types, constexprs, attrs)
    return parse_module(tw.compile(source, target="interpreter").asm["ttir"])


def module_of(
    fn: Any, args: list[Any], types: str = "", disjoint: bool = True, **constexprs: Any
) -> Any:
    """The kernel's tile IR after all passes, for arguments (of `types`, where given)."""
    names = [p for p in fn.arg_names if p not in constexprs]
    kinds = types.split() if types else map(_kind, args)
    return ir_of(fn, dict(zip(names, kinds, strict=True)), constexprs, disjoint)


def same(
    fn: Any,
    args: list[Any],
    grid: tuple[int, ...] = (1,),
    types: str = "",
    disjoint: bool = True,
    tolerance: float | None = None,
    **constexprs: Any,
) -> None:
    """The kernel leaves the same bits (or numbers within a relative tolerance) under both."""
    module = module_of(fn, args, types, disjoint, **constexprs)
    x, y, z = (*grid, 1, 1)[:3]
    full = x, y, z
    for machine in (host(), host(PLAIN_AVX2)) if "avx2" in host().features else (host(),):
        if tolerance is None:
            assert_same(module, full, args, machine=machine)
            continue
        ours, theirs = both(module, full, args, machine=machine)
        for a, b in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(np.float64(a), np.float64(b), rtol=tolerance, atol=tolerance)


def _kind(a: Any) -> str:
    names = {"float32": "fp32", "float64": "fp64", "float16": "fp16", "bfloat16": "bf16",
             "int32": "i32", "int64": "i64", "int8": "i8", "uint8": "u8", "uint32": "u32",
             "bool": "i1"}  # fmt: skip
    a = np.asarray(a)
    return ("*" if a.ndim else "") + names[str(a.dtype)]


def floats(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def ints(*shape: int, low: int = -50, high: int = 50) -> Any:
    return np.random.default_rng(3).integers(low, high, shape).astype(np.int32)


# -- aliasing: a tile is loaded whole before anything of it is stored -----------------------------


@tw.jit
def shift(p, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(p + i + 1, tl.load(p + i))


@tw.jit
def shift_two(x, y, B: tl.constexpr):
    i = tl.arange(0, B)
    v = tl.load(x + i)
    tl.store(y + i, v * 2)
    tl.store(y + i + 1, v + tl.load(x + i))


@tw.jit
def in_place(p, n, B: tl.constexpr):
    i = tl.arange(0, B)
    m = i < n
    x = tl.load(p + i, mask=m, other=0.0)
    tl.store(p + i, x / tl.sum(x * x, 0) + x, mask=m)


@tw.jit
def transpose_in_place(p, B: tl.constexpr):
    i = tl.arange(0, B)
    x = tl.load(p + i[:, None] * B + i[None, :])
    tl.store(p + i[None, :] * B + i[:, None], x)


def test_store_to_loaded_memory() -> None:
    same(shift, [floats(65)], B=64)
    same(in_place, [floats(64), np.int32(37)], B=64, tolerance=1e-5)
    same(transpose_in_place, [floats(16, 16)], B=16)


def test_arguments_that_overlap() -> None:
    base = floats(70)
    module = ir_of(shift_two, {"x": F32, "y": F32}, {"B": 64}, disjoint=False)
    for offset in (0, 1, -1, 3):
        results: list[Any] = []
        for run in ("compiled", "interpreted"):
            memory = base.copy()
            x = memory[2:]
            y = memory[2 + offset :]
            if run == "compiled":
                run_compiled(module, (1, 1, 1), [x, y])
            else:
                interpret(module, (1, 1, 1), [x, y])
            results.append(memory)
        assert (results[0] == results[1]).all(), offset


# -- masks: every comparison, both ends, wrap-around ----------------------------------------------


@tw.jit
def masked(x, y, o, n, lo, B: tl.constexpr, KIND: tl.constexpr):
    i = tl.arange(0, B)
    if KIND == 0:
        m = i < n
    elif KIND == 1:
        m = i <= n
    elif KIND == 2:
        m = n > i
    elif KIND == 3:
        m = (i < n) & (i >= lo)
    elif KIND == 4:
        m = i * 3 + lo < n
    elif KIND == 5:
        m = (i < n) | (i == lo)
    elif KIND == 6:
        m = B - i < n
    elif KIND == 7:
        m = (i + lo) < n
    else:
        m = (i.to(tl.uint32) + 5) < n.to(tl.uint32)
    a = tl.load(x + i, mask=m, other=-1.0)
    b = tl.load(y + i, mask=m)
    tl.store(o + i, tl.where(m, a + b, 7.0), mask=m)
    tl.store(o + B + i, a)
    tl.store(o + 2 * B, tl.sum(a, 0))
    tl.store(o + 2 * B + 1, tl.max(a, 0))


ENDS = [-5, 0, 1, 15, 16, 17, 100, 127, 128, 2**31 - 1]


@pytest.mark.parametrize(("kind", "n", "lo"), covering(range(9), ENDS, [0, 3, 2**31 - 20]))
def test_masks(kind: int, n: int, lo: int) -> None:
    x = np.arange(128, dtype=np.float32)
    args = [x, x * 2, np.zeros(260, np.float32), np.int32(n), np.int32(lo)]
    same(masked, args, B=128, KIND=kind)


@tw.jit
def masked_2d(x, o, M, N, s, BM: tl.constexpr, BN: tl.constexpr):
    i = tl.program_id(0) * BM + tl.arange(0, BM)
    j = tl.arange(0, BN)
    m = (i[:, None] < M) & (j[None, :] < N)
    a = tl.load(x + i[:, None] * s + j[None, :], mask=m, other=0.5)
    tl.store(o + i[:, None] * s + j[None, :], a + tl.max(a, 1)[:, None], mask=m)
    tl.store(o + M * s + i, tl.min(a, 1), mask=i < M)
    tl.store(o + M * s + M + j, tl.max(a, 0), mask=j < N)


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (7, 33), (8, 64), (13, 5), (20, 40)])
def test_masks_on_two_axes(rows: int, columns: int) -> None:
    x = floats(rows, columns)
    out = np.zeros(rows * columns + rows + columns, np.float32)
    sizes = [np.int32(v) for v in (rows, columns, columns)]
    same(masked_2d, [x, out, *sizes], BM=32, BN=64)


@tw.jit
def kept_mask(x, o, n, B: tl.constexpr):
    i = tl.arange(0, B)
    m = i < n
    v = tl.load(x + i, mask=m, other=-float("inf"))
    chosen = (v > (tl.cumsum(tl.where(m, v, 0.0), 0) - 1) / (i + 1)) & m  # worth keeping
    count = tl.maximum(tl.sum(chosen.to(tl.int32), 0), 1)  # between the loops, so there are two
    total = tl.sum(tl.where(chosen, v, 0.0), 0)
    tl.store(o + i, total / count, mask=m)


@pytest.mark.parametrize("n", [0, 1, 15, 16, 17, 300, 511, 512])
def test_mask_materialised_for_a_later_reduction(n: int) -> None:
    """It holds at the first lane, and past the end it must not."""
    x = -np.arange(512, dtype=np.float32)
    same(kept_mask, [x, np.zeros(512, np.float32), np.int32(n)], B=512)


# -- reductions and scans -------------------------------------------------------------------------


@tw.jit
def reduce_3d(x, o, AXIS: tl.constexpr, A: tl.constexpr, B: tl.constexpr, C: tl.constexpr):
    i = tl.arange(0, A)[:, None, None]
    j = tl.arange(0, B)[None, :, None]
    k = tl.arange(0, C)[None, None, :]
    v = tl.load(x + (i * B + j) * C + k)
    r = tl.max(v, AXIS) - tl.min(v, AXIS)
    full = tl.expand_dims(r, AXIS) + v
    tl.store(o + (i * B + j) * C + k, full + tl.expand_dims(tl.argmax(v, AXIS), AXIS))


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("shape", [(4, 8, 16), (2, 32, 4), (16, 2, 64), (1, 4, 2)])
def test_reductions_in_three_dimensions(axis: int, shape: tuple[int, int, int]) -> None:
    a, b, c = shape
    x = np.round(floats(*shape) * 3)
    same(reduce_3d, [x, np.zeros_like(x)], AXIS=axis, A=a, B=b, C=c)


@tw.jit
def weird(a, b):
    return a * 3 + b * 5 - a * b


@tw.jit
def keep_last(a, i, b, j):
    take = j > i
    return tl.where(take, b, a), tl.where(take, j, i)


@tw.jit
def custom(x, o, B: tl.constexpr):
    i = tl.arange(0, B)
    v = tl.load(x + i)
    last, where = tl.reduce((v, i), 0, keep_last)
    tl.store(o, last)
    tl.store(o + 1, where)
    s = tl.associative_scan(v, 0, keep_max)
    tl.store(o + 2 + i, s)
    tl.store(o + 2 + B + i, tl.cumsum(v, 0, reverse=True))
    t = tl.reshape(v, (4, B // 4))
    c = tl.cumsum(t, 0)
    tl.store(o + 2 + 2 * B + i, tl.reshape(c, (B,)))
    d = tl.cumsum(t, 1, reverse=True)
    tl.store(o + 2 + 3 * B + i, tl.reshape(d, (B,)))
    tl.store(o + 2 + 4 * B, tl.xor_sum(v, 0))


@tw.jit
def keep_max(a, b):
    return tl.maximum(a, b)


@pytest.mark.parametrize("size", [4, 16, 64, 256])
def test_custom_combinations(size: int) -> None:
    same(custom, [ints(size), np.zeros(3 + 4 * size, np.int32)], B=size)


@tw.jit
def nan_extrema(x, o, B: tl.constexpr):
    i = tl.arange(0, B)
    j = tl.arange(0, 4)
    v = tl.load(x + j[:, None] * B + i[None, :])
    tl.store(o + j, tl.max(v, 1))
    tl.store(o + 4 + j, tl.min(v, 1))


def test_extrema_ignore_nan() -> None:
    x = floats(4, 64)
    x[0, 5] = np.nan
    x[1, :] = np.nan
    x[2, :] = -np.inf
    x[3, ::2] = np.inf
    same(nan_extrema, [x, np.zeros(8, np.float32)], B=64)


# -- control flow with tiles ----------------------------------------------------------------------


@tw.jit
def carried(x, o, n, B: tl.constexpr):
    i = tl.arange(0, B)
    a = tl.load(x + i)
    b = a * 2
    c = tl.zeros((B,), tl.float32)
    s = 0.0
    for k in range(n):
        a, b = b, a + k
        c = tl.flip(c, 0) + a
        s += tl.max(c, 0)
    tl.store(o + i, a)
    tl.store(o + B + i, b)
    tl.store(o + 2 * B + i, c + s)


@tw.jit
def transposed_carry(x, o, n, B: tl.constexpr):
    i = tl.arange(0, B)
    at = i[:, None] * B + i[None, :]
    a = tl.load(x + at)
    for k in range(n):
        a = tl.trans(a) + k
    tl.store(o + at, a)


@tw.jit
def branches(x, o, n, B: tl.constexpr):
    i = tl.arange(0, B)
    v = tl.load(x + i)
    t = 1.0
    if n > 3:
        v = v * 2
        t = 5.0
    else:
        if n == 2:
            v = tl.flip(v, 0)
        v = v + 1
    k = 0
    while k * k < n:
        v = v + tl.sum(v, 0) * 0.0 + k
        k += 1
    tl.store(o + i, v + t + k)


@pytest.mark.parametrize("n", [0, 1, 2, 5])
def test_control_flow(n: int) -> None:
    same(carried, [floats(32), np.zeros(96, np.float32), np.int32(n)], B=32)
    x = floats(16, 16)
    same(transposed_carry, [x, np.zeros_like(x), np.int32(n)], B=16)
    same(branches, [floats(64), np.zeros(64, np.float32), np.int32(n)], B=64)


@tw.jit
def backwards(o, start, stop, step):
    k = 0
    for i in range(start, stop, step):
        tl.store(o + k, i)
        k += 1
    tl.store(o + 63, k)


@pytest.mark.parametrize(("start", "stop", "step"), [
    (0, 10, 3), (5, 5, 1), (7, 2, 1), (2**31 - 5, 2**31 - 1, 3), (-4, 4, 2)])  # fmt: skip
def test_loop_bounds(start: int, stop: int, step: int) -> None:
    args = [np.zeros(64, np.int32), np.int32(start), np.int32(stop), np.int32(step)]
    same(backwards, args)


# -- shapes ---------------------------------------------------------------------------------------


@tw.jit
def shapes(x, o, B: tl.constexpr):
    i = tl.arange(0, B)
    v = tl.load(x + i)
    w = tl.load(x + B + i)
    tl.store(o + i, tl.flip(v, 0))
    both = tl.join(v, w)
    tl.store(o + B + tl.arange(0, 2 * B), tl.reshape(both, (2 * B,)))
    left, right = tl.split(tl.reshape(v, (B // 2, 2)))
    j = tl.arange(0, B // 2)
    tl.store(o + 3 * B + j, left - right)
    tl.store(o + 4 * B + tl.arange(0, 2 * B), tl.cat(v, w, can_reorder=False))
    square = tl.reshape(v, (4, B // 4))
    tl.store(o + 6 * B + i, tl.reshape(tl.trans(square), (B,)))
    cube = tl.permute(tl.reshape(v, (2, 2, B // 4)), (2, 0, 1))
    tl.store(o + 7 * B + i, tl.reshape(cube, (B,)))
    tl.store(o + 8 * B + i, tl.gather(v, (i * 7 + 3) % B, 0))
    tl.store(o + 9 * B + tl.arange(0, 2 * B), tl.interleave(v, w))


@pytest.mark.parametrize("size", [8, 16, 64, 128])
def test_shapes(size: int) -> None:
    same(shapes, [floats(2 * size), np.zeros(11 * size, np.float32)], B=size)


# -- dot ------------------------------------------------------------------------------------------


@tw.jit
def product(a, b, o, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, OUT: tl.constexpr):
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    x = tl.load(a + m[:, None] * K + k[None, :])
    y = tl.load(b + k[:, None] * N + n[None, :])
    tl.store(o + m[:, None] * N + n[None, :], tl.dot(x, y, out_dtype=OUT))


@pytest.mark.parametrize(
    "shape", [(16, 16, 16), (64, 64, 32), (1, 16, 8), (32, 128, 64), (2, 4, 4)]
)
@pytest.mark.parametrize("kind", ["fp32", "fp16", "bf16", "i8", "fp64"])
def test_dot(shape: tuple[int, int, int], kind: str) -> None:
    m, n, k = shape
    element = scalar_type(kind)
    out = {"i8": "i32", "fp64": "fp64"}.get(kind, "fp32")
    a = (floats(m, k) * 4).astype(element.numpy)
    b = (floats(k, n, seed=1) * 4).astype(element.numpy)
    o = np.zeros((m, n), scalar_type(out).numpy)
    types = f"*{kind} *{kind} *{out}"
    tolerance = None if kind == "i8" else 1e-4
    same(product, [a, b, o], types=types, tolerance=tolerance, M=m, N=n, K=k,
         OUT=scalar_type(out))  # fmt: skip


# -- atomics --------------------------------------------------------------------------------------


@tw.jit
def atomics(p, q, o, B: tl.constexpr):
    i = tl.arange(0, B)
    m = i % 3 > 0
    old = tl.atomic_add(p + i % 4, i, mask=m)
    tl.store(o + i, old, mask=m)
    tl.atomic_max(p + 4 + i % 2, i * (i % 5))
    tl.atomic_min(p + 6, tl.program_id(0) - 3)
    tl.atomic_xor(p + 7 + i * 0, i)
    tl.atomic_add(q + i % 2, i * 0.5)
    tl.atomic_max(q + 2 + i % 2, i * 0.25 - 3.0)
    tl.atomic_xchg(q + 5, 9.0)
    tl.store(o + B, tl.atomic_cas(p + 8, 0, 5))


def test_atomics() -> None:
    same(atomics, [np.zeros(9, np.int32), np.zeros(6, np.float32), np.zeros(33, np.int32)],
         grid=(3,), B=32)  # fmt: skip


# -- pointers -------------------------------------------------------------------------------------


@tw.jit
def strides(x, o, n, s, B: tl.constexpr):
    i = tl.arange(0, B)
    m = i < n
    acc = tl.zeros((B,), tl.float32)
    p = x + i * 4
    for k in range(4):
        acc += tl.load(p + k, mask=m, other=0.0) * (k + 1)
    acc += tl.load(x + (B - 1 - i))
    acc += tl.load(x + i * s)
    acc += tl.load(x + (i * i) % 7)
    tl.store(o + i * 3, acc, mask=m)
    tl.store(o + 3 * B + (B - 1 - i), acc)


@pytest.mark.parametrize("n", [0, 5, 16, 37, 64])
def test_strides(n: int) -> None:
    args = [floats(260), np.zeros(4 * 64 + 4, np.float32), np.int32(n), np.int32(2)]
    same(strides, args, B=64)


@tw.jit
def bumped(x, o, n, B: tl.constexpr):
    i = tl.arange(0, B)
    p = x + i
    q = o
    acc = tl.zeros((B,), tl.float32)
    for _ in range(n):
        v = tl.load(p)
        acc += v
        tl.store(q + i, acc)
        p += B
        q += 2 * B


def test_pointers_carried_by_a_loop() -> None:
    same(bumped, [floats(256), np.zeros(512, np.float32), np.int32(4)], B=64)


@tw.jit
def bools(x, o, B: tl.constexpr):
    i = tl.arange(0, B)
    v = tl.load(x + i)
    tl.store(o + i, ~v)
    tl.store(o + B + i, v & (i > 5))
    tl.store(o + 2 * B, tl.sum(v.to(tl.int32), 0) > 3)


def test_bools() -> None:
    x = np.random.default_rng(0).integers(0, 2, 48).astype(np.bool_)[:32]
    same(bools, [x, np.zeros(65, np.bool_)], B=32)


MASKED_SWAP = """
func @swap(%p: ptr<i32>, %m: ptr<i1>, %o: ptr<i32>) {
  %i = tile.arange start=0, end=6 : () -> 6xi32
  %b = tile.splat %p, shape=(6,) : ptr<i32> -> 6xptr<i32>
  %q = mem.addptr %b, %i : (6xptr<i32>, 6xi32) -> 6xptr<i32>
  %c = tile.splat %m, shape=(6,) : ptr<i1> -> 6xptr<i1>
  %n = mem.addptr %c, %i : (6xptr<i1>, 6xi32) -> 6xptr<i1>
  %k = mem.load %n, _, _, cache="", evict="", volatile=False : 6xptr<i1> -> 6xi1
  %s = arith.constant value=7, type=6xi32 : () -> 6xi32
  %r = atomic.cas %q, %i, %s, %k, sem="relaxed", scope="gpu"
    : (6xptr<i32>, 6xi32, 6xi32, 6xi1) -> 6xi32
  %d = tile.splat %o, shape=(6,) : ptr<i32> -> 6xptr<i32>
  %e = mem.addptr %d, %i : (6xptr<i32>, 6xi32) -> 6xptr<i32>
  mem.store %e, %r, _, cache="", evict="" : (6xptr<i32>, 6xi32) -> ()
  control.return [] : () -> ()
}
"""


def test_masked_compare_and_swap() -> None:
    x = np.array([0, 1, 9, 3, 4, 9], np.int32)
    mask = np.array([True, False, True, True, False, False])
    args = [x, mask, np.zeros(6, np.int32)]
    assert_same(MASKED_SWAP, (1, 1, 1), args)
    ours, _ = both(MASKED_SWAP, (1, 1, 1), args)
    assert ours[0].tolist() == [7, 1, 9, 7, 4, 9]
    assert ours[2].tolist() == [0, 0, 9, 3, 0, 0]


@tw.jit
def read_before_write(p, q, o, n, B: tl.constexpr):
    i, j = tl.arange(0, B), tl.arange(0, 4)
    square = i[:, None] * n + j[None, :]
    at = tl.sum(square, axis=1) % B
    w = tl.load(q + at)  # waits for the sums, and the next store, of their shape, for this
    tl.store(p + i[:, None] * 4 + j[None, :], square)
    tl.store(o + i, w)


def test_store_is_not_reordered_before_an_earlier_load() -> None:
    args = [ints(64), ints(16), ints(16), np.int32(3)]
    same(read_before_write, args, types="*i32 *i32 *i32 i32", disjoint=False, B=16)


SUMS_OF_PRODUCTS = (
    "tl.max(x * y, 1)[:, None] * 0.5 + x * 0.7", "x * y + x * z - y", "x * 0.3 + y * z",
    "(x * y) / z + x * 0.7",
)  # fmt: skip


@pytest.mark.parametrize("value", SUMS_OF_PRODUCTS)
def test_an_element_is_the_same_wherever_it_is_computed(value: str) -> None:
    """Each loop that uses a tile may compute it again; the smallest element of a column is one of
    its elements nevertheless."""
    lines = (
        "def kernel(x_ptr, y_ptr, z_ptr, a_ptr, o_ptr):",
        "    at = tl.arange(0, 4)[:, None] * 8 + tl.arange(0, 8)[None, :]",
        "    x, y, z = tl.load(x_ptr + at), tl.load(y_ptr + at), tl.load(z_ptr + at)",
        f"    v = {value}",
        "    tl.store(a_ptr + at, x * 0.7)",
        "    tl.store(o_ptr + at, (v == tl.min(v, 0)[None, :]).to(tl.int32))",
    )
    kernel = tw.jit(function_from("\n".join(lines)))
    rng = np.random.default_rng(0)
    for _ in range(20):
        x, y, z, a = (rng.uniform(0.5, 2.0, (4, 8)) for _ in range(4))
        found = np.zeros((4, 8), np.int32)
        kernel[(1,)](x, y, z, a, found)
        assert (found.sum(0) == 1).all()
