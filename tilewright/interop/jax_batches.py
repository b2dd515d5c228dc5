"""The operands of calls over batches, as `jax.vmap` adds them; see `batches`."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import jax.numpy as jnp

from tilewright.interop.batches import Batch, Batches, with_axis

MAP = "jax.lax.map"
"""A way to call a kernel for a part of a batch."""


def own_shape(batches: Batches, operand: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of one element of an operand."""
    return shape[sum(operand in batch.operands for batch in batches) :]


def strides(batches: Batches, operand: int | None, size: int) -> tuple[int, ...]:
    """For each batch, the distance of its elements in an array, in elements.

    Args:
        operand: the index of the operand; None for a result.
        size: the number of elements of the array for one element of the batch.
    """
    result: list[int] = []
    for batch in batches:
        if operand is None or operand in batch.operands:
            result.append(size)
            size *= batch.size
        else:
            result.append(0)
    return tuple(result)


def with_batch(
    operands: Sequence[Any], axes: Sequence[int | None], updated: Collection[int]
) -> tuple[list[Any], Batch]:
    """The operands of a call over one more batch, and that batch; see `with_axis`.

    Args:
        updated: the operands that the kernel updates, which get the axis in any case.
    """
    size = next(o.shape[a] for o, a in zip(operands, axes, strict=True) if a is not None)
    return with_axis(
        operands, axes, size, updated,
        lambda operand, axis: jnp.moveaxis(operand, axis, 0),
        lambda operand: jnp.broadcast_to(operand, (size, *operand.shape)),
    )  # fmt: skip
