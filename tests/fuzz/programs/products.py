"""Loops of matrix products: several accumulators, chains of products, operands from anywhere.

All numbers are whole and small, so that results are exact in every type and order.
"""

from __future__ import annotations

from dataclasses import dataclass

from tests.fuzz.programs.kinds import INTEGERS, Kind, tl
from tests.fuzz.programs.memory import READABLE, save
from tests.fuzz.programs.writer import Writer, mark, statement
from tilewright.ir.types import BF16, FP16, FP32, FP64, I8, I32, DType

LARGEST_INDEX = 48  # of a loop


@dataclass
class _Loop:
    """A loop of products of [m, k] and [k, n] tiles.

    Attributes:
        operands, dtype: the types of operands and accumulators.
        totals: the names of accumulators.
        index: the name of the loop's index.
        fixed: names of operands from before the loop, by shape.
    """

    w: Writer
    m: int
    n: int
    k: int
    operands: DType
    dtype: DType
    totals: list[str]
    index: str
    fixed: dict[tuple[int, int], str]

    def operand(self, rows: int, columns: int) -> str:
        """An operand of small numbers: loaded, computed, moved, or from before the loop."""
        w, kind = self.w, (rows, columns)
        if kind in self.fixed and w.one_in(3):
            return self.fixed[kind]
        if w.one_in(3):
            return f"tl.trans({self._loaded(columns, rows)}).to({tl(self.operands)})"
        if w.one_in(4):
            place = f"tl.arange(0, {rows})[:, None] + tl.arange(0, {columns})[None, :]"
            return f"(({place} * {self.index or 'n'}) & 3).to({tl(self.operands)})"
        return f"{self._loaded(rows, columns)}.to({tl(self.operands)})"

    def _loaded(self, rows: int, columns: int) -> str:
        w = self.w
        array = w.choose([a for a in w.book.arrays if a.dtype in INTEGERS])
        step = w.choose((1, 16, columns))
        room = (READABLE - 64 - columns - LARGEST_INDEX * step) // rows
        options = [text for text, most in (("n", 40), ("64", 64), (str(columns), columns))
                   if most <= room]  # fmt: skip
        stride = w.choose(options or ["1"])
        step = f" + {self.index} * {step if options else 1}" if self.index else ""
        i, j = f"tl.arange(0, {rows})[:, None]", f"tl.arange(0, {columns})[None, :]"
        places = f"{w.below(64)}{step} + {i} * {stride} + {j}"
        if w.one_in(2):
            axis, extent = w.choose(((i, rows), (j, columns)))
            bound = w.choose((str(w.below(extent + 2)), "n", f"n - {self.index or 1}"))
            masked = f"mask={axis} < {bound}, other={w.below(3)}"
            return f"(tl.load({array.name} + {places}, {masked}) & 3)"
        return f"(tl.load({array.name} + {places}) & 3)"

    def product(self, total: str) -> str:
        """The accumulator and a product."""
        w = self.w
        a, b = self.operand(self.m, self.k), self.operand(self.k, self.n)
        if w.one_in(4):  # of a product: as in attention
            mark(w, "products: chained")
            inner = f"tl.dot({self.operand(self.m, self.k)}, {self.operand(self.k, self.k)})"
            a = f"({inner}.to(tl.int32) & 3).to({tl(self.operands)})"
        elif w.one_in(6) and self.n == self.k:
            mark(w, "products: of the accumulator")
            a = f"({total}.to(tl.int32) & 3).to({tl(self.operands)})"
        return w.choose((
            f"tl.dot({a}, {b}, {total})", f"tl.dot({a}, {b}, acc={total})",
            f"{total} + tl.dot({a}, {b})", f"tl.dot({a}, {b}) + {total}",
            f"tl.dot({a}, {b}, {total} * 2)",
        ))  # fmt: skip

    def step(self) -> None:
        """Update one accumulator, or all."""
        w, total = self.w, self.w.choose(self.totals)
        match w.below(6):
            case 0 if len(self.totals) > 1:
                mark(w, "products: exchanged")
                first, second = self.totals[:2]
                w.emit(f"{first}, {second} = {self.product(second)}, {first}")
            case 1 if w.nested < 3:
                w.emit(f"if {w.condition(1)}:")
                w.pending.clear()
                with w.block():
                    w.emit(f"{total} = {self.product(total)}")
            case 2:
                mark(w, "products: read within")
                peak = f"tl.max({total}, 1)[:, None]"
                w.emit(f"{total} = tl.where({total} == {peak}, {total}, {total} + 1)")
                w.emit(f"{total} = {self.product(total)}")
            case _:
                w.emit(f"{total} = {self.product(total)}")
        if w.one_in(3):
            limit = 4096 if self.dtype is not FP16 else 256
            w.emit(f"{total} = tl.where({total} > {limit}, {total} - {total}, {total})")


