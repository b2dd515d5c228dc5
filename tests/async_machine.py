"""Runs tile IR of GPUs as the worst GPU that keeps the rules: what is asynchronous ends late.

    with AsyncMachine() as machine:
        interpret(module, 1, args)
    machine.check_idle()

In the plain interpreter a copy arrives and a product ends where it starts, so that a wait too few
shows nowhere. Here

- a copy arrives at the barrier behind the wait that counts it; until then its place holds poison;
- a product reads its buffers and gives its result at the wait that counts it; until then the
  result is poison, unless the next product takes it as accumulator;
- other warps may be anywhere between the same two barriers. So it is an error to start a copy to a
  place that something has read since the last barrier, or that a product in flight reads, and to
  read a place to which a copy is under way.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Any, NamedTuple

import numpy as np

from tilewright.ir.core import Op
from tilewright.ir.types import Shared, numpy_of, shape_of
from tilewright.ops.control import Barrier
from tilewright.ops.gpu import Allocate, CommitCopies, CopyAsync, Fetch, Share, WaitCopies
from tilewright.ops.memory import split_optional
from tilewright.ops.numeric import Array
from tilewright.ops.nvidia import Wgmma, WgmmaWait

POISON = 0xC5  # each byte of what is not there yet


class Race(AssertionError):
    """Something asynchronous is not waited for, or what it uses is changed."""


class _Copy(NamedTuple):
    place: Array
    value: Array


class _Product(NamedTuple):
    op: Wgmma
    operands: tuple[Array, ...]
    result: Array

    @property
    def places(self) -> set[int]:
        pairs = zip(self.op.operands, self.operands, strict=True)
        return {_address(array) for value, array in pairs if isinstance(value.type, Shared)}


def _address(array: Array) -> int:
    """Where a buffer begins: slots of one buffer differ in it, views of one slot do not."""
    return array.__array_interface__["data"][0]


def _poison(array: Array) -> None:
    array[...] = np.full((*array.shape, array.itemsize), POISON, np.uint8).view(array.dtype)[..., 0]


class AsyncMachine:
    """While the context is entered, the ops that are asynchronous behave as above. One program."""

    def __init__(self) -> None:
        self.stretch = 0  # how many barriers there were
        self.read: dict[int, int] = {}  # place -> the last stretch in which it was read
        self.started: list[_Copy] = []  # in no group yet
        self.groups: deque[list[_Copy]] = deque()
        self.arrived: list[_Copy] = []  # waited for, but maybe not by the other warps
        self.products: deque[_Product] = deque()
        self._saved: list[tuple[type[Op], str, Any]] = []

    # -- entering -------------------------------------------------------------------------------

    def __enter__(self) -> AsyncMachine:
        for cls, name, meaning in (
            (Allocate, "evaluate", _allocate),
            (CopyAsync, "execute", self._copy),
            (CommitCopies, "execute", self._commit),
            (WaitCopies, "execute", self._wait_copies),
            (Barrier, "execute", self._barrier),
            (Fetch, "execute", self._fetch),
            (Share, "execute", self._share),
            (Wgmma, "execute", self._product),
            (WgmmaWait, "execute", self._wait_products),
        ):
            self._replace(cls, name, meaning)
        return self

    def _replace(self, cls: type[Op], name: str, meaning: Callable[..., Any]) -> None:
        self._saved.append((cls, name, cls.__dict__.get(name)))

        def method(op: Op, *args: Any) -> Any:
            return meaning(op, *args)

        setattr(cls, name, method)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for cls, name, before in self._saved:
            if before is None:
                delattr(cls, name)
            else:
                setattr(cls, name, before)

    def check_idle(self) -> None:
        """Nothing may be under way when a program ends."""
        copies = [*self.started, *(c for group in self.groups for c in group)]
        if copies or self.products:
            raise Race(f"{len(copies)} copies and {len(self.products)} products are not waited for")

    # -- copies ---------------------------------------------------------------------------------

    def _under_way(self) -> set[int]:
        groups = [self.started, *self.groups, self.arrived]
        return {_address(copy.place) for group in groups for copy in group}

    def _copy(self, op: CopyAsync, state: Any, *args: Any) -> tuple[()]:
        ptr, place, mask = split_optional(op, args)
        address = _address(place)
        if self.read.get(address) == self.stretch:
            raise Race("a copy starts to a place that other warps may still be reading")
        if address in self._under_way():
            raise Race("a copy starts to a place to which another is under way")
        if any(address in product.places for product in self.products):
            raise Race("a copy starts to a place that a product in flight reads")
        self.started.append(_Copy(place, state.memory.load(op, ptr, mask, None)))
        _poison(place)
        return ()

    def _commit(self, op: CommitCopies, state: Any) -> tuple[()]:
        self.groups.append(self.started)
        self.started = []
        return ()

    def _wait_copies(self, op: WaitCopies, state: Any) -> tuple[()]:
        while len(self.groups) > op.pending:
            self.arrived += self.groups.popleft()
        return ()

    def _barrier(self, op: Barrier, state: Any) -> tuple[()]:
        for place, value in self.arrived:
            place[...] = value
        self.arrived.clear()
        self.stretch += 1
        return ()

    # -- buffers --------------------------------------------------------------------------------

    def _require_there(self, place: Array) -> int:
        address = _address(place)
        if address in self._under_way():
            raise Race("something reads a place to which a copy is under way")
        return address

    def _fetch(self, op: Fetch, state: Any, place: Array) -> Array:
        self.read[self._require_there(place)] = self.stretch
        return place.copy()

    def _share(self, op: Share, state: Any, tile: Array) -> Array:
        """The buffer of an op is always the same memory, so no product may be reading it."""
        if any(v.op is op for product in self.products for v in product.op.operands):
            raise Race("a buffer is written that a product in flight reads")
        return tile.copy()

    # -- products -------------------------------------------------------------------------------

    def _product(self, op: Wgmma, state: Any, *operands: Array) -> Array:
        for value, array in zip(op.operands, operands, strict=True):
            if isinstance(value.type, Shared):
                self._require_there(array)
        result = np.empty(shape_of(op.results[0].type), numpy_of(op.results[0].type))
        _poison(result)
        self.products.append(_Product(op, operands, result))
        return result

    def _wait_products(self, op: WgmmaWait, state: Any, *values: Array) -> tuple[Array, ...]:
        while len(self.products) > op.pending:
            product = self.products.popleft()
            product.result[...] = product.op.evaluate(*product.operands)
            self.read |= dict.fromkeys(product.places, self.stretch)
        return tuple(v.copy() for v in values)


def _allocate(op: Allocate) -> Array:
    array = np.empty(shape_of(op.type), numpy_of(op.type))
    _poison(array)
    return array
