"""Pointers of scalars that a short loop loads are carried from iteration to iteration.

    for i in range(n):                     q = p
        x = load(p + i)             →      for i in range(n):
                                               x = load(q)
                                               q = q + 1

Assemblers unroll such loops, so that loads of several iterations are in flight. With a carried
pointer, those of one array differ by a constant, and all start at once; an index of 32 bits may
wrap, as far as an assembler knows, so that it extends and multiplies that of each iteration. Loops
over the entries of a row of a sparse matrix are of this kind.

The offset is the index, or its extension to 64 bits. The index of an iteration is that of the
preceding one plus the step, without wrapping, and pointers are added modulo 2^64: the pointers are
the same. What is carried out of the last iteration is not used.

Input: laid-out IR from which loop-invariant ops are hoisted, with pointers in canonical form.
Output: addresses of loops in the form above, which is not canonical: passes that decompose pointers
run before. Linear in the size of the function.
"""

from __future__ import annotations

from tilewright.ir.builder import Builder
from tilewright.ir.core import Function, Value
from tilewright.ir.passes import PassContext, compiler_pass
from tilewright.ir.types import I64, dtype_of, shape_of
from tilewright.layout.linear import REGISTER
from tilewright.ops.arith import Cast
from tilewright.ops.control import For
from tilewright.ops.memory import AddPtr, Load, Store
from tilewright.ops.view import View
from tilewright.rewrites.control import carry_more

NAME = "carry_pointers"


@compiler_pass(NAME)
def carry_pointers(fn: Function, ctx: PassContext) -> bool:
    """Carry the pointers of scalars that short loops load; see the module docstring."""
    changed = False
    if not ctx.gpu.unrolled_work:
        return False
    for loop in [op for op in fn.walk() if isinstance(op, For)]:
        if not _is_unrolled(loop, ctx):
            continue
        found = [op for op in loop.body if isinstance(op, AddPtr) and _grows_with(loop, op)]
        if found:
            for op in found:
                ctx.did(NAME, "the pointer is carried, and grows in each iteration", op.loc)
            _carry(loop, found)
            ctx.count("carried", len(found))
            changed = True
    return changed


def _is_unrolled(loop: For, ctx: PassContext) -> bool:
    """Whether an assembler unrolls a loop, by the elements that a thread computes in an iteration.
    Loops with more than accesses and elementwise ops have other uses for registers."""
    work = 0
    for op in loop.body:
        if not (op.elementwise or op.terminator or isinstance(op, View | Load | Store)):
            return False
        tiles = [v.layout for v in op.results if v.layout is not None and op.elementwise]
        work += sum(layout.in_size(REGISTER) for layout in tiles)
    return work <= ctx.gpu.unrolled_work


def _grows_with(loop: For, op: AddPtr) -> bool:
    """Whether a pointer to loaded scalars is at the distance of the loop's index from another."""
    index, offset = loop.body.args[0], op.offset
    if isinstance(offset.op, Cast) and dtype_of(offset.type) == I64:
        offset = offset.op.src
    return (
        offset is index
        and dtype_of(index.type).is_int_signed()
        and not shape_of(op.result.type)
        and not loop.contains(op.ptr)
        and all(isinstance(user, Load) for user in op.result.users)
    )


def _carry(loop: For, pointers: list[AddPtr]) -> None:
    b, inits, yields = Builder(), list[Value](), list[Value]()
    for op in pointers:
        pointer = loop.body.add_arg(op.result.type)
        with b.before(loop):
            inits.append(b.value(AddPtr(op.ptr, loop.start)))
        with b.before(loop.body.terminator):
            yields.append(b.value(AddPtr(pointer, loop.step)))
        op.result.replace_with(pointer)
        op.erase()
    carry_more(loop, inits, yields)
