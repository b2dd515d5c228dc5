"""The simulator: runs the programs of a kernel on cores, counts cycles, and checks the order.

A core executes its instructions sequentially; the core with the earliest time executes next. Vector
clocks check that a core with parallel pipes would compute the same: an instruction may access bytes
that one of another pipe accesses only if an event, a barrier or its issue orders the two. Otherwise
`Unordered` is raised, with both.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tilewright.ir.interpret import evaluate_function
from tilewright.ir.numbers import array_of
from tilewright.ir.parser import parse_module
from tilewright.ir.types import scalar_type
from tilewright_npu import matrix_unit
from tilewright_npu.device import Memory
from tilewright_npu.instructions import Access, Image, Instruction, Place
from tilewright_npu.l2 import L2
from tilewright_npu.machine import (
    CLUSTER,
    CORES,
    DMA_BYTES,
    DMA_LATENCY,
    DMA_OVERHEAD,
    PIPES,
    POISON,
    SCALAR,
)
from tilewright_npu.ordering import Clock, Order

Array = np.ndarray[Any, Any]
Grid = tuple[int, int, int]


class SimulatorError(RuntimeError):
    """The code is wrong: the message names the instruction and the source line."""


class Unordered(SimulatorError):
    """Two pipes access the same bytes without an order between them."""


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
        share = -(-count // CORES) or 1
        clusters = [L2() for _ in range(CORES // CLUSTER)]
        self.busy = dict.fromkeys(PIPES, 0)
        cores = [Core(self, grid, clusters[n // CLUSTER]) for n in range(-(-count // share))]
        running = {
            core: core.run(range(n * share, min((n + 1) * share, count)), args)
            for n, core in enumerate(cores)
        }
        with np.errstate(all="ignore"):
            while running:
                core = min(running, key=lambda core: core.next)
                if next(running[core], None) is None:
                    del running[core]
        return max((core.end for core in cores), default=0)


class Core:
    """One core: its scratch memory and registers, and the time of each pipe in cycles."""

    def __init__(self, simulator: Simulator, grid: Grid, l2: L2) -> None:
        self.simulator, self.memory, self.grid, self.l2 = simulator, simulator.memory, grid, l2
        sizes = simulator.image.sizes
        self.memories = {space: np.zeros(size, np.uint8) for space, size in sizes.items()}
        self.registers: list[Any] = [None] * simulator.image.registers
        self.time: dict[str, int] = dict.fromkeys(PIPES, 0)
        self.order = Order()
        self.set: dict[int, tuple[Clock, int]] = {}
        self.end = 0  # when all instructions so far are complete
        self.next = 0  # the time of what it does next
        self.index = (0, 0, 0)

    def run(self, numbers: range, args: Sequence[Any]) -> Iterator[bool]:
        """Run programs to their ends sequentially; yields where other cores may continue."""
        x, y, _ = self.grid
        programs = self.simulator.image.programs
        self.registers[: len(args)] = args
        for turn, number in enumerate(numbers):
            self.index = number % x, number // x % y, number // (x * y)
            for memory in self.memories.values():
                memory[:] = POISON
            self.order.forget("memory")
            yield from self._code(programs[turn % len(programs)])

    # -- order and time -------------------------------------------------------------------------

    def _code(self, code: Sequence[Instruction]) -> Iterator[bool]:
        for instruction in code:
            execute = getattr(self, f"_{instruction.name}")
            if instruction.bodies:
                yield from execute(instruction)
                continue
            if instruction.name in ("load", "access"):
                self.next = self._earliest(instruction)
                yield True
            try:
                execute(instruction)
            except SimulatorError:
                raise
            except Exception as error:
                raise SimulatorError(f"{_title(instruction)}: {error}") from error

    def _earliest(self, i: Instruction) -> int:
        """When an instruction that is issued now can start."""
        events = (self.set[event][1] for event in i.waits if event in self.set)
        return max(self.time[i.pipe], self.time[SCALAR] + 1, *events)

    def _execute(
        self, i: Instruction, touched: Sequence[Access] = (), cycles: int | None = None,
        done: int = 0,
    ) -> None:  # fmt: skip
        """Account for an instruction: check that it is ordered, and add its cycles.

        Args:
            touched: its accesses of the device's memory.
            cycles: if they are not those of the instruction in general.
            done: when it is complete, if that is later than the last cycle.
        """
        start = self._earliest(i)
        cycles = i.cycles() if cycles is None else cycles
        self.time[SCALAR] += 1
        self.order.issue(i.pipe)
        for event in i.waits:
            if event in self.set:
                self.simulator.awaited.add(event)
                self.order.wait(i.pipe, self.set[event][0])
        accesses = [*i.accesses(), *touched]
        wrong = self.order.unordered(i.pipe, accesses)
        if wrong is not None:
            raise Unordered(f"{_title(i)} is not ordered after {_title(wrong.what)}")
        clock = self.order.add(i.pipe, accesses, i)
        self.time[i.pipe] = start + cycles
        self.simulator.busy[i.pipe] += cycles
        done = max(done, start + cycles)
        self.end = max(self.end, done)
        for event in i.sets:
            self.set[event] = clock, done

    def _barrier(self, i: Instruction) -> None:
        self.time = dict.fromkeys(PIPES, self.end)
        self.order.barrier()

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
        self._execute(i)
        self._write(i.results[0], source[i.facts["axis"]])

    def _move(self, i: Instruction) -> None:
        self._execute(i)
        self._write(i.results[0], self._read(i.operands[0]))

    def _run(self, i: Instruction) -> None:
        self._execute(i)
        values = [_argument(self._read(p)) for p in i.operands]
        found = evaluate_function(self.simulator.programs[i.facts["program"]], values)
        for place, value in zip(i.results, found, strict=True):
            self._write(place, value)

    def _pack(self, i: Instruction) -> None:
        (place,) = i.results
        self._execute(i)
        tile = self._read(i.operands[0])
        self._write(place, matrix_unit.pack(tile, place.extents, i.facts["order"]))

    def _clear(self, i: Instruction) -> None:
        self._execute(i)
        self._write(i.results[0], 0)

    def _multiply(self, i: Instruction) -> None:
        self._execute(i)
        self._write(i.results[0], matrix_unit.multiply(*(self._read(p) for p in i.operands)))

    def _unpack(self, i: Instruction) -> None:
        self._execute(i)
        self._write(i.results[0], matrix_unit.unpack(self._read(i.operands[0])))

    def _access(self, i: Instruction) -> None:
        values = [_argument(self._read(p)) for p in i.operands]
        self._execute(i, self._touched(i, values))
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
        start = self._earliest(i)
        cycles, done = self.l2.read(addresses[inside], start)
        self._execute(i, _copied(i, addresses[inside], False), cycles, done)
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
        self._write(place, tile.reshape(place.extents))

    def _store(self, i: Instruction) -> None:
        addresses, inside = self._block(i.facts)
        start, cycles = self._earliest(i), DMA_OVERHEAD
        cycles += len(np.unique(addresses[inside] // DMA_BYTES))
        touched = _copied(i, addresses[inside], True)
        self._execute(i, touched, cycles, start + cycles + DMA_LATENCY)
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

    # -- control flow ---------------------------------------------------------------------------

    def _for(self, i: Instruction) -> Iterator[bool]:
        start, stop, step = (int(self._read(p)) for p in i.operands)
        self._execute(i)
        index, counter = i.results
        for iteration, value in enumerate(range(start, stop, max(step, 1))):
            self._write(index, value)
            self._write(counter, iteration)
            self.time[SCALAR] += 2
            yield from self._code(i.bodies[iteration % len(i.bodies)])

    def _while(self, i: Instruction) -> Iterator[bool]:
        self._execute(i)
        while True:
            yield from self._code(i.bodies[0])
            self.time[SCALAR] += 2
            if not self.registers[i.facts["condition"]]:
                return
            yield from self._code(i.bodies[1])

    def _if(self, i: Instruction) -> Iterator[bool]:
        condition = self._read(i.operands[0])
        self._execute(i)
        yield from self._code(i.bodies[0 if condition else 1])


def _copied(i: Instruction, addresses: Array, writes: bool) -> list[Access]:
    """The accesses of a copy."""
    if not addresses.size:
        return []
    return [Access("memory", int(addresses.min()), int(addresses.max()) + i.facts["size"], writes)]


def _dtype(place: Place) -> Any:
    return np.dtype(np.uint64) if place.dtype.startswith("ptr") else scalar_type(place.dtype).numpy


def _argument(value: Any) -> Any:
    """A value for `evaluate_function`, which takes addresses as numbers of Python."""
    is_number = not isinstance(value, np.ndarray) or value.ndim == 0
    return int(value) if is_number and value.dtype == np.uint64 else value


def _title(i: Instruction) -> str:
    what = f"{i.name} {i.facts.get('op', '')}".strip()
    return f"`{what}` of the pipe {i.pipe}{f' ({i.line})' if i.line else ''}"
