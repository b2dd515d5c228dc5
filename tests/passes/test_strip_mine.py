"""Tiles that are taken in parts hold what they held, and only those are that may be."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.frontend.kernels import build, kernel_from, type_string
from tests.gpu_machine import gpu_machine
from tests.ir_values import random_array, same_bits
from tests.lowering.simt.harness import run_emulated
from tilewright.compiler.pipeline import STEPS
from tilewright.ir.core import Module
from tilewright.ir.interpret import interpret
from tilewright.ir.passes import PASSES, PassContext, Step, Verifier, run
from tilewright.ir.types import BF16, FP16, FP32, FP64, I8, I64, DType, Tile, shape_of
from tilewright.ops.control import For
from tilewright.ops.memory import Load, Store
from tilewright.passes.strip_mine import mine_strips

LENGTH = 4096
WARPS, LANES = 2, 4  # eight threads, so that a tile of 512 has 64 elements in each

FLAT = """
def kernel(x, y, out, n):
    i = tl.arange(0, 512)
    a = tl.load(x + i, mask=i < n, other=3)
    b = tl.load(y + i)
    tl.store(out + i, tl.where(a > b, a, b), mask=(i % 7 != 2) & (i < n))
"""
LOOP = """
def kernel(x, y, out, n):
    for begin in range(0, n, 512):
        i = begin + tl.arange(0, 512)
        a = tl.load(x + i, mask=i < n)
        b = tl.load(y + i, mask=i < n)
        tl.store(x + i, b - a, mask=i < n)
        tl.store(out + i, a + b, mask=i < n)
"""
IN_PLACE = """
def kernel(x, y, out, n):
    p = x + n + tl.arange(0, 1024)
    a = tl.load(p)
    tl.store(p, a + a)
    tl.store(p, tl.load(p) - 1)
"""
ROWS = """
def kernel(x, y, out, n):
    row, column = tl.arange(0, 16), tl.arange(0, 64)
    place = row[:, None] * 64 + column[None, :]
    inside = (row[:, None] < n) & (column[None, :] % 3 > 0)
    a = tl.load(x + place, mask=inside, other=1)
    tl.store(out + place, a * row[:, None] + column[None, :], mask=row[:, None] < 11)
"""
COLUMNS = """
def kernel(x, y, out, n):
    row, column = tl.arange(0, 64), tl.arange(0, 16)
    place = row[:, None] + column[None, :] * 64
    a = tl.load(x + place)
    b = tl.load(y + place)
    tl.store(out + place, tl.where(row[:, None] < n, a, b))
"""
TURNED = """
def kernel(x, y, out, n):
    row, column = tl.arange(0, 64), tl.arange(0, 16)
    place = tl.trans(row[:, None] * 16 + column[None, :])
    a = tl.load(x + place)
    b = tl.load(y + place)
    tl.store(out + place, a + b)
"""
PADDED = """
def kernel(x, y, out, n):
    row, column = tl.arange(0, 24), tl.arange(0, 24)
    place = row[:, None] * 24 + column[None, :]
    a = tl.load(x + place)
    b = tl.load(y + place)
    tl.store(out + row[:, None] + column[None, :] * 24, a - b)
"""
HINTED = """
def kernel(x, y, out, n):
    i = tl.max_contiguous(tl.multiple_of(tl.arange(0, 1024), 1024), 1024)
    a = tl.load(x + i)
    tl.store(out + i, tl.where((i & 1023) < n, a, tl.load(y + i)))
"""
TAKEN = {
    "flat": FLAT, "loop": LOOP, "in place": IN_PLACE, "rows": ROWS, "columns": COLUMNS,
    "turned": TURNED, "hinted": HINTED,
}  # fmt: skip

# Elements indexed along two axes are not known to be distinct, so these must not overlap.
DISJOINT = {"rows", "columns", "turned", "padded"}

SHIFTED = """
def kernel(x, y, out, n):
    i = tl.arange(0, 1024)
    tl.store(x + (i + 512), tl.load(x + i))
"""
REVERSED = """
def kernel(x, y, out, n):
    i = tl.arange(0, 1024)
    tl.store(out + (1023 - i), tl.load(x + i))
