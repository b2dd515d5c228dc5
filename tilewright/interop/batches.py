"""Batches that a call of a kernel runs over, as `jax.vmap` and `torch.vmap` add them.

`batched_kernels` makes the kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from math import prod
from typing import Any, NamedTuple

from tilewright.runtime.grid import Grid

MAX_PROGRAMS = 2**31 - 1
"""The most programs along the first axis of a grid."""


class Batch(NamedTuple):
    """A batch.

    Attributes:
        size: the number of elements.
        operands: the indices of the operands that have one more axis for it, in front.
    """

    size: int
    operands: frozenset[int]


Batches = tuple[Batch, ...]
"""The innermost one first."""


def batch_shape(batches: Batches) -> tuple[int, ...]:
    """The axes in front of those of each result."""
    return tuple(batch.size for batch in reversed(batches))


def with_axis(
    operands: Sequence[Any],
    axes: Sequence[int | None],
    size: int,
    whole: Collection[int],
    to_front: Callable[[Any, int], Any],
    repeated: Callable[[Any], Any],
) -> tuple[list[Any], Batch]:
    """The operands of a call over one more batch, and that batch.

    Args:
        axes: the axis of the batch in each operand; None for an operand without it.
        size: of the batch.
        whole: the operands that get the axis in any case, with memory for each element.
        to_front: moves an axis of an operand to the front.
        repeated: an operand for each element, with the axis in front.
    """
    moved = [
        to_front(operand, axis)
        if axis is not None
        else repeated(operand)
        if i in whole
        else operand
        for i, (operand, axis) in enumerate(zip(operands, axes, strict=True))
    ]
    given = {i for i, axis in enumerate(axes) if axis is not None}
    return moved, Batch(size, frozenset(given | set(whole)))


def batched_grid(name: str, batches: Batches, grid: Grid, instead: str) -> Grid:
    """The grid over all batches.

    Args:
        name: of the kernel.
        instead: a way to call it for a part of the batch.

    Raises:
        ValueError: it has too many programs.
    """
    x, y, z = grid
    sizes = batch_shape(batches)
    total = x * prod(sizes)
    if total > MAX_PROGRAMS:
        raise ValueError(
            f"a batch of {' × '.join(map(str, sizes))} calls of {name} with grid {grid} has "
            f"{total} programs along the first axis, more than {MAX_PROGRAMS}: use {instead} "
            "over a part of the batch"
        )
    return total, y, z
