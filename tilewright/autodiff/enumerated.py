"""Whether accesses of an array touch each element at most once, by going through all of them.

`distinct.py` proves that from the form of an index. An index of any other form, such as that of an
image's windows, (y + shift) % height * width + …, or one that is loaded from a table of tokens, is
computed here: for all points of the launch at once, by the `evaluate` of the ops, as `points.py`
does with scalars. That is exact, and takes time and memory for each element; so it is for accesses
of which nothing else is known, and only up to `MOST_ACCESSES`.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from tilewright.analysis.blocks import Access
from tilewright.analysis.pointers import base_of
from tilewright.autodiff.points import Array, Points, UnknownNumber
from tilewright.ir.core import Value
from tilewright.ir.types import is_int, is_pointer, numpy_of, shape_of
from tilewright.ops.arith import Constant, Hint
from tilewright.ops.memory import AddPtr, Load
from tilewright.ops.shape import Arange, Broadcast, ExpandDims, Permute, Reshape, Splat
from tilewright.ops.view import View

MOST_ACCESSES = 1 << 24  # to single elements
FEW_ACCESSES = 1 << 20  # those that cost less than the derivation
AT_ONCE = 1 << 20


def are_distinct(accesses: Sequence[Access], points: Points, most: int = MOST_ACCESSES) -> bool:
    """Whether no two of these accesses of one array are to one element in a launch; False if that
    is not known, or if there are more than `most`."""
    found: list[Array] = []
    count = 0
    try:
        for op in accesses:
            here, _ = points.inside(op)  # where it may run: these are no fewer accesses
            lanes = prod(shape_of(op.ptr.type))
            count += here.count * lanes
            if count > most:
                return False
            each = np.array_split(np.arange(here.count), here.count * lanes // AT_ONCE + 1)
            found += [_Tiles(here.taken(part)).accessed(op) for part in each]
    except UnknownNumber:
        return False
    places = np.sort(np.concatenate(found)) if found else np.zeros(0)
    return not np.any(places[1:] == places[:-1])


class _Tiles:
    """Tiles of integers at some points: the first axis of their arrays is that of points."""

    def __init__(self, points: Points) -> None:
        self._points = points
        self._known: dict[Value, Array] = {}

    def accessed(self, op: Access) -> Array:
        """The elements that an access touches."""
        places, undefined = self.value(op.ptr), self._undefined(op.ptr)
        if op.mask is not None:
            keep = self.value(op.mask).astype(bool)
            places, undefined = places[keep], undefined[keep] | self._undefined(op.mask)[keep]
        if undefined.any():
            raise UnknownNumber("it is loaded under a mask")
        return places.ravel()

    def value(self, value: Value) -> Array:
        """A tile or scalar at each point; of a pointer, the distance from its array's begin.

        Raises:
            UnknownNumber: it is not known before the launch.
        """
        if not shape_of(value.type) and not is_pointer(value.type):
            return self._points.value(value)
        if value not in self._known:
            self._known[value] = np.broadcast_to(self._computed(value), self._lengths(value))
        return self._known[value]

    def _lengths(self, value: Value) -> tuple[int, ...]:
        return self._points.count, *shape_of(value.type)

    def _computed(self, value: Value) -> Array:
        op = value.op
        match op:
            case None:
                if not is_pointer(value.type) or value.owner.parent is not None:
                    raise UnknownNumber("a loop carries it")
                return np.zeros(1, np.int64)
            case AddPtr(pointer, offset):
                return self.value(pointer) + self.value(offset).astype(np.int64)
            case Constant(number):
                return np.array(number, numpy_of(value.type))
            case Arange(start, end):
                return np.arange(start, end, dtype=numpy_of(value.type))[None]
            case View():
                return _viewed(op, self.value(op.src))
            case Load():
                return self._loaded(op).astype(numpy_of(value.type))
            case _ if op.elementwise and is_int(value.type):
                operands = [self.value(v) for v in op.operands]
                with np.errstate(all="ignore"):
                    return np.asarray(op.evaluate(*operands))
            case _:
                raise UnknownNumber(f"it depends on {op.name}")

    def _loaded(self, op: Load) -> Array:
        index = self.value(op.ptr)  # of a pointer that is not cast to another type
        mask = np.array(True) if op.mask is None else self.value(op.mask).astype(bool)
        other = np.array(0) if op.other is None else self.value(op.other)
        base = None if op.volatile else base_of(op.ptr)
        return self._points.read(base, index, mask, other)

    def _undefined(self, value: Value) -> Array:
        """Where a value that is known depends on what a load does not read."""
        op = value.op
        found = np.array(False)
        if isinstance(op, View):
            found = _viewed(op, self._undefined(op.src))
        elif op is not None and shape_of(value.type):
            for operand in op.operands:
                found = found | self._undefined(operand)
            if isinstance(op, Load) and op.mask is not None and op.other is None:
                found = found | ~self.value(op.mask).astype(bool)
        return np.broadcast_to(found, self._lengths(value))


def _viewed(op: View, src: Array) -> Array:
    """A view of tiles, each at a point."""
    match op:
        case Hint() | Broadcast():
            return src
        case Splat():
            return src.reshape(len(src), *(1 for _ in op.shape))
        case ExpandDims():
            return np.expand_dims(src, op.axis + 1)
        case Permute():
            return src.transpose(0, *(axis + 1 for axis in op.order))
        case Reshape():
            return src.reshape(len(src), *op.shape)
        case _:
            raise UnknownNumber(f"it depends on {op.name}")
