"""Pointers, loads and stores.

Canonical form: no constant masks, no `other` of zero (the default), no select between a masked load
and a constant. Termination: each rule decreases (number of elements accessed, number of operands),
in lexicographic order. Volatile loads are not changed.
"""

from __future__ import annotations

from tilewright.ir.core import Value
from tilewright.ir.rewriter import Rewriter, rewrite
from tilewright.ir.types import Tile, is_float, shape_of
from tilewright.ops.arith import Constant, Select
from tilewright.ops.atomic import AtomicLoad, AtomicRMW
from tilewright.ops.memory import AddPtr, Load, Store
from tilewright.ops.shape import Reshape, Splat
from tilewright.rewrites.patterns import constant, is_float_of, is_int_of, known
from tilewright.rewrites.shape import without_dropped_axes


@rewrite(AddPtr)
def addptr_of_zero(op: AddPtr, rw: Rewriter) -> Value | None:
    """p + 0 = p"""
    return op.ptr if is_int_of(op.offset, 0) else None


def _is_zero(value: Value) -> bool:
    return is_float_of(value, 0.0) if is_float(value.type) else is_int_of(value, 0)


@rewrite(Load)
def load_with_known_mask(op: Load, rw: Rewriter) -> Value | None:
    """load(p, true, o) = load(p); load(p, false, o) = o; load(p, m, 0) = load(p, m)"""
    if op.mask is None or op.volatile:
        return None
    choice = known(op.mask)
    if choice is False:
        return op.other or constant(rw, 0, op.result.type)
    if choice is True:
        return rw.insert(Load(op.ptr, None, None, op.cache, op.evict, False))
    if op.other is not None and _is_zero(op.other):
        return rw.insert(Load(op.ptr, op.mask, None, op.cache, op.evict, False))
    return None


@rewrite(Load)
def load_of_splat(op: Load, rw: Rewriter) -> Value | None:
    """load(splat(p)) = splat(load(p))"""
    match op.ptr.op:
        case Splat(p) if op.mask is None and not op.volatile:
            assert isinstance(op.result.type, Tile)
            one = rw.insert(Load(p, None, None, op.cache, op.evict, False))
            return rw.insert(Splat(one, op.result.type.shape))
        case _:
            return None


@rewrite(Reshape)
def reshape_of_load(op: Reshape, rw: Rewriter) -> Value | None:
    """reshape(load(p, m, o)) = load(reshape(p), reshape(m), reshape(o)) where it drops axes of
    length 1, and the load has one use"""
    load = op.src.op
    if not isinstance(load, Load) or load.volatile or len(op.src.users) != 1:
        return None
    if without_dropped_axes(op, shape_of(op.src.type)) is None:
        return None

    def dropped(value: Value | None) -> Value | None:
        return value and rw.insert(Reshape(value, op.shape))

    with rw.before(load):  # memory may be written between the load and this op
        ptr = rw.insert(Reshape(load.ptr, op.shape))
        mask, other = dropped(load.mask), dropped(load.other)
        return rw.insert(Load(ptr, mask, other, load.cache, load.evict, False))


@rewrite(Select)
def select_of_masked_load(op: Select, rw: Rewriter) -> Value | None:
    """select(m, load(p, m, o), k) = load(p, m, k) for a constant k, where the load has one use"""
    load = op.on_true.op
    number = known(op.on_false)
    if not isinstance(load, Load) or number is None or load.volatile:
        return None
    if load.mask is not op.condition or len(load.result.users) != 1 or op.on_false is op.on_true:
        return None
    with rw.before(load):  # memory may be written between the load and this op
        other = rw.insert(Constant(number, op.on_false.type))
        return rw.insert(Load(load.ptr, load.mask, other, load.cache, load.evict, False))


@rewrite(Store)
def store_with_known_mask(op: Store, rw: Rewriter) -> tuple[()] | None:
    """store(p, x, true) = store(p, x); store(p, x, false) is removed"""
    choice = known(op.mask) if op.mask is not None else None
    if choice is None:
        return None
    if choice is True:
        rw.insert_op(Store(op.ptr, op.value, None, op.cache, op.evict))
    return ()


@rewrite(AtomicRMW)
def atomic_with_known_mask(op: AtomicRMW, rw: Rewriter) -> Value | None:
    """atomic(p, x, true) = atomic(p, x); atomic(p, x, false) = 0"""
    choice = known(op.mask) if op.mask is not None else None
    if choice is None:
        return None
    if choice is False:
        return constant(rw, 0, op.result.type)
    return rw.insert(AtomicRMW(op.ptr, op.value, None, op.kind, op.sem, op.scope))


@rewrite(AtomicRMW)
def atomic_of_identity(op: AtomicRMW, rw: Rewriter) -> Value | None:
    """atomic(p, 0, m) = atomic_load(p, m) for a sum, or, or xor of integers, if a load can have its
    order: kernels poll flags so. Loads of programs that wait do not hold each other up"""
    if op.kind not in ("add", "or", "xor") or op.sem not in ("relaxed", "acquire"):
        return None
    return (
        rw.insert(AtomicLoad(op.ptr, op.mask, op.sem, op.scope)) if is_int_of(op.value, 0) else None
    )
