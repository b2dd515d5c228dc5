"""Atomics on the emulated GPU: every kind on every type, copies, masks, orders and results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from tests.ir_values import random_array
from tests.lowering.simt.harness import assert_same, run_emulated
from tests.lowering.simt.tiles import Threads, load, pointers
from tilewright.ir import types as ir
from tilewright.ir.builder import Builder
from tilewright.ir.core import Function, Module, Region, Value
from tilewright.ir.verify import verify_module
from tilewright.ops.arith import Add, And, Cast, Cmp, Constant, Select
from tilewright.ops.atomic import KINDS, AtomicCAS, AtomicRMW
from tilewright.ops.control import If, Return, Yield
from tilewright.ops.memory import AddPtr, Store
from tilewright.ops.shape import Arange, Splat

THREADS = [Threads(1, 1), Threads(2, 4), Threads(4, 32)]
# What the language has: on bools and fp8, the meaning in memory is not that of `arith.add`.
ELEMENTS = [t for t in ir.SCALARS if not (t.is_bool() or t.is_fp8())]
SHAPES: list[tuple[int, ...]] = [(), (1,), (32,), (4, 16)]

Act = Callable[[Builder, Value, Value, Value | None], Value]


def ids(value: Any) -> str:
    return value.short if isinstance(value, ir.DType) else str(value)


def kernel(
    element: ir.DType, shape: tuple[int, ...], act: Act, *, masked: bool, stores: bool
) -> Module:
    """Arguments: the memory, a value for each element, and where the results go."""
    fn = Function("kernel", [ir.Pointer(element)] * 3)
    b = Builder(fn.body)
    ptr, values, out = (pointers(b, a, shape) for a in fn.args)
    x = load(b, values)
    mask = None
    if masked:
        bits = b.value(Cast(x, ir.I32, "rtne"))
        one = b.value(Constant(1, bits.type))
        mask = b.value(Cmp(b.value(And(bits, one)), one, "eq"))
    old = act(b, ptr, x, mask)
    if stores:
        b.insert(Store(out, old, None, "", ""))
    b.insert(Return([]))
    module = Module([fn])
    verify_module(module)
    return module


def check(
    element: ir.DType,
    shape: tuple[int, ...],
    act: Act,
    *,
    threads: Sequence[Threads] = THREADS,
    **options: bool,
) -> None:
    rng = np.random.default_rng(3)
    args = [random_array(ir.Tile((max(1, int(np.prod(shape))),), element), rng) for _ in range(3)]
    module = kernel(element, shape, act, **options)
    for warps, lanes in threads:
        assert_same(module, (1, 1, 1), args, warps=warps, lanes=lanes)


@pytest.mark.parametrize("element", ELEMENTS, ids=ids)
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_on_every_type(kind: str, element: ir.DType) -> None:
    if element.is_floating() and kind in ("and", "or", "xor"):
        return  # the verifier rejects it

    def act(b: Builder, ptr: Value, x: Value, mask: Value | None) -> Value:
        return b.value(AtomicRMW(ptr, x, mask, kind, "acq_rel", "gpu"))

    # Each kind and each type meets each shape on all numbers of threads, and so does each pair;
    # whether it has a mask, and whether its result is used, differs between kinds.
    turn = KINDS.index(kind) + ELEMENTS.index(element)
    for i, shape in enumerate(SHAPES):
        threads = [THREADS[(turn + i) % len(THREADS)]]
        masked, stores = (turn + i) % 2 == 1, (turn // 2 + i) % 2 == 1
        check(element, shape, act, threads=threads, masked=masked, stores=stores)


@pytest.mark.parametrize("element", ELEMENTS, ids=ids)
def test_compare_and_swap(element: ir.DType) -> None:
    """Where memory equals the expected bit for bit."""

    def act(b: Builder, ptr: Value, x: Value, mask: Value | None) -> Value:
        expected = load(b, ptr)
        if mask is not None:
            expected = b.value(Select(mask, expected, x))
        return b.value(AtomicCAS(ptr, expected, x, None, "acq_rel", "gpu"))

    for shape in SHAPES:
        check(element, shape, act, masked=True, stores=True)
        check(element, shape, act, masked=False, stores=False)


@pytest.mark.parametrize("sem", ["relaxed", "acquire", "release", "acq_rel"])
@pytest.mark.parametrize("scope", ["cta", "gpu", "sys"])
def test_orders_and_scopes(sem: str, scope: str) -> None:
    def act(b: Builder, ptr: Value, x: Value, mask: Value | None) -> Value:
        b.value(AtomicRMW(ptr, x, mask, "add", sem, scope))
        old = b.value(AtomicRMW(ptr, x, mask, "min", sem, scope))
        return b.value(AtomicCAS(ptr, old, x, None, sem, scope))

    for element in (ir.I32, ir.FP16):
        for shape in ((), (32,)):
            check(element, shape, act, masked=False, stores=True)


@pytest.mark.parametrize("element", [ir.I32, ir.I16, ir.U8, ir.I64], ids=ids)
def test_many_threads_add_to_one_place(element: ir.DType) -> None:
    """No addition is lost, and none of a copy counts twice."""
    fn = Function("kernel", [ir.Pointer(element)])
    b = Builder(fn.body)
    for count in (1, 16, 256):
        start = b.value(Splat(fn.args[0], (count,)))
        zero = b.value(Constant(0, ir.Tile((count,), ir.I32)))
        one = b.value(Constant(1, ir.Tile((count,), element)))
        b.insert(AtomicRMW(b.value(AddPtr(start, zero)), one, None, "add", "acq_rel", "gpu"))
    one = b.value(Constant(1, element))
    b.insert(AtomicRMW(fn.args[0], one, None, "add", "acq_rel", "gpu"))
    b.insert(Return([]))
    for warps, lanes in THREADS:
        total = np.zeros(1, element.numpy)
        run_emulated(Module([fn]), (3, 1, 1), [total], warps=warps, lanes=lanes)
        assert total[0] == np.array(3 * (1 + 16 + 256 + 1)).astype(element.numpy)


def test_results_take_part_in_conditions() -> None:
    """All threads see what the one that acted found: the last of the programs writes."""
    fn = Function("kernel", [ir.Pointer(ir.I32), ir.Pointer(ir.I32), ir.I32])
    b = Builder(fn.body)
    one = b.value(Constant(1, ir.I32))
    seen = b.value(AtomicRMW(fn.args[0], one, None, "add", "acq_rel", "gpu"))
    last = b.value(Cmp(seen, fn.args[2], "eq"))
    branch = If(last, _writes(fn.args[1], seen), _nothing())
    b.insert(branch)
    b.insert(Return([]))
    out = np.zeros(64, np.int32)
    run_emulated(Module([fn]), (4, 1, 1), [np.zeros(1, np.int32), out, np.int32(3)], warps=4)
    assert (out == np.arange(64) + 3).all()


def _writes(array: Value, number: Value) -> Region:
    found = Region([])
    b = Builder(found)
    counted = b.value(Arange(0, 64))
    total = b.value(Add(counted, b.value(Splat(number, (64,)))))
    b.insert(Store(pointers(b, array, (64,)), total, None, "", ""))
    b.insert(Yield([]))
    return found


def _nothing() -> Region:
    found = Region([])
    Builder(found).insert(Yield([]))
    return found
