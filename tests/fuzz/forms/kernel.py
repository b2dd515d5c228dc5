"""Writes kernels for a computation: each is another form of it, and leaves the same memory.

Forms differ in which program computes which rows, in how columns are split into blocks and looped
over, in what is known at compile time, in how memory is accessed, in how values of rows are
accumulated, and in detours that change no value.
"""

from __future__ import annotations

import random
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from tests.fuzz.forms import products
from tests.fuzz.forms.computation import (
    Atomic,
    Computation,
    Inner,
    Let,
    Load,
    Matrix,
    Pass,
    Product,
    Reduction,
    Scan,
    Statement,
    Store,
    start_of,
)
from tests.fuzz.forms.expressions import Expression, written
from tests.fuzz.programs.kinds import tl
from tests.gpu.programs import Program
from tilewright.conformance.text_kernels import kernel_from
from tilewright.ir.types import DType

LARGEST = 2**31 - 1
DETOURS = 0.08  # of expressions of whole tiles

HEAD = """
@jit
def add(a, b):
    return a + b

@jit
def exclusive(a, b):
    return a ^ b

@jit
def either(a, b):
    return a | b

@jit
def both(a, b):
    return a & b

@jit
def greater(a, b):
    return tl.maximum(a, b)

@jit
def smaller(a, b):
    return tl.minimum(a, b)

@jit
def linear(a, b, c, d):
    return a * c, b * c + d

@jit
def first_greatest(a, i, b, j):
    left = (a > b) | ((a == b) & (i < j))
    return tl.where(left, a, b), tl.where(left, i, j)

@jit
def first_smallest(a, i, b, j):
    left = (a < b) | ((a == b) & (i < j))
    if_left = tl.where(left, a, b)
    return (if_left, tl.where(left, i, j))

@jit
def itself(x, FLAG: tl.constexpr = True):
    if FLAG:
        return x, x
    else:
        return x

@jit
def second_of(pair):
    return pair[1]
"""

COMBINE = {
    "sum": ("({} + {})", "add", "tl.sum"),
    "xor": ("({} ^ {})", "exclusive", "tl.xor_sum"),
    "or": ("({} | {})", "either", "tl.reduce_or"),
    "and": ("({} & {})", "both", ""),
    "max": ("tl.maximum({}, {})", "greater", "tl.max"),
    "min": ("tl.minimum({}, {})", "smaller", "tl.min"),
    "first": ("tl.minimum({}, {})", "smaller", "tl.min"),
}


