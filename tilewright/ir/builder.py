"""The op builder: an insertion point, and the source location of new ops."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import TypeVar

from tilewright.base.diagnostics import Loc
from tilewright.ir.core import Op, Region, Value

AnyOp = TypeVar("AnyOp", bound=Op)


class Builder:
    """Appends ops to a region, or inserts them before an op.

    Attributes:
        region: the region that contains the insertion point.
        anchor: the op before which new ops are inserted; None to append to the region.
        loc: the location of new ops that have none.
        pure: whether ops with effects are forbidden at the insertion point, as in the combine
            region of a reduction.
    """

    def __init__(self, region: Region | None = None) -> None:
        self.region = region
        self.anchor: Op | None = None
        self.loc: Loc | None = None
        self.pure = False

    def insert(self, op: AnyOp) -> AnyOp:
        """Insert the op at the insertion point. It gets the current location unless it has one."""
        assert self.region is not None, "the builder has no insertion point"
        if op.loc is None:
            op.loc = self.loc
        if self.anchor is None:
            self.region.append(op)
        else:
            self.region.insert_before(op, self.anchor)
        return op

    def value(self, op: Op) -> Value:
        """Insert the op and return its only result."""
        return self.insert(op).result

    @contextmanager
    def at_end(self, region: Region) -> Generator[Region]:
        """Append to `region` within the `with` block, then restore the insertion point and the
        location."""
        saved = self.region, self.anchor, self.loc
        self.region, self.anchor = region, None
        try:
            yield region
        finally:
            self.region, self.anchor, self.loc = saved

    @contextmanager
    def combining(self, region: Region) -> Generator[Region]:
        """As `at_end`, for a combine region. It may run any number of times, so its ops must be
        pure."""
        saved, self.pure = self.pure, True
        try:
            with self.at_end(region):
                yield region
        finally:
            self.pure = saved

    @contextmanager
    def before(self, op: Op) -> Generator[None]:
        """Insert before `op`, with its location, within the `with` block."""
        saved = self.region, self.anchor, self.loc
        self.region, self.anchor, self.loc = op.parent, op, op.loc
        try:
            yield
        finally:
            self.region, self.anchor, self.loc = saved
