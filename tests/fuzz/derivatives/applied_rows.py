"""Random kernels of what people write kernels for: norms, losses, gates, rotations, convolutions,
recurrences, attention, experts, quantisation, tables.

Each is a skeleton of its kind, with what differs between libraries drawn at random: how programs
have rows, what is masked off and what it holds there, where statistics are kept, what is shared,
which results are named. Loads are converted to the type of the computation, so that the arrays may
be narrower.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tests.fuzz.derivatives.random_kernel import RandomKernel

HEAD = """
@jit
def silu(x):
    return x * tl.sigmoid(x)
@jit
def gelu(x):
    return 0.5 * x * (1.0 + tl.erf(x * 0.70710678))
@jit
def gelu_tanh(x):
    t = tl.exp(-2.0 * tl.abs(0.79788456 * (x + 0.044715 * x * x * x)))
    return 0.5 * x * (1.0 + tl.where(x > 0, 1.0, -1.0) * (1.0 - t) / (1.0 + t))
@jit
def relu2(x):
    y = tl.maximum(x, 0.0)
    return y * y
@jit
def softplus(x):
    return tl.where(x > 20.0, x, tl.log(1.0 + tl.exp(x)))
@jit
def steep(x):
    return tl.log(1.0 + tl.exp(80.0 * tl.minimum(x, 1.0)) + 0.01) / 80.0 + tl.maximum(x - 1.0, 0.0)
@jit
def soft_max(a, b):
    return a + tl.log(1.0 + tl.exp(30.0 * (b - a))) / 30.0
@jit
def act(x, KIND: tl.constexpr):
    if KIND == 0:
        return silu(x)
    elif KIND == 1:
        return gelu(x)
    elif KIND == 2:
        return gelu_tanh(x)
    elif KIND == 3:
        return relu2(x)
    elif KIND == 4:
        return steep(x)
    elif KIND == 5:
        return tl.clamp(x, -0.25, 0.5)
    return x * softplus(x)
@jit
def moments(x, keep, n):
    mean = tl.sum(tl.where(keep, x, 0.0)) / n
    d = tl.where(keep, x - mean, 0.0)
    return mean, tl.sum(d * d) / n
@jit
def welford(m1, s1, w1, m2, s2, w2):
    w = w1 + w2
    d = m2 - m1
    f = tl.where(w == 0.0, 0.0, w2 / tl.where(w == 0.0, 1.0, w))
    return m1 + d * f, s1 + s2 + d * d * w1 * f, w
@jit
def gated(a, x, b, y):
    return a * b, x * b + y
@jit
def both(x, y):
    return tl.sin(x) * y, tl.cos(y) + x
