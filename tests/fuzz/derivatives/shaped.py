"""Random kernels of rows in the shapes of published ones: how tiles are loaded, what is computed
from them, which loops do that, and how results are stored, is drawn from what libraries do.

Loads are transposed, of every second element, of halves, split, reversed, gathered, masked by
loaded integers, of neighbours, or by block pointers; rows and lanes share elements. Maxima have
ties by construction, of equal functions of the inputs, so that differences have a limit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tests.fuzz.derivatives.random_kernel import NumberedKernel

# Of tiles a and b, at a condition c. None of them lets numbers grow.
OPERATIONS = {
    "sum": "{a} * 0.5 - {b}", "product": "{a} * tl.sin({b})",
    "quotient": "{a} / (2.5 + tl.sin({b}))",
    "exp": "tl.exp(tl.sin({a}))", "exp2": "tl.exp2(tl.cos({a}))", "abs": "tl.abs({a}) + {b}",
    "log": "tl.log(3.0 + tl.sin({a}))", "rsqrt": "tl.rsqrt(1.5 + tl.sin({a})) * {b}",
    "sigmoid": "{a} * tl.sigmoid({b})", "fma": "tl.fma({a}, tl.cos({b}), {a})",
    "clamp": "tl.clamp({a}, -0.4, 0.3) + {b}", "where": "tl.where({c}, {a}, {b})",
    "tie": "tl.maximum({a}, tl.where({c}, {a}, {b}))",
    "tie of two": "tl.minimum(tl.sin({a}), tl.sin({a})) + {b}",
    "maximum of a row": "tl.max({a}, 1)[:, None] * 0.5 + {b}",
    "minimum of a column": "tl.min({a}, 0)[None, :] + tl.sin({b})",
    "maximum of equal ones": "tl.max(tl.broadcast_to(tl.sum({a}, 1)[:, None], {a}.shape), 1)"
    "[:, None] * 0.2 + {b}",
    "mean": "{a} - tl.sum({a}, 1)[:, None] / n", "count": "{a} / (1.0 + tl.sum(({b} > 0).to("
    "tl.float64), 1)[:, None])",
    "softmax": "soft({a} + tl.sin({b}))", "cumulative sum": "tl.cumsum({a}, 1) * 0.2 + {b}",
    "reversed cumulative sum": "tl.cumsum({a}, 1, reverse=True) * 0.2",
    "cumulative product": "tl.cumprod(1.0 + 0.2 * tl.sin({a}), 1) * tl.cos({b})",
    "flip": "tl.flip({a}, 1) * tl.cos({b})",
    "pairs": "pairs({a}) + {b}", "swapped pairs": "swapped({a}) * tl.cos({b})",
    "rounded": "{a} * (1.0 + tl.floor({b} * 3.0 + 0.1) * 0.1)",
}  # fmt: skip
HEAD = """
@jit
def soft(x):
    e = tl.exp(x - tl.max(x, 1)[:, None])
    return e / tl.sum(e, 1)[:, None]
