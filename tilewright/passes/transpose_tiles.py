"""Computes matrices transposed if all their uses are of the transpose.

    s = dot(q, kᵀ)                              sᵀ = dot(k, qᵀ)
    p = exp(s - m[:, None])           becomes   pᵀ = exp(sᵀ - m[None, :])
    dv += dot(pᵀ, do)                           dv += dot(pᵀ, do)

Transposing a tile in registers is expensive, and a product can take the result of another one as
its left operand in registers. Derivatives of products contain many transposes. The pass determines
the largest set of values of which each is only used transposed: by a `tile.permute`, or by an
elementwise op or a product that is itself computed transposed. A value that is a factor of another
product besides is transposed for that, if the set saves more transposes. Matrices in memory, and
broadcast vectors, are read transposed. Linear in the number of ops and operands, times the length
of the longest chain of ops.
"""

from __future__ import annotations

from tilewright.ir.core import Function, Op, Value
from tilewright.ir.passes import PassContext, compiler_pass
from tilewright.ir.rewriter import insert_before
from tilewright.ir.types import is_pointer, shape_of
from tilewright.ops.arith import Cast, Constant
from tilewright.ops.dot import Dot
from tilewright.ops.memory import Load
from tilewright.ops.shape import Broadcast, Permute, Splat

SWAPPED = (1, 0)
MOST_REPEATED = 8  # elementwise ops of a value that repeats vectors, which are cloned


@compiler_pass("transpose_tiles")
def transpose_tiles(fn: Function, ctx: PassContext) -> bool:
    """Compute matrices transposed whose every use is transposed; see the module docstring."""
    chosen = _with_products_and_uses(_largest_set(fn, may_return=True))
    chosen |= _with_products_and_uses(_largest_set(fn, may_return=False))
    _rewrite(fn, chosen)
    ctx.count("transposed", len(chosen))
    return bool(chosen)


def _largest_set(fn: Function, *, may_return: bool) -> set[Value]:
    """The largest set of values whose uses are transposed.

    Args:
        may_return: whether factors of other products may be transposed back, if transposes of them
            are used, too.
    """
    found = {
        op.results[0] for op in fn.walk() if _can_be_transposed(op) and _is_matrix(op.results[0])
    }
    removed = True
    while removed:
        removed = False
        for value in list(found):
            op = value.op
            assert op is not None
            if not _is_used_transposed(value, found, may_return) or not _has_operands(op, found):
                found.discard(value)
                removed = True
    return found


def _can_be_transposed(op: Op) -> bool:
    if len(op.results) != 1 or is_pointer(op.results[0].type):
        return False
    return isinstance(op, Dot) or _is_elementwise(op)


def _is_elementwise(op: Op) -> bool:
    return op.elementwise and op.pure and not op.regions and not isinstance(op, Constant)


def _is_matrix(value: Value) -> bool:
    return len(shape_of(value.type)) == 2


def _is_used_transposed(value: Value, values: set[Value], may_return: bool) -> bool:
    """Whether all uses are transposed, if these values are computed transposed."""
    left = [op for op in value.users if not _is_transpose(op) and not _is_of(op, values)]
    if not left:
        return bool(value.users)
    return may_return and _is_transposed(value) and all(_is_factor(value, op) for op in left)


def _is_of(op: Op, values: set[Value]) -> bool:
    return len(op.results) == 1 and op.results[0] in values


def _is_transposed(value: Value) -> bool:
    return any(_is_transpose(user) for user in value.users)


def _is_factor(value: Value, op: Op) -> bool:
    return isinstance(op, Dot) and op.acc is not value


def _is_transpose(op: Op) -> bool:
    return isinstance(op, Permute) and op.order == SWAPPED


def _has_operands(op: Op, values: set[Value]) -> bool:
    """Whether an op's operands are cheap to have transposed, if these values are computed so."""
    if isinstance(op, Dot):
        factors = all(v in values or _is_in_memory(v) for v in (op.lhs, op.rhs))
        return factors and (op.acc in values or _is_repeated(op.acc))
    return all(v in values or not _is_matrix(v) or _is_repeated(v) for v in op.operands)


def _is_in_memory(value: Value) -> bool:
    """Whether a matrix is loaded, perhaps transposed, or converted to another type."""
    op = value.op
    while isinstance(op, Cast | Permute):
        op = op.src.op
    return isinstance(op, Load)


def _is_repeated(value: Value) -> bool:
    """Whether a matrix is computed by a few ops from scalars and vectors alone."""
    work, seen = [value], set[Op]()
    while work:
        op = work.pop().op
        if op is None or len(seen) > MOST_REPEATED:
            return False
        if op in seen or isinstance(op, Constant | Splat | Broadcast):
            continue
        if not _can_be_transposed(op) or isinstance(op, Dot):
            return False
        seen.add(op)
        work += [v for v in op.operands if _is_matrix(v)]
    return True


def _with_products_and_uses(values: set[Value]) -> set[Value]:
    """The connected sets of values that have a product, and more transposes that are not needed
    than values that must be transposed back."""
    left, chosen = set(values), set[Value]()
    while left:
        work, group = [left.pop()], set[Value]()
        while work:
            value = work.pop()
            group.add(value)
            assert value.op is not None
            near = [*value.op.operands, *(r for user in value.users for r in user.results)]
            work += left.intersection(near)
            left.difference_update(near)
        has_product = any(isinstance(value.op, Dot) for value in group)
        saved = sum(_is_transposed(value) for value in group)
        returned = sum(
            any(not _is_transpose(op) and not _is_of(op, values) for op in value.users)
            for value in group
        )
        if has_product and saved > returned:
            chosen |= group
    return chosen


def _rewrite(fn: Function, chosen: set[Value]) -> None:
    made: dict[Value, Value] = {}
    for op in list(fn.walk()):
        if len(op.results) == 1 and op.results[0] in chosen:
            made[op.results[0]] = _transposed_result(op, made, op)
        elif _is_transpose(op) and op.operands[0] in made:
            op.results[0].replace_with(made[op.operands[0]])
            op.erase()
        elif isinstance(op, Dot):
            for value in {op.lhs, op.rhs} & made.keys():
                back = insert_before(Permute(made[value], SWAPPED), op).result
                op.replace_operand(value, back)
    for value in reversed(made):
        assert value.op is not None
        value.op.erase()


def _transposed_result(op: Op, made: dict[Value, Value], place: Op) -> Value:
    """The result of an op transposed, computed before another one."""
    operands = [_transposed(place, v, made) if _is_matrix(v) else v for v in op.operands]
    new: Op
    if isinstance(op, Dot):
        lhs, rhs, acc = operands
        new = Dot(rhs, lhs, acc, op.precision, op.max_imprecise)
    else:
        new = type(op)(*operands, **op.attributes)
    return insert_before(new, place).result


def _transposed(place: Op, value: Value, made: dict[Value, Value]) -> Value:
    op = value.op
    if value in made:
        return made[value]
    if op is not None and _is_transpose(op):
        return op.operands[0]
    if op is not None and _is_elementwise(op) and _is_repeated(value):
        return _transposed_result(op, made, place)
    return insert_before(Permute(value, SWAPPED), place).result
