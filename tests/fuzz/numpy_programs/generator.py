"""Random kernels of many element types, rich in branches, as text.

    print(random_program(7))

A program is a module of Python: a kernel, and what its launch is. Each expression is drawn for an
element type and a shape. Floats are combined only by what is exact or correctly rounded, and
summed only where sums are exact, so all targets must leave the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from random import Random

from tests.fuzz.numpy_programs.values import DTYPES

INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
FLOATS = ("float16", "bfloat16", "float32", "float64")
FLOAT_LITERALS = (
    "0.0", "-0.0", "1.0", "-1.0", "0.5", "2.0", "-3.25", "127.0", "1.5", "255.5", "1e-3",
)  # fmt: skip
FP8 = ("float8e5", "float8e4nv")
NARROW = ("int8", "int16", "uint8", "uint16", "float16", "bfloat16")
TYPES = (*INTEGERS, *FLOATS, "int1")
INPUTS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", *FLOATS, *FP8, "int1")

HEAD = '''"""Random program of seed {seed}. Run: PYTHONPATH=. python THIS"""

from math import inf, nan

import tilewright as tw
import tilewright.language as tl


@tw.jit
def later_maximum(a, ai, b, bi):
    keep = (a > b) | ((a == b) & (ai > bi))
    return tl.where(keep, a, b), tl.where(keep, ai, bi)


@tw.jit
def affine(a, b, c, d):
    return a * c, b * c + d


@tw.jit
def larger(a, b):
    return tl.maximum(a, b)


@tw.jit
def exchanged(pair, condition):
    a, b = pair
    return tl.where(condition, b, a), tl.where(condition, a, b)


@tw.jit
def chosen(pair, n):
    if n > 3:
        found = pair[0]
    else:
        found = pair[1]
    return found


'''

TAIL = """

if __name__ == "__main__":
    from tests.fuzz.numpy_programs.check import main

    main(__file__)
