"""Level F: random programs of exact operations, whose result does not depend on their order."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from tilewright.conformance.case import Case, Program
from tilewright.conformance.inputs import rng_of, specials, zeros
from tilewright.conformance.text_kernels import kernel_from
from tilewright.conformance.use_cases import language_name
from tilewright.ir.types import BY_SHORT

TYPES = ("i8", "i16", "i32", "i64", "u8", "u32", "u64", "fp16", "fp32", "fp64")
ROWS, COLUMNS = 8, 16
INTEGER = ("+", "-", "*", "&", "|", "^", "//", "%", "<<", ">>")
FLOATING = ("+", "-", "*")
LENGTH = 12  # statements of a program


class _Writer:
    """Writes the statements of a program. Each value is a tile of `ROWS` x `COLUMNS` elements."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.lines: list[str] = []
        self.values: list[tuple[str, str]] = []  # name and element type

    def pick(self, *choices: Any) -> Any:
        return choices[int(self.rng.integers(len(choices)))]

    def value(self, type: str) -> str:
        """A value of an element type: one of that type, or another one converted."""
        name, found = self.pick(*self.values)
        return name if found == type else f"{name}.to({_name(type)})"

    def add(self, expression: str, type: str) -> str:
        name = f"v{len(self.values)}"
        self.lines.append(f"{name} = ({expression}).to({_name(type)})")
        self.values.append((name, type))
        return name

    def arithmetic(self) -> None:
        type = self.pick(*TYPES)
        operation = self.pick(*(FLOATING if type.startswith("fp") else INTEGER))
        self.add(f"{self.value(type)} {operation} {self.value(type)}", type)

    def extremum(self) -> None:
        type = self.pick(*TYPES)
        name = self.pick("minimum", "maximum")
        self.add(f"tl.{name}({self.value(type)}, {self.value(type)})", type)

    def selection(self) -> None:
        type, compared = self.pick(*TYPES), self.pick(*TYPES)
        relation = self.pick("<", "<=", "==", "!=", ">", ">=")
        test = f"{self.value(compared)} {relation} {self.value(compared)}"
        self.add(f"tl.where({test}, {self.value(type)}, {self.value(type)})", type)

    def reduction(self) -> None:
        type, axis = self.pick(*TYPES), self.pick(0, 1)
        name = self.pick("max", "min") if type.startswith("fp") else self.pick("max", "min", "sum")
        shown = "[:, None]" if axis else "[None, :]"
        reduced = f"tl.{name}({self.value(type)}, {axis}){shown}"
        self.add(f"{reduced}.to({_name(type)}) + {self.value(type)}", type)

    def loop(self) -> None:
        """A loop that carries a tile, with a number of iterations known at run time."""
        type = self.pick(*TYPES)
        carried = self.add(self.value(type), type)
        operation = self.pick("+", "-") if type.startswith("fp") else self.pick("+", "-", "^", "*")
        self.lines.append("for k in range(n):")
        self.lines.append(f"    {carried} = ({carried} {operation} {self.value(type)})")
        self.lines[-1] += f".to({_name(type)})"

    def branch(self) -> None:
        type = self.pick(*TYPES)
        changed = self.add(self.value(type), type)
        self.lines.append(f"if n {self.pick('<', '>=')} {self.pick(1, 2, 3)}:")
        self.lines.append(f"    {changed} = {self.value(type)}")

    def transposition(self) -> None:
        type = self.pick(*TYPES)
        shape = f"({ROWS}, {COLUMNS})"
        self.add(f"tl.reshape(tl.trans({self.value(type)}), {shape})", type)

    def statement(self) -> None:
        self.pick(
            *(self.arithmetic,) * 4, *(self.selection,) * 2, self.extremum, self.reduction,
            self.loop, self.branch, self.transposition,
        )()  # fmt: skip


def _name(type: str) -> str:
    return language_name(BY_SHORT[type])


def program_text(seed: int) -> tuple[str, list[str], str]:
    """The source of a kernel, and the element types of its inputs and of its result."""
    writer = _Writer(rng_of("program", seed))
    inputs = [writer.pick(*TYPES) for _ in range(3)]
    for k, type in enumerate(inputs):
        writer.add(f"tl.load(x{k} + at, mask=i < rows, other={k})", type)
    for _ in range(LENGTH):
        writer.statement()
    name, result = writer.values[-1]
    head = [
        "p = tl.program_id(0)",
        f"i = p * {ROWS} + tl.arange(0, {ROWS})[:, None]",
        f"j = tl.arange(0, {COLUMNS})[None, :]",
        f"at = i * {COLUMNS} + j",
    ]
    body = [*head, *writer.lines, f"tl.store(out + at, {name}, mask=i < rows)"]
    text = "def kernel(out, x0, x1, x2, n, rows):\n    " + "\n    ".join(body) + "\n"
    return text, inputs, result


def random_program(seed: int) -> Program:
    """The program of a seed."""
    text, inputs, result = program_text(seed)
    rows = 13  # the second program has a tail
    arrays = [specials(type, rows * COLUMNS, (seed, k)) for k, type in enumerate(inputs)]
    args = [zeros(result, rows * COLUMNS), *arrays, seed % 4, rows]
    return Program(kernel_from(text), args, grid=(2,))


def cases(seed: int, count: int) -> Iterator[Case]:
    """`count` cases of level F, from a seed on."""
    for number in range(seed, seed + count):
        yield Case("F", "random program", f"seed {number}", partial(random_program, number))
