"""Random kernels whose programs share tiles: products, attention, norms, sums over the grid.

Their gradients need other schedules than those of arrays that one program has: a grid of their own,
workers, rows of partial sums. How programs are numbered, which rows are masked off or wrap around,
how loops are bounded, and what is computed before and after a sum, is random.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tests.fuzz.derivatives.random_kernel import RandomKernel


@dataclass
class Tiled(RandomKernel):
    """A random kernel whose programs share tiles."""

    outputs: tuple[str, ...] = ("y_ptr",)
    loops_over_tiles: bool = False

    def __post_init__(self) -> None:
        self.rows, self.columns = int(self.rng.integers(1, 4)), int(self.rng.integers(1, 4))
        self.heads = self.pick(1, 1, 2, 4)
        self.tile_m, self.tile_n, self.tile_k = (self.pick(2, 4) for _ in range(3))
        self.m = self.length(self.rows, self.tile_m)
        self.n = self.length(self.columns, self.tile_n)
        self.k = int(self.rng.integers(1, 3 * self.tile_k + 1))
        kind: Callable[[], None] = self.pick(
            self.product, self.product, self.attention, self.attention, self.norm, self.sums
        )
        self.number_programs()
        kind()
        self.finish()

    def length(self, tiles: int, tile: int) -> int:
        """How long an axis of so many tiles is: the last of them may have fewer elements."""
        return tiles * tile - (int(self.rng.integers(0, tile)) if self.chance(0.6) else 0)

    def array(self, name: str, *shape: int) -> str:
        self.args[name] = self.rng.uniform(-1, 1, shape)
        return name

    # -- programs ---------------------------------------------------------------------------------

    def number_programs(self) -> None:
        """How `row`, `column` and `head` follow from the program's indices."""
        r, c, h = self.rows, self.columns, self.heads
        kind = self.pick("axes", "axes turned", "digits", "groups", "reversed", "persistent")
        self.used.add(f"programs: {kind}")
        lines = {
            "axes": "row, column, head = tl.program_id(0), tl.program_id(1), tl.program_id(2)",
            "axes turned": "head, row, column = tl.program_id(0), tl.program_id(1), "
            "tl.program_id(2)",
            "digits": f"column, head = tl.program_id(0) % {c}, tl.program_id(0) // {c * r}\n"
            f"    row = tl.program_id(0) // {c} % {r}",
            "groups": f"head = tl.program_id(1)\n    first = tl.program_id(0) // {2 * c} * 2\n"
            f"    height = min({r} - first, 2)\n    place = tl.program_id(0) % {2 * c}\n"
            "    row, column = first + place % height, place // height",
            "reversed": "row, column, head = tl.num_programs(0) - 1 - tl.program_id(0), "
            "tl.program_id(1), tl.program_id(2)",
            "persistent": f"row, column, head = tile // {c} % {r}, tile % {c}, tile // {c * r}",
        }
        grids = {
            "axes": (r, c, h), "axes turned": (h, r, c), "digits": (r * c * h,),
            "groups": (r * c, h), "reversed": (r, c, h),
            "persistent": (int(self.rng.integers(1, r * c * h + 1)),),
        }  # fmt: skip
        self.grid = grids[kind]
        self.loops_over_tiles = kind == "persistent"
        self.add(*lines[kind].split("\n    "))

    def finish(self) -> None:
        names = ", ".join(self.args)
        head = [f"def kernel({names}):"]
        indent = "    "
        if self.loops_over_tiles:
            count = self.rows * self.columns * self.heads
            head.append(f"    for tile in range(tl.program_id(0), {count}, tl.num_programs(0)):")
            indent *= 2
        self.text = "\n".join([*head, *(indent + line for line in self.body)])

    def numbers(self) -> None:
        """Extents of the matrices, as arguments."""
        self.args |= {"m": self.m, "n": self.n, "k": self.k}

    # -- what is computed of an element -----------------------------------------------------------

    def some(self, value: str) -> str:
        """A function of an element."""
        return self.pick(
            value,
            value,
            value,
            f"tl.sin({value})",
            f"({value} * 0.5)",
            f"tl.exp(-{value} * {value})",
        )

    def index(self, name: str, below: str, tile: int, place: str) -> str:
        """Define an index along rows or columns; returns that of the loads, which may wrap around,
        or be replaced."""
        self.add(f"{name} = {place} * {tile} + tl.arange(0, {tile})")
        if self.use("wrapped rows", 0.3):
            self.add(f"{name}_at = {name} % {below}")
            return f"{name}_at"
        if self.use("replaced rows", 0.1):
            self.add(f"{name}_at = tl.where({name} < {below}, {name}, 0)")
            return f"{name}_at"
        return name

    def mask(self, *conditions: str) -> str:
        return ", mask=" + " & ".join(f"({c})" for c in conditions) + ", other=0.0"

    # -- products ---------------------------------------------------------------------------------

    def product(self) -> None:
        """y = g(f(a) @ h(b)), of matrices with heads, of which some may share one of them."""
        self.use("product")
        m, n, k, heads = self.m, self.n, self.k, self.heads
        share_a, share_b = (self.pick(1, 1, 2, heads) if heads > 1 else 1 for _ in range(2))
        turned_a, turned_b = self.chance(0.3), self.chance(0.3)
        self.array("a_ptr", -(-heads // share_a), *((k, m) if turned_a else (m, k)))
        self.array("b_ptr", -(-heads // share_b), *((n, k) if turned_b else (k, n)))
        i, j = self.index("i", "m", self.tile_m, "row"), self.index("j", "n", self.tile_n, "column")
        self.add(f"at = tl.arange(0, {self.tile_k})")
        a = f"a_ptr + head // {share_a} * (m * k) + {i}[:, None] * {'1' if turned_a else 'k'}"
        b = f"b_ptr + head // {share_b} * (k * n) + {j}[None, :] * {'k' if turned_b else '1'}"
        step_a, step_b = "m" if turned_a else "1", "1" if turned_b else "n"
        self.start_sum()
        more = self.pick("", "", "", "bias", "rows")
        if more == "bias":
            self.array("s_ptr", k)
        masks_a = [f"kk[None, :] < {'k'}", *(["i[:, None] < m"] if i == "i" else [])]
        masks_b = ["kk[:, None] < k", *(["j[None, :] < n"] if j == "j" else [])]
        self.add(f"for {self.loop()}:")
        self.add(f"    kk = t * {self.tile_k} + at")
        self.add(f"    a = tl.load({a} + kk[None, :] * {step_a}{self.mask(*masks_a)})")
        self.add(f"    b = tl.load({b} + kk[:, None] * {step_b}{self.mask(*masks_b)})")
        left, right = self.some("a"), self.some("b")
        if "exp" in left and "exp" in right:  # neither would be 0 where they are masked off
            right = "b"
        if more == "bias":
            self.add("    s = tl.load(s_ptr + kk, mask=kk < k, other=0.0)")
            left = f"({left} * s[None, :])"
        self.add(self.pick(
            f"    acc = tl.dot({left}, {right}, acc)", f"    acc += tl.dot({left}, {right})",
            f"    acc += tl.sum({left}[:, :, None] * {right}[None, :, :], 1)",
            f"    acc -= tl.dot({left}, {right}) * 0.5",
        ))  # fmt: skip
        self.epilogue()

    def start_sum(self) -> None:
        zeros = f"tl.zeros([{self.tile_m}, {self.tile_n}], tl.float64)"
        if self.use("a sum that starts with an input", 0.2):
            self.array("e_ptr", self.n)
            self.add("e = tl.load(e_ptr + j, mask=j < n, other=0.0)")
            self.add(f"acc = {zeros} + e[None, :]")
        else:
            self.add(f"acc = {zeros}")

    def loop(self) -> str:
        trips = f"tl.cdiv(k, {self.tile_k})"
        kind = self.pick("all", "all", "until the row", "from the row", "one of two")
        self.used.add(f"loop: {kind}")
        return {
            "all": f"t in range({trips})",
            "until the row": f"t in range(0, min(row + 1, {trips}))",
            "from the row": f"t in range(row, {trips})",
            "one of two": f"t in range(column % 2, {trips}, 2)",
        }[kind]

    def epilogue(self) -> None:
        """What is stored of the sum."""
        place = "head * (m * n) + i[:, None] * n + j[None, :]"
        inside = "(i[:, None] < m) & (j[None, :] < n)"
        kind = self.pick("linear", "sine", "gate", "bias", "scaled rows", "residual")
        self.used.add(f"epilogue: {kind}")
        if kind == "gate":
            self.array("g_ptr", self.heads, self.m, self.n)
            self.add(f"g = tl.load(g_ptr + {place}, mask={inside}, other=0.0)")
        elif kind == "bias":
            self.array("g_ptr", self.n)
            self.add("g = tl.load(g_ptr + j, mask=j < n, other=0.0)[None, :]")
        elif kind == "scaled rows":
            self.array("g_ptr", self.m)
            self.add("g = tl.load(g_ptr + i, mask=i < m, other=0.0)[:, None]")
        mark = self.pick("tl.save", "tl.save", "tl.recompute")
        if self.use(f"a stored sum, {mark}", 0.25):
            self.args["p_ptr"] = np.zeros((self.heads, self.m, self.n))
            self.aux = ("p_ptr",)
            self.add(f"acc = {mark}(acc)", f"tl.store(p_ptr + {place}, acc, mask={inside})")
        value = {
            "linear": "acc * 0.5", "sine": "tl.sin(acc)", "gate": "acc * tl.sigmoid(g)",
            "bias": "tl.sin(acc + g)", "scaled rows": "acc * g", "residual": "acc * acc + acc",
        }[kind]  # fmt: skip
        self.args["y_ptr"] = np.zeros((self.heads, self.m, self.n))
        self.numbers()
        self.add(f"tl.store(y_ptr + {place}, {value}, mask={inside})")

    # -- attention --------------------------------------------------------------------------------

    def attention(self) -> None:
        """Queries of a tile and all keys, in one loop or two; columns of the grid are images."""
        self.use("attention")
        m, n, d = self.m, max(1, self.k), self.pick(2, 4)
        images, heads, share = self.columns, self.heads, self.pick(1, 2, self.heads)
        groups = -(-heads // share)
        causal = self.pick("full", "full", "causal", "window", "two loops")
        self.used.add(f"attention: {causal}")
        if causal != "full":
            n = m
        self.array("q_ptr", images, heads, m, d)
        self.array("k_ptr", images, groups, n, d)
        self.array("v_ptr", images, groups, n, d)
        own = f"((column * {heads} + head) * m"
        self.add(f"i, d = row * {self.tile_m} + tl.arange(0, {self.tile_m}), tl.arange(0, {d})")
        self.add(f"q_at = {own} + i)[:, None] * {d} + d[None, :]")
        self.add("q = tl.load(q_ptr + q_at, mask=(i < m)[:, None], other=0.0)")
        shape = f"[{self.tile_m}]"
        learned = self.use("a learned sink", 0.1)
        if learned:
            self.array("sink_ptr", heads)
            self.add(f"peak = tl.zeros({shape}, tl.float64) + tl.load(sink_ptr + head)")
            self.add(f"total = tl.full({shape}, 1.0, tl.float64)")
        else:
            self.add(f"peak = tl.full({shape}, -float('inf'), tl.float64)")
            self.add(f"total = tl.full({shape}, {self.pick('0.0', '1.0')}, tl.float64)")
        self.add(f"acc = tl.zeros([{self.tile_m}, {d}], tl.float64)")
        first, stop, tile = "0", "n", self.tile_k
        if causal in ("causal", "two loops"):
            stop = f"min((row + 1) * {self.tile_m}, n)"
        elif causal == "window":
            first = f"max(row * {self.tile_m} - 2, 0) // {tile} * {tile}"
            stop = f"min((row + 1) * {self.tile_m}, n)"
        bounds = [(first, stop, causal != "full")]
        if causal == "two loops":
            middle = f"row * {self.tile_m} // {tile} * {tile}"
            bounds = [("0", middle, False), (middle, stop, True)]
        biased = self.use("a bias", 0.3)
        if biased:
            self.array("bias_ptr", m, n)
        exponential = self.pick("exp", "exp2")
        place = f"((column * {groups} + head // {share}) * n + j)[:, None] * {d} + d[None, :]"
        decay = self.pick("", "", "", "", " * 0.75")
        for low, high, masked in bounds:
            self.keys(low, high, masked, causal, biased, exponential, place, decay)
        self.finish_attention(own, exponential, images, heads, m, d)
        self.args |= {"m": m, "n": n}

    def keys(
        self, low: str, high: str, masked: bool, causal: str, biased: bool, exponential: str,
        place: str, decay: str,
    ) -> None:  # fmt: skip
        """A loop over keys."""
        tile = self.tile_k
        self.add(f"for start in range({low}, {high}, {tile}):")
        lines = [
            f"j = start + tl.arange(0, {tile})",
            f"kv = {place}",
            "keys = tl.load(k_ptr + kv, mask=(j < n)[:, None], other=0.0)",
            "values = tl.load(v_ptr + kv, mask=(j < n)[:, None], other=0.0)",
            "s = tl.dot(q, tl.trans(keys)) * 0.7",
        ]
        if biased:
            lines.append(
                "s += tl.load(bias_ptr + i[:, None] * n + j[None, :], "
                "mask=(i < m)[:, None] & (j < n)[None, :], other=0.0)"
            )
        keep = "(j < n)[None, :]"
        if masked:
            keep += " & (j[None, :] <= i[:, None])"
        if causal == "window":
            keep += " & (j[None, :] + 2 >= i[:, None])"
        lines += [
            f"s = tl.where({keep}, s, -float('inf'))",
            "largest = tl.maximum(peak, tl.max(s, 1))",
        ]
        if causal == "window" or self.chance(0.2):  # a row may have no key in a tile
            self.used.add("a guarded maximum")
            lines.append("safe = tl.where(largest == -float('inf'), 0.0, largest)")
        else:
            lines.append("safe = largest")
        lines += [
            f"p = tl.{exponential}(s - safe[:, None])",
            f"shrink = tl.{exponential}(peak - safe){decay}",
            "total = total * shrink + tl.sum(p, 1)",
            self.pick(
                "acc = tl.dot(p, values, acc * shrink[:, None])",
                "acc = acc * shrink[:, None] + tl.dot(p, values)",
            ),
            "peak = largest",
        ]
        self.add(*(f"    {line}" for line in lines))

    def finish_attention(
        self, own: str, exponential: str, images: int, heads: int, m: int, d: int
    ) -> None:
        logarithm = {"exp": "log", "exp2": "log2"}[exponential]
        self.args["y_ptr"] = np.zeros((images, heads, m, d))
        kind = self.pick("quotient", "quotient", "product", "both")
        self.used.add(f"attention: {kind}")
        if kind == "product":
            self.add("acc = acc * (1.0 / total)[:, None]")
        else:
            self.add("acc = acc / total[:, None]")
        stored = self.pick("nothing", "aux", "aux", "output")
        if stored != "nothing":
            self.use(f"log of the sum: {stored}")
            self.args["lse_ptr"] = np.zeros((images, heads, m))
            factor = self.pick("", "", " * 0.5")
            self.add(f"lse = (peak + tl.{logarithm}(total)){factor}")
            self.add(f"tl.store(lse_ptr + {own} + i), lse, mask=i < m)")
            if stored == "aux":
                self.aux = ("lse_ptr",)
            else:
                self.outputs = ("y_ptr", "lse_ptr")
        value = "tl.sin(acc) + acc" if kind == "both" else "acc"
        self.add(f"tl.store(y_ptr + q_at, {value}, mask=(i < m)[:, None])")

    # -- norms ------------------------------------------------------------------------------------

    def norm(self) -> None:
        """Rows that are normalised, times weights that rows share, in a tile or in blocks; the
        columns of the grid are images."""
        self.use("norm")
        m, n = self.m, int(self.rng.integers(2, 9))
        whole = 8
        blocks = self.use("a row in blocks", 0.5)
        tile = self.tile_k if blocks else whole
        self.array("x_ptr", self.heads, self.columns, m, n)
        shared = self.pick("", "", "head * n + ", "column * n + ")
        count = {"": 1, "head * n + ": self.heads, "column * n + ": self.columns}[shared]
        self.array("w_ptr", count, n)
        self.array("b_ptr", n)
        self.add(f"i = row * {self.tile_m} + tl.arange(0, {self.tile_m})")
        base = f"(head * {self.columns} + column) * (m * n) + i[:, None] * n"
        kind = self.pick("layer", "rms", "softmax", "mean")
        self.used.add(f"norm: {kind}")
        self.args["y_ptr"] = np.zeros((self.heads, self.columns, m, n))
        self.args |= {"m": m, "n": n}
        loop, more = (f"for start in range(0, n, {tile}):", "    ") if blocks else ("start = 0", "")
        other = "-float('inf')" if kind == "softmax" else "0.0"
        load = [
            f"j = start + tl.arange(0, {tile})",
            "inside = (i < m)[:, None] & (j < n)[None, :]",
            f"x = tl.load(x_ptr + {base} + j[None, :], mask=inside, other={other})",
        ]
        self.statistics(kind, [loop, *(more + line for line in load)], more)
        self.add(loop, *(more + line for line in load))
        value = {
            "layer": "(x - mean[:, None]) * scale[:, None]",
            "rms": "x * scale[:, None]",
            "softmax": "tl.exp(x - peak[:, None]) / total[:, None]",
            "mean": "x * mean[:, None]",
        }[kind]
        self.add(
            f"{more}w = tl.load(w_ptr + {shared}j, mask=j < n, other=0.0)",
            f"{more}b = tl.load(b_ptr + j, mask=j < n, other=0.0)",
            f"{more}y = {value} * w[None, :] + tl.sin(b)[None, :]",
            f"{more}tl.store(y_ptr + {base} + j[None, :], y, mask=inside)",
        )

    def statistics(self, kind: str, load: list[str], more: str) -> None:
        shape = f"tl.zeros([{self.tile_m}], tl.float64)"
        root = self.pick("tl.rsqrt(squares / n + 0.1)", "1.0 / tl.sqrt(squares / n + 0.1)")
        if kind in ("layer", "mean"):
            self.add(f"mean = {shape}", *load, f"{more}mean += tl.sum(x, 1)", "mean = mean / n")
        if kind == "layer":
            self.add(
                f"squares = {shape}", *load,
                f"{more}centred = tl.where(inside, x - mean[:, None], 0.0)",
                f"{more}squares += tl.sum(centred * centred, 1)",
                f"scale = {root}",
            )  # fmt: skip
        elif kind == "rms":
            self.add(
                f"squares = {shape}", *load, f"{more}squares += tl.sum(x * x, 1)",
                f"scale = {root}",
            )  # fmt: skip
        elif kind == "softmax":
            # Rows past the last are -inf throughout: their maximum is a finite number.
            self.add(
                f"total, peak = {shape}, {shape} - 1e30", *load,
                f"{more}largest = tl.maximum(peak, tl.max(x, 1))",
                f"{more}total = total * tl.exp(peak - largest)"
                " + tl.sum(tl.exp(x - largest[:, None]), 1)",
                f"{more}peak = largest",
            )  # fmt: skip
        self.store_statistics(
            {"layer": ("mean", "scale"), "mean": ("mean",), "rms": ("scale",)}, kind
        )

    def store_statistics(self, names: dict[str, tuple[str, ...]], kind: str) -> None:
        """Store some of them, as an aid for a gradient; rows past the last are masked off, or have
        a place, too."""
        for name in names.get(kind, ()):
            if not self.use("stored statistics", 0.6):
                continue
            mask = self.pick("", ", mask=i < m")
            rows = self.rows * self.tile_m
            self.args[f"{name}_ptr"] = np.zeros((self.heads, self.columns, rows))
            at = f"(head * {self.columns} + column) * {rows} + i"
            self.add(f"tl.store({name}_ptr + {at}, {name}{mask})")
            self.aux = (*self.aux, f"{name}_ptr")

    # -- sums over the grid -----------------------------------------------------------------------

    def sums(self) -> None:
        """Outer products and sums that several programs add to, atomically."""
        self.use("sums")
        m, n, heads = self.m, self.n, self.heads
        self.array("a_ptr", m)
        self.array("b_ptr", heads, n)
        self.array("c_ptr", *self.pick((m, n), (heads, m, n)))
        i, j = self.index("i", "m", self.tile_m, "row"), self.index("j", "n", self.tile_n, "column")
        by_head = "head * (m * n) + " if self.args["c_ptr"].ndim == 3 else ""
        inside = "(i[:, None] < m) & (j[None, :] < n)"
        self.add(
            f"a = tl.load(a_ptr + {i}, mask=i < m, other=0.0)[:, None]",
            f"b = tl.load(b_ptr + head * n + {j}, mask=j < n, other=0.0)[None, :]",
            f"place = {by_head}{i}[:, None] * n + {j}[None, :]",
            f"c = tl.load(c_ptr + place, mask={inside}, other=0.0)",
            f"r = tl.where({inside}, {self.some('a')} * b * tl.sin(c) + c * c, 0.0)",
        )
        self.args |= {"m": m, "n": n}
        kind = self.pick("rows", "columns", "all", "elements")
        self.used.add(f"sums: {kind}")
        if kind == "rows":
            self.args["y_ptr"] = np.zeros((heads, m))
            self.add("tl.atomic_add(y_ptr + head * m + i, tl.sum(r, 1), mask=i < m)")
        elif kind == "columns":
            self.args["y_ptr"] = np.zeros(n)
            self.add("tl.atomic_add(y_ptr + j, tl.sum(r, 0), mask=j < n)")
        elif kind == "all":
            self.args["y_ptr"] = np.zeros(1)
            self.add("tl.atomic_add(y_ptr, tl.sum(r))")
        else:
            self.args["y_ptr"] = np.zeros((heads, m, n))
            self.add(
                f"tl.store(y_ptr + head * (m * n) + i[:, None] * n + j[None, :], r, mask={inside})"
            )
