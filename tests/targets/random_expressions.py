"""Random functions of LLVM IR, made of the patterns that repairs for back ends look for.

A function `@f0(ptr %given, ptr %written)` reads one value of each type, computes, and writes what
it has computed. Nothing that it writes is undefined: results of shifts by too many bits are
selected away, and no divisor is zero.
"""

from __future__ import annotations

import random
from collections import defaultdict

INTEGERS = {"i8": 8, "i16": 16, "i32": 32, "i64": 64}
FLOATS = {"half": 16, "float": 32, "double": 64}
PLACES = INTEGERS | FLOATS
"""The types of what functions read, in order, by their bits."""
LANES = 4
"""Of vectors; functions compute scalars or vectors."""
PLACE = LANES * 8
"""Bytes between values in memory."""
GIVEN = PLACE * len(PLACES)
"""Bytes that a function reads."""
RESULTS = (*PLACES, "i1")
KEPT = 3
"""The number of values of each type that a function writes, the last ones."""
WRITTEN = PLACE * KEPT * len(RESULTS)
"""The most bytes that a function writes, each value at a place of its own."""

_MANGLED = {"half": "f16", "float": "f32", "double": "f64"}
_EXTREMA = ("minimum", "maximum", "minimumnum", "maximumnum")
_NUMBERS = ("0.0", "-0.0", "0.0", "-0.0", "1.0", "-2.0", "0.5")
_ORDERS = {
    "fcmp": ("olt", "ogt", "ult", "ugt", "ole", "uge", "one", "ueq", "oeq", "une", "ord"),
    "icmp": ("eq", "ne", "slt", "sgt", "ult", "ugt", "sle", "uge"),
}


