"""Random kernels to be differentiated.

The kernels are texts. Their addresses are sums of program ids, lanes and loop counters with random
strides, so that elements are often loaded several times.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from tests.fuzz.derivatives.random_kernel import Arrays, Choices

PROGRAMS = {
    "indices": ("p, q = tl.program_id(0), tl.program_id(1)", (3, 2)),
    "digits": ("p, q = tl.program_id(0) // 2, tl.program_id(0) % 2", (6,)),
    "columns first": ("p, q = tl.program_id(0) % 3, tl.program_id(0) // 3", (6,)),
    "order": ("p, q = (tl.program_id(0) + 2) % 6 // 2, tl.program_id(0) % 2", (6,)),
    "tiles": ("p, q = tile // 2, tile % 2", (4,)),
}
"""How a kernel computes its coordinates, and its grid. "tiles": in a loop over tiles."""
LENGTH = 6144  # more than the largest sum of the terms of an address, about 5100
# None of them lets numbers grow, so that central differences are accurate.
OPERATIONS = (
    "{a} + {b}", "{a} - {b}", "{a} * tl.sin({b})", "tl.sin({a})", "tl.exp(tl.sin({a}))",
    "tl.cos({a}) * tl.cos({b})", "{a} / (2.0 + tl.sin({b}))", "tl.where({i}, {a}, {b})",
    "tl.sqrt(1.5 + tl.cos({a}))", "tl.sum({a}, 0) * 0.25 + {b}",
    "tl.sum(tl.sin({a}) * tl.cos({b}), 1)[:, None] * 0.25 + {b}", "tl.cumsum({a}, 1) * 0.125",
    "tl.trans(tl.reshape({a}, [8, 4]), 1, 0).reshape([4, 8]) * tl.cos({b})", "tl.erf({a})", "-{a}",
    "tl.sigmoid({a}) * tl.sin({b})", "tl.log(3.0 + tl.sin({a}))", "tl.abs(tl.sin({a}) + 4.0)",
)  # fmt: skip


@dataclass
class Program(Choices):
    """A random kernel over tiles of 4 by 8, and what its arguments are.

    Attributes:
        lines: of its body.
        names: how many values it has named.
        grid: of its launch.
    """

    lines: list[str] = field(default_factory=list[str])
    names: int = 0
    grid: tuple[int, ...] = ()

    def address(self, counters: list[str]) -> str:
        """An index tile: strides that keep elements apart, or random ones."""
        terms = ["i[:, None] * 8", "j[None, :]", "p * 32", "q * 96"]
        if self.chance(0.5):
            strides = [self.pick(0, 1, 2, 4, 8, 16, 32, 64, 96, 200) for _ in range(4)]
            terms = [
                f"{name} * {stride}"
                for name, stride in zip(
                    ("i[:, None]", "j[None, :]", "p", "q"), strides, strict=True
                )
            ]
            self.used.add("random strides")
        for counter in counters:
            if self.chance(0.8):
                terms.append(f"{counter} * {self.pick(1, 2, 8, 192, 576)}")
        if self.chance(0.2):
            terms.append(str(self.pick(1, 8, 32, 576)))
        if self.chance(0.1):
            terms.append("(p * 2 + q) % 4 * 64")
            self.used.add("remainder")
        if self.chance(0.1):
            limit = self.pick(20, 40, 400)
            terms[0] = f"tl.where(p * 32 + i < {limit}, p * 32 + i, {self.pick('0', 'p')})[:, None]"
            self.used.add("replaced index")
        return " + ".join(terms)

    def mask(self) -> str:
        kind = self.pick("rows", "columns", "both", "none", "other", "causal")
        self.used.add(f"mask of {kind}")
        return {
            "rows": ", mask=p * 4 + i[:, None] < n",
            "columns": ", mask=j[None, :] < m",
            "both": ", mask=(i[:, None] < 3) & (j[None, :] < m)",
            "none": "",
            "other": ", mask=j[None, :] < m, other=1.5",
            "causal": ", mask=i[:, None] >= j[None, :]",
        }[kind]

    def load(self, indent: str, counters: list[str]) -> str:
        name = f"v{self.names}"
        self.names += 1
        array = self.pick("a_ptr", "a_ptr", "b_ptr")
        self.lines.append(
            f"{indent}{name} = tl.load({array} + {self.address(counters)} + zero{self.mask()})"
        )
        return name

    def compute(self, indent: str, known: list[str]) -> str:
        name = f"v{self.names}"
        self.names += 1
        condition = self.pick(
            "i[:, None] + j[None, :] > p + 3", "(i[:, None] < m) & (j[None, :] > q)"
        )
        text = self.pick(*OPERATIONS).format(a=self.pick(*known), b=self.pick(*known), i=condition)
        self.lines.append(f"{indent}{name} = {text} + float_zero")
        return name

    def block(self, indent: str, known: list[str], counters: list[str], size: int) -> list[str]:
        here = list(known)
        here.append(self.load(indent, counters))
        for _ in range(size):
            here.append(self.compute(indent, here))
        return here

    def loop(self, known: list[str]) -> str:
        self.used.add("sum in a loop")
        total = f"v{self.names}"
        self.names += 1
        self.lines.append(f"    {total} = float_zero * 1.0")
        self.lines.append(f"    for k in range({self.pick('0', 'p')}, {self.pick('3', 'm - 4')}):")
        inner = self.block("        ", known, ["k"], 2)
        self.lines.append(f"        {total} {self.pick('+=', '-=')} {inner[-1]}")
        return total

    def shared(self, known: list[str]) -> str:
        """Sums of products with tiles that programs share, perhaps in a branch: they have gradients
        on a grid of their own. No other load is from this array."""
        self.used.add("shared tiles")
        name = f"v{self.names}"
        self.names += 1
        own = self.pick("0", "p", "q", "p // 2", "p % 2", "q * 2 + p % 2", "p * 2 + q")
        indent = "    "
        self.lines.append(f"    {name} = float_zero * 1.0")
        if self.chance(0.3):
            self.used.add("shared tiles in a branch")
            condition = self.pick("p == 1", "p + q < m - 5", "q > 0")
            self.lines.append(f"    if {condition}:")
            indent += "    "
        begin, end = self.pick("0", "0", "p", "q"), self.pick("3", "m - 4", "p + 2", "q + 1")
        place = f"i[:, None] * 8 + j[None, :] + k * 32 + ({own}) * 256"
        self.lines += [
            f"{indent}for k in range({begin}, {end}):",
            f"{indent}    c = tl.load(c_ptr + {place}{self.pick('', ', mask=j[None, :] < m')})",
            f"{indent}    {name} += c * tl.sin({known[-1]} + k)",
        ]
        if self.chance(0.5):
            self.lines.append(f"    {name} = tl.sin({name})")
        return name

    def maximum(self, known: list[str]) -> str:
        """A running maximum that scales a sum and a product, as in attention."""
        self.used.add("running maximum")
        name = f"v{self.names}"
        self.names += 1
        axis, shape, view = self.pick((1, "[4]", "[:, None]"), (0, "[8]", "[None, :]"))
        self.lines += [
            f"    m_{name} = tl.full({shape}, -float('inf'), tl.float64)",
            f"    total_{name} = tl.zeros({shape}, tl.float64)",
            f"    {name} = float_zero * 1.0",
            f"    for k in range({self.pick('0', 'p')}, 3):",
        ]
        inner = self.block("        ", known, ["k"], 2)
        factor = self.pick("", "", "", " * 0.5")
        self.lines += [
            f"        s = tl.sin({inner[-1]})",
            f"        m_new = tl.maximum(m_{name}, tl.max(s, {axis}))",
            f"        weight = tl.exp(s - m_new{view})",
            f"        alpha = tl.exp(m_{name} - m_new){factor}",
            f"        total_{name} = total_{name} * alpha + tl.sum(weight, {axis})",
            f"        {name} = {name} * alpha{view} + weight * {inner[-2]}",
            f"        m_{name} = m_new",
        ]
        result = self.pick(
            f"{name} / total_{name}{view}", f"{name} / total_{name}{view}",
            f"(m_{name} + tl.log(total_{name})){view} + float_zero",
            f"tl.sin(m_{name}){view} + float_zero",
        )  # fmt: skip
        self.lines.append(f"    {name} = {result}")
        return name

    def state(self, known: list[str]) -> str:
        """A value that each iteration computes from that of the one before."""
        name, kind = f"v{self.names}", self.pick("for", "for", "checkpoints", "while")
        self.names += 1
        self.used.add(f"a state, {kind}")
        start, stop = self.pick("0", "p"), self.pick("2", "m - 4", "4")
        self.lines.append(f"    {name} = {self.pick(*known)} * {self.pick('0.5', '1.0')}")
        self.lines.append(f"    s_{name} = tl.sum({name}) * 0.01")
        if kind == "while":
            self.lines += [f"    k = {start} * 1", f"    while k < {stop}:"]
        elif kind == "checkpoints":
            every = self.pick(1, 2, 3)
            self.lines.append(f"    for k in tl.range({start}, {stop}, ad_checkpoint={every}):")
        else:
            self.lines.append(f"    for k in range({start}, {stop}):")
        inner = self.block("        ", [*known, name], ["k"], 2)
        function = self.pick("tl.sin", "")
        self.lines += [
            f"        {name} = {function}({name} * tl.cos({inner[-1]})) + {inner[-2]}",
            f"        s_{name} = tl.sin(s_{name} + tl.sum({name}) * 0.01)",
        ]
        if kind == "while":
            self.lines.append(f"        k += {self.pick(1, 2)}")
        self.lines.append(f"    {name} = {name} * s_{name}")
        return name

    def scan(self, known: list[str]) -> str:
        """A scan or reduction with a combine function of two values."""
        name = f"v{self.names}"
        self.names += 1
        self.used.add("scan")
        axis, reverse = self.pick(0, 1), self.pick("", ", reverse=True")
        pair = f"(tl.cos({self.pick(*known)}), tl.sin({self.pick(*known)}))"
        self.lines.append(
            self.pick(
                f"    {name} = tl.associative_scan({pair}, {axis}, gated{reverse})[1] * 0.2",
                f"    {name} = tl.associative_scan({pair}, {axis}, complex{reverse})[0] * 0.1",
                f"    {name} = tl.reduce({pair}, 1, complex)[1][:, None] * 0.1 + float_zero",
            )
        )
        return name

    def branch(self, known: list[str]) -> str:
        self.used.add("if")
        result = f"v{self.names}"
        self.names += 1
        self.lines.append(f"    if {self.pick('p == 1', 'q > 0', 'p + q < m - 5', 'flag > 0')}:")
        self.lines.append(f"        {result} = {self.block('        ', known, [], 1)[-1]}")
        self.lines.append("    else:")
        self.lines.append(f"        {result} = {self.block('        ', known, [], 1)[-1]} * 2.0")
        return result

    def text(self) -> str:
        known = self.block("    ", ["float_zero + 0.5"], [], 2)
        for _ in range(3):
            kind = self.pick("load", "loop", "branch", "maximum", "state", "scan")
            if kind == "load":
                known = self.block("    ", known, [], 2)
            else:
                known.append(getattr(self, kind)(known))
            known.append(self.compute("    ", known))
        if self.chance(0.5):
            known.append(self.shared(known))
        kind = self.pick("indices", "indices", *PROGRAMS)
        coordinates, self.grid = PROGRAMS[kind]
        self.used.add(f"programs by {kind}")
        if self.chance(0.3) and kind != "tiles":
            self.used.add("early return")
            self.lines += ["    if p * q == 2:", "        return"]
        result = " + ".join(known[1:])
        self.lines.append(
            f"    tl.store(y_ptr + p * 64 + q * 32 + at, {result}{self.mask_of_store()})"
        )
        head = [
            "@jit",
            "def gated(a, x, b, y):",
            "    return a * b, x * b + y",
            "@jit",
            "def complex(a, b, c, d):",
            "    return a * c - b * d, a * d + b * c",
            "def kernel(a_ptr, b_ptr, c_ptr, y_ptr, flag_ptr, n, m):",
            "    i, j = tl.arange(0, 4), tl.arange(0, 8)",
            "    at = i[:, None] * 8 + j[None, :]",
            "    zero, float_zero = tl.zeros([4, 8], tl.int32), tl.zeros([4, 8], tl.float64)",
        ]
        body = [f"    {coordinates}", "    flag = tl.load(flag_ptr + p)", *self.lines]
        if kind == "tiles":
            head.append("    for tile in range(tl.program_id(0), 6, tl.num_programs(0)):")
            body = [f"    {line}" for line in body]
        return "\n".join([*head, *body])

    def mask_of_store(self) -> str:
        return self.pick("", ", mask=j[None, :] < m", ", mask=at < 30")


def arguments(rng: np.random.Generator) -> Arrays:
    return {
        "a_ptr": rng.uniform(-1, 1, LENGTH),
        "b_ptr": rng.uniform(-1, 1, LENGTH),
        "c_ptr": rng.uniform(-1, 1, LENGTH),
        "y_ptr": np.zeros(192),
        "flag_ptr": rng.integers(0, 2, 3).astype(np.int32),
        "n": int(rng.integers(3, 14)),
        "m": int(rng.integers(5, 9)),
    }
