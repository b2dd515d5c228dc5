"""Plans for the conversion of a tile from one layout to another, as data, for any target to lower.

`plan(src, dst, element_bits)` returns the cheapest of

    Identity     no code: each register already holds its element
    Registers    renumber registers; no communication between threads
    Shuffles     move words between the lanes of each warp (`shuffles.py`)
    Shared       store to and load from shared memory, in a swizzled layout (`swizzle.py`)
    Parts        the same within each warp, one part of its elements after the other

Costs are in wavefronts of shared memory per warp. A shuffle occupies the same unit for as long as a
wavefront, so that the two are comparable; selects have four times the throughput. The cost of
shared memory is its wavefronts, a quarter for each instruction, and the barriers between stores and
loads and before the memory is reused. `WARP_BARRIERS` and `BLOCK_BARRIERS` are estimates of the
latency of these barriers; all other costs are exact counts.
"""

from __future__ import annotations

from functools import lru_cache

from tilewright.base.record import record
from tilewright.layout import gf2
from tilewright.layout.banks import Memory
from tilewright.layout.linear import BLOCK, HARDWARE, LANE, REGISTER, WARP, LinearLayout
from tilewright.layout.shuffles import Shuffles, plan_shuffles
from tilewright.layout.swizzle import Access, best_exchange

WARP_BARRIERS = 2.0
BLOCK_BARRIERS = 16.0


@record
class Identity:
    """Both layouts are the same in every register."""

    @property
    def cost(self) -> float:
        """No instructions."""
        return 0.0


@record
class Registers:
    """Destination register r is source register `sources[r]` of the same thread."""

    sources: tuple[int, ...]

    @property
    def cost(self) -> float:
        """No instructions: registers are only renamed."""
        return 0.0


@record
class Shared:
    """Conversion through shared memory: store, barrier, load.

    Attributes:
        layout: offset in elements -> element of the tile (of the part that one block holds).
        store: the stores of the source's threads.
        load: the loads of the destination's threads.
        copies: for each destination register, the loaded register that holds the same element.
        idle_lanes, idle_warps: threads with any of these bits set in their lane or warp index hold
            duplicates, and do not store.
        warp_private: whether each warp only loads elements that it stored itself, so that a warp
            barrier suffices.
        bytes: the required shared memory.
    """

    layout: LinearLayout
    store: Access
    load: Access
    copies: tuple[int, ...]
    idle_lanes: int
    idle_warps: int
    warp_private: bool
    bytes: int

    @property
    def store_vector(self) -> int:
        """The number of elements that one store moves per lane."""
        return self.store.vector

    @property
    def load_vector(self) -> int:
        """The number of elements that one load moves per lane."""
        return self.load.vector

    @property
    def store_wavefronts(self) -> int:
        """The wavefronts of all stores of a warp."""
        return self.store.wavefronts

    @property
    def load_wavefronts(self) -> int:
        """The wavefronts of all loads of a warp."""
        return self.load.wavefronts

    @property
    def cost(self) -> float:
        """The cost for a warp, in wavefronts, with the barriers."""
        barriers = WARP_BARRIERS if self.warp_private else BLOCK_BARRIERS
        return self.store.cost + self.load.cost + barriers


@record
class Parts:
    """Conversion of elements that stay in their warp, through memory of each warp: store a part of
    them, wait for the warp, load it, and so on with the next part.

    A part consists of the elements of one or more registers of all lanes, in both layouts. So
    little memory suffices, and no warp waits for others.

    Attributes:
        source, result: (register, lane) -> element of a part, a tile of its own.
        taken: for each part, the registers of the source that hold it, by register of `source`.
        given: likewise for the result.
        shared: the conversion of a part.
    """

    source: LinearLayout
    result: LinearLayout
    taken: tuple[tuple[int, ...], ...]
    given: tuple[tuple[int, ...], ...]
    shared: Shared

    @property
    def bytes(self) -> int:
        """The required shared memory of a warp."""
        return self.shared.bytes

    @property
    def cost(self) -> float:
        """The cost for a warp. The next part starts while the loads of the previous one are
        outstanding, so that the latency of barriers counts once."""
        return len(self.taken) * (self.shared.store.cost + self.shared.load.cost) + WARP_BARRIERS


Plan = Identity | Registers | Shuffles | Shared | Parts


@lru_cache(maxsize=1024)
def plan(
    src: LinearLayout,
    dst: LinearLayout,
    element_bits: int,
) -> Plan:
    """The cheapest conversion from `src` to `dst`, two layouts of the same tile on the same
    threads.

    Raises:
        ValueError: the tiles or threads differ, or an element would have to move between blocks.
    """
    memory = Memory(element_bits)
    src, dst = src.select_ins(*HARDWARE), dst.select_ins(*HARDWARE)
    _check(src, dst)
    sources = register_sources(src, dst)
    if sources is not None:
        same = sources == tuple(range(src.in_size(REGISTER)))
        return Identity() if same else Registers(sources)
    shuffles = plan_shuffles(src, dst, element_bits)
    shared = plan_parts(src, dst, memory) or plan_shared(src, dst, memory)
    return shuffles if shuffles and shuffles.cost <= shared.cost else shared


