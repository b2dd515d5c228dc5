"""Instructions, and the image of a kernel that the compiler hands to the launcher.

A value is in a register of the scalar pipe or in scratch memory. The image is JSON: the code, and
the microprograms that instructions execute, as text of tile IR.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from math import prod
from typing import Any, NamedTuple

from tilewright_npu.machine import SCALAR, SLOW_CYCLES, copy_cycles, repeat_cycles


class Place(NamedTuple):
    """Where a value is.

    Attributes:
        at: the number of a register, or an offset in a memory of the core.
        shape: of a tile; () for one element, None for a register.
        dtype: of an element, in short form.
        bytes: of an element.
        space: the memory: ``scratch``, ``l1``, ``workspace``, or one of the matrix unit's.
    """

    at: int
    shape: tuple[int, ...] | None
    dtype: str
    bytes: int
    space: str = "scratch"

    @property
    def in_memory(self) -> bool:
        """Whether it is not a register."""
        return self.shape is not None

    @property
    def extents(self) -> tuple[int, ...]:
        """The shape; () for a register."""
        return self.shape or ()

    @property
    def nbytes(self) -> int:
        """Bytes of the memory."""
        return self.bytes * prod(self.extents)

    def moved(self, at: int) -> Place:
        """A place for a value of the same type."""
        return Place(at, self.shape, self.dtype, self.bytes, self.space)

    def within(self, space: str) -> Place:
        """A place for a value of the same type in another memory."""
        return Place(self.at, self.shape, self.dtype, self.bytes, space)

    def __str__(self) -> str:
        if self.shape is None:
            return f"r{self.at}:{self.dtype}"
        memory = "" if self.space == "scratch" else self.space
        return f"{memory}[{self.at}]:{'x'.join(map(str, (*self.shape, self.dtype)))}"


class Access(NamedTuple):
    """Bytes that an instruction reads or writes.

    Attributes:
        space: a memory of the core, or the device's ``memory``.
        low, high: the range.
        writes: whether it writes them.
    """

    space: str
    low: int
    high: int
    writes: bool

    def conflicts(self, other: Access) -> bool:
        """Whether the two must be ordered."""
        return (
            (self.writes or other.writes)
            and self.space == other.space
            and self.low < other.high
            and other.low < self.high
        )


@dataclass(eq=False)
class Instruction:
    """An instruction.

    Attributes:
        pipe: that executes it.
        name: ``run`` (a microprogram), ``pack``, ``clear``, ``multiply`` and ``unpack`` (see
            ``matrix_unit.py``), ``load`` and ``store`` (of a block, by DMA), ``access`` (of
            any addresses, by the scalar pipe), ``move``, ``for``, ``while``, ``if``, ``program``,
            ``barrier``.
        results, operands: places.
        facts: further parameters.
        waits: events that the pipe waits for before the instruction.
        sets: events that it sets when it is complete. A wait is for the last instruction that sets
            the event, of those issued before; for none, if there is none.
        bodies: nested code.
        line: of the kernel's source, for messages.
    """

    pipe: str
    name: str
    results: list[Place] = field(default_factory=list[Place])
    operands: list[Place] = field(default_factory=list[Place])
    facts: dict[str, Any] = field(default_factory=dict[str, Any])
    waits: list[int] = field(default_factory=list[int])
    sets: list[int] = field(default_factory=list[int])
    bodies: list[list[Instruction]] = field(default_factory=list[list["Instruction"]])
    line: str = ""

    def walk(self) -> Iterator[Instruction]:
        """This instruction and the nested ones."""
        yield self
        for body in self.bodies:
            for instruction in body:
                yield from instruction.walk()

    def cycles(self) -> int:
        """The cycles of its pipe; of a copy, those from memory."""
        size = max((p.nbytes for p in (*self.operands, *self.results) if p.in_memory), default=0)
        match self.name:
            case "multiply":
                depth, rows, columns = *self.operands[0].extents[:2], self.operands[1].extents[1]
                return depth * rows * columns
            case "load" | "store":
                return copy_cycles(size)
            case "clear":
                return prod(self.results[0].extents[:2])
            case "access":
                return max(1, self.elements()) * SLOW_CYCLES
            case _ if self.pipe != SCALAR:
                return repeat_cycles(size)
            case _:
                return self.elements() * SLOW_CYCLES if self.elements() > 1 else 0

    def elements(self) -> int:
        """Elements of its largest tile."""
        return max((prod(p.extents) for p in (*self.operands, *self.results)), default=1)

    def accesses(self) -> list[Access]:
        """The accesses of the core's memories; registers are read at the issue."""
        places = [*((p, False) for p in self.operands), *((p, True) for p in self.results)]
        return [Access(p.space, p.at, p.at + p.nbytes, w) for p, w in places if p.in_memory]


@dataclass
class Image:
    """The code of a kernel.

    Attributes:
        programs: the instructions of a program, once for each that may be in flight: they differ in
            the memory of their tiles. The programs of a core take them in turn.
        microprograms: text of tile IR with the functions that instructions run; "" for none.
        sizes: bytes of the memories that are used.
        registers: number of registers.
    """

    programs: list[list[Instruction]]
    microprograms: str
    sizes: dict[str, int]
    registers: int

    def encode(self) -> bytes:
        """The image as stored and loaded."""
        return json.dumps(asdict(self)).encode()

    @staticmethod
    def decode(data: bytes) -> Image:
        """The inverse of `encode`."""
        plain = json.loads(data)
        plain["programs"] = [_instructions(code) for code in plain["programs"]]
        return Image(**plain)

    def walk(self) -> Iterator[Instruction]:
        """All instructions."""
        for code in self.programs:
            for instruction in code:
                yield from instruction.walk()

    def listing(self) -> str:
        """The code as text, one line for each instruction."""
        lines: list[str] = []
        for number, code in enumerate(self.programs):
            lines += [f"program {number}", *_lines(code, 1)]
        return "\n".join(lines) + "\n"


def _instructions(plain: Sequence[dict[str, Any]]) -> list[Instruction]:
    found: list[Instruction] = []
    for given in plain:
        instruction = Instruction(**given)
        instruction.results = [_place(p) for p in given["results"]]
        instruction.operands = [_place(p) for p in given["operands"]]
        instruction.bodies = [_instructions(body) for body in given["bodies"]]
        found.append(instruction)
    return found


def _place(given: Sequence[Any]) -> Place:
    at, shape, dtype, size, space = given
    return Place(at, None if shape is None else tuple(shape), dtype, size, space)


def _lines(code: Sequence[Instruction], depth: int) -> Iterator[str]:
    for i in code:
        indent = "  " * depth
        if i.waits:
            yield f"{indent}{i.pipe:<7}wait {' '.join(f'e{e}' for e in i.waits)}"
        results = ", ".join(map(str, i.results))
        operands = ", ".join(map(str, i.operands))
        facts = " ".join(f"{key}={value}" for key, value in i.facts.items())
        arrow = f"{results} <- {operands}" if results else operands
        yield f"{indent}{i.pipe:<7}{i.name} {arrow} {facts}".rstrip()
        for body in i.bodies:
            yield from _lines(body, depth + 1)
            yield f"{indent}       end"
        if i.sets:
            yield f"{indent}{i.pipe:<7}set {' '.join(f'e{e}' for e in i.sets)}"
