"""The swizzled shared-memory layout for one conversion: wide vectors without bank conflicts.

The elements of a tile form a vector space, and a memory layout is a basis of it, in three parts:

    offset  =  vector | bank | line      (lowest bits first)

`vector`: the elements of one instruction of a lane. A lane must hold these in registers, so each
vector basis is in the span of the source's registers (for stores) or of the destination's (for
loads).

`line`: elements that differ by these are in the same bank, and conflict if two lanes access them in
one wavefront. Let X be the span of the elements of one wavefront of the store: the vector and the
lanes of one group (`banks.py`). Stores have no conflicts if the span of `line` meets X only in 0;
likewise for the loads and their Y. The largest space that avoids both consists of three parts: with
e1, e2, … extending X ∩ Y to X and f1, f2, … extending it to Y, take

    e1 + f1, e2 + f2, …, and a complement of X + Y.

A sum of these is in X only if it has no part in the complement, and then its f-part would be in
X ∩ Y. The dimension is that of the tile minus the larger of X and Y, which have at most the
dimension of a line of memory; so if both sides use the same vector, it always suffices. (If only
one side has a wide vector, the lanes of the other may have bank conflicts: then the cost decides.)

`bank`: any completion of the basis.

A vector can only be used if its offset is aligned for every lane: lanes must not affect its bits.
So `bank` and `line` are chosen from a complement of the vector that contains all lanes and warps
(`_complement`); a vector without such a complement is rejected.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tilewright.base.record import record
from tilewright.layout import gf2
from tilewright.layout.banks import Memory, lane_wavefronts
from tilewright.layout.linear import LANE, OFFSET, REGISTER, WARP, Dim, LinearLayout

# The cost of issuing one memory instruction, in wavefronts.
ISSUE_COST = 0.25


@record
class Access:
    """The loads or stores of a thread's registers.

    Attributes:
        offsets: (register, lane, warp) -> offset in elements.
        vectors: for each instruction, its registers in the order of memory; the first one has the
            offset of the instruction.
        wavefronts: the wavefronts of all instructions of a warp.
    """

    offsets: LinearLayout
    vectors: tuple[tuple[int, ...], ...]
    wavefronts: int

    @property
    def vector(self) -> int:
        """The number of elements that one instruction moves per lane."""
        return len(self.vectors[0])

    @property
    def cost(self) -> float:
        """The cost for a warp: wavefronts and issued instructions."""
        return self.wavefronts + ISSUE_COST * len(self.vectors)


@record
class Exchange:
    """A memory layout and the accesses of both sides.

    Attributes:
        layout: offset -> element.
        store: the stores of the source's threads; each register without duplicates is stored once.
        load: the loads of the destination's threads.
        copies: for each register of the destination, the loaded register with the same element.
    """

    layout: LinearLayout
    store: Access
    load: Access
    copies: tuple[int, ...]

    @property
    def cost(self) -> float:
        """The cost for a warp, without barriers."""
        return self.store.cost + self.load.cost


@record
class _Side:
    """One register layout, as vectors of the tile."""

    registers: tuple[int, ...]
    lanes: tuple[int, ...]
    threads: tuple[int, ...]

    @staticmethod
    def of(layout: LinearLayout) -> _Side:
        lanes = layout.bases(LANE)
        return _Side(layout.bases(REGISTER), lanes, (*lanes, *layout.bases(WARP)))


@record
class _Vector:
    """The vector bases: stores use the first `store`, loads the first `load`."""

    basis: tuple[int, ...]
    store: int
    load: int


def best_exchange(src: LinearLayout, dst: LinearLayout, memory: Memory) -> Exchange:
    """The cheapest exchange of a tile from one register layout to the other."""
    a, b = _Side.of(src), _Side.of(dst)
    candidates = (_exchange(src, dst, a, b, vector, memory) for vector in _vectors(a, b, memory))
    return min((found for found in candidates if found), key=lambda found: found.cost)


def _vectors(a: _Side, b: _Side, memory: Memory) -> Iterator[_Vector]:
    """The candidate vectors: the common vector of both sides, and its extensions for one side only.

    If both sides already move whole words, a longer vector for one side saves no wavefronts.
    """
    both = [*a.threads, *b.threads]
    shared = gf2.extend((), [v for v in a.registers if v in gf2.Span(b.registers)])
    candidates = (*shared, *gf2.extend(shared, gf2.intersection(a.registers, b.registers)))
    common = gf2.extend(both, candidates)[: memory.vector_bits]
    count = len(common)
    yield _Vector(common, count, count)
    if count >= max(1, memory.word_bits):
        return
    for side in (a, b):
        longer = gf2.extend((*side.threads, *common), side.registers)
        for extra in range(1, min(len(longer), memory.vector_bits - count) + 1):
            lengths = (count + extra, count) if side is a else (count, count + extra)
            yield _Vector((*common, *longer[:extra]), *lengths)


def _exchange(
    src: LinearLayout, dst: LinearLayout, a: _Side, b: _Side, vector: _Vector, memory: Memory
) -> Exchange | None:
    """The exchange with this vector; None if lanes would misalign it."""
    basis = _memory_basis(a, b, vector, memory)
    if basis is None:
        return None
    layout = LinearLayout((Dim(OFFSET, len(basis)),), src.outs, basis)
    stored, loaded = (x.select_ins(REGISTER, LANE, WARP) for x in (src, dst))
    store, _ = _access(stored.invert_and_compose(layout), vector.store, memory)
    load, copies = _access(loaded.invert_and_compose(layout), vector.load, memory)
    return Exchange(layout, store, load, copies)


def _memory_basis(a: _Side, b: _Side, vector: _Vector, memory: Memory) -> tuple[int, ...] | None:
    """The bases of the offset's bits: vector, bank, line."""
    tile = gf2.echelon((*a.registers, *a.threads))
    rest = _complement(a, b, vector, tile)
    if rest is None:
        return None
    # For elements narrower than a word, any elements may complete it: they share its bank.
    word = rest[: max(0, memory.word_bits - len(vector.basis))]
    spans = [
        gf2.intersection((*vector.basis, *word, *side.lanes[: memory.group_bits(size)]), rest)
        for side, size in ((a, vector.store), (b, vector.load))
    ]
    count = len(tile) - min(len(tile), memory.line_bits)
    lines = gf2.extend(word, _avoiding(spans[0], spans[1], rest))[:count]
    banks = gf2.extend((*word, *lines), rest)
    return (*vector.basis, *word, *banks, *lines)


