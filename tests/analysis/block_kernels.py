"""Kernels for the tests of blocks: families, each at several shapes.

`expected` has a word an access, in the order of the ops: "block" for one that its bounds describe
alone, "wrap", "limit", "residual", or the reason for which there is none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

BASES = [1 << 40, 3 << 40, 5 << 40, 7 << 40, 9 << 40]


@dataclass(frozen=True)
class Case:
    """A kernel with arguments.

    Attributes:
        signature: as for `kernel_ir`; pointers come first.
        numbers: values of the parameters after the pointers, several times.
        wraps: whether narrow integers may wrap for some of the numbers.
    """

    name: str
    text: str
    signature: str
    numbers: Sequence[Sequence[float]]
    expected: Sequence[str]
    grid: tuple[int, ...] = (3,)
    constants: Mapping[str, Any] = field(default_factory=dict[str, Any])
    wraps: bool = False

    def arguments(self) -> Iterator[list[float]]:
        pointers = BASES[: self.signature.count("*")]
        for numbers in self.numbers:
            yield [*pointers, *numbers]


LINES = {
    "whole": ("x + off", "None", "block"),
    "end": ("x + off", "off < n", "block"),
    "at most": ("x + off", "off <= n", "block"),
    "turned comparison": ("x + off", "n > off", "block"),
    "from both sides": ("x + off", "(off >= 3) & (off < n)", "block"),
    "not beyond": ("x + off", "~(off >= n)", "block"),
    "one element": ("x + off", "off == n", "block"),
    "all but one": ("x + off", "off != n", "residual"),
    "shifted": ("x + off + 1", "off + 1 < n", "block"),
    "shifted by an argument": ("x + s + off", "s + off < n", "block"),
    "another bound": ("x + off", "off < n - s", "block"),
    "two bounds": ("x + off", "(off < n) & (off < s)", "block"),
    "either": ("x + off", "(off < n) | (off < s)", "residual"),
    "backwards": ("x + (n - 1 - off)", "off < n", "block"),
    "backwards by the mask": ("x + off", "n - off > 0", "block"),
    "with a stride": ("x + off * s", "off < n", "block"),
    "every other": ("x + off * 2", "off * 2 < n * 2", "block"),
    "every third of an odd number": ("x + off * 3", "off * 3 < 100", "residual"),
    "every other to an odd number": ("x + off * 2", "off * 2 < n", "residual"),
    "steps that end within one": (
        "x + tl.arange(0, BLOCK) * 3", "tl.arange(0, BLOCK) * 3 < 40", "block"
    ),
    "backwards in steps": ("x - off * 2", "-2 * off > -64", "block"),
    "a stride of zero": ("x + off * 0", "off < n", "block"),
    "negative stride": ("x - off * s", "off < n", "block"),
    "a condition": ("x + off", "(off < n) & (s > 0)", "block"),
    "a condition alone": ("x + off", "tl.full([BLOCK], s, tl.int32) > 0", "block"),
    "an empty bound": ("x + off", "(off < n) & (off >= n)", "block"),
    "negative bound": ("x + off", "off < -5", "block"),
    "64 bits": ("x + off.to(tl.int64) * wide", "off < wide", "block"),
    "64 bits in scalars": ("x + pid.to(tl.int64) * wide + off", "off < n", "block"),
    "remainder": ("x + off % n", "None", "wrap"),
    "remainder with a mask": ("x + off % n", "off < s", "wrap"),
    "remainder with a stride": ("x + (off % n) * s", "None", "wrap"),
    "remainder of a constant": ("x + off % 7", "None", "wrap"),
    "up to a limit": ("x + tl.where(off < n, off, 0)", "None", "limit"),
    "up to a limit and further": ("x + tl.where(off < n, off, s)", "off < n + 3", "limit"),
    "up to a limit with a stride": ("x + tl.where(off < n, off, 5) * s", "None", "limit"),
    "up to a limit of another index": ("x + tl.where(off + 1 < n, off, 0)", "None", "chosen"),
    "up to no one limit": ("x + tl.where(off < off * s, off, 0)", "None", "chosen"),
    "chosen of two": ("x + tl.where(off < n, off, off + s)", "None", "chosen"),
    "masked by a remainder": ("x + off", "off % 7 < 3", "residual"),
    "quotient": ("x + off // 3", "off < n", "divided"),
    "remainder of twice": ("x + (off * 2) % n", "None", "divided"),
    "squared": ("x + off * off", "off < n", "computed"),
    "bits": ("x + (off ^ 5)", "off < n", "computed"),
    "chosen": ("x + tl.where(off > n, off, 0)", "None", "chosen"),
    "clamped": ("x + tl.minimum(off, n - 1)", "None", "chosen"),
    "by a float": ("x + (off * 0.5).to(tl.int32)", "off < n", "float"),
    "flipped": ("x + tl.flip(off)", "off < n", "block"),
    "shifted left": ("x + (off << 2)", "off < n", "block"),
    "hinted": ("x + tl.multiple_of(off, 8)", "off < n", "block"),
    "loaded mask": ("x + off", "tl.load(y + off) > 2", "residual"),
    "gathered": ("x + tl.load(y + off)", "off < n", "loaded"),
    "offset loaded once": ("x + tl.load(y + pid) * s + off", "off < n", "block"),
    "a bool": ("x + off", "(off < n) & tl.full([BLOCK], True, tl.int1)", "block"),
    "unsigned": ("x + off.to(tl.uint32)", "off.to(tl.uint32) < 50", "computed"),
}  # fmt: skip


def lines() -> Iterator[Case]:
    for name, (pointer, mask, kind) in LINES.items():
        text = f"""
            def kernel(x, y, n, s, wide, BLOCK: tl.constexpr):
                pid = tl.program_id(0)
                off = pid * BLOCK + tl.arange(0, BLOCK)
                value = tl.load({pointer}, mask={mask})
                tl.store(y + off, value, mask={mask})
            """
        first = ["block"] * ("tl.load(y" in pointer) + ["block"] * ("tl.load(y" in mask)
        stored = "residual" if kind == "residual" or "% 7 < 3" in mask else "block"
        for block in (16, 64):
            yield Case(
                f"line, {name}, {block}",
                text,
                "*fp32, *i32, i32, i32, i64",
                [(40, 3, 2**33), (0, -2, -(2**33)), (100, 17, 5)],
                [*first, kind, stored],
                constants={"BLOCK": block},
            )


PLANES = {
    "rows": ("x + row * s + col", "(row < m) & (col < n)", "block"),
    "columns": ("x + row + col * s", "(row < m) & (col < n)", "block"),
    "both strides": ("x + row * s + col * t", "(row < m) & (col < n)", "block"),
    "one bound": ("x + row * s + col", "row < m", "block"),
    "broadcast rows": ("x + row * 0 + col", "col < n", "block"),
    "triangle": ("x + row * s + col", "(row >= col) & (col < n)", "residual"),
    "diagonal": ("x + row * s + col", "row == col", "residual"),
    "turned": ("(x + row * s + col).trans()", "((row < m) & (col < n)).trans()", "block"),
    "turned, one bound": ("(x + row * s + col).trans()", "(row < m).trans()", "block"),
    "flat": ("(x + row * N + col).reshape(M * N)", "None", "computed"),
    "split": ("x + tl.arange(0, M * N).reshape(M, N) + pid * (M * N)", "col < n", "block"),
    "split, another order": ("x + tl.arange(0, M * N).reshape(N, M).T * s", "col < n", "block"),
    "wrapped rows": ("x + (row % m) * s + col", "col < n", "wrap"),
    "limited rows": ("x + tl.where(row < m, row, 0) * s + col", "col < n", "limit"),
    "limited and wrapped": ("x + tl.where(row < m, row, 1) * s + (col % n) * t", "None", "wrap"),
    "wrapped columns": ("x + row * s + (col % n)", "row < m", "wrap"),
    "wrapped both": ("x + (row % m) * s + (col % n) * t", "None", "wrap"),
    "wrapped and moved": ("x + (row % m) * s + row * t + col", "None", "divided"),
    "wrapped over both": ("x + (row * N + col) % m", "None", "divided"),
    "product": ("x + row * col", "(row < m) & (col < n)", "computed"),
    "rows chosen": ("x + tl.where(row > m, row, 0) * s + col", "col < n", "chosen"),
    "by halves": ("x + row * s + col + tl.where(pid > 0, s, t)", "col < n", "block"),
    "batch": ("x + pid * t + row * s + col", "(row < m) & (col < n)", "block"),
    "bounded batch": (
        "x + pid * t + row * s + col", "(pid < 2) & (row < m) & (col < n)", "block"
    ),
    "batch of an odd number": (
        "x + pid * t + row * s + col", "(2 * pid + 1 < m) & (row < m) & (col < n)", "block"
    ),
    "batch from both sides": (
        "x + (pid - 1) * t + row * s + col", "(pid - 1 >= 0) & (pid <= n) & (col < n)", "block"
    ),
    "batches from the last": (
        "x + (n - 1 - pid) * t + row * s + col", "(n - 1 - pid >= 0) & (col < m)", "block"
    ),
    "batch of a constant size": (
        "x + pid * 4096 + row * 64 + col", "(pid < 2) & (row < m) & (col < n)", "block"
    ),
    "two batches of constant sizes": (
        "x + pid * 4096 + tl.program_id(1) * 512 + row * s + col",
        "(tl.program_id(1) < 2) & (pid < m) & (row < m) & (col < n)",
        "block",
    ),
    "a guard of programs": ("x + row * s + col", "(pid < 2) & (row < m) & (col < n)", "block"),
    "a guard of programs, free rows": ("x + row * s + col", "(pid < 2) & (col < n)", "block"),
    "batch and head": ("x + pid // 2 * t + pid % 2 * s * m + row * s + col", "row < m", "block"),
    "sum of strides": ("x + row * (s + t) + col", "row < m", "block"),
    "same stride twice": ("x + row * s + col * s", "(row < m) & (col < n)", "block"),
    "loaded rows": ("x + tl.load(y + row) * s + col", "col < n", "loaded"),
    "negative rows": ("x + (m - 1 - row) * s + col", "row < m", "block"),
    "three parts": ("x + row * s + col + n - 1", "(row < m) & (col + 1 < n) & (pid < 2)", "block"),
    "swapped masks": ("x + row * s + col", "(col < m) & (row < n)", "block"),
}  # fmt: skip


def planes() -> Iterator[Case]:
    for name, (pointer, mask, kind) in PLANES.items():
        text = f"""
            def kernel(x, y, m, n, s, t, M: tl.constexpr, N: tl.constexpr):
                pid = tl.program_id(0)
                row = (pid * M + tl.arange(0, M))[:, None]
                col = (tl.program_id(1) * N + tl.arange(0, N))[None, :]
                tl.load({pointer}, mask={mask}, volatile=True)
            """
        first = ["block"] * ("tl.load(y" in pointer)
        for size in ((4, 8), (8, 2), (1, 16)):
            if size[0] == 1 and kind not in ("block", "residual"):
                continue  # an axis of one element changes nothing
            kind_here = "any" if size[0] == 1 and "row" in mask and "col" in mask else kind
            yield Case(
                f"plane, {name}, {size}",
                text,
                "*fp32, *i32, i32, i32, i32, i32",
                [(10, 13, 100, 7), (3, 40, -64, 1), (9, 0, 0, 1000)],
                [*first, kind_here],
                grid=(3, 2),
                constants={"M": size[0], "N": size[1]},
            )


MATMUL = """
def kernel(a, b, c, M, N, K, sam, sbk, scm, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
           GROUP: tl.constexpr):
    pid = tl.program_id(0)
    tiles_m = tl.cdiv(M, BM)
    tiles_n = tl.cdiv(N, BN)
    in_group = GROUP * tiles_n
    group = pid // in_group
    first = group * GROUP
    height = min(tiles_m - first, GROUP)
    pid_m = first + (pid % in_group) % height
    pid_n = (pid % in_group) // height
    rows = {rows}
    cols = {cols}
    ks = tl.arange(0, BK)
    a_ptrs = a + rows[:, None] * sam + ks[None, :]
    b_ptrs = b + ks[:, None] * sbk + cols[None, :]
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, tl.cdiv(K, BK)):
        x = tl.load(a_ptrs, mask=ks[None, :] < K - k * BK, other=0.0)
        y = tl.load(b_ptrs, mask=ks[:, None] < K - k * BK, other=0.0)
        acc = tl.dot(x, y, acc)
        a_ptrs += BK
        b_ptrs += BK * sbk
    out_rows = pid_m * BM + tl.arange(0, BM)
    out_cols = pid_n * BN + tl.arange(0, BN)
    mask = (out_rows[:, None] < M) & (out_cols[None, :] < N)
    tl.store(c + out_rows[:, None] * scm + out_cols[None, :], {value}, mask=mask)
