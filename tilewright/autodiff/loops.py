"""What loops carry, as far as reverse mode can undo it.

A value that a loop carries is a *sum* if the only thing that happens to it is that something is
added which does not depend on it:

    for k in range(n):
        total += f(k)            # also tl.dot(a, b, acc=total), total -= f(k), and inner loops

The adjoint of each f(k) is that of the final total, so that the iterations are independent of each
other in reverse, and no intermediate total is needed. Values that are scaled by a running maximum
on which no result depends are treated as sums, too (`gauges.py`).
"""

from __future__ import annotations

from collections.abc import Collection

from tilewright.autodiff.chains import adds_to, is_only_updated
from tilewright.autodiff.gauges import Gauge
from tilewright.autodiff.refusals import unknown_carried
from tilewright.ir.core import Op, Value
from tilewright.ops.control import For


def carried_kinds(loop: For, active: Collection[Value], gauge: Gauge | None) -> list[int]:
    """The indices of the active values that a loop carries, all of which are sums.

    Args:
        gauge: of the loop's running maximum, if no result depends on that.

    Raises:
        CompilationError: one is not.
    """
    found: list[int] = []
    for i, arg in enumerate(loop.body.args[1:]):
        if arg in active:
            if not is_sum_of(loop, i) and (gauge is None or i not in gauge.states):
                raise unknown_carried(loop, i)
            found.append(i)
    if gauge is not None:
        require_constant_start(loop, active, gauge)
    return found


def require_constant_start(loop: For, active: Collection[Value], gauge: Gauge) -> None:
    """Raise unless a loop with a running maximum starts with what does not depend on inputs: for
    another maximum, what it starts with would be scaled by another number."""
    for i in (gauge.index, *gauge.states) if gauge.before is None else ():
        if loop.inits[i] in active:
            raise unknown_carried(loop, i)


def recomputed(loop: For, active: Collection[Value], gauge: Gauge | None) -> list[int]:
    """The indices of the values that a loop carries and that its reversal computes again."""
    replaced = () if gauge is None else (gauge.index, *gauge.states)
    args = loop.body.args[1:]
    return [i for i, arg in enumerate(args) if arg not in active and i not in replaced]


def is_sum_of(loop: For, index: int) -> bool:
    """Whether a carried value is only ever added to; see the module's documentation."""
    return is_only_updated(loop, index, _sum)


def _sum(user: Op, value: Value) -> Value | None:
    """The sum that an op, or a nested loop, adds something to."""
    if isinstance(user, For) and value in user.inits:
        inner = user.inits.index(value)
        return user.results[inner] if is_sum_of(user, inner) else None
    return user.results[0] if adds_to(user, value) else None
