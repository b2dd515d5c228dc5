"""A random computation on the rows of matrices, apart from how a kernel is written for it.

A computation consists of passes over the columns of each row. A pass loads elements, computes,
updates values that each row has, and stores. `kernel.py` writes kernels for it, which differ in
everything that must not matter.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tests.fuzz.forms.expressions import Expression, Expressions, applied, cast, name
from tests.fuzz.programs.kinds import ALL, FLOATS, INTEGERS
from tests.ir_values import random_array
from tilewright.ir.types import BF16, FP16, FP32, FP64, I1, I8, I32, I64, U32, DType, Tile

GUARD = 16  # elements around an array that no kernel may change
WHOLE = (*INTEGERS, FP16, FP32, FP64)
OPERANDS = (FP16, FP16, BF16, FP32, I8)
WIDTHS = (5, 8, 16, 16, 24, 32, 64)


@dataclass
class Matrix:
    """An array in memory.

    Attributes:
        strides: of rows and columns; 0 for an axis that it does not have.
        array: the elements that a kernel may access.
        columns: how many, if other than those of the computation.
    """

    name: str
    dtype: DType
    strides: tuple[int, int]
    array: np.ndarray
    columns: int = 0


@dataclass(frozen=True)
class Load:
    """Elements under a name.

    Attributes:
        column: which column, as an expression of `col`; the element itself if empty.
        again: whether the kernel stored the matrix in an earlier pass.
    """

    to: str
    matrix: Matrix
    column: str = ""
    again: bool = False


@dataclass(frozen=True)
class Let:
    to: str
    value: Expression


@dataclass(frozen=True)
class Store:
    """An element to each column, or to the one that is as far from the other end."""

    matrix: Matrix
    value: Expression
    reversed: bool = False
    where: Expression | None = None


@dataclass(frozen=True)
class Reduction:
    """An update of a value of the row.

    Attributes:
        kind: "sum", "xor", "max", "min", "or", "and", "argmax", "argmin", "first".
        to: the name of the value; of the place of the extremum with "_at" behind.
    """

    kind: str
    to: str
    value: Expression


@dataclass(frozen=True)
class Scan:
    """A prefix combination along the row: of "sum", "max" or "linear" (``x[i] * f + y[i]``)."""

    kind: str
    to: str
    value: Expression


@dataclass(frozen=True)
class Atomic:
    """An atomic operation on a table, at a place computed from the element."""

    kind: str
    matrix: Matrix
    place: Expression
    value: Expression
    where: Expression | None


@dataclass(frozen=True)
class Inner:
    """Elements that are products: of a row of one matrix, and a column's row of another."""

    to: str
    left: Matrix
    right: Matrix


@dataclass(frozen=True)
class Product:
    """The product of a row's elements and a matrix, of which each column has a row.

    Attributes:
        to: the name of the product within `result`, which is stored.
    """

    to: str
    value: Expression
    right: Matrix
    into: Matrix
    result: Expression


def sum_type(dtype: DType) -> DType:
    """The type of a product of matrices."""
    return {I8: I32, FP64: FP64}.get(dtype, FP32)


Statement = Load | Let | Store | Reduction | Scan | Atomic | Inner | Product


@dataclass
class Pass:
    """Statements for each element of a row, and then for the row.

    Attributes:
        after: new values of the row's values, by their names.
        repeat: how often they are computed; more than once by a loop.
    """

    statements: list[Statement] = field(default_factory=list[Statement])
    after: list[Let] = field(default_factory=list[Let])
    repeat: int = 1


