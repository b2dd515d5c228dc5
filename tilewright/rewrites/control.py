"""Structured control flow.

Canonical form: no `if` with a constant condition, no loop with a known trip count of 0 or 1, no
loop-invariant or duplicate loop-carried values, none that follows the index, no loop-carried tiles
that are only incremented by a scalar, no unused results. Termination: each rule decreases (number
of regions, number of loop-carried tiles, number of loop-carried values and results), in
lexicographic order.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.analysis.ranges import value_range
from tilewright.ir.core import Op, Region, Value
from tilewright.ir.rewriter import Rewriter, insert_before, move_ops_before, rewrite
from tilewright.ir.types import Tile, is_int, shape_of
from tilewright.ops.arith import Add, Constant, Mul, Select, Sub
from tilewright.ops.control import For, If, While, Yield
from tilewright.ops.shape import Splat
from tilewright.rewrites.patterns import equal, is_equivalent, known, scalar_of, uniform

# -- modification of regions ----------------------------------------------------------------------


def take_region(op: Op, index: int) -> Region:
    """Detach a region from its op, and replace it by an empty one."""
    region = op.regions[index]
    region.parent = None
    op.regions[index] = Region()
    op.regions[index].parent = op
    return region


def set_yields(region: Region, values: Sequence[Value]) -> None:
    """Make the region's `control.yield` yield these values."""
    end = region.terminator
    assert isinstance(end, Yield)
    end.drop_operands()
    end.add_operands(list(values))
    end.spans = (len(values),)


def remove_args(region: Region, keep: Sequence[bool]) -> None:
    """Remove the arguments of the region that are not kept; they must have no users."""
    assert not any(a.users for a, kept in zip(region.args, keep, strict=True) if not kept)
    region.args = [a for a, kept in zip(region.args, keep, strict=True) if kept]
    for i, arg in enumerate(region.args):
        arg.index = i


def spread(values: Sequence[Value], keep: Sequence[bool], other: Sequence[Value]) -> list[Value]:
    """The values in the positions where `keep` is true, items of `other` elsewhere."""
    remaining = iter(values)
    return [next(remaining) if k else o for k, o in zip(keep, other, strict=True)]


def drop_yields(region: Region, keep: Sequence[bool]) -> None:
    """Yield only the kept values."""
    set_yields(region, [v for v, k in zip(region.terminator.operands, keep, strict=True) if k])


def rebuilt_for(op: For, keep: Sequence[bool]) -> For:
    """A detached loop with the body of `op` and only the kept loop-carried values.

    The body must already yield only these, and the arguments of the others must be unused.
    """
    body = take_region(op, 0)
    remove_args(body, [True, *keep])
    inits = [v for v, kept in zip(op.inits, keep, strict=True) if kept]
    return op.rebuilt(inits, body)


def carry_more(op: For, inits: Sequence[Value], yields: Sequence[Value]) -> For:
    """Replace a loop by one that carries more values, whose arguments its body has already."""
    set_yields(op.body, [*op.body.terminator.operands, *yields])
    new = op.rebuilt([*op.inits, *inits], take_region(op, 0))
    for result, init in zip(new.results[len(op.results) :], inits, strict=True):
        result.layout = init.layout
    replace_loop_or_branch(op, new)
    return new


def replace_loop_or_branch(old: Op, new: Op) -> None:
    """Replace an op by one that has additional results."""
    insert_before(new, old)
    for before, after in zip(old.results, new.results, strict=False):
        after.layout = before.layout
        before.replace_with(after)
    old.erase()


def rebuilt_if(op: If) -> If:
    """A detached `if` with the regions of `op`, and a result for each value that they yield."""
    return If(op.condition, take_region(op, 0), take_region(op, 1))


def _drop_yields(rw: Rewriter, region: Region, keep: Sequence[bool]) -> None:
    yields = list(region.terminator.operands)
    drop_yields(region, keep)
    for value in yields:
        rw.revisit(value.op)


# -- if -----------------------------------------------------------------------------------------


