"""Instructions, and the image of a kernel that the compiler hands to the launcher.

A value is in a register of the scalar pipe or in scratch memory. The image is JSON: the code, and
the microprograms that instructions execute, as text of tile IR.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple


class Place(NamedTuple):
    """Where a value is.

    Attributes:
        at: the number of a register, or an offset in scratch memory.
        shape: of a tile in scratch memory; None for a register.
        dtype: of an element, in short form.
        bytes: of an element.
        space: the memory: ``scratch``, or one of the matrix unit's.
    """

    at: int
    shape: tuple[int, ...] | None
    dtype: str
    bytes: int
    space: str = "scratch"

    @property
    def nbytes(self) -> int:
        """Bytes of scratch memory."""
        count = self.bytes
        for extent in self.shape or ():
            count *= extent
        return count

    def moved(self, at: int) -> Place:
        """A place for a value of the same type."""
        return Place(at, self.shape, self.dtype, self.bytes, self.space)

    def __str__(self) -> str:
        if self.shape is None:
            return f"r{self.at}:{self.dtype}"
        memory = "" if self.space == "scratch" else self.space
        return f"{memory}[{self.at}]:{'x'.join(map(str, self.shape))}x{self.dtype}"


@dataclass
class Instruction:
    """An instruction.

    Attributes:
        pipe: that executes it.
        name: ``run`` (a microprogram), ``pack``, ``multiply`` and ``unpack`` (see
            ``matrix_unit.py``), ``load`` and ``store`` (of a block, by DMA), ``access`` (of
            any addresses, by the scalar pipe), ``move``, ``for``, ``while``, ``if``, ``argument``,
            ``program``, ``sync``, ``barrier``.
        results, operands: places.
        facts: further parameters.
        waits: events that the pipe waits for before the instruction.
        sets: events that it sets afterwards.
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


@dataclass
class Image:
    """The code of a kernel.

    Attributes:
        code: the instructions of a program.
        microprograms: text of tile IR with the functions that instructions run; "" for none.
        scratch: bytes of scratch memory.
        registers: number of registers.
    """

    code: list[Instruction]
    microprograms: str
    scratch: int
    registers: int

    def encode(self) -> bytes:
        """The image as stored and loaded."""
        return json.dumps(asdict(self)).encode()

    @staticmethod
    def decode(data: bytes) -> Image:
        """The inverse of `encode`."""
        plain = json.loads(data)
        plain["code"] = _instructions(plain["code"])
        return Image(**plain)

    def walk(self) -> Iterator[Instruction]:
        """All instructions."""
        for instruction in self.code:
            yield from instruction.walk()

    def listing(self) -> str:
        """The code as text, one line for each instruction."""
        return "\n".join(_lines(self.code, 0)) + "\n"


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
