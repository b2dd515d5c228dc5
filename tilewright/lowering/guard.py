"""A conditionally executed computation with a result."""

from __future__ import annotations

from collections.abc import Callable

from tilewright.lowering.emit import Builder, V


def guarded(b: Builder, condition: V | None, act: Callable[[], V], otherwise: V) -> V:
    """Emit `act` under a branch. Returns its result if the condition is true, else `otherwise`.

    Args:
        condition: an i1; None if always true.
    """
    if condition is None:
        return act()
    before, inside, after = b.current, b.block("guarded"), b.block("after")
    b.cond_br(condition, inside, after)
    b.at(inside)
    found = act()
    end = b.current
    b.br(after)
    b.at(after)
    return b.merge((before, [otherwise]), (end, [found]))[0]
