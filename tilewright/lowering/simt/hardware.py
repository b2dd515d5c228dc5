"""The interface between the shared lowering and the instructions of a GPU.

Implemented in the folder of each GPU target, and by the emulated GPU of the tests. Methods emit
code at the builder's position. Addresses are `V` of type ptr; a "word" is an integer of 32 bits
unless specified otherwise; masks are i1, and None is a mask that is always true.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from tilewright.base.record import record
from tilewright.ir.core import Op
from tilewright.ir.types import DType
from tilewright.lowering.emit import Builder, LType, V
from tilewright.lowering.simt.team import Team


@record
class CachePolicy:
    """Cache hints of a load or store, in the terms of `tl.load` and `tl.store`."""

    cache: str = ""
    evict: str = ""
    volatile: bool = False


@record
class Atomic:
    """An atomic read-modify-write, in the terms of the language.

    Attributes:
        kind: add, min, max, and, or, xor or xchg.
        element: the element type in memory.
        order: relaxed, acquire, release or acq_rel.
        scope: cta, gpu or sys.
        returns: whether the old value is used.
    """

    kind: str
    element: DType
    order: str
    scope: str
    returns: bool


class Place(NamedTuple):
    """Where a lane accesses a buffer.

    Attributes:
        base: the address of the buffer, the same in all lanes.
        offset: in bytes, an unsigned i32.
        size: of the buffer, in bytes.
        fixed: whether the base is at a constant distance from an argument of the kernel, so that
            LLVM sees that all lanes have the same.
        advance: an unsigned i32, the same in all lanes, that is added to the offset; None for 0.
            The sum does not overflow.
    """

    base: V
    offset: V
    size: int
    fixed: bool
    advance: V | None = None


class Hardware(Protocol):
    """The instructions of a GPU that LLVM IR has no common form for.

    Attributes:
        name: the target under which lowerings are overridden (`emits`, `lowers`).
        lanes: threads of a warp, a power of two.
        constant_space: LLVM's address space of constants.
        shared_space: that of shared memory.
        sizes_shared: whether the code states the size of shared memory; else the launch does.
        float_fence, rounds_to_bf16: see `lowering.emit.Builder`.
        has_buffers: whether `load_buffer` and `store_buffer` are available.
        loads_matrices: whether `load_matrices` is available.
        stores_matrices: whether `store_matrices` is available.
    """

    name: str
    lanes: int
    constant_space: int
    shared_space: int
    sizes_shared: bool
    float_fence: str
    rounds_to_bf16: bool

    @property
    def has_buffers(self) -> bool: ...

    @property
    def loads_matrices(self) -> bool: ...

    @property
    def stores_matrices(self) -> bool: ...

    def packed(self, op: Op) -> int:
        """How many elements of an elementwise op one instruction computes: 1, or the length of the
        vectors to lower it with."""
        ...

    def thread(self, b: Builder) -> V:
        """Index of the thread in its program, i32; warps are `lanes` successive threads."""
        ...

    def program_id(self, b: Builder, axis: int) -> V:
        """Index of the program along an axis of the grid (0 to 2), i32."""
        ...

    def num_programs(self, b: Builder, axis: int) -> V:
        """Extent of the grid along an axis (0 to 2), i32."""
        ...

    def own_shared(self, b: Builder, block: V, bytes: int) -> V:
        """The address of the program's shared memory, of `bytes` bytes, in that of its block."""
        ...

    def barrier(self, b: Builder, team: Team) -> None:
        """Wait for all threads of the team; their earlier writes are visible afterwards."""
        ...

    def sync_warp(self, b: Builder) -> None:
        """Wait for all lanes of the warp, and make their writes to shared memory visible.
        Convergent: all lanes must execute it."""
        ...

    def take_registers(self, b: Builder, count: int) -> None:
        """Wait until each thread of the warp group can have `count` registers."""
        ...

    def release_registers(self, b: Builder, count: int) -> None:
        """Leave `count` registers to each thread of the warp group."""
        ...

    def elect(self, b: Builder) -> V:
        """Whether this is the elected lane of its warp, for code that one thread executes."""
        ...

    def publish(self, b: Builder) -> None:
        """Make this thread's writes to shared memory visible to matrix instructions.

        A barrier must follow before another thread's instruction reads them.
        """
        ...

    def wait_launches(self, b: Builder) -> None:
        """Wait for the preceding launches to complete; their writes are visible afterwards.

        Emits nothing where launches do not overlap.
        """
        ...

    def start_dependents(self, b: Builder) -> None:
        """Allow the next launch to begin, where launches can overlap."""
        ...

    def copy_async(self, b: Builder, dst: V, src: V, bytes: int, mask: V | None) -> None:
        """Start to copy 4, 8 or 16 bytes from global to shared memory; zeros if masked off."""
        ...

    def commit_copies(self, b: Builder) -> None:
        """Close a group: the copies of this thread since the preceding group."""
        ...

    def wait_copies(self, b: Builder, pending: int) -> None:
        """Wait until at most the last `pending` groups of this thread's copies are incomplete."""
        ...

    def load_matrices(self, b: Builder, row: V, count: int, transposed: bool) -> list[V]:
        """Load 1, 2 or 4 matrices of 8x8 units of 16 bits from shared memory; a word of each.

        Lane 8m + i passes the address of row i of matrix m, 16 aligned bytes. Lane 4g + t receives
        units 2t and 2t + 1 of row g; if `transposed`, those of column g in rows 2t and 2t + 1.
        Convergent: all lanes must execute it. See `layout.matrix`.
        """
        ...

    def store_matrices(self, b: Builder, row: V, words: Sequence[V], transposed: bool) -> None:
        """Store 1, 2 or 4 matrices of 8x8 units of 16 bits to shared memory, a word of each; the
        inverse of `load_matrices`."""
        ...

    def shuffle(self, b: Builder, word: V, lane: V) -> V:
        """The word of another lane of the warp. Convergent: all lanes must execute it."""
        ...

    def shuffle_xor(self, b: Builder, word: V, mask: int) -> V:
        """The word of lane `own ^ mask`. Convergent: all lanes must execute it."""
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
        """Load `words` integers of `word_bits` from global memory; `other` or 0 if masked off.

        Their total size is at most 16 bytes, and the address is aligned to it.
        """
        ...

    def load_buffer(
        self, b: Builder, place: Place, words: int, word_bits: int, mask: V | None
    ) -> list[V]:
        """As `load`, from a buffer; 0 if masked off."""
        ...

    def store_buffer(self, b: Builder, place: Place, words: Sequence[V], mask: V | None) -> None:
        """As `store`, to a buffer."""
        ...

    def store(
        self, b: Builder, ptr: V, words: Sequence[V], mask: V | None, policy: CachePolicy
    ) -> None:
        """Store words to global memory unless masked off; sizes and alignment as for `load`."""
        ...

    def store_shared(self, b: Builder, ptr: V, words: Sequence[V], mask: V) -> None:
        """Store words to shared memory unless masked off; sizes and alignment as for `load`."""
        ...

    def atomic_length(self, what: Atomic) -> int:
        """The most adjacent elements that one instruction updates; 0 if there is no instruction."""
        ...

    def atomic(
        self, b: Builder, what: Atomic, ptr: V, values: Sequence[V], mask: V | None
    ) -> Sequence[V]:
        """Update adjacent elements of global memory by one instruction, unless masked off.

        There are 2**n values, at most `atomic_length`, of at most 16 bytes in total, to which the
        address is aligned. Returns the old values: 0 if masked off, unspecified unless
        `what.returns`.
        """
        ...

    def load_atomic(self, b: Builder, ptr: V, bits: LType, order: str, scope: str) -> V:
        """Load an integer from global memory atomically; order and scope as in `Atomic`."""
        ...

    def store_atomic(self, b: Builder, ptr: V, value: V, order: str, scope: str) -> None:
        """Store an integer to global memory atomically; order and scope as in `Atomic`."""
        ...

    def nanoseconds(self, b: Builder) -> V:
        """A monotonic clock: nanoseconds since an unspecified moment, i64."""
        ...

    def sync_scope(self, scope: str) -> str:
        """LLVM's synchronisation scope for cta, gpu or sys."""
        ...

    def printf(self, b: Builder, form: str, values: Sequence[V]) -> None:
        """Print like C's `printf`; values are integers of 32 or 64 bits, and doubles."""
        ...

    def fail(self, b: Builder, message: str, file: str, line: int, function: str) -> None:
        """Abort the kernel with an assertion failure of this message and location."""
        ...

    def cast(self, b: Builder, x: V, source: str, to: str) -> V | None:
        """A native conversion between floating-point types; None if there is none.

        See `lowering.emit.Builder.own_cast`.
        """
        ...


