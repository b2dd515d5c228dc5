"""The simulator: runs the programs of a kernel on cores, counts cycles, and checks the order.

Results are those of executing the instructions one after the other. That a core, whose pipes run at
the same time, computes the same is checked by clocks: an instruction may touch what one of another
pipe touches only if an event, a barrier or its issue orders the two. Otherwise `Unordered` names
both.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.ir.interpret import evaluate_function
from tilewright.ir.numbers import array_of
from tilewright.ir.parser import parse_module
from tilewright.ir.types import scalar_type
from tilewright_npu import matrix_unit
from tilewright_npu.device import Memory
from tilewright_npu.instructions import Image, Instruction, Place
from tilewright_npu.machine import (
    CAPACITY,
    CORES,
    DMA_BYTES,
    DMA_LATENCY,
    DMA_OVERHEAD,
    PIPES,
    POISON,
    SCALAR,
    SLOW_CYCLES,
    VECTOR_BYTES,
    VECTOR_OVERHEAD,
)
from tilewright_npu.ordering import Access, Clock, Order

Array = np.ndarray[Any, Any]
Grid = tuple[int, int, int]


class SimulatorError(RuntimeError):
    """The code is wrong: the message names the instruction and the source line."""


class Unordered(SimulatorError):
    """Two pipes access the same bytes, and nothing orders them."""


class Simulator:
    """A device with a kernel loaded.

    Args:
        image: the kernel.
        memory: of the device.

    Attributes:
        busy: the cycles that each pipe of all cores has worked in the last launch.
        awaited: the events that an instruction has set and another one has waited for.
    """

    def __init__(self, image: Image, memory: Memory) -> None:
        self.image, self.memory = image, memory
        programs = parse_module(image.microprograms).functions if image.microprograms else {}
        self.programs = programs
        self.busy: dict[str, int] = dict.fromkeys(PIPES, 0)
        self.awaited: set[int] = set()

    def launch(self, grid: Grid, args: Sequence[Any]) -> int:
        """Run all programs, in contiguous runs on the cores; returns the cycles of the launch."""
        count = grid[0] * grid[1] * grid[2]
        share = -(-count // CORES)
        cycles = 0
        self.busy = dict.fromkeys(PIPES, 0)
        with np.errstate(all="ignore"):
            for first in range(0, count, share or 1):
                core = Core(self, grid)
                for number in range(first, min(first + share, count)):
                    core.run(number, args)
                cycles = max(cycles, core.time[SCALAR])
        return cycles


class Core:
    """One core: its scratch memory and registers, and the time of each pipe in cycles."""

    def __init__(self, simulator: Simulator, grid: Grid) -> None:
        self.simulator, self.memory, self.grid = simulator, simulator.memory, grid
        sizes = CAPACITY | {"scratch": simulator.image.scratch}
        self.memories = {space: np.full(size, POISON, np.uint8) for space, size in sizes.items()}
        self.registers: list[Any] = [None] * simulator.image.registers
        self.time: dict[str, int] = dict.fromkeys(PIPES, 0)
        self.order = Order()
        self.set: dict[int, tuple[Clock, int]] = {}
        self.fresh: set[int] = set()  # events set before a loop, not by an instruction
        self.done: dict[str, int] = dict.fromkeys(PIPES, 0)
        self.index = (0, 0, 0)

    def run(self, number: int, args: Sequence[Any]) -> None:
        """Run a program to its end."""
        x, y, _ = self.grid
        self.index = number % x, number // x % y, number // (x * y)
        for memory in self.memories.values():
            memory[:] = POISON
        self.registers[: len(args)] = args
        self.set.clear()
        self._code(self.simulator.image.code)
        self._barrier()

    # -- order and time -------------------------------------------------------------------------

    def _code(self, code: Sequence[Instruction]) -> None:
        for instruction in code:
            try:
                getattr(self, f"_{instruction.name}")(instruction)
            except SimulatorError:
                raise
            except Exception as error:
                raise SimulatorError(f"{_title(instruction)}: {error}") from error

    def _execute(
        self, i: Instruction, touched: Sequence[Access], cycles: int, latency: int = 0
    ) -> None:
        """Account for an instruction: check that it is ordered, and add its cycles."""
        self.time[SCALAR] += 1
        start = max(self.time[i.pipe], self.time[SCALAR])
        registers = [_access(p, False) for p in i.operands if p.shape is None]
        if i.pipe != SCALAR:
            self._check(i, SCALAR, registers)
        self.order.issue(i.pipe)
        for event in i.waits:
            if event not in self.set:
                raise SimulatorError(f"{_title(i)} waits for event e{event}, which is never set")
            clock, at = self.set.pop(event)
            if event not in self.fresh:
                self.simulator.awaited.add(event)
            self.order.wait(i.pipe, clock)
            start = max(start, at)
        accesses = [_access(p, False) for p in i.operands if p.shape is not None]
        accesses += [*(_access(p, True) for p in i.results), *touched]
        if i.pipe == SCALAR:
            accesses += registers
        self._check(i, i.pipe, accesses)
        own = self.order.add(i.pipe, accesses, i)
        self.time[i.pipe] = start + cycles
        self.simulator.busy[i.pipe] += cycles
        self.done[i.pipe] = max(self.done[i.pipe], start + cycles + latency)
        self.fresh.difference_update(i.sets)
        for event in i.sets:
            self.set[event] = own.clock, start + cycles + latency

    def _check(self, i: Instruction, pipe: str, accesses: list[Access]) -> None:
        wrong = self.order.unordered(pipe, accesses)
        if wrong:
            other = wrong[-1].what
            raise Unordered(f"{_title(i)} is not ordered after {_title(other)}")

    def _barrier(self, i: Instruction | None = None) -> None:
        latest = max(*self.time.values(), *self.done.values())
        self.time = dict.fromkeys(PIPES, latest)
        self.order.barrier()

    def _sync(self, i: Instruction) -> None:
        self._execute(i, (), 0)

    # -- values ---------------------------------------------------------------------------------

    def _read(self, place: Place) -> Any:
        if place.shape is None:
            return self.registers[place.at]
        raw = self.memories[place.space][place.at : place.at + place.nbytes]
        return raw.view(_dtype(place)).reshape(place.shape).copy()

    def _write(self, place: Place, value: Any) -> None:
        array = np.asarray(value, _dtype(place))
        if place.shape is None:
            self.registers[place.at] = array
            return
        raw = np.ascontiguousarray(np.broadcast_to(array, place.shape)).view(np.uint8)
        self.memories[place.space][place.at : place.at + place.nbytes] = raw.reshape(-1)

    def _number(self, polynomial: Sequence[Any]) -> int:
        total = 0
        for coefficient, factors in polynomial:
            for factor in factors:
                coefficient *= int(self.registers[factor])
            total += coefficient
        return total

    # -- instructions ---------------------------------------------------------------------------

    def _program(self, i: Instruction) -> None:
        source = self.index if i.facts["what"] == "program.id" else self.grid
        self._execute(i, (), 0)
        self._write(i.results[0], source[i.facts["axis"]])

    def _move(self, i: Instruction) -> None:
        self._execute(i, (), _vector_cycles(i) if i.pipe != SCALAR else 0)
        self._write(i.results[0], self._read(i.operands[0]))

    def _run(self, i: Instruction) -> None:
        cycles = 0
        if i.pipe != SCALAR:
            cycles = _vector_cycles(i)
        elif any(p.shape for p in (*i.operands, *i.results)):
            cycles = _elements(i) * SLOW_CYCLES
        self._execute(i, (), cycles)
        values = [_argument(self._read(p)) for p in i.operands]
        found = evaluate_function(self.simulator.programs[i.facts["program"]], values)
        for place, value in zip(i.results, found, strict=True):
            self._write(place, value)

    def _pack(self, i: Instruction) -> None:
        (place,) = i.results
        self._execute(i, (), _vector_cycles(i))
        shape = place.shape or ()
        zero = i.facts["order"] == "zero"
        tile = np.zeros(shape) if zero else self._read(i.operands[0])
        self._write(place, tile if zero else matrix_unit.pack(tile, shape, i.facts["order"]))

    def _multiply(self, i: Instruction) -> None:
        lhs, rhs, acc = i.operands
        self._execute(i, (), matrix_unit.cycles_of(lhs.shape or (), rhs.shape or ()))
        values = [self._read(p) for p in (lhs, rhs, acc)]
        self._write(i.results[0], matrix_unit.multiply(*values))

    def _unpack(self, i: Instruction) -> None:
        self._execute(i, (), _vector_cycles(i))
        self._write(i.results[0], matrix_unit.unpack(self._read(i.operands[0])))

    def _access(self, i: Instruction) -> None:
        values = [_argument(self._read(p)) for p in i.operands]
        self._execute(i, self._touched(i, values), max(1, _elements(i)) * SLOW_CYCLES)
        program = self.simulator.programs[i.facts["program"]]
        found = evaluate_function(program, values, reachable=self.memory.buffers())
        for place, value in zip(i.results, found, strict=True):
            self._write(place, value)

    def _touched(self, i: Instruction, values: Sequence[Any]) -> list[Access]:
        if i.facts["pointer"] is None:
            return []
        addresses = np.asarray(values[i.facts["pointer"]], np.uint64)
        if i.facts["mask"] is not None:
            addresses = addresses[np.asarray(values[i.facts["mask"]], np.bool_)]
        if not addresses.size:
            return []
        low, high = int(addresses.min()), int(addresses.max()) + i.facts["size"]
        return [Access("memory", low, high, i.facts["writes"])]

    def _load(self, i: Instruction) -> None:
        (place,) = i.results
        addresses, inside = self._block(i.facts)
        self._execute(i, *self._copied(i, addresses, inside, False))
        element = scalar_type(place.dtype) if place.dtype[:3] != "ptr" else None
        register = i.facts["fill_register"]
        fill = self.registers[register] if register is not None else i.facts["fill"]
        tile = np.zeros(inside.shape, _dtype(place))
        if fill is not None and element is not None:
            tile[...] = fill if register is not None else array_of(fill, element)
        if inside.any():
            data, start = self._allocation(addresses, inside, i.facts["size"])
            at = (addresses[inside] - start)[:, None] + np.arange(i.facts["size"])
            read = data[at]
            is_bool = place.dtype == "i1"
            tile[inside] = read[:, 0] != 0 if is_bool else read.view(_dtype(place)).reshape(-1)
        self._write(place, tile.reshape(place.shape or ()))

    def _store(self, i: Instruction) -> None:
        addresses, inside = self._block(i.facts)
        self._execute(i, *self._copied(i, addresses, inside, True))
        if inside.any():
            size = i.facts["size"]
            data, start = self._allocation(addresses, inside, size)
            raw = np.ascontiguousarray(self._read(i.operands[0])).view(np.uint8).reshape(-1, size)
            at = (addresses[inside] - start)[:, None] + np.arange(size)
            data[at] = raw.reshape(*inside.shape, size)[inside]

    def _block(self, facts: dict[str, Any]) -> tuple[Array, Array]:
        """The addresses of a block's elements, and which of them are accessed."""
        shape = [axis["extent"] for axis in facts["axes"]]
        total = np.full(shape, self._number(facts["offset"]), np.int64)
        allowed = not facts["never"] and all(self.registers[c] for c in facts["conditions"])
        inside = np.full(shape, allowed)
        for place, axis in enumerate(facts["axes"]):
            along = [-1 if a == place else 1 for a in range(len(shape))]
            index = np.arange(axis["extent"]) + self._number(axis["begin"])
            valid = np.full(axis["extent"], True)
            for bound in axis["lower"]:
                valid &= index >= self._number(bound)
            for bound in axis["upper"]:
                valid &= index < self._number(bound)
            total = total + (index * self._number(axis["stride"])).reshape(along)
            inside &= valid.reshape(along)
        return total * facts["size"] + int(self.registers[facts["base"]]), inside

    def _allocation(self, addresses: Array, inside: Array, size: int) -> tuple[Any, int]:
        """The bytes of the allocation that a copy accesses, and their first address."""
        chosen = addresses[inside]
        low, high = int(chosen.min()), int(chosen.max()) + size
        data, offset = self.memory.find(low, high)
        return data, low - offset

    def _copied(
        self, i: Instruction, addresses: Array, inside: Array, writes: bool
    ) -> tuple[list[Access], int, int]:
        """The accesses of a copy, its cycles and its latency."""
        size = i.facts["size"]
        row = addresses.shape[-1] * size if addresses.ndim else size
        rows = addresses.size * size // row if row else 0
        cycles = rows * -(-row // DMA_BYTES) + DMA_OVERHEAD
        if not inside.any():
            return [], cycles, DMA_LATENCY
        chosen = addresses[inside]
        touched = Access("memory", int(chosen.min()), int(chosen.max()) + size, writes)
        return [touched], cycles, DMA_LATENCY

    # -- control flow ---------------------------------------------------------------------------

    def _for(self, i: Instruction) -> None:
        start, stop, step = (int(self._read(p)) for p in i.operands)
        self._execute(i, (), 0)
        index, counter = i.results
        self.fresh.update(i.facts["before"])
        for event in i.facts["before"]:
            self.set[event] = dict(self.order.known[SCALAR]), self.time[SCALAR]
        for iteration, value in enumerate(range(start, stop, max(step, 1))):
            self._write(index, value)
            self._write(counter, iteration)
            self.time[SCALAR] += 2
            self._code(i.bodies[iteration % len(i.bodies)])

    def _while(self, i: Instruction) -> None:
        self._execute(i, (), 0)
        while True:
            self._code(i.bodies[0])
            self.time[SCALAR] += 2
            if not self.registers[i.facts["condition"]]:
                return
            self._code(i.bodies[1])

    def _if(self, i: Instruction) -> None:
        condition = self._read(i.operands[0])
        self._execute(i, (), 0)
        self._code(i.bodies[0 if condition else 1])


def _access(place: Place, writes: bool) -> Access:
    if place.shape is None:
        return Access("register", place.at, place.at + 1, writes)
    return Access(place.space, place.at, place.at + place.nbytes, writes)


def _dtype(place: Place) -> Any:
    return np.dtype(np.uint64) if place.dtype.startswith("ptr") else scalar_type(place.dtype).numpy


def _argument(value: Any) -> Any:
    """A value for `evaluate_function`, which takes addresses as numbers of Python."""
    is_number = not isinstance(value, np.ndarray) or value.ndim == 0
    return int(value) if is_number and value.dtype == np.uint64 else value


def _elements(i: Instruction) -> int:
    """Elements of the largest tile of an instruction."""
    return max((int(np.prod(p.shape or ())) for p in (*i.operands, *i.results)), default=1)


def _vector_cycles(i: Instruction) -> int:
    """Repeats of the vector unit: of 256 bytes of the largest tile."""
    size = max((p.nbytes for p in (*i.operands, *i.results) if p.shape is not None), default=0)
    return -(-size // VECTOR_BYTES) + VECTOR_OVERHEAD


def _title(i: Instruction) -> str:
    what = f"{i.name} {i.facts.get('op', '')}".strip()
    return f"`{what}` of the pipe {i.pipe}{f' ({i.line})' if i.line else ''}"
