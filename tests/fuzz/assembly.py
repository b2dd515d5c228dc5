"""Random kernels with inline assembly for NVIDIA GPUs, and what they store by NumPy.

    program = random_assembly(7)
    print(program.kernel.src)

Nothing else runs assembly: the interpreter and the CPU reject it. Instructions of packs of one,
two and four elements, with one to four results, are applied to tiles and scalars, in loops and
branches, between operations after which threads hold other elements.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from math import prod
from typing import Any, NamedTuple

import numpy as np

from tests.fuzz.programs.check import load
from tests.gpu.programs import Program

TYPES: dict[str, Any] = {
    "int8": np.int8, "uint8": np.uint8, "int16": np.int16, "int32": np.int32, "int64": np.int64,
    "float16": np.float16, "float32": np.float32, "float64": np.float64,
}  # fmt: skip
SHAPES = ((4,), (64,), (256,), (1024,), (16, 16), (8, 64), (2, 4, 32))
PROGRAMS = 2
Meaning = Callable[..., tuple[np.ndarray, ...]]


class Instruction(NamedTuple):
    """Assembly, and what it computes of arrays.

    Attributes:
        registers: the constraints of its results and operands.
        takes, gives: the types of its operands and results.
        pack: the elements of an operand that it takes at once.
    """

    text: str
    registers: str
    takes: tuple[str, ...]
    gives: tuple[str, ...]
    meaning: Meaning
    pack: int = 1


def _joined(op: str, type: str, register: str, meaning: Any, pack: int = 1) -> Instruction:
    """An instruction for two operands, once for each register that holds a pack."""
    each = pack if TYPES[type]().itemsize >= 4 else 1
    text = " ".join(f"{op} ${i}, ${each + i}, ${2 * each + i};" for i in range(each))
    registers = ",".join([f"={register}"] * each + [register] * (2 * each))
    return Instruction(text, registers, (type, type), (type,), lambda a, b: (meaning(a, b),), pack)


INSTRUCTIONS = (
    _joined("add.s32", "int32", "r", np.add),
    _joined("sub.s32", "int32", "r", np.subtract, 2),
    _joined("mul.lo.s32", "int32", "r", np.multiply, 4),
    _joined("max.s32", "int32", "r", np.maximum),
    _joined("xor.b32", "int8", "r", np.bitwise_xor, 4),
    _joined("and.b32", "uint8", "r", np.bitwise_and, 4),
    _joined("or.b32", "int16", "r", np.bitwise_or, 2),
    _joined("sub.s16", "int16", "h", np.subtract),
    _joined("add.s64", "int64", "l", np.add),
    _joined("add.f16x2", "float16", "r", np.add, 2),
    _joined("mul.f16", "float16", "h", np.multiply),
    _joined("mul.rn.f32", "float32", "f", np.multiply),
    _joined("add.rn.f64", "float64", "d", np.add, 2),
    Instruction(
        "{ .reg .pred p;\n // larger\n setp.gt.s32 p, $1, $2; selp.s32 $0, $1, $2, p; }", "=r,r,r",
        ("int32", "int32"), ("int32",), lambda a, b: (np.maximum(a, b),)),
    Instruction(
        "{ .reg .pred p; setp.lt.s32 p, $1, $2; mov.b32 $0, 7; @p mov.b32 $0, $2; }", "=&r,r,r",
        ("int32", "int32"), ("int32",), lambda a, b: (np.where(a < b, b, 7).astype(np.int32),)),
    Instruction(
        "add.s32 $0, $2, $3; sub.s32 $1, $2, $3;", "=&r,=r,r,r",
        ("int32", "int32"), ("int32", "int32"), lambda a, b: (a + b, a - b)),
    Instruction(
        "cvt.rn.f32.s32 $0, $2; not.b32 $1, $2;", "=f,=r,r",
        ("int32",), ("float32", "int32"), lambda a: (a.astype(np.float32), ~a)),
    Instruction(
        "prmt.b32 $0, $1, 0, 0x0123;", "=r,r", ("int32",), ("int32",), lambda a: (a.byteswap(),)),
    Instruction(
        "{ .reg .b32 low, high; mov.b64 {low, high}, $1; mov.b64 $0, {high, low}; }", "=l,l",
        ("int64",), ("int64",), lambda a: ((a << 32) | ((a >> 32) & 0xFFFFFFFF),)),
    Instruction(
        "prmt.b32 $0, $4, 0, 0x8880; prmt.b32 $1, $4, 0, 0x9991; "
        "prmt.b32 $2, $4, 0, 0xaaa2; prmt.b32 $3, $4, 0, 0xbbb3;", "=&r,=&r,=&r,=r,r",
        ("int8",), ("int32",), lambda a: (a.astype(np.int32),), 4),
    Instruction(
        "{ .reg .b32 t, u; prmt.b32 t, $1, $2, 0x0040; prmt.b32 u, $3, $4, 0x0040; "
        "prmt.b32 $0, t, u, 0x5410; }", "=r,r,r,r,r",
        ("int32",), ("int8",), lambda a: (a.astype(np.int8),), 4),
)  # fmt: skip


class Tile(NamedTuple):
    """A variable of the kernel, and its values in each program."""

    name: str
    type: str
    values: np.ndarray

    @property
    def shape(self) -> tuple[int, ...]:
        return self.values.shape[1:]


class _Kernel:
    """The lines of a kernel, and its variables."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.rng = np.random.default_rng(seed)
        self.shape = self.random.choice(SHAPES)
        self.lines = ["pid = tl.program_id(0)"]
        self.tiles: list[Tile] = []
        self.inputs: list[np.ndarray] = []
        for _ in range(self.random.randint(1, 3)):
            self._load()
        for _ in range(self.random.randint(2, 9)):
            self.random.choice((self._apply, self._apply, self._repeat, self._branch, self._move))()

    def program(self) -> Program:
        stored = self.tiles[len(self.inputs) :][-8:]
        for i, tile in enumerate(stored):
            self.lines.append(f"tl.store(o{i} + {_offsets(tile.shape)}, {tile.name})")
        names = [f"x{i}" for i in range(len(self.inputs))] + [f"o{i}" for i in range(len(stored))]
        body = "\n".join(f"    {line}" for line in self.lines)
        text = (
            "import tilewright as tw\nimport tilewright.language as tl\n\n\n@tw.jit\n"
            f"def kernel({', '.join(names)}):\n{body}\n"
        )
        results = [np.ascontiguousarray(tile.values).reshape(-1) for tile in stored]
        args = [*self.inputs, *map(np.zeros_like, results)]
        return Program(load(text).kernel, args, grid=(PROGRAMS,), expected=[*self.inputs, *results])

    def _load(self) -> None:
        values = self.rng.integers(-(2**31), 2**31, (PROGRAMS, *self.shape)).astype(np.int32)
        number = len(self.inputs)
        self.inputs.append(values.reshape(-1))
        self._add("int32", f"tl.load(x{number} + {_offsets(self.shape)})", values)

    def _add(self, type: str, text: str, values: np.ndarray) -> Tile:
        tile = Tile(f"v{len(self.tiles)}", type, values.astype(TYPES[type], copy=False))
        self.lines.append(f"{tile.name} = {text}")
        self.tiles.append(tile)
        return tile

    def _operand(self, type: str) -> Tile:
        """A tile of the type and the usual shape; floats are small integers."""
        tile = self.random.choice([t for t in self.tiles if t.shape == self.shape])
        if tile.type == type:
            return tile
        if not type.startswith("float"):
            if tile.type.startswith("float"):
                tile = self.tiles[0]
            return self._add(type, f"{tile.name}.to(tl.{type})", tile.values.astype(TYPES[type]))
        source = tile if not tile.type.startswith("float") else self.tiles[0]
        return self._add(type, f"({source.name} & 15).to(tl.{type})", source.values & 15)

    def _called(self, made: Instruction, operands: list[str]) -> str:
        dtypes = ", ".join(f"tl.{type}" for type in made.gives)
        result = dtypes if len(made.gives) == 1 else f"({dtypes})"
        pure = self.random.random() < 0.6
        return (
            f"tl.inline_asm_elementwise({made.text!r}, {made.registers!r}, "
            f"[{', '.join(operands)}], {result}, {pure}, {made.pack})"
        )

    def _apply(self) -> None:
        """One or several results; an operand may be a number or a scalar."""
        made = self.random.choice(INSTRUCTIONS)
        tiles = [self._operand(type) for type in made.takes]
        operands, values = [t.name for t in tiles], [t.values for t in tiles]
        if made.takes == ("int32", "int32") and self.random.random() < 0.3:
            operands[1], values[1] = "pid", np.arange(PROGRAMS, dtype=np.int32)
            values[1] = values[1].reshape(-1, *[1] * len(self.shape))
        with np.errstate(all="ignore"):
            results = made.meaning(*values)
        call = self._called(made, operands)
        if len(results) == 1:
            self._add(made.gives[0], call, results[0])
            return
        names = [f"v{len(self.tiles) + i}" for i in range(len(results))]
        self.lines.append(f"{', '.join(names)} = {call}")
        self.tiles += map(Tile, names, made.gives, results)

    def _whole(self) -> tuple[Instruction, Tile, Tile]:
        """An instruction whose result has the type of its operands, and these."""
        kinds = [i for i in INSTRUCTIONS if i.takes == i.gives * 2]
        made = self.random.choice(kinds)
        return made, self._operand(made.takes[0]), self._operand(made.takes[0])

    def _repeat(self) -> None:
        """In a loop that carries the result."""
        made, first, second = self._whole()
        trips = self.random.randint(0, 3)
        values = first.values
        with np.errstate(all="ignore"):
            for _ in range(trips):
                (values,) = made.meaning(values, second.values)
        name = f"v{len(self.tiles)}"
        self.lines += [
            f"{name} = {first.name}",
            f"for i in range({trips}):",
            f"    {name} = {self._called(made, [name, second.name])}",
        ]
        self.tiles.append(Tile(name, first.type, values))

    def _branch(self) -> None:
        """In some programs only."""
        made, first, second = self._whole()
        values = first.values.copy()
        with np.errstate(all="ignore"):
            (values[1:],) = made.meaning(first.values[1:], second.values[1:])
        name = f"v{len(self.tiles)}"
        self.lines += [
            f"{name} = {first.name}",
            "if pid > 0:",
            f"    {name} = {self._called(made, [name, second.name])}",
        ]
        self.tiles.append(Tile(name, first.type, values))

    def _move(self) -> None:
        """An operation after which threads hold other elements."""
        tile = self.random.choice([t for t in self.tiles if t.shape == self.shape])
        axis = self.random.randrange(len(self.shape))
        if self.random.random() < 0.5 or tile.type.startswith("float"):
            self._add(tile.type, f"tl.flip({tile.name}, {axis})", np.flip(tile.values, axis + 1))
            return
        text = f"{tile.name} ^ tl.xor_sum({tile.name}, {axis}, keep_dims=True)"
        values = np.bitwise_xor.reduce(tile.values, axis + 1, keepdims=True)
        self._add(tile.type, f"({text}).to(tl.{tile.type})", tile.values ^ values)


def _offsets(shape: tuple[int, ...]) -> str:
    size = prod(shape)
    return f"pid * {size} + tl.reshape(tl.arange(0, {size}), {shape})"


def random_assembly(seed: int) -> Program:
    """The program of a seed."""
    return _Kernel(seed).program()
