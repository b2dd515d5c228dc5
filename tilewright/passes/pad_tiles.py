"""Gives every tile extents that are powers of two, for targets whose layouts know no others."""

from __future__ import annotations

from tilewright.ir.core import Function
from tilewright.ir.passes import PassContext, compiler_pass
from tilewright.ir.types import shape_of
from tilewright.passes import pad_rules
from tilewright.passes.padding import Padding, is_padded, values_of

REGISTERED = (pad_rules,)


@compiler_pass("pad_tiles")
def pad_tiles(fn: Function, ctx: PassContext) -> bool:
    """Make the extents of all tiles powers of two.

    Needs: inlined calls, pointers in canonical form.
    Leaves: dead ops; what cse finds twice; the same effects.

    A tile is put at the start of one whose extents are the next powers of two. What the other
    elements hold, the *padding*, is unspecified: an op that reads it must not show it. So accesses
    of memory get a mask; reductions, backward scans, sorts and products see neutral elements
    there; and where row-major order would count it, elements are gathered.
    """
    values = [r for op in fn.walk() for r in values_of(op)]
    if all(is_padded(shape_of(v.type)) for v in values):
        return False
    Padding(fn, ctx).run()
    return True
