"""Arithmetic on the bounds of counted loops, for their lowerings."""

from __future__ import annotations

from tilewright.lowering.emit import Builder
from tilewright.lowering.llvm_values import V, const


def at_least_one(b: Builder, step: V, *, signed: bool) -> V:
    """The step of a loop; steps below 1 are treated as 1."""
    t, number = step.type, known_bound(step, signed=signed)
    if number is not None:
        return const(t, max(1, number))
    name = "llvm.smax" if signed else "llvm.umax"
    return b.intrinsic(name, t, [step, const(t, 1)], overloads=[t])


def known_bound(bound: V, *, signed: bool) -> int | None:
    """The number that a bound is known to be, in the bound's own signedness."""
    number = bound.number
    return number if signed or number is None else number % (1 << bound.type.bits)
