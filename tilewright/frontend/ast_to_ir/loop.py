"""``for`` loops: over ranges, executed at run time or unrolled; over tuples, unrolled.

A run-time loop without ``break`` and ``return`` becomes a `control.for`; with them, a
`control.while` that carries the index. Statements after a conditional ``continue`` are guarded by a
`control.if`.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any

import tilewright.language as tl
from tilewright.analysis.ranges import value_range
from tilewright.base.codes import coded
from tilewright.frontend.ast_to_ir.branch import any_of, settle
from tilewright.frontend.ast_to_ir.call import arguments
from tilewright.frontend.ast_to_ir.carried import (
    Body,
    LoopResult,
    carried_names,
    check_names,
    drop_arg,
    flat,
    insert_while,
    labels_of,
    rebound,
    set_values,
)
from tilewright.frontend.ast_to_ir.errors import unsupported
from tilewright.frontend.ast_to_ir.frame import Frame, Label, Targets
from tilewright.frontend.ast_to_ir.stmt import (
    Begin,
    Bind,
    Exit,
    Mark,
    Pending,
    check_statements,
    jumps,
    pending,
    run,
    statement,
)
from tilewright.frontend.ast_to_ir.visit import visit
from tilewright.ir.core import Region, Value
from tilewright.ir.types import I1, DType, Tile, dtype_of, int_type
from tilewright.language.semantic import arith, convert
from tilewright.language.semantic.convert import natural_type, to_tensor
from tilewright.language.values import constexpr, tensor, tuple, unwrap, wrap
from tilewright.ops.arith import Add, Cmp, Constant, Select, Sub, constant_value
from tilewright.ops.control import For, Yield, index_after
from tilewright.ops.debug import Assert


@statement(ast.For)
def visit_for(frame: Frame, node: ast.For, todo: Pending, live: bool) -> Exit | None:
    iterator = _iterator(frame, node)
    if node.orelse:
        raise unsupported(frame, node, "`for` with an `else` is not supported")
    if isinstance(iterator, tuple):
        unroll(frame, node, iterator.values, todo)
        return None
    if not isinstance(node.target, ast.Name):
        raise unsupported(frame, node, "the target of a `for` must be a name")
    if isinstance(iterator, tl.static_range):
        unroll(frame, node, iterator.values(), todo)
        return None
    exit = run_loop(frame, node, iterator, node.target.id)
    return settle(frame, node, exit, todo, live)


def _iterator(frame: Frame, node: ast.For) -> tl.range | tuple:
    """The iterable of the loop: a range or a tuple."""
    result: Any = None
    if isinstance(node.iter, ast.Call):
        maker = unwrap(visit(frame, node.iter.func))
        if maker is tl.range or maker is tl.static_range:
            args, kwargs = arguments(frame, node.iter)
            return maker(*args, **kwargs)
    if not frame.context.options.strict_triton:
        result = visit(frame, node.iter)
        result = wrap(unwrap(result)) if isinstance(result, constexpr) else result
    if isinstance(result, tuple):
        return result
    raise coded(
        "loop-iterable",
        RuntimeError("Only `range` and `static_range` iterators are currently supported"),
    )


# -- unrolled --------------------------------------------------------------------------------------


def unroll(frame: Frame, node: ast.For, values: Sequence[Any], todo: Pending) -> None:
    """Unroll: prepend the body to `todo`, once per value."""
    check_statements(frame, node, len(values) * len(node.body))
    left = bool(jumps(node) & {ast.Break, ast.Continue})
    after = Label(frame.names, closed=False)
    if left:
        todo.append(Mark(after))
    body = pending(node.body)
    for value in reversed(values):
        targets = Targets(Label(closed=False), after)
        if left:
            todo.append(Mark(targets.next))
        todo.extend(body)
        todo.append(Bind(node.target, constexpr(value) if isinstance(value, int) else value))
        if left:
            todo.append(Begin(node, targets))


# -- run-time loops --------------------------------------------------------------------------------


def _bounds(frame: Frame, iterator: tl.range) -> list[tensor]:
    """Start, stop and step as scalars of their common integer type."""
    bounds = [iterator.start, iterator.stop, iterator.step]
    types: list[Any] = []
    for name, value in zip(("lower bound", "upper bound", "step"), bounds, strict=True):
        if isinstance(value, tensor) and isinstance(value.type, Tile):
            raise TypeError(f"For {name} must be a scalar, got {value.type}")
        plain = unwrap(value)
        found: Any = value.dtype if isinstance(value, tensor) else type(plain)
        if isinstance(plain, int | float):
            found = natural_type(plain)
        types.append(found)
    if not all(getattr(t, "is_int", bool)() for t in types):
        shown = ", ".join(getattr(t, "__name__", str(t)) for t in types)
        message = f"For loop bounds and step must all be ints, are ({shown})"
        raise coded("loop-bounds", TypeError(message))
    common = types[0]
    for t in types[1:]:
        common = convert.integer_promote(common, t)
    s = frame.semantic
    return [convert.cast(s, _bound(frame, v, common), common) for v in bounds]


def _bound(frame: Frame, value: Any, dtype: DType) -> tensor:
    if isinstance(value, tensor):
        return value
    plain = unwrap(value)
    assert dtype is not I1, "the bounds of a loop can't all be bools"
    if not dtype.get_int_min_value() <= plain <= dtype.get_int_max_value():
        return to_tensor(frame.semantic, plain)
    return convert.constant(frame.semantic, plain, dtype)


def _stop_if_positive(frame: Frame, stop: tensor, step: tensor) -> tensor:
    """The bound of a loop that does not run if its step is not positive: no index, not even one
    plus a negative step, is below the minimum of a type.

    Raises:
        ValueError: the step is known, and is not positive.
    """
    s = frame.semantic
    low, high = value_range(step.handle)
    if low > 0:
        return stop
    if high <= 0:
        raise ValueError(f"the step of a loop must be positive; it is {_shown(low, high)}")
    dtype = dtype_of(step.type)
    positive = s.emit(Cmp(step.handle, convert.constant(s, 0, dtype).handle, "gt"))
    if s.options.debug:
        s.builder.insert(Assert(positive.handle, "the step of a loop must be positive"))
    least = convert.constant(s, dtype.get_int_min_value(), dtype)
    return s.emit(Select(positive.handle, stop.handle, least.handle))


def _shown(low: int, high: int) -> str:
    return str(low) if low == high else f"in [{low}, {high}]"


def run_loop(frame: Frame, node: ast.For, iterator: tl.range, target: str) -> Exit | None:
    """A run-time loop. A negative compile-time step is reversed, see `_index`."""
    step = unwrap(iterator.step)
    backward = isinstance(step, int) and step < 0
    if isinstance(step, int) and step == 0:
        raise ValueError("the step of a loop must not be zero")
    if backward:
        iterator.start, iterator.stop = iterator.stop, iterator.start
        iterator.step = constexpr(-step)
    start, stop, step = _bounds(frame, iterator)
    stop = _stop_if_positive(frame, stop, step)
    ends = arith.add(frame.semantic, start, stop) if backward else None
    targets = labels_of(frame, node)
    carried = carried_names(frame, node)
    inits = flat(frame.names, carried)
    region = Region([start.handle.type, *[v.type for v in inits]])
    outer = frame.names
    frame.names = rebound(outer, carried, region.args[1:])
    frame.loops += 1
    with frame.builder.at_end(region):
        frame.names[target] = _index(frame, tensor(region.args[0]), ends)
        exit = run(frame, [Mark(targets.next), *pending(node.body)], True)
        after, frame.names = frame.names, outer
        check_names(frame, node, carried, after)
        yields = flat(after, carried)
    frame.loops -= 1
    bounds = (start, stop, step)
    if exit is None:
        results = _insert_for(frame, region, inits, yields, bounds, iterator)
    else:
        results, exit = _insert_counting(frame, region, inits, yields, bounds, exit)
    frame.names = rebound(outer, carried, results)
    return exit


def _index(frame: Frame, i: tensor, ends: tensor | None) -> tensor:
    """The value of the loop variable.

    A loop over ``range(a, b, -s)`` becomes a loop of j over ``range(b, a, s)``; its variable is
    a + b - j.
    """
    return i if ends is None else arith.sub(frame.semantic, ends, i)


def _insert_for(
    frame: Frame,
    region: Region,
    inits: list[Value],
    yields: list[Value],
    bounds: Sequence[tensor],
    iterator: tl.range,
) -> list[Value]:
    """Insert a `control.for` without unchanged carried variables; the final values of `inits`."""
    with frame.builder.at_end(region):
        end = frame.builder.insert(Yield(yields))
    changing: list[int] = []
    for i in reversed(range(len(inits))):
        values = list(end.values)
        if values[i] is region.args[1 + i]:
            del values[i]
            set_values(end, values, 0)
            drop_arg(region, 1 + i, inits[i])
        else:
            changing.insert(0, i)
    start, stop, step = bounds
    op = For(
        start.handle,
        stop.handle,
        step.handle,
        [inits[i] for i in changing],
        iterator.num_stages,
        iterator.unroll,
        iterator.hints,
        region,
    )
    frame.builder.insert(op)
    results = list(inits)
    for i, result in zip(changing, op.results, strict=True):
        results[i] = result
    return results


def _insert_counting(
    frame: Frame,
    region: Region,
    inits: list[Value],
    yields: list[Value],
    bounds: Sequence[tensor],
    exit: Exit,
) -> LoopResult:
    """Insert a `control.while` that carries the index, for a loop with exits.

    Hints of the range are dropped, because they require a known trip count.
    """
    s = frame.semantic
    start, stop, step = bounds
    first = s.emit(Cmp(start.handle, stop.handle, "lt"))
    region.add_arg(I1)
    before = Region([arg.type for arg in region.args])
    with frame.builder.at_end(region):
        i = tensor(region.args[0])
        following = s.emit(Add(i.handle, step.handle))
        stays = arith.logical_not(s, any_of(frame, exit))
        go = arith.bit_and(s, _has_next(frame, i, following, bounds), stays)
    loop = Body(
        before,
        region,
        before.args[-1],
        [start.handle, *inits, first.handle],
        list(before.args),
        [following.handle, *yields, go.handle],
        exit,
    )
    results, after = insert_while(frame, loop)
    return LoopResult(results[1:-1], after)


def _has_next(frame: Frame, i: tensor, following: tensor, bounds: Sequence[tensor]) -> tensor:
    """Whether ``i + step < stop`` for i < stop, even if the sum overflows.

    If the index after the last iteration is known, compare for inequality, which is correct modulo
    2^n: ptxas 13.0 rewrites ordered comparisons of induction variables as if they did not wrap.
    """
    s = frame.semantic
    _, stop, step = bounds
    first, last, by = (constant_value(v.handle) for v in bounds)
    if by == 1:
        return s.emit(Cmp(following.handle, stop.handle, "ne"))
    if isinstance(first, int) and isinstance(last, int) and isinstance(by, int) and by > 0:
        after = index_after(first, last, by)
        if after <= dtype_of(i.type).get_int_max_value():
            end = s.emit(Constant(after, i.type))
            return s.emit(Cmp(following.handle, end.handle, "ne"))
    left = s.emit(Sub(stop.handle, i.handle))
    unsigned = int_type(i.dtype.primitive_bitwidth, False)
    return s.emit(
        Cmp(convert.cast(s, left, unsigned).handle, convert.cast(s, step, unsigned).handle, "gt")
    )
