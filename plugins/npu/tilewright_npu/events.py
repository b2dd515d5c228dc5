"""Events: the order between pipes, established where two of them access the same bytes.

A forward dataflow analysis over the code of all programs in flight, iterated to a fixed point. A
state has the instructions issued so far, and, for each pipe, those that are complete before its
next one. An instruction that conflicts with others that may be incomplete waits for an event, which
they set; one event for each of their pipes, as a pipe completes in order.

Sets of instructions are integers with a bit for each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from tilewright_npu.instructions import Access, Instruction
from tilewright_npu.machine import PIPES, SCALAR

Set = int
LIMIT = 4  # runs of a loop, after which what holds before all of them is assumed
PATHS = 10  # states at a point, at most: those of a loop that ends after different bodies, or none


def place_events(
    programs: Sequence[list[Instruction]], touched: dict[Instruction, list[Access]]
) -> None:
    """Add the events that order the instructions of a kernel.

    Args:
        programs: as in `Image`.
        touched: accesses of the device's memory. They are ordered within a program only.
    """
    _Placement(programs, touched).run()


@dataclass
class _State:
    """A point of the execution.

    Attributes:
        executed: the instructions so far.
        recent: those of them that the present program has executed.
        maybe: those of them that other paths to this point lack.
        known: by pipe, what is complete when its next instruction starts.
        clocks: by instruction, what is complete when it is.
    """

    executed: Set = 0
    recent: Set = 0
    maybe: Set = 0
    known: dict[str, Set] = field(default_factory=lambda: dict.fromkeys(PIPES, 0))
    clocks: dict[int, Set] = field(default_factory=dict[int, Set])

    def copy(self) -> _State:
        return _State(self.executed, self.recent, self.maybe, dict(self.known), dict(self.clocks))

    def join(self, other: _State) -> _State:
        """The state at a point that both states may reach."""
        one, two = self.executed, other.executed

        def meet(a: Set, b: Set) -> Set:
            """The completions that hold in both, or hold in one and are of instructions that the
            other has not executed."""
            return (a & b) | (a & ~two) | (b & ~one)

        known = {pipe: meet(self.known[pipe], other.known[pipe]) for pipe in PIPES}
        clocks = self.clocks | other.clocks
        for number in self.clocks.keys() & other.clocks.keys():
            clocks[number] = meet(self.clocks[number], other.clocks[number])
        maybe = (one ^ two) | self.maybe | other.maybe
        return _State(one | two, self.recent | other.recent, maybe, known, clocks)


_Run = Callable[[list[_State]], list[_State]]


class _Placement:
    def __init__(
        self, programs: Sequence[list[Instruction]], touched: dict[Instruction, list[Access]]
    ) -> None:
        self.programs = programs
        self.code = [i for code in programs for top in code for i in top.walk()]
        self.numbers = {i: number for number, i in enumerate(self.code)}
        self.of_pipe: dict[str, Set] = dict.fromkeys(PIPES, 0)
        for number, i in enumerate(self.code):
            self.of_pipe[i.pipe] |= 1 << number
        self.conflicts = self._conflicts([i.accesses() for i in self.code])
        self.conflicts_in_memory = self._conflicts([touched.get(i, []) for i in self.code])
        self.setters: list[Set] = []
        self.event: dict[tuple[int, str], int] = {}  # of an instruction that waits for a pipe
        self.changed = True

    def _conflicts(self, accesses: Sequence[list[Access]]) -> list[Set]:
        """For each instruction, those of other pipes that must not run at the same time."""
        found = [0] * len(self.code)
        flat = [(number, access) for number, own in enumerate(accesses) for access in own]
        for space in {access.space for _, access in flat}:
            here = [(number, access) for number, access in flat if access.space == space]
            numbers = np.array([number for number, _ in here])
            low = np.array([access.low for _, access in here], np.uint64)
            high = np.array([access.high for _, access in here], np.uint64)
            writes = np.array([access.writes for _, access in here])
            for number, access in here:
                clash = (low < access.high) & (high > access.low) & (writes | access.writes)
                for other in np.unique(numbers[clash]).tolist():
                    found[number] |= 1 << other
        return [clash & ~self.of_pipe[i.pipe] for clash, i in zip(found, self.code, strict=True)]

    def run(self) -> None:
        while self.changed:
            self.changed = False
            self._repeat([_State()], [lambda s, c=code: self._one(s, c) for code in self.programs])

    def _one(self, states: list[_State], code: Sequence[Instruction]) -> list[_State]:
        for state in states:
            state.recent = 0
        return self._sequence(states, code)

    def _repeat(self, states: list[_State], bodies: Sequence[_Run]) -> list[_State]:
        """Execute bodies repeatedly, in turn, to a fixed point.

        Returns:
            what holds if that ends after each of the bodies.
        """
        states = _joined(states, 2)
        ends: list[list[_State]] = [[] for _ in bodies]
        for turn in range(1000):
            before = states
            for index, body in enumerate(bodies):
                states = _joined(body([state.copy() for state in states]), 2)
                ends[index] = _joined([*ends[index], *states], 1)
            if turn >= LIMIT:
                states = _joined([*before, *states], 1)
            if states == before:
                break
        return [state for end in ends for state in end]

    def _sequence(self, states: list[_State], code: Sequence[Instruction]) -> list[_State]:
        for instruction in code:
            for state in states:
                self._execute(state, instruction)
            bodies = [lambda s, b=body: self._sequence(s, b) for body in instruction.bodies]
            if instruction.name == "for":
                states = [*states, *self._repeat(states, bodies)]
            elif instruction.name == "while":
                condition, body = bodies
                states = condition(states)
                again = self._repeat(states, [lambda s, b=body, c=condition: c(b(s))])
                states = [*states, *again]
            elif instruction.name == "if":
                then, otherwise = bodies
                states = [*then([state.copy() for state in states]), *otherwise(states)]
            states = _joined(states, PATHS)
        return states

    def _execute(self, state: _State, instruction: Instruction) -> None:
        number, pipe = self.numbers[instruction], instruction.pipe
        if instruction.name == "barrier":
            state.known = dict.fromkeys(PIPES, state.executed)
        state.known[pipe] |= state.known[SCALAR]
        for event in instruction.waits:
            self._wait(state, pipe, event)
        conflicts = self.conflicts[number] & state.executed
        conflicts |= self.conflicts_in_memory[number] & state.recent
        for sources in self._needed(state, conflicts & ~state.known[pipe]):
            self._wait(state, pipe, self._event(number, sources))
        bit = 1 << number
        if state.executed & bit:  # what was known of it was known of an earlier run
            state.known = {pipe: known & ~bit for pipe, known in state.known.items()}
            state.clocks = {n: clock & ~bit for n, clock in state.clocks.items()}
        state.known[pipe] |= bit
        state.clocks[number] = state.known[pipe]
        state.executed |= bit
        state.recent |= bit
        state.maybe &= ~bit

    def _needed(self, state: _State, conflicts: Set) -> Iterator[Set]:
        """The instructions of each pipe one of which completes last, unless the completion of those
        of another pipe implies it."""
        if not conflicts:
            return
        by_pipe = [conflicts & of_pipe for of_pipe in self.of_pipe.values()]
        lasts = [self._last(state, found) for found in by_pipe if found]
        for found in lasts:
            others = [other for other in lasts if other != found]
            if not any(found & ~self._implied(state, other) == 0 for other in others):
                yield found

    def _last(self, state: _State, found: Set) -> Set:
        """Without the instructions of a pipe that a later one always follows."""
        for number in bits(found & ~state.maybe):
            found &= ~(state.clocks[number] & ~(1 << number))
        return found

    def _implied(self, state: _State, setters: Set) -> Set:
        """The instructions that are complete when the last issued of some instructions of a pipe
        is."""
        setters &= state.executed
        if not setters & ~state.maybe:
            return setters
        found = -1
        for number in bits(self._last(state, setters)):
            found &= state.clocks[number]
        return found | setters

    def _event(self, number: int, sources: Set) -> int:
        """The event by which an instruction waits for others, of one pipe."""
        key = number, self.code[next(bits(sources))].pipe
        if key not in self.event:
            self.event[key] = len(self.setters)
            self.setters.append(0)
            self.code[number].waits.append(self.event[key])
        event = self.event[key]
        for source in bits(sources & ~self.setters[event]):
            self.code[source].sets.append(event)
        self.setters[event] |= sources
        self.changed = True
        return event

    def _wait(self, state: _State, pipe: str, event: int) -> None:
        state.known[pipe] |= self._implied(state, self.setters[event])


def _joined(states: Sequence[_State], limit: int) -> list[_State]:
    """At most this many states, that hold where these do."""
    found: list[_State] = []
    for state in states:
        if state not in found:
            found.append(state)
    while len(found) > limit:
        found[-2:] = [found[-2].join(found[-1])]
    return found


def bits(found: Set) -> Iterator[int]:
    """The members of a set."""
    while found:
        low = found & -found
        yield low.bit_length() - 1
        found ^= low