@rewrite(If)
def if_known(op: If, rw: Rewriter) -> tuple[Value, ...] | None:
    """if true {a} {b} = a; if false {a} {b} = b"""
    choice = known(op.condition)
    if choice is None:
        return None
    taken = op.then if choice else op.otherwise
    move_ops_before(taken, op)
    return tuple(taken.terminator.operands)


@rewrite(If)
def if_results_needed(op: If, rw: Rewriter) -> tuple[Value, ...] | None:
    """if c {…; a, x} {…; b, x} = if c {…; a} {…; b}, x; removes unused results"""
    left, right = op.then.terminator.operands, op.otherwise.terminator.operands
    keep = [bool(r.users) and a is not b for r, a, b in zip(op.results, left, right, strict=True)]
    if all(keep):
        return None
    for result, a, kept in zip(op.results, list(left), keep, strict=True):
        if not kept:
            rw.replace(result, a)
    for region in op.regions:
        _drop_yields(rw, region, keep)
    new = rw.insert_op(rebuilt_if(op))
    return tuple(spread(new.results, keep, op.results))


@rewrite(If)
def if_to_select(op: If, rw: Rewriter) -> tuple[Value, ...] | None:
    """if c {a} {b} = select(c, a, b) for scalars where the branches contain no ops"""
    if op.then.first is not op.then.last or op.otherwise.first is not op.otherwise.last:
        return None
    left, right = op.then.terminator.operands, op.otherwise.terminator.operands
    if not left or any(isinstance(v.type, Tile) for v in left):
        return None
    return tuple(rw.insert(Select(op.condition, a, b)) for a, b in zip(left, right, strict=True))


# -- for ----------------------------------------------------------------------------------------


