"""Layout conversions within a warp by shuffles.

All indices are linear functions of bits. Let (word, lane) be a *place* in the source, and let the
destination's register bit j and lane bit i fetch from the places a_j and u_i; then lane l, register
r fetches from the sum of the a_j and u_i of its bits. In a shuffle instruction, every lane offers
*one* word and reads the offer of one lane. So in each round, all lanes that read the same lane must
require the same word.

The degree of freedom is the register that each lane receives in a round: lane l may receive
register `j ^ place(l)` in round j, for any linear `place`. This changes u_i by a sum of a's (and by
places that hold duplicates, if the source has any). It must be chosen such that every linear
dependency among the lanes of the u_i is also one among their words: then the word to send is a
linear function `send` of the sending lane. Such a choice always exists, and a greedy algorithm
finds it, if there are at least as many a's as the dimension of the pure register places in the span
of the u_i and a_j; missing ones are added as unused registers (`_spare`). The best choice is one in
which lane i reads lane i: rounds whose a-part has no lane then need no shuffle. A transposition of
registers and lanes is of this kind.

The code of a plan is

    offer[i]    = word[i ^ send(lane, warp)]                    selects, see `select_levels`
    received[j] = shuffle(offer[rounds[j].word], source(lane, warp) ^ rounds[j].lane)
    result[k]   = received[k ^ place(lane)]                     selects

Elements narrower than a word that are adjacent in both layouts are packed into words.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tilewright.base.record import record
from tilewright.layout import gf2
from tilewright.layout.linear import LANE, REGISTER, WARP, LinearLayout

WORD_BITS = 32

# Relative to a shuffle, which has the throughput of a wavefront of shared memory: selects and byte
# permutations have four times that.
SELECT_COST = 0.25


class Round(NamedTuple):
    """One round: send offer number `word`, read lane `source(lane, warp) ^ lane`.

    `moves` is False if every lane reads itself, so that no shuffle is needed.
    """

    word: int
    lane: int
    moves: bool


@record
class Shuffles:
    """A conversion within each warp; the module docstring specifies its code.

    Attributes:
        words: for each word, the source registers that are packed into it, from the lowest bits.
        send: (lane, warp) -> the xor of word numbers ("register") before sending.
        source: (lane, warp) -> the lane that is read.
        rounds: the shuffles.
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
        received, placing = _selects(kept, select_levels(self.place))
        sent = {self.rounds[j].word for j in received}
        words, sending = _selects(sent, select_levels(self.send))
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
    """A map (lane, warp) -> xor of numbers, as the composition of the fewest levels."""
    basis = gf2.extend((), flips.columns)
    columns = gf2.solve_all(basis, flips.columns) or ()
    lanes = flips.in_bits(LANE)
    conditions = gf2.transpose(columns, len(basis))
    return tuple(
        Level(xor, condition & ((1 << lanes) - 1), condition >> lanes)
        for xor, condition in zip(basis, conditions, strict=True)
    )


def _selects(required: set[int], levels: Sequence[Level]) -> tuple[set[int], int]:
    """The inputs of the levels that their outputs `required` depend on, and the number of
    selects."""
    count = 0
    for level in levels:
        count += len(required)
        required = required | {number ^ level.xor for number in required}
    return required, count