class _Function:
    """Writes one function."""

    def __init__(self, rng: random.Random, lanes: int) -> None:
        self.rng, self.lanes = rng, lanes
        self.lines: list[str] = []
        self.values: dict[str, list[str]] = defaultdict(list)

    def type(self, element: str) -> str:
        return f"<{self.lanes} x {element}>" if self.lanes else element

    def constant(self, element: str, number: str | int) -> str:
        return f"splat ({element} {number})" if self.lanes else str(number)

    def line(self, text: str) -> str:
        self.lines.append(f"  %v{len(self.lines)} = {text}")
        return f"%v{len(self.lines) - 1}"

    def add(self, element: str, text: str) -> str:
        """A line whose value others may use."""
        self.values[element].append(self.line(text))
        return self.values[element][-1]

    def value(self, element: str) -> str:
        """One of the values so far, often of the last ones."""
        found = self.values[element]
        return self.rng.choice(found[-4:] if self.rng.random() < 0.7 else found)

    def operand(self, element: str) -> str:
        """A value, or a constant at which something is special."""
        if self.rng.random() < 0.7:
            return self.value(element)
        if element in FLOATS:
            return self.constant(element, self.rng.choice(_NUMBERS))
        bits = INTEGERS[element]
        near = 0, 1, -1, 7, bits - 1, (1 << min(24, bits - 1)) - 1, -(1 << (bits - 1))
        return self.constant(element, self.rng.choice(near))

    def compared(self, element: str, lhs: str, rhs: str, order: str = "") -> str:
        compare = "fcmp" if element in FLOATS else "icmp"
        order = order or self.rng.choice(_ORDERS[compare])
        return self.add("i1", f"{compare} {order} {self.type(element)} {lhs}, {rhs}")

    # -- the patterns ---------------------------------------------------------------------------

    def combine_conditions(self) -> None:
        op, type = self.rng.choice(("and", "or", "xor")), self.type("i1")
        self.add("i1", f"{op} {type} {self.value('i1')}, {self.value('i1')}")

    def select(self) -> None:
        """Of a value and what it is compared with, often."""
        element = self.rng.choice([*INTEGERS, *FLOATS, *FLOATS])
        a, b = self.value(element), self.operand(element)
        if element in FLOATS and self.rng.random() < 0.4:
            b = self.constant(element, self.rng.choice(_NUMBERS))
        fresh = self.rng.random() < 0.7
        condition = self.compared(element, a, b) if fresh else self.value("i1")
        if self.rng.random() < 0.3:
            a = self.operand(element)
        a, b = self.rng.sample((a, b), 2)
        type = self.type(element)
        self.add(element, f"select {self.type('i1')} {condition}, {type} {a}, {type} {b}")

    def shift(self) -> None:
        """By a constant, or by a count that is selected away if it is too large."""
        element = self.rng.choice([*INTEGERS])
        type, bits = self.type(element), INTEGERS[element]
        shift = f"{self.rng.choice(('shl', 'lshr', 'ashr'))} {type} {self.value(element)}"
        if self.rng.random() < 0.4:
            count = self.rng.choice((1, 8, bits // 2, bits - 1))
            self.add(element, f"{shift}, {self.constant(element, count)}")
            return
        wide = self.rng.choice([t for t, n in INTEGERS.items() if n >= bits])
        count = few = self.value(wide)
        guard = self.compared(wide, few, self.constant(wide, bits), "ult")
        if wide != element:
            count = self.line(f"trunc {self.type(wide)} {few} to {type}")
        shifted, zero = self.line(f"{shift}, {count}"), self.constant(element, 0)
        self.add(element, f"select {self.type('i1')} {guard}, {type} {shifted}, {type} {zero}")

    def join_bytes(self) -> None:
        """Of a number that is shifted by bytes, and of another one."""
        element = self.rng.choice(("i32", "i64"))
        type, count = self.type(element), 8 * self.rng.randrange(1, INTEGERS[element] // 8)
        bytes = self.constant(element, count)
        upper = self.line(f"ashr {type} {self.value(element)}, {bytes}")
        other = self.line(f"and {type} {self.value(element)}, {self.constant(element, 255 << 8)}")
        self.add(element, f"or {type} {upper}, {other}")

    def divide(self) -> None:
        element = self.rng.choice([*INTEGERS])
        type, op = self.type(element), self.rng.choice(("udiv", "urem", "sdiv", "srem"))
        divisor = self.constant(element, self.rng.choice((3, 7, 10, 100)))
        if op[0] == "u" and self.rng.random() < 0.5:
            divisor = self.add(element, f"or {type} {self.value(element)}, {divisor}")
        self.add(element, f"{op} {type} {self.value(element)}, {divisor}")

    def carry(self) -> None:
        """A comparison that tells whether a sum overflows."""
        element = self.rng.choice(("i32", "i64"))
        x, y = self.value(element), self.operand(element)
        total = self.add(element, f"add {self.type(element)} {x}, {y}")
        self.compared(element, total, self.rng.choice((x, y)))

    def upper_half(self) -> None:
        """Of a product of 128 bits, compared with a constant."""
        wide = self.type("i128")
        source = self.line(f"zext {self.type('i64')} {self.value('i64')} to {wide}")
        product = self.line(f"mul {wide} {source}, {self.constant('i128', 65535)}")
        upper = self.line(f"lshr {wide} {product}, {self.constant('i128', 64)}")
        half = self.line(f"trunc {wide} {upper} to {self.type('i16')}")
        number = self.constant("i16", self.rng.choice((-2, 0, 1)))
        self.compared("i16", half, number, self.rng.choice(("eq", "ne")))

    def compute(self) -> None:
        element = self.rng.choice([*INTEGERS, *FLOATS])
        ops = "add sub mul and or xor" if element in INTEGERS else "fadd fsub fmul"
        op, type = self.rng.choice(ops.split()), self.type(element)
        self.add(element, f"{op} {type} {self.operand(element)}, {self.value(element)}")

    def round_product(self) -> None:
        """Or its negation, to fp16."""
        type = self.type("float")
        value = self.add("float", f"fmul {type} {self.value('float')}, {self.operand('float')}")
        if self.rng.random() < 0.5:
            value = self.add("float", f"fneg {type} {value}")
        self.add("half", f"fptrunc {type} {value} to {self.type('half')}")

    def extremum(self) -> None:
        element = self.rng.choice([*FLOATS])
        mangled = (f"v{self.lanes}" if self.lanes else "") + _MANGLED[element]
        type, name = self.type(element), f"@llvm.{self.rng.choice(_EXTREMA)}.{mangled}"
        given = f"{type} {self.value(element)}, {type} {self.operand(element)}"
        self.add(element, f"call {type} {name}({given})")

    def negate(self) -> None:
        element = self.rng.choice([*FLOATS])
        type, zero = self.type(element), self.constant(element, "0.0")
        text = self.rng.choice((f"fneg {type}", f"fsub {type} {zero},"))
        self.add(element, f"{text} {self.value(element)}")

    def convert(self) -> None:
        if self.rng.random() < 0.5:
            source, to = self.rng.sample([*INTEGERS], 2)
            op = "trunc" if INTEGERS[to] < INTEGERS[source] else self.rng.choice(("zext", "sext"))
        else:  # of fp64 to fp16, processors have no instruction
            source, to = self.rng.sample(["float", self.rng.choice(("half", "double"))], 2)
            op = "fptrunc" if FLOATS[to] < FLOATS[source] else "fpext"
        self.add(to, f"{op} {self.type(source)} {self.value(source)} to {self.type(to)}")

    def round_integer(self) -> None:
        source, to = self.rng.choice([*INTEGERS]), self.rng.choice([*FLOATS])
        op = self.rng.choice(("sitofp", "uitofp"))
        self.add(to, f"{op} {self.type(source)} {self.value(source)} to {self.type(to)}")

    # -- the function ---------------------------------------------------------------------------

    def text(self, name: str, steps: int) -> str:
        for place, element in enumerate(PLACES):
            pointer = self.line(f"getelementptr i8, ptr %given, i64 {place * PLACE}")
            self.add(element, f"load {self.type(element)}, ptr {pointer}, align 1")
        self.compared("i32", self.value("i32"), self.constant("i32", 3))
        patterns = (
            self.combine_conditions, self.select, self.select, self.shift, self.divide, self.carry,
            self.upper_half, self.compute, self.compute, self.extremum, self.negate, self.convert,
            self.round_integer, self.round_product, self.join_bytes,
        )  # fmt: skip
        for _ in range(steps):
            self.rng.choice(patterns)()
        self._write_values()
        body = "\n".join(self.lines)
        return f"define void @{name}(ptr %given, ptr noalias %written) {{\n{body}\n  ret void\n}}\n"

    def _write_values(self) -> None:
        for number, element in enumerate(RESULTS):
            for k, value in enumerate(self.values[element][-KEPT:]):
                if element == "i1":
                    value = self.line(f"zext {self.type('i1')} {value} to {self.type('i8')}")
                type = self.type("i8" if element == "i1" else element)
                place = (number * KEPT + k) * PLACE
                pointer = self.line(f"getelementptr i8, ptr %written, i64 {place}")
                self.lines.append(f"  store {type} {value}, ptr {pointer}, align 1")


def module_text(seed: int, count: int, steps: int = 12) -> str:
    """A module of functions `@f0`, `@f1`, …"""
    rng = random.Random(seed)
    functions = [
        _Function(rng, rng.choice((0, 0, LANES))).text(f"f{k}", steps) for k in range(count)
    ]
    declarations = [
        f"declare {type} @llvm.{name}.{vector}{mangled}({type}, {type})"
        for name in _EXTREMA
        for element, mangled in _MANGLED.items()
        for type, vector in ((element, ""), (f"<{LANES} x {element}>", f"v{LANES}"))
    ]
    return "\n".join([*declarations, "", *functions])
