"""Block recovery: the block of memory that an access touches, as a base and, for each axis, a
begin, an extent, a stride and bounds; or the reason why the access is not a block.

    rows = tl.program_id(0) * 64 + tl.arange(0, 64)
    cols = k + tl.arange(0, 32)                            # `for k in range(0, K, 32)`
    tl.load(a + rows[:, None] * stride + cols[None, :], mask=rows[:, None] < M, other=0.0)

    base a
    axis 0: begin 64*program_id(0), extent 64, stride `stride`, index < M
    axis 1: begin 32*iteration,     extent 32, stride 1

An access is a block if its address is the base plus, for each axis, an index times a stride, and
the indices along each axis are consecutive. Its elements are those of the box

    index[d] = begin[d] + i[d],  0 <= i[d] < extent[d]

for which all `conditions` are true, each index is within the `bounds` of its axis, and the
`residual` predicates (a causal mask, for example) are true. The address of an element is

    base + offset + sum of stride[d] * index[d]            in elements

with `index % wrap` in place of the index if the axis has a `wrap`, and `other` in place of an index
that is not below `limit` if it has those. The first axes of a block are those of the tile, in its
order. They are followed by axes of extent 1, one for each product of an argument with an index
(`batch * stride_b`), so that a block may have any rank. Conditions on such an index are bounds of
its axis (`batch < batches`).

Begins, strides and bounds are polynomials over scalars: arguments, program ids, loaded values,
quotients, and the iteration numbers of loops. `axis.step(loop)` is the distance by which an
iteration advances the block. The distribution of an address over the begins of axes is a choice,
made in `block_begins.py`, such that bounds are launch-invariant where possible.

`assumed` lists signed integers of 32 bits that are assumed not to wrap (see `affine.py`); 64-bit
sums in masks are assumed not to wrap without being listed. A kernel that violates either accesses
memory outside its arrays.

Input: the tile IR after `compiler/pipeline.STEPS`, for any target; it is not modified. Every mask
is represented: conjuncts that are not bounds are conditions or residual. An address that is not
affine is rejected, with a `NoBlock.code`. Linear in the number of ops, as `affine.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

from tilewright.analysis.affine import AffineForms
from tilewright.analysis.affine_form import Affine, Piece
from tilewright.analysis.block_begins import split_start
from tilewright.analysis.mask_bounds import Conjunct, MaskBounds, bounds_of
from tilewright.analysis.polynomial import Iteration, Polynomial
from tilewright.base.diagnostics import Loc
from tilewright.base.record import record
from tilewright.ir.core import Function, Op, Value
from tilewright.ir.types import Pointer, element_of, is_float, shape_of
from tilewright.ops import arith, atomic, control, memory, shape
from tilewright.ops.view import View

Access = (
    memory.Load | memory.Store | atomic.AtomicRMW | atomic.AtomicCAS | atomic.AtomicLoad
    | atomic.AtomicStore | atomic.AtomicPoll
)  # fmt: skip


class Reason(Enum):
    """The reason for which an access is not a block."""

    POINTERS = "pointers"  # the pointers themselves come from memory, or from several arrays
    LOADED = "loaded"  # an index was loaded: a gather
    DIVIDED = "divided"  # a quotient, or a remainder that is not a wrap of one axis
    CHOSEN = "chosen"  # the result of `where`, `minimum` or `maximum`
    CARRIED = "carried"  # a loop-carried value without constant increments, or a branch's result
    FLOAT = "float"  # computed as a float
    COMPUTED = "computed"  # a product of two axes, a bitwise operation, or anything else


@record
class BlockAxis:
    """One axis of a block; see the module docstring.

    Attributes:
        begin: the index of the first element of the box.
        extent: the number of elements of the box along the axis.
        stride: the distance of adjacent indices, in elements; may be 0 or negative.
        lower: inclusive lower bounds of the index of accessed elements.
        upper: exclusive upper bounds of the index of accessed elements.
        wrap: the number modulo which (C's `%`) the index is taken, after the bounds.
        limit, other: an index that is not below `limit` is replaced by `other`, after the bounds.
        tile_axis: the axis of the tile; None for an additional axis of extent 1.
    """

    begin: Polynomial
    extent: int
    stride: Polynomial
    lower: tuple[Polynomial, ...] = ()
    upper: tuple[Polynomial, ...] = ()
    wrap: Polynomial | None = None
    limit: Polynomial | None = None
    other: Polynomial | None = None
    tile_axis: int | None = None

    @property
    def end(self) -> Polynomial | None:
        """The first index, from 0 on, that is replaced by another one; None where none is."""
        return self.limit if self.wrap is None else self.wrap

    def step(self, loop: control.For) -> Polynomial | None:
        """The difference of the begins of consecutive iterations; None if it is not constant."""
        return self.begin.coefficient(Iteration(loop))


@record
class Block:
    """The memory that an access touches; see the module docstring.

    Attributes:
        op: the access.
        base: a scalar pointer, usually an argument of the kernel.
        offset: the distance from `base` to index 0 of all axes, in elements; launch-invariant.
        axes: the axes of the tile, in its order, then additional ones of extent 1.
        conditions: i1 scalars, or uniform i1 tiles; nothing is accessed unless all are true.
        residual: the conjuncts of the mask that are neither bounds nor conditions.
        never: whether the mask is false for all elements.
        assumed: integers that are assumed to be computed without wrapping.
        read_signed: unsigned integers in masks that are assumed to be below half of their range, so
            that they equal signed integers of the same width.
    """

    op: Access
    base: Value
    offset: Polynomial
    axes: tuple[BlockAxis, ...]
    conditions: tuple[Value, ...] = ()
    residual: tuple[Conjunct, ...] = ()
    never: bool = False
    assumed: tuple[Value, ...] = ()
    read_signed: tuple[Value, ...] = ()

    @property
    def element_bytes(self) -> int:
        return memory.pointee_of(self.op.ptr.type).nbytes_in_memory

    @property
    def other(self) -> Value | None:
        """The value of elements that a load does not access; None for 0."""
        return self.op.other if isinstance(self.op, memory.Load) else None

    @property
    def is_rectangle(self) -> bool:
        """Whether bounds and conditions determine the accessed elements, and no index is
        replaced."""
        return not self.residual and all(axis.end is None for axis in self.axes)


@record
class NoBlock:
    """The reason for which an access is not a block.

    Attributes:
        op: the access.
        value: the part of its address that is not affine.
        code: the reason as a code.
        reason: the reason as text: "the index is loaded from memory".
    """

    op: Access
    value: Value
    code: Reason
    reason: str

    def located(self, line_of: Callable[[Loc], int]) -> str:
        """The reason with the line of the value, unless that is the line of the access:
        "the index is loaded from memory (line 12)".

        Args:
            line_of: the number of a line, as the text around the reason counts them.
        """
        loc = self.value.op.loc if self.value.op is not None else None
        if loc is None or (self.op.loc is not None and loc.line == self.op.loc.line):
            return self.reason
        return f"{self.reason} (line {line_of(loc)})"


def blocks_of(fn: Function, finder: BlockFinder | None = None) -> dict[Op, Block | NoBlock]:
    """The block of each load, store and atomic of a function, in program order."""
    finder = finder or BlockFinder()
    return {op: finder.of(op) for op in fn.walk() if isinstance(op, Access)}


class BlockFinder:
    """Computes the blocks of one function, with cached affine forms. It is invalidated by changes
    of the function."""

    def __init__(self) -> None:
        self.forms = AffineForms(through_scalars=True)

    def of(self, op: Access) -> Block | NoBlock:
        """The block of an access, or why it is not one."""
        form = self.forms.of(op.ptr)
        replaced = _replaced_indices(form)
        irregular = next((p for _, p in form.pieces if p not in replaced.values()), None)
        if form.base is None or irregular is not None:
            return _no_block(op, irregular.value if irregular else op.ptr)
        lengths = shape_of(op.ptr.type)
        mask = bounds_of(self.forms, op.mask, len(lengths))
        return self._block(op, form, replaced, mask)

    def _block(
        self, op: Access, form: Affine, replaced: dict[int, Piece], mask: MaskBounds
    ) -> Block:
        assert form.base is not None
        lengths = shape_of(op.ptr.type)
        strides, begins = list(form.strides), dict[int, Polynomial]()
        assumed = (*form.assumed, *mask.assumed)
        for coefficient, piece in form.pieces:
            (axis,) = {a for a in piece.axes if a is not None}
            assert piece.index is not None
            strides[axis] = coefficient
            begins[axis] = piece.index.start
            assumed += piece.index.assumed
        split = split_start(form.start, strides, mask, begins)
        axes = [
            BlockAxis(
                split.begins[d],
                lengths[d],
                strides[d],
                tuple(bound + split.begins[d] for bound in mask.lower[d]),
                tuple(bound + split.begins[d] for bound in mask.upper[d]),
                replaced[d].divisor if d in replaced else None,
                replaced[d].limit if d in replaced else None,
                replaced[d].other if d in replaced else None,
                d,
            )
            for d in range(len(lengths))
        ]
        bounds = [further.bounds for further in split.further]
        axes += [
            BlockAxis(f.begin, 1, f.stride, f.bounds.lower, f.bounds.upper) for f in split.further
        ]
        assumed += tuple(value for b in bounds for value in b.assumed)
        read_signed = (*mask.read_signed, *(value for b in bounds for value in b.read_signed))
        known = {condition for b in bounds for condition in b.conditions}
        return Block(
            op, form.base, split.offset, tuple(axes),
            tuple(c for c in mask.conditions if c not in known), mask.residual, mask.never,
            tuple(dict.fromkeys(assumed)), tuple(dict.fromkeys(read_signed)),
        )  # fmt: skip


def _replaced_indices(form: Affine) -> dict[int, Piece]:
    """The pieces that replace consecutive integers along one axis only, by axis: remainders, and
    indices with a limit."""
    result: dict[int, Piece] = {}
    for _, piece in form.pieces:
        axes = [(own, axis) for own, axis in enumerate(piece.axes) if axis is not None]
        index = piece.index
        known = piece.is_remainder or piece.limit is not None
        if len(axes) != 1 or not known or index is None:
            continue
        ((own, axis),) = axes
        others = [p for _, p in form.pieces if p is not piece and axis in p.axes]
        only = not others and not form.strides[axis] and not index.pieces
        if only and index.strides[own].constant == 1:
            result[axis] = piece
    return result


# -- accesses that are not blocks ------------------------------------------------------------------

_TEXTS = {
    Reason.POINTERS: "the pointers are not offsets from one base",
    Reason.LOADED: "the index is loaded from memory",
    Reason.DIVIDED: "the index is a quotient, or a remainder that is not a wrap of one axis",
    Reason.CHOSEN: "the index is selected element by element",
    Reason.CARRIED: "the index depends on control flow other than increments by equal steps",
    Reason.FLOAT: "the index is computed as a float",
    Reason.COMPUTED: "the index is not a sum of axes times strides",
}
_REASONS: tuple[tuple[tuple[type[Op], ...], Reason], ...] = (
    ((control.For, control.While, control.If), Reason.CARRIED),
    ((memory.Load, atomic.AtomicRMW, atomic.AtomicCAS, atomic.AtomicLoad), Reason.LOADED),
    ((shape.Gather,), Reason.LOADED),
    ((arith.Rem, arith.IntDiv), Reason.DIVIDED),
    ((arith.Select, arith.Min, arith.Max), Reason.CHOSEN),
)


def _no_block(op: Access, value: Value) -> NoBlock:
    reason = Reason.POINTERS if _is_pointer(value) else _reason(value)
    return NoBlock(op, value, reason, _TEXTS[reason])


def _is_pointer(value: Value) -> bool:
    return isinstance(element_of(value.type), Pointer)


def _reason(value: Value) -> Reason:
    op = value.op
    while isinstance(op, View | shape.Join | shape.Cat) and not isinstance(op, shape.Gather):
        op = op.operands[0].op
    for classes, reason in _REASONS:
        if isinstance(op, classes):
            return reason
    if op is None:
        return Reason.CARRIED
    return Reason.FLOAT if any(is_float(v.type) for v in op.operands) else Reason.COMPUTED
