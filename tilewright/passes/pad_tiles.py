"""Padding of tiles to extents that are powers of two, which linear layouts require.

Input: tile IR with inlined calls and pointers in canonical form. Output: the same effects, with all
extents powers of two; dead ops and duplicates are left to dce and cse. A tile becomes the leading
part of a tile whose extents are rounded up. The other elements, the *padding*, are unspecified, and
must not affect any result or effect: memory accesses are masked; reductions, reverse scans, sorts
and products see identity elements; and ops that depend on row-major positions gather elements
(`pad_rules`). One traversal, linear in the number of ops.
"""

from __future__ import annotations

from tilewright.ir.core import Function
from tilewright.ir.passes import PassContext, compiler_pass
from tilewright.ir.types import shape_of
from tilewright.passes import pad_rules
from tilewright.passes.padding import Padding, is_padded, values_of

REGISTERED = (pad_rules,)


@compiler_pass("pad_tiles", required=True)
def pad_tiles(fn: Function, ctx: PassContext) -> bool:
    """Round the extents of all tiles up to powers of two; see the module docstring."""
    values = [r for op in fn.walk() for r in values_of(op)]
    if all(is_padded(shape_of(v.type)) for v in values):
        return False
    Padding(fn, ctx).run()
    return True
