"""Linear layouts: which element of a tile each register of each lane holds.

What a layout is
----------------
A GPU holds a tile in registers: warp w, lane l, register r holds some element (i, j). A layout is
the map (register, lane, warp, block) -> (dim0, dim1, …). All sizes are powers of two, so that each
index is a string of bits, and the maps that occur in practice are linear over GF(2): the element of
a xor of indices is the xor of the elements. Such a map is given by the images of the single bits,
its *bases*, and queries about a layout (which thread holds an element, whether two threads hold the
same one, how to convert one layout to another) are linear algebra on a few ints.

A 4x4 tile on 4 lanes with 4 registers each. Every lane holds a 2x2 square:

    register bit 0 -> (0, 1)        l0 l0 l1 l1      r0 r1 r0 r1
    register bit 1 -> (1, 0)        l0 l0 l1 l1      r2 r3 r2 r3
    lane bit 0     -> (0, 2)        l2 l2 l3 l3      r0 r1 r0 r1
    lane bit 1     -> (2, 0)        l2 l2 l3 l3      r2 r3 r2 r3

Lane 3, register 1 sets lane bits 0 and 1 and register bit 0: (0,2) ^ (2,0) ^ (0,1) = (2, 3).

    >>> square = LinearLayout.from_bases(
    ...     {"register": [(0, 1), (1, 0)], "lane": [(0, 2), (2, 0)]}, {"dim0": 4, "dim1": 4}
    ... )
    >>> square.apply({"register": 1, "lane": 3})
    {'dim0': 2, 'dim1': 3}
    >>> print(square)
    register[0,1 1,0] lane[0,2 2,0] -> dim0:4 dim1:4

A layout of shared memory is the same kind of map, from an offset (in elements) to the element that
is stored there. A *swizzle* is a basis with more than one nonzero coordinate. Row-major 4x4 has the
bases (0,1) (0,2) (1,0) (2,0). If the two row bits also affect the column, the elements of one
column are in four different columns of memory, that is, in different banks:

    offset bit 0 -> (0, 1)          memory row 0:   0,0  0,1  0,2  0,3
    offset bit 1 -> (0, 2)          memory row 1:   1,1  1,0  1,3  1,2
    offset bit 2 -> (1, 1)          memory row 2:   2,2  2,3  2,0  2,1
    offset bit 3 -> (2, 2)          memory row 3:   3,3  3,2  3,1  3,0

*Broadcasting* is a basis of zero: lanes that differ only in that bit hold the same element. A
layout of a 4-element tile on 32 lanes has three lane bases (0). The inverses below map an element
to the lowest index that holds it.

Names, sizes, significance
--------------------------
Inputs and outputs are named dimensions. Each side also has a *flat* index, one int of all its bits.
The order of bits within it follows from the names alone, lowest first: register, lane, warp, block,
offset, any other names by the alphabet, then …, dim2, dim1, dim0. So tiles are flat in row-major
order, with the last dimension the fastest, and registers are faster than lanes. Reshaping a tile
changes no flat index, and two layouts are equal if and only if they are the same map.

A name that a layout does not have is a dimension of size 1, in all queries.

The idea is from Zhou et al., "Linear Layouts: Robust Code Generation of Efficient Tensor
Computation Using F2", 2025.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple, NoReturn

from tilewright.base.record import record
from tilewright.layout import gf2

REGISTER, LANE, WARP, BLOCK, OFFSET = "register", "lane", "warp", "block", "offset"
HARDWARE = (REGISTER, LANE, WARP, BLOCK)


class Dim(NamedTuple):
    """One named dimension and its number of bits: the size is `1 << bits`."""

    name: str
    bits: int


class BitMove(NamedTuple):
    """One term of an address: `(index of in_name & mask)`, shifted left by `shift` (right if < 0).

    The coordinate `out_name` is the xor of its terms.
    """

    in_name: str
    out_name: str
    mask: int
    shift: int


def dim_name(index: int) -> str:
    """The name of dimension `index` of a tile: "dim0", "dim1", …"""
    return f"dim{index}"


@lru_cache(maxsize=256)
def significance(name: str) -> tuple[int, int, str]:
    """The sort key that puts dimensions in the order of their bits, lowest first."""
    if name in (*HARDWARE, OFFSET):
        return 0, (*HARDWARE, OFFSET).index(name), name
    digits = name.removeprefix("dim")
    if digits != name and digits.isdecimal():
        return 2, -int(digits), name
    return 1, 0, name


def log2(size: int) -> int:
    """The exponent of a power of two; ValueError for any other number."""
    if size < 1 or size & (size - 1):
        raise ValueError(f"a size in a layout must be a power of two, not {size}")
    return size.bit_length() - 1


def _sorted_dims(sizes: Mapping[str, int]) -> tuple[Dim, ...]:
    return tuple(Dim(name, log2(sizes[name])) for name in sorted(sizes, key=significance))


def _total(dims: Iterable[Dim]) -> int:
    return sum(dim.bits for dim in dims)


def _starts(dims: Iterable[Dim]) -> dict[str, int]:
    """The position of the lowest bit of each dimension in the flat index."""
    starts: dict[str, int] = {}
    position = 0
    for name, count in dims:
        starts[name] = position
        position += count
    return starts


def _sizes_text(dims: Iterable[Dim]) -> str:
    """The text form of dimensions: hardware from register on, tile dimensions from dim0 on."""
    dims = sorted(dims, key=lambda d: (significance(d.name)[0], abs(significance(d.name)[1])))
    return " ".join(f"{name}:{1 << count}" for name, count in dims)


@record
class LinearLayout:
    """A linear map over GF(2) between named index spaces; the module docstring is a tutorial.

    Attributes:
        ins: the input dimensions, from the least significant.
        outs: the output dimensions, from the least significant: dim0 is the last.
        columns: for each bit of the flat input, the flat output it contributes.
    """

    ins: tuple[Dim, ...]
    outs: tuple[Dim, ...]
    columns: tuple[int, ...]

    def __post_init__(self) -> None:
        if len(self.columns) != _total(self.ins):
            self._fail(f"{len(self.columns)} bases for {_total(self.ins)} bits of input")
        limit = 1 << _total(self.outs)
        for column in self.columns:
            if not 0 <= column < limit:
                self._fail(f"the flat basis {column} is outside of the output space")

    # --- Construction ---------------------------------------------------------------------------

    @staticmethod
    def from_columns(
        columns: Mapping[str, Sequence[int]], out_sizes: Mapping[str, int]
    ) -> LinearLayout:
        """The layout with these flat bases for each input, lowest bit first."""
        names = sorted(columns, key=significance)
        return LinearLayout(
            tuple(Dim(name, len(columns[name])) for name in names),
            _sorted_dims(out_sizes),
            tuple(column for name in names for column in columns[name]),
        )

    @staticmethod
    def from_bases(
        bases: Mapping[str, Sequence[Sequence[int]]], out_sizes: Mapping[str, int]
    ) -> LinearLayout:
        """The layout with these bases; a basis has a coordinate for each name in `out_sizes`, in
        that order."""
        starts = _starts(_sorted_dims(out_sizes))

        def flat(basis: Sequence[int]) -> int:
            if len(basis) != len(out_sizes):
                raise ValueError(f"basis {tuple(basis)} needs {len(out_sizes)} coordinates")
            for coordinate, (name, size) in zip(basis, out_sizes.items(), strict=True):
                if not 0 <= coordinate < size:
                    raise ValueError(f"basis {tuple(basis)} is outside of {name}:{size}")
            return sum(c << starts[name] for c, name in zip(basis, out_sizes, strict=True))

        columns = {name: [flat(basis) for basis in rows] for name, rows in bases.items()}
        return LinearLayout.from_columns(columns, out_sizes)

    @staticmethod
    def identity1d(size: int, in_name: str, out_name: str) -> LinearLayout:
        """i -> i, for i below `size`."""
        return LinearLayout.strided1d(size, 1, in_name, out_name)

    @staticmethod
    def strided1d(size: int, stride: int, in_name: str, out_name: str) -> LinearLayout:
        """i -> i * stride, for i below `size`; the output has `size * stride` elements."""
        columns = gf2.units(log2(size), log2(stride))
        return LinearLayout.from_columns({in_name: columns}, {out_name: size * stride})

    def __mul__(self, other: LinearLayout) -> LinearLayout:
        """The direct sum of two maps: in each dimension the bits of `other` are above those of
        `self`.

        `identity1d(4, "register", "dim0") * identity1d(8, "lane", "dim0")` gives each of 8 lanes
        four consecutive elements.
        """
        outs = _sum_dims(self.outs, other.outs)
        low = _embedding(self.outs, outs, {})
        high = _embedding(other.outs, outs, dict(self.outs))
        ins = _sum_dims(self.ins, other.ins)
        columns: list[int] = []
        for name, _ in ins:
            columns += gf2.multiply(low, self.bases(name))
            columns += gf2.multiply(high, other.bases(name))
        return LinearLayout(ins, outs, tuple(columns))

    # --- Properties -----------------------------------------------------------------------------

    def in_bits(self, name: str) -> int:
        """The number of bits of an input dimension."""
        return next((dim.bits for dim in self.ins if dim.name == name), 0)

    def out_bits(self, name: str) -> int:
        """The number of bits of an output dimension."""
        return next((dim.bits for dim in self.outs if dim.name == name), 0)

    def in_size(self, name: str) -> int:
        """The number of indices of an input dimension."""
        return 1 << self.in_bits(name)

    def out_size(self, name: str) -> int:
        """The number of indices of an output dimension."""
        return 1 << self.out_bits(name)

    @property
    def total_in_bits(self) -> int:
        """The number of bits of the flat input."""
        return len(self.columns)

    @property
    def total_out_bits(self) -> int:
        """The number of bits of the flat output."""
        return _total(self.outs)

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes of the outputs from dim0 on: the shape of the tile."""
        return tuple(1 << dim.bits for dim in reversed(self.outs))

    def bases(self, in_name: str) -> tuple[int, ...]:
        """The flat bases of one input dimension, lowest bit first."""
        start = 0
        for name, count in self.ins:
            if name == in_name:
                return self.columns[start : start + count]
            start += count
        return ()

    def moved_by(self, *in_names: str) -> int:
        """The bits of the flat output that depend on these inputs."""
        moved = 0
        for name in in_names:
            for column in self.bases(name):
                moved |= column
        return moved

    def coordinates(self, flat: int) -> tuple[int, ...]:
        """A flat output index as coordinates (dim0, dim1, …)."""
        result: list[int] = []
        for _, count in self.outs:
            result.append(flat & ((1 << count) - 1))
            flat >>= count
        return tuple(reversed(result))

    # --- The map --------------------------------------------------------------------------------

    def apply_flat(self, index: int) -> int:
        """The flat output of a flat input."""
        return gf2.apply(self.columns, index)

    def apply(self, indices: Mapping[str, int]) -> dict[str, int]:
        """The outputs for these inputs, by name; omitted inputs are 0."""
        starts = _starts(self.ins)
        flat = 0
        for name, index in indices.items():
            if not 0 <= index < self.in_size(name):
                self._fail(f"{name} = {index} is outside of the input space")
            flat |= index << starts.get(name, 0)
        return self.named(self.apply_flat(flat))

    def named(self, flat: int) -> dict[str, int]:
        """A flat output index as coordinates by name."""
        found = self.coordinates(flat)
        return {dim.name: c for dim, c in zip(reversed(self.outs), found, strict=True)}

    def compose(self, outer: LinearLayout) -> LinearLayout:
        """x -> outer(self(x)). The outputs of `self` must be the inputs of `outer`."""
        if self.outs != outer.ins:
            self._fail("the inner layout's outputs must be the outer one's inputs", outer)
        return LinearLayout(self.ins, outer.outs, gf2.multiply(outer.columns, self.columns))

    # --- Inverses -------------------------------------------------------------------------------

    def is_injective(self) -> bool:
        """Whether each element is held at most once."""
        return gf2.rank(self.columns) == self.total_in_bits

    def is_surjective(self) -> bool:
        """Whether every element is held."""
        return gf2.rank(self.columns) == self.total_out_bits

    def is_invertible(self) -> bool:
        """Whether every element is held exactly once."""
        return self.total_in_bits == self.total_out_bits and self.is_injective()

    def invert(self) -> LinearLayout:
        """The inverse map, from elements to indices.

        Raises:
            ValueError: the layout does not hold each element exactly once.
        """
        inverse = gf2.inverse(self.columns) if self.total_in_bits == self.total_out_bits else None
        if inverse is None:
            self._fail("only a layout that holds each element exactly once has an inverse")
        return LinearLayout(self.outs, self.ins, inverse)

    def pseudo_invert(self) -> LinearLayout:
        """The map from each element to the lowest index that holds it.

        `x.pseudo_invert().compose(x)` is the identity on the elements that `x` holds, and a
        projection to these on others.
        """
        missing = gf2.complement(self.columns, self.total_out_bits)
        every = gf2.Span((*self.columns, *missing))
        held = (1 << self.total_in_bits) - 1
        columns = tuple((every.solve(unit) or 0) & held for unit in gf2.units(self.total_out_bits))
        return LinearLayout(self.outs, self.ins, columns)

    def invert_and_compose(self, other: LinearLayout) -> LinearLayout:
        """For every input of `self`, the lowest input of `other` that holds the same element.

        For a conversion from `other` to `self`, it is the source of each element.

        Raises:
            ValueError: the tiles differ, or `other` does not hold an element of `self`.
        """
        if self.outs != other.outs:
            self._fail("both layouts must be of the same tile", other)
        columns = gf2.solve_all(other.columns, self.columns)
        if columns is None:
            self._fail("the first layout holds elements that the second does not", other)
        return LinearLayout(self.ins, other.ins, columns)

    # --- Parts ----------------------------------------------------------------------------------

    def select_ins(self, *in_names: str) -> LinearLayout:
        """The map restricted to these inputs; those that the layout lacks get size 1."""
        return self.from_columns(
            {name: self.bases(name) for name in in_names},
            {name: 1 << count for name, count in self.outs},
        )

    def flatten_outs(self, name: str) -> LinearLayout:
        """The same map to one output, the flat (row-major) index."""
        return LinearLayout(self.ins, (Dim(name, self.total_out_bits),), self.columns)

    # --- Queries for lowering -------------------------------------------------------------------

    def free_variables(self, in_name: str) -> int:
        """The bits of an input that only select duplicates.

        With all free bits of all inputs at 0, each element is held exactly once. Usually these are
        the bits with a zero basis; of several bits whose bases depend on each other, the highest
        is free.
        """
        needed = gf2.independent(self.columns) >> _starts(self.ins).get(in_name, 0)
        return ((1 << self.in_bits(in_name)) - 1) & ~needed

    def num_consecutive(self, order: Sequence[int] | None = None) -> int:
        """The number of consecutive elements along the fastest dimension in successive registers.

        This is the widest vector in which a thread can load or store them: in every thread,
        registers 0, 1, …, n-1 hold consecutive elements, the first at a multiple of n, and so do
        all later groups of n registers. `order` lists the dimensions from the fastest; by default,
        the last one is the fastest.
        """
        fastest = dim_name(order[0] if order else len(self.outs) - 1)
        start = _starts(self.outs).get(fastest, 0)
        registers = self.bases(REGISTER)
        others = self.columns[len(registers) :]
        best = 0
        for count in range(1, min(len(registers), self.out_bits(fastest)) + 1):
            low = ((1 << count) - 1) << start
            if registers[count - 1] != 1 << (start + count - 1):
                break
            if not any(column & low for column in (*registers[count:], *others)):
                best = count
        return 1 << best

    def rows(self) -> dict[str, tuple[int, ...]]:
        """For each bit of each output, the mask of the flat input bits whose xor it is."""
        flat_rows = gf2.transpose(self.columns, self.total_out_bits)
        starts = _starts(self.outs)
        return {
            name: flat_rows[starts[name] : starts[name] + count]
            for name, count in reversed(self.outs)
        }

    def bit_moves(self) -> tuple[BitMove, ...]:
        """The map as shifts and masks: each output is the xor of its terms.

        Bits of one input that are shifted by the same distance to the same output share a term, so
        that a contiguous lane -> dim1 costs one `and` and one shift. For inputs that are known at
        compile time (registers), `apply` is preferable.
        """
        terms: dict[tuple[str, str, int], int] = {}
        ins, outs = _starts(self.ins), _starts(self.outs)
        for in_name, in_count in self.ins:
            for i in range(in_count):
                column = self.columns[ins[in_name] + i]
                for out_name, out_count in self.outs:
                    image = column >> outs[out_name] & ((1 << out_count) - 1)
                    for j in gf2.bits(image):
                        key = in_name, out_name, j - i
                        terms[key] = terms.get(key, 0) | 1 << i
        return tuple(BitMove(i, o, mask, shift) for (i, o, shift), mask in terms.items())

    # --- Text -----------------------------------------------------------------------------------

    def signature(self) -> str:
        """The names and sizes: `register:4 lane:32 -> dim0:16 dim1:8`."""
        return f"{_sizes_text(self.ins)} -> {_sizes_text(self.outs)}"

    def __str__(self) -> str:
        """The text form: each input with its bases as coordinates. `text.parse` is the inverse."""
        parts = [
            f"{name}[{' '.join(','.join(map(str, self.coordinates(c))) for c in self.bases(name))}]"
            for name, _ in self.ins
        ]
        return f"{' '.join(parts)} -> {_sizes_text(self.outs)}"

    def _fail(self, problem: str, other: LinearLayout | None = None) -> NoReturn:
        layouts = f"({self.signature()})" + (f" and ({other.signature()})" if other else "")
        raise ValueError(f"{problem}: {layouts}")


def _sum_dims(low: tuple[Dim, ...], high: tuple[Dim, ...]) -> tuple[Dim, ...]:
    """The dimensions of a product: bits add up by name."""
    counts = dict(low)
    for name, count in high:
        counts[name] = counts.get(name, 0) + count
    return tuple(Dim(name, counts[name]) for name in sorted(counts, key=significance))


def _embedding(
    part: tuple[Dim, ...], whole: tuple[Dim, ...], above: Mapping[str, int]
) -> tuple[int, ...]:
    """The bit in the flat index of `whole` for each bit in that of `part`, with the bits of each
    dimension shifted by `above[name]`."""
    starts = _starts(whole)
    return tuple(
        1 << (starts[name] + above.get(name, 0) + i) for name, count in part for i in range(count)
    )
