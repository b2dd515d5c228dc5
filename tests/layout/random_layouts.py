"""Random layouts for the property tests, and a machine that carries out conversion plans."""

from collections.abc import Iterator, Sequence
from itertools import product

from hypothesis import strategies as st

from tilewright.layout import gf2
from tilewright.layout.convert import Identity, Parts, Plan, Registers, Shared
from tilewright.layout.linear import (
    BLOCK,
    HARDWARE,
    LANE,
    REGISTER,
    WARP,
    LinearLayout,
    dim_name,
)
from tilewright.layout.shuffles import Shuffles, select_levels

# What one thread holds: the flat index of the element in each register, for (lane, warp, block).
Thread = tuple[int, int, int]
Values = dict[Thread, list[int]]


def matrices(in_bits: int, out_bits: int) -> st.SearchStrategy[tuple[int, ...]]:
    """Matrices as columns, of any rank."""
    column = st.integers(0, (1 << out_bits) - 1)
    return st.tuples(*[column] * in_bits)


@st.composite
def bijections(draw: st.DrawFn, size: int) -> tuple[int, ...]:
    """Invertible square matrices."""
    columns = gf2.extend((), draw(matrices(size, size)))
    columns = (*columns, *gf2.complement(columns, size))
    return tuple(draw(st.permutations(columns)))


def named(
    columns: Sequence[int], in_bits: Sequence[int], shape_bits: Sequence[int]
) -> LinearLayout:
    """Columns dealt out to registers, lanes, warps, blocks, of a tile with these bits per dim."""
    ins: dict[str, Sequence[int]] = {}
    start = 0
    for name, count in zip(HARDWARE, in_bits, strict=False):
        ins[name] = columns[start : start + count]
        start += count
    return LinearLayout.from_columns(
        ins, {dim_name(i): 1 << count for i, count in enumerate(shape_bits)}
    )


SHAPES = st.lists(st.integers(0, 3), min_size=1, max_size=3)


@st.composite
def layouts(draw: st.DrawFn) -> LinearLayout:
    """Any layout: neither injective nor surjective in general."""
    shape = draw(SHAPES)
    in_bits = draw(st.lists(st.integers(0, 3), min_size=3, max_size=4))
    return named(draw(matrices(sum(in_bits), sum(shape))), in_bits, shape)


@st.composite
def invertible_layouts(draw: st.DrawFn) -> LinearLayout:
    """Layouts that hold each element once."""
    shape = draw(SHAPES)
    total = sum(shape)
    cuts = sorted(draw(st.lists(st.integers(0, total), min_size=2, max_size=2)))
    return named(draw(bijections(total)), (cuts[0], cuts[1] - cuts[0], total - cuts[1]), shape)


@st.composite
def surjective(draw: st.DrawFn, tile: int, threads: Sequence[int]) -> LinearLayout:
    """Layouts of a tile of `tile` bits on `threads` = (lane bits, warp bits), with copies."""
    lanes, warps = threads
    sparse = st.one_of(st.integers(0, (1 << tile) - 1), st.sampled_from([0, *gf2.units(tile)]))
    held = draw(st.tuples(*[sparse] * (lanes + warps)))
    missing = list(gf2.complement(held, tile))
    # Registers need not be unit vectors, and some are copies.
    twists = draw(st.tuples(*[st.sampled_from([0, *held])] * len(missing)))
    copies = draw(st.lists(sparse, max_size=1))
    registers = [m ^ t for m, t in zip(missing, twists, strict=True)] + copies
    registers = draw(st.permutations(registers))
    shape = draw(st.integers(0, tile))
    return named((*registers, *held), (len(registers), lanes, warps, 0), (shape, tile - shape))


@st.composite
def conversions(draw: st.DrawFn, tile: int = 7) -> tuple[LinearLayout, LinearLayout]:
    """Two layouts of one tile on the same threads."""
    threads = draw(st.tuples(st.integers(0, 5), st.integers(0, 2)))
    bits = draw(st.integers(1, tile))
    src, dst = draw(surjective(bits, threads)), draw(surjective(bits, threads))
    outs = {dim.name: 1 << dim.bits for dim in src.outs}
    return src, LinearLayout.from_columns({n: dst.bases(n) for n in HARDWARE}, outs)


@st.composite
def warp_conversions(draw: st.DrawFn, tile: int = 6) -> tuple[LinearLayout, LinearLayout]:
    """Conversions that stay within each warp: the destination mixes registers and lanes only."""
    src, dst = draw(conversions(tile))
    spanned = [*src.bases(REGISTER), *src.bases(LANE)]
    span = gf2.Span(spanned)
    inside = [c for c in (*dst.bases(REGISTER), *dst.bases(LANE)) if c in span]
    lanes = [*inside, *[0] * src.in_bits(LANE)][: src.in_bits(LANE)]
    lanes = draw(st.permutations(lanes))
    registers = draw(st.permutations(gf2.extend(lanes, [*inside, *spanned])))
    shifts = draw(st.tuples(*[st.sampled_from([0, *spanned])] * src.in_bits(WARP)))
    warps = [w ^ s for w, s in zip(src.bases(WARP), shifts, strict=True)]
    outs = {dim.name: 1 << dim.bits for dim in src.outs}
    columns = {REGISTER: registers, LANE: lanes, WARP: warps, BLOCK: src.bases(BLOCK)}
    return src, LinearLayout.from_columns(columns, outs)


