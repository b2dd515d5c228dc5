"""Activity analysis: the values with a derivative, which depend on the loads of the inputs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from tilewright.autodiff.registry import RULES, Zero
from tilewright.ir.core import Op, Value
from tilewright.ir.types import is_float
from tilewright.ops.control import Condition, For, If, While, Yield


def active_values(sources: Iterable[Value], constants: Collection[Value] = ()) -> set[Value]:
    """The floats that depend on the sources, through ops with a nonzero derivative or control flow;
    the sources included.

    Args:
        constants: values whose derivative counts as zero.
    """
    active: set[Value] = set()
    work = [v for v in sources if is_float(v.type)]
    while work:
        value = work.pop()
        if value in active or value in constants:
            continue
        active.add(value)
        for user in value.users:
            work += [v for v in _reached(user, value) if is_float(v.type)]
    return active


def _reached(user: Op, value: Value) -> Iterator[Value]:
    """The values that are computed from an operand of an op."""
    if isinstance(user, Yield | Condition | For | While):
        for index, operand in enumerate(user.operands):
            if operand is value:
                yield from _carried(user, index)
    elif not isinstance(RULES.get(type(user)), Zero):
        yield from user.results


def _carried(user: Yield | Condition | For | While, index: int) -> Iterator[Value]:
    """The value that an operand of an op of control flow becomes."""
    match user:
        case Yield():
            yield from _yielded(user.parent_op(), index)
        case Condition():
            around = user.parent_op()
            assert isinstance(around, While)
            yield around.body.args[index - 1]
            yield around.results[index - 1]
        case For():
            yield user.body.args[index - 2]
            yield user.results[index - 3]
        case While():
            yield user.before.args[index]


def _yielded(around: Op | None, index: int) -> Iterator[Value]:
    match around:
        case For():
            yield around.body.args[index + 1]
            yield around.results[index]
        case While():
            yield around.before.args[index]
        case If():
            yield around.results[index]
        case _:
            pass  # of a combine function: the op around it is reached through its operands
