"""Exchange of words between the lanes of a wave, by the cheapest instructions of a processor.

DPP (data-parallel primitives) moves words between the 16 lanes of a row within the vector unit, and
LLVM merges it with the instruction that uses the result. Beyond a row, GFX10 and later have an
exchange between the two rows of a wave; other moves use the crossbar of the LDS, but no LDS memory.
"""

from __future__ import annotations

from tilewright.lowering.emit import I1, I32, Builder, V, const, poison

ROW = 16  # lanes

# Controls of DPP ("User Guide for AMDGPU Backend", and the ISA guides, "DPP").
_QUAD_PERM = 0x000
_ROW_ROTATE = 0x120
_ROW_HALF_MIRROR = 0x141
_ROW_XMASK = 0x160

_SWIZZLE_LANES = 32  # of a wave that ds_swizzle moves words between
_SWIZZLE_AND = 0x1F  # the lane's own bits, all kept


def shuffle(b: Builder, word: V, lane: V) -> V:
    """The word of another lane. Convergent."""
    address = b.shl(lane, 2)
    return b.intrinsic("llvm.amdgcn.ds.bpermute", I32, [address, word])


def shuffle_xor(b: Builder, word: V, mask: int, own_lane: V, features: frozenset[str]) -> V:
    """The word of lane ``own_lane ^ mask``. Convergent."""
    if mask < ROW:
        return _within_row(b, word, mask, features)
    if mask < 2 * ROW and "permlanex16" in features:
        return _other_row(b, word, mask % ROW)
    if mask < _SWIZZLE_LANES:
        pattern = mask << 10 | _SWIZZLE_AND
        return b.intrinsic("llvm.amdgcn.ds.swizzle", I32, [word, const(I32, pattern)])
    return shuffle(b, word, b.xor(own_lane, mask))


def _within_row(b: Builder, word: V, mask: int, features: frozenset[str]) -> V:
    if mask > 3 and "row_xmask" in features:
        return _dpp(b, word, _ROW_XMASK + mask)
    if mask & 8:
        word = _dpp(b, word, _ROW_ROTATE + 8)
    if mask & 4:
        word = _dpp(b, word, _ROW_HALF_MIRROR)  # exchanges lanes i and i ^ 7
        mask ^= 3
    if mask & 3:
        places = sum((lane ^ mask & 3) << 2 * lane for lane in range(4))
        word = _dpp(b, word, _QUAD_PERM + places)
    return word


def _dpp(b: Builder, word: V, control: int) -> V:
    """A move of all rows and banks; all lanes that it reads from exist."""
    args = [poison(I32), word, const(I32, control), const(I32, 15), const(I32, 15), const(I1, 1)]
    return b.intrinsic("llvm.amdgcn.update.dpp", I32, args, overloads=[I32])


def _other_row(b: Builder, word: V, mask: int) -> V:
    """The word of lane ``lane ^ mask`` of the other row: four bits select the lane for each."""
    low, high = (sum((first + i ^ mask) << 4 * i for i in range(8)) for first in (0, ROW // 2))
    args = [poison(I32), word, const(I32, low), const(I32, high), const(I1, 0), const(I1, 0)]
    return b.intrinsic("llvm.amdgcn.permlanex16", I32, args, overloads=[I32])
