"""Products in flight and copies ahead, after all passes, where both end as late as they may.

See `tests/async_machine.py`. The kernels run after the whole pipeline for an H200, interpreted.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tests.async_machine import AsyncMachine, Race
from tests.gpu import products
from tests.gpu.programs import Program, difference, interpreted, source_of
from tests.gpu.recipes import integral, rng_of
from tilewright.base import knobs
from tilewright.base.diagnostics import InterpreterError
from tilewright.compiler.build import context_for
from tilewright.compiler.pipeline import pipeline
from tilewright.compiler.source import ASTSource
from tilewright.ir.core import Module, Op
from tilewright.ir.passes import PassContext, Verifier, run
from tilewright.ir.types import FP16, dtype_of, shape_of
from tilewright.ops.control import Barrier, For
from tilewright.ops.dot import Dot
from tilewright.ops.gpu import Allocate, ConvertLayout, CopyAsync, Fetch, Share, WaitCopies
from tilewright.ops.nvidia import FetchAcross, Mma, Wgmma, WgmmaWait
from tilewright.ops.shape import Permute
from tilewright.passes.verify_layouts import LayoutVerifier
from tilewright.targets.nvidia.target import NvidiaTarget

TARGET = NvidiaTarget(90)
TILE = 64, 64, 32


def lowered(
    program: Program, warps: int, stages: int, tensor_copies: bool = False
) -> tuple[Module, Counter[str]]:
    """The program's IR after all passes, and what they have done."""
    module, ctx = compiled(program, num_warps=warps, num_stages=stages, tensor_copies=tensor_copies)
    return module, ctx.counts


_compiled: dict[object, tuple[Module, PassContext]] = {}


def compiled(program: Program, **given: Any) -> tuple[Module, PassContext]:
    """The program's IR after all passes with these options, and their context.

    A test that runs a kernel on several arguments, such as numbers of steps, compiles it once.
    """
    source, _ = source_of(program)
    test, disabled = os.environ["PYTEST_CURRENT_TEST"], knobs.compilation.disabled_passes
    key = test, disabled, source.hash(), repr(given)
    if key not in _compiled:
        _compiled.clear()
        _compiled[key] = _compile(source, given)
    module, ctx = _compiled[key]
    return module.clone(), ctx


def _compile(source: ASTSource, given: dict[str, Any]) -> tuple[Module, PassContext]:
    options = TARGET.parse_options(given)
    module = source.module(TARGET.frontend_options(options))
    ctx = context_for(TARGET, options)
    run(module, pipeline(TARGET), ctx, [Verifier(), LayoutVerifier(ctx)])
    return module, ctx


def check(
    program: Program,
    module: Module,
    seed: int | None = None,
    *,
    spare: bool = False,
    blocks: int | None = None,
) -> None:
    """Interpret late; memory must be as the program says, or as the interpreter leaves it."""
    with AsyncMachine(seed, spare=spare) as machine:
        ours = interpreted(program, module, blocks)
    machine.check_idle()
    assert program.expected is not None
    for actual, expected in zip(ours, program.expected, strict=True):
        assert not difference(actual, expected, program.bound)


def count(module: Module, cls: type[Op]) -> int:
    return sum(isinstance(op, cls) for op in module.walk())


def square(steps: int, orders: str = "nn", type: str = "fp16") -> Program:
    """A product of one tile in `steps` steps of K."""
    return products.matmul(type, "fp32", orders, (64, 64, 32 * steps), TILE)


