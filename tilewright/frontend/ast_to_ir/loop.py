"""Loops: ``for`` over ranges, ``while``; unrolled at compile time or run by the program.

A run-time loop carries the names that exist before it and that its body assigns. Which these are
is read off the syntax; those that turn out not to change are taken out again.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import Any

import tilewright.language as tl
from tilewright.frontend.ast_to_ir.branch import run_time_condition
from tilewright.frontend.ast_to_ir.call import arguments
from tilewright.frontend.ast_to_ir.stmt import Bind, Pending, pending, run, statement
from tilewright.frontend.ast_to_ir.visit import Frame, Names, visit
from tilewright.ir.core import Region, Value
from tilewright.ir.types import I1, DType, Tile
from tilewright.language.semantic import arith, convert
from tilewright.language.semantic.convert import natural_type, to_tensor
from tilewright.language.values import (
    base_value,
    composite,
    constexpr,
    flatten,
    tensor,
    type_of,
    unflatten,
    unwrap,
)
from tilewright.ops.control import Condition, For, While, Yield

Carried = dict[str, Any]  # name -> type

# -- names -----------------------------------------------------------------------------------------


def _targets(node: ast.expr) -> Iterator[str]:
    if isinstance(node, ast.Name):
        yield node.id
    elif isinstance(node, ast.Tuple | ast.List):
        for element in node.elts:
            yield from _targets(element)


def _assigned(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Assign(targets=targets):
            for target in targets:
                yield from _targets(target)
        case ast.AnnAssign(target=target) | ast.AugAssign(target=target):
            yield from _targets(target)
        case ast.NamedExpr(target=target):
            yield target.id
        case ast.withitem(optional_vars=ast.expr() as target):
            yield from _targets(target)
        case _:
            pass


def assigned_names(loop: ast.For | ast.While) -> list[str]:
    """The names that the loop's body, or a condition of `while`, assigns; kept on the node."""
    found = getattr(loop, "assigned", None)
    if found is None:
        roots = [loop.test, *loop.body] if isinstance(loop, ast.While) else loop.body
        names = (n for root in roots for node in ast.walk(root) for n in _assigned(node))
        found = list(dict.fromkeys(names))
        loop.assigned = found  # pyright: ignore[reportAttributeAccessIssue]
    return found


def _carried(frame: Frame, loop: ast.For | ast.While) -> Carried:
    """The names with run-time values that the loop may change, and their types."""
    found: Carried = {}
    for name in assigned_names(loop):
        value = frame.names.get(name)
        if isinstance(value, tensor | composite):
            found[name] = type_of(value)
    return found


def _rebound(names: Names, carried: Carried, handles: Sequence[Value]) -> Names:
    """The names with the carried ones bound to other values."""
    remaining = iter(handles)
    bound = dict(names)
    for name, type_ in carried.items():
        bound[name] = unflatten(type_, remaining)
    return bound


def _check_names(frame: Frame, loop: ast.For | ast.While, carried: Carried, after: Names) -> None:
    """Raise AssertionError if the body changed what it may not: types, compile-time values."""
    for name in assigned_names(loop):
        old = frame.names.get(name)
        if old is None:
            continue
        new = after[name]
        if name not in carried:
            if new is not old and type_of(new) != type_of(old):
                if isinstance(old, base_value):
                    raise AssertionError(f"cannot reassign constexpr {name} in the loop")
                raise AssertionError(f"Loop carried variable {name} is not a triton value")
            continue
        was, now = carried[name], type_of(new)
        assert isinstance(new, tensor) == isinstance(old, tensor), (
            f"Loop carried variable {name} changed type, was {was} but is now {now}"
        )
        assert was == now, (
            f"Loop-carried variable {name} has initial type {was} but is re-assigned to {now} in "
            "loop! Please make sure that the type stays consistent."
        )


def _flat(names: Names, carried: Carried) -> list[Value]:
    handles: list[Value] = []
    for name in carried:
        flatten(names[name], handles)
    return handles


def _drop_arg(region: Region, index: int, value: Value) -> None:
    """Use `value` in place of an argument of the region."""
    region.args[index].replace_with(value)
    del region.args[index]
    for i, arg in enumerate(region.args):
        arg.index = i


# -- for -------------------------------------------------------------------------------------------


@statement(ast.For)
def visit_for(frame: Frame, node: ast.For, todo: Pending, live: bool) -> None:
    iterator = _iterator(frame, node)
    if node.orelse:
        raise frame.unsupported(node, "`for` with an `else` is not supported")
    if not isinstance(node.target, ast.Name):
        raise frame.unsupported(node, "the target of a `for` must be a name")
    if isinstance(iterator, tl.static_range):
        body = pending(node.body)
        for i in reversed(iterator.values()):
            todo.extend(body)
            todo.append(Bind(node.target.id, constexpr(i)))
        return
    run_loop(frame, node, iterator, node.target.id)