class PlainHardware:
    """Base of a `Hardware` without optional instructions. Methods for which code is generated only
    with the corresponding feature raise `NotImplementedError`; hints emit nothing."""

    constant_space = 0
    float_fence = "llvm.arithmetic.fence"
    has_buffers = False
    loads_matrices = False
    stores_matrices = False

    def packed(self, op: Op) -> int:
        """There are no packed instructions."""
        return 1

    def own_shared(self, b: Builder, block: V, bytes: int) -> V:
        """A block runs one program."""
        return block

    def publish(self, b: Builder) -> None:
        """Matrix instructions read shared memory like other instructions, or not at all."""

    def wait_launches(self, b: Builder) -> None:
        """Launches do not overlap."""

    def start_dependents(self, b: Builder) -> None:
        """Launches do not overlap."""

    def take_registers(self, b: Builder, count: int) -> None:
        raise _absent("reallocation of registers")

    def release_registers(self, b: Builder, count: int) -> None:
        raise _absent("reallocation of registers")

    def copy_async(self, b: Builder, dst: V, src: V, bytes: int, mask: V | None) -> None:
        raise _absent("async_copy")

    def commit_copies(self, b: Builder) -> None:
        raise _absent("async_copy")

    def wait_copies(self, b: Builder, pending: int) -> None:
        raise _absent("async_copy")

    def load_buffer(
        self, b: Builder, place: Place, words: int, word_bits: int, mask: V | None
    ) -> list[V]:
        raise _absent("buffers")

    def store_buffer(self, b: Builder, place: Place, words: Sequence[V], mask: V | None) -> None:
        raise _absent("buffers")

    def load_matrices(self, b: Builder, row: V, count: int, transposed: bool) -> list[V]:
        raise _absent("loads of matrices")

    def store_matrices(self, b: Builder, row: V, words: Sequence[V], transposed: bool) -> None:
        raise _absent("stores of matrices")

    def printf(self, b: Builder, form: str, values: Sequence[V]) -> None:
        raise _absent("printing")

    def cast(self, b: Builder, x: V, source: str, to: str) -> V | None:
        """All conversions are integer code."""


def _absent(feature: str) -> NotImplementedError:
    return NotImplementedError(f"this GPU does not have the feature: {feature}")
