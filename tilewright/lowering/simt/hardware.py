"""What the shared lowering asks of a GPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from tilewright.ir.types import DType
from tilewright.lowering.emit import Builder, LType, V
from tilewright.lowering.simt.team import Team


@dataclass(frozen=True, slots=True)
class CachePolicy:
    """The advice on caching of a load or store, as the language has it."""

    cache: str = ""
    evict: str = ""
    volatile: bool = False


@dataclass(frozen=True, slots=True)
class Atomic:
    """What an atomic read-modify-write does, as the language has it.

    Attributes:
        kind: add, min, max, and, or, xor or xchg.
        element: the type of what is in memory.
        order: relaxed, acquire, release or acq_rel.
        scope: cta, gpu or sys.
        wanted: whether the value from before is used.
    """

    kind: str
    element: DType
    order: str
    scope: str
    wanted: bool


class Hardware(Protocol):
    """Instructions that GPUs have under different names.

    Attributes:
        name: what lowerings are overridden under.
        lanes: threads of a warp.
        shared_space: LLVM's number for the address space of shared memory.
        rounds_to_bf16: see `lowering.emit.Builder`.
        loads_matrices: whether it has `load_matrices`.
    """

    name: str
    lanes: int
    shared_space: int
    rounds_to_bf16: bool

    @property
    def loads_matrices(self) -> bool: ...

    def thread(self, b: Builder) -> V:
        """Index of the thread in its program."""
        ...

    def program_id(self, b: Builder, axis: int) -> V:
        """Index of the program along an axis of the grid."""
        ...

    def num_programs(self, b: Builder, axis: int) -> V:
        """Extent of the grid along an axis."""
        ...

    def barrier(self, b: Builder, team: Team) -> None:
        """Wait for all threads of the team, and see what they wrote."""
        ...

    def publish(self, b: Builder) -> None:
        """Make this thread's writes to shared memory visible to matrix instructions.

        A barrier must follow before another thread's instruction reads them.
        """
        ...

    def wait_launches(self, b: Builder) -> None:
        """Wait for the launches before this one, and see what they wrote.

        Nothing where a launch never begins before those have ended.
        """
        ...

    def start_dependents(self, b: Builder) -> None:
        """Let the launch after this one begin, where launches can overlap."""
        ...

    def copy_async(self, b: Builder, dst: V, src: V, bytes: int, mask: V | None) -> None:
        """Start to copy 4, 8 or 16 bytes from global to shared memory; zeros without the mask."""
        ...

    def commit_copies(self, b: Builder) -> None:
        """Make a group of the copies that were started since the last group."""
        ...

    def wait_copies(self, b: Builder, pending: int) -> None:
        """Wait for this thread's groups of copies, but for the last `pending` ones."""
        ...

    def load_matrices(self, b: Builder, row: V, count: int, transposed: bool) -> list[V]:
        """1, 2 or 4 matrices of 8x8 units of 16 bits from shared memory: a 32-bit word of each.

        Lane 8m + i gives the address of row i of matrix m, 16 aligned bytes. Lane 4g + t gets units
        2t and 2t + 1 of row g; `transposed`, those of column g in rows 2t and 2t + 1.
        All lanes take part. See `layout.matrix`.
        """
        ...

    def shuffle(self, b: Builder, word: V, lane: V) -> V:
        """The 32-bit word that another lane of the warp gives. All lanes take part."""
        ...

    def shuffle_xor(self, b: Builder, word: V, mask: int) -> V:
        """The 32-bit word of the lane whose index differs in these bits."""
        ...

    def load(
        self,
        b: Builder,
        ptr: V,
        words: int,
        word_bits: int,
        mask: V | None,
        other: Sequence[V] | None,
        policy: CachePolicy,
    ) -> list[V]:
        """Words of global memory, as integers; `other` (or 0) where the mask is false.

        The address is a multiple of the bytes of all words, which are at most 16.
        """
        ...

    def store(
        self, b: Builder, ptr: V, words: Sequence[V], mask: V | None, policy: CachePolicy
    ) -> None:
        """Write words to global memory where the mask is true; sizes as for `load`."""
        ...

    def atomic_length(self, what: Atomic) -> int:
        """How many neighbours one instruction combines with memory at most; 0: there is none."""
        ...

    def atomic(
        self, b: Builder, what: Atomic, ptr: V, values: Sequence[V], mask: V | None
    ) -> Sequence[V]:
        """One instruction that combines global memory with values, where the mask is true.

        The address is a multiple of the bytes of all values, of which there are 2**n, at most
        `atomic_length` and at most 16 bytes. The results are what was there before, 0 where the
        mask is false, anything if not wanted.
        """
        ...

    def load_atomic(self, b: Builder, ptr: V, bits: LType, order: str, scope: str) -> V:
        """An integer of global memory as it is now; order and scope as the language has them."""
        ...

    def store_atomic(self, b: Builder, ptr: V, value: V, order: str, scope: str) -> None:
        """Put an integer into global memory; order and scope as the language has them."""
        ...

    def nanoseconds(self, b: Builder) -> V:
        """The time since some start, an i64."""
        ...

    def sync_scope(self, scope: str) -> str:
        """LLVM's name for one of the scopes cta, gpu and sys."""
        ...

    def printf(self, b: Builder, form: str, values: Sequence[V]) -> None:
        """Print as C's `printf` does; the values are integers of 32 and 64 bits, and doubles."""
        ...

    def fail(self, b: Builder, message: str, file: str, line: int, function: str) -> None:
        """End the kernel with an error that says this."""
        ...

    def cast(self, b: Builder, x: V, source: str, to: str) -> V | None:
        """A conversion between floats in an instruction or two, as `Builder.own_cast`."""
        ...
