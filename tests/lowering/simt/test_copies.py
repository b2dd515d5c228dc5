"""Asynchronous copies are as wide as elements are adjacent in both memories, along one axis."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from tests.lowering.simt.emulator import Emulated, EmulatedHardware
from tilewright.ir.parser import parse_module
from tilewright.ir.verify import verify_module
from tilewright.targets.gpu import codegen

# Layouts of a tile of 8 x 8 on two warps of 4 lanes: which axes the first registers run along.
TILES = {
    "rows first": "register[1,0 2,0 0,1] lane[0,2 0,4] warp[4,0] block[]",
    "columns first": "register[0,1 0,2 1,0] lane[2,0 4,0] warp[0,4] block[]",
    "columns in registers": "register[1,0 0,1 0,2 0,4] lane[2,0 4,0] warp[0,0] block[]",
    "rows in registers": "register[0,1 1,0 2,0 4,0] lane[0,2 0,4] warp[0,0] block[]",
    "rows in lanes": "register[0,1 0,2] lane[1,0 2,0] warp[4,0 0,4] block[]",
}
BUFFERS = {
    "by rows": "offset[0,1 0,2 0,4 1,0 2,0 4,0]",
    "by columns": "offset[1,0 2,0 4,0 0,1 0,2 0,4]",
    "swizzled": "offset[0,1 0,2 0,4 1,0 2,1 4,2]",
}
REGISTERED = codegen  # importing it registers the emitters


def _module(tile: str, buffer: str, type: str, *, by_columns: bool) -> str:
    """A tile that is copied to a buffer, read from there, and stored row by row."""
    rows, columns = _slice(tile, 0), _slice(tile, 1)
    strides = (1, 8) if by_columns else (8, 1)
    kept = "8xi32 !2", "8xi32 !3"
    pointer = f"ptr<{type}> {{divisibility=16}}"
    lines = [
        f'layout !0 = "{tile} -> dim0:8 dim1:8"',
        f'layout !1 = "{buffer} -> dim0:8 dim1:8"',
        f'layout !2 = "{rows} -> dim0:8"',
        f'layout !3 = "{columns} -> dim0:8"',
        f'layout !4 = "{_slice(tile, 0, keep=True)} -> dim0:8 dim1:1"',
        f'layout !5 = "{_slice(tile, 1, keep=True)} -> dim0:1 dim1:8"',
        f"func @copied(%0: {pointer}, %1: {pointer}) {{",
    ]
    for to, (start, steps) in enumerate(((0, strides), (1, (8, 1)))):
        for axis in (0, 1):
            n = f"{to}{axis}"
            wide = ("8x1xi32 !4", "1x8xi32 !5")[axis]
            lines += [
                f"  %a{n} = tile.arange start=0, end=8 : () -> {kept[axis]}",
                f"  %s{n} = arith.constant value={steps[axis]}, type=8xi32 : () -> {kept[axis]}",
                f"  %m{n} = arith.mul %a{n}, %s{n} : ({kept[axis]}, {kept[axis]}) -> {kept[axis]}",
                f"  %e{n} = tile.expand_dims %m{n}, axis={1 - axis} : {kept[axis]} -> {wide}",
                f"  %b{n} = tile.broadcast %e{n}, shape=(8, 8,) : {wide} -> 8x8xi32 !0",
            ]
        lines += [
            f"  %i{to} = arith.add %b{to}0, %b{to}1 : (8x8xi32 !0, 8x8xi32 !0) -> 8x8xi32 !0",
            f"  %p{to} = tile.splat %{start}, shape=(8, 8,) : ptr<{type}> -> 8x8xptr<{type}> !0",
            f"  %q{to} = mem.addptr %p{to}, %i{to} : (8x8xptr<{type}> !0, 8x8xi32 !0)"
            f" -> 8x8xptr<{type}> !0",
        ]
    lines += [
        "  %z = arith.constant value=0, type=i32 : () -> i32",
        f"  %r = gpu.allocate type=shared<1x8x8x{type}> : () -> shared<1x8x8x{type}>",
        f"  %t = gpu.slot %r, %z : (shared<1x8x8x{type}>, i32) -> shared<8x8x{type}> !1",
        f"  gpu.copy_async %q0, %t, _ : (8x8xptr<{type}> !0, shared<8x8x{type}> !1) -> ()",
        "  gpu.commit_copies : () -> ()",
        "  gpu.wait_copies pending=0 : () -> ()",
        "  program.barrier : () -> ()",
        f"  %v = gpu.fetch %t, own=False : shared<8x8x{type}> !1 -> 8x8x{type} !0",
        f'  mem.store %q1, %v, _, cache="", evict="" : (8x8xptr<{type}> !0, 8x8x{type} !0) -> ()',
        "  control.return [] : () -> ()",
        "}",
    ]
    return "\n".join(lines)


def _slice(tile: str, axis: int, *, keep: bool = False) -> str:
    """The layout of one axis of a tile, alone or with the other axis of extent 1."""
    parts: list[str] = []
    for part in tile.split("] "):
        name, _, bases = part.removesuffix("]").partition("[")
        steps = [b.split(",")[axis] for b in bases.split()]
        if keep:
            steps = [f"{s},0" if axis == 0 else f"0,{s}" for s in steps]
        parts.append(f"{name}[{' '.join(steps)}]")
    return " ".join(parts)


CASES = [
    (tile, buffer, by_columns, type)
    for tile, buffer, by_columns, type in product(
        TILES, BUFFERS, (False, True), ("fp32", "fp64", "i32")
    )
]


@pytest.mark.parametrize(("tile", "buffer", "by_columns", "type"), CASES)
def test_copied_elements_are_adjacent_in_both_memories(
    tile: str, buffer: str, by_columns: bool, type: str
) -> None:
    module = parse_module(_module(TILES[tile], BUFFERS[buffer], type, by_columns=by_columns))
    verify_module(module)
    dtype = {"fp32": np.float32, "fp64": np.float64, "i32": np.int32}[type]
    x, out = np.arange(64, dtype=dtype), np.zeros(64, dtype)
    warps = TILES[tile].split("warp[")[1].split("]")[0].split()
    Emulated(module, EmulatedHardware(4), 1 << len(warps)).launch((1, 1, 1), [x, out])
    expected = x.reshape(8, 8).T if by_columns else x.reshape(8, 8)
    np.testing.assert_array_equal(out.reshape(8, 8), expected)
