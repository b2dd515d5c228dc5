"""Subscripts ``x[...]``: new axes, integers and slices.

Integers and slices are implemented by `tile.gather` along an axis, with mostly constant indices.
"""

from __future__ import annotations

from typing import Any

from tilewright.base.codes import coded
from tilewright.ir.types import I32, Pointer, shape_of
from tilewright.language.semantic import convert
from tilewright.language.semantic.context import Semantic
from tilewright.language.semantic.convert import constant
from tilewright.language.semantic.shape import (
    expand_dims,
    flip,
    gather,
    index_along,
    plain,
    reshape,
)
from tilewright.language.types import validate_block_shape
from tilewright.language.values import slice, tensor, tuple
from tilewright.ops.arith import Add, Mul


def subscript(s: Semantic, x: tensor, index: Any) -> tensor:
    """``x[...]`` with the semantics of NumPy, for one or several entries:

    ========== ======================================================================
    None       a new axis of length 1
    :          the whole axis, as for axes without an entry. If all entries are None or ``:``, each
               ``:`` beyond the rank is ignored, as in Triton: ``scalar[:, None]`` has shape [1]
    int, i     one element of the axis, which is removed: a compile-time int, also negative, or a
               run-time integer scalar, which must be in bounds
    a:b:c      a slice as in Python, with compile-time bounds and step
    ...        as many ``:`` as are missing
    ========== ======================================================================

    With the option `strict_triton`, only None and ``:`` are allowed.

    Raises:
        ValueError: an unsupported entry, too many entries, or an invalid shape of the result.
        IndexError: a compile-time int is out of bounds.
    """
    originals = index.values if isinstance(index, tuple) else [index]
    entries = [plain(entry) for entry in originals]
    for entry, shown in zip(entries, originals, strict=True):
        if not _is_allowed(s, entry):
            message = f"unsupported tensor index: {shown}{_advice(s, x, entry)}"
            raise coded("tensor-index", ValueError(message))
    rank = len(shape_of(x.type))
    entries = _without_surplus(entries, rank)
    count = sum(entry is not None and entry is not Ellipsis for entry in entries)
    if count > rank:
        raise coded("tensor-index", ValueError(f"too many indices for tensor of rank {rank}"))
    entries = _without_ellipsis(entries, rank - count)
    x, dropped = _select(s, x, [e for e in entries if e is not None])
    if dropped:
        x = reshape(s, x, [d for a, d in enumerate(shape_of(x.type)) if a not in dropped])
    position = 0
    for entry in entries:
        if entry is None:
            x = expand_dims(s, x, position)
        position += entry is None or isinstance(entry, slice)
    return x


def _is_allowed(s: Semantic, entry: Any) -> bool:
    if entry is None or (isinstance(entry, slice) and entry.bare):
        return True
    if s.options.strict_triton:
        return False
    if isinstance(entry, slice):
        parts = (entry.start, entry.stop, entry.step)
        return all(p is None or type(p) is int for p in parts) and entry.step != 0
    if isinstance(entry, tensor):
        return not shape_of(entry.type) and entry.dtype.is_int() and not entry.dtype.is_bool()
    return entry is Ellipsis or type(entry) is int


def _advice(s: Semantic, x: tensor, entry: Any) -> str:
    """A hint how to replace an unsupported index."""
    if s.options.strict_triton:
        return ""
    if isinstance(x.dtype, Pointer):
        return "; tl.load and tl.store access what a pointer points to"
    if isinstance(entry, slice):
        return "; the bounds of a slice are compile-time integers, and its step is not 0"
    if isinstance(entry, tensor) and entry.dtype.is_bool():
        return "; a condition does not select elements"
    if isinstance(entry, tensor):
        return "; a run-time index must be a scalar integer. Use tl.gather to index with a tile"
    return "; an entry is None, a slice, an integer or ..."


def _without_surplus(entries: list[Any], rank: int) -> list[Any]:
    """The entries without each ``:`` beyond the rank, if they are None and ``:`` alone."""
    if not all(e is None or (isinstance(e, slice) and e.bare) for e in entries):
        return entries
    kept: list[Any] = []
    for entry in entries:
        if entry is None or sum(e is not None for e in kept) < rank:
            kept.append(entry)
    return kept


def _without_ellipsis(entries: list[Any], missing: int) -> list[Any]:
    """The entries with ``...`` replaced by ``:``; without one, they are appended."""
    at = next((i for i, entry in enumerate(entries) if entry is Ellipsis), len(entries))
    if any(entry is Ellipsis for entry in entries[at + 1 :]):
        raise ValueError("an index can only have a single ellipsis ('...')")
    return [*entries[:at], *[slice()] * missing, *entries[at + 1 :]]


def _select(s: Semantic, x: tensor, entries: list[Any]) -> Any:
    """Apply the integers and slices. Returns the tile and the axes to remove, of length 1."""
    dropped: set[int] = set()
    shape = shape_of(x.type)
    for axis, entry in enumerate(entries):
        extent = shape[axis]
        if isinstance(entry, tensor):
            x = _strided(s, x, axis, 1, entry, 1)
            dropped.add(axis)
        elif isinstance(entry, int):
            if not -extent <= entry < extent:
                raise IndexError(
                    f"index {entry} is out of range for axis {axis} of a tensor of shape "
                    f"{list(shape)}"
                )
            x = _strided(s, x, axis, 1, constant(s, entry % extent, I32), 1)
            dropped.add(axis)
        elif not entry.bare:
            x = _slice(s, x, axis, range(extent)[entry.start : entry.stop : entry.step], entry)
    return x, dropped


def _slice(s: Semantic, x: tensor, axis: int, indices: range, entry: slice) -> tensor:
    """Apply a slice along an axis; `indices` are its indices."""
    shape = shape_of(x.type)
    if not indices:
        raise ValueError(
            f"{entry} selects nothing of axis {axis} of a tensor of shape {list(shape)}"
        )
    if indices == range(shape[axis]):
        return x
    if indices == range(shape[axis])[::-1]:
        return flip(s, x, axis)
    validate_block_shape((*shape[:axis], len(indices), *shape[axis + 1 :]))
    return _strided(s, x, axis, len(indices), constant(s, indices.start, I32), indices.step)


def _strided(s: Semantic, x: tensor, axis: int, count: int, start: tensor, step: int) -> tensor:
    """Gather `count` indices along an axis, from `start` with the given step."""
    shape = shape_of(x.type)
    sizes = (*shape[:axis], count, *shape[axis + 1 :])
    first = convert.splat(s, start, sizes)
    if count == 1:
        return gather(s, x, first, axis)
    index = index_along(s, sizes, axis)
    if step != 1:
        index = s.emit(Mul(index.handle, constant(s, step, I32, sizes).handle))
    return gather(s, x, s.emit(Add(index.handle, first.handle)), axis)
