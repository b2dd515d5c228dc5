"""Operands of matrix instructions that a warp loads by matrices of 8x8 units, and results that it
stores so."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from tests.lowering.simt.emulator import EmulatedHardware
from tests.lowering.simt.harness import assert_same
from tilewright.ir.core import Module
from tilewright.ir.parser import parse_module
from tilewright.ir.verify import verify_module
from tilewright.layout.families import (
    blocked,
    mma_operand_a,
    mma_operand_b,
    shared_across,
    shared_hopper,
    wgmma_accumulator,
)
from tilewright.layout.linear import WARP, LinearLayout
from tilewright.lowering.emit import Builder, V
from tilewright.lowering.simt.team import Team
from tilewright.ops.gpu import Share
from tilewright.ops.memory import Load, Store
from tilewright.passes.layout_choice import ANCHORS
from tilewright.passes.layout_rules import Demands, coalesced_within

ROWS, COLUMNS = 64, 64
INTEGER = {8: np.int8, 16: np.int16, 32: np.int32, 64: np.int64}

Calls = list[tuple[int, bool]]
Operand = Callable[[tuple[int, int], int, tuple[int, int]], LinearLayout]


def through_shared_memory(bits: int, buffer: LinearLayout) -> Module:
    """A tile is written to shared memory and read back."""
    tile = f"{ROWS}x{COLUMNS}x"
    pointers = f"{tile}ptr<i{bits}>"
    module = parse_module(f"""
    func @kernel(%p: ptr<i{bits}>, %q: ptr<i{bits}>) {{
      %n = tile.arange start=0, end={ROWS * COLUMNS} : () -> {ROWS * COLUMNS}xi32
      %o = tile.reshape %n, shape=({ROWS}, {COLUMNS},) : {ROWS * COLUMNS}xi32 -> {tile}i32
      %s = tile.splat %p, shape=({ROWS}, {COLUMNS},) : ptr<i{bits}> -> {pointers}
      %a = mem.addptr %s, %o : ({pointers}, {tile}i32) -> {pointers}
      %v = mem.load %a, _, _, cache="", evict="", volatile=False : {pointers} -> {tile}i{bits}
      %h = gpu.share %v : {tile}i{bits} -> shared<{tile}i{bits}>
      %w = gpu.fetch %h : shared<{tile}i{bits}> -> {tile}i{bits}
      %t = tile.splat %q, shape=({ROWS}, {COLUMNS},) : ptr<i{bits}> -> {pointers}
      %b = mem.addptr %t, %o : ({pointers}, {tile}i32) -> {pointers}
      mem.store %b, %w, _, cache="", evict="" : ({pointers}, {tile}i{bits}) -> ()
      control.return [] : () -> ()
    }}
    """)
    verify_module(module)
    (share,) = (op for op in module.walk() if isinstance(op, Share))
    share.result.layout = buffer
    return module


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    """The count and kind of each load of matrices that is emitted."""
    found: Calls = []
    real = EmulatedHardware.load_matrices

    def noted(hw: EmulatedHardware, b: Builder, row: V, count: int, transposed: bool) -> list[V]:
        found.append((count, transposed))
        return real(hw, b, row, count, transposed)

    monkeypatch.setattr(EmulatedHardware, "load_matrices", noted)
    return found


def demand(monkeypatch: pytest.MonkeyPatch, layout: LinearLayout) -> None:
    """What is stored, and so what is fetched, has this layout, as for a matrix instruction."""
    monkeypatch.setitem(ANCHORS, Store, lambda op, ctx: Demands([layout] * len(op.operands), []))


def check(bits: int, buffer: LinearLayout, warps: int) -> None:
    rng = np.random.default_rng(bits)
    info = np.iinfo(INTEGER[bits])
    given = rng.integers(info.min, info.max, ROWS * COLUMNS, INTEGER[bits], endpoint=True)
    out = np.zeros_like(given)
    module = through_shared_memory(bits, buffer)
    assert_same(module, (1, 1, 1), [given, out], warps=warps, lanes=32)


@pytest.mark.parametrize("swizzle", [0, 32, 64])
@pytest.mark.parametrize("across", [False, True])
@pytest.mark.parametrize("operand", [mma_operand_a, mma_operand_b])
@pytest.mark.parametrize("bits", [8, 16, 32])
def test_operands_arrive(
    bits: int, operand: Operand, across: bool, swizzle: int,
    calls: Calls, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Every value reaches the register of the instruction, in either order of memory."""
    layout = operand((ROWS, COLUMNS), bits, (2, 1))
    demand(monkeypatch, layout)
    check(bits, shared_hopper((ROWS, COLUMNS), bits, swizzle, transposed=across), 2)
    along_k = across == (operand is mma_operand_b)
    if along_k:
        assert set(calls) == {(4, False)}
    else:
        assert set(calls) == ({(4, True)} if bits == 16 else set())


