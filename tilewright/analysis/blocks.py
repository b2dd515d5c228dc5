"""The block of memory that an access touches: a base, and per axis a begin, an extent, a stride and
bounds; or the reason why it is none.

    rows = tl.program_id(0) * 64 + tl.arange(0, 64)
    cols = k + tl.arange(0, 32)                            # `for k in range(0, K, 32)`
    tl.load(a + rows[:, None] * stride + cols[None, :], mask=rows[:, None] < M, other=0.0)

    base a
    axis 0: begin 64*program_id(0), extent 64, stride `stride`, index < M
    axis 1: begin 32*iteration,     extent 32, stride 1

An access is a block where its address is the base plus, per axis, an index times a stride, and the
indices along an axis are consecutive. Its elements are those of the box

    index[d] = begin[d] + i[d],  0 <= i[d] < extent[d]

for which all `conditions` hold, each index is within the `bounds` of its axis, and what `residual`
says of the element (a causal mask, say). The element is at

    base + offset + sum of stride[d] * index[d]            in elements

with `index % wrap` in place of the index where an axis has one. The first axes of a block are those
of the tile, in its order; behind them are further ones of extent 1, one for each product of an
argument with an index (`batch * stride_b`): a block may have any rank.

Begins, strides and bounds are polynomials over scalars: arguments, program ids, what was loaded or
divided, and the numbers of loops' iterations. How far a loop moves the block in an iteration is
`axis.step(loop)`. Which part of an address counts as the begin of which axis is a choice, made in
`block_begins.py`: so that bounds are the same for all programs and iterations where possible.

`assumed` lists narrow integers that the description takes not to wrap (see `affine.py`); sums of 64
bits in masks are taken not to wrap without that. A kernel for which either does not hold leaves its
arrays.

It reads the tile IR that `compiler/pipeline.STEPS` leave, changes nothing, and knows no target. Any
mask is understood: what is no bound is a condition or residual. What an address is made of is
refused where it is not affine, `Refusal.reason` says why.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from tilewright.analysis.affine import AffineForms
from tilewright.analysis.affine_form import Affine, Piece
from tilewright.analysis.block_begins import split_start
from tilewright.analysis.mask_bounds import Conjunct, MaskBounds, bounds_of
from tilewright.analysis.polynomial import Iteration, Polynomial
from tilewright.ir.core import Function, Op, Value
from tilewright.ir.types import Pointer, element_of, is_float, shape_of
from tilewright.ops import arith, atomic, control, memory, shape
from tilewright.ops.view import View

Access = (
    memory.Load | memory.Store | atomic.AtomicRMW | atomic.AtomicCAS | atomic.AtomicLoad
    | atomic.AtomicStore | atomic.AtomicPoll
)  # fmt: skip


class Reason(Enum):
    """Why an access is no block."""

    POINTERS = "pointers"  # the pointers themselves come from memory, or from several arrays
    LOADED = "loaded"  # an index was loaded: a gather
    DIVIDED = "divided"  # by a quotient or remainder that is no wrap of one axis
    CHOSEN = "chosen"  # by `where`, `minimum`, `maximum`, element by element
    CARRIED = "carried"  # a loop or a branch gives the index, and not by equal steps
    FLOAT = "float"  # the index was computed as a float
    COMPUTED = "computed"  # by a product of two axes, by bits, by anything else


@dataclass(frozen=True, slots=True)
class BlockAxis:
    """One axis of a block; see the module.

    Attributes:
        begin: index of the box's first element.
        extent: elements of the box along the axis.
        stride: elements of memory from one index to the next; may be 0 or negative.
        lower: the index is at least each of these, where an element is touched.
        upper: the index is below each of these.
        wrap: what the index is taken modulo (C's `%`), behind the bounds.
        tile_axis: the axis of the tile; None for one of extent 1 that the tile does not have.
    """

    begin: Polynomial
    extent: int
    stride: Polynomial
    lower: tuple[Polynomial, ...] = ()
    upper: tuple[Polynomial, ...] = ()
    wrap: Polynomial | None = None
    tile_axis: int | None = None

    def step(self, loop: control.For) -> Polynomial | None:
        """How far an iteration of the loop moves the begin; None if not by equal steps."""
        return self.begin.coefficient(Iteration(loop))


@dataclass(frozen=True, slots=True)
class Block:
    """What an access touches; see the module.

    Attributes:
        op: the access.
        base: a scalar pointer, as a rule an argument of the kernel.
        offset: elements from `base` to where the axes start counting: a number that is the same for
            the whole launch.
        axes: those of the tile in its order, then further ones of extent 1.
        conditions: scalars of i1, or tiles of it of which all elements are equal; nothing is
            touched unless all are true.
        residual: parts of the mask that are neither bounds nor conditions.
        never: whether the mask is false for all elements.
        assumed: integers that are taken to be what their sums and products give without wrapping.
        read_signed: the same of unsigned integers in masks, read as signed ones of their width.
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
        """What a load gives for elements that are not touched; None for 0."""
        return self.op.other if isinstance(self.op, memory.Load) else None

    @property
    def is_rectangle(self) -> bool:
        """Whether bounds and conditions alone say what is touched, and no index wraps."""
        return not self.residual and all(axis.wrap is None for axis in self.axes)

    def moves_with(self, loop: control.For) -> bool:
        """Whether the block is another one in each iteration of the loop."""
        turn = Iteration(loop)
        polynomials = [p for a in self.axes for p in (a.begin, a.stride, *a.lower, *a.upper)]
        return any(turn in p.atoms() for p in polynomials)


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why an access is no block.

    Attributes:
        op: the access.
        value: what is not affine in its address.
        reason: as a code, for programs.
        words: as a sentence, for people: "the index is loaded (line 12)".
    """

    op: Access
    value: Value
    reason: Reason
    words: str


def blocks_of(fn: Function, finder: BlockFinder | None = None) -> dict[Op, Block | Refusal]:
    """What each load, store and atomic of a function touches, in the order of the ops."""
    finder = finder or BlockFinder()
    return {op: finder.of(op) for op in fn.walk() if isinstance(op, Access)}


class BlockFinder:
    """Finds the blocks of one function, as long as its ops do not change."""

    def __init__(self) -> None:
        self.forms = AffineForms(through_scalars=True)

    def of(self, op: Access) -> Block | Refusal:
        """What an access touches."""
        form = self.forms.of(op.ptr)
        wraps = _wraps_of(form)
        refused = next((p for _, p in form.pieces if p not in wraps.values()), None)
        if form.base is None or refused is not None:
            return _refusal(op, refused.value if refused else op.ptr)
        lengths = shape_of(op.ptr.type)
        mask = bounds_of(self.forms, op.mask, len(lengths))
        return self._block(op, form, wraps, mask)

    def _block(self, op: Access, form: Affine, wraps: dict[int, Piece], mask: MaskBounds) -> Block:
        assert form.base is not None
        lengths = shape_of(op.ptr.type)
        strides, begins = list(form.strides), dict[int, Polynomial]()
        assumed = (*form.assumed, *mask.assumed)
        for coefficient, piece in form.pieces:
            (axis,) = {a for a in piece.axes if a is not None}
            assert piece.dividend is not None
            strides[axis] = coefficient
            begins[axis] = piece.dividend.start
            assumed += piece.dividend.assumed
        split = split_start(form.start, strides, mask, begins)
        axes = [
            BlockAxis(
                split.begins[d],
                lengths[d],
                strides[d],
                tuple(bound + split.begins[d] for bound in mask.lower[d]),
                tuple(bound + split.begins[d] for bound in mask.upper[d]),
                wraps[d].divisor if d in wraps else None,
                d,
            )
            for d in range(len(lengths))
        ]
        axes += [BlockAxis(begin, 1, stride) for stride, begin in split.further]
        return Block(
            op, form.base, split.offset, tuple(axes), mask.conditions, mask.residual, mask.never,
            tuple(dict.fromkeys(assumed)), tuple(dict.fromkeys(mask.read_signed)),
        )  # fmt: skip


def _wraps_of(form: Affine) -> dict[int, Piece]:
    """The pieces that are consecutive numbers along one axis, which nothing else changes along,
    modulo a number; by axis."""
    found: dict[int, Piece] = {}
    for _, piece in form.pieces:
        axes = [(own, axis) for own, axis in enumerate(piece.axes) if axis is not None]
        dividend = piece.dividend
        if len(axes) != 1 or not piece.is_remainder or dividend is None:
            continue
        ((own, axis),) = axes
        others = [p for _, p in form.pieces if p is not piece and axis in p.axes]
        alone = not others and not form.strides[axis] and not dividend.pieces
        if alone and dividend.strides[own].constant == 1:
            found[axis] = piece
    return found


# -- refusals -------------------------------------------------------------------------------------

_WORDS = {
    Reason.POINTERS: "the pointers are not offsets from one base",
    Reason.LOADED: "the index is loaded from memory",
    Reason.DIVIDED: "the index is a quotient, or a remainder that is no wrap of one axis",
    Reason.CHOSEN: "the index is chosen element by element",
    Reason.CARRIED: "control flow gives the index, and not by equal steps",
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


def _refusal(op: Access, value: Value) -> Refusal:
    reason = Reason.POINTERS if _points(value) else _reason(value)
    line = value.op.loc.line if value.op is not None and value.op.loc is not None else 0
    here = op.loc.line if op.loc is not None else 0
    at = f" (line {line})" if line and line != here else ""
    return Refusal(op, value, reason, _WORDS[reason] + at)


def _points(value: Value) -> bool:
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