@statement(1)
def products(w: Writer) -> bool:
    """A loop with products and its accumulators, which later statements use."""
    if not w.is_kernel or w.loops or w.nested >= 3:
        return False
    loop = _loop_of(w)
    _define_operands(loop)
    stages = w.choose(("", "", ", num_stages=2", ", num_stages=3", ", num_stages=4"))
    trips = w.choose(
        ("0, 3", f"0, {w.index((), 4, 0)}", "3, 0, -1", f"0, {w.index((), 64, 0)}, 16")
    )
    w.pending.clear()
    if stages and trips.count(",") < 2:
        stages = f", step=1{stages}"
    loop.index = w.book.name("i")
    w.emit(f"for {loop.index} in tl.range({trips}{stages}):")
    w.loops += 1
    with w.block():
        for _ in range(w.choose((1, 1, 2))):
            loop.step()
        if w.one_in(6):
            save(w, loop.totals[0], Kind(loop.dtype, (loop.m, loop.n)))
        if w.one_in(6):
            w.emit(f"if {w.condition(1)}:")
            w.pending.clear()
            w.emit(f"    {w.choose(('break', 'continue'))}")
            w.emit(f"{loop.totals[-1]} += 1")
    w.loops -= 1
    if loop.m * loop.n > w.book.largest:  # than which no stored tile is larger
        _define_sums(loop)
    return True


def _loop_of(w: Writer) -> _Loop:
    """A loop of types and extents that GPUs take."""
    operands, dtype = w.choose(
        ((FP16, FP32), (FP32, FP32), (I8, I32), (BF16, FP32), (FP64, FP64), (FP16, FP32))
    )
    m, n, k = w.choose((8, 16, 32)), w.choose((16, 16, 32)), w.choose((16, 16, 32))
    if w.one_in(5):
        mark(w, "products: large")
        m, n, k = w.choose((64, 128)), w.choose((32, 64)), w.choose((32, 64))
    elif w.is_uneven and w.one_in(3):
        m, n, k = w.choose((8, 12, 17)), w.choose((16, 20, 24)), w.choose((17, 24, 40))
    k = max(k, 32) if operands is I8 else k
    return _Loop(w, m, n, k, operands, dtype, [], "", {})


def _define_operands(loop: _Loop) -> None:
    """Accumulators, and maybe operands, before the loop."""
    w, m, n, t = loop.w, loop.m, loop.n, tl(loop.dtype)
    for rows, columns in ((m, loop.k), (loop.k, n)):
        if w.one_in(2):
            name = w.book.name("h")
            w.emit(f"{name} = {loop.operand(rows, columns)}")
            loop.fixed[rows, columns] = name
    for _ in range(w.choose((1, 1, 2, 2, 3))):
        places = f"tl.arange(0, {m})[:, None] + tl.arange(0, {n})[None, :]"
        first = w.choose((f"tl.zeros(({m}, {n}), {t})", f"(({places}) & 3).to({t})"))
        small = m * n <= w.book.largest
        # Other productions draw no values of larger shapes.
        name = w.define(Kind(loop.dtype, (m, n))) if small else w.book.name("h")
        w.emit(f"{name} = {first}")
        loop.totals.append(name)


def _define_sums(loop: _Loop) -> None:
    """Weighted sums along both axes of each accumulator."""
    w, m, n = loop.w, loop.m, loop.n
    rows, columns = f"tl.arange(0, {m})[:, None]", f"tl.arange(0, {n})[None, :]"
    for total in loop.totals:
        for axis, (weight, extent) in enumerate(((rows, n), (columns, m))):
            name = w.define(Kind(loop.dtype, (extent,)))
            w.emit(f"{name} = tl.sum({total} * ({weight} % 3), {axis}).to({tl(loop.dtype)})")