"""

Shape = str  # one of "S", "V", "M", "R", "C": a number, N values, a matrix, its rows, its columns


class Kernel:
    """Writes one kernel."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.rng = Random(seed)
        self.lines: list[str] = []
        self.depth = 1
        self.names = 0
        self.variables: list[tuple[str, str, Shape]] = []
        rows, columns = self.rng.choice(
            ((4, 8), (8, 4), (16, 16), (2, 32), (8, 16), (16, 32), (32, 16), (1, 16), (64, 8))
        )
        self.rows, self.columns = rows, columns
        self.shapes = {
            "S": "()", "V": f"({rows * columns},)", "M": f"({rows}, {columns})",
            "R": f"({rows},)", "C": f"({columns},)",
        }  # fmt: skip
        # Few types in a program, so that its values meet.
        self.types = self.rng.sample(TYPES, 3) + self.rng.sample(NARROW, 2)
        self.args: dict[str, str | int | float] = {}
        self.inputs: dict[str, str] = {}
        self.protected: set[str] = set()
        for type in dict.fromkeys([*self.rng.sample(INPUTS, 2), *self.types[2:], "int32"]):
            if type == "uint64":
                continue
            self.inputs[type] = f"x_{type}"
            self.args[f"x_{type}"] = f"*{type}"

    # -- text ---------------------------------------------------------------------------------

    def chance(self, share: float) -> bool:
        return self.rng.random() < share

    def emit(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    def name(self) -> str:
        self.names += 1
        return f"v{self.names}"

    @contextmanager
    def block(self) -> Generator[None]:
        """The body of a statement, whose new variables are not seen after it."""
        known, before = len(self.variables), len(self.lines)
        self.depth += 1
        yield
        if len(self.lines) == before:
            self.emit("pass")
        self.depth -= 1
        del self.variables[known:]

    def assign(self, type: str, shape: Shape, text: str) -> str:
        name = self.name()
        self.emit(f"{name} = {text}")
        self.variables.append((name, type, shape))
        return name

    # -- expressions --------------------------------------------------------------------------

    def literal(self, type: str) -> str:
        """A number that operands of the type can have beside them."""
        rng, dtype = self.rng, DTYPES[type]
        if type == "int1":
            return rng.choice(("True", "False"))
        if dtype.is_float:
            return rng.choice(
                (
                    "0.0",
                    "-0.0",
                    "1.0",
                    "-1.0",
                    "0.5",
                    "2.0",
                    "-3.25",
                    "127.0",
                    "1.5",
                    "255.5",
                    "1e-3",
                )
            )
        high = (1 << (dtype.bits - dtype.signed)) - 1
        low = -high - 1 if dtype.signed else 0
        return str(rng.choice((0, 1, 2, 3, 5, 7, 10, 63, 100, high, low, high - 1, high // 3)))

    def constant(self, type: str, shape: Shape) -> str:
        return f"tl.full({self.shapes[shape]}, {self.literal(type)}, tl.{type})"

    def leaf(self, type: str, shape: Shape) -> str:
        """A variable, of this type or another; a load; a constant."""
        same = [v for v, t, s in self.variables if (t, s) == (type, shape)]
        if same and self.chance(0.7):
            return self.rng.choice(same)
        others = [(v, t) for v, t, s in self.variables if s == shape]
        if others and self.chance(0.7):
            return self.converted(*self.rng.choice(others), type)
        if shape != "S" and self.chance(0.7):
            return self.load(type, shape)
        return self.constant(type, shape)

    def converted(self, text: str, source: str, type: str) -> str:
        if source == type:
            return text
        a, b = DTYPES[source], DTYPES[type]
        if type == "int1":
            return f"({text} != {0.0 if a.is_float else 0})"
        if a.bits == b.bits and self.chance(0.3):
            if a.is_float:
                text = f"tl.where({text} == {text}, {text}, 0.0)"
            return f"({text}).to(tl.{type}, bitcast=True)"
        if source in ("int64", "uint64") and b.is_float and b.bits < 32:
            text = f"({text}).to(tl.int32)"
        return f"({text}).to(tl.{type})"

    def place(self, shape: Shape) -> str:
        """Offsets of distinct elements of a program's part of an array."""
        base = "pid * N + "
        rows, columns = self.rows, self.columns
        total = rows * columns
        forms = {
            "V": ("i", f"{total - 1} - i", f"(i ^ {total // 2})", f"((i * 5) % {total})"),
            "M": (
                f"r[:, None] * {columns} + c[None, :]",
                f"c[None, :] * {rows} + r[:, None]",
                f"({rows - 1} - r)[:, None] * {columns} + c[None, :]",
                f"r[:, None] * {columns} + ({columns - 1} - c)[None, :]",
                "r[:, None] * stride + c[None, :]",
            ),
            "R": ("r", f"r * {columns}", f"{rows - 1} - r"),
            "C": ("c", f"c * {rows}", f"{columns - 1} - c"),
        }  # fmt: skip
        return f"{base}({self.rng.choice(forms[shape])})"

    def load(self, type: str, shape: Shape) -> str:
        source = self.rng.choice([*self.inputs])
        mask = ""
        if self.chance(0.4):
            other = "0.0" if DTYPES[source].is_float else self.rng.choice(("0", "1"))
            if source == "int1":
                other = "False"
            mask = f", mask={self.mask(shape)}, other={other}"
        text = f"tl.load({self.inputs[source]} + {self.place(shape)}{mask})"
        if source in FP8:
            text, source = f"{text}.to(tl.float32)", "float32"
        if source == "int1":
            return text if type == "int1" else f"{text}.to(tl.int32).to(tl.{type})"
        return self.converted(text, source, type)

    def mask(self, shape: Shape) -> str:
        """Which elements to access."""
        bools = [v for v, t, s in self.variables if t == "int1" and s in (shape, "S")]
        if bools and self.chance(0.5):
            return self.rng.choice(bools)
        index = {"V": "i", "M": "(r[:, None] + c[None, :])", "R": "r", "C": "c"}[shape]
        return self.rng.choice((f"{index} < n", f"({index} % 3) != 1", f"{index} >= m"))

    def expression(self, type: str, shape: Shape, depth: int = 2) -> str:
        if depth <= 0 or self.chance(0.12):
            return self.leaf(type, shape)
        if shape != "S" and self.chance(0.12):
            return self.reshaped(type, shape, depth)
        if self.chance(0.15) and shape in ("S", "R", "C"):
            return self.reduction(type, shape, depth)
        if type == "int1":
            return self.boolean(shape, depth)
        common = (self.selection, self.conversion, self.nearer)
        special = self.float if DTYPES[type].is_float else self.integer
        return self.rng.choice((*common, special, special, special))(type, shape, depth)

    def operand(self, type: str, shape: Shape, depth: int) -> str:
        """An expression of the shape or of one that is broadcast to it."""
        if shape == "M" and self.chance(0.25):
            if self.chance(0.5):
                return f"({self.expression(type, 'R', depth)})[:, None]"
            return f"({self.expression(type, 'C', depth)})[None, :]"
        if self.chance(0.12):
            return self.expression(type, "S", depth)
        return self.expression(type, shape, depth)

    def selection(self, type: str, shape: Shape, depth: int) -> str:
        condition = self.operand("int1", shape, depth - 1)
        other = self.literal(type) if self.chance(0.3) else self.operand(type, shape, depth - 1)
        return f"tl.where({condition}, {self.expression(type, shape, depth - 1)}, {other})"

    def conversion(self, type: str, shape: Shape, depth: int) -> str:
        source = self.rng.choice(self.types)
        return self.converted(self.expression(source, shape, depth - 1), source, type)

    def nearer(self, type: str, shape: Shape, depth: int) -> str:
        """A minimum or a maximum; with a literal its type is that of its numbers."""
        function = self.rng.choice(("minimum", "maximum"))
        a = self.expression(type, shape, depth - 1)
        b = self.literal(type) if self.chance(0.4) else self.operand(type, shape, depth - 1)
        nans = ", propagate_nan=tl.PropagateNan.ALL" if self.chance(0.2) else ""
        if not DTYPES[type].is_float:
            nans = ""
        elif self.chance(0.15) and type in ("float16", "float32", "float64"):
            return f"tl.clamp({a}, {self.literal('int8')}.0, 1e3).to(tl.{type})"
        return f"tl.{function}({a}, {b}{nans}).to(tl.{type})"

    def integer(self, type: str, shape: Shape, depth: int) -> str:
        dtype = DTYPES[type]
        a = self.expression(type, shape, depth - 1)
        kind = self.rng.randrange(10)
        if kind < 4:
            b = self.literal(type) if self.chance(0.3) else self.operand(type, shape, depth - 1)
            return f"({a} {self.rng.choice(('+', '-', '*', '&', '|', '^'))} {b})"
        if kind < 6:
            b = self.literal(type) if self.chance(0.7) else self.operand(type, shape, depth - 1)
            return f"({a} {self.rng.choice(('//', '%'))} {b})"
        if kind < 8:
            count = str(self.rng.randrange(dtype.bits))
            if self.chance(0.4):
                b = self.operand(type, shape, depth - 1)
                count = f"({b} & {dtype.bits - 1})"
            return f"({a} {self.rng.choice(('<<', '>>'))} {count})"
        if kind == 8 and dtype.bits >= 32:
            return f"tl.umulhi({a}, {self.operand(type, shape, depth - 1)})"
        if kind == 8 and dtype.signed:
            return f"tl.abs({a})"
        return f"(-{a})" if dtype.signed and self.chance(0.5) else f"(~{a})"

    def float(self, type: str, shape: Shape, depth: int) -> str:
        a = self.expression(type, shape, depth - 1)
        kind = self.rng.randrange(10)
        if kind < 6:
            b = self.literal(type) if self.chance(0.35) else self.operand(type, shape, depth - 1)
            return f"({a} {self.rng.choice(('+', '-', '*'))} {b})"
        if kind == 6:
            return f"tl.abs({a})"
        if kind == 7:
            return f"(-{a})"
        if kind == 8 and type in ("float32", "float64"):
            return f"tl.{self.rng.choice(('floor', 'ceil'))}({a})"
        if type == "float32":
            if self.chance(0.5):
                return f"tl.sqrt_rn({a})"
            return f"tl.div_rn({a}, {self.expression(type, shape, depth - 1)})"
        return self.leaf(type, shape)

    def boolean(self, shape: Shape, depth: int) -> str:
        kind = self.rng.randrange(6)
        if kind == 0:
            a, b = (self.expression("int1", shape, depth - 1) for _ in range(2))
            return f"({a} {self.rng.choice('&|^')} {b})"
        if kind == 1:
            return f"(~{self.expression('int1', shape, depth - 1)})"
        type = self.rng.choice([t for t in (*self.types, "int32") if t != "int1"])
        relation = self.rng.choice(("<", "<=", ">", ">=", "==", "!="))
        b = self.literal(type) if self.chance(0.4) else self.operand(type, shape, depth - 1)
        return f"({self.expression(type, shape, depth - 1)} {relation} {b})"

    def reshaped(self, type: str, shape: Shape, depth: int) -> str:
        rows, columns = self.rows, self.columns
        if shape == "V":
            if self.chance(0.3):
                return f"tl.flip({self.expression(type, 'V', depth - 1)}, 0)"
            inner = self.expression(type, "M", depth - 1)
            inner = f"tl.trans({inner})" if self.chance(0.5) else inner
            return f"tl.reshape({inner}, ({rows * columns},))"
        if shape == "M":
            inner = self.expression(type, "V", depth - 1)
            if self.chance(0.5):
                return f"tl.trans(tl.reshape({inner}, ({columns}, {rows})))"
            return f"tl.reshape({inner}, ({rows}, {columns}))"
        inner = self.expression(type, shape, depth - 1)
        if type == "int1":
            return inner
        size = rows if shape == "R" else columns
        return f"tl.gather({inner}, (({'r' if shape == 'R' else 'c'} * 3 + 1) % {size}), 0)"

    def clean(self, type: str, shape: Shape, depth: int) -> str:
        """Without NaN and negative zeros, for what orders elements."""
        text = self.expression(type, shape, depth)
        return f"(tl.where({text} == {text}, {text}, 0.0) + 0.0)" if DTYPES[type].is_float else text

    def reduction(self, type: str, shape: Shape, depth: int) -> str:
        source, axis = {
            "S": (self.rng.choice("VRC"), "0"), "R": ("M", "1"), "C": ("M", "0"),
        }[shape]  # fmt: skip
        kind = self.rng.randrange(5)
        if kind == 0:
            of = self.rng.choice([t for t in (*self.types, "int32") if t != "int1"])
            function = self.rng.choice(("argmax", "argmin"))
            found = f"tl.{function}({self.clean(of, source, depth - 1)}, {axis})"
            return self.converted(found, "int32", type)
        if type == "int1":
            inner = self.expression("int1", source, depth - 1)
            return f"(tl.max(({inner}).to(tl.int32), {axis}) != 0)"
        inner = self.expression(type, source, depth - 1)
        dtype = DTYPES[type]
        if kind == 1 or (dtype.is_float and kind < 4):
            return f"tl.{self.rng.choice(('min', 'max'))}({inner}, {axis}).to(tl.{type})"
        if dtype.is_float:
            small = self.expression("int8", source, depth - 1)
            return f"tl.sum(({small}).to(tl.float32), {axis}).to(tl.{type})"
        if kind == 2:
            return f"tl.xor_sum({inner}, {axis})"
        if kind == 3:
            return f"tl.reduce({inner}, {axis}, larger).to(tl.{type})"
        return f"tl.sum({inner}, {axis}).to(tl.{type})"

    # -- statements ---------------------------------------------------------------------------

    def type(self) -> str:
        return self.rng.choice(self.types)

    def statement(self, level: int) -> None:
        simple: list[Callable[[int], None]] = [
            self.new, self.new, self.new, self.update, self.update, self.call, self.special,
            self.masked_store,
        ]  # fmt: skip
        nested: list[Callable[[int], None]] = [self.branch, self.branch, self.loop, self.until]
        self.rng.choice(simple + nested if level < 3 else simple)(level)

    def statements(self, level: int, most: int) -> None:
        for _ in range(self.rng.randint(1, most)):
            self.statement(level)

    def new(self, level: int) -> None:
        type, shape = self.type(), self.rng.choice("SVVMMRC")
        self.assign(type, shape, self.expression(type, shape, self.rng.randint(1, 3)))

    def update(self, level: int) -> None:
        known = [v for v in self.variables if v[0] not in self.protected]
        if not known:
            return
        name, type, shape = self.rng.choice(known)
        self.emit(f"{name} = {self.expression_of(name, type, shape)}")

    def expression_of(self, name: str, type: str, shape: Shape) -> str:
        """One that mostly depends on what the variable had."""
        value = self.expression(type, shape, 2)
        if self.chance(0.4):
            return value
        if type == "int1":
            return f"{name} ^ {value}"
        if DTYPES[type].is_float:
            return self.rng.choice((
                f"{name} + {value}", f"tl.maximum({name}, {value}).to(tl.{type})",
                f"tl.where({name} < {value}, {value}, {name} * 0.5)",
            ))  # fmt: skip
        return self.rng.choice((
            f"{name} + {value}", f"{name} ^ {value}", f"{name} * 3 - {value}",
            f"tl.where({name} < {value}, {value}, {name} >> 1)",
        ))  # fmt: skip

    def condition(self) -> str:
        kind = self.rng.randrange(4)
        if kind == 0:
            return self.rng.choice(("n > 5", "m != n", "pid == 0", "m + pid < 4", "n % 2 == 0"))
        return self.expression("int1", "S", 2)

    def branch(self, level: int) -> None:
        self.emit(f"if {self.condition()}:")
        with self.block():
            self.statements(level + 1, 3)
        if self.chance(0.3):
            self.emit(f"elif {self.condition()}:")
            with self.block():
                self.statements(level + 1, 2)
        if self.chance(0.6):
            self.emit("else:")
            with self.block():
                self.statements(level + 1, 3)

    def loop(self, level: int) -> None:
        index = self.name()
        bounds = self.rng.choice(("n", "m", "m, n", "0, n, 2", "3", "m, n, 3", "pid, 4", "n, m"))
        kind = self.rng.choice(("range", "range", "tl.range", "tl.static_range"))
        if kind == "tl.static_range":
            bounds = self.rng.choice(("2", "3", "1, 4"))
        self.emit(f"for {index} in {kind}({bounds}):")
        with self.block():
            if kind != "tl.static_range":
                self.variables.append((index, "int32", "S"))
                self.protected.add(index)
            self.statements(level + 1, 3)
            if self.chance(0.3) and kind == "range":
                self.emit(f"if {self.condition()}:")
                self.emit("    break")

    def until(self, level: int) -> None:
        counter = self.name()
        self.emit(f"{counter} = pid * 0")
        self.protected.add(counter)
        extra = f" and {self.expression('int1', 'S', 1)}" if self.chance(0.5) else ""
        self.emit(f"while ({counter} < {self.rng.choice(('n', 'm', '3'))}){extra}:")
        with self.block():
            self.emit(f"{counter} += {self.rng.choice((1, 2))}")
            self.variables.append((counter, "int32", "S"))
            self.statements(level + 1, 3)
            if self.chance(0.3):
                self.emit(f"if {self.condition()}:")
                self.emit("    break")

    def call(self, level: int) -> None:
        type, shape = self.type(), self.rng.choice("SVMRC")
        a, b = (self.expression(type, shape, 1) for _ in range(2))
        if self.chance(0.5):
            name, other = self.name(), self.name()
            self.emit(f"{name}, {other} = exchanged(({a}, {b}), {self.operand('int1', shape, 1)})")
            self.variables += [(name, type, shape), (other, type, shape)]
        else:
            self.assign(type, shape, f"chosen(({a}, {b}), {self.rng.choice('nm')})")

    def masked_store(self, level: int) -> None:
        """To elements that other such stores write, too: the last one counts."""
        type = self.type()
        if type == "int1":
            return
        name = f"p_{type}"
        self.args[name] = f"*{type}"
        value = self.expression(type, "V", 2)
        self.emit(f"tl.store({name} + pid * N + i, {value}, mask={self.mask('V')})")
        self.emit("tl.debug_barrier()")

    def special(self, level: int) -> None:
        self.rng.choice((
            self.scan, self.scan, self.tuple_scan, self.sorted, self.gathered, self.joined,
            self.product, self.histogram, self.atomic, self.block_pointer, self.descriptor,
        ))()  # fmt: skip

    def number_type(self) -> str:
        return self.rng.choice([t for t in self.types if t != "int1"])

    def scan(self) -> None:
        type = self.rng.choice(INTEGERS)
        shape, axis = self.rng.choice((("V", 0), ("M", 0), ("M", 1), ("R", 0)))
        function = self.rng.choice(("cumsum", "cumsum", "cumprod"))
        reverse = ", reverse=True" if self.chance(0.4) else ""
        text = f"tl.{function}({self.expression(type, shape, 2)}, {axis}{reverse}).to(tl.{type})"
        self.assign(type, shape, text)

    def tuple_scan(self) -> None:
        """Several tiles at once, of types of their own."""
        type = self.number_type()
        shape, axis = self.rng.choice((("V", 0), ("M", 0), ("M", 1)))
        index = self.rng.choice(("int8", "int16", "int32"))
        a, b = self.clean(type, shape, 1), self.expression(index, shape, 1)
        name, other = self.name(), self.name()
        if not DTYPES[type].is_float and self.chance(0.4):
            b, index, combine = self.expression(type, shape, 1), type, "affine"
        else:
            combine = "later_maximum"
        if combine == "later_maximum" and self.chance(0.5):
            self.emit(f"{name}, {other} = tl.reduce(({a}, {b}), {axis}, {combine})")
            shape = {"V": "S", "M": "CR"[axis]}[shape]
        else:
            reverse = ", reverse=True" if self.chance(0.3) else ""
            self.emit(
                f"{name}, {other} = tl.associative_scan(({a}, {b}), {axis}, {combine}{reverse})"
            )
        self.variables += [(name, type, shape), (other, index, shape)]

    def sorted(self) -> None:
        type, shape = self.number_type(), self.rng.choice("VMRC")
        value = self.clean(type, shape, 1)
        descending = ", descending=True" if self.chance(0.5) else ""
        if self.chance(0.3) and self.columns > 4 and DTYPES[type].bits >= 32:
            largest = f"tl.max(tl.topk({value}, 4), {1 if shape == 'M' else 0})"
            self.assign(type, "S", f"tl.max({largest}, 0)" if shape == "M" else largest)
        else:
            self.assign(type, shape, f"tl.sort({value}{descending})")

    def gathered(self) -> None:
        type = self.number_type()
        shape, axis, size = self.rng.choice(
            (("V", 0, self.rows * self.columns), ("M", 1, self.columns), ("M", 0, self.rows))
        )
        index = f"({self.expression('int32', shape, 1)} & {size - 1})"
        self.assign(type, shape, f"tl.gather({self.expression(type, shape, 1)}, {index}, {axis})")

    def joined(self) -> None:
        type = self.number_type()
        a, b = self.expression(type, "M", 1), self.expression(type, "M", 1)
        name, other = self.name(), self.name()
        if self.chance(0.5):
            self.emit(f"{name}, {other} = tl.split(tl.join({a}, {b}))")
        else:
            pair = f"tl.reshape(tl.interleave({a}, {b}), ({self.rows}, {self.columns}, 2))"
            self.emit(f"{name}, {other} = tl.split({pair})")
        self.variables += [(name, type, "M"), (other, type, "M")]

    def product(self) -> None:
        """Of small integers, whose products and sums every type holds."""
        if self.rows < 16 or self.columns < 16:
            return
        type = self.rng.choice(("float16", "bfloat16", "float32", "int8", "float8e5", "float8e4nv"))
        size = DTYPES[type].bits
        if size == 8 and self.columns < 32:
            type = "float16"
        result = "int32" if type == "int8" else "float32"
        a, b = (
            f"(({self.expression('int32', 'M', 1)} & 3) - 1).to(tl.float32).to(tl.{type})"
            for _ in range(2)
        )
        total = f"tl.dot({a}, tl.trans({b}))"
        if self.chance(0.5):
            zero = f"tl.zeros(({self.rows}, {self.rows}), tl.{result})"
            self.emit(f"acc = {zero} + {self.rng.choice((0, 1, 2))}")
            self.emit(f"for k in range({self.rng.choice(('n', 'm', '2'))}):")
            self.emit(f"    acc = tl.dot({a}, tl.trans({b}), acc)")
            total = "acc"
        function = self.rng.choice(("max", "min", "sum"))
        self.assign(result, "R", f"tl.{function}({total}, {self.rng.choice((0, 1))})")

    def histogram(self) -> None:
        if self.columns < 4:
            return
        value = self.expression("int32", "V", 1)
        self.assign("int32", "C", f"tl.histogram({value} & {2 * self.columns - 1}, {self.columns})")

    def atomic(self) -> None:
        """To counters of which each has one operation, whose order does not matter."""
        function = self.rng.choice(("add", "max", "min", "and", "or", "xor"))
        type = self.rng.choice(("int32", "int64", "uint32"))
        name = f"c_{function}_{type}"
        self.args[name] = f"*{type}"
        shape = self.rng.choice("VMRC")
        index = f"({self.expression('int32', shape, 1)} & 31)"
        mask = f", mask={self.mask(shape)}" if self.chance(0.5) else ""
        self.emit(
            f"tl.atomic_{function}({name} + {index}, {self.expression(type, shape, 1)}{mask})"
        )

    def block_pointer(self) -> None:
        source = self.rng.choice([t for t in self.inputs if t not in (*FP8, "int1")])
        rows, columns = self.rows, self.columns
        offsets = self.rng.choice(("(m, 0)", "(0, m)", "(m - 2, m - 1)", "(0, 0)", "(-m, n)"))
        order = self.rng.choice(("(1, 0)", "(1, 0)", "(0, 1)"))
        strides = f"({columns}, 1)" if order == "(1, 0)" else f"(1, {rows})"
        name = self.name()
        self.emit(
            f"{name} = tl.make_block_ptr({self.inputs[source]} + pid * N, ({rows}, {columns}), "
            f"{strides}, {offsets}, ({rows}, {columns}), {order})"
        )
        if self.chance(0.4):
            self.emit(f"{name} = tl.advance({name}, ({self.rng.choice((0, 1, -1))}, m))")
        self.assign(source, "M", f'tl.load({name}, boundary_check=(0, 1), padding_option="zero")')

    def descriptor(self) -> None:
        found = [t for t in self.inputs if t != "int1"]
        source = self.rng.choice([t for t in found if t not in FP8])
        if self.columns * DTYPES[source].bits < 128:
            return
        rows, columns = self.rows, self.columns
        name = self.name()
        self.emit(
            f"{name} = tl.make_tensor_descriptor({self.inputs[source]} + pid * N, "
            f"[{rows}, {columns}], [{columns}, 1], [{rows}, {columns}])"
        )
        offsets = self.rng.choice(("[m, 0]", "[0, 0]", "[m - 3, 0]", "[0, n]", "[-m, -1]"))
        self.assign(source, "M", f"{name}.load({offsets})")

    # -- the whole ----------------------------------------------------------------------------

    def body(self) -> None:
        rows, columns = self.rows, self.columns
        self.emit("pid = tl.program_id(0)")
        self.emit(f"i = tl.arange(0, {rows * columns})")
        self.emit(f"r = tl.arange(0, {rows})")
        self.emit(f"c = tl.arange(0, {columns})")
        for type in self.types[:2]:
            self.assign(type, "V", self.load(type, "V"))
        self.variables += [("n", "int32", "S"), ("m", "int32", "S")]
        self.protected |= {"n", "m"}
        self.statements(0, 12)
        while len(self.lines) < 14:
            self.statement(0)
        known = [v for v in self.variables if v[0] not in self.protected]
        for name, type, shape in known[-12:]:
            self.result(name, type, shape)

    def result(self, name: str, type: str, shape: Shape) -> None:
        out = f"o_{name}"
        self.args[out] = f"*{'int8' if type == 'int1' else type}"
        value = f"{name}.to(tl.int8)" if type == "int1" else name
        place = {
            "S": "pid", "V": "pid * N + i", "R": "pid * N + r", "C": "pid * N + c",
            "M": f"pid * N + r[:, None] * {self.columns} + c[None, :]",
        }[shape]  # fmt: skip
        self.emit(f"tl.store({out} + {place}, {value})")

    def text(self) -> str:
        self.body()
        rng = self.rng
        self.args |= {"n": rng.choice((0, 2, 3, 4, 6, 9)), "m": rng.choice((0, 2, 3, 5)),
                      "stride": self.columns}  # fmt: skip
        grid = rng.choice((1, 2, 3))
        parameters = ", ".join((*self.args, "N: tl.constexpr"))
        lines = "\n".join(self.lines)
        return (
            f"{HEAD.format(seed=self.seed)}@tw.jit\ndef kernel({parameters}):\n{lines}\n\n\n"
            f"SEED = {self.seed}\nLENGTH = {grid * self.rows * self.columns + 64}\n"
            f"ARGS = {self.args!r}\nCONSTEXPRS = {{'N': {self.rows * self.columns}}}\n"
            f"GRID = ({grid},)\nREACHED = ()\n{TAIL}"
        )


def random_program(seed: int) -> str:
    return Kernel(seed).text()
