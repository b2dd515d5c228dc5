"""Runs tile IR of GPUs as the worst GPU that keeps the rules: what is asynchronous ends late.

    with AsyncMachine() as machine:
        interpret(module, 1, args)
    machine.check_idle()

In the plain interpreter a copy arrives and a product ends where it starts, so that a wait too few
shows nowhere. Here

- a copy arrives at the barrier after the wait that counts it; until then its place holds poison.
  What each thread fetches only of its own copies is there after the wait;
- a product reads its buffers and gives its result at the wait that counts it; until then the
  result is poison, unless the next product takes it as accumulator;
- threads may be loading tensor memory until the next barrier of all: it is an error to start a
  product there before;
- a product in tensor memory does so when a commit after it is delivered, which then arrives at its
  barrier: when all roles wait, or at random. Who loads tensor memory must have waited for that;
- what threads load from a slot is read when the product that multiplies it starts, or when it is
  shared, and an arrival releases it only if it says that it does;
- a tensor copy arrives when all roles wait, or at random; its bytes count at its barrier then;
- what is added to memory as a block is read from its buffer, and added, at the wait for it;
- a warp with a role is ordered after other roles by barriers only. So it is an error to read
  a slot whose copy it has not waited for, and to copy into a slot of which it does not know that
  all reads are complete;
- other warps may be anywhere between the same two barriers. So it is an error to start a copy to a
  place that something has read since the last barrier, or that a product in flight reads, and to
  read a place to which a copy is under way.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, NamedTuple

import numpy as np

from tilewright.ir.core import Op, Value
from tilewright.ir.turns import Turns
from tilewright.ir.types import Shared, numpy_of, shape_of
from tilewright.ops import roles
from tilewright.ops.control import Barrier
from tilewright.ops.gpu import (
    Allocate,
    AllocateRing,
    CommitCopies,
    CopyAsync,
    Fetch,
    HasSpare,
    PermuteBuffer,
    Share,
    Slot,
    WaitCopies,
)
from tilewright.ops.memory import split_optional
from tilewright.ops.numeric import Array
from tilewright.ops.nvidia import AddBlock, LoadBlock, WaitBlocks, Wgmma, WgmmaWait
from tilewright.ops.roles import Arrive, Roles, WaitBarrier
from tilewright.ops.tensor_memory import (
    CommitProducts,
    FreeTensor,
    LoadTensor,
    StoreTensor,
    TensorMma,
    TensorProduct,
    TensorScaledMma,
    memory_of,
)

POISON = 0xC5  # each byte of what is not there yet


class Race(AssertionError):
    """Something asynchronous is not waited for, or what it uses is changed."""


class _Copy(NamedTuple):
    place: Array
    value: Array
    own: bool  # whether each thread reads what it has itself copied


class _Product(NamedTuple):
    op: Wgmma | TensorProduct
    operands: tuple[Array, ...]
    result: Array

    @property
    def places(self) -> set[int]:
        pairs = zip(self.op.operands, self.operands, strict=True)
        return {_address(array) for value, array in pairs if isinstance(value.type, Shared)}


def _address(array: Array) -> int:
    """Where a buffer begins: slots of one buffer differ in it, views of one slot do not."""
    return array.__array_interface__["data"][0]


def _is_read_by_its_thread(slot: Value) -> bool:
    """Whether each thread fetches from a buffer only what it has copied there."""
    buffer = slot.op.buffer if isinstance(slot.op, Slot) else slot
    views = [user.results[0] for user in buffer.users if isinstance(user, Slot)]
    readers = [user for view in (buffer, *views) for user in view.users if isinstance(user, Fetch)]
    return bool(readers) and all(reader.own for reader in readers)


def _ends_of(fetch: Fetch) -> set[Op]:
    """The ops of which any shows, when it starts, that threads have loaded what they fetch from a
    slot: the products and stores to buffers that take it, or all of it through arithmetic. What
    else computes with it reads the same registers, and may follow the slot's release."""
    ends, pending = set[Op](), list(fetch.result.users)
    while pending:
        user = pending.pop()
        if isinstance(user, Wgmma | Share):
            ends.add(user)
        elif user.pure and not user.regions and not user.terminator:
            pending += [further for result in user.results for further in result.users]
    if not ends:
        raise Race("arithmetic on what was loaded from a slot may follow the slot's release")
    return ends


