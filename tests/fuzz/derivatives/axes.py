"""Random kernels of tiles of up to three axes, which are reduced, scanned, multiplied, gathered and
sorted along any of them, partly by functions that are random, too.

An array is addressed by some of the coordinates: program indices, counters of loops, indices of the
tile, and integers that are loaded, in any order and with gaps. Programs, iterations and lanes share
elements wherever a coordinate is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from tests.fuzz.derivatives.random_kernel import NumberedKernel

SHAPES = ("", "i", "j", "l", "ij", "il", "jl", "ijl")
"""The axes of a value, in this order."""

FUNCTIONS = """
@jit
def longer(a, b):
    return a + b + a * b * 0.5
@jit
def affine(f, g, u, v):
    return f * u, g * u + v
@jit
def softer(a, b):
    m = tl.maximum(a, b)
    return m + tl.log(tl.exp(a - m) + tl.exp(b - m))
@jit
def applied(f: tl.constexpr, x):
    return f(x) * 0.5
@jit
def softmax_along(x, keep, AXIS: tl.constexpr):
    x = tl.where(keep, x, -float('inf'))
    e = tl.exp(x - tl.max(x, AXIS, keep_dims=True))
    return tl.where(keep, e / tl.sum(e, AXIS, keep_dims=True), 0.0)
@jit
def moments(x, keep, n, AXIS: tl.constexpr):
    mean = tl.sum(tl.where(keep, x, 0.0), AXIS, keep_dims=True) / n
    d = tl.where(keep, x - mean, 0.0)
    return d, tl.rsqrt(tl.sum(d * d, AXIS, keep_dims=True) / n + 0.3)
