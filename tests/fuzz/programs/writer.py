"""Writes functions of random programs: scopes, lines, and the choice of what to write.

The productions, functions that write an expression or a statement, are in the other files of this
folder. Each registers itself:

    @expression(3)                                  # chosen three times as often as one with 1
    def minimum(w: Writer, shape: Shape, depth: int) -> Value | None:

returns an expression of the shape, of any type, or None where it does not fit. Its operands are
drawn from the writer (`value`, `typed`, `integer`), at random, `depth` levels deep at most.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import prod
from typing import Any, TypeVar

from tests.fuzz.programs.kinds import (
    ALL,
    INTEGERS,
    NUMBERS,
    Kind,
    Number,
    Parts,
    Shape,
    Thing,
    Value,
    text_of,
    tl,
)
from tilewright.ir.types import FP8E4B15, FP16, FP32, I1, I32, I64, DType

T = TypeVar("T")

Expression = Callable[["Writer", Shape, int], Value | None]
Statement = Callable[["Writer"], bool]

EXPRESSIONS: list[Expression] = []
STATEMENTS: list[Statement] = []

EVEN: tuple[Shape, ...] = (
    (), (), (), (1,), (4,), (8,), (16,), (16,), (32,), (64,), (4, 8), (8, 4), (1, 8), (8, 1),
    (4, 16), (16, 8), (2, 4, 8),
)  # fmt: skip
UNEVEN: tuple[Shape, ...] = (
    (3,), (12,), (24,), (48,), (3, 4), (6, 8), (5, 3), (8, 12), (1, 12), (3, 2, 5),
    (17,), (72,), (8, 9), (9, 16), (17, 8), (16, 15), (3, 3, 8), (2, 12, 5),
)  # fmt: skip
LARGE: tuple[Shape, ...] = (
    (), (8,), (512,), (1024,), (1000,), (32, 32), (16, 64), (31, 33),
    (3, 127), (255,), (7, 9, 11), (2, 2, 129),
)  # fmt: skip
DEEP: tuple[Shape, ...] = (
    (), (), (8,), (1, 1), (1, 1, 1), (2, 1, 4, 1), (2, 2, 2, 2), (1, 64, 1), (4, 1, 1, 8),
    (2, 3, 1, 5), (2, 2, 1, 2, 4), (1, 256), (256, 1), (256,), (2, 128), (128, 2),
)  # fmt: skip
LARGEST = 256  # elements of a tile that is kept, but in programs of large tiles
DEEPEST = 3  # levels of an expression


def _add(to: list[Any], made: Any, weight: int) -> None:
    """In an order that does not depend on which file is imported first, as a seed's program must
    not."""
    to.extend([made] * weight)
    to.sort(key=lambda f: (f.__module__, f.__name__))


def expression(weight: int) -> Callable[[Expression], Expression]:
    """Register a production."""

    def register(made: Expression) -> Expression:
        _add(EXPRESSIONS, made, weight)
        return made

    return register


def statement(weight: int) -> Callable[[Statement], Statement]:
    """Register a production, which returns whether it wrote anything."""

    def register(made: Statement) -> Statement:
        _add(STATEMENTS, made, weight)
        return made

    return register


MARKS = (
    "empty grid", "large tiles", "deep tiles", "pointers: computed",
    "products: chained", "products: of the accumulator", "products: exchanged",
    "products: read within", "products: large", "store: not row by row",
    "promises about places", "while: true", "while: large steps, left in the body",
    "loads: selected by their mask",
    "repeated: lines", "repeated: unrolled", "repeated: loop",
    "rounds: 64", "exchanges: bitonic", "exchanges: shifts", "exchanges: butterfly",
    "mask: never", "mask: always", "mask: bound of the run time", "mask: of one axis",
    "mask: modulo", "mask: unsigned", "mask: of one scalar", "mask: constant bound",
    "range: near the largest index", "range: near the least index", "range: literal step",
    "range: negative step", "range: step of the run time", "range: large step",
    "range: no index", "range: left early", "branch: none before",
)  # fmt: skip


def mark(w: Writer, name: str) -> None:
    """Count what is written here among the classes that the program reaches."""
    assert name in MARKS, name
    w.book.reached.add(name)


@dataclass
class Array:
    """An array that the kernel is given."""

    name: str
    dtype: DType
    slot: int = 0  # the first that nothing has been stored to
    alias: str = ""  # another argument that begins within its memory
    shift: int = 0  # and by how many elements it begins later


@dataclass
class Helper:
    """A function of the program that is complete.

    Attributes:
        array: of what array it takes a pointer, as its last argument; None if of none. Then it
            touches no memory.
    """

    name: str
    params: tuple[Kind, ...]
    names: tuple[str, ...]
    results: tuple[Kind, ...]
    array: DType | None


@dataclass
class Book:
    """What the functions of a program share.

    Attributes:
        text: lines of the module before the kernel.
        arrays: the kernel's, to load from anywhere and to store to in own slots.
        counters: arrays for atomics alone, each with the one kind that is used on it.
        shapes: what tiles are like.
        largest: elements of a tile that is kept, and of a slot.
        reached: productions, and marked variants of them, that the program is made of.
    """

    random: random.Random
    shapes: tuple[Shape, ...] = EVEN
    text: list[str] = field(default_factory=list[str])
    arrays: list[Array] = field(default_factory=list[Array])
    counters: list[tuple[Array, str]] = field(default_factory=list[tuple[Array, str]])
    helpers: list[Helper] = field(default_factory=list[Helper])
    classes: list[Parts] = field(default_factory=list[Parts])
    largest: int = LARGEST
    reached: set[str] = field(default_factory=set[str])
    count: int = 0

    def name(self, prefix: str) -> str:
        self.count += 1
        return f"{prefix}{self.count}"


class Writer:
    """Writes the body of one function.

    Attributes:
        pure: the function runs for single elements, and touches no memory.
        loops: how many loops there are around.
        nested: how many blocks.
        bind: whether an expression may give a name to a part of it.
        pending: the names that it gave so far.
        leave: how the innermost loop may be left; "" outside of loops.
        unrolled: whether a loop around is unrolled.
        arrays: those that the function is given.
        returns: of a function, the kinds of what it returns; None of a kernel.
    """

    def __init__(self, book: Book, *, pure: bool = False, level: int = 0) -> None:
        self.book = book
        self.random = book.random
        self.pure = pure
        self.level = level
        self.lines: list[str] = []
        self.scopes: list[dict[str, Thing]] = [{}]
        self.loops = 0
        self.nested = 0
        self.bind = False
        self.pending: dict[str, Kind] = {}
        self.leave = False
        self.unrolled = False
        self.returns: tuple[Kind, ...] | None = None
        self.arrays: list[Array] = []
        self.is_kernel = False

    @property
    def is_uneven(self) -> bool:
        return self.book.shapes is not EVEN

    # -- choice -------------------------------------------------------------------------------

    def below(self, n: int) -> int:
        return self.random.randrange(n)

    def one_in(self, n: int) -> bool:
        return self.random.randrange(n) == 0

    def choose(self, options: Sequence[T]) -> T:
        return self.random.choice(options)

    def shape(self) -> Shape:
        return () if self.pure else self.choose(self.book.shapes)

    def constant(self, dtype: DType) -> int | float | bool:
        """A number that the type can hold: mostly small."""
        if dtype.is_bool():
            return self.one_in(2)
        if dtype.is_floating():
            return self.choose((0.0, 1.0, -1.0, 0.5, 2.0, -3.0, 1.25, 7.0, -0.0, 100.0))
        low, high = dtype.get_int_min_value(), dtype.get_int_max_value()
        if self.one_in(6):
            return self.choose((low, high, high // 3, low // 5))
        return max(low, min(high, self.random.randint(-4, 12)))

    # -- names --------------------------------------------------------------------------------

    def emit(self, text: str) -> None:
        self.lines.append("    " * (self.nested + 1) + text)
        for name in [n for n in self.pending if f"({n} := " in text]:
            self.scopes[-1][name] = self.pending.pop(name)

    def define(self, thing: Thing, prefix: str = "v") -> str:
        """A new name in the innermost scope."""
        name = self.book.name(prefix)
        self.scopes[-1][name] = thing
        return name

    def things(self) -> Iterator[tuple[str, Thing]]:
        for scope in self.scopes:
            yield from scope.items()

    def kinds(self) -> list[tuple[str, Kind]]:
        return [(n, t) for n, t in self.things() if isinstance(t, Kind)]

    def numbers(self) -> list[tuple[str, Number]]:
        return [(n, t) for n, t in self.things() if isinstance(t, Number)]

    def mutable(self) -> list[tuple[str, Thing]]:
        """Names that may get another value of the same kind."""
        return [(n, t) for n, t in self.things() if isinstance(t, Kind | Parts) and n[0] == "v"]

    @contextmanager
    def block(self) -> Generator[None]:
        """A block of statements, whose names end with it."""
        self.scopes.append({})
        self.nested += 1
        start = len(self.lines)
        yield
        if len(self.lines) == start:
            self.emit("pass")
        self.nested -= 1
        self.scopes.pop()

    def statements(self, count: int) -> None:
        for _ in range(count):
            for _ in range(6):
                self.pending.clear()
                made = self.choose(STATEMENTS)
                if made(self):
                    self.book.reached.add(made.__name__)
                    break

    # -- expressions --------------------------------------------------------------------------

    def value(self, shape: Shape, depth: int = DEEPEST) -> Value:
        """An expression of the shape, of any type."""
        if depth > 0 and not self.one_in(5):
            for _ in range(6):
                production = self.choose(EXPRESSIONS)
                made = production(self, shape, depth - 1)
                if made is not None:
                    self.book.reached.add(production.__name__)
                    return made
        return self.leaf(shape)

    def leaf(self, shape: Shape) -> Value:
        near = [Value(n, k.dtype) for n, k in self.kinds() if k.shape == shape]
        if near and not self.one_in(6):
            return self.choose(near[-12:])
        if len(shape) == 1 and self.one_in(2):
            start = self.choose((0, 0, 1, 16))
            return Value(f"tl.arange({start}, {start + shape[0]})", I32)
        return self.full(shape, self.choose(ALL if self.one_in(3) else NUMBERS))

    def leaf_of_integers(self) -> str:
        """An integer scalar of the run time, of the width of offsets."""
        found = [n for n, k in self.kinds() if not k.shape and k.dtype in (I32, I64)]
        return self.choose(found[-12:]) if found else str(self.below(40))

    def full(self, shape: Shape, dtype: DType) -> Value:
        if dtype.is_fp8() or self.one_in(3):
            number = self.constant(FP32 if dtype.is_floating() else dtype)
            return Value(f"tl.full({shape}, {text_of(number)}, {tl(dtype)})", dtype)
        return Value(f"tl.full({shape}, {text_of(self.constant(dtype))}, {tl(dtype)})", dtype)

    def cast(self, value: Value, dtype: DType) -> str:
        """The value in another type, by whatever steps the language has."""
        text, source = value
        if source is dtype:
            return text
        for a, b in ((source, dtype), (dtype, source)):
            # fp8 converts to floats alone, and one kind to few of them
            if a.is_fp8() and (not b.is_floating() or (a is FP8E4B15 and b not in (FP16, FP32))):
                return f"{text}.to(tl.float32){'' if dtype is FP32 else f'.to({tl(dtype)})'}"
        if self.one_in(8):
            return f"tl.cast({text}, {tl(dtype)})"
        return f"{text}.to({tl(dtype)})"

    def among(self, dtypes: Sequence[DType], shape: Shape, depth: int) -> Value:
        """An expression of the shape whose type is one of these."""
        value = self.value(shape, depth)
        if value.dtype in dtypes:
            return value
        dtype = self.choose(dtypes)
        return Value(self.cast(value, dtype), dtype)

    def typed(self, dtype: DType, shape: Shape, depth: int = DEEPEST) -> str:
        return self.cast(self.value(shape, depth), dtype)

    def of(self, kind: Kind, depth: int = DEEPEST) -> str:
        return self.typed(kind.dtype, kind.shape, depth)

    def integer(self, shape: Shape, depth: int) -> Value:
        return self.among(INTEGERS, shape, depth)

    def condition(self, depth: int = 1) -> str:
        """A scalar that is true or false at run time."""
        return self.typed(I1, (), depth)

    def index(self, shape: Shape, limit: int, depth: int = 1) -> str:
        """int32 from 0 to the limit, exclusive, out of data."""
        if limit & (limit - 1) == 0:
            return f"({self.typed(I32, shape, depth)} & {limit - 1})"
        unsigned = f"{self.typed(I32, shape, depth)}.to(tl.uint32, bitcast=True)"
        return f"({unsigned} % {limit}).to(tl.int32)"

    def whole(self, dtype: DType, shape: Shape, mask: int = 3, depth: int = 1) -> str:
        """Small whole numbers from 0 on: sums and products of few of them are exact in any
        order, and none is NaN or a negative zero."""
        text = f"({self.typed(I32, shape, depth)} & {mask})"
        return self.cast(Value(text, I32), dtype)

    def offsets(self, shape: Shape) -> str:
        """The numbers from 0 on in row-major order."""
        if not shape:
            return "0"
        if len(shape) == 1:
            return f"tl.arange(0, {shape[0]})"
        if self.one_in(3):
            return f"tl.arange(0, {prod(shape)}).reshape{shape}"
        terms: list[str] = []
        for axis, extent in enumerate(shape):
            index = ", ".join(":" if a == axis else "None" for a in range(len(shape)))
            stride = prod(shape[axis + 1 :])
            terms.append(
                f"tl.arange(0, {extent})[{index}]" + (f" * {stride}" if stride > 1 else "")
            )
        return f"({' + '.join(terms)})"