def _users_of_buffer(buffer: Value) -> list[Op]:
    """The ops that use a buffer, directly or through views."""
    return [
        op
        for user in buffer.users
        for op in (_users_of_buffer(user.results[0]) if isinstance(user, PermuteBuffer) else [user])
    ]


def _poison(array: Array) -> None:
    array[...] = np.full((*array.shape, array.itemsize), POISON, np.uint8).view(array.dtype)[..., 0]


class _TensorCopy(NamedTuple):
    place: Array
    value: Array
    barrier: Array


class _Commit(NamedTuple):
    products: int  # that have started before
    barrier: Array


class _Addition(NamedTuple):
    op: AddBlock
    state: Any
    args: Sequence[Array]


class AsyncMachine:
    """While the context is entered, the ops that are asynchronous behave as above. One program.

    Args:
        seed: of the moments at which tensor copies arrive; None for as late as possible.
        spare: whether the launch provides memory for spare slots.
    """

    def __init__(self, seed: int | None = None, *, spare: bool = False) -> None:
        self.spare = spare
        self.random = None if seed is None else random.Random(seed)
        self.blocks: list[_TensorCopy] = []  # tensor copies under way
        # Completed reads of the computing warps are numbered. Of each slot the last one; of each
        # barrier the last one before an arrival; and the last one that the copying warp knows of.
        self.reads = 0
        self.last_read: dict[int, int] = {}
        self.released_reads: dict[int, int] = {}
        self.known_reads = 0
        self.loads_from = 0  # the number of the first read by loads that no arrival has released
        # Of each slot the barrier of its copy; of each barrier the slots whose copies have arrived;
        # and the slots whose present content the computing warps know to be there.
        self.arrived_at: dict[int, set[int]] = {}
        self.known_slots: set[int] = set()
        self.slots: set[int] = set()  # that tensor copies fill
        self.loaded: list[tuple[int, set[Op]]] = []  # slots, and the ops that end loads from them
        self.copying = False  # whether the copying warp has the turn
        self.stretch = 0  # how many barriers there were
        self.read: dict[int, int] = {}  # place -> the last stretch in which it was read
        self.started: list[_Copy] = []  # in no group yet
        self.groups: deque[list[_Copy]] = deque()
        self.arrived: list[_Copy] = []  # waited for, but maybe not by the other warps
        self.products: deque[_Product] = deque()
        # Products in tensor memory are numbered as they start. The numbers of those that are
        # complete at a barrier, of the last one that the computing warps know to be complete, and
        # of the one whose result an array is.
        self.tensor_products: deque[_Product] = deque()
        self.commits: deque[_Commit] = deque()
        self.started_products = self.complete_products = self.known_products = 0
        self.complete_at: dict[int, int] = {}
        self.results: dict[int, tuple[int, Array]] = {}
        # The last stretch in which a part of tensor memory was loaded.
        self.loaded_in: dict[Value, int] = {}
        self.additions: list[_Addition] = []  # of blocks under way
        self._saved: list[tuple[type[Op], str, Any]] = []

    # -- entering -------------------------------------------------------------------------------

    def __enter__(self) -> AsyncMachine:
        for cls, name, meaning in (
            (Allocate, "evaluate", _allocate),
            (HasSpare, "evaluate", lambda op: np.array(self.spare)),
            (Slot, "evaluate", self._slot),
            (CopyAsync, "execute", self._copy),
            (CommitCopies, "execute", self._commit),
            (WaitCopies, "execute", self._wait_copies),
            (Barrier, "execute", self._barrier),
            (Fetch, "execute", self._fetch),
            (Share, "execute", self._share),
            (Wgmma, "execute", self._product),
            (WgmmaWait, "execute", self._wait_products),
            (Roles, "execute", self._roles),
            (LoadBlock, "execute", self._load_block),
            (Arrive, "execute", self._arrive),
            (WaitBarrier, "execute", self._wait_barrier),
            (TensorMma, "execute", self._tensor_product),
            (TensorScaledMma, "execute", self._tensor_product),
            (CommitProducts, "execute", self._commit_products),
            (LoadTensor, "execute", self._load_tensor),
            (StoreTensor, "execute", self._store_tensor),
            (FreeTensor, "execute", self._free_tensor),
            (AddBlock, "execute", self._add_block),
            (WaitBlocks, "execute", self._wait_blocks),
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
        copies = [*self.started, *(c for group in self.groups for c in group), *self.blocks]
        products = [*self.products, *self.tensor_products]
        if copies or products:
            raise Race(f"{len(copies)} copies and {len(products)} products are not waited for")
        if self.additions:
            raise Race(f"{len(self.additions)} additions may still read their buffers")

    # -- copies ---------------------------------------------------------------------------------

    def _under_way(self) -> set[int]:
        groups = [self.started, *self.groups, self.arrived]
        return {_address(copy.place) for group in groups for copy in group}

    def _is_read_in_flight(self, address: int) -> bool:
        products = [*self.products, *self.tensor_products]
        return any(address in product.places for product in products)

    def _copy(self, op: CopyAsync, state: Any, *args: Any) -> tuple[()]:
        ptr, place, mask = split_optional(op, args)
        address = _address(place)
        if self.read.get(address) == self.stretch:
            raise Race("a copy starts to a place that other warps may still be reading")
        if address in self._under_way():
            raise Race("a copy starts to a place to which another is under way")
        if self._is_read_in_flight(address):
            raise Race("a copy starts to a place that a product in flight reads")
        value = state.memory.load(op, ptr, mask, None)
        self.started.append(_Copy(place, value, _is_read_by_its_thread(op.buffer)))
        _poison(place)
        return ()

    def _commit(self, op: CommitCopies, state: Any) -> tuple[()]:
        self.groups.append(self.started)
        self.started = []
        return ()

    def _wait_copies(self, op: WaitCopies, state: Any) -> tuple[()]:
        while len(self.groups) > op.pending:
            for copy in self.groups.popleft():
                if copy.own:
                    copy.place[...] = copy.value
                else:
                    self.arrived.append(copy)
        return ()

    def _barrier(self, op: Barrier, state: Any) -> tuple[()]:
        for copy in self.arrived:
            copy.place[...] = copy.value
        self.arrived.clear()
        self.stretch += 1
        return ()

    # -- roles ----------------------------------------------------------------------------------

    def _roles(self, op: Roles, state: Any) -> tuple[()]:
        state.turns = Turns(self._deliver)

        def copy() -> None:
            self.copying = True
            state.run(op.copy, [])

        def compute() -> None:
            self.copying = False
            state.run(op.compute, [])

        state.turns.run([copy, compute])
        state.turns = None
        return ()

    def _load_block(self, op: LoadBlock, state: Any, *args: Array) -> tuple[()]:
        *rest, place, barriers, index = args
        address = _address(place)
        if address in self._under_way() or any(address == _address(c.place) for c in self.blocks):
            raise Race("a block is copied to a slot to which another is under way")
        if self._is_read_in_flight(address):
            raise Race("a block is copied to a slot that a product in flight reads")
        if any(address == loaded for loaded, _ in self.loaded):
            raise Race("a block is copied to a slot that threads may still be loading")
        if self.last_read.get(address, 0) > self.known_reads:
            raise Race("a block is copied to a slot that is not known to be free")
        barrier = barriers[int(index) : int(index) + 1].reshape(())
        value, unused = np.empty_like(place), np.array([barrier], np.int64)
        roles.arrive(unused[0:1].reshape(()), expected=value.nbytes)
        LOAD_BLOCK(op, state, *rest, value, unused, np.array(0))
        self.blocks.append(_TensorCopy(place, value, barrier))
        self.slots.add(address)
        self.known_slots.discard(address)
        _poison(place)
        return ()

    def _deliver(self) -> bool:
        """A tensor copy arrives, the oldest or any, or products are complete; whether there was
        one of these."""
        products = bool(self.commits) and (self.random.random() < 0.5 if self.random else False)
        if self.commits and (products or not self.blocks):
            self._complete_products(self.commits.popleft())
            return True
        if not self.blocks:
            return False
        number = self.random.randrange(len(self.blocks)) if self.random else 0
        place, value, barrier = self.blocks.pop(number)
        place[...] = value
        self.arrived_at.setdefault(_address(barrier), set()).add(_address(place))
        roles.arrive(barrier, arrived=value.nbytes)
        return True

    def _arrive(
        self, op: Arrive, state: Any, barriers: Array, index: Array, condition: Any = True
    ) -> tuple[()]:
        if condition:
            place = barriers[int(index) : int(index) + 1]
            if op.loads:
                self.loads_from = 0
            self.released_reads[_address(place)] = (
                self.loads_from - 1 if self.loads_from else self.reads
            )
        return op.evaluate(barriers, index, condition)

    def _wait_barrier(
        self, op: WaitBarrier, state: Any, barriers: Array, index: Array, parity: Array
    ) -> tuple[()]:
        copying = self.copying
        while self.random and self.random.random() < 0.5 and self._deliver():
            pass
        while state.turns is None and self._deliver():
            pass
        WAIT_BARRIER(op, state, barriers, index, parity)
        self.copying = copying  # another role may have had the turn meanwhile
        address = _address(barriers[int(index) : int(index) + 1])
        if copying:
            self.known_reads = max(self.known_reads, self.released_reads.get(address, 0))
        else:
            self.known_slots |= self.arrived_at.pop(address, set())
            self.known_products = max(self.known_products, self.complete_at.get(address, 0))
        return ()

    # -- products in tensor memory --------------------------------------------------------------

    def _tensor_product(self, op: TensorProduct, state: Any, *operands: Array) -> Array:
        if self.loaded_in.get(memory_of(op.acc)) == self.stretch:
            raise Race("a product starts in tensor memory that other warps may still be loading")
        for value, array in zip(op.operands, operands, strict=True):
            if isinstance(value.type, Shared):
                self._require_there(array)
        result = np.empty(shape_of(op.result.type), numpy_of(op.result.type))
        _poison(result)
        self.tensor_products.append(_Product(op, operands, result))
        self.started_products += 1
        self.results[_address(result)] = self.started_products, result
        self._use_loaded(op)
        return result

    def _commit_products(
        self, op: CommitProducts, state: Any, barriers: Array, index: Array
    ) -> tuple[()]:
        place = barriers[int(index) : int(index) + 1].reshape(())
        self.commits.append(_Commit(self.started_products, place))
        return ()

    def _complete_products(self, commit: _Commit) -> None:
        while self.complete_products < commit.products:
            product = self.tensor_products.popleft()
            product.result[...] = product.op.evaluate(*product.operands)
            self.complete_products += 1
            for place in product.places:
                self._has_read(place)
        address = _address(commit.barrier)
        self.complete_at[address] = commit.products
        self.released_reads[address] = self.reads
        roles.arrive(commit.barrier, 1)

    def _require_complete(self, memory: Array) -> None:
        number, _ = self.results.get(_address(memory), (0, memory))
        if number > self.known_products:
            raise Race("tensor memory is used without a wait for the product to it")

    def _load_tensor(self, op: LoadTensor, state: Any, memory: Array) -> Array:
        self._require_complete(memory)
        self.loaded_in[memory_of(op.memory)] = self.stretch
        return memory.copy()

    def _store_tensor(self, op: StoreTensor, state: Any, memory: Array, value: Array) -> Array:
        if self.started_products > self.known_products:
            raise Race("tensor memory is written without a wait for the product to it")
        self.stretch += 1  # its code ends with a barrier
        return value.copy()

    def _free_tensor(self, op: FreeTensor, state: Any, memory: Array) -> tuple[()]:
        if self.started_products > self.known_products:
            raise Race("tensor memory is freed without a wait for the product to it")
        return ()

    # -- additions of blocks --------------------------------------------------------------------

    def _add_block(self, op: AddBlock, state: Any, *args: Array) -> Array:
        """The addition from the same buffer before is waited for by the op."""
        self._finish_additions(op.buffer)
        buffer = args[-1]
        buffer[...] = args[1]
        self.additions.append(_Addition(op, state, [a.copy() for a in args[:-1]] + [buffer]))
        return np.zeros_like(args[1])

    def _wait_blocks(self, op: WaitBlocks, state: Any, buffer: Array) -> tuple[()]:
        self._finish_additions(op.buffer)
        return ()

    def _finish_additions(self, buffer: Value) -> None:
        """What is added is read from the buffer as late as it may be."""
        for op, state, args in [a for a in self.additions if a.op.buffer is buffer]:
            ptr, _, *rest = args
            ADD_BLOCK(op, state, ptr, args[-1], *rest)
        self.additions = [a for a in self.additions if a.op.buffer is not buffer]

    # -- buffers --------------------------------------------------------------------------------

    def _slot(self, op: Slot, buffer: Array, index: Array) -> Array:
        ring = op.buffer.op
        spare = ring.spare if isinstance(ring, AllocateRing) and not self.spare else 0
        if not 0 <= int(index) < len(buffer) - spare:
            raise Race("a program uses a slot that the launch does not provide")
        return buffer[int(index)]

    def _require_there(self, place: Array) -> int:
        address = _address(place)
        if address in self._under_way():
            raise Race("something reads a place to which a copy is under way")
        if address in self.slots and address not in self.known_slots:
            raise Race("something reads a slot whose copy it has not waited for")
        return address

    def _fetch(self, op: Fetch, state: Any, place: Array) -> Array:
        address = self._require_there(place)
        found = place.copy()
        if op.own:
            return found
        if address not in self.slots:
            self._has_read(address)
        else:
            self.loaded.append((address, _ends_of(op)))
        return found

    def _has_read(self, address: int) -> None:
        self.read[address] = self.stretch
        self.reads += 1
        self.last_read[address] = self.reads

    def _share(self, op: Share, state: Any, tile: Array) -> Array:
        """The buffer of an op is always the same memory, so no product may be reading it."""
        products = [*self.products, *self.tensor_products]
        if any(v.op is op for product in products for v in product.op.operands):
            raise Race("a buffer is written that a product in flight reads")
        self._use_loaded(op)
        if any(isinstance(user, Wgmma) for user in _users_of_buffer(op.result)):
            self.loads_from = 0  # it is published, by the fence that earlier loads need
        return tile.copy()

    # -- products -------------------------------------------------------------------------------

    def _product(self, op: Wgmma, state: Any, *operands: Array) -> Array:
        for value, array in zip(op.operands, operands, strict=True):
            if isinstance(value.type, Shared):
                self._require_there(array)
        result = np.empty(shape_of(op.results[0].type), numpy_of(op.results[0].type))
        _poison(result)
        self.products.append(_Product(op, operands, result))
        self._use_loaded(op)
        return result

    def _use_loaded(self, op: Op) -> None:
        """What was loaded from slots has been read once something uses it."""
        for place in [place for place, ends in self.loaded if op in ends]:
            self._has_read(place)
            self.loads_from = self.loads_from or self.reads
        self.loaded = [item for item in self.loaded if op not in item[1]]

    def _wait_products(self, op: WgmmaWait, state: Any, *values: Array) -> tuple[Array, ...]:
        while len(self.products) > op.pending:
            product = self.products.popleft()
            product.result[...] = product.op.evaluate(*product.operands)
            for place in product.places:
                self._has_read(place)
        return tuple(v.copy() for v in values)


LOAD_BLOCK, WAIT_BARRIER = LoadBlock.execute, WaitBarrier.execute
ADD_BLOCK = AddBlock.execute


def _allocate(op: Allocate) -> Array:
    array = np.empty(shape_of(op.type), numpy_of(op.type))
    _poison(array)
    return array
