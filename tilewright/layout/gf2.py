"""Vectors and matrices over GF(2), the field of two elements, with ints as vectors.

Bit i of an int is coordinate i of the vector, and `^` is addition. A matrix is the sequence of its
columns, so that `columns[i]` is the image of the unit vector `1 << i`. Spaces have at most a few
dozen dimensions, so that a vector is one machine word, and a step of elimination one xor.

    >>> apply((0b01, 0b11), 0b10)  # column 1
    3
    >>> rank((0b011, 0b110, 0b101))  # the third is the sum of the others
    2
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache


def bits(mask: int) -> list[int]:
    """The positions of the ones of `mask`, lowest first: `bits(0b1010) == [1, 3]`."""
    positions: list[int] = []
    while mask:
        low = mask & -mask
        positions.append(low.bit_length() - 1)
        mask ^= low
    return positions


def units(count: int, start: int = 0) -> list[int]:
    """The unit vectors `1 << start`, `1 << (start + 1)`, …, `count` of them."""
    return [1 << i for i in range(start, start + count)]


def apply(columns: Sequence[int], vector: int) -> int:
    """The product of a matrix and a vector: the sum of the columns selected by its bits."""
    result = 0
    while vector:
        low = vector & -vector
        result ^= columns[low.bit_length() - 1]
        vector ^= low
    return result


def multiply(outer: Sequence[int], inner: Sequence[int]) -> tuple[int, ...]:
    """The matrix of `x -> outer(inner(x))`."""
    return tuple(apply(outer, column) for column in inner)


def transpose(columns: Sequence[int], rows: int) -> tuple[int, ...]:
    """The rows of a matrix as ints: bit i of result j is bit j of column i."""
    return tuple(
        sum((column >> j & 1) << i for i, column in enumerate(columns)) for j in range(rows)
    )


class Span:
    """The span of vectors that are added incrementally, with the combination that yields each
    member.

    Vectors are numbered in the order of their addition. A vector that depends linearly on earlier
    ones is recorded in `kernel`, as the mask of the numbers of vectors that sum to zero.
    `independent` is the mask of the numbers of the others.
    """

    __slots__ = ("_count", "_leading", "_pivots", "independent", "kernel")

    def __init__(self, vectors: Iterable[int] = ()) -> None:
        # Leading bit -> (vector, mask of the numbers of the vectors that sum to it).
        self._pivots: dict[int, tuple[int, int]] = {}
        self._leading = 0
        self._count = 0
        self.independent = 0
        self.kernel: list[int] = []
        for vector in vectors:
            self.add(vector)

    def __len__(self) -> int:
        """The dimension."""
        return len(self._pivots)

    def __contains__(self, vector: int) -> bool:
        return self._reduce(vector)[0] == 0

    def _reduce(self, vector: int) -> tuple[int, int]:
        """The residue of `vector` modulo the space, and the mask of the vectors subtracted."""
        used = 0
        # From the highest pivot downwards: a step may set lower bits, never higher ones.
        while hit := vector & self._leading:
            row, combination = self._pivots[hit.bit_length() - 1]
            vector ^= row
            used ^= combination
        return vector, used

    def add(self, vector: int) -> bool:
        """Add a vector. Returns whether the dimension increased."""
        rest, used = self._reduce(vector)
        number = 1 << self._count
        self._count += 1
        if not rest:
            self.kernel.append(used | number)
            return False
        bit = rest.bit_length() - 1
        self._pivots[bit] = (rest, used | number)
        self._leading |= 1 << bit
        self.independent |= number
        return True

    def solve(self, vector: int) -> int | None:
        """The mask of the numbers of added vectors that sum to `vector`; None if there is none.

        The solution is the smallest mask: it contains only vectors that do not depend on earlier
        ones, since each of the others is the highest bit of a vector of the kernel.
        """
        rest, used = self._reduce(vector)
        return None if rest else used

    def reduce(self, vector: int) -> int:
        """A representative of `vector` modulo the space: equal for equal cosets, and linear."""
        return self._reduce(vector)[0]

    def basis(self) -> tuple[int, ...]:
        """A basis in echelon form: the highest bits differ, ascending."""
        return tuple(self._pivots[bit][0] for bit in sorted(self._pivots))


@lru_cache(1024)
def independent(vectors: tuple[int, ...]) -> int:
    """`Span.independent` of these vectors."""
    return Span(vectors).independent


def rank(vectors: Iterable[int]) -> int:
    """The dimension of the span."""
    return len(Span(vectors))


def echelon(vectors: Iterable[int]) -> tuple[int, ...]:
    """The reduced echelon basis of the span: highest bits ascending, each in one basis vector only.

    Two lists span the same space if and only if their echelon forms are equal.
    """
    reduced: list[int] = []
    for vector in Span(vectors).basis():
        for low in reduced:
            if vector >> (low.bit_length() - 1) & 1:
                vector ^= low
        reduced.append(vector)
    # Vectors are processed in ascending order, so those subtracted are already reduced.
    return tuple(reduced)


def solve(columns: Sequence[int], target: int) -> int | None:
    """The smallest x with `apply(columns, x) == target`, or None."""
    return Span(columns).solve(target)


def solve_all(columns: Sequence[int], targets: Iterable[int]) -> tuple[int, ...] | None:
    """The smallest solution for each target, or None if one has none."""
    span = Span(columns)
    solutions: list[int] = []
    for target in targets:
        solution = span.solve(target)
        if solution is None:
            return None
        solutions.append(solution)
    return tuple(solutions)


def kernel(columns: Sequence[int]) -> tuple[int, ...]:
    """A basis of the x with `apply(columns, x) == 0`.

    Each vector's highest bit is a column that depends on the ones before it.
    """
    return tuple(Span(columns).kernel)


def inverse(columns: Sequence[int]) -> tuple[int, ...] | None:
    """The inverse of a square matrix of `len(columns)` rows, or None if it has none."""
    return solve_all(columns, units(len(columns)))


def extend(vectors: Iterable[int], candidates: Iterable[int]) -> tuple[int, ...]:
    """The candidates that are linearly independent of `vectors` and of the candidates before
    them."""
    span = Span(vectors)
    return tuple(candidate for candidate in candidates if span.add(candidate))


def complement(vectors: Iterable[int], dimension: int) -> tuple[int, ...]:
    """Unit vectors that, with `vectors`, span the whole space."""
    return extend(vectors, units(dimension))


def intersection(first: Sequence[int], second: Sequence[int]) -> tuple[int, ...]:
    """A basis of the vectors that lie in both spans."""
    left = extend((), first)
    right = extend((), second)
    # A sum of left vectors that equals a sum of right vectors is a dependency of their union.
    mask = (1 << len(left)) - 1
    return tuple(apply(left, mixed & mask) for mixed in kernel((*left, *right)))
