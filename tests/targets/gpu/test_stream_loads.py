"""Loops with a `num_stages` compute what they did without it, where copies arrive as late as they
may, and start no access that they did not; and their code does so on an emulated GPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tests.async_machine import AsyncMachine, Race
from tests.gpu_machine import gpu_machine
from tests.lowering.simt.harness import assert_same
from tests.targets.nvidia.lowered import ptx_of
from tilewright.base.diagnostics import InterpreterError
from tilewright.compiler.pipeline import STEPS
from tilewright.frontend.options import FrontendOptions
from tilewright.ir.core import Module
from tilewright.ir.interpret import interpret
from tilewright.ir.passes import PassContext, run
from tilewright.ops.gpu import CopyAsync, Fetch, WaitCopies
from tilewright.passes.software_pipelining import LoopRewrite
from tilewright.passes.verify_layouts import verify_layouts
from tilewright.targets.gpu.steps import steps
from tilewright.tools.signature import source_of

FEATURES = frozenset({"async_copy"})
ROWS = "*fp32:16, *fp16:16, *fp32:16, i32, i32:16"


@tw.jit
def rows_kernel(x, y, out, n, columns, BLOCK: tl.constexpr, STAGES: tl.constexpr):
    """Two streams, one of which has an address that the loop carries; rows depend on each other."""
    lanes = tl.arange(0, BLOCK)
    inside = lanes < columns
    carry = tl.zeros((BLOCK,), tl.float32)
    at = y + lanes
    for i in tl.range(tl.program_id(0), n, tl.num_programs(0), num_stages=STAGES):
        v = tl.load(x + i * BLOCK + lanes, mask=inside, other=7.0)
        w = tl.load(at, mask=i < n - 2).to(tl.float32)
        carry = v - carry * 0.5 + w
        tl.store(out + i * BLOCK + lanes, carry)
        at += 4 * BLOCK


@tw.jit
def nested_kernel(x, out, n, BLOCK: tl.constexpr, STAGES: tl.constexpr):
    """The inner loop runs again with the same slots, behind memory of a reduction."""
    lanes = tl.arange(0, BLOCK)
    for row in range(n):
        total = tl.zeros((BLOCK,), tl.int32)
        for i in tl.range(0, row, num_stages=STAGES):
            total += tl.load(x + i * BLOCK + lanes) * (row + 1)
        tl.store(out + row, tl.sum(total, 0))


def built(kernel: Any, signature: str, **constants: Any) -> Module:
    return source_of(kernel, signature, constants).module(FrontendOptions())


def rows_module(stages: int, block: int = 64) -> Module:
    return built(rows_kernel, ROWS, BLOCK=block, STAGES=stages)


def nested_module(stages: int) -> Module:
    return built(nested_kernel, "*i32:16, *i32:16, i32", BLOCK=64, STAGES=stages)


def rows_args(n: int, columns: int = 48, block: int = 64) -> list[Any]:
    rng = np.random.default_rng(n)
    x = rng.integers(-9, 9, n * block).astype(np.float32)
    y = rng.integers(-9, 9, max(n - 2, 0) * 4 * block).astype(np.float16)
    return [x, y, np.full(n * block, 99, np.float32), n, columns]


def streamed(module: Module, count: int = 2) -> Module:
    """The module after the passes of a GPU with asynchronous copies, of which it must make use."""
    module = module.clone()
    ctx = PassContext(FEATURES, machine=gpu_machine(lanes=4, warps=2))
    run(module, (*STEPS, *steps()), ctx)
    assert ctx.counts["streamed"] == count
    verify_layouts(module.entry, ctx)
    return module


def check_rows(late: Module, n: int) -> None:
    args, expected = rows_args(n), rows_args(n)
    with AsyncMachine() as machine:
        interpret(late, 1, args)
    machine.check_idle()
    interpret(rows_module(0), 1, expected)
    np.testing.assert_array_equal(args[2], expected[2])


@pytest.mark.parametrize("stages", [2, 3, 5])
def test_any_trip_count(stages: int) -> None:
    late = streamed(rows_module(stages))
    assert sum(isinstance(op, CopyAsync) for op in late.walk()) == 2 * stages
    for trips in range(stages + 3):
        check_rows(late, trips)


@pytest.mark.parametrize("stages", [2, 4])
def test_loop_in_a_loop(stages: int) -> None:
    late, x = streamed(nested_module(stages), 1), np.arange(7 * 64, dtype=np.int32)
    found, expected = (np.zeros(8, np.int32) for _ in range(2))
    with AsyncMachine() as machine:
        interpret(late, 1, [x, found, 8])
    machine.check_idle()
    interpret(nested_module(stages), 1, [x, expected, 8])
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(("lanes", "warps"), [(8, 1), (8, 4), (32, 2)])
@pytest.mark.parametrize("stages", [2, 4])
def test_on_the_emulated_gpu(lanes: int, warps: int, stages: int) -> None:
    machine: dict[str, Any] = {"lanes": lanes, "warps": warps, "features": FEATURES}
    for n in (0, 1, 5, 9):
        assert_same(rows_module(stages), (2, 1, 1), rows_args(n), **machine)
        x = np.arange(16 * 64, dtype=np.int32)
        assert_same(nested_module(stages), (1, 1, 1), [x, np.zeros(9, np.int32), n], **machine)


def test_stages_are_lowered_to_what_fits() -> None:
    module = rows_module(9, block=4096)
    machine = gpu_machine(lanes=32, warps=4, shared_bytes=64 * 1024)
    ctx = PassContext(FEATURES, machine=machine)
    run(module, (*STEPS, *steps()), ctx)
    texts = [r.text for r in ctx.missed_remarks if r.by == "stream_loads"]
    assert texts == [
        "num_stages is 3 instead of 9: more buffers do not fit into 64 KiB of shared memory"
    ]


def test_code_has_wide_copies_and_no_barriers() -> None:
    ptx = ptx_of(rows_module(4, block=2048), num_warps=8)
    assert "cp.async.cg.shared.global [%" in ptx
    assert "ld.global" not in ptx
    assert "bar.sync" not in ptx
    assert "ldmatrix" not in ptx


# -- the tests find what is wrong -----------------------------------------------------------------


def _one_iteration_too_late(self: LoopRewrite, index: Any, iterations: int) -> Any:
    return _exists(self, index, iterations - 1)


def _one_iteration_too_early(self: LoopRewrite, index: Any, iterations: int) -> Any:
    return _exists(self, index, iterations + 1)


_exists = LoopRewrite.exists_after
_WRONG = (InterpreterError, AssertionError, Race)


@pytest.mark.parametrize("mutant", [_one_iteration_too_late, _one_iteration_too_early])
def test_wrong_bound_is_found(mutant: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LoopRewrite, "exists_after", mutant)
    with pytest.raises(_WRONG, match=r"out of bounds|not equal"):
        check_rows(streamed(rows_module(3)), 5)


@pytest.mark.parametrize(
    ("name", "mutant", "message"),
    [
        ("with_other", lambda rewrite, load, tile, mapping: tile, "not equal"),
        ("_Stream._after", lambda self, slot: slot, "under way"),
    ],
)
def test_wrong_slot_or_filling_is_found(
    name: str, mutant: Any, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"tilewright.targets.gpu.stream_loads.{name}", mutant)
    with pytest.raises(_WRONG, match=message):
        check_rows(streamed(rows_module(3)), 6)


def test_missing_wait_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    late = streamed(rows_module(3))
    for op in list(late.walk()):
        if isinstance(op, WaitCopies):
            op.pending += 1
    with pytest.raises(_WRONG, match="under way"):
        check_rows(late, 4)


def test_fetch_of_copies_of_others_is_found() -> None:
    """Without `own`, the machine requires a barrier."""
    late = streamed(rows_module(3))
    for op in late.walk():
        if isinstance(op, Fetch):
            op.own = False
    with pytest.raises(_WRONG, match="under way"):
        check_rows(late, 4)