def _check(src: LinearLayout, dst: LinearLayout) -> None:
    """Raise ValueError unless a conversion exists."""
    layouts = f"({src.signature()}) to ({dst.signature()})"
    if src.outs != dst.outs:
        raise ValueError(f"a conversion must preserve the tile's shape: {layouts}")
    if any(src.in_bits(name) != dst.in_bits(name) for name in (LANE, WARP, BLOCK)):
        raise ValueError(
            f"a conversion must preserve the numbers of lanes, warps and blocks: {layouts}"
        )
    within = gf2.Span(_block_columns(src))
    if src.bases(BLOCK) != dst.bases(BLOCK) or any(c not in within for c in _block_columns(dst)):
        raise ValueError(f"elements cannot move between blocks: {layouts}")


def _block_columns(layout: LinearLayout) -> tuple[int, ...]:
    """The bases of the indices within one block."""
    return (*layout.bases(REGISTER), *layout.bases(LANE), *layout.bases(WARP))


def register_sources(src: LinearLayout, dst: LinearLayout) -> tuple[int, ...] | None:
    """For each destination register, the source register of the same thread that holds its element;
    None if another thread holds an element."""
    if any(src.bases(name) != dst.bases(name) for name in (LANE, WARP, BLOCK)):
        return None
    columns = gf2.solve_all(src.bases(REGISTER), dst.bases(REGISTER))
    if columns is None:
        return None
    return tuple(gf2.apply(columns, r) for r in range(dst.in_size(REGISTER)))


def plan_shared(src: LinearLayout, dst: LinearLayout, memory: Memory) -> Shared:
    """The conversion through shared memory, for layouts with all four inputs."""
    exchange = best_exchange(src, dst, memory)
    stored = src.select_ins(REGISTER, LANE, WARP)
    idle_warps = stored.free_variables(WARP)
    own = gf2.Span((*src.bases(REGISTER), *src.bases(LANE)))
    fetched = (
        *dst.bases(REGISTER),
        *dst.bases(LANE),
        *(d ^ s for d, s in zip(dst.bases(WARP), src.bases(WARP), strict=True)),
    )
    return Shared(
        layout=exchange.layout,
        store=exchange.store,
        load=exchange.load,
        copies=exchange.copies,
        idle_lanes=stored.free_variables(LANE),
        idle_warps=idle_warps,
        warp_private=not idle_warps and all(element in own for element in fetched),
        bytes=memory.element_bytes << exchange.layout.total_in_bits,
    )


VECTOR_BYTES = 16  # of the widest access of a lane
WORD_BYTES = 4


def plan_parts(src: LinearLayout, dst: LinearLayout, memory: Memory) -> Parts | None:
    """The conversion part by part, for layouts with all four inputs.

    None unless each warp holds the same elements in both, each once, and each bit of a register,
    lane or warp is one bit of a coordinate.
    """
    if src.bases(WARP) != dst.bases(WARP) or src.in_bits(BLOCK):
        return None
    columns = [_block_columns(layout) for layout in (src, dst)]
    if any(len(set(c)) < len(c) or any(b.bit_count() != 1 for b in c) for c in columns):
        return None
    wide, word = (_count_bits(n // memory.element_bytes) for n in (VECTOR_BYTES, WORD_BYTES))
    within = {*src.bases(LANE), *dst.bases(LANE)}
    within |= {*src.bases(REGISTER)[:word], *dst.bases(REGISTER)[:wide]}
    steps = [column for column in src.bases(REGISTER) if column not in within]
    source, result = (_part(layout, sorted(within)) for layout in (src, dst))
    return Parts(
        source,
        result,
        _registers_of_parts(src, steps),
        _registers_of_parts(dst, steps),
        plan_shared(source, result, memory),
    )


def _count_bits(size: int) -> int:
    return max(size, 1).bit_length() - 1


def _part(layout: LinearLayout, within: list[int]) -> LinearLayout:
    """The layout of the part with these bits of the flat index."""
    place = {column: 1 << i for i, column in enumerate(within)}
    columns = {
        name: [place[column] for column in layout.bases(name) if column in place]
        for name in HARDWARE
    }
    sizes: dict[str, int] = {}
    start = 0
    for dim in layout.outs:
        bits = range(start, start + dim.bits)
        sizes[dim.name] = 1 << sum(column.bit_length() - 1 in bits for column in within)
        start += dim.bits
    return LinearLayout.from_columns(columns, sizes)


def _registers_of_parts(layout: LinearLayout, steps: list[int]) -> tuple[tuple[int, ...], ...]:
    """For each part, the registers that hold it. Bits of the flat index in `steps` number parts."""
    registers = layout.bases(REGISTER)
    own = [1 << i for i, column in enumerate(registers) if column not in steps]
    numbers = [1 << registers.index(column) for column in steps]
    return tuple(
        tuple(
            gf2.apply(numbers, part) | gf2.apply(own, register) for register in range(1 << len(own))
        )
        for part in range(1 << len(steps))
    )
