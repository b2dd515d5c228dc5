"""Hoists the loop-invariant part of addresses that a loop computes, and computes the common part of
several addresses once (`shared_addresses.py`).

    loop:                                     q = addptr(splat(p), y)
        a = addptr(splat(p), x + y)    =>     loop:
        load(a)                                   a = addptr(q, x)

This saves the addition of `y` in each iteration; an address is one 64-bit multiplication and
addition. The same applies to a uniform offset that the loop loads: `addptr(p, x)` is a pointer
then; and to scalar pointers, whose offset may have several such terms. Pointers are added modulo
2^64, so the order does not matter. If masked accesses are buffer accesses, their offsets have 32
bits, and the pointer is not changed.

Input: laid-out IR from which loop-invariant ops are hoisted, with pointers in canonical form, as
`canonicalize_pointers` leaves them. Output: addresses of loops in the form above, which is not
canonical: passes that decompose pointers run before. Linear in the size of the function.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import cache

from tilewright.analysis.buffers import FEATURE as BUFFERS
from tilewright.analysis.buffers import has_free_mask
from tilewright.ir.builder import Builder
from tilewright.ir.core import Function, Op, Region, Value
from tilewright.ir.passes import PassContext, compiler_pass
from tilewright.ir.types import I64, dtype_of, shape_of
from tilewright.ops.arith import Add
from tilewright.ops.control import For, While
from tilewright.ops.memory import AddPtr, Load, Store
from tilewright.ops.shape import Splat
from tilewright.passes.software_pipelining import is_unrolled
from tilewright.targets.gpu.shared_addresses import share_addresses
from tilewright.targets.gpu.sums import sum_of, terms_of
from tilewright.targets.gpu.thread_pointers import is_one_access

NAME = "hoist_addresses"


@compiler_pass(NAME)
def hoist_addresses(fn: Function, ctx: PassContext) -> bool:
    """Add the loop-invariant part of addresses to the pointer before the loop; see the module
    docstring."""
    loops = [op for op in fn.walk() if isinstance(op, For | While)]
    loaded = cache(_loaded)  # what is inserted below loads nothing
    short = cache(lambda loop: isinstance(loop, For) and is_unrolled(loop, ctx))
    hoisted = 0
    for loop in reversed(loops):  # a loop before the one around it, which may hoist further
        found = [
            op
            for op in loop.regions[-1]
            if isinstance(op, AddPtr) and not (BUFFERS in ctx.features and _is_in_buffer(fn, op))
        ]
        hoisted += sum(
            _hoist_offset(loop, op)
            or _hoist_terms(loop, op)
            or _hoist_fixed(loop, op, loaded, short)
            for op in found
        )
    ctx.count("hoisted", hoisted)

    def is_shared(op: AddPtr, uniform: Value) -> bool:
        region = op.parent
        assert region is not None
        in_buffer = BUFFERS in ctx.features and _is_in_buffer(fn, op)
        return not in_buffer and uniform.op in loaded(region) and is_one_access(op.offset, op)

    regions = [fn.body, *(region for op in fn.walk() for region in op.regions)]
    shared = sum(share_addresses(region, is_shared) for region in regions)
    ctx.count("shared", shared)
    return hoisted + shared > 0


_Loaded = Callable[[Region], Collection[Op | None]]


def _hoist_fixed(loop: Op, op: AddPtr, loaded: _Loaded, short: Callable[[Op], bool]) -> bool:
    """Add a loop-invariant offset before one of all elements alike that the loop loads, or
    computes in a short iteration.

        addptr(splat(addptr(p, x)), y)    =>    addptr(addptr(splat(p), y), splat(x))

    Longer loops have several addresses, for which offsets of all elements are computed once for a
    warp, in registers of their own.
    """
    body, pointers = loop.regions[-1], op.ptr.op
    if not isinstance(pointers, Splat) or op.offset.region is body:
        return False
    moved = pointers.src.op
    if not isinstance(moved, AddPtr) or moved.parent is not body or moved.ptr.region is body:
        return False
    if not is_one_access(op.offset, op):
        return False
    if moved.offset in body.args[1:]:
        return False  # the pointer is carried instead
    if moved.offset.op not in loaded(body) and not short(loop):
        return False
    shape, parent = shape_of(op.result.type), loop.parent
    assert parent is not None
    base = Splat(moved.ptr, shape)
    start = AddPtr(base.result, op.offset)
    steps = Splat(moved.offset, shape)
    step = AddPtr(start.result, steps.result)
    for new in (base, start):
        parent.insert_before(new, loop)
    for new in (steps, step):
        body.insert_before(new, op)
    for new in (base, start, steps, step):
        new.loc = op.loc
        new.result.layout = op.result.layout
    op.result.replace_with(step.result)
    op.erase()
    return True


def _loaded(region: Region) -> set[Op | None]:
    """The loads of a region, and its ops that depend on them."""
    result = set[Op | None]()
    for op in region:
        if isinstance(op, Load) or any(v.op in result for v in op.operands if v.op is not None):
            result.add(op)
    return result


def _hoist_offset(loop: Op, op: AddPtr) -> bool:
    body, total = loop.regions[-1], op.offset.op
    if not isinstance(op.ptr.op, Splat) or op.ptr.region is body or not isinstance(total, Add):
        return False
    if total.parent is not body or dtype_of(total.result.type) != I64:
        return False
    parts = sorted(total.operands, key=lambda value: value.region is body)
    fixed, moving = parts
    if fixed.region is body or moving.region is not body or not is_one_access(fixed, op):
        return False
    _add_before(loop, op, [fixed], [moving])
    if not total.result.users:
        total.erase()
    return True


def _hoist_terms(loop: Op, op: AddPtr) -> bool:
    """Add the loop-invariant terms of a scalar's offset before the loop.

        addptr(p, (x + y) + z)    =>    addptr(addptr(p, x + z), y)

    Sums that others use, such as the offset in several arrays of one shape, stay as they are: they
    are added once, while each array would take a pointer in registers throughout the loop.
    """
    body = loop.regions[-1]
    if shape_of(op.result.type) or op.ptr.region is body:
        return False

    def is_split(total: Add) -> bool:
        is_own = total.parent is body and len(total.result.users) == 1
        return is_own and dtype_of(total.result.type) == I64

    terms = terms_of(op.offset, is_split)
    fixed = [term for term in terms if not loop.contains(term)]
    moving = [term for term in terms if loop.contains(term)]
    if not fixed or not moving:
        return False
    _add_before(loop, op, fixed, moving)
    return True


def _add_before(loop: Op, op: AddPtr, fixed: Sequence[Value], moving: Sequence[Value]) -> None:
    """Replace a pointer in a loop, whose offset is the sum of these terms: the loop-invariant ones
    are added before the loop."""
    b = Builder()
    with b.before(loop):
        start = b.value(AddPtr(op.ptr, sum_of(b, fixed)))
    with b.before(op):
        step = b.value(AddPtr(start, sum_of(b, moving)))
    for new in (start, step):
        assert new.op is not None
        new.op.loc = op.loc
        new.layout = op.result.layout
    op.result.replace_with(step)
    op.erase()


def _is_in_buffer(fn: Function, op: AddPtr) -> bool:
    users = op.result.users
    return any(isinstance(user, Load | Store) and has_free_mask(fn, user) for user in users)
