"""Addresses in 64 bits that are stepped to, from one register's to the next."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from tests.frontend.kernels import build, kernel_from
from tests.ir_values import same_bits
from tests.lowering.simt.harness import laid_out, run_emulated
from tests.targets.nvidia.lowered import ptx_of
from tilewright.ir.core import Module
from tilewright.ir.interpret import interpret
from tilewright.lowering.simt.slopes import Slope, slopes_of, walk_of
from tilewright.ops.arith import Add
from tilewright.ops.memory import AddPtr, Load
from tilewright.ops.shape import Arange

ROOM = 20000

# Of 8 x 32 elements, or as named. The strides are 64-bit scalars.
OFFSETS = {
    "rows": "row[:, None] * s + column",
    "columns": "row[:, None] + column * s",
    "both": "row[:, None] * s + column * t",
    "the same twice": "row[:, None] * s + column * s",
    "sums": "(row[:, None] * s + column) + (row[:, None] * s + 3)",
    "multiples": "row[:, None] * s * 2 + column * 3",
    "constants alone": "row[:, None] * 32 + column",
    "expanded before": "(row * s)[:, None] + column",
    "turned": "(row[None, :] * s + column[0, :][:, None]).T",
    "one stride in one axis, one in the other": "(row * t)[:, None] * 1 + column * s",
    "three axes": "(row[:, None, None] * s + row[None, :, None] * t + fours).reshape(8, 32)",
    "no form": "(row[:, None] * s) ^ column",
    "two scalars in one axis": "row[:, None] * s + row[:, None] * t + column",
    "a product of both": "row[:, None] * s * column",
}
STRIDES = [(32, 1), (40, 2), (-32, 3), (0, 1), (1, 0), (33, -1)]


def kernel_of(offset: str) -> Module:
    """A kernel that copies what is at offsets, and doubles it in place."""
    kernel = kernel_from(f"""
        def kernel(x, y, s, t, n):
            row = tl.arange(0, 8).to(tl.int64)
            column = tl.arange(0, 32).to(tl.int64)[None, :]
            fours = tl.arange(0, 4)
            offset = {offset}
            for i in range(n):
                at = offset + i * t
                tl.store(y + i * 256 + tl.arange(0, 8)[:, None] * 32 + tl.arange(0, 32)[None, :],
                         tl.load(x + {ROOM} + at))
    """)
    signature = {"x": "*i32", "y": "*i32", "s": "i64", "t": "i64", "n": "i32"}
    return build(kernel, signature)


def arguments(s: int, t: int) -> list[Any]:
    x = np.arange(2 * ROOM, dtype=np.int32)
    return [x, np.zeros((3, 8, 32), np.int32), s, t, 3]


@pytest.mark.parametrize("name", OFFSETS)
def test_the_same_elements_as_the_interpreter(name: str) -> None:
    module = kernel_of(OFFSETS[name])
    for s, t in STRIDES:
        expected, found = arguments(s, t), arguments(s, t)
        interpret(module, (1, 1, 1), expected)
        for warps, lanes in ((4, 8), (1, 4), (2, 32)):
            found[1][:] = -1
            run_emulated(module, (1, 1, 1), found, warps=warps, lanes=lanes)
            assert same_bits(found[1], expected[1]), f"strides {s} and {t}, {warps} x {lanes}"


def offset_of_load(module: Module) -> Any:
    """The tile of offsets that the kernel's loads add to a pointer, laid out."""
    ready = laid_out(module, warps=1, lanes=8)
    ptr = next(op for op in ready.entry.walk() if isinstance(op, Load)).ptr
    assert isinstance(ptr.op, AddPtr)
    return ptr.op.offset


@pytest.mark.parametrize(
    ("name", "slopes"),
    [
        ("rows", {0: (1, True), 1: (1, False)}),
        ("columns", {0: (1, False), 1: (1, True)}),
        ("multiples", {0: (2, True), 1: (3, False)}),
        ("constants alone", {0: (32, False), 1: (1, False)}),
        ("no form", None),
        ("two scalars in one axis", None),
        ("a product of both", None),
    ],
)
def test_slopes(name: str, slopes: dict[int, tuple[int, bool]] | None) -> None:
    offset = offset_of_load(kernel_of(OFFSETS[name]))
    found = slopes_of(offset)
    assert slopes == (found and {a: (s.factor, s.scalar is not None) for a, s in found.items()})
    assert (walk_of(offset) is None) == (not slopes or not any(s for _, s in slopes.values()))


def test_slopes_of_sums() -> None:
    found = slopes_of(offset_of_load(kernel_of(OFFSETS["sums"])))
    assert found is not None  # the pass that finds bases may have taken some of it apart
    assert {a: s.scalar is not None for a, s in found.items()} == {0: True, 1: False}


def test_narrow_numbers_may_wrap() -> None:
    text = "((row.to(tl.int32) * s.to(tl.int32))[:, None]).to(tl.int64) + column"
    assert walk_of(offset_of_load(kernel_of(text))) is None
    bytes_wrap = "(tl.arange(0, 8).to(tl.int8) * 64).to(tl.int64)[:, None] * s + column"
    assert walk_of(offset_of_load(kernel_of(bytes_wrap))) is None


def test_a_shared_subexpression_is_visited_once() -> None:
    value = Arange(0, 8).result
    for _ in range(60):
        value = Add(value, value).result
    assert slopes_of(value) == {0: Slope(2**60)}


def test_column_broadcast_from_one_element() -> None:
    text = "row[:, None] * s + tl.broadcast_to((tl.arange(0, 1).to(tl.int64) * t)[None, :], 8, 32)"
    module = kernel_of(text)
    expected, found = arguments(40, 1000), arguments(40, 1000)
    interpret(module, (1, 1, 1), expected)
    run_emulated(module, (1, 1, 1), found, warps=1, lanes=8)
    assert same_bits(found[1], expected[1])


def test_one_product_serves_all_rows() -> None:
    kernel = kernel_from("""
        def copy(x, y, s):
            row = tl.arange(0, 128).to(tl.int64)[:, None]
            column = tl.arange(0, 64)[None, :]
            tl.store(y + row * 64 + column, tl.load(x + row * s + column))
    """)
    ptx = ptx_of(build(kernel, {"x": "*fp16", "y": "*fp16", "s": "i64"}))
    assert len(re.findall(r"\bld\.global", ptx)) > 1
    assert len(re.findall(r"\b(?:mul|mad)\.lo\.s64", ptx)) == 1