"""
WRAPPED = """
def kernel(x, y, out, n):
    p = x + tl.arange(0, 1024) % 512
    tl.store(p, tl.load(p) + 1)
"""
EVERY_ROW = """
def kernel(x, y, out, n):
    p = x + tl.broadcast_to(tl.arange(0, 64)[None, :], (16, 64))
    tl.store(p, tl.load(p) + 1)
"""
SUMMED = """
def kernel(x, y, out, n):
    i = tl.arange(0, 1024)
    a = tl.load(x + i)
    tl.store(out + i, a + tl.sum(a, 0).to(a.dtype))
"""
NEEDED_LATER = """
def kernel(x, y, out, n):
    i = tl.arange(0, 1024)
    a = tl.load(x + i)
    tl.store(out + i, a)
    tl.debug_barrier()
    tl.store(y + i, a)
"""
CARRIED = """
def kernel(x, y, out, n):
    i = tl.arange(0, 1024)
    a = tl.load(x + i)
    for k in range(n):
        tl.store(out + i, a)
        a = tl.load(y + i)
"""
VOLATILE = """
def kernel(x, y, out, n):
    i = tl.arange(0, 1024)
    tl.store(out + i, tl.load(x + i, volatile=True))
"""
FLIPPED = """
def kernel(x, y, out, n):
    i = tl.arange(0, 1024)
    tl.store(out + i, tl.flip(tl.load(x + i)))
"""
FEW = """
def kernel(x, y, out, n):
    i = tl.arange(0, 64)
    tl.store(out + i, tl.load(x + i))