def _iterator(frame: Frame, node: ast.For) -> tl.range:
    if isinstance(node.iter, ast.Call):
        maker = unwrap(visit(frame, node.iter.func))
        if maker is tl.range or maker is tl.static_range:
            args, kwargs = arguments(frame, node.iter)
            return maker(*args, **kwargs)
    raise RuntimeError("Only `range` and `static_range` iterators are currently supported")


def _bounds(frame: Frame, iterator: tl.range) -> list[tensor]:
    """Start, stop and step as scalars of one integer type."""
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
        raise TypeError(f"For loop bounds and step must all be ints, are ({shown})")
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


def run_loop(frame: Frame, node: ast.For, iterator: tl.range, target: str) -> None:
    """A `control.for`. A compile-time step below 0 is turned round: see `_index`."""
    step = unwrap(iterator.step)
    backward = isinstance(step, int) and step < 0
    if isinstance(step, int) and step == 0:
        raise ValueError("the step of a loop must not be zero")
    if backward:
        iterator.start, iterator.stop = iterator.stop, iterator.start
        iterator.step = constexpr(-step)
    start, stop, step = _bounds(frame, iterator)
    ends = arith.add(frame.semantic, start, stop) if backward else None
    carried = _carried(frame, node)
    inits = _flat(frame.names, carried)
    region = Region([start.handle.type, *[v.type for v in inits]])
    outer = frame.names
    frame.names = _rebound(outer, carried, region.args[1:])
    frame.loops += 1
    with frame.builder.at_end(region):
        frame.names[target] = _index(frame, tensor(region.args[0]), ends)
        run(frame, pending(node.body), True)
        after, frame.names = frame.names, outer
        _check_names(frame, node, carried, after)
        yields = _flat(after, carried)
    frame.loops -= 1
    results = _insert_for(frame, region, inits, yields, (start, stop, step), iterator)
    frame.names = _rebound(outer, carried, results)


def _index(frame: Frame, i: tensor, ends: tensor | None) -> tensor:
    """The value of the loop's name.

    A loop over ``range(a, b, -s)`` runs j over ``range(b, a, s)``, and i is a + b - j.
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
    """Insert the loop; the final value of each of `inits`."""
    with frame.builder.at_end(region):
        end = frame.builder.insert(Yield(yields))
    changing: list[int] = []
    for i in reversed(range(len(inits))):
        values = list(end.values)
        if values[i] is region.args[1 + i]:
            del values[i]
            _set_values(end, values, 0)
            _drop_arg(region, 1 + i, inits[i])
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


# -- while -----------------------------------------------------------------------------------------


@statement(ast.While)
def visit_while(frame: Frame, node: ast.While, todo: Pending, live: bool) -> None:
    if node.orelse:
        raise frame.unsupported(node, "`while` with an `else` is not supported")
    carried = _carried(frame, node)
    inits = _flat(frame.names, carried)
    types = [v.type for v in inits]
    before, body = Region(types), Region(types)
    outer = frame.names
    frame.loops += 1
    frame.names = _rebound(outer, carried, before.args)
    with frame.builder.at_end(before):
        test = visit(frame, node.test)
        if not isinstance(test, tensor):
            raise TypeError(
                "the condition of a `while` must be a run-time value; it is "
                f"{unwrap(test)!r}, known at compile time"
            )
        test = run_time_condition(frame, test)
        passed = _after(frame, node, carried, outer)
        condition = frame.builder.insert(Condition(test.handle, passed))
    frame.names = _rebound(outer, carried, body.args)
    with frame.builder.at_end(body):
        run(frame, pending(node.body), True)
        end = frame.builder.insert(Yield(_after(frame, node, carried, outer)))
    frame.loops -= 1
    kept = _drop_unchanged(before, body, condition, end, inits)
    op = frame.builder.insert(While([inits[i] for i in kept], before, body))
    results = list(inits)
    for i, result in zip(kept, op.results, strict=True):
        results[i] = result
    frame.names = _rebound(outer, carried, results)


def _after(frame: Frame, node: ast.While, carried: Carried, outer: Names) -> list[Value]:
    """The carried values at the end of a region; the names are again those outside."""
    after, frame.names = frame.names, outer
    _check_names(frame, node, carried, after)
    return _flat(after, carried)


def _drop_unchanged(
    before: Region, body: Region, condition: Condition, end: Yield, inits: list[Value]
) -> list[int]:
    """Take out what neither region changes; the indices of the rest."""
    kept: list[int] = []
    for i in reversed(range(len(inits))):
        passed, yielded = list(condition.values), list(end.values)
        if passed[i] is before.args[i] and yielded[i] is body.args[i]:
            del passed[i], yielded[i]
            _set_values(condition, [condition.condition, *passed], 1)
            _set_values(end, yielded, 0)
            _drop_arg(before, i, inits[i])
            _drop_arg(body, i, inits[i])
        else:
            kept.insert(0, i)
    return kept


def _set_values(op: Condition | Yield, operands: list[Value], fixed: int) -> None:
    op.drop_operands()
    op.add_operands(operands)
    op.spans = (*op.spans[:fixed], len(operands) - fixed)
