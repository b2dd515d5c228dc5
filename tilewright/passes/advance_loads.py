"""Hoists loads above stores to other memory, so that more loads are in flight.

    a = load(p)                        a = load(p)
    store(q, a)                →       b = load(p + 1)
    b = load(p + 1)                    store(q, a)
                                       store(q + 1, b)

The assembler preserves the order of loads and stores, since it cannot prove that they access
different memory. Steps of a recurrence that shift a short state load an element, store it elsewhere
and load the next one, so that each load exposes the memory latency. Stores of values that do not
depend on loads do not wait, and stay first: with the loads first, a loop that stores its state
before it loads the increment took 230 instead of 221 µs on an H200.

Two accesses are of different memory if their arguments do not overlap, or if they differ by a
constant c and have the same tile of offsets, whose strides have a common divisor that does not
divide c, as for fields of an element. n-bit offsets differ by the sum of the strides, each times a
difference of indices, plus possibly a multiple of 2^n; if that sum and c are small, the multiple is
0, and the difference is a multiple of the divisor, hence not c.

Input: tile IR with pointers in canonical form, without layouts. Output: the same, with loads and
the computation of their addresses above stores. Nothing moves across other effects, out of or into
a region, or above stores of values on which the address depends. The hoisted tiles take at most
`MOST_REGISTERS`. Linear in the number of ops between a load and the stores before it.
"""

from __future__ import annotations

from collections.abc import Collection
from math import gcd, prod

from tilewright.analysis.affine import AffineForms
from tilewright.analysis.dependences import dependent_ops
from tilewright.analysis.pointers import may_overlap
from tilewright.ir.core import Function, Op, Region, Value
from tilewright.ir.passes import PassContext, compiler_pass
from tilewright.ir.types import dtype_of, element_of, shape_of
from tilewright.ops.arith import constant_value
from tilewright.ops.dot import Dot
from tilewright.ops.memory import AddPtr, Load, Store
from tilewright.ops.shape import Splat

NAME = "advance_loads"
MOST_REGISTERS = 16
"""Of a thread, for what the loads of a region that start earlier bring."""
MOST_OPS = 256
"""Between a load and the place where it starts."""


@compiler_pass(NAME)
def advance_loads(fn: Function, ctx: PassContext) -> bool:
    """Start loads before stores to other memory; see the module docstring."""
    forms = AffineForms()
    moved = 0
    for region in _regions(fn.body):
        if any(isinstance(op, Dot) for op in region):
            continue  # loads of a product's operands are pipelined
        left, waiting = MOST_REGISTERS, _waiting(region)
        for load in [op for op in region if isinstance(op, Load) and not op.volatile]:
            needed = _registers(load, ctx)
            place, behind = _place(fn, load, forms, waiting) if needed <= left else (None, [])
            if place is not None:
                for op in reversed(behind):
                    op.remove()
                    region.insert_before(op, place)
                ctx.did(NAME, "starts before stores to other memory", load.loc)
                left -= needed
                moved += 1
    ctx.count("advanced", moved)
    return moved > 0


def _regions(region: Region) -> list[Region]:
    result = [region]
    for op in region:
        if not op.pure:
            for inner in op.regions:
                result += _regions(inner)
    return result


def _registers(load: Load, ctx: PassContext) -> int:
    """The registers of a thread for a tile, of which each element takes at least one."""
    elements = -(-prod(shape_of(load.result.type)) // ctx.gpu.threads)
    return elements * -(-element_of(load.result.type).nbytes_in_memory // 4)


def _waiting(region: Region) -> set[Op]:
    """The stores of a region that depend on its loads."""
    loads = [op for op in region if any(isinstance(inner, Load) for inner in op.walk())]
    dependent = dependent_ops((v for op in loads for v in op.results), region)
    return set[Op](op for op in dependent if isinstance(op, Store))


def _place(
    fn: Function, load: Load, forms: AffineForms, waiting: Collection[Op]
) -> tuple[Store | None, list[Op]]:
    """The earliest waiting store above which the load may be hoisted, with all stores in between;
    and the load and its dependencies among the ops after that store, in reverse order."""
    found, count = None, 0
    behind, needed = list[Op]([load]), set(load.operands)
    op = load.prev
    for _ in range(MOST_OPS):
        if op is None:
            break
        if needed.intersection(op.results):
            if not op.pure:
                break
            needed.update(op.all_operands())
            behind.append(op)
        elif isinstance(op, Store):
            if not _is_elsewhere(fn, load, op, forms):
                break
            if op in waiting:
                found, count = op, len(behind)
        elif op.writes():
            break
        op = op.prev
    return found, behind[:count]


def _is_elsewhere(fn: Function, load: Load, store: Store, forms: AffineForms) -> bool:
    """Whether a load reads no element that a store writes."""
    if not may_overlap(fn, load.ptr, store.ptr):
        return True
    a, b = _parts(load.ptr), _parts(store.ptr)
    if a is None or b is None or a[:2] != b[:2]:
        return False
    offsets, distance = a[1], b[2] - a[2]
    form, shape = forms.of(offsets), shape_of(offsets.type)
    strides = [s.constant for s in form.strides]
    if form.assumed or form.pieces or not strides or None in strides:
        return False
    span = sum(abs(s or 0) * (n - 1) for s, n in zip(strides, shape, strict=True))
    fits = span + abs(distance) < 1 << dtype_of(offsets.type).primitive_bitwidth - 1
    divisor = gcd(*(s or 0 for s in strides))
    return fits and (distance % divisor if divisor else distance) != 0


def _parts(ptr: Value) -> tuple[Value, Value, int] | None:
    """The base of the pointers of a tile, their offsets, and a constant distance from the base."""
    op = ptr.op
    if not isinstance(op, AddPtr) or not isinstance(op.ptr.op, Splat):
        return None
    base, at = op.ptr.op.src, 0
    if isinstance(base.op, AddPtr) and (offset := constant_value(base.op.offset)) is not None:
        base, at = base.op.ptr, int(offset)
    return base, op.offset, at
