"""The interface of reverse mode for the reversal of control flow; see `reverse.py`."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from tilewright.autodiff.emitter import Emitter
from tilewright.autodiff.replay import Replay
from tilewright.autodiff.tapes import TapeMemory
from tilewright.ir.core import Op, Region, Value
from tilewright.ir.types import Type
from tilewright.ops.control import For, While


class Walk(Protocol):
    """A walk backwards over a function, which emits another one.

    Attributes:
        emit: emits at the present place.
        replay: values of the function at the present place.
        active: the values with a derivative.
    """

    emit: Emitter
    replay: Replay
    active: set[Value]

    def region(self, region: Region) -> None:
        """Emit the adjoints of a region's ops, last first."""
        ...

    def give(self, value: Value, adjoint: Value | None) -> None:
        """Add to the adjoint of a value; None for zero."""
        ...

    def adjoint(self, value: Value) -> Value | None:
        """The adjoint of a value so far; None for zero."""
        ...

    def take(self, value: Value) -> Value | None:
        """The adjoint of a value so far, for the caller to add to and return."""
        ...

    def adjoints(self) -> AbstractContextManager[dict[Value, Value]]:
        """A separate table of adjoints."""
        ...

    def outer_values(self, op: Op) -> list[Value]:
        """The active values that an op's regions use, and that are defined outside of it."""
        ...

    def tape(self, loop: For | While, types: Sequence[Type], needed: Sequence[int]) -> TapeMemory:
        """The slots of a loop; see `TapeMemory`."""
        ...
