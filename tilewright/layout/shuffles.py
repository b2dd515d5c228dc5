"""Conversions within a warp by shuffles: which lane reads which register of which other lane.

Everything is a linear map of bits. Write a place in the source as (word, lane), and let the
destination's register bit j and lane bit i fetch from the places a_j and u_i; then lane l, register
r fetches from the sum of the a_j and u_i of its bits. A shuffle is one instruction in which every
lane offers *one* word and reads one lane's offer, so a round must be chosen such that lanes that
read the same lane need the same word.

The freedom is in which register each lane receives in a round: lane l may receive register
`j ^ place(l)` in round j, for any linear `place`. That changes u_i by a sum of a's (and by places
that hold copies, if the source has any). It must be chosen so that the u_i have no dependency among
their lanes that is not one among their words as well: then the word to send is a linear function
`send` of the sending lane. Such a choice always exists, and a greedy one finds it, once there are
as many a's as the u_i and a_j span pure register places; missing ones are added as registers that
are unused (`_spare`). Best is a choice in which lane i reads lane i: rounds whose a-part has no
lane then need no shuffle at all. A transposition of registers and lanes is of this kind.

The code of a plan is

    offer[i]  = word[i ^ send(lane, warp)]                      selects, see `select_levels`
    got[j]    = shuffle(offer[rounds[j].word], source(lane, warp) ^ rounds[j].lane)
    result[k] = got[k ^ place(lane)]                            selects

Elements narrower than a word that stay neighbours are packed first, and travel as one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tilewright.layout import gf2
from tilewright.layout.linear import LANE, REGISTER, WARP, LinearLayout

WORD_BITS = 32

# In units of a shuffle, which occupies the same unit as a wavefront of shared memory: selects and
# byte permutations run four times as fast.
SELECT_COST = 0.25


class Round(NamedTuple):
    """One round: send offer number `word`, read lane `source(lane, warp) ^ lane`.

    `moves` is False if every lane would read itself, so that no shuffle is needed.
    """

    word: int
    lane: int
    moves: bool


@dataclass(frozen=True, slots=True)
class Shuffles:
    """A conversion within each warp; the module's text says what code it stands for.

    Attributes:
        words: for each word, the source registers that are packed into it, from the lowest bits.
        send: (lane, warp) -> the xor of word numbers ("register") before sending.
        source: (lane, warp) -> the lane that is read.
        rounds: what is sent and read.
        place: lane -> the xor of round numbers ("register") after receiving.
        results: for each destination register, the number of its word among the results, and its
            position in that word.
        element_bits: the size of an element.
    """

    words: tuple[tuple[int, ...], ...]
    send: LinearLayout
    source: LinearLayout
    rounds: tuple[Round, ...]
    place: LinearLayout
    results: tuple[tuple[int, int], ...]
    element_bits: int

    @property
    def shuffle_count(self) -> int:
        """The number of shuffle instructions; an element of 64 bits takes two."""
        return sum(r.moves for r in self.rounds) * max(1, self.element_bits // WORD_BITS)

    @property
    def select_count(self) -> int:
        """The number of selects, and of instructions that pack and unpack words."""
        kept = {number for number, _ in self.results}
        got, placing = _selects(kept, select_levels(self.place))
        words, sending = _selects({self.rounds[j].word for j in got}, select_levels(self.send))
        packing = len(words) + len(kept) if len(self.words[0]) > 1 else 0
        return (sending + placing + packing) * max(1, self.element_bits // WORD_BITS)

    @property
    def cost(self) -> float:
        """The cost for a warp, in shuffles."""
        return self.shuffle_count + SELECT_COST * self.select_count


class Level(NamedTuple):
    """One level of selects: where the parity of `lane & lane_mask` and `warp & warp_mask` together
    is odd, number i is taken from number `i ^ xor`.
    """

    xor: int
    lane_mask: int
    warp_mask: int


def select_levels(flips: LinearLayout) -> tuple[Level, ...]:
    """A map (lane, warp) -> xor of numbers, as the fewest levels that make it one after another."""
    basis = gf2.extend((), flips.columns)
    columns = gf2.solve_all(basis, flips.columns) or ()
    lanes = flips.in_bits(LANE)
    conditions = gf2.transpose(columns, len(basis))
    return tuple(
        Level(xor, condition & ((1 << lanes) - 1), condition >> lanes)
        for xor, condition in zip(basis, conditions, strict=True)
    )


def _selects(wanted: set[int], levels: Sequence[Level]) -> tuple[set[int], int]:
    """What must be there before the levels so that `wanted` is there after, and the selects."""
    count = 0
    for level in levels:
        count += len(wanted)
        wanted = wanted | {number ^ level.xor for number in wanted}
    return wanted, count


def plan_shuffles(src: LinearLayout, dst: LinearLayout, element_bits: int) -> Shuffles | None:
    """The shuffles that convert `src` to `dst`; None if an element must leave its warp."""
    most = max(0, (WORD_BITS // element_bits).bit_length() - 1)
    pairs = _neighbours(src, dst)[:most]
    # A lane that would have to permute the elements within a word: pack less.
    for count in range(len(pairs), -1, -1):
        problem = _Problem.of(src, dst, pairs[:count])
        if problem is not None:
            return _solve(problem, element_bits)
    return None


def _neighbours(src: LinearLayout, dst: LinearLayout) -> list[tuple[int, int]]:
    """(destination register bit, source registers) of elements that both keep in one thread."""
    span = gf2.Span(src.bases(REGISTER))
    taken = gf2.Span()
    pairs: list[tuple[int, int]] = []
    for j, element in enumerate(dst.bases(REGISTER)):
        registers = span.solve(element)
        if registers is not None and taken.add(element):
            pairs.append((1 << j, registers))
    return pairs


@dataclass(frozen=True, slots=True)
class _Problem:
    """A conversion in words. A *place* is an int: word bits below, lane bits from `word_bits` on.

    Attributes:
        word_registers: the source registers of each bit of a word's number.
        packed: the source registers of each bit of a position in a word.
        results: for each destination register bit, (number of the result, position), as masks.
        fetch_result: for each bit of a result's number, the place it is fetched from.
        fetch_lane, fetch_warp: the same for each bit of the destination's lane and warp.
        copies: places that hold the same element as place 0.
    """

    word_bits: int
    word_registers: tuple[int, ...]
    packed: tuple[int, ...]
    results: tuple[tuple[int, int], ...]
    fetch_result: tuple[int, ...]
    fetch_lane: tuple[int, ...]
    fetch_warp: tuple[int, ...]
    copies: tuple[int, ...]

    @staticmethod
    def of(
        src: LinearLayout, dst: LinearLayout, pairs: Sequence[tuple[int, int]]
    ) -> _Problem | None:
        """None if a lane or warp would fetch from another warp, or from within a word."""
        registers = src.bases(REGISTER)
        packed = tuple(source for _, source in pairs)
        span = gf2.Span(gf2.multiply(registers, packed))
        words = tuple(1 << i for i, element in enumerate(registers) if span.add(element))
        places = (*gf2.multiply(registers, words), *src.bases(LANE))
        # Positions in a word come last, so that they are used only where nothing else does.
        solver = gf2.Span((*places, *gf2.multiply(registers, packed)))
        warps = [d ^ s for d, s in zip(dst.bases(WARP), src.bases(WARP), strict=True)]
        threads = _whole_words(solver, (*dst.bases(LANE), *warps), len(places))
        results = _results(solver, dst.bases(REGISTER), pairs, len(places))
        if threads is None or results is None:
            return None
        lanes = len(dst.bases(LANE))
        return _Problem(
            word_bits=len(words),
            word_registers=words,
            packed=packed,
            results=results[1],
            fetch_result=results[0],
            fetch_lane=threads[:lanes],
            fetch_warp=threads[lanes:],
            copies=gf2.kernel(places),
        )


def _whole_words(
    solver: gf2.Span, elements: Sequence[int], place_bits: int
) -> tuple[int, ...] | None:
    """The places of these elements; None if one is nowhere in the warp or inside a word."""
    found = [solver.solve(element) for element in elements]
    if any(place is None or place >> place_bits for place in found):
        return None
    return tuple(place for place in found if place is not None)


def _results(
    solver: gf2.Span, registers: Sequence[int], pairs: Sequence[tuple[int, int]], place_bits: int
) -> tuple[tuple[int, ...], tuple[tuple[int, int], ...]] | None:
    """The places that results come from, and for each register bit its result and position.

    A destination register whose element lies inside a word belongs to the result that holds the
    whole word, so only the word part of its place is kept.
    """
    positions = [registers[bit.bit_length() - 1] for bit, _ in pairs]
    basis = gf2.Span(positions)
    fetch: list[int] = []
    members: list[int] = list(positions)
    for element in registers:
        if not basis.add(element):
            continue
        place = solver.solve(element)
        if place is None:
            return None
        fetch.append(place & ((1 << place_bits) - 1))
        members.append(element ^ gf2.apply(positions, place >> place_bits))
    made = gf2.solve_all(members, registers)
    if made is None:
        return None
    low = (1 << len(positions)) - 1
    return tuple(fetch), tuple((mask >> len(positions), mask & low) for mask in made)


class _Choice(NamedTuple):
    """For each lane bit: the place it fetches from, and the generators added to get there."""

    places: list[int]
    used: list[int]


def _solve(problem: _Problem, element_bits: int) -> Shuffles:
    """Choose the rounds."""
    fetch = problem.fetch_result
    choice = _stay_in_lane(problem)
    if choice is None:
        fetch = (*fetch, *_spare(problem))
        choice = _spread(problem, (*fetch, *problem.copies))
    shift, words = problem.word_bits, (1 << problem.word_bits) - 1
    source = [place >> shift for place in choice.places]
    send = _extended(source, [place & words for place in choice.places])

    def offer(place: int) -> int:
        """The number of the offer in which this place's lane finds this place's word."""
        return (place & words) ^ gf2.apply(send, place >> shift)

    warp_source = [place >> shift for place in problem.fetch_warp]
    warp_send = [offer(place) for place in problem.fetch_warp]
    still = source == gf2.units(len(source)) and not any(warp_source)
    places = [gf2.apply(fetch, j) for j in range(1 << len(fetch))]
    place = [used & (len(places) - 1) for used in choice.used]
    return Shuffles(
        words=_words(problem),
        send=_map({LANE: send, WARP: warp_send}, REGISTER, words + 1),
        source=_map({LANE: source, WARP: warp_source}, LANE, 1 << len(source)),
        rounds=tuple(Round(offer(p), p >> shift, not still or p > words) for p in places),
        place=_map({LANE: place}, REGISTER, len(places)),
        results=_unpacking(problem),
        element_bits=element_bits,
    )


def _map(columns: dict[str, Sequence[int]], out_name: str, out_size: int) -> LinearLayout:
    return LinearLayout.from_columns(columns, {out_name: out_size})


def _stay_in_lane(problem: _Problem) -> _Choice | None:
    """The choice in which each lane reads itself, but for the constants of the rounds."""
    generators = (*problem.fetch_result, *problem.copies)
    solver = gf2.Span(place >> problem.word_bits for place in generators)
    choice = _Choice([], [])
    for i, place in enumerate(problem.fetch_lane):
        used = solver.solve(place >> problem.word_bits ^ 1 << i)
        if used is None:
            return None
        choice.places.append(place ^ gf2.apply(generators, used))
        choice.used.append(used)
    return choice


def _spare(problem: _Problem) -> tuple[int, ...]:
    """Places of registers to receive in vain, so that no lane must offer two words at once."""
    generators = (*problem.fetch_result, *problem.copies)
    everything = (*generators, *problem.fetch_lane)
    own_words = gf2.intersection(everything, gf2.units(problem.word_bits))
    missing = len(own_words) - gf2.rank(generators)
    return gf2.extend(generators, own_words)[: max(0, missing)]


def _spread(problem: _Problem, generators: Sequence[int]) -> _Choice:
    """The greedy choice: each lane bit takes its own place if that keeps `send` a function.

    `seen` is spanned by the places chosen so far and by all words of one lane. A place outside of
    it reads a lane that is new. If the lane bit's own place is inside, then some generator is not
    (the module's text says why), and the sum of the two is not either.
    """
    words = gf2.units(problem.word_bits)
    seen = gf2.Span(words)
    chosen: list[int] = []
    choice = _Choice([], [])
    for place in problem.fetch_lane:
        repeated = gf2.solve((*chosen, *generators), place)
        if repeated is not None:
            # A sum of earlier choices, up to generators: then exactly that sum.
            used = repeated >> len(chosen)
        elif place not in seen:
            used = 0
        else:
            used = next(1 << i for i, extra in enumerate(generators) if extra not in seen)
        moved = place ^ gf2.apply(generators, used)
        if repeated is None:
            chosen.append(moved)
            seen.add(moved)
        choice.places.append(moved)
        choice.used.append(used)
    return choice


def _extended(inputs: Sequence[int], images: Sequence[int]) -> list[int]:
    """The columns of a linear map with these images of these inputs, 0 on a complement."""
    span = gf2.Span((*inputs, *gf2.complement(inputs, len(inputs))))
    known = (1 << len(inputs)) - 1
    solutions = (span.solve(unit) or 0 for unit in gf2.units(len(inputs)))
    return [gf2.apply(images, solution & known) for solution in solutions]


def _words(problem: _Problem) -> tuple[tuple[int, ...], ...]:
    """The source registers of each word."""
    positions = [gf2.apply(problem.packed, i) for i in range(1 << len(problem.packed))]
    return tuple(
        tuple(gf2.apply(problem.word_registers, word) ^ position for position in positions)
        for word in range(1 << problem.word_bits)
    )


def _unpacking(problem: _Problem) -> tuple[tuple[int, int], ...]:
    """The number of the result and the position in it, for each destination register."""
    numbers = [number for number, _ in problem.results]
    positions = [position for _, position in problem.results]
    return tuple((gf2.apply(numbers, r), gf2.apply(positions, r)) for r in range(1 << len(numbers)))
