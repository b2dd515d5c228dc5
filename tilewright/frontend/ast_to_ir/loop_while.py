"""``while`` loops, which become `control.while`.

A loop with ``break`` or ``return`` carries a flag whether to continue, and evaluates its condition
only if the flag is true.
"""

from __future__ import annotations

import ast

from tilewright.frontend.ast_to_ir.branch import (
    any_of,
    check_condition,
    run_time_condition,
    settle,
)
from tilewright.frontend.ast_to_ir.carried import (
    Body,
    Carried,
    carried_names,
    check_names,
    flat,
    insert_while,
    labels_of,
    rebound,
)
from tilewright.frontend.ast_to_ir.errors import unsupported
from tilewright.frontend.ast_to_ir.frame import Frame, Names
from tilewright.frontend.ast_to_ir.join import Branch, join
from tilewright.frontend.ast_to_ir.stmt import Exit, Mark, Pending, jumps, pending, run, statement
from tilewright.frontend.ast_to_ir.visit import visit
from tilewright.ir.core import Region, Value
from tilewright.ir.types import I1
from tilewright.language.semantic import arith, convert
from tilewright.language.values import tensor, unwrap

_TEST = "while test"  # the key of the condition among the names; not an identifier


@statement(ast.While)
def visit_while(frame: Frame, node: ast.While, todo: Pending, live: bool) -> Exit | None:
    if node.orelse:
        raise unsupported(frame, node, "`while` with an `else` is not supported")
    may_leave = bool(jumps(node) & {ast.Break, ast.Return})
    may_leave &= not frame.context.options.strict_triton
    targets = labels_of(frame, node)
    carried = carried_names(frame, node)
    inits = flat(frame.names, carried)
    if may_leave:
        inits.append(convert.constant(frame.semantic, True, I1).handle)
    types = [v.type for v in inits]
    before, body = Region(types), Region(types)
    outer = frame.names
    frame.loops += 1
    frame.names = rebound(outer, carried, before.args)
    with frame.builder.at_end(before):
        go = tensor(before.args[-1]) if may_leave else None
        test = _test(frame, node) if go is None else _guarded_test(frame, node, go)
        passed = _after(frame, node, carried, outer)
    frame.names = rebound(outer, carried, body.args)
    with frame.builder.at_end(body):
        exit = run(frame, [Mark(targets.next), *pending(node.body)], True)
        yields = _after(frame, node, carried, outer)
        if go is not None:
            passed.append(go.handle)
            yields.append(_continues(frame, body, exit))
    frame.loops -= 1
    loop = Body(before, body, test.handle, inits, passed, yields, exit)
    results, exit = insert_while(frame, loop)
    frame.names = rebound(outer, carried, results)
    return settle(frame, node, exit, todo, live)


def _test(frame: Frame, node: ast.While) -> tensor:
    """The condition, evaluated at the insertion point."""
    test = visit(frame, node.test)
    if not isinstance(test, tensor):
        raise TypeError(
            "the condition of a `while` must be a run-time value, unless a `break` or `return` "
            f"ends the loop; it is {unwrap(test)!r}, known at compile time"
        )
    return run_time_condition(frame, test)


def _guarded_test(frame: Frame, node: ast.While, go: tensor) -> tensor:
    """The condition, evaluated only if the loop has not exited."""
    sides = Branch(dict(frame.names)), Branch(dict(frame.names))
    outer, frame.names = frame.names, sides[0].names
    with frame.builder.at_end(sides[0].region):
        test = visit(frame, node.test)
        known = not isinstance(test, tensor)
        if not known:
            frame.names[_TEST] = run_time_condition(frame, test)
    frame.names = outer
    if known:
        for op in sides[0].region.reversed():
            op.erase()
        goes_on = check_condition(frame, node, test, "`while`")
        return go if goes_on else convert.constant(frame.semantic, False, I1)
    with frame.builder.at_end(sides[1].region):
        sides[1].names[_TEST] = convert.constant(frame.semantic, False, I1)
    join(frame, go, sides, True)
    return frame.names.pop(_TEST)


def _continues(frame: Frame, body: Region, exit: Exit | None) -> Value:
    """An int1: whether the body has not exited the loop."""
    if exit is None:
        return body.args[-1]
    return arith.logical_not(frame.semantic, any_of(frame, exit)).handle


def _after(frame: Frame, node: ast.While, carried: Carried, outer: Names) -> list[Value]:
    """The carried values at the end of a region; restores the outer names."""
    after, frame.names = frame.names, outer
    check_names(frame, node, carried, after)
    return flat(after, carried)