@pytest.mark.parametrize("stages", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("orders", ["nn", "nt", "tn", "tt"])
def test_matmul(orders: str, stages: int) -> None:
    for steps in range(stages + 3):
        program = square(steps, orders)
        module, counts = lowered(program, 4, stages)
        assert counts["pipelined"] == counts["overlapped"] == (stages > 1)
        check(program, module)


def few_rows(steps: int, rows: int = 16, columns: int = 64) -> Program:
    """A product whose slots leave memory for few programs."""
    shape = rows, columns, 128
    return products.matmul("fp16", "fp32", "nt", (*shape[:2], 128 * steps), shape)


@pytest.mark.parametrize(("stages", "rows", "columns"), [(3, 16, 64), (4, 32, 32)])
def test_copies_to_the_slot_that_has_been_read(stages: int, rows: int, columns: int) -> None:
    for steps in range(stages + 2):
        program = few_rows(steps, rows, columns)
        module, counts = lowered(program, 4, stages)
        assert counts["late"] == 1
        slots = {shape_of(op.type)[0] for op in module.walk() if isinstance(op, Allocate)}
        assert slots == {stages - 1}
        check(program, module)


def test_two_programs_keep_all_slots() -> None:
    assert lowered(few_rows(6), 4, 4)[1]["late"] == 0


@pytest.mark.parametrize("number", [0, 1])
def test_both_barriers_of_such_a_loop_are_needed(number: int) -> None:
    program = few_rows(6)
    module, _ = lowered(program, 4, 3)
    (loop,) = (op for op in module.walk() if isinstance(op, For))
    [op for op in loop.body if isinstance(op, Barrier)][number].erase()
    with pytest.raises(InterpreterError) as found:
        check(program, module)
    assert isinstance(found.value.__cause__, Race)


@pytest.mark.parametrize("warps", [1, 2, 4, 8])
def test_matmul_by_either_instruction(warps: int) -> None:
    program = products.matmul("fp16", "fp32", "nn", (128, 128, 160), (128, 128, 32))
    module, counts = lowered(program, warps, 3)
    assert count(module, Wgmma if warps >= 4 else Mma) == 1
    assert counts["pipelined"] == 1
    check(program, module)


@pytest.mark.parametrize("type", ["bf16", "fp8e5", "fp32"])
def test_matmul_of_other_types(type: str) -> None:
    program = square(5, "nt", type)
    module, counts = lowered(program, 4, 4)
    assert counts["overlapped"] == 1
    check(program, module)


@pytest.mark.parametrize("type", ["i8", "fp8e5", "fp32"])
@pytest.mark.parametrize("orders", ["nn", "tn", "tt"])
@pytest.mark.parametrize("tensor_copies", [False, True])
def test_operands_across_k(type: str, orders: str, tensor_copies: bool) -> None:
    """One is fetched from its slot in each iteration, the other read from it by the product; with
    ``nn``, the loop carries the transposed sum. With ``tn``, the other is fetched, too, and shared
    along K."""
    out = "i32" if type == "i8" else "fp32"
    for steps in range(5):
        program = products.matmul(type, out, orders, (128, 64, 32 * steps), (128, 64, 32))
        module, counts = lowered(program, 4, 3, tensor_copies)
        assert counts["transposed products"] == (orders == "nn")
        assert count(module, FetchAcross) == (orders == "tn")
        assert counts["rings" if tensor_copies else "pipelined"] == 1
        assert not any(isinstance(op, Permute) for op in _loop_of(module, Wgmma).walk())
        check(program, module)


def _loop_of(module: Module, cls: type[Op]) -> Op:
    (found,) = (op for op in module.walk() if isinstance(op, cls))
    loop = found.parent_op()
    assert isinstance(loop, For)
    return loop


@pytest.mark.parametrize("type", ["fp8e4b8", "fp8e5b16", "fp8e4b15"])
@pytest.mark.filterwarnings("ignore:fp8e4b15 is deprecated")
def test_matmul_of_fp8_without_an_instruction(type: str) -> None:
    program = square(3, "nt", type)
    module, _ = lowered(program, 4, 3)
    (found,) = (op for op in module.walk() if isinstance(op, Wgmma))
    assert dtype_of(found.rhs.type) == FP16
    check(program, module)


@pytest.mark.parametrize(("precision", "terms"), [("tf32x3", 3), ("bf16x3", 3), ("bf16x6", 6)])
@pytest.mark.parametrize("warps", [2, 4])
def test_matmul_of_split_numbers(precision: str, terms: int, warps: int) -> None:
    shape, tile = (64, 64, 64), (64, 64, 32)
    program = products.matmul("fp32", "fp32", "nn", shape, tile, precision)
    module, _ = lowered(program, warps, 2)
    assert count(module, Dot) == terms
    check(program, module)


@pytest.mark.parametrize("tensor_copies", [False, True])
@pytest.mark.parametrize("stages", [2, 3])
def test_operands_in_registers_are_computed_in_their_layout(
    stages: int, tensor_copies: bool
) -> None:
    """The parts of the left side: its slots are read in the layout of the instruction, and nothing
    is exchanged between threads."""
    for steps in range(stages + 2):
        shape, tile = (64, 64, 32 * steps), (64, 64, 32)
        program = products.matmul("fp32", "fp32", "nn", shape, tile, "tf32x3")
        module, counts = lowered(program, 4, stages, tensor_copies)
        assert counts["rings" if tensor_copies else "pipelined"] == 1
        loop = next(op.parent_op() for op in module.walk() if isinstance(op, Wgmma))
        assert isinstance(loop, For)
        assert not any(isinstance(op, ConvertLayout) for op in loop.body.walk())
        check(program, module)


@tw.jit
def both_sides_kernel(x_ptr, scales_ptr, c_ptr, steps):
    """The sum of the products of tiles, scaled by rows, and themselves, transposed."""
    m, k = tl.arange(0, 64), tl.arange(0, 32)
    scales = tl.load(scales_ptr + m)
    acc = tl.zeros((64, 64), tl.float32)
    for step in range(steps):
        x = tl.load(x_ptr + step * 2048 + m[:, None] * 32 + k[None, :])
        acc = tl.dot(x * scales[:, None], tl.trans(x), acc)
    tl.store(c_ptr + m[:, None] * 64 + m[None, :], acc)


@pytest.mark.parametrize("tensor_copies", [False, True])
@pytest.mark.parametrize("stages", [1, 2, 3])
def test_a_tile_is_staged_once_for_both_sides(stages: int, tensor_copies: bool) -> None:
    rng = rng_of(stages)
    for steps in range(2, stages + 3):
        x, scales = integral("fp16", (steps, 64, 32), rng), integral("fp16", (64,), rng)
        acc = np.zeros((64, 64), np.float32)
        for each in x.astype(np.float32):
            acc += (each * scales.astype(np.float32)[:, None]) @ each.T
        args = [x, scales, np.zeros_like(acc), steps]
        program = Program(both_sides_kernel, args, {}, (1,), 2e-5, [x, scales, acc])
        module, _ = lowered(program, 4, stages, tensor_copies)
        loop = next(op.parent_op() for op in module.walk() if isinstance(op, Wgmma))
        assert isinstance(loop, For)
        assert not any(isinstance(op, ConvertLayout) for op in loop.body.walk())
        assert count(module, Fetch) == 1
        assert count(module, Share) == (stages == 1)
        check(program, module)


@pytest.mark.parametrize("precision", ["tf32x3", "bf16x3", "bf16x6"])
def test_split_infinities_and_nan(precision: str) -> None:
    program = products.matmul("fp32", "fp32", "nn", (16, 16, 32), (16, 16, 32), precision)
    a = program.args[0]
    a[0, 0], a[1, 1] = np.inf, np.float32(np.nan)
    exact = a.astype(np.float64) @ program.args[1].astype(np.float64)
    module, _ = lowered(program, 1, 1)
    with np.errstate(invalid="ignore"):
        found = interpreted(program, module)[2]
    np.testing.assert_array_equal(np.isnan(found), np.isnan(exact))
    np.testing.assert_array_equal(found[0], np.sign(program.args[1][0]) * np.float32(np.inf))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("warps", "stages"), [(4, 1), (4, 2), (4, 3), (8, 4)])