"""
TWO = (
    "{a} * 0.5 - {b}", "tl.sin({a}) * {b}", "{a} * tl.cos({b})", "{a} / (2.5 + tl.sin({b}))",
    "tl.exp(tl.sin({a})) - {b}", "tl.sigmoid({a}) * {b}", "tl.maximum({a}, {b} * 0.7)",
    "tl.where({c}, {a}, {b})", "tl.clamp({a}, -0.6, 0.7) + {b}", "tl.sqrt({a} * {a} + 0.5) * 0.5",
    "tl.fma({a}, {b}, {a}) * 0.5", "tl.abs({a} - {b}) * 0.5", "tl.log(1.5 + tl.cos({b})) * {a}",
)  # fmt: skip
"""Functions of two values of a shape, and a condition."""

ALONG = (
    "sum", "scan", "affine", "gather", "flip", "softmax", "moments", "sort", "joined", "turned",
    "flat",
)  # fmt: skip
ACROSS = ("sum", "sum", "max", "reduce", "pair", "log", "at", "halves")
LANES = ("own", "own", "own", "reversed", "shared", "window")
"""How an array is addressed by an axis of the tile."""


@dataclass
class Axes(NumberedKernel):
    """A random kernel of tiles of up to three axes.

    Attributes:
        known: the values that may be used, by their axes.
        counters: of the loops around, of which each is below four.
        functions: the names of random functions of two values.
        head: the text before the kernel.
    """

    known: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    counters: list[str] = field(default_factory=list[str])
    functions: list[str] = field(default_factory=list[str])
    head: list[str] = field(default_factory=list[str])

    def __post_init__(self) -> None:
        self.sizes = {axis: self.pick(2, 4, 8 if axis == "j" else 4) for axis in "ijl"}
        self.extents = {
            axis: int(self.rng.integers(1, size + 1)) if self.chance(0.6) else size
            for axis, size in self.sizes.items()
        }
        self.grid = self.pick((2, 3), (3, 1), (1, 4), (2, 2))
        self.args |= {f"n{axis}": n for axis, n in self.extents.items()}
        self.args["steps"] = self.pick(1, 2, 3)
        for _ in range(self.pick(1, 2, 3)):
            self._function()
        self._begin()
        for shape in ("", "i", "ij", self.pick(*SHAPES), "ijl" if self.chance(0.4) else "jl"):
            self._load(shape)
        for _ in range(self.pick(4, 6, 8)):
            self._statement(2)
        for shape in {self.pick("ij", "ijl", "i"), self.pick(*SHAPES[1:])}:
            self._store(shape)
        head = f"def kernel({', '.join(self.args)}):"
        self.text = "\n".join([FUNCTIONS.strip("\n"), *self.head, head, *self.body])

    def _begin(self) -> None:
        """Coordinates and masks."""
        self.known = {shape: [] for shape in SHAPES}
        self.indent = "    "
        self.add("p, q = tl.program_id(0), tl.program_id(1)")
        if self.use("programs in one axis", 0.3):
            first, second = self.grid
            self.grid = (first * second,)
            self.body.pop()
            self.add(f"p, q = tl.program_id(0) % {first}, tl.program_id(0) // {first}")
            self.programs = {"p": first, "q": second}
        else:
            self.programs = dict(zip("pq", self.grid, strict=True))
        for axis, size in self.sizes.items():
            self.add(f"{axis} = tl.arange(0, {size})")

    # -- texts ------------------------------------------------------------------------------------

    def lanes(self, axis: str, shape: str) -> str:
        """The index along an axis in a tile of this shape."""
        return self.expanded(axis, axis, shape)

    def expanded(self, value: str, axes: str, shape: str) -> str:
        """A value of some of the axes, as it is used with all of them."""
        if axes == shape or not axes:
            return value
        return f"{value}[{', '.join(':' if axis in axes else 'None' for axis in shape)}]"

    def inside(self, shape: str) -> str:
        return " & ".join(f"({self.lanes(axis, shape)} < n{axis})" for axis in shape)

    def kept(self, value: str, shape: str, other: str = "0.0") -> str:
        """A value whose masked-off lanes count as this."""
        return f"tl.where({self.inside(shape)}, {value}, {other})" if shape else value

    def full(self, value: str, shape: str) -> str:
        """A number as a tile."""
        sizes = ", ".join(str(self.sizes[axis]) for axis in shape)
        return (
            f"(tl.zeros([{sizes}], tl.float64) + {value})"
            if shape
            else f"tl.cast({value}, tl.float64)"
        )

    def any(self, shape: str) -> str:
        """A known value of a shape, or one made from a smaller one."""
        if self.known[shape] and self.chance(0.85):
            return self.pick(*self.known[shape][-6:])
        parts = [s for s in SHAPES if set(s) < set(shape) and self.known[s]]
        if not parts:
            return self.pick(*self.known[shape]) if self.known[shape] else self.full("0.3", shape)
        part = self.pick(*parts)
        value = self.expanded(self.pick(*self.known[part]), part, shape)
        return self.full(value, shape)

    def condition(self, shape: str) -> str:
        """A bool, or a tile of them."""
        kinds: list[str] = [f"{self.any(shape)} > {self.any('')}"]
        kinds += [f"({self.lanes(axis, shape)} + p) % 3 != 0" for axis in shape]
        if len(shape) > 1:
            kinds.append(f"{self.lanes(shape[0], shape)} >= {self.lanes(shape[1], shape)}")
        if not shape:
            kinds += ["p <= q", f"{self._integer()} > 1", *(f"{k} % 2 == 0" for k in self.counters)]
        return f"({self.pick(*kinds)})"

    # -- functions --------------------------------------------------------------------------------

    def _function(self) -> None:
        """A random function of two values of a shape, which calls those before it."""
        name = f"f{len(self.functions)}"
        lines = ["@jit", f"def {name}(x, y):"]
        values = ["x", "y"]
        for _ in range(self.pick(1, 2, 3)):
            a, b = self.pick(*values), self.pick(*values)
            kind = self.pick("two", "two", "called", "loop", "unrolled", "branch")
            if kind == "called" and self.functions:
                text = f"{self.pick(*self.functions)}({a}, {b})"
            elif kind in ("loop", "unrolled"):
                loop = {"loop": "range(2)", "unrolled": "tl.static_range(3)"}[kind]
                lines.append(f"    for t in {loop}:")
                step = self.pick(*TWO).format(a="y", b="x", c="x > y")
                lines.append(f"        x, y = x * 0.6 + tl.sin(y), {step}")
                self.used.add(f"function: {kind}")
                continue
            else:
                text = self.pick(*TWO).format(a=a, b=b, c=f"{a} > 0.1")
            value = f"v{len(values)}"
            lines.append(f"    {value} = {text}")
            values.append(value)
        lines.append(f"    return {values[-1]} * 0.8 + {self.pick(*values)} * 0.2")
        self.head += lines
        self.functions.append(name)

    # -- memory -----------------------------------------------------------------------------------

    def _integer(self, shape: str = "") -> str:
        """An integer below five, or a tile of them, that is loaded."""
        place, size = self._place(shape, all=False)
        table = f"{self.name('t')}_ptr"
        self.args[table] = self.rng.integers(0, 5, size).astype(np.int32)
        mask = f", mask={self.inside(shape)}, other=0" if shape else ""
        return f"tl.load({table} + {place}{mask})"

    def _place(self, shape: str, all: bool, indirect: str = "") -> tuple[str, int]:
        """An address and the size of the array: by each coordinate, or by some of them."""
        bounds = {**self.programs, **dict.fromkeys(self.counters, 4)}
        terms: list[tuple[str, int]] = []
        for name, bound in bounds.items():
            if all or self.chance(0.5):
                terms.append((name, bound))
            elif self.chance(0.15):
                terms.append((f"({name} // 2)", (bound + 1) // 2))
        for axis in shape:
            bound = self.pick(self.extents[axis], self.sizes[axis])
            bound, lanes = max(bound, self.extents[axis]), self.lanes(axis, shape)
            kind = self.pick("own", "own", *LANES)
            kind = kind if not all or kind == "reversed" else "own"
            if kind == "own":
                terms.append((lanes, bound))
            elif kind == "reversed":
                terms.append((f"({self.extents[axis] - 1} - {lanes})", bound))
            elif kind == "window":
                other = self.pick("p", *self.counters)
                terms.append((f"({other} + {lanes})", bounds[other] + bound))
            else:  # by several lanes
                shared = (f"({lanes} // 2)", (bound + 1) // 2)
                terms.append(self.pick(shared, (f"{lanes} * 0", 1)))
            self.used.add(f"lanes: {kind}")
        if indirect:
            terms.append((indirect, 5))
        order = self.rng.permutation(len(terms))
        size, texts = 1, list[str]()
        for at in order:
            text, bound = terms[at]
            texts.append(f"{text} * {size}" if size > 1 else text)
            size *= bound + (self.pick(0, 0, 0, 1) if size == 1 or self.chance(0.3) else 0)
        return " + ".join(texts) or "0", max(size, 1)

    def _load(self, shape: str) -> None:
        name = self.name("v")
        indirect = self._integer(self.pick("", shape)) if self.use("indirect", 0.15) else ""
        place, size = self._place(shape, False, indirect)
        array = self.array(size)
        mask = self.inside(shape)
        if shape and self.chance(0.25):
            mask = f"{mask} & {self.condition(shape)}"
        rest = f", mask={mask}, other={self.pick('0.0', '0.0', '0.4')}" if mask else ""
        if shape and self.use("a load by a function", 0.1):
            self._taker()
            self.add(f"{name} = take({array} + {place}, {mask})")
        else:
            self.add(f"{name} = tl.load({array} + {place}{rest})")
        self.known[shape].append(name)

    def _taker(self) -> None:
        if "def take(at, mask):" not in self.head:
            self.head += ["@jit", "def take(at, mask):",
                          "    return tl.load(at, mask=mask, other=0.0)"]  # fmt: skip

    def _store(self, shape: str) -> None:
        """A result, of elements of its own."""
        name = f"{self.name('y')}_ptr"
        place, size = self._place(shape, all=True)
        self.args[name] = np.zeros(size)
        value = self.any(shape)
        mask = f", mask={self.inside(shape)}" if shape else ""
        if self.outputs and self.use("a result without a gradient", 0.2):
            self.aux += (name,)
        else:
            self.outputs += (name,)
        if self.use("added atomically", 0.1):
            self.add(f"tl.atomic_add({name} + {place}, {value}{mask})")
        else:
            self.add(f"tl.store({name} + {place}, {value}{mask})")

    # -- values -----------------------------------------------------------------------------------

    def _statement(self, depth: int) -> None:
        kind = self.pick("value", "value", "value", "load", *["for", "sum", "if"] * (depth > 0))
        if kind == "value":
            self._value(self.pick(*SHAPES))
        elif kind == "load":
            self._load(self.pick(*SHAPES))
        else:
            self.used.add(f"{kind}, {2 - depth} deep")
            statement: Callable[[int], None] = getattr(self, f"_{kind}")
            statement(depth - 1)

    def _value(self, shape: str) -> None:
        text, name = self._expression(shape), self.name("v")
        self.add(f"{name} = {text}")
        self.known[shape].append(name)

    def _expression(self, shape: str) -> str:
        """A value of a shape."""
        kinds = ["two", "two", "function", "smaller"]
        kinds += ["along", "along"] * (len(shape) > 0) + ["across", "across"] * (len(shape) < 3)
        kinds += ["product"] * (len(shape) == 2)
        kind = self.pick(*kinds)
        if kind == "function":
            if self.use("a function as an argument", 0.2):
                return f"applied({self.pick('tl.sin', 'tl.sigmoid')}, {self.any(shape)})"
            return f"{self.pick(*self.functions)}({self.any(shape)}, {self.any(shape)})"
        if kind == "smaller":
            parts = [s for s in SHAPES if set(s) < set(shape) and self.known[s]]
            if parts:
                part = self.pick(*parts)
                other = self.expanded(self.pick(*self.known[part]), part, shape)
                return self.pick("{a} * {b}", "{a} + tl.sin({b})").format(
                    a=self.any(shape), b=other
                )
        elif kind == "along":
            return self._along(shape)
        elif kind == "across":
            return self._across(shape)
        elif kind == "product":
            return self._product(shape)
        return self.pick(*TWO).format(a=self.any(shape), b=self.any(shape), c=self.condition(shape))

    def _along(self, shape: str) -> str:
        """Of a tile of the same shape, along one of its axes."""
        at = int(self.rng.integers(len(shape)))
        axis, a, b = shape[at], self.any(shape), self.any(shape)
        x, n = self.kept(a, shape), self.sizes[axis]
        kind = self.pick(*ALONG)
        kind = "flip" if kind == "sort" and at + 1 < len(shape) else kind
        kind = "turned" if kind == "joined" and (at + 1 < len(shape) or n < 4) else kind
        self.used.add(f"along: {kind}")
        back = self.pick("", ", reverse=True")
        if kind == "sum":
            return f"tl.cumsum({x}, {at}{back}) * 0.3"
        if kind == "scan":
            combine = self.pick("longer", "softer")
            return f"tl.associative_scan({x}, {at}, {combine}{back}) * 0.5"
        if kind == "affine":
            pair = f"(tl.sigmoid({a}), {self.kept(b, shape)})"
            return f"tl.associative_scan({pair}, {at}, affine{back})[1] * 0.6"
        if kind == "gather":
            lanes = self.lanes(axis, shape)
            index = self.pick(
                f"({lanes} + 1) % {n}", f"{lanes} // 2", self._integer(shape) + f" % {n}"
            )
            sizes = ", ".join(str(self.sizes[axis]) for axis in shape)
            return f"tl.gather({x}, tl.broadcast_to({index}, [{sizes}]), {at})"
        if kind == "flip":
            return f"tl.flip({x}, {at}) + {b}"
        if kind == "softmax":
            return f"softmax_along({a}, {self.inside(shape)}, {at}) * {b}"
        if kind == "moments":
            d, r = self.name("d"), self.name("r")
            self.add(f"{d}, {r} = moments({a}, {self.inside(shape)}, n{axis}, {at})")
            return f"{d} * {r}"
        if kind == "sort":
            order = self.pick("", ", descending=True")
            return f"tl.sort({x} + {self.lanes(axis, shape)} * 0.01{order})"
        if kind == "joined":
            halves = ", ".join(str(self.sizes[axis]) for axis in shape[:-1])
            u, v = self.name("u"), self.name("v")
            sizes = f"[{halves}{', ' if halves else ''}{n // 2}, 2]"
            self.add(f"{u}, {v} = tl.split(tl.reshape({x}, {sizes}))")
            return f"tl.interleave({u} * {v}, tl.sin({v}) - {u})"
        order = list(reversed(range(len(shape))))
        if kind == "turned":
            turn = f"tl.permute({{}}, {order})"
            return turn.format(f"{turn.format(a)} * tl.cos({turn.format(b)})")
        sizes = [self.sizes[axis] for axis in shape]
        count = int(np.prod(sizes))
        return f"tl.reshape(tl.cumsum(tl.reshape({x}, [{count}]), 0{back}), {sizes}) * 0.2"

    def _across(self, shape: str) -> str:
        """Of a tile with one more axis, which is reduced."""
        axis = self.pick(*(axis for axis in "ijl" if axis not in shape))
        larger = "".join(sorted(shape + axis))
        at, a, b = larger.index(axis), self.any(larger), self.any(larger)
        kind = self.pick(*ACROSS)
        self.used.add(f"across: {kind}")
        if kind == "max":
            other, extremum = self.pick("0.0", "-0.4"), self.pick("max", "min")
            return f"tl.{extremum}({self.kept(a, larger, other)}, {at})"
        if kind == "reduce":
            combine = self.pick("longer", "softer")
            return f"tl.reduce({self.kept(a, larger)}, {at}, {combine})"
        if kind == "pair":
            pair = f"(tl.sigmoid({a}), {self.kept(b, larger)})"
            return f"tl.reduce({pair}, {at}, affine)[1] * 0.6"
        if kind == "log":
            x, m = self.name("x"), self.name("m")
            self.add(f"{x} = {self.kept(a, larger, '-5.0')}", f"{m} = tl.max({x}, {at})")
            self.known[larger].append(x)
            spread = self.expanded(m, shape, larger)
            return f"{m} + tl.log(tl.sum(tl.exp({x} - {spread}), {at}))"
        if kind == "at":
            best = self.name("k")
            self.add(f"{best} = tl.argmax({self.kept(a, larger, '-3.0')}, {at})")
            spread = self.expanded(best, shape, larger)
            hit = f"{self.lanes(axis, larger)} == {spread}"
            return f"tl.sum(tl.where({hit}, {self.kept(b, larger)}, 0.0), {at})"
        if kind == "halves" and self.sizes[axis] > 1 and at + 1 == len(larger):
            sizes = [self.sizes[axis] for axis in larger]
            split = [*sizes[:-1], 2, sizes[-1] // 2]
            return f"tl.sum(tl.sum(tl.reshape({self.kept(a, larger)}, {split}), {at + 1}), {at})"
        return f"tl.sum({self.kept(f'{a} * {b}' if kind == 'sum' else a, larger)}, {at}) * 0.5"

    def _product(self, shape: str) -> str:
        """A matrix product, perhaps of each matrix of two tiles."""
        first, second = shape
        inner = next(axis for axis in "ijl" if axis not in shape)
        self.used.add("product")
        sides: list[str] = []
        for axis, at in ((first, 1), (second, 0)):
            stored = "".join(sorted(axis + inner))
            x = self.kept(self.any(stored), stored)
            turned = stored.index(inner) != at
            sides.append(f"tl.trans({x})" if turned else x)
        if self.use("a product with a sum", 0.4):
            return f"tl.dot({sides[0]}, {sides[1]}, {self.any(shape)}) * 0.5"
        return f"tl.dot({sides[0]}, {sides[1]}) * 0.5"

    # -- statements with statements ---------------------------------------------------------------

    def _inside(
        self, head: str, changed: Sequence[tuple[str, str]], depth: int, sum: bool
    ) -> None:  # fmt: skip
        """A block of statements, of which only these values are known after it. `sum`: it only adds
        to them."""
        before = {shape: list(names) for shape, names in self.known.items()}
        for shape, name in changed if sum else ():
            self.known[shape].remove(name)
        self.add(head)
        self.indent += "    "
        for _ in range(self.pick(1, 1, 2)):
            if sum:
                self._load(self.pick(*SHAPES))
            self._statement(depth)
        for shape, name in changed:
            text = self._expression(shape)
            self.add(f"{name} {'+=' if sum else '='} {text}")
            if sum and self.chance(0.2):
                self.add(f"{name} -= {self.any(shape)} * 0.5")
        if self.use("store in a loop", 0.2 * (len(self.counters) == 1 and head.startswith("for"))):
            self._store(self.pick(*SHAPES))
        self.indent = self.indent[4:]
        self.known = before

    def _carried(self) -> list[tuple[str, str]]:
        """Values that a statement changes, with their axes."""
        found: list[tuple[str, str]] = []
        for _ in range(self.pick(1, 1, 2, 3)):
            shape, name = self.pick(*SHAPES), self.name("h")
            zero = self.chance(0.5)
            self.add(f"{name} = {self.full('0.0', shape) if zero else f'{self.any(shape)} * 0.5'}")
            found.append((shape, name))
            self.known[shape].append(name)
        return found

    def _loop(self, depth: int, sum: bool) -> None:
        changed, k = self._carried(), self.name("k")
        begin = self.pick("0", "0", "0", "p", "1")
        stop = self.pick("3", "steps", "steps", "q + 1", "4")
        step = self.pick("", "", "", ", 2")
        self.counters.append(k)
        self._inside(f"for {k} in range({begin}, {stop}{step}):", changed, depth, sum)
        self.counters.pop()

    def _for(self, depth: int) -> None:
        self._loop(depth, False)

    def _sum(self, depth: int) -> None:
        self._loop(depth, True)

    def _if(self, depth: int) -> None:
        changed = self._carried()
        self._inside(f"if {self.condition('')}:", changed, depth, False)
        if self.chance(0.6):
            self._inside("else:", changed, depth, False)