@pytest.mark.parametrize(("operand", "contiguous"), [(mma_operand_a, 0), (mma_operand_b, 1)])
@pytest.mark.parametrize("bits", [32, 64])
def test_operands_across_k_arrive(
    bits: int, operand: Operand, contiguous: int, calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    demand(monkeypatch, operand((ROWS, COLUMNS), bits, (2, 1)))
    check(bits, shared_across((ROWS, COLUMNS), bits, contiguous), 2)
    assert not calls


def test_without_the_instruction(calls: Calls, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(EmulatedHardware, "loads_matrices", False)
    layout = mma_operand_a((ROWS, COLUMNS), 16, (1, 1))
    demand(monkeypatch, layout)
    check(16, shared_hopper((ROWS, COLUMNS), 16, 64), 1)
    assert not calls


@pytest.fixture
def stores(monkeypatch: pytest.MonkeyPatch) -> Calls:
    """The count and kind of each store of matrices that is emitted."""
    found: Calls = []
    real = EmulatedHardware.store_matrices

    def noted(
        hw: EmulatedHardware, b: Builder, row: V, words: Sequence[V], transposed: bool
    ) -> None:
        found.append((len(words), transposed))
        real(hw, b, row, words, transposed)

    monkeypatch.setattr(EmulatedHardware, "store_matrices", noted)
    return found


@pytest.mark.parametrize("swizzle", [0, 32, 64, 128])
@pytest.mark.parametrize("across", [False, True])
@pytest.mark.parametrize("bits", [8, 16, 32])
def test_results_arrive(
    bits: int, across: bool, swizzle: int,
    stores: Calls, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Every value reaches its place in the buffer, in either order of memory."""
    result = wgmma_accumulator((ROWS, COLUMNS), 4, COLUMNS)
    monkeypatch.setitem(
        ANCHORS, Load, lambda op, ctx: Demands([result] * len(op.operands), [result])
    )
    if swizzle * 8 > bits * ROWS:
        return
    check(bits, shared_hopper((ROWS, COLUMNS), bits, swizzle, transposed=across), 4)
    assert set(stores) == ({(4, across)} if bits == 16 else set())


def converted(bits: int) -> Module:
    """A tile is loaded and stored."""
    tile = f"{ROWS}x{COLUMNS}x"
    pointers = f"{tile}ptr<i{bits}>"
    module = parse_module(f"""
    func @kernel(%p: ptr<i{bits}>, %q: ptr<i{bits}>) {{
      %n = tile.arange start=0, end={ROWS * COLUMNS} : () -> {ROWS * COLUMNS}xi32
      %o = tile.reshape %n, shape=({ROWS}, {COLUMNS},) : {ROWS * COLUMNS}xi32 -> {tile}i32
      %s = tile.splat %p, shape=({ROWS}, {COLUMNS},) : ptr<i{bits}> -> {pointers}
      %a = mem.addptr %s, %o : ({pointers}, {tile}i32) -> {pointers}
      %v = mem.load %a, _, _, cache="", evict="", volatile=False : {pointers} -> {tile}i{bits}
      %t = tile.splat %q, shape=({ROWS}, {COLUMNS},) : ptr<i{bits}> -> {pointers}
      %b = mem.addptr %t, %o : ({pointers}, {tile}i32) -> {pointers}
      mem.store %b, %v, _, cache="", evict="" : ({pointers}, {tile}i{bits}) -> ()
      control.return [] : () -> ()
    }}
    """)
    verify_module(module)
    return module


@pytest.mark.parametrize("bits", [8, 16, 32])
@pytest.mark.parametrize("across", [False, True])
def test_conversions_of_results(
    bits: int, across: bool, stores: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To runs of 16 bytes along either axis, by stores of matrices."""
    result = wgmma_accumulator((ROWS, COLUMNS), 4, COLUMNS)
    run, lanes = 128 // bits, COLUMNS * bits // 128  # of a row of the tile
    if across:
        runs = blocked((ROWS, COLUMNS), (run, 1), (lanes, 32 // lanes), (1, 4), (0, 1))
    else:
        runs = blocked((ROWS, COLUMNS), (1, run), (32 // lanes, lanes), (4, 1), (1, 0))
    monkeypatch.setitem(
        ANCHORS, Load, lambda op, ctx: Demands([result] * len(op.operands), [result])
    )
    demand(monkeypatch, runs)
    rng = np.random.default_rng(bits)
    info = np.iinfo(INTEGER[bits])
    given = rng.integers(info.min, info.max, ROWS * COLUMNS, INTEGER[bits], endpoint=True)
    module = converted(bits)
    assert_same(module, (1, 1, 1), [given, np.zeros_like(given)], warps=4, lanes=32)
    assert set(stores) == ({(4, across)} if bits == 16 else set())


@pytest.mark.parametrize("bits", [8, 16, 32])
@pytest.mark.parametrize("across", [False, True])
@pytest.mark.parametrize("operand", [mma_operand_a, mma_operand_b])
def test_conversions_to_operands(
    bits: int, operand: Operand, across: bool, calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From runs of 16 bytes along either axis; of those across K, by loads of matrices. Several
    warps hold each element of the operand."""
    run, lanes = 128 // bits, COLUMNS * bits // 128  # of a row of the tile
    if across:
        runs = blocked((ROWS, COLUMNS), (run, 1), (lanes, 32 // lanes), (1, 8), (0, 1))
    else:
        runs = blocked((ROWS, COLUMNS), (1, run), (32 // lanes, lanes), (8, 1), (1, 0))
    monkeypatch.setitem(ANCHORS, Load, lambda op, ctx: Demands([runs] * len(op.operands), [runs]))
    grid = (2, 4) if operand is mma_operand_a else (4, 2)
    demand(monkeypatch, operand((ROWS, COLUMNS), bits, grid))
    rng = np.random.default_rng(bits)
    info = np.iinfo(INTEGER[bits])
    given = rng.integers(info.min, info.max, ROWS * COLUMNS, INTEGER[bits], endpoint=True)
    module = converted(bits)
    assert_same(module, (1, 1, 1), [given, np.zeros_like(given)], warps=8, lanes=32)
    if bits == 16 and across == (operand is mma_operand_a):
        assert set(calls) == {(4, True)}


def convert_result(bits: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is loaded has the layout of a product's result, what is stored is coalesced within the
    rows of each warp."""
    result = wgmma_accumulator((ROWS, COLUMNS), 4, COLUMNS)
    rows = coalesced_within(result, (1, 0), 128 // bits, bits // 8)
    assert rows is not None
    assert rows.bases(WARP) == result.bases(WARP)
    monkeypatch.setitem(
        ANCHORS, Load, lambda op, ctx: Demands([result] * len(op.operands), [result])
    )
    demand(monkeypatch, rows)
    given = np.arange(ROWS * COLUMNS).astype(INTEGER[bits])
    assert_same(converted(bits), (1, 1, 1), [given, np.zeros_like(given)], warps=4, lanes=32)


@pytest.mark.parametrize("bits", [8, 16, 32])
def test_results_are_converted_within_warps(
    bits: int, stores: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_barrier(hw: EmulatedHardware, b: Builder, team: Team) -> None:
        raise AssertionError("warps wait for each other")

    monkeypatch.setattr(EmulatedHardware, "barrier", no_barrier)
    convert_result(bits, monkeypatch)
    assert set(stores) == ({(4, False)} if bits == 16 else set())


def test_lanes_wait_for_what_others_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(EmulatedHardware, "stores_matrices", False)  # they wait, too
    monkeypatch.setattr(EmulatedHardware, "sync_warp", lambda hw, b: None)
    with pytest.raises(AssertionError):
        convert_result(16, monkeypatch)
