"""Insertion of ops: a place, and the source location that new ops get."""

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
        loc: the location of new ops that have none.
        pure: whether what is inserted now may have no effects, as in a region that combines.
    """

    def __init__(self, region: Region | None = None) -> None:
        self.region = region
        self.anchor: Op | None = None
        self.loc: Loc | None = None
        self.pure = False

    def insert(self, op: AnyOp) -> AnyOp:
        """Insert the op here. It gets the current location unless it has one."""
        assert self.region is not None, "the builder is nowhere"
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
        """Append to `region` within the block, then return to the present place and location."""
        saved = self.region, self.anchor, self.loc
        self.region, self.anchor = region, None
        try:
            yield region
        finally:
            self.region, self.anchor, self.loc = saved

    @contextmanager
    def combining(self, region: Region) -> Generator[Region]:
        """As `at_end`, for a region that may run any number of times: nothing in it has effects."""
        saved, self.pure = self.pure, True
        try:
            with self.at_end(region):
                yield region
        finally:
            self.pure = saved

    @contextmanager
    def before(self, op: Op) -> Generator[None]:
        """Insert before `op` within the block, with its location."""
        saved = self.region, self.anchor, self.loc
        self.region, self.anchor, self.loc = op.parent, op, op.loc
        try:
            yield
        finally:
            self.region, self.anchor, self.loc = saved