@jit
def pairs(x):
    y = tl.reshape(x, [x.shape[0], x.shape[1] // 2, 2])
    both = tl.sum(tl.sin(y), 2)
    return tl.reshape(tl.broadcast_to(both[:, :, None], y.shape), x.shape)
@jit
def swapped(x):
    a, b = tl.split(tl.reshape(x, [x.shape[0], x.shape[1] // 2, 2]))
    return tl.reshape(tl.join(b, -a), x.shape)
"""


@dataclass
class Shaped(NumberedKernel):
    """A random kernel of rows."""

    def __post_init__(self) -> None:
        self.tile_m, self.tile_n = self.pick(2, 4), self.pick(4, 8)
        self.programs = int(self.rng.integers(1, 4))
        self.blocks = self.pick(1, 1, 2, 3)
        self.images = self.pick(1, 1, 2)
        self.m = self.programs * self.tile_m - int(self.rng.integers(0, self.tile_m))
        self.n = self.blocks * self.tile_n - int(self.rng.integers(0, self.tile_n - 1))
        self.args |= {"m": self.m, "n": self.n}
        self.grid = (self.programs, self.images)
        self.add(
            "row, image = tl.program_id(0), tl.program_id(1)",
            f"i = row * {self.tile_m} + tl.arange(0, {self.tile_m})",
        )
        if self.use("early return", 0.1):
            self.add("if (row == 1) & (image == 0):", "    return")
        shape: Callable[[], None] = self.pick(
            self.one_pass, self.one_pass, self.two_passes, self.accumulated, self.carried, self.rows
        )
        shape()
        self.finish()

    def integers(self, limit: int, *shape: int) -> str:
        found = f"{self.name('t')}_ptr"
        kind = self.pick(np.int32, np.int64, np.int8) if limit < 100 else np.int32
        self.args[found] = self.rng.integers(0, limit, shape).astype(kind)
        return found

    def output(self, *shape: int) -> str:
        found = f"{self.name('y')}_ptr"
        self.args[found] = np.zeros(shape)
        self.outputs = (*self.outputs, found)
        return found

    # -- loads ------------------------------------------------------------------------------------

    def load(self) -> str:
        """A tile of rows i and columns j."""
        kind = self.pick(*LOADS)
        self.used.add(f"load: {kind}")
        found = self.name("v")
        self.add(*(line.format(v=found) for line in getattr(self, f"_{kind}")()))
        return found

    def _plain(self) -> list[str]:
        x, other = self.array(self.images, self.m, self.n), self.pick("0.0", "0.0", "0.7")
        return [f"{{v}} = tl.load({x} + (image * m + i)[:, None] * n + j[None, :], mask=inside, "
                f"other={other})"]  # fmt: skip

    def _shared_by_images(self) -> list[str]:
        x = self.array(self.m, self.n)
        return [f"{{v}} = tl.load({x} + i[:, None] * n + j[None, :], mask=inside, other=0.0)"]

    def _transposed(self) -> list[str]:
        x = self.array(self.images, self.n, self.m)
        place = f"{x} + (image * n + j)[:, None] * m + i[None, :]"
        return [f"{{v}} = tl.trans(tl.load({place}, mask=tl.trans(inside), other=0.0))"]

    def _every_second(self) -> list[str]:
        x = self.array(self.images, self.m, 2 * self.n)
        place = f"{x} + (image * m + i)[:, None] * (2 * n) + 2 * j[None, :]"
        return [
            f"{{v}} = tl.load({place}, mask=inside, other=0.0)",
            f"{{v}} = {{v}} * tl.cos(tl.load({place} + 1, mask=inside, other=0.0))",
        ]

    def _halves(self) -> list[str]:
        x = self.array(self.images, self.m, 2 * self.n)
        place = f"{x} + (image * m + i)[:, None] * (2 * n) + j[None, :]"
        return [
            f"{{v}} = tl.load({place} + n, mask=inside, other=0.0)",
            f"{{v}} = tl.sin({{v}}) - tl.load({place}, mask=inside, other=0.0)",
        ]

    def _split(self) -> list[str]:
        x, wide = self.array(self.images, self.m, 2 * self.n), 2 * self.tile_n
        return [
            f"w_{{v}} = j0 * 2 + tl.arange(0, {wide})",
            f"x_{{v}} = tl.load({x} + (image * m + i)[:, None] * (2 * n) + w_{{v}}[None, :], "
            "mask=(i < m)[:, None] & (w_{v} < 2 * n)[None, :], other=0.0)",
            f"l_{{v}}, r_{{v}} = tl.split(tl.reshape(x_{{v}}, [{self.tile_m}, {self.tile_n}, 2]))",
            "{v} = l_{v} * tl.cos(r_{v})",
        ]

    def _reversed(self) -> list[str]:
        x = self.array(self.images, self.m, self.n)
        place = f"{x} + (image * m + m - 1 - i)[:, None] * n + (n - 1 - j)[None, :]"
        return [f"{{v}} = tl.load({place}, mask=inside, other=0.0)"]

    def _gathered(self) -> list[str]:
        count = int(self.rng.integers(1, 5))
        t, table = self.integers(count, self.m), self.array(count, self.n)
        return [
            f"r_{{v}} = tl.load({t} + i, mask=i < m, other=0).to(tl.int64)",
            f"{{v}} = tl.load({table} + r_{{v}}[:, None] * n + j[None, :], mask=inside, other=0.0)",
        ]

    def _masked_by_integers(self) -> list[str]:
        x = self.array(self.images, self.m, self.n)
        t = self.integers(2, self.images, self.m, self.n)
        place = "(image * m + i)[:, None] * n + j[None, :]"
        return [
            f"k_{{v}} = tl.load({t} + {place}, mask=inside, other=0) != 0",
            f"{{v}} = tl.load({x} + {place}, mask=inside & k_{{v}}, "
            f"other={self.pick('0.0', '0.4')})",
        ]

    def _row_vector(self) -> list[str]:
        shape = "[" + f"{self.tile_m}, {self.tile_n}" + "]"
        w = f"tl.load({self.array(self.n)} + j, mask=j < n, other=0.0)"
        return [f"{{v}} = tl.broadcast_to({w}[None, :], {shape})"]

    def _column_vector(self) -> list[str]:
        shape = "[" + f"{self.tile_m}, {self.tile_n}" + "]"
        w = f"tl.load({self.array(self.m)} + i, mask=i < m, other=0.0)"
        return [f"{{v}} = tl.broadcast_to({w}[:, None], {shape})"]

    def _scalar(self) -> list[str]:
        place = "(i[:, None] + 2 * j[None, :]).to(tl.float64)"
        return [f"{{v}} = tl.load({self.array(1)}) * tl.sin({place})"]

    def _rows_in_pairs(self) -> list[str]:
        x = self.array((self.m + 1) // 2, self.n)
        return [
            f"{{v}} = tl.load({x} + (i // 2)[:, None] * n + j[None, :], mask=inside, other=0.0)"
        ]

    def _neighbours(self) -> list[str]:
        x = self.array(self.images, self.m, self.n)
        row = f"{x} + (image * m + i)[:, None] * n"
        return [
            f"{{v}} = tl.load({row} + j[None, :], mask=inside, other=0.0)",
            f"{{v}} += tl.load({row} + j[None, :] + 1, mask=inside & (j + 1 < n)[None, :], "
            "other=0.0) * 0.5",
        ]

    def _clamped(self) -> list[str]:
        x = self.array(self.images, self.m, self.n)
        column = self.pick("tl.minimum(j + 1, n - 1)", "tl.maximum(j - 1, 0)", "j % 3 % n")
        return [f"{{v}} = tl.load({x} + (image * m + i)[:, None] * n + ({column})[None, :], "
                "mask=inside, other=0.0)"]  # fmt: skip

    def _block_pointer(self) -> list[str]:
        x = self.array(self.images, self.m, self.n)
        return [
            f"b_{{v}} = tl.make_block_ptr({x} + image * m * n, (m, n), (n, 1), "
            f"(row * {self.tile_m}, j0), ({self.tile_m}, {self.tile_n}), (1, 0))",
            "{v} = tl.load(b_{v}, boundary_check=(0, 1), padding_option='zero')",
        ]

    # -- computation ------------------------------------------------------------------------------

    def columns(self, start: str) -> None:
        self.add(
            f"j0 = {start}",
            f"j = j0 + tl.arange(0, {self.tile_n})",
            "inside = (i < m)[:, None] & (j < n)[None, :]",
        )

    def compute(self, known: list[str], count: int) -> list[str]:
        known = list(known)
        for _ in range(count):
            kind = self.pick(*OPERATIONS)
            self.used.add(f"op: {kind}")
            condition = self.pick("inside", "(i[:, None] + j[None, :]) % 2 == 0", "{a} > {b}")
            a, b = self.pick(*known), self.pick(*known)
            if "{a}" in condition and kind != "where":
                condition = "inside"  # where they are equal, a tie of different functions
            found = self.name("v")
            text = OPERATIONS[kind].format(a=a, b=b, c=condition.format(a=a, b=b))
            self.add(f"{found} = {text}")
            known.append(found)
        return known

    def tiles(self, loads: int, ops: int) -> list[str]:
        return self.compute([self.load() for _ in range(loads)], ops)

    def store(self, value: str) -> None:
        kind = self.pick(*STORES)
        self.used.add(f"store: {kind}")
        m, n, images = self.m, self.n, self.images
        if kind == "transposed":
            y = self.output(images, n, m)
            self.add(
                f"tl.store({y} + (image * n + j)[:, None] * m + i[None, :], tl.trans({value}), "
                "mask=tl.trans(inside))"
            )
        elif kind == "every second":
            y = self.output(images, m, 2 * n)
            place = f"{y} + (image * m + i)[:, None] * (2 * n) + 2 * j[None, :]"
            self.add(f"tl.store({place}, {value}, mask=inside)")
            self.add(f"tl.store({place} + 1, tl.cos({value}), mask=inside)")
        elif kind == "masked by integers":
            y, t = self.output(images, m, n), self.integers(2, m)
            self.add(
                f"tl.store({y} + (image * m + i)[:, None] * n + j[None, :], {value}, mask=inside & "
                f"(tl.load({t} + i, mask=i < m, other=0) > 0)[:, None])"
            )
        elif kind == "summed":
            y = self.output(m)
            self.add(
                f"tl.atomic_add({y} + i, tl.sum(tl.where(inside, {value}, 0.0), 1), mask=i < m)"
            )
        elif kind == "of joined ones":
            y, wide = self.output(images, m, 2 * n), 2 * self.tile_n
            self.add(
                f"wide = j0 * 2 + tl.arange(0, {wide})",
                f"both = tl.reshape(tl.join({value}, tl.sin({value})), [{self.tile_m}, {wide}])",
                f"tl.store({y} + (image * m + i)[:, None] * (2 * n) + wide[None, :], both, "
                "mask=(i < m)[:, None] & (wide < 2 * n)[None, :])",
            )
        else:
            y = self.output(images, m, n)
            self.add(
                f"tl.store({y} + (image * m + i)[:, None] * n + j[None, :], {value}, mask=inside)"
            )

    # -- loops ------------------------------------------------------------------------------------

    def over_columns(self) -> None:
        """Begin a loop over blocks of columns, or take the first one alone."""
        if self.blocks == 1 and self.chance(0.5):
            self.columns("0")
            return
        self.used.add("blocks of columns")
        self.add(f"for start in range(0, n, {self.tile_n}):")
        self.indent += "    "
        self.columns("start")

    def end_loop(self) -> None:
        self.indent = ""

    def one_pass(self) -> None:
        self.over_columns()
        known = self.tiles(self.pick(1, 2, 3), self.pick(2, 3, 5))
        if self.use("a flag", 0.2):
            flag, value = self.integers(2, self.programs), self.name("v")
            self.add(f"if tl.load({flag} + row) > 0:")
            self.indent += "    "
            inner = self.compute(known, 1)[-1]
            self.add(f"{value} = {inner}")
            self.indent = self.indent[4:]
            self.add("else:", f"    {value} = {known[0]} * 0.5")
            known.append(value)
        self.store(known[-1])
        if self.chance(0.3):
            self.store(known[-2])
        self.end_loop()

    def two_passes(self) -> None:
        """Statistics of rows, and then what they are used for, on the same loads."""
        self.used.add("two passes")
        kind = self.pick("mean and square", "online softmax", "greatest")
        self.used.add(f"statistics: {kind}")
        zeros = f"tl.zeros([{self.tile_m}], tl.float64)"
        self.add(f"first, second = {zeros}, {zeros}", f"peak = {zeros} - 1e30")
        arrays, begin = len(self.args), len(self.body)
        self.over_columns()
        known = self.tiles(self.pick(1, 2), self.pick(0, 1, 2))
        passed = [line for line in self.body[begin:]]
        value = known[-1]
        if kind == "mean and square":
            self.add(
                f"first += tl.sum(tl.where(inside, {value}, 0.0), 1)",
                f"second += tl.sum(tl.where(inside, {value} * {value}, 0.0), 1)",
            )
        elif kind == "online softmax":
            self.add(
                f"masked = tl.where(inside, {value}, -float('inf'))",
                "larger = tl.maximum(peak, tl.max(masked, 1))",
                "first *= tl.exp(peak - larger)",
                "first += tl.sum(tl.exp(masked - larger[:, None]), 1)",
                "peak = larger",
            )
        else:
            self.add(f"peak = tl.maximum(peak, tl.max(tl.where(inside, {value}, -1e30), 1))")
        self.end_loop()
        assert len(self.args) > arrays
        self.body += passed
        self.indent = passed[-1][: len(passed[-1]) - len(passed[-1].lstrip())]
        result = self.name("v")
        self.add(f"{result} = " + {
            "mean and square": f"({value} - (first / n)[:, None]) * "
            "tl.rsqrt(second / n - (first / n) * (first / n) + 0.5)[:, None]",
            "online softmax": f"tl.exp({value} - peak[:, None]) / first[:, None]",
            "greatest": f"{value} * tl.sin(peak)[:, None]",
        }[kind])  # fmt: skip
        self.store(self.compute([*known, result], self.pick(1, 2))[-1])
        self.end_loop()

    def accumulated(self) -> None:
        """A sum over blocks, in a tile, of which something is stored."""
        self.used.add("a sum over blocks")
        shape = f"[{self.tile_m}, {self.tile_n}]"
        self.columns("0")
        self.add(f"acc = tl.zeros({shape}, tl.float64)")
        self.add(f"for start in range(0, n, {self.tile_n}):")
        self.indent += "    "
        self.columns("start")
        value = self.tiles(self.pick(1, 2), self.pick(1, 2))[-1]
        self.add(self.pick(f"acc += {value}", f"acc = acc - tl.sin({value}) * 0.5"))
        self.end_loop()
        self.columns("0")
        self.store(self.compute(["acc"], self.pick(1, 2))[-1])

    def carried(self) -> None:
        """A state that goes from block to block."""
        self.used.add("a state over blocks")
        shape = f"[{self.tile_m}, {self.tile_n}]"
        self.add(f"h = tl.zeros({shape}, tl.float64)")
        self.add(f"for start in range(0, n, {self.tile_n}):")
        self.indent += "    "
        self.columns("start")
        value = self.tiles(self.pick(1, 2), self.pick(1, 2))[-1]
        self.add(f"h = tl.sin(h * 0.7) + {value}")
        self.store("h")
        self.end_loop()

    def rows(self) -> None:
        """A loop over images in a program: loads that do not vary are of each iteration."""
        self.used.add("a loop over images")
        self.grid = (self.programs, 1)
        unrolled = self.use("unrolled", 0.3)
        self.add(f"for image in tl.{'static_range' if unrolled else 'range'}({self.images}):")
        self.indent += "    "
        self.columns("0")
        self.store(self.tiles(self.pick(1, 2, 3), self.pick(1, 2, 3))[-1])
        self.end_loop()

    def finish(self) -> None:
        head = f"def kernel({', '.join(self.args)}):"
        self.text = "\n".join([HEAD.strip("\n"), head, *(f"    {line}" for line in self.body)])


LOADS = (
    "plain", "plain", "shared_by_images", "transposed", "every_second", "halves", "split",
    "reversed", "gathered", "masked_by_integers", "row_vector", "column_vector", "scalar",
    "rows_in_pairs", "neighbours", "clamped", "block_pointer",
)  # fmt: skip
STORES = (
    "plain", "plain", "plain", "transposed", "every second", "masked by integers", "summed",
    "of joined ones",
)  # fmt: skip