def test_attention(causal: bool, warps: int, stages: int) -> None:
    program = products.attention(64, 128, 128, (128, 32), causal, heads=1)
    module, counts = lowered(program, warps, stages)
    loops = 2 if causal else 1
    assert counts["pipelined"] == (loops if stages > 1 else 0)
    assert not counts["overlapped"]  # the next step needs the product at once
    check(program, module)


@pytest.mark.parametrize("stages", [1, 2, 3, 4])
@pytest.mark.parametrize("steps", [1, 2, 5])
@pytest.mark.parametrize("transposed", [False, True])
def test_loop_in_a_loop(stages: int, steps: int, transposed: bool) -> None:
    program = products.persistent(3, steps, 64, 64, programs=1, transposed=transposed)
    module, counts = lowered(program, 4, stages)
    assert counts["overlapped"] == (stages > 1 and steps > 1)  # one step is no loop
    check(program, module)


@pytest.mark.parametrize(("warps", "stages"), [(2, 3), (4, 1), (8, 4)])
def test_computed_right_side(warps: int, stages: int) -> None:
    program = products.computed(4, 128, 64)
    module, counts = lowered(program, warps, stages)
    assert not counts["overlapped"]
    check(program, module)


# -- where a product may not run on ---------------------------------------------------------------


@tw.jit
def used_kernel(a_ptr, b_ptr, c_ptr, steps, BEFORE: tl.constexpr, AFTER: tl.constexpr):
    """The operand is computed in each step, or the sum is scaled."""
    m, n, k = tl.arange(0, 64)[:, None], tl.arange(0, 64)[None, :], tl.arange(0, 32)
    a_tile, b_tile = a_ptr + m * 32 + k[None, :], b_ptr + k[:, None] * 64 + n
    acc = tl.zeros((64, 64), tl.float32)
    for step in range(steps):
        a, b = tl.load(a_tile + step * 2048), tl.load(b_tile + step * 2048)
        acc = tl.dot(a * BEFORE, b, acc) * AFTER
    tl.store(c_ptr + m * 64 + n, acc)