"""


@dataclass
class AppliedRows(RandomKernel):
    """A random kernel of a kind that people write, of those that have one row at a time.

    Attributes:
        family: its kind.
        families: all kinds.
    """

    family: str = ""
    families: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        self.m, self.n = int(self.rng.integers(1, 7)), int(self.rng.integers(2, 15))
        self.block = 16
        self.family = self.pick(*self.families)
        self.used.add(f"kind: {self.family}")
        make: Callable[[], None] = getattr(self, f"_{self.family}")
        make()
        head = f"def kernel({', '.join(self.args)}):"
        self.text = "\n".join([HEAD.strip("\n"), head, *(f"    {line}" for line in self.body)])

    # -- parts ------------------------------------------------------------------------------------

    def array(self, name: str, *shape: int, low: float = -1.0, high: float = 1.0) -> str:
        self.args[f"{name}_ptr"] = self.rng.uniform(low, high, shape)
        return f"{name}_ptr"

    def integers(self, name: str, low: int, high: int, *shape: int) -> str:
        kind = self.pick(np.int32, np.int64)
        self.args[f"{name}_ptr"] = self.rng.integers(low, high, shape).astype(kind)
        return f"{name}_ptr"

    def output(self, name: str, *shape: int, aux: float = 0.0) -> str:
        """A result; with a probability it has no gradient."""
        self.args[f"{name}_ptr"] = np.zeros(shape)
        if self.outputs and self.chance(aux):
            self.used.add("a result without a gradient")
            self.aux = (*self.aux, f"{name}_ptr")
        else:
            self.outputs = (*self.outputs, f"{name}_ptr")
        return f"{name}_ptr"

    def numbers(self, **given: int) -> None:
        self.args |= given

    def load(self, place: str, mask: str = "", other: str = "0.0") -> str:
        """The text of a load; without `other` what is masked off may be anything."""
        filled = f", mask={mask}" if mask else ""
        if mask and other:
            filled += f", other={other}"
        return f"tl.load({place}{filled}).to(tl.float64)"

    def open(self, line: str) -> None:
        self.add(line)
        self.indent += "    "

    def close(self, depth: int = 1) -> None:
        self.indent = self.indent[4 * depth :]

    def rows(self) -> None:
        """Have `row`: by program, in a loop over the grid, in chunks, or with an early return."""
        kind = self.pick("program", "program", "persistent", "chunk", "early return", "while")
        self.used.add(f"rows: {kind}")
        self.numbers(m=self.m, n=self.n)
        if kind == "program":
            self.grid = (self.m,)
            self.add("row = tl.program_id(0)")
        elif kind == "early return":
            self.grid = (self.m + 1,)
            self.add("row = tl.program_id(0)", "if row >= m:", "    return")
        elif kind == "persistent":
            self.grid = (int(self.rng.integers(1, self.m + 2)),)
            self.open("for row in range(tl.program_id(0), m, tl.num_programs(0)):")
        elif kind == "while":
            self.grid = (int(self.rng.integers(1, self.m + 1)),)
            self.open("for turn in range(0, tl.cdiv(m - tl.program_id(0), tl.num_programs(0))):")
            self.add("row = tl.program_id(0) + turn * tl.num_programs(0)")
        else:
            self.grid = (-(-self.m // 2),)
            self.open("for row in range(tl.program_id(0) * 2, min(tl.program_id(0) * 2 + 2, m)):")

    def activation(self, x: str) -> str:
        return self.pick(
            f"act({x}, {int(self.rng.integers(0, 7))})", f"tl.sin({x})", f"tl.sigmoid({x})",
            f"silu({x})",
        )  # fmt: skip

    def store(self, place: str, value: str, mask: str = "") -> None:
        self.add(f"tl.store({place}, {value}{f', mask={mask}' if mask else ''})")

    # -- norms ------------------------------------------------------------------------------------

    def _norm(self) -> None:
        """A row that is normalised: with a residual, weights, a gate, statistics."""
        m, n = self.m, self.n
        x, y = self.array("x", m, n), self.output("y", m, n)
        self.rows()
        self.add(f"j = tl.arange(0, {self.block})", "keep = j < n")
        other = self.pick("0.0", "0.0", "1.0")
        self.add(f"x = {self.load(f'{x} + row * n + j', 'keep', other)}")
        if self.use("a residual", 0.4):
            r = self.array("r", m, n)
            self.add(f"x = x + {self.load(f'{r} + row * n + j', 'keep')}")
            if self.chance(0.5):
                self.store(f"{self.output('s', m, n, aux=0.5)} + row * n + j", "x", "keep")
        kind = self._normalise()
        self._store_statistic()
        self._weigh()
        if kind == "log softmax" and self.chance(0.5):
            self.add("z = tl.where(keep, z, 0.0)")
        self.store(f"{y} + row * n + j", "z", "keep")

    def _normalise(self) -> str:
        """Define z and a statistic; returns the kind of norm."""
        kind = self.pick("layer", "rms", "l2", "softmax", "log softmax", "welford", "amax", "power")
        self.used.add(f"norm: {kind}")
        sure = "tl.where(keep, x, 0.0)"
        if kind == "layer":
            self.add("mean, var = moments(x, keep, n)", "scale = tl.rsqrt(var + 0.1)",
                     "z = (x - mean) * scale")  # fmt: skip
        elif kind == "rms":
            self.add(f"scale = 1.0 / tl.sqrt(tl.sum({sure} * {sure}) / n + 0.1)", "z = x * scale")
        elif kind == "l2":
            self.add(f"scale = tl.sqrt(tl.sum({sure} * {sure}) + 0.1)", "z = x / scale")
        elif kind == "softmax":
            self.add("x = tl.where(keep, x, -float('inf'))", "e = tl.exp(x - tl.max(x, 0))",
                     "scale = tl.sum(e, 0)", "z = e / scale")  # fmt: skip
        elif kind == "log softmax":
            self.add(
                "x = tl.where(keep, x, -float('inf'))",
                "peak = tl.max(x, 0)",
                "scale = peak + tl.log(tl.sum(tl.exp(x - peak), 0))",
                "z = x - scale",
            )
        elif kind == "welford":
            self.add("w = tl.where(keep, 1.0, 0.0).to(tl.float64)",
                     f"mean, var, _ = tl.reduce(({sure}, w * 0.0, w), 0, welford)",
                     "scale = tl.rsqrt(var / n + 0.1)", "z = (x - mean) * scale")  # fmt: skip
        elif kind == "amax":
            self.add(f"scale = tl.max(tl.abs({sure}), 0) + 0.5", "z = x / scale")
        else:
            self.add(f"a = tl.abs({sure}) + 0.3", "scale = tl.sum(tl.where(keep, tl.exp(1.7 * "
                     "tl.log(a)), 0.0))", "z = x * tl.exp(-tl.log(scale) / 1.7)")  # fmt: skip
        return kind

    def _weigh(self) -> None:
        """Weights, a bias and a gate of z."""
        m, n = self.m, self.n
        if self.use("weights", 0.7):
            offset = self.pick("0.0", "1.0")
            mask = self.pick("keep", "keep", "")
            w = self.array("w", self.n if mask else self.block)
            self.add(f"z = z * ({offset} + {self.load(f'{w} + j', mask)})")
        if self.use("a bias", 0.4):
            self.add(f"z += {self.load(self.array('b', n) + ' + j', 'keep')}")
        if self.use("a gate", 0.3):
            g = self.array("g", m, n)
            self.add(f"g = {self.load(f'{g} + row * n + j', 'keep', self.pick('0.0', ''))}")
            self.add(f"z = z * {self.activation('g')}")

    def _store_statistic(self) -> None:
        if not self.use("a stored statistic", 0.5):
            return
        self.args["scale_ptr"] = np.zeros(self.m)
        if self.chance(0.6):
            self.aux = (*self.aux, "scale_ptr")
            if self.chance(0.4):
                self.add(f"scale = {self.pick('tl.save', 'tl.recompute')}(scale)")
        else:
            self.outputs = (*self.outputs, "scale_ptr")
        self.store("scale_ptr + row", "scale")

    def _group_norm(self) -> None:
        """Channels in groups, each of which a program reads twice."""
        groups, size, space = self.pick(1, 2, 3), self.pick(1, 2, 3), int(self.rng.integers(1, 6))
        images = self.pick(1, 2)
        last = self.use("channels last", 0.4)
        c = groups * size
        shape = (images, space, c) if last else (images, c, space)
        x, y = self.array("x", *shape), self.output("y", *shape)
        w, b = self.array("w", c), self.array("b", c)
        self.numbers(space=space, size=size, c=c)
        self.grid = (images, groups)
        self.add("image, group = tl.program_id(0), tl.program_id(1)", "k = tl.arange(0, 16)",
                 "keep = k < size * space")  # fmt: skip
        if last:
            self.add("channel, at = group * size + k % size, k // size",
                     "place = (image * space + at) * c + channel")  # fmt: skip
        else:
            self.add("channel, at = group * size + k // space, k % space",
                     "place = (image * c + channel) * space + at")  # fmt: skip
        self.add(f"x = {self.load(f'{x} + place', 'keep')}",
                 "mean, var = moments(x, keep, size * space)",
                 "z = (x - mean) / tl.sqrt(var + 0.1)",
                 f"z = z * {self.load(f'{w} + channel', 'keep')} + "
                 f"{self.load(f'{b} + channel', 'keep')}")  # fmt: skip
        if self.chance(0.5):
            self.add(f"z = {self.activation('z')}")
        self.store(f"{y} + place", "z", "keep")

    # -- losses -----------------------------------------------------------------------------------

    def _cross_entropy(self) -> None:
        """Of logits and labels, some of which are ignored, in one tile or online."""
        m, n = self.m, self.n
        x = self.array("x", m, n)
        t = self.integers("t", 0, n, m)
        if self.use("ignored labels", 0.4):
            self.args[t][self.rng.random(m) < 0.4] = -100
        self.rows()
        self.add(f"label = tl.load({t} + row)")
        guard = self.pick("return", "where", "if") if self.indent == "" else "where"
        y = self.output("y", m)
        if guard == "return":
            self.add("if label == -100:", f"    tl.store({y} + row, 0.0)", "    return")
        elif guard == "if":
            self.open("if label != -100:")
        online = self.use("in blocks", 0.5)
        scale = self.pick("", " * 0.5")
        capped = self.use("a soft cap", 0.2)
        smooth = self.use("label smoothing", 0.4)
        self.add("peak, total = tl.full([], -float('inf'), tl.float64), "
                 "tl.full([], 0.0, tl.float64)", "flat = tl.full([], 0.0, tl.float64)")  # fmt: skip
        tile = 4 if online else self.block
        self.open(f"for start in range(0, n, {tile}):")
        self.add(f"j = start + tl.arange(0, {tile})",
                 f"x = {self.load(f'{x} + row * n + j', 'j < n', '-1e30')}{scale}")  # fmt: skip
        if capped:
            self.add("x = tl.where(j < n, 2.0 * (2.0 * tl.sigmoid(x) - 1.0), -1e30)")
        self.add("larger = tl.maximum(peak, tl.max(x, 0))",
                 "total = total * tl.exp(peak - larger) + tl.sum(tl.exp(x - larger), 0)",
                 "peak = larger")  # fmt: skip
        if smooth:
            self.add("flat += tl.sum(tl.where(j < n, x, 0.0), 0)")
        self.close()
        at = "label" if guard in ("return", "if") else "tl.where(label >= 0, label, 0)"
        place, bound = f"{x} + row * n + {at}", ""
        if self.use("a bounded label", 0.5):
            bound = f"(label >= 0) & (label < {self.pick('n', 'n', 'n + 1')})"
            place = f"{x} + row * n + label"
        self.add("lse = peak + tl.log(total)", f"own = {self.load(place, bound)}{scale}")
        if capped:
            self.add("own = 2.0 * (2.0 * tl.sigmoid(own) - 1.0)")
        self.add("loss = lse - own")
        if smooth:
            self.add("loss = 0.9 * loss + 0.1 * (lse - flat / n)")
        self._terms(at)
        if guard == "where":
            self.add("loss = tl.where(label >= 0, loss, 0.0)")
        if self.use("stored logarithm", 0.3):
            self.store(f"{self.output('lse', m, aux=0.7)} + row", "lse")
        if self.use("a sum of all", 0.3):
            self.args[y] = np.zeros(1)
            self.body = [line for line in self.body if f"tl.store({y} + row, 0.0)" not in line]
            self.add(f"tl.atomic_add({y}, loss / m)")
        else:
            self.store(f"{y} + row", "loss")

    def _terms(self, at: str) -> None:
        """Further terms and factors of a loss of classes."""
        if self.use("z loss", 0.3):
            self.add("loss += 0.01 * lse * lse")
        if self.use("focal", 0.2):
            self.add("p = tl.exp(own - lse)", "loss = loss * (1.0 - p) * (1.0 - p)")
        if self.use("class weights", 0.3):
            w = self.array("w", self.n, low=0.5)
            self.add(f"loss = loss * {self.load(f'{w} + {at}')}")

    def _pair_loss(self) -> None:
        """Of two tiles, element by element, kept, summed by row, or summed over all."""
        m, n = self.m, self.n
        a, b = self.array("a", m, n), self.array("b", m, n, low=0.1, high=0.9)
        reduction = self.pick("none", "row", "all")
        self.used.add(f"reduction: {reduction}")
        self.rows()
        other = self.pick("0.0", "1.0", "0.5", "")
        loss = self.pick(
            "tl.where(tl.abs(d) < 0.5, 0.5 * d * d, 0.5 * (tl.abs(d) - 0.25))",
            "b * (tl.log(b) - a)", "tl.log(tl.exp(d) + tl.exp(-d)) - 0.69314718",
            "softplus(a) - a * b", "tl.maximum(0.2 - a * b, 0.0)", "tl.sqrt(d * d + 0.01)",
            "b * tl.log(b / tl.sigmoid(a)) + (1.0 - b) * tl.log((1.0 - b) / tl.sigmoid(-a))",
            "-b * tl.log(tl.sigmoid(a)) * (1 - tl.sigmoid(a)) * (1 - tl.sigmoid(a))",
            "0.5 * b * tl.log(b / (0.5 * (b + tl.exp(a)))) + 0.5 * tl.exp(a) * (a - "
            "tl.log(0.5 * (b + tl.exp(a))))",
        )  # fmt: skip
        self.open("for start in range(0, n, 8):") if self.chance(0.4) else self.add("start = 0")
        looped = self.body[-1].lstrip().startswith("for")
        self.add(f"j = start + tl.arange(0, {8 if looped else self.block})", "keep = j < n",
                 f"a = {self.load(f'{a} + row * n + j', 'keep', other)}",
                 f"b = {self.load(f'{b} + row * n + j', 'keep', other)}", "d = a - b",
                 f"loss = {loss}")  # fmt: skip
        if reduction == "none":
            self.store(f"{self.output('y', m, n)} + row * n + j", "loss", "keep")
            return
        self.add("part = tl.sum(tl.where(keep, loss, 0.0), 0)")
        shape = (m,) if reduction == "row" else (1,)
        y = self.output("y", *shape)
        if looped or reduction == "all":
            self.add(f"tl.atomic_add({y}{' + row' if reduction == 'row' else ''}, part / n)")
        else:
            self.store(f"{y} + row", "part / n")

    def _contrastive(self) -> None:
        """Rows of two sets, all pairs, and the logarithm of a softmax on the diagonal."""
        m, d = self.m, self.pick(2, 4)
        q, k = self.array("q", m, d), self.array("k", m, d)
        t = self.array("t", 1, low=0.5)
        y = self.output("y", m)
        self.numbers(m=m)
        tile = self.pick(2, 4)
        self.grid = (-(-m // tile),)
        self.add(
            f"i, e = tl.program_id(0) * {tile} + tl.arange(0, {tile}), tl.arange(0, {d})",
            f"q = {self.load(f'{q} + i[:, None] * {d} + e[None, :]', '(i < m)[:, None]')}",
        )
        if self.use("unit rows", 0.5):
            self.add(f"q = q / tl.sqrt(tl.sum(q * q, 1) + {self.pick('0.0', '0.1')})[:, None]")
        zeros = f"tl.zeros([{tile}], tl.float64)"
        self.add(f"t = {self.load(t)}", f"peak, total, own = {zeros} - 1e30, {zeros}, {zeros}")
        self.open("for start in range(0, m, 4):")
        self.add("j = start + tl.arange(0, 4)",
                 f"k = {self.load(f'{k} + j[:, None] * {d} + e[None, :]', '(j < m)[:, None]')}",
                 f"s = {self.pick('tl.dot(q, tl.trans(k))', self.PRODUCT)} * t",
                 "s = tl.where((j < m)[None, :], s, -1e30)",
                 "own += tl.sum(tl.where(i[:, None] == j[None, :], s, 0.0), 1)",
                 "larger = tl.maximum(peak, tl.max(s, 1))",
                 "total = total * tl.exp(peak - larger) + tl.sum(tl.exp(s - larger[:, None]), 1)",
                 "peak = larger")  # fmt: skip
        self.close()
        self.store(f"{y} + i", "peak + tl.log(total) - own", "i < m")

    PRODUCT = "tl.sum(q[:, None, :] * k[None, :, :], 2)"

    # -- gates ------------------------------------------------------------------------------------

    def _gate(self) -> None:
        """Two halves of a row, or two arrays; with dropout, a residual, both gates as results."""
        m, n = self.m, self.n
        kind = self.pick("halves", "interleaved", "split", "arrays")
        self.used.add(f"gate: {kind}")
        y = self.output("y", m, n)
        x = self.array("x", m, n if kind == "arrays" else 2 * n)
        z = self.array("z", m, n) if kind == "arrays" else ""
        self.rows()
        other = self.pick("0.0", "", "1.0")
        self.add(f"j = tl.arange(0, {self.block})", "keep = j < n")
        first = {"arrays": f"{x} + row * n + j", "halves": f"{x} + row * (2 * n) + j"}
        base = first.get(kind, f"{x} + row * (2 * n) + 2 * j")
        second = {"arrays": f"{z} + row * n + j", "halves": f"{base} + n"}.get(kind, f"{base} + 1")
        if kind == "split":
            self.add(f"w = tl.arange(0, {2 * self.block})",
                     f"x = {self.load(f'{x} + row * (2 * n) + w', 'w < 2 * n', other)}",
                     f"a, b = tl.split(tl.reshape(x, [{self.block}, 2]))")  # fmt: skip
        else:
            self.add(f"a = {self.load(base, 'keep', other)}",
                     f"b = {self.load(second, 'keep', other)}")  # fmt: skip
        self.add(f"z = {self.activation('a')} * b")
        if self.use("dropout", 0.4):
            self.add(f"kept = tl.rand({self.pick('7', 'm')}, row * n + j) > 0.4",
                     f"z = tl.where(kept, z * {self.pick('2.5', '(1.0 / 0.6)')}, 0.0)")  # fmt: skip
        if self.use("a learned scale", 0.3):
            self.add(f"z = z * {self.load(self.array('s', 1))}")
        if self.use("a scale of rows", 0.3):
            self.add(f"z = z * {self.load(self.array('r', m) + ' + row')}")
        if self.chance(0.3):
            self.add("u, v = both(z, a)", "z = u * v")
        self.store(f"{y} + row * n + j", "z", "keep")
        if self.use("two results", 0.3):
            self.store(f"{self.output('a', m, n, aux=0.6)} + row * n + j", "tl.sin(a)", "keep")

    # -- rotations --------------------------------------------------------------------------------

    def _rope(self) -> None:
        """Pairs of a head's elements, turned by angles that heads, or positions, share."""
        m, heads, half = self.m, self.pick(1, 2, 3), int(self.rng.integers(1, 5))
        rest = self.pick(0, 0, 1)  # elements that are not turned
        d = 2 * half + rest
        turned = self.use("interleaved", 0.4)
        gathered = self.use("positions", 0.5)
        count = int(self.rng.integers(1, 5)) if gathered else m
        x, y = self.array("x", m, heads, d), self.output("y", m, heads, d)
        c, s = self.array("c", count, half), self.array("s", count, half)
        self.numbers(m=m, half=half)
        by_program = self.use("a program for each head", 0.5)
        self.grid = (m, heads) if by_program else (m,)
        self.add("row, j = tl.program_id(0), tl.arange(0, 4)", "keep = j < half")
        at = "row"
        if gathered:
            self.add(f"at = tl.load({self.integers('p', 0, count, m)} + row)")
            at = "at"
        mask = self.pick("keep", "keep", "keep")
        self.add(f"c = {self.load(f'{c} + {at} * half + j', mask)}",
                 f"s = {self.load(f'{s} + {at} * half + j', mask)}")  # fmt: skip
        if by_program:
            self.add("head = tl.program_id(1)")
        else:
            kind = self.pick("range", "tl.static_range")
            self.open(f"for head in {kind}({heads}):")
        first, second = ("2 * j", "2 * j + 1") if turned else ("j", "half + j")
        base = f"(row * {heads} + head) * {d}"
        self.add(f"a = {self.load(f'{x} + {base} + {first}', 'keep')}",
                 f"b = {self.load(f'{x} + {base} + {second}', 'keep')}")  # fmt: skip
        sign = self.pick(("-", "+"), ("+", "-"))
        self.store(f"{y} + {base} + {first}", f"a * c {sign[0]} b * s", "keep")
        self.store(f"{y} + {base} + {second}", f"b * c {sign[1]} a * s", "keep")
        if rest:
            self.add(f"tl.store({y} + {base} + {2 * half}, "
                     f"{self.load(f'{x} + {base} + {2 * half}')})")  # fmt: skip

    # -- quantisation, tables ---------------------------------------------------------------------

    def _quantised(self) -> None:
        """Rounded in the kernel, with the derivative of what is not."""
        m, n = self.m, self.n
        self.slopes = False
        x, y = self.array("x", m, n), self.output("y", m, n)
        self.rows()
        self.add(f"j = tl.arange(0, {self.block})", "keep = j < n",
                 f"x = {self.load(f'{x} + row * n + j', 'keep')}")  # fmt: skip
        kind = self.pick("row", "learned", "constant")
        self.used.add(f"scale: {kind}")
        self.add({"row": "s = tl.stop_gradient(tl.max(tl.abs(x), 0) / 7.0 + 0.01)",
                  "learned": "s = 0.0", "constant": "s = 0.125"}[kind])  # fmt: skip
        if kind == "learned":
            self.add(f"s = {self.load(self.array('s', 1, low=0.1, high=0.3))}")
        self.add("q = tl.clamp(x / s, -4.5, 4.5)",
                 "q = q + tl.stop_gradient(tl.floor(q + 0.5) - q)", "z = q * s")  # fmt: skip
        if self.chance(0.5):
            self.add(f"z = z * {self.load(self.array('w', n) + ' + j', 'keep')}")
        self.store(f"{y} + row * n + j", "z", "keep")

    def _table(self) -> None:
        """Rows of a table: alone, in bags, interpolated, or added to rows of another one."""
        m, n, count = self.m, self.n, int(self.rng.integers(1, 5))
        w, y = self.array("w", count, n), self.output("y", m, n)
        self.rows()
        kind = self.pick("row", "bag", "segment", "interpolated", "sum", "scattered")
        self.used.add(f"table: {kind}")
        self.add(f"j = tl.arange(0, {self.block})", "keep = j < n")
        if kind in ("row", "sum", "scattered"):
            t = self.integers("t", -1 if kind == "row" else 0, count, m)
            self.add(f"at = tl.load({t} + row)")
            if kind == "row":
                self.add(f"z = {self.load(f'{w} + at * n + j', 'keep & (at >= 0)')} * 2.0")
            else:
                self.add(f"z = {self.load(f'{w} + at * n + j', 'keep')}")
            if kind == "sum":
                p = self.array("p", m, n)
                self.add(f"z += tl.sin({self.load(f'{p} + row * n + j', 'keep')})")
        elif kind == "bag":
            t = self.integers("t", 0, count, m, 3)
            self.add("z = tl.zeros([16], tl.float64)")
            self.open("for k in range(3):")
            self.add(f"at = tl.load({t} + row * 3 + k)",
                     f"z += {self.load(f'{w} + at * n + j', 'keep')} / 3")  # fmt: skip
            self.close()
        elif kind == "segment":
            ends = np.sort(self.rng.integers(0, count + 1, m + 1))
            self.args["ends_ptr"] = ends.astype(np.int32)
            self.add("z = tl.zeros([16], tl.float64)", "a = tl.load(ends_ptr + row)",
                     "b = tl.load(ends_ptr + row + 1)")  # fmt: skip
            self.open("for k in range(a, b):")
            self.add(f"z += {self.activation(self.load(f'{w} + k * n + j', 'keep'))}")
            self.close()
        else:
            c = self.array("c", m, low=0.05, high=0.95)
            self.add(f"c = {self.load(f'{c} + row')} * {count}", "low = tl.floor(c)",
                     "f, at = c - low, low.to(tl.int32)",
                     f"a = {self.load(f'{w} + at * n + j', f'keep & (at < {count})')}",
                     f"b = {self.load(f'{w} + at * n + n + j', f'keep & (at + 1 < {count})')}",
                     "z = a * (1.0 - f) + b * f")  # fmt: skip
        if kind == "scattered":
            self.args[y] = np.zeros((2, n))
            u = self.integers("u", 0, 2, m)
            self.add(f"tl.atomic_add({y} + tl.load({u} + row) * n + j, z * z, mask=keep)")
        else:
            self.store(f"{y} + row * n + j", "z", "keep")

    def _descriptors(self) -> None:
        """Tiles of descriptors, or of block pointers that are advanced."""
        m, n = self.m, 8 * self.pick(1, 2)
        x, w, y = self.array("x", m, n), self.array("w", n, 8), self.output("y", m, 8)
        self.numbers(m=m, n=n)
        self.grid = (-(-m // 2),)
        self.add("row = tl.program_id(0) * 2", "acc = tl.zeros([2, 8], tl.float64)")
        if self.use("descriptors", 0.5):
            self.add(f"x = tl.make_tensor_descriptor({x}, [m, n], [n, 1], [2, 8])",
                     f"w = tl.make_tensor_descriptor({w}, [n, 8], [8, 1], [8, 8])",
                     f"y = tl.make_tensor_descriptor({y}, [m, 8], [8, 1], [2, 8])")  # fmt: skip
            self.open("for start in range(0, n, 8):")
            self.add("a = x.load([row, start]).to(tl.float64)",
                     "b = w.load([start, 0]).to(tl.float64)",
                     f"acc += tl.dot({self.pick('a', 'tl.sin(a)')}, b)")  # fmt: skip
            self.close()
            self.add(f"y.store([row, 0], {self.pick('acc', 'tl.sin(acc)')})")
        else:
            self.add(
                f"x = tl.make_block_ptr({x}, (m, n), (n, 1), (row, 0), (2, 8), (1, 0))",
                f"w = tl.make_block_ptr({w}, (n, 8), (8, 1), (0, 0), (8, 8), (1, 0))",
                f"y = tl.make_block_ptr({y}, (m, 8), (8, 1), (row, 0), (2, 8), (1, 0))",
            )
            self.open("for start in range(0, n, 8):")
            check = "boundary_check=(0, 1), padding_option='zero'"
            self.add(f"a = tl.load(x, {check}).to(tl.float64)",
                     f"b = tl.load(w, {check}).to(tl.float64)",
                     f"acc += tl.dot({self.pick('a', 'tl.sin(a)')}, b)",
                     "x, w = tl.advance(x, (0, 8)), tl.advance(w, (8, 0))")  # fmt: skip
            self.close()
            self.add(f"tl.store(y, {self.pick('acc', 'tl.sin(acc)')}, boundary_check=(0,))")

    def _router(self) -> None:
        """A softmax of which the two greatest are kept."""
        m, n = self.m, max(2, self.n)
        x, y = self.array("x", m, n), self.output("y", m, 2)
        self.rows()
        self.add(f"j = tl.arange(0, {self.block})",
                 f"x = {self.load(f'{x} + row * n + j', 'j < n', '-1e30')}")  # fmt: skip
        if self.chance(0.5):
            self.add("e = tl.exp(x - tl.max(x, 0))", "x = e / tl.sum(e, 0)")
        self.add("a, at = tl.max(x, 0), tl.argmax(x, 0)",
                 "b = tl.max(tl.where(j == at, -1e30, x), 0)")  # fmt: skip
        if self.use("renormalised", 0.5):
            self.add("total = tl.exp(a) + tl.exp(b)", "a, b = tl.exp(a) / total, tl.exp(b) / total")
        self.store(f"{y} + row * 2", "a")
        self.store(f"{y} + row * 2 + 1", "b")
        if self.use("the chosen one", 0.5):
            self.args["at_ptr"] = np.zeros(m, np.int32)
            self.add("tl.store(at_ptr + row, at)")