class Form:
    """One form of a computation.

    Attributes:
        rows: which rows a program computes: "program", "persistent", "block", "flat".
        block: rows and columns of a tile.
        known: the names of parameters that are known at compile time.
        reached: the choices that were made.
    """

    def __init__(self, made: Computation, seed: int) -> None:
        self.made = made
        self.rng = rng = random.Random((made.seed << 8) + seed)
        forms = ["program", "persistent", "block", "block"]
        self.rows = rng.choice(forms + ["flat", "flat", "grid"] * made.is_elementwise)
        rows, columns = (1, 2, 4, 8), (16, 16, 32, 64, 128, 24, 48)
        if made.has_products:  # GPUs have none of fewer columns
            rows, columns = (1, 8, 16, 16, 32, 64), (32, 32, 64, 128, 48)
        self.block = (rng.choice(rows), rng.choice(columns))
        names = [*made.sizes, *(f"{m.name}_{i}" for m in made.matrices for i in (0, 1))]
        share = rng.choice((0.0, 0.3, 1.0))
        self.known = {n for n in names if rng.random() < share}
        self.wide = rng.random() < 0.3
        self.extents: dict[str, int] = {}  # of tiles of products
        self.lines: list[str] = []
        self.indent = 1
        self.count = 0
        self.start = "start"  # the name of the first column of a block

    def new(self, letter: str) -> str:
        self.count += 1
        return f"{letter}_{self.count}"

    def emit(self, line: str) -> None:
        self.lines.append("    " * self.indent + line)

    @contextmanager
    def within(self, head: str) -> Generator[None]:
        self.emit(head)
        self.indent += 1
        yield
        self.indent -= 1

    # -- shapes -----------------------------------------------------------------------------------

    @property
    def is_2d(self) -> bool:
        return self.rows in ("block", "grid")

    @property
    def tile(self) -> str:
        return "[BM, BN]" if self.is_2d else "[BN]"

    @property
    def along(self) -> str:
        """Arguments of a reduction along the columns."""
        return "1, keep_dims=True" if self.is_2d else "0"

    @property
    def axis(self) -> int:
        return 1 if self.is_2d else 0

    def full(self, value: Any, dtype: DType) -> str:
        """A value for each row."""
        return f"tl.full({'[BM, 1]' if self.is_2d else '[]'}, {value}, {tl(dtype)})"

    def fills_tile(self, axes: str) -> bool:
        return axes == "mn" if self.is_2d else bool(axes) if self.rows == "flat" else "n" in axes

    # -- expressions ------------------------------------------------------------------------------

    def text(self, x: Expression) -> str:
        return written(x, self._wrapped)

    def _wrapped(self, text: str, x: Expression) -> str:
        """Maybe with a detour, which changes no value."""
        if self.rng.random() > DETOURS or x.dtype.is_fp8():
            return text
        if not self.fills_tile(x.axes):
            return self.rng.choice((f"itself({text})[0]", f"itself({text}, FLAG=False)"))
        columns = self.block[1]
        options = [
            "tl.split(tl.join({0}, {0}))[1]", f"tl.flip(tl.flip({{0}}, {self.axis}), {self.axis})",
            "itself({0})[1]", "second_of(itself({0}))", "tl.where(N > 0, {0}, {0})",
        ]  # fmt: skip
        if self.is_2d:
            options += ["tl.trans(tl.trans({0}))",
                        "tl.reshape(tl.reshape({0}, [BM * BN]), [BM, BN])"]  # fmt: skip
        else:
            pairs = "tl.reshape({0}, [BN // 2, 2])"
            options += [f"tl.interleave(*tl.split({pairs}))", f"tl.reshape({pairs}, [BN])",
                        f"tl.reshape(tl.trans({pairs}.T), [BN])"]  # fmt: skip
            if columns & (columns - 1) == 0:
                index = f"tl.arange(0, BN) ^ {self.rng.randrange(columns)}"
                options += [f"tl.gather(tl.gather({{0}}, {index}, 0), {index}, 0)"]
        return self.rng.choice(options).format(text)

    # -- addresses --------------------------------------------------------------------------------

    def address(self, matrix: Matrix, column: str = "col") -> str:
        to = ".to(tl.int64)" if self.wide else ""
        parts = [matrix.name]
        if matrix.strides[0]:
            parts.append(f"row{to} * {matrix.name}_0")
        if matrix.strides[1]:
            text = column if column == "col" else f"({column})"
            parts.append(f"{text}{to} * {matrix.name}_1")
        return " + ".join(parts)

    def inside(self, matrix: Matrix | None = None, column: str = "") -> str:
        """The mask of elements that exist."""
        if self.rows == "flat":
            known = ["inside"]
        elif matrix is not None and not matrix.strides[1]:
            known = ["(row < M)"] if self.is_2d else []
        elif matrix is not None and not matrix.strides[0] and "row" not in column:
            known = ["(col < N)"]
        else:
            known = ["inside"]
        if column:
            known += [f"(({column}) >= 0)", f"(({column}) < N)"]
        return " & ".join(known)

    def is_block(self, matrix: Matrix, column: str) -> bool:
        return (
            self.rows == "block" and not column and min(matrix.strides) > 0
            and not matrix.dtype.is_bool() and self.rng.random() < 0.4
        )  # fmt: skip

    def pointer(self, matrix: Matrix) -> str:
        """A block pointer."""
        strides = f"({matrix.name}_0, {matrix.name}_1)"
        return (f"tl.make_block_ptr({matrix.name}, (M, N), {strides}, "
                f"(first_row, {self.start}), "
                "(BM, BN), (1, 0))")  # fmt: skip

    # -- statements -------------------------------------------------------------------------------

    def statement(self, s: Statement) -> None:
        match s:
            case Load():
                self._load(s)
            case Let(to, value):
                self.emit(f"{to} = {self.text(value)}")
            case Store():
                self._store(s)
            case Reduction():
                self._reduce(s)
            case Scan():
                self._scan(s)
            case Atomic():
                self._atomic(s)
            case Inner():
                products.add_inner(self, s)
            case Product():
                products.add_product(self, s)

    def _load(self, s: Load) -> None:
        if self.is_block(s.matrix, s.column):
            self.emit(f'{s.to} = tl.load({self.pointer(s.matrix)}, boundary_check=(0, 1), '
                      'padding_option="zero")')  # fmt: skip
            return
        mask = self.inside(s.matrix, s.column)
        address = self.address(s.matrix, s.column or "col")
        if not mask:
            self.emit(f"{s.to} = tl.load({address})")
            return
        zero = "0" if not s.matrix.dtype.is_floating() else "0.0"
        other = zero if not s.matrix.dtype.is_fp8() else (
            f"tl.full([], 0.0, tl.float32).to({tl(s.matrix.dtype)})")  # fmt: skip
        self.emit(f"{s.to} = tl.load({address}, mask={mask}, other={other})")

    def _store(self, s: Store) -> None:
        value = self.text(s.value)
        if s.where is None and not s.reversed and self.is_block(s.matrix, ""):
            value = f"tl.broadcast_to({value}, [BM, BN])"
            self.emit(f"tl.store({self.pointer(s.matrix)}, {value}, boundary_check=(0, 1))")
            return
        column = "N - 1 - col" if s.reversed else "col"
        mask = "inside" if s.where is None else f"inside & {self.text(s.where)}"
        self.emit(f"tl.store({self.address(s.matrix, column)}, {value}, mask={mask})")

    def _atomic(self, s: Atomic) -> None:
        mask = "inside" if s.where is None else f"inside & {self.text(s.where)}"
        if self.rng.random() < 0.3:
            mask = f"({mask}) & (col >= 0)"
        place = f"{s.matrix.name} + {self.text(s.place)} + (col & 0) + (row & 0)"
        order = self.rng.choice(("", "", ', sem="relaxed"'))
        self.emit(f"tl.atomic_{s.kind}({place}, {self.text(s.value)}, mask={mask}{order})")

    def _masked(self, s: Reduction | Scan, dtype: DType) -> str:
        name = self.new("h")
        if s.kind == "first":
            self.emit(f"{name} = tl.where(inside & {self.text(s.value)}, col, {LARGEST})")
        else:
            kind = s.kind if s.kind != "linear" else "sum"
            self.emit(f"{name} = tl.where(inside, {self.text(s.value)}, "
                      f"{self.full(start_of(kind, dtype), dtype)})")  # fmt: skip
        return name

    def _reduce(self, s: Reduction) -> None:
        """Into the value of the row, or into a tile that is reduced after the loop."""
        dtype = self.made.states[s.to][0]
        x = self._masked(s, dtype)
        if s.kind.startswith("arg"):
            self._reduce_pair(s, x)
            return
        form = COMBINE[s.kind][0]
        if f"{s.to}_tile" in self.tiles:
            self.emit(f"{s.to}_tile = {form.format(f'{s.to}_tile', x)}.to({tl(dtype)})")
            return
        self.emit(f"{s.to} = {form.format(s.to, self._reduced(x, s.kind))}.to({tl(dtype)})")

    def _reduced(self, x: str, kind: str) -> str:
        _, function, named = COMBINE[kind]
        if named and self.rng.random() < 0.6:
            return f"{named}({x}, {self.along})"
        return f"tl.reduce({x}, {self.along.replace('1,', '1, ' + function + ',')})" if (
            self.is_2d) else f"tl.reduce({x}, 0, {function})"  # fmt: skip

    def _reduce_pair(self, s: Reduction, x: str) -> None:
        function = "first_greatest" if s.kind == "argmax" else "first_smallest"
        index, to = self.new("h"), s.to
        self.emit(f"{index} = tl.where(inside, col, {LARGEST})")
        if f"{to}_tile" in self.tiles:
            self.emit(f"{to}_tile, {to}_at_tile = "
                      f"{function}({to}_tile, {to}_at_tile, {x}, {index})")  # fmt: skip
            return
        keep = ", keep_dims=True" if self.is_2d else ""
        best, at = self.new("h"), self.new("h")
        match self.rng.randrange(3):
            case 0:
                self.emit(f"{best}, {at} = tl.reduce(({x}, {index}), {self.axis}, "
                          f"{function}{keep})")  # fmt: skip
            case 1:
                name = "max" if s.kind == "argmax" else "min"
                self.emit(f"{best} = tl.{name}({x}, {self.axis}{keep})")
                self.emit(f"{at} = {self.start} + tl.{s.kind}({x}, {self.axis}{keep})")
            case _:
                name = "max" if s.kind == "argmax" else "min"
                self.emit(f"{best}, {at} = tl.{name}({x}, {self.axis}, "
                          f"return_indices=True{keep})")  # fmt: skip
                self.emit(f"{at} += {self.start}")
        dtype = tl(self.made.states[to][0])
        self.emit(f"{to}, {to}_at = {function}({to}, {to}_at, {best}.to({dtype}), {at})")

    def _scan(self, s: Scan) -> None:
        carry = f"{s.to}_carry"
        dtype = self.made.states[carry][0]
        x = self._masked(s, dtype)
        if s.kind == "sum":
            scanned = f"tl.cumsum({x}, {self.axis})"
            if self.rng.random() < 0.4:
                scanned = f"tl.associative_scan({x}, {self.axis}, add)"
            self.emit(f"{s.to} = ({scanned} + {carry}).to({tl(dtype)})")
            self.emit(f"{carry} = ({carry} + tl.sum({x}, {self.along})).to({tl(dtype)})")
        elif s.kind == "max":
            scanned = f"tl.associative_scan({x}, {self.axis}, greater)"
            self.emit(f"{s.to} = tl.maximum({scanned}, {carry})")
            self.emit(f"{carry} = tl.maximum({carry}, tl.max({x}, {self.along}))")
        else:
            factor, product = self.new("h"), self.new("h")
            self.emit(f"{factor} = tl.where(inside, 3, 1).to({tl(dtype)})")
            self.emit(f"{product}, {s.to} = tl.associative_scan(({factor}, {x}), {self.axis}, "
                      "linear)")  # fmt: skip
            self.emit(f"{s.to} = {s.to} + {product} * {carry}")
            last = f"tl.where(col == {self.start} + BN - 1, {s.to}, 0)"
            self.emit(f"{carry} = tl.sum({last}, {self.along}).to({tl(dtype)})")

    # -- passes -----------------------------------------------------------------------------------

    def one_pass(self, p: Pass) -> None:
        rng = self.rng
        if any(isinstance(s, Load) and s.again for s in p.statements):
            self.emit("tl.debug_barrier()")
        ordered = any(isinstance(s, Scan) for s in p.statements)
        found = [s for s in p.statements if isinstance(s, Reduction)]
        self.tiles = {f"{s.to}_tile" for s in found if rng.random() < 0.35}
        for s in found:
            self._start_tile(s)
        for s in p.statements:
            if isinstance(s, Inner):
                products.start_inner(self, s)
            elif isinstance(s, Product):
                products.start_product(self, s)
        if self.rows in ("flat", "grid"):
            self._body(p)
        else:
            self._loop(p, ordered)
        for s in found:
            self._finish_tile(s)
        for s in p.statements:
            if isinstance(s, Product):
                products.finish_product(self, s)
        self._after(p)

    def _start_tile(self, s: Reduction) -> None:
        if f"{s.to}_tile" not in self.tiles:
            return
        dtype = self.made.states[s.to][0]
        value = LARGEST if s.kind == "first" else start_of(s.kind, dtype)
        self.emit(f"{s.to}_tile = tl.full({self.tile}, {value}, {tl(dtype)})")
        if s.kind.startswith("arg"):
            self.emit(f"{s.to}_at_tile = tl.full({self.tile}, {LARGEST}, tl.int32)")

    def _finish_tile(self, s: Reduction) -> None:
        to = s.to
        if f"{to}_tile" not in self.tiles:
            return
        if s.kind.startswith("arg"):
            function = "first_greatest" if s.kind == "argmax" else "first_smallest"
            keep = ", keep_dims=True" if self.is_2d else ""
            self.emit(f"{to}, {to}_at = tl.reduce(({to}_tile, {to}_at_tile), {self.axis}, "
                      f"{function}{keep})")  # fmt: skip
            return
        dtype = self.made.states[to][0]
        self.emit(f"{to} = {self._reduced(f'{to}_tile', s.kind)}.to({tl(dtype)})")

    def _loop(self, p: Pass, ordered: bool) -> None:
        """Over blocks of columns."""
        rng = self.rng
        kinds = ["range", "tl.range", "stages", "count", "while"]
        kinds += [] if ordered else ["down"]
        kinds += ["static"] * ("N" in self.known and self.made.sizes["N"] <= 4 * self.block[1])
        kinds += ["once"] * 2 * (self.made.sizes["N"] <= self.block[1])
        index, start = self.new("i"), self.new("start")
        self.start = start
        match rng.choice(kinds):
            case "once":
                self.emit(f"{start} = 0")
                self._body(p)
            case "while":
                self.emit(f"{start} = 0")
                with self.within(f"while {start} < N:"):
                    self._body(p)
                    self.emit(f"{start} += BN")
            case "count":
                with self.within(f"for {index} in range(tl.cdiv(N, BN)):"):
                    self.emit(f"{start} = {index} * BN")
                    self._body(p)
            case "down":
                with self.within(f"for {index} in range(tl.cdiv(N, BN) - 1, -1, -1):"):
                    self.emit(f"{start} = {index} * BN")
                    self._body(p)
            case "static":
                with self.within(f"for {start} in tl.static_range(0, N, BN):"):
                    self._body(p)
            case "stages":
                options = rng.choice(("num_stages=2", "num_stages=3", "loop_unroll_factor=2",
                                      "num_stages=1", "loop_unroll_factor=3"))  # fmt: skip
                with self.within(f"for {start} in tl.range(0, N, BN, {options}):"):
                    self._body(p)
            case kind:
                with self.within(f"for {start} in {kind}(0, N, BN):"):
                    self._body(p)

    def _body(self, p: Pass) -> None:
        if self.rows not in ("flat", "grid"):
            arange = "tl.arange(0, BN)[None, :]" if self.is_2d else "tl.arange(0, BN)"
            self.emit(f"col = {self.start} + {arange}")
            self.emit(f"inside = {'(row < M) & ' if self.is_2d else ''}(col < N)")
        for s in p.statements:
            self.statement(s)

    def _after(self, p: Pass) -> None:
        for let in p.after:
            text = self.text(let.value)
            if self.is_2d:
                text = f"tl.broadcast_to({text}, [BM, 1])"
            if p.repeat == 1:
                self.emit(f"{let.to} = {text}")
                continue
            match self.rng.randrange(3):
                case 0:
                    for _ in range(p.repeat):
                        self.emit(f"{let.to} = {text}")
                case 1:
                    self.emit(f"for _ in tl.static_range({p.repeat}):")
                    self.emit(f"    {let.to} = {text}")
                case _:
                    self.emit(f"for _ in range({p.repeat}):")
                    self.emit(f"    {let.to} = {text}")

    # -- the kernel -------------------------------------------------------------------------------

    def _rows(self) -> str:
        """Lines that say which rows a program computes; the head of a loop over them if any."""
        match self.rows:
            case "program":
                self.emit("row = tl.program_id(0)")
            case "persistent":
                options = self.rng.choice((
                    "range({})", "tl.range({})", "tl.range({}, flatten=True)",
                    "tl.range({}, num_stages=2)",
                ))  # fmt: skip
                bounds = "tl.program_id(0), M, tl.num_programs(0)"
                return f"for row in {options.format(bounds)}:"
            case "flat":
                self.emit("index = tl.program_id(0) * BN + tl.arange(0, BN)")
                self.emit("inside = index < M * N")
                self.emit(f"row = index // N{self.rng.choice(('', ' % M'))}")
                self.emit("col = index % N")
            case _:
                self.emit("first_row = tl.program_id(0) * BM")
                self.emit("row = first_row + tl.arange(0, BM)[:, None]")
                if self.rows == "grid":
                    self.emit("start = tl.program_id(1) * BN")
                    self.emit("col = start + tl.arange(0, BN)[None, :]")
                    self.emit("inside = (row < M) & (col < N)")
        return ""

    def body(self) -> None:
        for to, (dtype, value) in self.made.states.items():
            self.emit(f"{to} = {self.full(value, dtype)}")
        for p in self.made.passes:
            self.one_pass(p)
        for matrix, value in self.made.of_rows:
            mask = ", mask=row < M" if self.is_2d else ""
            self.emit(f"tl.store({self.address(matrix)}, {self.text(value)}{mask})")

    def params(self) -> dict[str, Any]:
        """The parameters and their arguments."""
        found: dict[str, Any] = {}
        for m in self.made.matrices:
            found[m.name] = m
            found[f"{m.name}_0"], found[f"{m.name}_1"] = m.strides
        numbers = {"seed": self.made.seed % 1000 + 2, "scale": 1.5}
        return {**found, **self.made.sizes, **numbers, "BM": self.block[0], "BN": self.block[1]}

    def source(self) -> str:
        head = self._rows()
        if head:
            with self.within(head):
                self.body()
        else:
            self.body()
        known = {*self.known, "BM", "BN"}
        params = [f"{n}: tl.constexpr" if n in known else n for n in self.params()]
        return "\n".join([HEAD, "@jit", f"def kernel({', '.join(params)}):", *self.lines])

    def grid(self) -> tuple[int, ...]:
        rows, columns = self.made.sizes["M"], self.made.sizes["N"]
        match self.rows:
            case "program":
                return (rows,)
            case "persistent":
                return (self.rng.randint(1, rows),)
            case "flat":
                return (-(-rows * columns // self.block[1]),)
            case "grid":
                return (-(-rows // self.block[0]), -(-columns // self.block[1]))
            case _:
                return (-(-rows // self.block[0]),)


def program_of(made: Computation, form: int, arrays: Sequence[np.ndarray]) -> tuple[str, Program]:
    """A form of a computation: its text, and a launch with these arrays."""
    chosen = Form(made, form)
    text = chosen.source()
    given = dict(zip((m.name for m in made.matrices), arrays, strict=True))
    values = {n: given.get(n, v) for n, v in chosen.params().items()}
    known = {*chosen.known, "BM", "BN"}
    constants = {n: v for n, v in values.items() if n in known}
    args = [np.float32(v) if n == "scale" else v for n, v in values.items() if n not in known]
    return text, Program(kernel_from(text), args, constants, chosen.grid())