def used(steps: int, before: float, after: float) -> Program:
    a, b = products.matrix("fp16", 64 * steps, 32), products.matrix("fp16", 32 * steps, 64)
    acc = np.zeros((64, 64))
    for i in range(steps):
        x, y = a[64 * i :][:64].astype(float), b[32 * i :][:32].astype(float)
        acc = (acc + x * before @ y) * after
    args = [a, b, np.zeros((64, 64), np.float32), steps]
    return Program(used_kernel, args, {"BEFORE": before, "AFTER": after}, (1,), 1e-3,
                   [a, b, acc.astype(np.float32)])  # fmt: skip


@pytest.mark.parametrize(("before", "after"), [(0.5, 1.0), (1.0, 0.5)])
def test_product_that_is_used_immediately(before: float, after: float) -> None:
    program = used(6, before, after)
    module, counts = lowered(program, 4, 3)
    assert counts["wgmma"] == counts["pipelined"] == 1
    assert counts["overlapped"] == 0
    check(program, module)


# -- the machine finds what is wrong --------------------------------------------------------------


def _erase_barriers(op: Op) -> None:
    if isinstance(op, Barrier):
        op.erase()


def _wait_for_fewer_copies(op: Op) -> None:
    if isinstance(op, WaitCopies):
        op.pending += 1


def _wait_for_fewer_products(op: Op) -> None:
    if isinstance(op, WgmmaWait):
        op.pending += 1


@pytest.mark.parametrize(
    "spoil", [_erase_barriers, _wait_for_fewer_copies, _wait_for_fewer_products]
)
def test_race_is_found(spoil: Callable[[Op], None]) -> None:
    program = square(6)
    module, _ = lowered(program, 4, 3)
    (loop,) = (op for op in module.walk() if isinstance(op, For))
    assert count(module, CopyAsync) == 6
    for op in list(loop.body):
        spoil(op)
    with pytest.raises(InterpreterError) as found:
        check(program, module)
    assert isinstance(found.value.__cause__, Race)


@tw.jit
def distances_kernel(x_ptr, y_ptr, out_ptr, N, B: tl.constexpr):
    """Sums over the rows of y: of their squares minus twice their products with those of x."""
    m, k = tl.arange(0, B), tl.arange(0, B)
    x = tl.load(x_ptr + m[:, None] * B + k[None, :])
    total = tl.zeros((B, B), tl.float32)
    for start in range(0, N, B):
        y = tl.load(y_ptr + (start + m[:, None]) * B + k[None, :])
        norm = tl.sum(y.to(tl.float32) * y.to(tl.float32), 1)
        total = total * 2.0 + norm[None, :] - 2.0 * tl.dot(x, tl.trans(y))
    tl.store(out_ptr + m[:, None] * B + k[None, :], total)


@pytest.mark.parametrize("stages", [2, 3])
def test_an_operand_is_read_by_threads_and_by_the_product(stages: int) -> None:
    for steps in range(5):
        rng = rng_of(steps, stages)
        x, y = integral("fp16", (64, 64), rng), integral("fp16", (64 * steps, 64), rng)
        expected = np.zeros((64, 64), np.float32)
        for part in y.astype(np.float32).reshape(steps, 64, 64):
            expected = 2 * expected + (part * part).sum(1) - 2 * x.astype(np.float32) @ part.T
        args = [x, y, np.zeros((64, 64), np.float32), 64 * steps]
        program = Program(
            distances_kernel, args, {"B": 64}, (1, 1, 1), None, [x, y, expected.astype(np.float32)]
        )
        module, counts = lowered(program, 4, stages)
        assert counts["fetched operands"] == 1
        check(program, module, seed=steps)
