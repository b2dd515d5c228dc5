"""How far apart results of a program may be that differ in rounding alone.

Floats that are summed, scanned or multiplied as matrices depend on the order in which a target
combines them, and some functions are rounded in more than one way. How much that matters depends on
the data: a prefix product of numbers around 1 loses a few bits, a recurrence with factors above 1
may lose all. So the distance that is allowed is computed: the program is interpreted with inputs
changed in their last places, and with reductions and scans grouped in other ways, of which each
step is rounded up or down at random, as is what other inexact ops return. How far those results
are from each other is how far a target's may be.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any
from unittest import mock

import numpy as np

from tests.arrays import copied
from tests.ir_values import same_bits
from tilewright.ir.core import Module, Op
from tilewright.ir.interpret import InterpreterError, interpret
from tilewright.ir.numbers import with_numbers
from tilewright.ir.types import is_float
from tilewright.ops import arith, atomic, dot, math, reduce

Arrays = list[Any]
Apply = Callable[[Arrays, Arrays], Arrays]
Grouping = Callable[[Apply, Arrays], Arrays]

FACTOR = 16  # of the distance between results that are equally right
SUMS = frozenset({"arith.add", "arith.mul", "arith.fma", "arith.sub", "arith.div"})


def is_inexact(op: Op) -> bool:
    """Whether targets may round the results of an op in different ways."""
    match op:
        case math.MathFunction():
            return not isinstance(op, math.ROUNDINGS)
        case arith.Div() | dot.Dot() | atomic.AtomicRMW():
            return is_float(op.results[0].type)
        case reduce.Reduce() | reduce.Scan():
            inner = [o for o in op.walk() if o is not op and o.results and not o.regions]
            return any(type(o).name in SUMS and is_float(o.results[0].type) for o in inner)
        case _:
            return False


# -- other groupings ------------------------------------------------------------------------------


def scanned_by_doubling(apply: Apply, x: Arrays) -> Arrays:
    """Inclusive scans along the first axis, of spans that double, as lanes of a warp do it."""
    distance = 1
    while distance < len(x[0]):
        joined = apply([a[:-distance] for a in x], [a[distance:] for a in x])
        x = [np.concatenate([a[:distance], b]) for a, b in zip(x, joined, strict=True)]
        distance *= 2
    return x


def scanned_in_blocks(apply: Apply, x: Arrays, length: int = 4) -> Arrays:
    """Inclusive scans of blocks, to which that of the blocks before is joined."""
    found: list[Arrays] = []
    for first in range(0, len(x[0]), length):
        block = scanned_by_doubling(apply, [a[first : first + length] for a in x])
        if found:
            before = [np.repeat(a[-1:], len(block[0]), axis=0) for a in found[-1]]
            block = apply(before, block)
        found.append(block)
    return [np.concatenate(parts) for parts in zip(*found, strict=True)]


def reduced_in_a_row(apply: Apply, x: Arrays) -> Arrays:
    """Reduction along the first axis, one element after the other."""
    total = [a[0] for a in x]
    for i in range(1, len(x[0])):
        total = apply(total, [a[i] for a in x])
    return total


def reduced_in_halves(apply: Apply, x: Arrays) -> Arrays:
    """Reduction of elements that are half of the extent apart, as butterflies do it."""
    while (n := len(x[0])) > 1:
        half = n // 2
        joined = apply([a[:half] for a in x], [a[half : 2 * half] for a in x])
        x = [np.concatenate([j, a[2 * half :]]) for j, a in zip(joined, x, strict=True)]
    return [a[0] for a in x]


OTHERS: tuple[tuple[Grouping, Grouping], ...] = (
    (reduced_in_a_row, scanned_by_doubling),
    (reduced_in_halves, scanned_in_blocks),
)
"""Ways to group reductions and scans, of which the interpreter uses neither."""


def _reduce(grouping: Grouping, rng: np.random.Generator) -> Callable[..., tuple[Any, ...]]:
    def execute(op: reduce.Reduce, state: Any, *args: Any) -> tuple[Any, ...]:
        moved = [np.moveaxis(a, op.axis, 0) for a in args]
        return tuple(np.asarray(a) for a in grouping(_step(op, state, rng), moved))

    return execute


def _scan(grouping: Grouping, rng: np.random.Generator) -> Callable[..., tuple[Any, ...]]:
    def execute(op: reduce.Scan, state: Any, *args: Any) -> tuple[Any, ...]:
        step = -1 if op.reverse else 1
        moved = [np.moveaxis(a, op.axis, 0)[::step] for a in args]
        found = grouping(_step(op, state, rng), moved)
        return tuple(np.moveaxis(a[::step], 0, op.axis) for a in found)

    return execute


def _step(op: reduce.Reduce | reduce.Scan, state: Any, rng: np.random.Generator) -> Apply:
    """The combine function; if it is inexact, its results are the next float up or down."""
    if not is_inexact(op):
        return lambda x, y: op.apply(state, x, y)
    return lambda x, y: [_moved(a, rng) for a in op.apply(state, x, y)]


def _moved(x: Any, rng: np.random.Generator) -> Any:
    """Floats that are changed by a unit in the last place; zeros and integers as they are."""
    if x.dtype.kind in "biu":
        return x
    side = np.where(rng.random(x.shape) < 0.5, -np.inf, np.inf).astype(x.dtype)
    return np.where(np.isfinite(x) & (x != 0), np.nextafter(x, side), x)


def _moving(rng: np.random.Generator) -> Callable[[Op], Callable[..., Any]]:
    """Evaluates ops as the interpreter does, but for the last place of inexact results."""

    def evaluated(op: Op) -> Callable[..., Any]:
        call = with_numbers(op)
        if not is_inexact(op):
            return call
        return lambda *operands: _moved(np.asarray(call(*operands)), rng)

    return evaluated


# -- results that are equally right ---------------------------------------------------------------


def significand(dtype: Any) -> int:
    """Bits of a float's significand, roughly."""
    return {8: 50, 4: 21, 2: 7, 1: 2}[np.dtype(dtype).itemsize]


