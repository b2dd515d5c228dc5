"""Random kernels of statements within statements: loops, branches and loops that end early, up to
three deep, on values of several shapes.

Loops carry numbers, rows, columns and tiles together. What is done, and how often, depends on
integers that are loaded and on numbers that are computed. Arrays have gaps between rows, or columns
first, and tiles are larger than what is stored.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from tests.fuzz.derivatives.random_kernel import NumberedKernel

NARROW = "({a}).to(tl.float32).to(tl.float64)"
# By shape; a, b are of that shape, the other letters of the shapes that they begin.
OPERATIONS = {
    "tile": (
        "{a} * 0.5 - {b}", "tl.sin({a}) * {b}", "{a} * {r}[None, :]", "{a} + {c}[:, None]",
        "{a} * {n}",
        "tl.where({t}, {a}, {b})", "{c}[:, None] * {r}[None, :]", "tl.exp(tl.sin({a})) * {n}",
        "{a} / (2.0 + tl.cos({r}))[None, :]", "tl.cumsum(tl.where(keep, {a}, 0.0), 1) * 0.2",
        "tl.trans(tl.trans({a}) * {c}[None, :])", "tl.broadcast_to({c}[:, None], [4, 8]) * {a}"
    ),
    "row": (
        "{a} * 0.5 + {b}", "tl.sin({a})", "tl.sum(tl.where(keep, {t_}, 0.0), 0) * 0.3", "{a} * {n}",
        "tl.where(j % 3 == 0, {a}, {b})", "tl.flip(tl.where(j < m, {a}, 0.0), 0)"
    ),
    "column": (
        "{a} - {b} * 0.5", "tl.cos({a}) * {b}", "tl.sum(tl.where(keep, {t_}, 0.0), 1) * 0.3",
        "tl.sum(tl.where(keep, {t_} * {r}[None, :], 0.0), axis=1) * 0.2", "{a} * {n}"
    ),
    "number": (
        "{a} * 0.5 + {b}", "tl.sin({a} + {b})", "tl.sum(tl.where(i < n, {c}, 0.0)) * 0.2",
        "tl.sum(tl.where(j < m, {r}, 0.0)) * 0.2", "tl.sum(tl.where(keep, {t_}, 0.0)) * 0.1"
    ),
}  # fmt: skip


@dataclass
class Nested(NumberedKernel):
    """A random kernel of nested statements.

    Attributes:
        known: the values that may be used, by shape.
        counters: of the loops around.
        is_mixed: whether some values are rounded to fp32.
        limit: the relative error that this allows.
    """

    known: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    counters: list[str] = field(default_factory=list[str])
    limit: float = 1e-8
    is_mixed: bool = False

    def __post_init__(self) -> None:
        if self.chance(0.2):
            self.is_mixed, self.limit, self.slopes = True, 1e-4, False
        n, m = int(self.rng.integers(1, 5)), int(self.rng.integers(1, 9))
        self.grid, self.indent = self.pick((2, 2), (3, 1), (1, 2)), "    "
        self.args |= {"n": n, "m": m, "steps": self.pick(0, 1, 3)}
        self.args["f_ptr"] = self.rng.integers(0, 4, 4 * 64).astype(np.int32)
        self.add(
            "i, j = tl.arange(0, 4), tl.arange(0, 8)", "keep = (i < n)[:, None] & (j < m)[None, :]"
        )
        self._coordinates()
        self.known = {shape: [] for shape in OPERATIONS}
        for shape in OPERATIONS:
            self._load(shape)
        for _ in range(self.pick(3, 4, 6)):
            self._statement(3)
        self.add(self._store_of("0", " + ".join(self.known["tile"][-2:])))
        self._finish()

    def _coordinates(self) -> None:
        kind = self.pick("program", "program", "flat", "persistent")
        self.used.add(f"programs: {kind}")
        of_second = self.grid[1]
        self.args["programs"] = self.grid[0] * of_second
        if kind == "program":
            self.add("p, q = tl.program_id(0), tl.program_id(1)")
            return
        self.grid = (self.grid[0] * of_second,)
        if kind == "persistent":
            self.grid = (2,)
            if self.chance(0.5):
                self.add("at = tl.program_id(0)", "while at < programs:")
            else:
                self.add("for at in range(tl.program_id(0), programs, 2):")
            self.indent += "    "
        else:
            self.add("at = tl.program_id(0)")
        self.add(f"p, q = at // {of_second}, at % {of_second}")

    def _finish(self) -> None:
        if any(line.strip() == "while at < programs:" for line in self.body):
            self.add("at += tl.num_programs(0)")
        head = f"def kernel({', '.join(self.args)}):"
        self.text = "\n".join([head, *self.body])

    # -- memory -----------------------------------------------------------------------------------

    def _load(self, shape: str) -> None:
        """A load of an array of its own: of the program and the iteration, or shared."""
        name, of_iteration = self.name("v"), self.chance(0.6)
        steps = "".join(f" + {k} * {self.pick(64, 64, 128)}" for k in self.counters if of_iteration)
        place = self.pick("(p * 2 + q) * 1024", "p * 1024", "q * 1024", "0") + steps
        masked = self.pick("", ", other=0.0", ", other=0.5")
        if shape == "tile":
            row, column = self.pick((8, 1), (8, 1), (1, 4), (0, 1), (11, 1))
            lanes, mask = f"i[:, None] * {row} + j[None, :] * {column}", "keep"
        elif shape == "number":
            lanes, mask, masked = "0", "", ""
        else:
            lane, mask = ("j", "j < m") if shape == "row" else ("i", "i < n")
            lanes = f"{lane} * {self.pick(1, 1, 2, 3)}"
        if self.use("an index that is loaded", 0.15):
            lanes += f" + {self._integer()} * 16"
        array = self.array(6 * 1024)
        self.add(
            f"{name} = tl.load({array} + {place} + {lanes}{mask and f', mask={mask}'}{masked})"
        )
        self.known[shape].append(name)

    def _integer(self) -> str:
        """A number below 4 that is loaded."""
        return f"tl.load(f_ptr + (p * 2 + q) % 4 * 64 + {self.pick('0', *self.counters)} % 64)"

    def _store_of(self, counter: str, value: str) -> str:
        """A store of a result of its own."""
        result = self.array(6 * 256)
        self.args[result][...] = 0.0
        self.outputs += (result,)
        at = f"(p * 2 + q) * 256 + {counter} * 32 + i[:, None] * 8 + j[None, :]"
        return f"tl.store({result} + {at}, {value}, mask=keep)"

    # -- values -----------------------------------------------------------------------------------

    def _expression(self, shape: str) -> str:
        narrow = self.is_mixed and self.use("fp32", 0.1)
        text = NARROW if narrow else self.pick(*OPERATIONS[shape])
        tile, row, column, number = (self.pick(*self.known[kind]) for kind in OPERATIONS)
        a, b = self.pick(*self.known[shape]), self.pick(*self.known[shape])
        test = self.pick("keep", "i[:, None] + p > j[None, :]", f"{tile} > {number}")
        return text.format(a=a, b=b, r=row, c=column, n=number, t=test, t_=tile)

    def _compute(self, shape: str, name: str = "") -> None:
        name = name or self.name("v")
        self.add(f"{name} = {self._expression(shape)}")
        if name not in self.known[shape]:
            self.known[shape].append(name)

    def _condition(self) -> str:
        number = self.pick(*self.known["number"])
        return self.pick(
            f"{self._integer()} > 1", f"{number} > 0.1", "p == q",
            f"(p + q > 0) & ({number} < 0.4)",
            *(f"{k} % 2 == 0" for k in self.counters),
        )  # fmt: skip

    # -- statements -------------------------------------------------------------------------------

    def _statement(self, depth: int) -> None:
        kinds = ["value", "value", "load"] + ["for", "for", "while", "if"] * (depth > 0)
        kind = self.pick(*kinds)
        if kind == "value":
            self._compute(self.pick(*OPERATIONS))
        elif kind == "load":
            self._load(self.pick(*OPERATIONS))
        else:
            self.used.add(f"{kind}, {3 - depth} deep")
            getattr(self, f"_{kind}")(depth - 1)

    def _carried(self) -> list[tuple[str, str]]:
        """Values that a statement changes, with their shapes: copies, of one to three shapes."""
        found: list[tuple[str, str]] = []
        for _ in range(self.pick(1, 2, 3)):
            shape, name = self.pick(*OPERATIONS), self.name("h")
            self.add(f"{name} = {self.pick(*self.known[shape])} * {self.pick('1.0', '0.5')}")
            found.append((shape, name))
            self.known[shape].append(name)
        return found

    def _inside(self, head: str, changed: list[tuple[str, str]], depth: int, end: str = "") -> None:
        """A block of statements, of which only these values are known after it."""
        before = {shape: list(names) for shape, names in self.known.items()}
        self.add(head)
        self.indent += "    "
        for _ in range(self.pick(0, 1, 2)):
            self._statement(depth)
        for shape, name in changed:
            if self.chance(0.3):
                self.add(f"{name} += {self._expression(shape)}")
            else:
                self._compute(shape, name)
        if end:
            self.add(end)
        self.indent = self.indent[4:]
        self.known = before

    def _for(self, depth: int) -> None:
        changed, k = self._carried(), self.name("k")
        begin = self.pick("0", "0", "p", "1", *self.counters)
        stop = self.pick("3", "steps", "q + 2", self._integer(), "4")
        step = self.pick("", "", ", 2")
        self.counters.append(k)
        end = ""
        if not depth and self.use("break", 0.3):
            end = f"if {self._condition()}: break"
        elif self.indent == "    " and "f_ptr" not in stop and self.use("store in a loop", 0.3):
            tiles = [name for shape, name in changed if shape == "tile"]
            end = self._store_of(k, self.pick(*(tiles or self.known["tile"])))
        self._inside(f"for {k} in range({begin}, {stop}{step}):", changed, depth, end)
        self.counters.pop()

    def _while(self, depth: int) -> None:
        changed, k = self._carried(), self.name("k")
        number = self.pick(*self.known["number"])
        begin, test, end = self.pick(
            ("0", f"{k} < {self.pick('3', 'steps', 'q + 2')}", f"{k} += 1"),
            (self.pick("3", "steps"), f"{k} > 0", f"{k} -= {self.pick(1, 2)}"),
            (self._integer(), f"{k} >= 1", f"{k} = {k} // 2"),
            ("0", f"({k} < 3) & ({number} < 0.5)", f"{k} += 1"),
        )
        self.add(f"{k} = {begin} + 0")
        self.counters.append(k)
        self._inside(f"while {test}:", changed, depth, end)
        self.counters.pop()

    def _if(self, depth: int) -> None:
        changed = self._carried()
        self._inside(f"if {self._condition()}:", changed, depth)
        if self.chance(0.6):
            self._inside("else:", changed, depth)