"""
LEFT = {
    "shifted": SHIFTED, "reversed": REVERSED, "wrapped": WRAPPED, "every row": EVERY_ROW,
    "summed": SUMMED, "needed later": NEEDED_LATER, "carried": CARRIED, "volatile": VOLATILE,
    "flipped": FLIPPED, "few": FEW,
}  # fmt: skip


def case(text: str, dtype: DType, *, disjoint: bool = False) -> tuple[Module, list[Any]]:
    """The kernel after the passes of all targets, and arguments, which share no memory.

    Args:
        disjoint: whether the kernel may assume that.
    """
    rng = np.random.default_rng(4)
    args = [*(random_array(Tile((LENGTH,), dtype), rng) for _ in range(3)), 700]
    kernel = kernel_from(text)
    signature = dict(zip(kernel.arg_names, map(type_string, args), strict=True))
    module = build(kernel, signature)
    if disjoint:
        for number, attrs in enumerate(module.entry.arg_attrs):
            attrs["alias"] = number
    run(module, STEPS, PassContext())
    return module, args


def stripped(module: Module, warps: int = WARPS, lanes: int = LANES) -> Module:
    module = module.clone()
    machine = gpu_machine(lanes=lanes, warps=warps)
    steps = [Step(PASSES["strip_mine"]), Step(PASSES["dce"])]
    run(module, steps, PassContext(machine=machine), [Verifier()])
    return module


def loops(module: Module) -> list[For]:
    """Those over parts of tiles."""
    return [
        op
        for op in module.walk()
        if isinstance(op, For) and any(isinstance(o, Store) for o in op.body)
    ]


def outcome(module: Module, args: list[Any]) -> list[Any]:
    copies = [a.copy() if isinstance(a, np.ndarray) else a for a in args]
    interpret(module, (1, 1, 1), copies)
    return copies


@pytest.mark.parametrize("dtype", [FP32, BF16, FP16, FP64, I8, I64], ids=str)
@pytest.mark.parametrize("name", TAKEN)
def test_strip_mined_kernel_is_equivalent(name: str, dtype: DType) -> None:
    module, args = case(TAKEN[name], dtype, disjoint=name in DISJOINT)
    before = [shape_of(op.ptr.type) for op in module.walk() if isinstance(op, Store)]
    found = stripped(module)
    after = [shape_of(op.ptr.type) for op in found.walk() if isinstance(op, Store)]
    assert len(loops(found)) == 1
    assert all(np.prod(a) < np.prod(b) for a, b in zip(after, before, strict=True))
    assert not any(isinstance(op, Load) and shape_of(op.ptr.type) in before for op in found.walk())
    for got, want in zip(outcome(found, args), outcome(module, args), strict=True):
        assert not isinstance(want, np.ndarray) or same_bits(got, want)


@pytest.mark.parametrize("name", ["flat", "loop", "rows", "columns", "hinted", "padded"])
def test_strip_mined_kernel_on_an_emulated_gpu(name: str) -> None:
    module, args = case((TAKEN | {"padded": PADDED})[name], FP32, disjoint=name in DISJOINT)
    want = outcome(module, args)
    run_emulated(module, (1, 1, 1), args, warps=WARPS, lanes=LANES)
    for got, expected in zip(args, want, strict=True):
        assert not isinstance(got, np.ndarray) or same_bits(got, expected)


@pytest.mark.parametrize("name", LEFT)
def test_tiles_that_must_not_be_divided(name: str) -> None:
    module, _ = case(LEFT[name], FP32)
    count = len(loops(module))
    assert len(loops(stripped(module))) == count


def test_programs_of_one_warp_keep_the_order_of_their_accesses() -> None:
    module, _ = case(FLAT, FP32)
    assert not loops(stripped(module, warps=1))


@pytest.mark.parametrize(
    ("name", "disjoint", "divided"),
    [("in place", False, True), ("flat", False, False), ("flat", True, True),
     ("shifted", True, False)],
)  # fmt: skip
def test_target_may_decide_and_keep_the_order_of_its_accesses(
    name: str, disjoint: bool, divided: bool
) -> None:
    """Two arguments may overlap partially unless they are known to be disjoint."""
    module, args = case((TAKEN | LEFT)[name], FP32, disjoint=disjoint)
    done = module.clone()
    mine_strips(done.entry, PassContext(), lambda _: 4, ordered=True)
    assert bool(loops(done)) == divided
    for got, want in zip(outcome(done, args), outcome(module, args), strict=True):
        assert not isinstance(want, np.ndarray) or same_bits(got, want)


# Tiles of 32 elements a thread, where there are 1024 threads; of 128 threads each may have more
# registers than that takes.
ONE = "tl.load(x + i)"
SUM_OF_TWO = "tl.load(x + i) + tl.load(y + i)"
FUSED = "a * 3.0 + a"
NOT_FUSED = "tl.exp(a * 3.0) + a"


@pytest.mark.parametrize(
    ("value", "threads", "parts"),
    [(ONE, 1024, 1), (SUM_OF_TWO, 1024, 2), (FUSED, 1024, 1), (NOT_FUSED, 1024, 2),
     (SUM_OF_TWO, 512, 1), (SUM_OF_TWO, 128, 1), (NOT_FUSED, 128, 1)],
)  # fmt: skip
def test_number_of_parts_follows_the_registers_of_a_thread(
    value: str, threads: int, parts: int
) -> None:
    count = threads * 32
    text = f"""
def kernel(x, y, out, n):
    i = tl.arange(0, {count})
    a = tl.load(x + i)
    tl.store(out + i, {value})
"""
    module, _ = case(text, FP32)
    found = stripped(module, warps=threads // 32, lanes=32)
    (store,) = (op for op in found.walk() if isinstance(op, Store))
    assert shape_of(store.ptr.type) == (count // parts,)


def test_the_slowest_axis_is_divided() -> None:
    """So that what a warp accesses at once stays as long."""
    shapes = {}
    for name in ("rows", "columns"):
        module, _ = case(TAKEN[name], FP32, disjoint=name in DISJOINT)
        store = next(op for op in stripped(module).walk() if isinstance(op, Store))
        shapes[name] = shape_of(store.ptr.type)
    assert shapes["rows"][1] == 64
    assert shapes["columns"][0] == 64


def test_outcome_of_the_kernels_is_not_trivial() -> None:
    for name, text in TAKEN.items():
        module, args = case(text, FP32, disjoint=name in DISJOINT)
        pairs = zip(args, outcome(module, args), strict=True)
        assert any(isinstance(a, np.ndarray) and not same_bits(a, b) for a, b in pairs)
