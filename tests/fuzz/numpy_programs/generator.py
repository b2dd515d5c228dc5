"""Random kernels of many element types, rich in branches, as text.

    print(random_program(7))

A program is a module of Python: a kernel, and what its launch is.
"""

from __future__ import annotations

from collections.abc import Callable

from tests.fuzz.numpy_programs.expressions import FP8, INTEGERS, Expressions, Shape
from tests.fuzz.numpy_programs.values import DTYPES

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
def settled(pair, counts):
    a, b = pair
    n, m = counts
    if n > 7:
        return b, a
    while n < 5:
        n += m + 1
        if m > 3:
            a, b = b, a
        else:
            b = tl.where(a == b, b, a)
    return a, b


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


class Kernel(Expressions):
    """Writes one kernel."""

    def any_type(self) -> str:
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
        type, shape = self.any_type(), self.rng.choice("SVVMMRC")
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
        type, shape = self.any_type(), self.rng.choice("SVMRC")
        a, b = (self.expression(type, shape, 1) for _ in range(2))
        if self.chance(0.6):
            name, other = self.name(), self.name()
            call = f"exchanged(({a}, {b}), {self.operand('int1', shape, 1)})"
            if self.chance(0.5):
                call = f"settled(({a}, {b}), ({self.rng.choice('nm')}, {self.rng.choice('nm')}))"
            self.emit(f"{name}, {other} = {call}")
            self.variables += [(name, type, shape), (other, type, shape)]
        else:
            self.assign(type, shape, f"chosen(({a}, {b}), {self.rng.choice('nm')})")

    def masked_store(self, level: int) -> None:
        """To elements that other such stores write, too: the last one counts."""
        type = self.any_type()
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
        if self.chance(0.3) and shape in "VM" and self.columns > 4 and DTYPES[type].bits >= 32:
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
        if self.chance(0.4):
            out = f"b_{name}"
            self.args[out] = f"*{source}"
            self.emit(
                f"{name} = tl.make_block_ptr({out} + pid * N, ({rows}, {columns}), "
                f"{strides}, {offsets}, ({rows}, {columns}), {order})"
            )
            value = self.expression(source, "M", 2)
            self.emit(f"tl.store({name}, {value}, boundary_check=(0, 1))")

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
        if self.chance(0.4):
            out = self.name()
            self.args[f"d_{out}"] = f"*{source}"
            self.emit(
                f"{out} = tl.make_tensor_descriptor(d_{out} + pid * N, "
                f"[{rows}, {columns}], [{columns}, 1], [{rows}, {columns}])"
            )
            self.emit(f"{out}.store({offsets}, {self.expression(source, 'M', 2)})")

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
