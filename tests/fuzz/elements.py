"""Random graphs of elementwise ops: what a back end combines to its rarer instructions.

    graph = random_graph(7)
    module, args = graph.module(graph.roots), graph.args()

A graph is of one focus, such as narrow integers or conversions of floats, so that ops which a back
end combines meet often. Values are tiles or scalars, which processors compute in other registers.
Each result is stored, and many results share a kernel: a launch compiles and runs as long for one.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tests.ir_values import random_array, same_bits
from tilewright.ir.builder import Builder
from tilewright.ir.core import Function, Module, Op, Region, Value
from tilewright.ir.types import (
    BF16,
    FP8E4B8,
    FP8E4NV,
    FP8E5,
    FP8E5B16,
    FP16,
    FP32,
    FP64,
    I1,
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
    DType,
    Pointer,
    Tile,
)
from tilewright.ir.verify import verify_module
from tilewright.ops import arith
from tilewright.ops.control import For, Return, Yield
from tilewright.ops.math import Ceil, Floor, Rint, Trunc
from tilewright.ops.memory import AddPtr, Load, Store
from tilewright.ops.shape import Arange, Splat

INPUTS = 3  # tiles of each type
TRIPS = 3  # of a loop
PREDICATES = ("eq", "ne", "lt", "le", "gt", "ge")
FP8 = (FP8E4NV, FP8E5, FP8E4B8, FP8E5B16)
FOCUSES: dict[str, tuple[DType, ...]] = {
    "bytes": (I8, U8, I8, U8, I16, I32, U32),
    "halves": (I16, U16, I16, U16, I8, I32, FP16),
    "words": (I32, U32, I64, U64, I16, U8),
    "wide": (I64, U64, I32, U32, FP64),
    "halves of floats": (FP16, BF16, FP16, BF16, FP32, I16),
    "conversions": (FP16, BF16, FP32, *FP8, I8, U8, I16, I32, FP64),
    "pairs": (FP16, FP16, FP32, FP32, I16, U16),
    "floats": (FP32, FP32, FP64, FP16, I32, U32),
    "all": (I8, I16, I32, I64, U8, U16, U32, U64, FP16, BF16, FP32, FP64, *FP8),
}

Make = Callable[[Builder, Sequence[Value]], Value]


@dataclass(frozen=True)
class Input:
    """Loads an input."""

    dtype: DType
    number: int
    is_tile: bool

    def __call__(self, build: Builder, operands: Sequence[Value]) -> Value:
        raise AssertionError("inputs are loaded by the kernel")


@dataclass(frozen=True)
class Node:
    """A value of a graph.

    Attributes:
        make: builds it of its operands, tiles if it is one.
        operands: their numbers.
        is_tile: whether it is a tile; a scalar, if not.
    """

    make: Make
    operands: tuple[int, ...]
    dtype: DType
    is_tile: bool


@dataclass(frozen=True)
class Loop:
    """A loop over consecutive values.

    Attributes:
        first, last: the numbers of the values: the body is up to and without `last`.
        carried: the first of them, which it carries, by their first and their next values.
    """

    first: int
    last: int
    carried: tuple[tuple[int, int], ...]


@dataclass
class Graph:
    """Values, of which later ones are computed from earlier ones.

    Attributes:
        extent: of tiles.
        roots: the numbers of those that are stored.
    """

    seed: int
    extent: int
    types: tuple[DType, ...]
    nodes: list[Node] = field(default_factory=list[Node])
    roots: list[int] = field(default_factory=list[int])
    loop: Loop | None = None

    def args(self) -> list[Any]:
        """For each type the inputs, and room for the results; then numbers."""
        rng = np.random.default_rng(self.seed)
        found: list[Any] = []
        for dtype in self.types:
            found.append(_content(INPUTS * self.extent, dtype, rng))
            found.append(np.zeros(max(1, len(self.roots)) * self.extent, dtype.numpy))
        numbers = [_content(1, t, rng)[0] for t in self.types if t not in FP8 for _ in range(2)]
        return [*found, *numbers, np.int32(TRIPS)]

    def wrong(self, found: Sequence[Any], expected: Sequence[Any]) -> list[int]:
        """The roots of which the arguments after a launch hold other results than expected."""
        return [
            number
            for slot, number in enumerate(self.roots)
            if not same_bits(self._stored(found, slot), self._stored(expected, slot))
        ]

    def _stored(self, args: Sequence[Any], slot: int) -> np.ndarray:
        place = 2 * self.types.index(self.stored_type(self.roots[slot])) + 1
        return args[place][slot * self.extent : (slot + 1) * self.extent]

    def stored_type(self, number: int) -> DType:
        """The type in which a value is stored: no array has truth values."""
        dtype = self.nodes[number].dtype
        return self.types[0] if dtype is I1 else dtype

    def module(self, roots: Sequence[int]) -> Module:
        """A verified kernel that computes and stores these."""
        pointers = [Pointer(t) for t in self.types for _ in range(2)]
        numbers = [t for t in self.types if t not in FP8 for _ in range(2)]
        fn = Function("kernel", [*pointers, *numbers, I32])
        for number in range(len(pointers)):
            fn.arg_attrs[number]["divisibility"] = 16
        build = Builder()
        with build.at_end(fn.body):
            _Kernel(self, build, fn).store(roots)
            build.insert(Return([]))
        module = Module([fn])
        verify_module(module)
        return module


def _content(length: int, dtype: DType, rng: np.random.Generator) -> np.ndarray:
    """Numbers of all kinds, a half of them any bits."""
    found = random_array(Tile((length,), dtype), rng)
    bits = np.frombuffer(rng.bytes(found.nbytes), np.uint8).view(found.dtype)
    return np.where(rng.random(length) < 0.5, bits, found)


class _Kernel:
    """Builds a graph in a function."""

    def __init__(self, graph: Graph, build: Builder, fn: Function) -> None:
        self.graph, self.build, self.trips = graph, build, fn.args[-1]
        count = 2 * len(graph.types)
        pairs = zip(fn.args[:count:2], fn.args[1:count:2], strict=True)
        self.arrays = dict(zip(graph.types, pairs, strict=True))
        self.numbers = fn.args[count:-1]
        self.values: dict[int, Value] = {}
        self.places = build.value(Arange(0, graph.extent))

    def store(self, roots: Sequence[int]) -> None:
        graph = self.graph
        needed = _needed(graph, roots)
        body = range(graph.loop.first, graph.loop.last) if graph.loop is not None else range(0)
        for number in range(len(graph.nodes)):
            if graph.loop is not None and number == graph.loop.first:
                self._loop(graph.loop, needed)
            elif number in needed and number not in body:
                self._compute(number)
        for slot, number in enumerate(graph.roots):
            if number in roots:
                self._save(number, slot)

    def _compute(self, number: int) -> None:
        node = self.graph.nodes[number]
        if isinstance(node.make, Input):
            self.values[number] = self._input(node.make)
            return
        operands = [self._operand(i, node.is_tile) for i in node.operands]
        self.values[number] = node.make(self.build, operands)

    def _operand(self, number: int, is_tile: bool) -> Value:
        value = self.values[number]
        if is_tile and not self.graph.nodes[number].is_tile:
            return self.build.value(Splat(value, (self.graph.extent,)))
        return value

    def _input(self, source: Input) -> Value:
        """A tile is loaded, a number is an argument, if there are arguments of its type."""
        if not source.is_tile and source.dtype not in FP8:
            return [x for x in self.numbers if x.type is source.dtype][source.number % 2]
        array = self.arrays[source.dtype][0]
        place = self._tile if source.is_tile else self._first
        pointer = place(array, source.number)
        return self.build.value(Load(pointer, None, None, "", "", False))

    def _first(self, array: Value, slot: int) -> Value:
        """The address of the first element of a tile in an array."""
        start = self.build.value(arith.Constant(slot * self.graph.extent, I32))
        return self.build.value(AddPtr(array, start))

    def _tile(self, array: Value, slot: int) -> Value:
        """The addresses of all of them."""
        many = self.build.value(Splat(self._first(array, slot), (self.graph.extent,)))
        return self.build.value(AddPtr(many, self.places))

    def _save(self, number: int, slot: int) -> None:
        value, dtype = self._operand(number, True), self.graph.stored_type(number)
        if self.graph.nodes[number].dtype is not dtype:
            value = self.build.value(arith.Cast(value, dtype, "rtne"))
        pointer = self._tile(self.arrays[dtype][1], slot)
        self.build.insert(Store(pointer, value, None, "", ""))

    def _loop(self, loop: Loop, needed: set[int]) -> None:
        build, nodes = self.build, self.graph.nodes
        kept = [i for i in range(len(loop.carried)) if loop.first + i in needed]
        if not kept:
            return
        inits = [self._operand(loop.carried[i][0], nodes[loop.first + i].is_tile) for i in kept]
        body = Region([I32, *(v.type for v in inits)])
        outside = dict(self.values)
        with build.at_end(body):
            for i, arg in zip(kept, body.args[1:], strict=True):
                self.values[loop.first + i] = arg
            for number in range(loop.first + len(loop.carried), loop.last):
                if number in needed:
                    self._compute(number)
            following = [
                self._operand(loop.carried[i][1], nodes[loop.first + i].is_tile) for i in kept
            ]
            build.insert(Yield(following))
        self.values = outside
        none, one = (build.value(arith.Constant(n, I32)) for n in (0, 1))
        found = build.insert(For(none, self.trips, one, inits, 0, 0, (), body))
        for i, result in zip(kept, found.results, strict=True):
            self.values[loop.first + i] = result


def _needed(graph: Graph, roots: Iterable[int]) -> set[int]:
    """The numbers of what these are computed from."""
    needed: set[int] = set()
    pending = [*roots]
    while pending:
        number = pending.pop()
        if number in needed:
            continue
        needed.add(number)
        pending += graph.nodes[number].operands
        loop = graph.loop
        if loop is not None and loop.first <= number < loop.first + len(loop.carried):
            pending += loop.carried[number - loop.first]
    return needed


# -- drawing --------------------------------------------------------------------------------------


def random_graph(seed: int) -> Graph:
    """The graph of a seed."""
    rng = random.Random(seed)
    types = FOCUSES[rng.choice([*FOCUSES])]
    graph = Graph(seed, rng.choice((64, 64, 128, 256)), tuple(dict.fromkeys(types)))
    _Draw(graph, rng, types).all(rng.choice((10, 20, 40)))
    return graph


class _Draw:
    def __init__(self, graph: Graph, rng: random.Random, types: tuple[DType, ...]) -> None:
        self.graph, self.rng, self.types = graph, rng, types
        self.hidden = range(0)  # values of a loop's body, behind it
        self.scalars = rng.choice((0.0, 0.15, 0.6))
        self.near = rng.choice((0, 0, 4))  # whether operands are of the last few values

    def all(self, size: int) -> None:
        for dtype in self.graph.types:
            for number in range(INPUTS):
                self.add(Input(dtype, number, True), (), dtype, True)
            for number in range(2):
                self.add(Input(dtype, number, False), (), dtype, False)
        for _ in range(size):
            self.step()
        if self.rng.random() < 0.5:
            self.loop()
            for _ in range(size // 2):
                self.step()
        self.graph.roots = [*self.roots()]

    def roots(self) -> Iterable[int]:
        """The values that nothing uses, and some others."""
        used = {i for n in self.graph.nodes for i in n.operands}
        if self.graph.loop is not None:
            used |= {i for pair in self.graph.loop.carried for i in pair}
        for number, node in enumerate(self.graph.nodes):
            computed = number not in self.hidden and not isinstance(node.make, Input)
            if computed and (number not in used or self.rng.random() < 0.15):
                yield number

    def add(self, make: Make, operands: tuple[int, ...], dtype: DType, is_tile: bool) -> int:
        self.graph.nodes.append(Node(make, operands, dtype, is_tile))
        return len(self.graph.nodes) - 1

    def loop(self) -> None:
        """Values that a loop carries, and what it makes of them."""
        graph = self.graph
        inits = [self.pick() for _ in range(self.rng.randint(1, 4))]
        first = len(graph.nodes)
        for init in inits:
            node = graph.nodes[init]
            self.add(node.make, (), node.dtype, True)
        for _ in range(self.rng.randint(2, 10)):
            self.step()
        following = [self.value(graph.nodes[init].dtype) for init in inits]
        last = len(graph.nodes)
        graph.loop = Loop(first, last, tuple(zip(inits, following, strict=True)))
        self.hidden = range(first + len(inits), last)

    # -- operands ---------------------------------------------------------------------------------

    def pick(self, fits: Callable[[Node], bool] = lambda n: True) -> int:
        """A value that fits, later ones rather than earlier ones."""
        options = [i for i, n in enumerate(self.graph.nodes) if i not in self.hidden and fits(n)]
        if not options:
            return self.constant(self.rng.choice(self.types))
        if self.near and self.rng.random() < 0.7:
            return self.rng.choice(options[-self.near :])
        return max(self.rng.choice(options), self.rng.choice(options))

    def value(self, dtype: DType) -> int:
        """A value of the type."""
        if self.rng.random() < 0.15:
            return self.constant(dtype)
        if self.rng.random() < 0.75:
            found = self.pick(lambda n: n.dtype is dtype)
            if self.graph.nodes[found].dtype is dtype:
                return found
        if dtype is I1:
            a = self.pick(lambda n: n.dtype is not I1 and n.dtype not in FP8)
            return self.op(arith.Cmp, (a, self.value(self.graph.nodes[a].dtype)), I1,
                           self.rng.choice(PREDICATES))  # fmt: skip
        return self.cast(self.pick(lambda n: n.dtype is not dtype), dtype)

    def constant(self, dtype: DType) -> int:
        return self.add(_Made(_constant, (self._number(dtype), dtype)), (), dtype, False)

    def _number(self, dtype: DType) -> Any:
        rng = self.rng
        if dtype is I1:
            return rng.random() < 0.5
        if dtype.is_int():
            bits = dtype.primitive_bitwidth
            low, high = dtype.get_int_min_value(), dtype.get_int_max_value()
            value = rng.choice((
                rng.randint(0, bits), 1 << rng.randrange(bits), (1 << rng.randrange(bits)) - 1,
                rng.randint(low, high), -rng.randint(1, 10), 255, 0xFF00, 65535, 0xFF00FF,
                0xFFFFFF, 24, 8, 16,
            ))  # fmt: skip
            return (value - low) % (1 << bits) + low
        return rng.choice((0.0, -0.0, 1.0, -1.0, 0.5, 2.0, 3.0, -4.0, 0.25))

    def op(self, cls: Any, operands: tuple[int, ...], dtype: DType, *attrs: Any) -> int:
        is_tile = any(self.graph.nodes[i].is_tile for i in operands)
        return self.add(_Made(_op, (cls, *attrs)), operands, dtype, is_tile)

    def cast(self, src: int, dtype: DType) -> int:
        return self.op(arith.Cast, (src,), dtype, dtype, "rtne")

    # -- ops --------------------------------------------------------------------------------------

    def step(self) -> None:
        dtype = self.rng.choice(self.types)
        roll = self.rng.random()
        if roll < 0.18 or dtype in FP8:
            src = self.pick()
            narrows = (
                self.graph.nodes[src].dtype.is_floating() and dtype.is_floating()
                and dtype.primitive_bitwidth < self.graph.nodes[src].dtype.primitive_bitwidth
            )  # fmt: skip
            mode = "rtz" if narrows and self.rng.random() < 0.2 else "rtne"
            self.op(arith.Cast, (src,), dtype, dtype, mode)
        elif roll < 0.28:
            a, b = self.value(dtype), self.value(dtype)
            self.op(arith.Cmp, (a, b), I1, self.rng.choice(PREDICATES))
        elif roll < 0.38:
            self.op(arith.Select, (self.value(I1), self.value(dtype), self.value(dtype)), dtype)
        elif roll < 0.42:
            a, b = self.value(I1), self.value(I1)
            self.op(self.rng.choice((arith.And, arith.Or, arith.Xor)), (a, b), I1)
        elif roll < 0.46:
            self.chosen(dtype)
        elif roll < 0.5:
            self.bitcast(dtype)
        elif dtype.is_int():
            self.integer(dtype)
        else:
            self.float(dtype)

    def chosen(self, dtype: DType) -> None:
        """One of two values by a comparison of both, as extrema are written."""
        a = self.value(dtype)
        b = self.constant(dtype) if self.rng.random() < 0.6 else self.value(dtype)
        test = self.op(arith.Cmp, (a, b), I1, self.rng.choice(PREDICATES))
        pair = (a, b) if self.rng.random() < 0.5 else (b, a)
        self.op(arith.Select, (test, *pair), dtype)

    def bitcast(self, dtype: DType) -> None:
        """Of floats that are no NaN, whose bits are not determined."""
        src = self.pick(lambda n: n.dtype is not I1
                        and n.dtype.primitive_bitwidth == dtype.primitive_bitwidth)  # fmt: skip
        source = self.graph.nodes[src].dtype
        if source.primitive_bitwidth != dtype.primitive_bitwidth or source in FP8:
            return
        if source.is_floating():
            number = self.op(arith.Cmp, (src, src), I1, "eq")
            src = self.op(arith.Select, (number, src, self.constant(source)), source)
        self.op(arith.Bitcast, (src,), dtype, dtype)

    def integer(self, dtype: DType) -> None:
        rng = self.rng
        a = self.value(dtype)
        roll = rng.random()
        if roll < 0.1:
            self.op(rng.choice((arith.Neg, arith.Abs)), (a,), dtype)
        elif roll < 0.3:
            bits = dtype.primitive_bitwidth
            count = rng.choice((8, 16, 24, rng.randrange(bits))) % bits
            by = self.add(_Made(_constant, (count, dtype)), (), dtype, False)
            if rng.random() < 0.2:
                by = self.value(dtype)
            self.op(rng.choice((arith.Shl, arith.Shr)), (a, by), dtype)
        elif roll < 0.38:
            by = self.value(dtype) if rng.random() < 0.3 else self.constant(dtype)
            self.op(rng.choice((arith.IntDiv, arith.Rem)), (a, by), dtype)
        elif roll < 0.5:
            self.op(rng.choice((arith.Min, arith.Max)), (a, self.value(dtype)), dtype, False)
        elif roll < 0.55 and dtype.primitive_bitwidth >= 32:
            self.op(arith.MulHi, (a, self.value(dtype)), dtype)
        else:
            options = (arith.Add, arith.Sub, arith.Mul, arith.And, arith.Or, arith.Or, arith.Xor)
            self.op(rng.choice(options), (a, self.value(dtype)), dtype)

    def float(self, dtype: DType) -> None:
        rng = self.rng
        a = self.value(dtype)
        roll = rng.random()
        if roll < 0.2:
            self.op(rng.choice((arith.Neg, arith.Abs)), (a,), dtype)
        elif roll < 0.3 and dtype in (FP32, FP64):
            self.op(rng.choice((Floor, Ceil, Rint, Trunc)), (a,), dtype)
        elif roll < 0.45:
            self.op(arith.Fma, (a, self.value(dtype), self.value(dtype)), dtype)
        elif roll < 0.6:
            propagates = rng.random() < 0.5
            self.op(rng.choice((arith.Min, arith.Max)), (a, self.value(dtype)), dtype, propagates)
        elif roll < 0.64:
            self.op(arith.Div, (a, self.value(dtype)), dtype, True)
        else:
            options = (arith.Add, arith.Sub, arith.Mul)
            self.op(rng.choice(options), (a, self.value(dtype)), dtype)


@dataclass(frozen=True)
class _Made:
    """Makes a value with what is known."""

    how: Callable[..., Op]
    known: tuple[Any, ...]

    def __call__(self, build: Builder, operands: Sequence[Value]) -> Value:
        return build.value(self.how(self.known, operands))


def _constant(known: tuple[Any, ...], operands: Sequence[Value]) -> Op:
    return arith.Constant(*known)


def _op(known: tuple[Any, ...], operands: Sequence[Value]) -> Op:
    cls, *attrs = known
    return cls(*operands, *attrs)


# -- smaller --------------------------------------------------------------------------------------


def shrunk(graph: Graph, fails: Callable[[Graph], object]) -> Graph:
    """A graph of few values that fails, too."""
    for number in reversed(range(len(graph.nodes))):
        if number not in _needed(graph, graph.roots) or number in graph.roots:
            continue
        for other in _simpler(graph, number):
            nodes = [*graph.nodes[:number], other, *graph.nodes[number + 1 :]]
            tried = replace(graph, nodes=nodes)
            if fails(tried):
                graph = tried
                break
    return graph


def _simpler(graph: Graph, number: int) -> Iterable[Node]:
    """Inputs in place of a value, or one of its operands."""
    node, loop = graph.nodes[number], graph.loop
    carried = loop is not None and loop.first <= number < loop.first + len(loop.carried)
    if carried or isinstance(node.make, Input):
        return
    if node.dtype in graph.types:
        for k in range(INPUTS):
            yield Node(Input(node.dtype, k, node.is_tile), (), node.dtype, node.is_tile)
    for i in node.operands:
        same = graph.nodes[i]
        in_loop = loop is not None and loop.first <= i < loop.last
        if same.dtype is node.dtype and same.is_tile == node.is_tile and not in_loop:
            yield same
