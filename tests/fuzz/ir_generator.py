"""Random valid tile IR, from a seed: kernels that stay within their arrays and end.

    rng = np.random.default_rng(seed)
    module = random_module(rng, size=30)
    args = random_args(module, rng)
    interpret(module, GRID, args)

A kernel takes pointers to arrays of `LENGTH` elements and some scalars. It loads from anywhere in
the first half of an array, and each program stores only in its own `REGION` of the second half,
from which it loads, too. So the outcome does not depend on the order of the programs. At the end
it stores what it computed and did not use, so most of it matters.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from tests.fuzz.ir_loops import counted_loop, pointer_loop
from tests.fuzz.ir_moves import chained, factored, gathered, moved
from tests.ir_values import random_array
from tilewright.ir.builder import Builder
from tilewright.ir.core import Function, Module, Op, Region, Value
from tilewright.ir.types import (
    BF16,
    FP8E4NV,
    FP8E5,
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
    Scalar,
    Tile,
    Type,
    dtype_of,
    element_of,
    is_float,
    is_int,
    shape_of,
    with_element,
    with_shape,
)
from tilewright.ops.arith import (
    PREDICATES,
    Abs,
    Add,
    And,
    Cast,
    Cmp,
    Constant,
    Div,
    Fma,
    IntDiv,
    Max,
    Min,
    Mul,
    MulHi,
    Neg,
    Or,
    Rem,
    Select,
    Shl,
    Shr,
    Sub,
    Xor,
)
from tilewright.ops.control import Barrier, Condition, For, If, ProgramId, Return, While, Yield
from tilewright.ops.dot import Dot
from tilewright.ops.histogram import Histogram
from tilewright.ops.map import Map
from tilewright.ops.math import ROUNDINGS, Cos, Exp, Sqrt, Tanh
from tilewright.ops.memory import AddPtr, Load, Store
from tilewright.ops.reduce import Reduce, Scan
from tilewright.ops.shape import (
    Arange,
    Broadcast,
    Cat,
    ExpandDims,
    Flip,
    Join,
    Permute,
    Reshape,
    Splat,
    Split,
)
from tilewright.ops.sort import Sort

GRID = 2
REGION = 8192  # elements that one program may write
SLOT = 256  # elements of one store
SLOTS = REGION // SLOT
READABLE = GRID * REGION  # elements that all programs load from and none stores to
LENGTH = 2 * READABLE
ARRAYS, SCALARS = 5, 5  # arguments; behind them are those that point into the first arrays,
SHIFTS = (READABLE, 17)  # so many elements behind their first

INTEGERS = (I8, I16, I32, I64, U8, U16, U32, U64)
FLOATS = (FP16, BF16, FP32, FP64)
ARITHMETIC = (*INTEGERS, *FLOATS)
STORED = (*ARITHMETIC, FP8E4NV, FP8E5)
SHAPES: tuple[tuple[int, ...], ...] = (
    (), (), (1,), (4,), (8,), (16,), (32,), (4, 8), (8, 4), (1, 8), (8, 1), (4, 4), (2, 4, 4),
)  # fmt: skip
UNEVEN: tuple[tuple[int, ...], ...] = (
    (3,), (12,), (15,), (30,), (3, 4), (4, 3), (3, 5), (5, 3), (2, 6), (1, 12), (2, 3, 5),
    (72,), (8, 9), (9, 16), (17, 8), (8, 3, 3),
)  # fmt: skip


@dataclass(frozen=True)
class Features:
    """What random kernels may contain.

    Attributes:
        math: elementary functions, whose last bits are a target's choice.
        float_dot: products of float tiles, whose order of summation is.
        float_sums: sums and products along an axis of float tiles, whose order is, too.
        extremes: integer constants of any size; without, from 0 to 7.
        dots: products of tiles.
        races: stores whose threads may meet, on targets with threads: at addresses that come from
            data, and without a barrier on both sides.
        uneven: tiles with extents that are no powers of two.
        aliases: arguments that point into other arguments' memory.
    """

    math: bool = True
    float_dot: bool = False
    float_sums: bool = True
    extremes: bool = True
    dots: bool = True
    races: bool = True
    uneven: bool = True
    aliases: bool = True


def random_module(rng: np.random.Generator, size: int, features: Features | None = None) -> Module:
    """A verified kernel of about `size` ops besides those that these need."""
    return Generator(rng, features or Features()).module(size)


def random_args(module: Module, rng: np.random.Generator) -> list[Any]:
    """Arguments for a kernel of `random_module`: fresh arrays and numbers."""
    found: list[Any] = []
    for arg in module.entry.args:
        if not isinstance(arg.type, Pointer):
            found.append(random_array(arg.type, rng))
        elif arg.index < ARRAYS:
            found.append(random_array(Tile((LENGTH,), arg.type.element_ty), rng))
        else:
            aliased = arg.index - ARRAYS - SCALARS
            found.append(found[aliased][SHIFTS[aliased] :])
    return found


class Generator:
    integers = INTEGERS
    arithmetic = ARITHMETIC
    readable = READABLE

    def __init__(self, rng: np.random.Generator, features: Features) -> None:
        self.rng = rng
        self.features = features
        # Half of the kernels have extents of any kind.
        uneven = features.uneven and int(rng.integers(0, 2)) == 1
        self.shapes = (*SHAPES, *UNEVEN) if uneven else SHAPES
        self.extents = (4, 8, 3, 12, 5) if uneven else (4, 8)
        self.build = Builder()
        self.pool: list[Value] = []  # values that may be used here
        self.depth = 0
        self.slot = 0
        self.own: set[Value] = set()  # pointers into the program's own region
        self.arrays: list[Value] = []
        self.aliases: dict[Value, Value] = {}  # by array, an argument that points into it
        self.program: Value | None = None

    # -- choice ---------------------------------------------------------------------------------

    def below(self, n: int) -> int:
        return int(self.rng.integers(0, n))

    def choose(self, options: Sequence[Any]) -> Any:
        return options[self.below(len(options))]

    def new(self, op: Op) -> Value:
        """Insert the op; its results may be used from now on."""
        self.build.insert(op)
        self.pool += op.results
        return op.results[0]

    def pick(self, fits: Callable[[Value], bool]) -> Value | None:
        """A value that fits, later ones rather than earlier ones; None if there is none."""
        options = [v for v in self.pool if fits(v)]
        if not options:
            return None
        return options[max(self.below(len(options)), self.below(len(options)))]

    def number(self, type: Type) -> Value:
        """A constant."""
        element = dtype_of(type)
        value = random_array(element, self.rng,
                             small=self.below(2) == 0 or not self.features.extremes)  # fmt: skip
        number: Any = float(value) if element.is_floating() else value.item()
        return self.new(Constant(number, type))

    def value(self, type: Type) -> Value:
        """A value of exactly this type: one there is, or one made from what there is."""
        found = self.pick(lambda v: v.type == type)
        if found is not None and self.below(8):
            return found
        shape, element = shape_of(type), element_of(type)
        near = self.pick(
            lambda v: shape_of(v.type) == shape and not isinstance(element_of(v.type), Pointer)
        )
        if near is not None and self.below(3):
            return self.new(Cast(near, dtype_of(element), "rtne"))
        scalar = self.pick(lambda v: v.type == element)
        if shape and scalar is not None and self.below(2):
            return self.new(Splat(scalar, shape))
        return self.number(type)

    def any_value(self, fits: Callable[[Value], bool] = lambda v: True) -> Value:
        """A value of any arithmetic type that fits."""
        found = self.pick(
            lambda v: element_of(v.type) in ARITHMETIC and fits(v) and bool(self.below(6))
        )
        while found is None:
            made = self.value(with_shape(self.choose(ARITHMETIC), self.choose(self.shapes)))
            found = made if fits(made) else None
        return found

    def tile(self) -> Value:
        return self.any_value(lambda v: isinstance(v.type, Tile))

    # -- the kernel -----------------------------------------------------------------------------

    def module(self, size: int) -> Module:
        elements = [I32, FP32, *(self.choose(STORED) for _ in range(3))]
        scalars = [I32, FP32, I64, self.choose(ARITHMETIC), I1]
        aliased = elements[: len(SHIFTS)] if self.features.aliases and self.below(2) else []
        pointers, others = map(Pointer, elements), map(Pointer, aliased)
        fn = Function("kernel", [*pointers, *scalars, *others])
        self.arrays, self.pool = fn.args[:ARRAYS], fn.args[ARRAYS : ARRAYS + SCALARS]
        self.aliases = dict(zip(self.arrays, fn.args[ARRAYS + SCALARS :], strict=False))
        if self.below(2):  # what a launch finds out of its arguments
            for i, array in enumerate(self.arrays):
                for arg in (array, self.aliases.get(array, array)):
                    fn.arg_attrs[arg.index]["alias"] = i
        with self.build.at_end(fn.body):
            self.program = self.new(ProgramId(0))
            for _ in range(3):
                self.load()
            self.ops(size)
            self.store_unused()
            self.build.insert(Return([]))
        return Module([fn])

    def ops(self, size: int) -> None:
        makers: list[Callable[[], None]] = [
            *[self.binary] * 8, *[self.unary] * 4, *[self.compare] * 2, *[self.select] * 3,
            *[self.cast] * 3, *[self.shape] * 8, *[self.reduce] * 3, *[self.scan], self.fma,
            *[self.load] * 3, *[self.store] * 2, *[self.reload] * 3,
            *([self.dot] if self.features.dots else []), lambda: gathered(self), self.bound,
            self.sort, self.histogram, self.map, *[lambda: moved(self)] * 3, lambda: chained(self),
        ]  # fmt: skip
        if self.depth < 2:
            makers += [lambda: counted_loop(self)] * 2
            makers += [self.branch, self.branch, self.while_loop]
            makers += [lambda: pointer_loop(self)]
        for _ in range(size):
            self.choose(makers)()

    def region(self, arg_types: Sequence[Type], fill: Callable[[list[Value]], Op]) -> Region:
        """A nested region that can use the values around it; `fill` returns its terminator."""
        region = Region(arg_types)
        saved = self.pool
        self.pool = [*saved, *region.args]
        self.depth += 1
        with self.build.at_end(region):
            self.build.insert(fill(region.args))
        self.depth -= 1
        self.pool = saved
        return region

    # -- elementwise ----------------------------------------------------------------------------

    def binary(self) -> None:
        lhs = self.any_value()
        rhs = lhs if self.below(12) == 0 else self.value(lhs.type)
        if is_float(lhs.type):
            options: list[Any] = [Add, Sub, Mul, Div, Rem, Min, Max]
        else:
            options = [Add, Sub, Mul, IntDiv, Rem, And, Or, Xor, Shl, Shr, Min, Max]
            if dtype_of(lhs.type).primitive_bitwidth >= 32:
                options.append(MulHi)
        op = self.choose(options)
        if op is Min or op is Max:
            self.new(op(lhs, rhs, propagate_nan=bool(self.below(2))))
        elif op is Div:  # unless it must be exact, a target may be off by 2 ulp
            self.new(Div(lhs, rhs, ieee=not self.features.math))
        else:
            self.new(op(lhs, rhs))

    def unary(self) -> None:
        src = self.any_value()
        options: list[Any] = [Neg, Abs]
        if is_float(src.type):
            options += ROUNDINGS
            if self.features.math:
                options += [Exp, Cos, Tanh, Sqrt]
        self.new(self.choose(options)(src))

    def fma(self) -> None:
        x = self.any_value(lambda v: is_float(v.type))
        self.new(Fma(x, self.value(x.type), self.value(x.type)))

    def compare(self) -> None:
        lhs = self.any_value()
        mask = self.new(Cmp(lhs, self.value(lhs.type), self.choose(list(PREDICATES))))
        if self.below(2):
            other = self.value(mask.type)
            self.new(self.choose([And, Or, Xor])(mask, other))

    def bound(self) -> None:
        """Which of some consecutive numbers are within a bound: what masks are made of."""
        counted = self.new(
            Arange(start := 8 * self.below(3), start + self.choose((16, 32, *self.extents)))
        )
        limit = self.new(Splat(self.value(I32), shape_of(counted.type)))
        if self.below(2):
            limit = self.number(counted.type)
        pair = (counted, limit) if self.below(2) else (limit, counted)
        self.new(Cmp(*pair, self.choose(list(PREDICATES))))

    def select(self) -> None:
        x = self.any_value()
        self.new(Select(self.value(with_element(x.type, I1)), x, self.value(x.type)))

    def cast(self) -> None:
        src = self.pick(lambda v: not isinstance(element_of(v.type), Pointer))
        if src is None:
            return
        to: DType = self.choose((*STORED, I1))
        narrows = (
            is_float(src.type)
            and to.is_floating()
            and (to.primitive_bitwidth < dtype_of(src.type).primitive_bitwidth)
        )
        self.new(Cast(src, to, "rtz" if narrows and self.below(4) == 0 else "rtne"))

    # -- shapes ---------------------------------------------------------------------------------

    def shape(self) -> None:
        src = self.tile()
        shape = shape_of(src.type)
        axis = self.below(len(shape))
        match self.below(9):
            case 0 if len(shape) < 3:
                self.new(ExpandDims(src, self.below(len(shape) + 1)))
            case 1:
                self.new(Broadcast(src, tuple(self.choose((1, 2, *self.extents)) if d == 1 else d
                                              for d in shape)))  # fmt: skip
            case 2:
                options = [s for s in self.shapes if prod(s) == prod(shape)]
                self.new(Reshape(src, self.choose([*options, factored(self, prod(shape))])))
            case 3:
                self.new(Permute(src, tuple(int(i) for i in self.rng.permutation(len(shape)))))
            case 4:
                self.new(Flip(src, axis))
            case 5 if prod(shape) <= SLOT // 4:
                self.new(Join(src, self.value(src.type)))
            case 6 if shape[-1] == 2:
                self.new(Split(src))
            case 7 if prod(shape) <= SLOT // 4:
                self.new(Cat(src, self.value(src.type), axis))
            case _:
                start = self.below(64)
                self.new(Arange(start, start + self.choose((16, 32, *self.extents))))

    def sort(self) -> None:
        src = self.any_value(lambda v: self.countable(v) and isinstance(v.type, Tile))
        extent = shape_of(src.type)[-1]
        merge = extent & (extent - 1) == 0 and self.below(4) == 0
        self.new(Sort(src, bool(self.below(2)), merge))

    def countable(self, value: Value) -> bool:
        return is_int(value.type) and not dtype_of(value.type).is_bool()

    def histogram(self) -> None:
        src = self.any_value(lambda v: self.countable(v) and isinstance(v.type, Tile))
        seven = self.new(Constant(7, src.type))
        near = self.new(And(src, seven)) if self.below(3) else src
        mask = self.value(with_element(src.type, I1)) if self.below(2) else None
        self.new(Histogram(near, mask, self.choose(self.extents)))

    def map(self) -> None:
        """A branch and a loop for each element, or for some neighbours."""
        srcs, _ = self.sources()
        pack = 2 if prod(shape_of(srcs[0].type)) % 2 == 0 and self.below(2) else 1
        elements = [element_of(s.type) for s in srcs for _ in range(pack)]
        self.take(Map(srcs, pack, self.region(elements, lambda args: self.scalars(args, pack))))

    def scalars(self, args: list[Value], pack: int) -> Op:
        """The body of a map: of each source a result."""
        found: list[Value] = []
        for i, arg in enumerate(args):
            first = args[i // pack * pack]
            test = self.build.value(Cmp(arg, first, self.choose(["lt", "ge", "ne"])))
            then = self.region([], lambda _, x=arg, y=first: Yield([self.taken_from(x, y)]))
            otherwise = self.region([], lambda _, x=arg: Yield([x]))
            found += self.build.insert(If(test, then, otherwise)).results
        return Yield(found)

    def taken_from(self, start: Value, other: Value) -> Value:
        """``x = other - x``, twice, from `start` on: by a loop."""
        none, trips, one = (self.build.value(Constant(n, I32)) for n in (0, 2, 1))

        def step(args: list[Value]) -> Op:
            return Yield([self.build.value(Sub(other, args[1]))])

        body = self.region([I32, start.type], step)
        loop = For(none, trips, one, [start], 0, 0, (), body)
        return self.build.insert(loop).results[0]

    # -- reductions and products ----------------------------------------------------------------

    def combine(self, elements: Sequence[Scalar]) -> Region:
        """A function that combines, associative and commutative: the order is open.

        So extrema of floats pass NaN on, and of a pair the larger is taken, with ties decided.
        """
        n = len(elements)

        def larger(a: tuple[Value, Value], b: tuple[Value, Value]) -> list[Value]:
            above = self.build.value(Cmp(a[0], b[0], "gt"))
            tie = self.build.value(Cmp(a[0], b[0], "eq"))
            first = self.build.value(Cmp(a[1], b[1], "lt"))
            better = self.build.value(Or(above, self.build.value(And(tie, first))))
            pairs = zip(a, b, strict=True)
            return [self.build.value(Select(better, x, y)) for x, y in pairs]

        def one(a: Value, b: Value) -> Value:
            if is_float(a.type) and not self.features.float_sums:
                return self.build.value(self.choose([Min, Max])(a, b, propagate_nan=True))
            options: list[Any] = [Add, Mul, Min, Max]
            if is_int(a.type):
                options += [And, Or, Xor]
            return self.build.value(self.choose(options)(a, b))

        def fill(args: list[Value]) -> Op:
            if n == 2 and all(is_int(e) for e in elements):  # like argmax
                return Yield(larger((args[0], args[1]), (args[2], args[3])))
            return Yield([one(args[k], args[k + n]) for k in range(n)])

        return self.region([*elements, *elements], fill)

    def sources(self) -> tuple[list[Value], int]:
        src = self.tile()
        srcs = [src]
        if self.below(3) == 0:
            srcs.append(self.value(with_element(src.type, self.choose((I32, FP32)))))
        return srcs, self.below(len(shape_of(src.type)))

    def reduce(self) -> None:
        srcs, axis = self.sources()
        self.new(Reduce(srcs, axis, self.combine([element_of(s.type) for s in srcs])))

    def scan(self) -> None:
        srcs, axis = self.sources()
        combine = self.combine([element_of(s.type) for s in srcs])
        self.new(Scan(srcs, axis, bool(self.below(2)), combine))

    def dot(self) -> None:
        m, k, n = (self.choose(self.extents) for _ in range(3))
        a, acc = self.choose([(I8, I32), (U8, I32)])
        if self.features.float_dot:
            a, acc = self.choose([(FP16, FP32), (BF16, FP32), (FP32, FP32), (FP64, FP64)])
        lhs, rhs = self.value(Tile((m, k), a)), self.value(Tile((k, n), a))
        zero = self.new(Constant(0.0 if acc.is_floating() else 0, Tile((m, n), acc)))
        if self.below(2):
            product = self.new(Dot(lhs, rhs, zero, "ieee", 0))
            self.new(Add(self.value(zero.type), product))
        else:
            self.new(Dot(lhs, rhs, self.value(zero.type), "ieee", 0))

    # -- memory ---------------------------------------------------------------------------------

    def offsets(self, shape: tuple[int, ...], limit: int = READABLE) -> Value:
        """Offsets below the limit, a power of two: counted up, or from data."""
        if self.below(3) == 0 or not shape:
            data = self.value(with_shape(I32, shape))
            mask = self.new(Constant(limit - 1, data.type))
            return self.new(And(data, mask))
        count = prod(shape)
        counted: Value = self.new(Arange(0, count))
        if shape != (count,):
            counted = self.new(Reshape(counted, shape))
        data = self.value(I32)
        start = self.new(And(data, self.new(Constant(limit // 2 - 1, I32))))
        return self.new(Add(counted, self.new(Splat(start, shape))))

    def mask(self, shape: tuple[int, ...]) -> Value | None:
        return self.value(with_shape(I1, shape)) if self.below(3) == 0 else None

    def load(self) -> None:
        array = self.choose(self.arrays)
        shape = self.choose(self.shapes)
        if self.below(3) == 0:
            base = self.own_slot(array, self.below(SLOTS // 8))
            data = self.value(with_shape(I32, shape))
            offsets = self.new(And(data, self.new(Constant(SLOT - 1, data.type))))
        else:
            base, offsets = array, self.offsets(shape)
        start = self.build.value(Splat(base, shape)) if shape else base
        pointer = self.new(AddPtr(start, offsets))
        if base is not array and self.features.races:
            self.own.add(pointer)
        self.load_from(pointer)

    def reload(self) -> None:
        """A load from where something was loaded or stored before."""
        own = self.pick(lambda v: v in self.own)
        pointer = self.pick(lambda v: isinstance(element_of(v.type), Pointer))
        if own is not None and self.below(3):
            pointer = own
        if pointer is not None:
            self.load_from(pointer)

    def load_from(self, pointer: Value) -> None:
        element = element_of(pointer.type)
        assert isinstance(element, Pointer)
        shape = shape_of(pointer.type)
        mask = self.mask(shape)
        type = with_shape(element.element_ty, shape)
        other = self.value(type) if mask is not None and self.below(2) else None
        self.new(Load(pointer, mask, other, "", "", False))

    def own_slot(self, array: Value, slot: int) -> Value:
        """The address of a slot in the program's own region."""
        assert self.program is not None
        region = self.build.value(Constant(REGION, I32))
        first = self.build.value(Constant(READABLE + slot * SLOT, I32))
        if array in self.aliases and self.below(2):
            shift = SHIFTS[self.arrays.index(array)]
            array = self.aliases[array]
            first = self.build.value(Constant(READABLE + slot * SLOT - shift, I32))
        offset = self.build.value(Add(self.build.value(Mul(self.program, region)), first))
        return self.build.value(AddPtr(array, offset))

    def own_pointer(self, array: Value, shape: tuple[int, ...]) -> Value:
        """Where to store a tile of this shape: in the next free slot."""
        pointer = self.own_slot(array, self.slot)
        self.slot += 1
        if shape:
            count = prod(shape)
            counted = self.build.value(Reshape(self.build.value(Arange(0, count)), shape))
            pointer = self.build.value(AddPtr(self.build.value(Splat(pointer, shape)), counted))
        return pointer

    def store(self) -> None:
        again = self.pick(lambda v: v in self.own)
        if again is not None and self.below(2):
            self.store_to(again)
            return
        if self.slot >= SLOTS // 2:  # the rest is for the end
            return
        array = self.choose(self.arrays)
        near = self.pick(
            lambda v: not isinstance(element_of(v.type), Pointer) and prod(shape_of(v.type)) <= SLOT
        )
        shape = shape_of(near.type) if near is not None else ()
        pointer = self.own_pointer(array, shape)
        self.own.add(pointer)
        self.pool.append(pointer)
        self.store_to(pointer)

    def store_unused(self) -> None:
        """Store the values without users, as far as there is room, cast to what an array holds."""
        for value in [v for v in self.pool if not v.users]:
            element, shape = element_of(value.type), shape_of(value.type)
            if isinstance(element, Pointer) or prod(shape) > SLOT or self.slot == SLOTS:
                continue
            same = [a for a in self.arrays if element_of(a.type) == Pointer(element)]
            array = self.choose(same or self.arrays)
            pointer = self.own_pointer(array, shape)
            kept = value if same else self.build.value(Cast(value, array.type.element_ty, "rtne"))
            self.insert_store(pointer, kept, None)

    def store_to(self, pointer: Value) -> None:
        element = element_of(pointer.type)
        assert isinstance(element, Pointer)
        shape = shape_of(pointer.type)
        self.insert_store(pointer, self.value(with_shape(element.element_ty, shape)),
                          self.mask(shape))  # fmt: skip

    def insert_store(self, pointer: Value, value: Value, mask: Value | None) -> None:
        if not self.features.races:
            self.build.insert(Barrier())
        self.build.insert(Store(pointer, value, mask, "", ""))
        if not self.features.races:
            self.build.insert(Barrier())

    # -- control --------------------------------------------------------------------------------

    def count(self, limit: int) -> Value:
        """A number of trips from 0 to limit - 1, known or not."""
        if self.below(3) == 0:
            return self.new(Constant(self.below(limit), I32))
        return self.new(And(self.value(I32), self.new(Constant(limit - 1, I32))))

    def carried(self) -> list[Value]:
        return [self.any_value() for _ in range(self.below(4))]

    def take(self, op: Op) -> None:
        self.build.insert(op)
        self.pool += op.results

    def branch(self) -> None:
        condition = self.value(I1)
        types = [v.type for v in self.carried()]

        def fill(args: list[Value]) -> Op:
            self.ops(self.below(4))
            return Yield([self.value(t) for t in types])

        then, otherwise = self.region([], fill), self.region([], fill)
        self.take(If(condition, then, otherwise))

    def while_loop(self) -> None:
        inits = [self.count(4), *self.carried()]
        types = [v.type for v in inits]

        def before(args: list[Value]) -> Op:
            self.ops(self.below(2))
            zero = self.build.value(Constant(0, I32))
            go_on = self.build.value(Cmp(args[0], zero, "gt"))
            return Condition(go_on, args)

        def body(args: list[Value]) -> Op:
            self.ops(1 + self.below(3))
            less = self.build.value(Sub(args[0], self.build.value(Constant(1, I32))))
            return Yield([less, *(self.value(t) for t in types[1:])])

        first = self.region(types, before)
        self.take(While(inits, first, self.region(types, body)))
