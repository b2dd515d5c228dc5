"""`tile.gather` and `tile.flip`: elements selected by their index along an axis.

A gather goes through shared memory, since its indices are known only at run time. A flip is an xor
of the index, which a linear layout turns into an xor of register, lane and warp: without the warp,
a renaming of registers and a shuffle; with it, shared memory.
"""

from __future__ import annotations

from math import prod

from tilewright.ir import types as ir
from tilewright.layout import gf2
from tilewright.layout.linear import LANE, REGISTER, LinearLayout, dim_name
from tilewright.lowering.emit import I32, V, const
from tilewright.lowering.simt.combine import exchanged
from tilewright.lowering.simt.kernel import Kernel, emits
from tilewright.lowering.simt.shared_memory import scratch
from tilewright.lowering.simt.staging import Staged, staged_bytes
from tilewright.ops import shape


@scratch(shape.Gather)
def gather_scratch(op: shape.Gather) -> int:
    return staged_bytes(op.src)


@emits(shape.Gather)
def emit_gather(kernel: Kernel, op: shape.Gather) -> None:
    """Write the source to shared memory; read it at `index` along the axis, clamped to its extent,
    and at the element's own coordinates along the others."""
    b = kernel.b
    layout = op.index.layout
    assert layout is not None
    extents = ir.shape_of(op.src.type)
    staged = Staged(kernel, op, op.src)
    staged.write(kernel.env[op.src])
    signed = ir.dtype_of(op.index.type).is_int_signed()
    places = [_clamped(kernel, i, extents[op.axis], signed) for i in kernel.env[op.index]]
    stride = prod(extents[op.axis + 1 :])
    places = [b.mul(place, stride) for place in places]
    for axis, extent in enumerate(extents):
        if axis != op.axis and extent > 1:
            stride = prod(extents[axis + 1 :])
            others = kernel.coordinates(layout, dim_name(axis))
            places = [b.add(p, b.mul(o, stride)) for p, o in zip(places, others, strict=True)]
    kernel.bind(op, staged.read(places))


def _clamped(kernel: Kernel, index: V, extent: int, signed: bool) -> V:
    """The index as an i32 from 0 to extent - 1."""
    b = kernel.b
    kind = index.type
    if kind.bits == 1:
        return b.zext(index, I32) if extent > 1 else const(I32, 0)
    if signed:
        zero = const(kind, 0)
        index = b.intrinsic("llvm.smax", kind, [index, zero], overloads=[kind])
    if extent >> kind.bits == 0:
        last = const(kind, extent - 1)
        index = b.intrinsic("llvm.umin", kind, [index, last], overloads=[kind])
    return b.trunc(index, I32) if kind.bits > 32 else b.zext(index, I32)


# -- flip -----------------------------------------------------------------------------------------


def _mirror(op: shape.Flip) -> int:
    """The mask whose xor mirrors a row-major index along the axis (extents are powers of two)."""
    extents = ir.shape_of(op.src.type)
    return (extents[op.axis] - 1) * prod(extents[op.axis + 1 :])


def _mirror_move(op: shape.Flip) -> dict[str, int] | None:
    """The xor of register and of lane that leads to the mirrored element; None if to other warps.

    As the layout is linear, it is the same for all elements.
    """
    layout = op.src.layout
    assert layout is not None
    near: LinearLayout = layout.select_ins(REGISTER, LANE)
    found = gf2.solve(near.columns, _mirror(op))
    if found is None:
        return None
    registers = near.in_bits(REGISTER)
    return {REGISTER: found & ((1 << registers) - 1), LANE: found >> registers}


@scratch(shape.Flip)
def flip_scratch(op: shape.Flip) -> int:
    return staged_bytes(op.src) if _mirror_move(op) is None else 0


@emits(shape.Flip)
def emit_flip(kernel: Kernel, op: shape.Flip) -> None:
    b = kernel.b
    values = kernel.env[op.src]
    move = _mirror_move(op)
    if move is None:
        staged = Staged(kernel, op, op.src)
        staged.write(values)
        places = [b.xor(place, _mirror(op)) for place in staged.own_places()]
        kernel.bind(op, staged.read(places))
        return
    moved = [values[r ^ move[REGISTER]] for r in range(len(values))]
    if move[LANE]:

        def cross(word: V) -> V:
            return kernel.hw.shuffle_xor(b, word, move[LANE])

        done: dict[int, V] = {}
        for value in moved:
            if id(value) not in done:
                done[id(value)] = exchanged(b, value, cross)
        moved = [done[id(value)] for value in moved]
    kernel.bind(op, moved)