def plan_shuffles(src: LinearLayout, dst: LinearLayout, element_bits: int) -> Shuffles | None:
    """The shuffles that convert `src` to `dst`; None if an element must move between warps."""
    most = max(0, (WORD_BITS // element_bits).bit_length() - 1)
    pairs = _neighbours(src, dst)[:most]
    # If a lane would have to permute the elements within a word, pack fewer.
    for count in range(len(pairs), -1, -1):
        problem = _Problem.of(src, dst, pairs[:count])
        if problem is not None:
            return _solve(problem, element_bits)
    return None


def _neighbours(src: LinearLayout, dst: LinearLayout) -> list[tuple[int, int]]:
    """(destination register bit, source registers) of elements that are in one thread in both
    layouts."""
    span = gf2.Span(src.bases(REGISTER))
    taken = gf2.Span()
    pairs: list[tuple[int, int]] = []
    for j, element in enumerate(dst.bases(REGISTER)):
        registers = span.solve(element)
        if registers is not None and taken.add(element):
            pairs.append((1 << j, registers))
    return pairs


@record
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
        """The problem for these packed pairs; None if a lane or warp would fetch from another warp,
        or from within a word."""
        registers = src.bases(REGISTER)
        packed = tuple(source for _, source in pairs)
        span = gf2.Span(gf2.multiply(registers, packed))
        words = tuple(1 << i for i, element in enumerate(registers) if span.add(element))
        places = (*gf2.multiply(registers, words), *src.bases(LANE))
        # Positions in a word come last, so that solutions prefer whole words.
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
    """The places of these elements; None if one is not in the warp, or inside a word."""
    found = [solver.solve(element) for element in elements]
    if any(place is None or place >> place_bits for place in found):
        return None
    return tuple(place for place in found if place is not None)


def _results(
    solver: gf2.Span, registers: Sequence[int], pairs: Sequence[tuple[int, int]], place_bits: int
) -> tuple[tuple[int, ...], tuple[tuple[int, int], ...]] | None:
    """The places that results are fetched from, and for each register bit its result and position.

    A destination register whose element is inside a word belongs to the result with the whole word,
    so that only the word part of its place is kept.
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
    masks = gf2.solve_all(members, registers)
    if masks is None:
        return None
    low = (1 << len(positions)) - 1
    return tuple(fetch), tuple((mask >> len(positions), mask & low) for mask in masks)


class _Choice(NamedTuple):
    """For each lane bit: the place that it fetches from, and the mask of generators added to it."""

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
        """The number of the offer in which the lane of a place offers its word."""
        return (place & words) ^ gf2.apply(send, place >> shift)

    warp_source = [place >> shift for place in problem.fetch_warp]
    warp_send = [offer(place) for place in problem.fetch_warp]
    in_lane = source == gf2.units(len(source)) and not any(warp_source)
    places = [gf2.apply(fetch, j) for j in range(1 << len(fetch))]
    place = [used & (len(places) - 1) for used in choice.used]
    return Shuffles(
        words=_words(problem),
        send=_map({LANE: send, WARP: warp_send}, REGISTER, words + 1),
        source=_map({LANE: source, WARP: warp_source}, LANE, 1 << len(source)),
        rounds=tuple(Round(offer(p), p >> shift, not in_lane or p > words) for p in places),
        place=_map({LANE: place}, REGISTER, len(places)),
        results=_unpacking(problem),
        element_bits=element_bits,
    )


def _map(columns: dict[str, Sequence[int]], out_name: str, out_size: int) -> LinearLayout:
    return LinearLayout.from_columns(columns, {out_name: out_size})


def _stay_in_lane(problem: _Problem) -> _Choice | None:
    """The choice in which each lane reads itself, up to the constants of the rounds, if
    possible."""
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
    """Places of additional registers, whose values are unused, such that no lane must offer two
    words in one round."""
    generators = (*problem.fetch_result, *problem.copies)
    everything = (*generators, *problem.fetch_lane)
    own_words = gf2.intersection(everything, gf2.units(problem.word_bits))
    missing = len(own_words) - gf2.rank(generators)
    return gf2.extend(generators, own_words)[: max(0, missing)]


def _spread(problem: _Problem, generators: Sequence[int]) -> _Choice:
    """The greedy choice: each lane bit fetches from its own place if `send` remains a function.

    `seen` is the span of the places chosen so far and of all words of one lane. A place outside of
    it reads a new lane. If the lane bit's own place is inside, then some generator is not (see the
    module docstring), and neither is the sum of the two.
    """
    words = gf2.units(problem.word_bits)
    seen = gf2.Span(words)
    chosen: list[int] = []
    choice = _Choice([], [])
    for place in problem.fetch_lane:
        repeated = gf2.solve((*chosen, *generators), place)
        if repeated is not None:
            # A sum of earlier choices, up to generators: take exactly that sum.
            used = repeated >> len(chosen)
        elif place not in seen:
            used = 0
        else:
            used = next(1 << i for i, extra in enumerate(generators) if extra not in seen)
        fetched = place ^ gf2.apply(generators, used)
        if repeated is None:
            chosen.append(fetched)
            seen.add(fetched)
        choice.places.append(fetched)
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
