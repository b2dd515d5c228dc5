"""Chains of updates of a loop-carried value in the body of the loop."""

from __future__ import annotations

from collections.abc import Callable

from tilewright.ir.core import Op, Value
from tilewright.ops.arith import Add, Sub
from tilewright.ops.control import For
from tilewright.ops.dot import Dot


def is_only_updated(loop: For, index: int, update: Callable[[Op, Value], Value | None]) -> bool:
    """Whether a carried value has one use, an update, whose result has one use, and so on, up to
    the value of the next iteration.

    Args:
        update: returns the updated value, given an op and the value that it uses; None if the op
            is no update.
    """
    value = loop.body.args[index + 1]
    end = loop.body.terminator
    while True:
        users = list(value.users)
        if len(users) != 1 or value.users[users[0]] != 1:
            return False
        user = users[0]
        if user is end:
            return end.operands[index] is value
        if user.parent is not loop.body:
            return False
        updated = update(user, value)
        if updated is None:
            return False
        value = updated


def adds_to(user: Op, value: Value) -> bool:
    """Whether an op adds something to the value, or subtracts something from it."""
    match user:
        case Add():
            return True
        case Sub(lhs, _):
            return lhs is value
        case Dot():
            return user.acc is value
        case _:
            return False