def known_trips(op: For) -> int | None:
    """The trip count, if start, stop and step have one possible value each; otherwise None."""
    ranges = [value_range(v) for v in (op.start, op.stop, op.step)]
    if any(low != high for low, high in ranges):
        return None
    (start, _), (stop, _), (step, _) = ranges
    # `len` raises for a range with 2**63 indices or more.
    return max(0, -((start - stop) // max(1, step)))


def runs_at_least_once(op: For) -> bool:
    """Whether the trip count is known to be at least 1."""
    return value_range(op.start)[1] < value_range(op.stop)[0]


@rewrite(For)
def for_few_trips(op: For, rw: Rewriter) -> tuple[Value, ...] | None:
    """for with trip count 0 = its inits; for with trip count 1 = its body"""
    trips = known_trips(op)
    if trips == 0:
        return tuple(op.inits)
    if trips != 1:
        return None
    for arg, value in zip(op.body.args, [op.start, *op.inits], strict=True):
        rw.replace(arg, value)
    results = tuple(op.body.terminator.operands)
    move_ops_before(op.body, op)
    return results


@rewrite(For)
def for_carried_index(op: For, rw: Rewriter) -> tuple[Value, ...] | None:
    """A carried value that each iteration increases by the step = index + (its init - start), if it
    is not used after the loop: the number of a tile that a kernel counts beside the index"""
    keep = [not _follows_index(op, i) for i in range(len(op.inits))]
    if all(keep):
        return None
    first = op.body.first
    assert first is not None
    for kept, arg, init in zip(keep, op.body.args[1:], op.inits, strict=True):
        if not kept:
            distance = rw.insert(Sub(init, op.start))
            with rw.before(first):
                rw.replace(arg, rw.insert(Add(op.body.args[0], distance)))
    _drop_yields(rw, op.body, keep)
    new = rw.insert_op(rebuilt_for(op, keep))
    return tuple(spread(new.results, keep, op.results))


def _follows_index(op: For, number: int) -> bool:
    """Whether a carried value differs from the index by the same in each iteration. An index
    advances by 1 at least."""
    arg, following = op.body.args[1 + number], op.body.terminator.operands[number]
    if arg.type != op.body.args[0].type or op.results[number].users or not arg.users:
        return False
    match following.op:
        case Add(x, y) if x is arg or y is arg:
            step = y if x is arg else x
            return equal(step, op.step) and value_range(op.step)[0] >= 1
        case _:
            return False


@rewrite(For)
def for_carried_offsets(op: For, rw: Rewriter) -> tuple[Value, ...] | None:
    """A carried tile of integers to which each iteration adds one number, if it is not used after
    the loop = its init + the sum of these numbers, in whatever layout a user needs it"""
    found = next(
        ((i, step) for i in range(len(op.inits)) if (step := _offset(op, i)) is not None), None
    )
    if found is None:
        return None
    number, step = found[0], scalar_of(rw, found[1])
    first, end, arg = op.body.first, op.body.terminator, op.body.args[1 + number]
    assert first is not None
    counted = known(op.start) == 0 and known(op.step) == 1 and step.type == op.body.args[0].type
    more = [] if counted else [op.body.add_arg(step.type)]
    with rw.before(first):
        total = more[0] if more else rw.insert(Mul(op.body.args[0], step))
        rw.replace(
            arg, rw.insert(Add(op.inits[number], rw.insert(Splat(total, shape_of(arg.type)))))
        )
    with rw.before(end):
        yields = [rw.insert(Add(total, step)) for total in more]
    keep = [i != number for i in range(len(op.inits))]
    _drop_yields(rw, op.body, keep)
    set_yields(op.body, [*op.body.terminator.operands, *yields])
    inits = [v for v, kept in zip(op.inits, keep, strict=True) if kept]
    inits += [rw.insert(Constant(0, step.type)) for _ in more]
    body = take_region(op, 0)
    remove_args(body, [True, *keep, *(True for _ in more)])
    new = rw.insert_op(op.rebuilt(inits, body))
    return tuple(spread(new.results, keep, op.results))


def _offset(op: For, number: int) -> Value | Constant | None:
    """The number that each iteration adds to all elements of a carried tile of integers; None if
    there is none, or it may differ between iterations."""
    arg, following = op.body.args[1 + number], op.body.terminator.operands[number]
    if not isinstance(arg.type, Tile) or not is_int(arg.type) or op.results[number].users:
        return None
    match following.op:
        case Add(x, y) if x is arg or y is arg:
            step = uniform(y if x is arg else x)
            inside = isinstance(step, Value) and op.contains(step)
            return None if inside else step
        case _:
            return None


@rewrite(For)
def for_carried_needed(op: For, rw: Rewriter) -> tuple[Value, ...] | None:
    """Replaces loop-invariant loop-carried values by their inits, merges equal ones, and removes
    unused ones; a value that each iteration computes as its init was is loop-invariant"""
    args = op.body.args[1:]
    dropped: set[int] = set()
    seen: dict[tuple[Value, Value], int] = {}
    for i, (arg, init) in enumerate(zip(args, op.inits, strict=True)):
        out = op.body.terminator.operands[i]
        same = seen.setdefault((init, out), i)
        if out is arg or is_equivalent(out, init):
            rw.replace(arg, init)
            rw.replace(op.results[i], init)
            dropped.add(i)
        elif same != i:
            rw.replace(arg, args[same])
            rw.replace(op.results[i], op.results[same])
            dropped.add(i)
    keep = [
        i not in dropped and bool(arg.users or op.results[i].users) for i, arg in enumerate(args)
    ]
    if all(keep):
        return None
    _drop_yields(rw, op.body, keep)
    new = rw.insert_op(rebuilt_for(op, keep))
    return tuple(spread(new.results, keep, op.results))


# -- while --------------------------------------------------------------------------------------


@rewrite(While)
def while_never(op: While, rw: Rewriter) -> tuple[Value, ...] | None:
    """while with a constant false condition = the values that the condition passes on"""
    end = op.before.terminator
    if known(end.operands[0]) is not False:
        return None
    for arg, value in zip(op.before.args, op.inits, strict=True):
        rw.replace(arg, value)
    results = tuple(end.operands[1:])
    move_ops_before(op.before, op)
    return results