def _avoiding(x: Sequence[int], y: Sequence[int], space: Sequence[int]) -> tuple[int, ...]:
    """A basis of `space` that begins with a basis of the largest subspace that avoids x and y (see
    the module docstring), followed by vectors of the larger of the two, then of both."""
    shared = gf2.intersection(x, y)
    only_x, only_y = gf2.extend(shared, x), gf2.extend(shared, y)
    outside = gf2.extend((*x, *only_y), space)
    pairs = [e ^ f for e, f in zip(only_x, only_y, strict=False)]
    paired = len(pairs)
    return (*outside, *pairs, *only_x[paired:], *only_y[paired:], *shared, *only_y[:paired])


def _complement(a: _Side, b: _Side, vector: _Vector, tile: Sequence[int]) -> tuple[int, ...] | None:
    """A basis of a complement of the vector that contains the threads of each side that uses it.

    For each vector basis, it solves for a linear form that is 1 on it, and 0 on the other ones and
    on those threads. The complement is the common kernel of these forms.
    """
    forms: list[int] = []
    width = max((v.bit_length() for v in tile), default=0)
    for i in range(len(vector.basis)):
        threads = (a.threads if i < vector.store else ()) + (b.threads if i < vector.load else ())
        equations = gf2.transpose((*vector.basis, *threads), width)
        form = gf2.solve(equations, 1 << i)
        if form is None:
            return None
        forms.append(form)

    def project(element: int) -> int:
        for basis, form in zip(vector.basis, forms, strict=True):
            # A form is 0 on the other bases, so that the order of these steps does not matter.
            if (element & form).bit_count() & 1:
                element ^= basis
        return element

    return gf2.extend((), map(project, tile))


def _access(
    offsets: LinearLayout, vector_bits: int, memory: Memory
) -> tuple[Access, tuple[int, ...]]:
    """The instructions for these offsets, and for each register the one that holds its element."""
    registers = offsets.bases(REGISTER)
    within = [gf2.solve(registers, 1 << i) or 0 for i in range(vector_bits)]
    span = gf2.Span(gf2.units(vector_bits))
    starts: list[int] = []
    for i, offset in enumerate(registers):
        if span.add(offset):
            # Adjust within the vector, so that each instruction starts at an aligned offset.
            starts.append(1 << i ^ gf2.apply(within, offset & ((1 << vector_bits) - 1)))
    moved = [*within, *starts]
    images = gf2.multiply(registers, moved)
    holders = gf2.multiply(moved, gf2.solve_all(images, registers) or ())
    vectors = tuple(
        tuple(gf2.apply(moved, start << vector_bits | i) for i in range(1 << vector_bits))
        for start in range(1 << len(starts))
    )
    cost = len(vectors) * lane_wavefronts(offsets, 1 << vector_bits, memory)
    copies = tuple(gf2.apply(holders, r) for r in range(1 << len(registers)))
    return Access(offsets, vectors, cost), copies
