"""Random expressions of one element type and shape, as text.

Floats are combined only by what is exact or correctly rounded, and summed only where sums are
exact, so all targets must compute the same bits.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from random import Random

from tests.fuzz.numpy_programs.values import DTYPES, common

INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
FLOATS = ("float16", "bfloat16", "float32", "float64")
FLOAT_LITERALS = (
    "0.0", "-0.0", "1.0", "-1.0", "0.5", "2.0", "-3.25", "127.0", "1.5", "255.5", "1e-3",
)  # fmt: skip
FP8 = ("float8e5", "float8e4nv")
NARROW = ("int8", "int16", "uint8", "uint16", "float16", "bfloat16")
TYPES = (*INTEGERS, *FLOATS, "int1")
INPUTS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", *FLOATS, *FP8, "int1")

Shape = str  # one of "S", "V", "M", "R", "C": a number, N values, a matrix, its rows, its columns


class Expressions:
    """Writes the lines of a kernel, and the expressions in them."""

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
        general = (self.selection, self.conversion, self.nearer, self.mixed)
        special = self.float if DTYPES[type].is_float else self.integer
        return self.rng.choice((*general, special, special, special))(type, shape, depth)

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

    def mixed(self, type: str, shape: Shape, depth: int) -> str:
        """Of operands of two types, which are promoted; a quotient's must have one signedness."""
        choice = [t for t in (*self.types, "int32", "n") if t != "int1"]
        a, b = self.rng.choice(choice), self.rng.choice([t for t in choice if t != "n"])
        left = "n" if a == "n" else self.expression(a, shape, depth - 1)
        a = "int32" if a == "n" else a
        right = self.expression(b, shape, depth - 1)
        operators = ["+", "-", "*"]
        if not DTYPES[a].is_float and not DTYPES[b].is_float:
            operators += ["&", "|", "^"]
            if DTYPES[a].signed == DTYPES[b].signed:
                operators += ["//", "%"]
        text = f"({left} {self.rng.choice(operators)} {right})"
        if self.chance(0.3):
            function = self.rng.choice(("minimum(", "maximum(", "where(n > m, "))
            text = f"tl.{function}{left}, {right})"
            if function[0] == "m" and "bfloat16" in (a, b):  # fp32, whatever the other one is
                return f"{text}.to(tl.{type})"
        return self.converted(text, common(DTYPES[a], DTYPES[b]).name, type)

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