# --- The machine --------------------------------------------------------------------------------


def threads(layout: LinearLayout) -> Iterator[Thread]:
    """All (lane, warp, block)."""
    lanes, warps, blocks = (range(layout.in_size(name)) for name in (LANE, WARP, BLOCK))
    return product(lanes, warps, blocks)


def held(layout: LinearLayout) -> Values:
    """The elements in the registers of each thread."""
    return {
        thread: [
            layout.apply_flat(index(layout, r, *thread)) for r in range(layout.in_size(REGISTER))
        ]
        for thread in threads(layout)
    }


def index(layout: LinearLayout, register: int, lane: int, warp: int, block: int = 0) -> int:
    """The flat input."""
    flat, start = 0, 0
    for name, at in zip(HARDWARE, (register, lane, warp, block), strict=True):
        flat |= at << start
        start += layout.in_bits(name)
    return flat


def execute(plan: Plan, src: LinearLayout, values: Values) -> Values:
    """What the registers of each thread hold after the plan, given what they hold before."""
    match plan:
        case Identity():
            return values
        case Registers(sources):
            return {t: [registers[s] for s in sources] for t, registers in values.items()}
        case Shuffles():
            return _shuffle(plan, values)
        case Shared():
            return _through_memory(plan, src, values)
        case Parts():
            return _part_by_part(plan, values)


def _shuffle(plan: Shuffles, values: Values) -> Values:
    offers: dict[Thread, list[tuple[int, ...]]] = {}
    for (lane, warp, block), registers in values.items():
        words = [tuple(registers[r] for r in word) for word in plan.words]
        flip = _flip(plan.send, lane, warp)
        offers[lane, warp, block] = [words[i ^ flip] for i in range(len(words))]
    after: Values = {}
    for lane, warp, block in values:
        source = plan.source.apply({LANE: lane, WARP: warp})[LANE]
        for step in plan.rounds:
            assert step.moves or source ^ step.lane == lane
        got = [offers[source ^ s.lane, warp, block][s.word] for s in plan.rounds]
        flip = _flip(plan.place, lane, 0)
        after[lane, warp, block] = [got[k ^ flip][position] for k, position in plan.results]
    return after


def _flip(flips: LinearLayout, lane: int, warp: int) -> int:
    """The xor of the levels of selects that act here."""
    flip = 0
    for xor, lanes, warps in select_levels(flips):
        if ((lane & lanes).bit_count() + (warp & warps).bit_count()) % 2:
            flip ^= xor
    assert flip == flips.apply({LANE: lane, WARP: warp})[REGISTER]
    return flip


def _through_memory(plan: Shared, src: LinearLayout, values: Values) -> Values:
    memory: dict[tuple[int, int], tuple[int, int]] = {}
    for (lane, warp, block), registers in values.items():
        if lane & plan.idle_lanes or warp & plan.idle_warps:
            continue
        for vector in plan.store.vectors:
            start = _start(plan.store.offsets, vector, lane, warp)
            for i, register in enumerate(vector):
                assert (block, start + i) not in memory, "stored twice"
                memory[block, start + i] = registers[register], warp
    after: Values = {}
    for lane, warp, block in values:
        loaded: dict[int, int] = {}
        for vector in plan.load.vectors:
            start = _start(plan.load.offsets, vector, lane, warp)
            for i, register in enumerate(vector):
                assert register not in loaded, "loaded twice"
                loaded[register], writer = memory[block, start + i]
                assert writer == warp or not plan.warp_private
        after[lane, warp, block] = [loaded[r] for r in plan.copies]
    return after


def _part_by_part(plan: Parts, values: Values) -> Values:
    after: Values = {thread: [-1] * sum(map(len, plan.given)) for thread in values}
    for taken, given in zip(plan.taken, plan.given, strict=True):
        for warp in {warp for _, warp, _ in values}:
            part = {(t[0], 0, 0): [r[i] for i in taken] for t, r in values.items() if t[1] == warp}
            loaded = _through_memory(plan.shared, plan.source, part)
            for lane in (lane for lane, at, _ in values if at == warp):
                for register, element in zip(given, loaded[lane, 0, 0], strict=True):
                    after[lane, warp, 0][register] = element
    return after


def _start(offsets: LinearLayout, vector: Sequence[int], lane: int, warp: int) -> int:
    start = offsets.apply_flat(index(offsets, vector[0], lane, warp))
    assert start % len(vector) == 0, "a vector is not aligned"
    return start