@dataclass
class Computation:
    """What kernels are written for.

    Attributes:
        sizes: the integers M (rows), N (columns) and K.
        states: the values of a row, with their types and initial values.
        of_rows: matrices of one element a row, each with the value that it gets.
    """

    seed: int
    sizes: dict[str, int]
    matrices: list[Matrix] = field(default_factory=list[Matrix])
    passes: list[Pass] = field(default_factory=list[Pass])
    states: dict[str, tuple[DType, Any]] = field(default_factory=dict[str, tuple[DType, Any]])
    of_rows: list[tuple[Matrix, Expression]] = field(
        default_factory=list[tuple[Matrix, Expression]]
    )

    @property
    def is_elementwise(self) -> bool:
        """Whether no element depends on others, but those that are loaded."""
        alone = not self.states and not self.of_rows and len(self.passes) == 1
        return alone and not self.has_products

    @property
    def has_products(self) -> bool:
        return any(isinstance(s, Inner | Product) for p in self.passes for s in p.statements)

    def arrays(self) -> list[np.ndarray]:
        """Copies of the arrays with what is around them."""
        return [m.array.copy() for m in self.matrices]


class Draw:
    """Draws a computation."""

    def __init__(self, seed: int) -> None:
        rng = self.rng = random.Random(seed)
        self.numbers = np.random.default_rng(seed)
        extents = (1, 2, 3, 5, 7, 8, 13, 16, 17, 24, 31, 32, 33, 48, 64, 65, 96, 100, 128, 130, 160)
        sizes = {
            "M": rng.choice((1, 2, 3, 4, 5, 8, 9, 16)),
            "N": rng.choice(extents),
            "K": rng.randint(1, 20),
        }
        self.made = Computation(seed, sizes)
        self.rows = Expressions(rng)
        self.rows.leaves += [name("row", I32, "m"), name("seed", I32), name("scale", FP32)]
        self.elements = Expressions(rng)
        self.elements.leaves += [name("row", I32, "m"), name("col", I32, "n"), name("seed", I32)]
        self.count = 0

    def new(self, letter: str) -> str:
        self.count += 1
        return f"{letter}{self.count}"

    def computation(self) -> Computation:
        rng = self.rng
        for _ in range(rng.randint(1, 3)):
            self.matrix("x", rng.choice(ALL), rng.choice(("mn", "mn", "mn", "n", "m")))
        elementwise = rng.random() < 0.35
        for _ in range(1 if elementwise else rng.randint(1, 3)):
            self.one_pass(elementwise)
        if not elementwise:
            for _ in range(rng.randint(0, 2)):
                dtype = rng.choice(ALL)
                self.made.of_rows.append((self.matrix("r", dtype, "m"), self.rows.of(dtype)))
        return self.made

    # -- matrices ---------------------------------------------------------------------------------

    def matrix(self, letter: str, dtype: DType, axes: str, length: int = 0) -> Matrix:
        """A matrix of all rows and columns, or an array along one of them, or of a length."""
        rng, rows, columns = self.rng, self.made.sizes["M"], self.made.sizes["N"]
        strides = (0, 0)
        if length:
            strides = (0, 1)
        elif axes == "mn":
            padded = columns + rng.choice((0, 0, 0, 1, 16 - columns % 16, 5))
            strides = rng.choice(
                ((padded, 1), (padded, 1), (padded, 1), (1, rows), (2 * padded, 2))
            )
        elif axes == "m":
            strides = (rng.choice((1, 1, 3)), 0)
        else:
            strides = (0, 1)
        last = (rows - 1) * strides[0] + ((length or columns) - 1) * strides[1]
        content = random_array(Tile((last + 1,), dtype), self.numbers)
        if dtype.is_int() and not dtype.is_bool() and rng.random() < 0.5:
            content = self.numbers.integers(0, 12, last + 1).astype(content.dtype)
        found = Matrix(self.new(letter), dtype, strides, content)
        self.made.matrices.append(found)
        return found

    def _inputs(self) -> list[Matrix]:
        return [m for m in self.made.matrices if m.name[0] == "x"]

    # -- a pass -----------------------------------------------------------------------------------

    def one_pass(self, elementwise: bool) -> None:
        rng, made = self.rng, Pass()
        stored = [s.matrix for p in self.made.passes for s in p.statements if isinstance(s, Store)]
        for _ in range(rng.randint(1, 3)):
            again = bool(stored) and rng.random() < 0.4
            made.statements.append(
                self._load(rng.choice(stored if again else self._inputs()), again)
            )
        if not elementwise and rng.random() < 0.2:
            made.statements.append(self._inner())
        for _ in range(rng.randint(0, 2)):
            self._let(made)
        if not elementwise and rng.random() < 0.3:
            made.statements.append(self._product())
        draws = [self._store, self._store, self._atomic]
        draws += [] if elementwise else [self._reduction, self._reduction, self._scan]
        for _ in range(rng.randint(1, 3)):
            made.statements.append(rng.choice(draws)())
        if not any(isinstance(s, Store | Atomic | Reduction | Product) for s in made.statements):
            made.statements.append(self._store())
        # Elements of a block are gone after it.
        self.elements.leaves = [x for x in self.elements.leaves if x.text[0] != "v"]
        if not elementwise:
            self._after(made)
        self.made.passes.append(made)

    def _load(self, matrix: Matrix, again: bool) -> Load:
        """An element, a neighbour, or one that is computed; only the element itself of what the
        kernel stores."""
        column = ""
        if matrix.strides[1] and not again and self.rng.random() < 0.4:
            column = self.rng.choice((
                "col + 1", "col - 1", "col - 3", "N - 1 - col", "(col * 3 + 1) % N", "col // 2",
                "(col + K) % N", "col ^ 1", "(row + col) % N", "(row * N + col) // 3 % N",
                "col & -4",
            ))  # fmt: skip
        to = self.new("v")
        axes = (
            "mn" if matrix.strides[0] and matrix.strides[1] else "n" if matrix.strides[1] else "m"
        )
        axes = "mn" if "row" in column else axes
        self.elements.leaves.append(name(to, matrix.dtype, axes))
        return Load(to, matrix, column, again)

    def _let(self, made: Pass) -> None:
        value = self.elements.of(self.rng.choice(ALL))
        made.statements.append(Let(self.new("v"), value))
        self.elements.leaves.append(name(made.statements[-1].to, value.dtype, value.axes))  # pyright: ignore

    def _condition(self) -> Expression | None:
        return self.elements.of(I1, 2) if self.rng.random() < 0.3 else None

    def _store(self) -> Store:
        dtype = self.rng.choice(ALL)
        matrix = self.matrix("y", dtype, "mn")
        value = self.elements.of(dtype)
        return Store(matrix, value, self.rng.random() < 0.15, self._condition())

    def _reduction(self) -> Reduction:
        kind = self.rng.choice(
            ("sum", "sum", "xor", "max", "min", "or", "and", "argmax", "argmin", "first")
        )
        to = self.new("s")
        dtype = self.rng.choice((I32, I64, U32) if kind in ("sum", "xor", "or", "and") else WHOLE)
        dtype = I1 if kind == "first" else dtype
        value = self._whole(dtype)
        states = self.made.states
        if kind == "first":
            states[to] = (I32, "2147483647")
        else:
            states[to] = (dtype, start_of(kind, dtype))
        if kind.startswith("arg"):
            states[f"{to}_at"] = (I32, "2147483647")
        return Reduction(kind, to, value)

    def _whole(self, dtype: DType) -> Expression:
        """Of floats whole numbers, whose extrema are exact and have one zero."""
        return self._small(dtype) if dtype in FLOATS else self.elements.of(dtype)

    def _small(self, dtype: DType) -> Expression:
        """Whole numbers from -7 to 8."""
        x = applied("(({} & 15) - 7)", (self.elements.of(I32),), I32)
        return cast(x, dtype)

    def _factor(self, dtype: DType, rows: int, columns: int) -> Matrix:
        """A matrix of small whole numbers."""
        padded = columns + self.rng.choice((0, 0, 3, 16 - columns % 16))
        strides = self.rng.choice(((padded, 1), (padded, 1), (1, rows)))
        last = (rows - 1) * strides[0] + (columns - 1) * strides[1]
        content = self.numbers.integers(-3, 4, last + 1)
        found = Matrix(self.new("w"), dtype, strides, content.astype(dtype.numpy), columns)
        self.made.matrices.append(found)
        return found

    def _inner(self) -> Inner:
        rng, sizes, to = self.rng, self.made.sizes, self.new("v")
        dtype, columns = rng.choice(OPERANDS), rng.choice(WIDTHS)
        made = Inner(to, self._factor(dtype, sizes["M"], columns),
                     self._factor(dtype, sizes["N"], columns))  # fmt: skip
        self.elements.leaves.append(name(to, sum_type(dtype), "mn"))
        return made

    def _product(self) -> Product:
        rng, to = self.rng, self.new("p")
        dtype, columns = rng.choice(OPERANDS), rng.choice(WIDTHS)
        right = self._factor(dtype, self.made.sizes["N"], columns)
        into = self._factor(rng.choice(ALL), self.made.sizes["M"], columns)
        results = Expressions(rng)
        results.leaves = [*self.rows.leaves, *[name(to, sum_type(dtype), "mn")] * 4]
        return Product(to, self._small(dtype), right, into, results.of(into.dtype, 2))

    def _scan(self) -> Scan:
        kind = self.rng.choice(("sum", "max", "linear"))
        dtype = self.rng.choice((I32, I64, U32))
        to, value = self.new("v"), self.elements.of(dtype)
        self.made.states[f"{to}_carry"] = (
            dtype,
            start_of("max" if kind == "max" else "sum", dtype),
        )
        self.elements.leaves.append(name(to, dtype, "mn"))
        return Scan(kind, to, value)

    def _atomic(self) -> Atomic:
        """On a table of integers, whose result does not depend on the order."""
        dtype = self.rng.choice((I32, U32, I64))
        kind = self.rng.choice(("add", "max", "min", "and", "or", "xor"))
        length = self.rng.choice((1, 7, 32))
        matrix = self.matrix("t", dtype, "", length)
        index = self.elements.of(self.rng.choice((I32, U32)))
        place = applied(f"({{}} % {length})", (cast(index, U32),), U32)
        return Atomic(kind, matrix, place, self.elements.of(dtype), self._condition())

    def _after(self, made: Pass) -> None:
        """Values of the row, from the reductions of the pass."""
        rng = self.rng
        for s in made.statements:
            if isinstance(s, Reduction):
                for to in (s.to, f"{s.to}_at"):
                    if to in self.made.states:
                        leaf = name(to, self.made.states[to][0], "m")
                        self.rows.leaves.append(leaf)
                        self.elements.leaves.append(leaf)
        if rng.random() < 0.5:
            dtype = rng.choice((*INTEGERS, FP32, FP64, FP16))
            to = self.new("s")
            self.made.states[to] = (dtype, "0")
            leaf = name(to, dtype, "m")
            self.rows.leaves.append(leaf)
            made.repeat = rng.choice((1, 1, 3))
            made.after.append(Let(to, cast(self.rows.of(dtype, 3), dtype)))
            self.elements.leaves.append(leaf)


def start_of(kind: str, dtype: DType) -> str:
    """The neutral element of a reduction."""
    if kind in ("sum", "xor", "or"):
        return "0"
    if kind == "and":
        return "-1" if dtype.is_int_signed() else str(dtype.get_int_max_value())
    if dtype.is_floating():
        return "-1000.0" if kind.endswith("max") else "1000.0"
    return str(dtype.get_int_min_value() if kind.endswith("max") else dtype.get_int_max_value())


def random_computation(seed: int) -> Computation:
    return Draw(seed).computation()