def nudged(args: Sequence[Any], seed: int) -> Arrays:
    """The arguments with each float changed in its last places."""
    rng = np.random.default_rng(seed)
    found = copied(args)
    for x in found:
        if isinstance(x, np.ndarray) and x.ndim and x.dtype.kind not in "biu":
            part = 2.0 ** -(significand(x.dtype) - 3)
            with np.errstate(all="ignore"):
                near = x.astype(np.float64) * (1 + part * rng.choice((-1, 1), x.shape))
                x[...] = near.astype(x.dtype)
    return found


def alternatives(module: Module, grid: Any, args: Sequence[Any], seed: int) -> list[Arrays] | None:
    """What memory holds after runs of the program that are as right as the interpreter's, but for
    rounding; None if one of them fails."""
    rng = np.random.default_rng(seed)
    found = [nudged(args, seed)]
    ways: list[tuple[Grouping, Grouping] | None] = [None]
    for way in (*OTHERS, *OTHERS):
        found.append(nudged(args, seed + len(found)))
        ways.append(way)
    for arrays, way in zip(found, ways, strict=True):
        with ExitStack() as patches:
            if way is not None:
                moving = mock.patch("tilewright.ir.interpret.with_numbers", _moving(rng))
                patches.enter_context(moving)
                execute = _reduce(way[0], rng), _scan(way[1], rng)
                for op, function in zip((reduce.Reduce, reduce.Scan), execute, strict=True):
                    patches.enter_context(mock.patch.object(op, "execute", function))
            try:
                interpret(module, grid, arrays)
            except InterpreterError:
                return None
    return found


def differs(x: Any, y: Any, others: Sequence[Any]) -> np.ndarray:
    """Where two arrays differ by more than rounding may do.

    Args:
        others: the array after runs that are equally right; none if results are exact.
    """
    wrong = ~np.array([same_bits(x[k : k + 1], y[k : k + 1]) for k in range(len(y))], np.bool_)
    if not others or not wrong.any():
        return wrong
    with np.errstate(all="ignore"):
        if x.dtype.kind in "biu":
            return wrong & np.logical_and.reduce([y == other for other in others])
        a, b = x.astype(np.float64), y.astype(np.float64)
        c = np.stack([other.astype(np.float64) for other in others])
        distance = np.abs(c - b).max(axis=0)
        room = FACTOR * distance + 2.0 ** -(significand(x.dtype) - 5) * (1 + np.abs(b))
        vague = ~np.isfinite(b) | ~np.isfinite(c).all(axis=0)
        vague |= ~np.isfinite(a) & (np.abs(b) > 1e4)
        return wrong & ~vague & ~(np.abs(a - b) <= room)