"""


def matmuls() -> Iterator[Case]:
    plain = ("pid_m * BM + tl.arange(0, BM)", "pid_n * BN + tl.arange(0, BN)")
    wrapped = (f"({plain[0]}) % M", f"({plain[1]}) % N")
    for name, (rows, cols) in {"plain": plain, "wrapped": wrapped}.items():
        kind = "wrap" if name == "wrapped" else "block"
        for sizes in ((16, 16, 16), (32, 16, 16)):
            yield Case(
                f"matmul, {name}, {sizes}",
                MATMUL.format(rows=rows, cols=cols, value="acc"),
                "*fp16, *fp16, *fp32, i32, i32, i32, i32, i32, i32",
                [(40, 50, 40, 64, 64, 64), (7, 9, 33, 33, 100, 128)],
                [kind, kind, "block"],
                grid=(6,),
                constants=dict(zip(("BM", "BN", "BK", "GROUP"), (*sizes, 2), strict=True)),
            )


ATTENTION = """
def kernel(q, k, v, o, H, L, scale, sqb, sqh, sql, skb, skh, skl, BM: tl.constexpr,
           BN: tl.constexpr, D: tl.constexpr):
    start = tl.program_id(0)
    b = tl.program_id(1) // H
    h = tl.program_id(1) % H
    rows = start * BM + tl.arange(0, BM)
    dims = tl.arange(0, D)
    cols = tl.arange(0, BN)
    q_tile = tl.load(q + b * sqb + h * sqh + rows[:, None] * sql + dims[None, :],
                     mask=rows[:, None] < L, other=0.0)
    acc = tl.zeros((BM, D), tl.float32)
    for begin in range(0, (start + 1) * BM, BN):
        at = begin + cols
        k_tile = tl.load(k + b * skb + h * skh + at[None, :] * skl + dims[:, None],
                         mask=at[None, :] < L, other=0.0)
        p = tl.where(rows[:, None] >= at[None, :], tl.dot(q_tile, k_tile), 0.0)
        v_tile = tl.load(v + b * skb + h * skh + at[:, None] * skl + dims[None, :],
                         mask=at[:, None] < L, other=0.0)
        acc += tl.dot(p.to(v_tile.dtype), v_tile)
    tl.store(o + b * sqb + h * sqh + rows[:, None] * sql + dims[None, :], acc,
             mask=rows[:, None] < L)
