"""The registry of lowerings of elementwise ops.

    @lowers(Add)
    def lower_add(b: Builder, op: Add, lhs: V, rhs: V) -> V: ...

An elementwise op is lowered by one function, for scalars and vectors alike; a target overrides it
with ``@lowers(Add, target=NAME)``. Ops that are not elementwise have emitters in each target, or in
`lowering/simt`, since their code depends on how tiles are represented.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.ir.core import Op
from tilewright.lowering.emit import V

Lowering = Callable[..., V]
LOWERINGS: dict[type[Op], dict[str, Lowering]] = {}


def lowers(*classes: type[Op], target: str = "") -> Callable[[Lowering], Lowering]:
    """Register the lowering of op classes, for one target or (default) for all."""

    def register(fn: Lowering) -> Lowering:
        for cls in classes:
            known = LOWERINGS.setdefault(cls, {})
            assert target not in known, f"{cls.name} is lowered twice for {target or 'all'}"
            known[target] = fn
        return fn

    return register


def lowering_of(cls: type[Op], target: str) -> Lowering | None:
    """The lowering of the target, or else the common one, or else None."""
    known: dict[str, Any] = LOWERINGS.get(cls, {})
    return known.get(target) or known.get("")
