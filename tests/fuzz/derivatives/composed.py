"""Random kernels of rows from statements of many kinds, in any order: what one of them stores,
another one uses, at other lanes and under other masks.

A result may be stored at lanes other than those that its value has, or in lanes that others need,
with a gradient or without. Gradient kernels may load it only where that is what they would compute.
Loads are shifted, reversed, of flat indices, gathered, by descriptors, or masked by data.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from tests.fuzz.derivatives.random_kernel import NumberedKernel

HEAD = """
@jit
def cell(c, h, x):
    f = tl.sigmoid(x + h)
    c = f * c + (1.0 - f) * tl.sin(x)
    return c, f * tl.sin(c)
@jit
def split_sum(x, keep):
    return tl.sum(tl.where(keep & (x > 0), x, 0.0), 0), tl.sum(tl.where(keep, x * x, 0.0), 0)
"""
OPERATIONS = (
    "{a} * 0.5 - {b}", "{a} * tl.sin({b})", "{a} / (2.5 + tl.sin({b}))", "tl.exp(tl.sin({a}))",
    "tl.where({a} > {s}, {a}, {b} * 0.5)", "tl.where({c}, {a}, {b})", "{a} * {s} + {b}",
    "tl.clamp({a}, -0.7, 0.6) * tl.cos({b})", "tl.cumsum(tl.where(keep, {a}, 0.0), 0) * 0.2",
    "tl.gather({a}, (j + 3) % 16, 0) + {b}", "tl.gather({a}, j ^ 1, 0) * tl.cos({b})",
    "tl.flip({a}, 0) + {b}", "{a} + tl.sum(tl.where(keep, {b}, 0.0), 0) * 0.1",
)  # fmt: skip
LANES = {"plain": "j", "shifted": "(j + 1) % n", "reversed": "n - 1 - j"}
"""Places in a row of n elements, each of which a lane j < n has once."""


@dataclass
class Composed(NumberedKernel):
    """A random kernel over tiles of 16 lanes, of which a row has n.

    Attributes:
        tiles, scalars: the values that statements may use.
        conditions: tiles of bools.
    """

    tiles: list[str] = field(default_factory=list[str])
    scalars: list[str] = field(default_factory=list[str])
    conditions: list[str] = field(default_factory=list[str])

    def __post_init__(self) -> None:
        self.m, self.n = int(self.rng.integers(1, 5)), int(self.rng.integers(3, 17))
        self.args |= {"m": self.m, "n": self.n}
        self._rows()
        self.add("j = tl.arange(0, 16)", "keep = j < n")
        self.conditions = ["keep", "j % 3 == 0"]
        self._load()
        self._mean()
        kinds = [self.pick(*STATEMENTS) for _ in range(self.pick(3, 4, 6))]
        for kind in kinds:
            self.used.add(f"statement: {kind}")
            statement: Callable[[], None] = getattr(self, f"_{kind}")
            statement()
        self._store(self.pick(*self.tiles[-2:]), sure=True)
        head = f"def kernel({', '.join(self.args)}):"
        self.text = "\n".join([HEAD.strip("\n"), head, *(f"    {line}" for line in self.body)])

    def _rows(self) -> None:
        kind = self.pick("program", "program", "loop", "return")
        self.used.add(f"rows: {kind}")
        if kind == "loop":
            self.grid = (self.pick(1, 2),)
            self.add("for row in range(tl.program_id(0), m, tl.num_programs(0)):")
            self.indent = "    "
        else:
            self.grid = (self.m + (kind == "return"),)
            self.add("row = tl.program_id(0)")
            if kind == "return":
                self.add("if row >= m:", "    return")

    # -- arguments --------------------------------------------------------------------------------

    def integers(self, limit: int, *shape: int) -> str:
        found = f"{self.name('t')}_ptr"
        self.args[found] = self.rng.integers(0, limit, shape).astype(np.int32)
        return found

    def output(self, sure: bool, *shape: int) -> str:
        """An array for a result, with a gradient or without."""
        found = f"{self.name('y')}_ptr"
        self.args[found] = np.zeros(shape)
        if sure or self.chance(0.5):
            self.outputs = (*self.outputs, found)
        else:
            self.used.add("a result without a gradient")
            self.aux = (*self.aux, found)
        return found

    def define(self, text: str, scalar: bool = False) -> str:
        found = self.name("s" if scalar else "v")
        self.add(f"{found} = {text}")
        (self.scalars if scalar else self.tiles).append(found)
        return found

    # -- statements -------------------------------------------------------------------------------

    def _load(self) -> None:
        kind = self.pick("row", "row", "flat", "shared", "gathered", "pairs", "descriptor")
        self.used.add(f"load: {kind}")
        m, n = self.m, self.n
        mask = self.pick("keep", "keep", *self.conditions)
        mask = mask if mask == "keep" else f"keep & ({mask})"
        rest = f", mask={mask}, other={self.pick('0.0', '0.0', '0.3')})"
        if kind == "row":
            lanes = LANES[self.pick(*LANES)]
            self.define(f"tl.load({self.array(m, n)} + row * n + {lanes}{rest}")
        elif kind == "flat":
            inner, count = self.pick(1, 2, 3), self.pick(2, 3)
            place = f"(row * n + j) // {inner} % {count}"
            self.define(f"tl.load({self.array(count)} + {place}{rest}")
        elif kind == "shared":
            self.define(f"tl.load({self.array(n)} + {LANES[self.pick(*LANES)]}{rest}")
        elif kind == "gathered":
            index = self.name("i")
            self.add(f"{index} = tl.load({self.integers(5, m, n)} + row * n + j, mask=keep)")
            self.define(f"tl.load({self.array(5)} + tl.where(keep, {index}, 0){rest}")
        elif kind == "pairs":
            self.define(f"tl.load({self.array(m, 2 * n)} + row * 2 * n + 2 * j + "
                        f"{self.pick(0, 1)}{rest}")  # fmt: skip
        else:
            x, tile = self.array(m, 16), self.name("d")
            self.add(f"{tile} = tl.make_tensor_descriptor({x}, [m, 16], [16, 1], [1, 16])")
            self.define(f"{tile}.load([row, 0]).reshape([16])")

    def _compute(self) -> None:
        self.define(
            self.pick(*OPERATIONS).format(
                a=self.pick(*self.tiles), b=self.pick(*self.tiles), s=self.pick(*self.scalars),
                c=self.pick(*self.conditions),
            )
        )  # fmt: skip

    def _condition(self) -> None:
        """A mask from data: of integers, or of floats."""
        found = self.name("c")
        if self.chance(0.5):
            t = self.integers(2, self.m, self.n)
            self.add(f"{found} = tl.load({t} + row * n + j, mask=keep, other=0) > 0")
        else:
            self.add(f"{found} = {self.pick(*self.tiles)} > {self.pick('0.1', *self.scalars)}")
        self.conditions.append(found)

    def _mean(self) -> None:
        of = self.pick(*self.tiles)
        self.define(f"tl.sum(tl.where({self.pick(*self.conditions)}, {of}, 0.0), 0) / n", True)

    def _scale(self) -> None:
        """A statistic whose reciprocal is stored, or which is, and comparisons with it."""
        of = f"tl.where(keep, {self.pick(*self.tiles)}, 0.0)"
        root = f"tl.sqrt(tl.sum({of} * {of}, 0) / n + 0.2)"
        scale = self.define(self.pick(f"tl.max(tl.abs({of}), 0) + 0.4", root), True)
        inverse = self.define(f"1.0 / {scale}", True)
        stored = self.pick("", scale, inverse)
        if stored:
            self.add(f"tl.store({self.output(False, self.m)} + row, {stored})")
        x = self.pick(*self.tiles)
        self.define(self.pick(
            f"{x} * {inverse}", f"{x} / {scale}",
            f"tl.where(tl.abs({x}) < 0.7 * {scale}, {x} * {inverse}, tl.sin({x}))",
            f"tl.where(tl.abs({x}) * {inverse} < 0.7, {x}, {scale} * 0.5)",
        ))  # fmt: skip

    def _softmax(self) -> None:
        """A softmax that is stored at other lanes, or not in all lanes that are used."""
        x, inside = self.pick(*self.tiles), self.pick("keep", *self.conditions)
        inside = f"((j == 0) | (keep & ({inside})))"
        e, total = self.name("e"), self.name("l")
        self.add(f"z = tl.where({inside}, {x}, -float('inf'))", f"{e} = tl.exp(z - tl.max(z, 0))",
                 f"{total} = tl.sum({e}, 0)")  # fmt: skip
        y = self.define(f"{e} / {total}")
        if self.chance(0.7):
            self._store(y, sure=False)
        if self.chance(0.4):
            self.define(f"tl.sin({e}) * 0.5")
        if self.chance(0.3):
            self.define(f"tl.log({total})", True)

    def _maximum(self) -> None:
        """The greatest element, where it is, and its neighbour in memory."""
        x = f"tl.where(keep, {self.pick(*self.tiles)}, -2.0)"
        at = self.name("i")
        self.add(f"{at} = tl.argmax({x}, 0)")
        self.define(f"tl.max({x}, 0)", True)
        self.define(f"tl.where(j == {at}, {self.pick(*self.tiles)}, {self.pick(*self.tiles)})")
        if self.chance(0.5):
            table = self.array(self.m, self.n)
            self.define(f"tl.load({table} + row * n + ({at} + 1) % n)", True)

    def _states(self) -> None:
        """A loop that carries a tuple, with a load in each iteration."""
        weights, x, state = self.array(3, 16), self.pick(*self.tiles), self.name("q")
        kind = self.pick("tuple", "names")
        self.used.add(f"states: {kind}")
        ends = (f"{state}[0]", f"{state}[1]")
        if kind == "tuple":
            self.add(f"{state} = ({x} * 0.5, tl.zeros([16], tl.float64))", "for k in range(3):",
                     f"    w = tl.load({weights} + k * 16 + {self.pick('j', '15 - j')})",
                     f"    {state} = cell({state}[0], {state}[1], w + {x})")  # fmt: skip
        else:
            ends = (f"{state}c", f"{state}h")
            self.add(f"{ends[0]}, {ends[1]} = {x} * 0.5, tl.zeros([16], tl.float64)",
                     "for k in range(row, 3):", f"    w = tl.load({weights} + k * 16 + j)",
                     f"    {ends[0]}, {ends[1]} = cell({ends[1]}, {ends[0]}, w * {x})")  # fmt: skip
        self.define(self.pick(f"{ends[0]} * {ends[1]}", f"{ends[0]}", f"{ends[1]}"))

    def _totals(self) -> None:
        """Sums of which a function returns two."""
        total, square = self.name("s"), self.name("s")
        self.add(f"{total}, {square} = split_sum({self.pick(*self.tiles)}, keep)")
        self.scalars += [f"({total} * 0.1)", f"({square} * 0.1)"]

    def _branch(self) -> None:
        """One of two tiles, by what is loaded."""
        flag, found = self.integers(2, self.m), self.name("v")
        a, b = self.pick(*self.tiles), self.pick(*self.tiles)
        self.add(f"if tl.load({flag} + row) > 0:", f"    {found} = {a} * {b}", "else:",
                 f"    {found} = tl.load({self.array(16)} + j) + {a}")  # fmt: skip
        self.tiles.append(found)

    def _add(self) -> None:
        """An atomic sum whose result is not used, and perhaps a count."""
        y, x = self.output(False, 4), self.pick(*self.tiles)
        place = self.pick("j % 4", "(row + j) % 4", "row % 4 + j * 0")
        self.add(f"tl.atomic_add({y} + {place}, {x}, mask=keep)")
        if self.chance(0.4):
            count = self.integers(1, 4)
            self.add(f"tl.atomic_add({count} + {place}, 1, mask={self.pick(*self.conditions)})")

    def _result(self) -> None:
        self._store(self.pick(*self.tiles), sure=False)

    def _store(self, value: str, sure: bool) -> None:
        kind, m, n = self.pick("row", "row", "pairs", "transposed"), self.m, self.n
        self.used.add(f"store: {kind}")
        mask = self.pick("keep", "keep", *self.conditions)
        mask = mask if mask == "keep" else f"keep & ({mask})"
        if kind == "row":
            lanes = LANES[self.pick(*LANES)]
            place = f"{self.output(sure, m, n)} + row * n + {lanes}"
        elif kind == "pairs":
            place = f"{self.output(sure, m, 2 * n)} + (row * n + j) * 2 + {self.pick(0, 1)}"
        else:
            place = f"{self.output(sure, n, m)} + j * m + row"
        self.add(f"tl.store({place}, {value}, mask={mask})")


STATEMENTS = (
    "load", "compute", "compute", "condition", "mean", "scale", "scale", "softmax", "softmax",
    "maximum", "states", "totals", "branch", "add", "result", "result",
)  # fmt: skip