"""

LOOPS = {
    "carried pointer": (
        """
        p = x + tl.program_id(0) * s + tl.arange(0, 16)
        for i in range(0, n):
            tl.load(p, mask=tl.arange(0, 16) < m - i * 16, volatile=True)
            p += 16
        """,
        ["block"],
    ),
    "carried by a stride": (
        """
        p = x + tl.arange(0, 16)
        for i in range(2, n, 3):
            tl.load(p, mask=tl.arange(0, 16) < m, volatile=True)
            p += s
        """,
        ["block"],
    ),
    "counter": (
        """
        for i in range(0, n, 16):
            at = i + tl.arange(0, 16)
            tl.load(x + at, mask=at < n, volatile=True)
        """,
        ["block"],
    ),
    "counter with another start": (
        """
        for i in range(s, n, 4):
            at = i + tl.arange(0, 16)
            tl.load(x + at * m, mask=at < n, volatile=True)
        """,
        ["block"],
    ),
    "two loops": (
        """
        for i in range(0, 3):
            p = x + i * s + tl.arange(0, 16)
            for j in range(0, n, 16):
                tl.load(p, mask=j + tl.arange(0, 16) < n, volatile=True)
                p += 16
        """,
        ["block"],
    ),
    "carried through both": (
        """
        p = x + tl.arange(0, 16)
        for i in range(0, 3):
            for j in range(0, n, 16):
                tl.load(p, mask=j + tl.arange(0, 16) < n, volatile=True)
                p += 16
        """,
        ["block"],
    ),
    "an index that a loop moves": (
        """
        at = tl.program_id(0) * 16 + tl.arange(0, 16)
        for i in range(0, n):
            tl.load(x + at, mask=at < m, volatile=True)
            at += s
        """,
        ["block"],
    ),
    "tile steps": (
        """
        p = x + tl.arange(0, 16)
        for i in range(0, n):
            tl.load(p, volatile=True)
            p += tl.arange(0, 16)
        """,
        ["block"],
    ),
    "unequal steps": (
        """
        at = tl.arange(0, 16)
        for i in range(0, n):
            tl.load(x + at, mask=at < m, volatile=True)
            at = at * 2
        """,
        ["carried"],
    ),
    "while": (
        """
        i = 0
        while i < n:
            at = i + tl.arange(0, 16)
            tl.load(x + at, mask=at < n, volatile=True)
            i += 16
        """,
        ["block"],
    ),
    "in a branch": (
        """
        if tl.program_id(0) > 0:
            tl.load(x + tl.arange(0, 16) * s, mask=tl.arange(0, 16) < n, volatile=True)
        """,
        ["block"],
    ),
    "an index from branches": (
        """
        at = tl.arange(0, 16)
        if n > m:
            at += s
        tl.load(x + at, volatile=True)
        """,
        ["any"],
    ),
    "a scalar": ("tl.load(x + n * s, volatile=True)\ntl.store(x + m, 1.0)", ["block", "block"]),
    "a masked scalar": ("tl.load(x + n, mask=n < m, volatile=True)", ["block"]),
    "an atomic": (
        "tl.atomic_add(x + tl.arange(0, 16) * s, 1.0, mask=tl.arange(0, 16) < n)", ["block"]
    ),
    "an atomic of a scalar": ("tl.atomic_add(x + tl.program_id(0), 1.0)", ["block"]),
    "a histogram": (
        """
        at = tl.load(x.to(tl.pointer_type(tl.int32)) + tl.arange(0, 16), volatile=True)
        tl.atomic_add(x + at, 1.0)
        """,
        ["block", "loaded"],
    ),
    "three axes turned": (
        """
        a = tl.arange(0, 2)[:, None, None]
        b = tl.arange(0, 4)[None, :, None]
        c = tl.arange(0, 8)[None, None, :]
        mask = ((a < m) & (b * 2 + a < n) & (c < s)).permute(1, 2, 0)
        tl.load((x + a * s + b * m + c).permute(1, 2, 0), mask=mask, volatile=True)
        """,
        ["residual"],
    ),
    "block pointer": (
        """
        p = tl.make_block_ptr(x, (m, n), (s, 1), (tl.program_id(0) * 8, 0), (8, 16), (1, 0))
        for i in range(0, 3):
            tile = tl.load(p, boundary_check=(0, 1))
            tl.store(p, tile, boundary_check=(0,))
            p = tl.advance(p, (0, 16))
        """,
        ["block", "block"],
    ),
    "descriptor": (
        """
        d = tl.make_tensor_descriptor(x, [m, n], [s, 1], [8, 16])
        for i in range(0, 3):
            tile = d.load([tl.program_id(0) * 8, i * 16])
            d.store([i * 8, 16], tile)
        """,
        ["block", "block"],
    ),
    "descriptor of three axes": (
        """
        d = tl.make_tensor_descriptor(x, [3, m, n], [m * s, s, 1], [1, 8, 16])
        tile = d.load([tl.program_id(0), 4, n - 16])
        d.store([0, 0, 0], tile)
        """,
        ["block", "block"],
    ),
}  # fmt: skip


def attentions() -> Iterator[Case]:
    for sizes in ((16, 16, 16), (32, 16, 32)):
        yield Case(
            f"attention, {sizes}",
            ATTENTION,
            "*fp16, *fp16, *fp16, *fp32, i32, i32, fp32, i32, i32, i32, i32, i32, i32",
            [(2, 40, 0.5, 10000, 3000, 64, 9000, 4000, 80), (1, 16, 0.5, 0, 0, 16, 0, 0, 32)],
            ["block"] * 4,
            grid=(2, 3),
            constants=dict(zip(("BM", "BN", "D"), sizes, strict=True)),
        )


def loops() -> Iterator[Case]:
    for name, (body, expected) in LOOPS.items():
        lines = [line for line in body.splitlines() if line.strip()]
        indent = min(len(line) - len(line.lstrip()) for line in lines)
        text = "\n".join("    " + line[indent:] for line in lines)
        yield Case(
            f"loop, {name}",
            f"def kernel(x, m, n, s):\n{text}\n",
            "*fp32, i32, i32, i32",
            [(30, 40, 64), (5, 7, 16), (0, 0, 32), (100, 33, 1)],
            expected,
        )


NEAR_THE_END = [
    (2**31 - 40, 2**31 - 1, 2**20),
    (2**30, 2**31 - 8, 2**28),
    (-(2**31), 2**31 - 20, -(2**27)),
]


def wrapping() -> Iterator[Case]:
    """Narrow integers near the ends of their range."""
    for name, (pointer, mask) in {
        "begin": ("x + (m + i)", "m + i < n"),
        "product": ("x + i * s", "i < n"),
        "product in 64 bits": ("x + i.to(tl.int64) * s", "i < n"),
        "difference": ("x + (m - i)", "m - i > 5"),
        "program": ("x + (tl.program_id(0) * s + i)", "tl.program_id(0) * s + i < n"),
        "unsigned": ("x + (m.to(tl.uint32) + i.to(tl.uint32))", "i < n"),
        "remainder": ("x + (m + i) % 1000", "m + i < n"),
        "bytes": ("x + (i.to(tl.int8) * 16).to(tl.int32)", "i < n"),
    }.items():
        yield Case(
            f"wrapping, {name}",
            f"""
            def kernel(x, m, n, s):
                i = tl.arange(0, 16)
                tl.load({pointer}, mask={mask}, volatile=True)
            """,
            "*fp32, i32, i32, i32",
            [*NEAR_THE_END, (5, 9, 3)],
            ["any"],
            wraps=True,
        )


CASES = [*lines(), *planes(), *matmuls(), *attentions(), *loops(), *wrapping()]
