"""Block-scaled products of loops in tensor memory: interpreted by a machine on which they end late,
and assembled.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tests.gpu.programs import Program, interpreted, source_of
from tests.targets.nvidia.tensor_products import (
    CHIP,
    all_of,
    check,
    in_loop,
    insert_before,
    lowered,
)
from tilewright.base.diagnostics import InterpreterError
from tilewright.compiler.driver import compile
from tilewright.frontend.options import FrontendOptions
from tilewright.ir.core import Module
from tilewright.ops.roles import WaitBarrier
from tilewright.ops.tensor_memory import (
    CommitProducts,
    StoreTensor,
    TensorScaledMma,
    is_scales,
)
from tilewright.targets.nvidia.scaled_kinds import MIXED, MXFP4, NVFP4
from tilewright.targets.nvidia.tensor_mma import scaled_descriptor
from tilewright.targets.protocol import GPUTarget


@tw.jit
def scaled_kernel(
    a_ptr, s_ptr, b_ptr, t_ptr, c_ptr, steps, a_row, b_row, s_row,
    A: tl.constexpr, B: tl.constexpr, M: tl.constexpr, N: tl.constexpr, BYTES: tl.constexpr,
    GROUPS: tl.constexpr, SIDES: tl.constexpr, ALONG_K: tl.constexpr,
):  # fmt: skip
    """A product of one tile; a step has `BYTES` of each row and column, and `GROUPS` scales."""
    m, n = tl.arange(0, M), tl.arange(0, N)
    inner, group = tl.arange(0, BYTES), tl.arange(0, GROUPS)
    acc = tl.zeros((M, N), tl.float32)
    for step in range(steps):
        k = step * BYTES + inner
        a = tl.load(a_ptr + m[:, None] * a_row + k[None, :])
        if ALONG_K:
            b = tl.load(b_ptr + n[None, :] * b_row + k[:, None])
        else:
            b = tl.load(b_ptr + k[:, None] * b_row + n[None, :])
        s = tl.load(s_ptr + m[:, None] * s_row + (step * GROUPS + group)[None, :])
        if SIDES > 1:
            t = tl.load(t_ptr + n[:, None] * s_row + (step * GROUPS + group)[None, :])
        else:
            t = None
        acc = tl.dot_scaled(a, s, A, b, t, B, acc)
    tl.store(c_ptr + m[:, None] * N + n[None, :], acc)


class Form(NamedTuple):
    """A block-scaled product; `typed`: elements are fp8e4nv, not bytes."""

    left: str = "e4m3"
    right: str = "e4m3"
    group: int = 32
    scale: str = "u8"
    tile: tuple[int, int] = (128, 32)
    bytes: int = 128
    sides: int = 2
    along_k: bool = True
    typed: bool = False


def program_of(form: Form, steps: int = 5) -> Program:
    """The launch, whose result is what the interpreter leaves."""
    rng = np.random.default_rng(steps)
    m, n = form.tile
    k = form.bytes * (2 if form.left == "e2m1" else 1)
    groups = k // form.group

    def elements(format: str, rows: int) -> np.ndarray:
        # Neither infinities nor NaN of 8 bits.
        mask = 0xFF if format == "e2m1" else 0xBF
        found = rng.integers(0, 256, (rows, steps * form.bytes)).astype(np.uint8)
        return found & np.uint8(mask)

    def scales(rows: int) -> np.ndarray:
        found = rng.integers(122, 132, (rows, steps * groups)).astype(np.uint8)
        return found if form.scale == "u8" else (found - 80).view(_fp8())

    a, b = elements(form.left, m), elements(form.right, n)
    if form.typed:
        a, b = a.view(_fp8()), b.view(_fp8())
    rows = b if form.along_k else np.ascontiguousarray(b.T)
    args = [
        a, scales(m), rows, scales(n), np.zeros(form.tile, np.float32),
        steps, a.shape[1], rows.shape[1], steps * groups,
    ]  # fmt: skip
    constants = {
        "A": form.left, "B": form.right, "M": m, "N": n, "BYTES": form.bytes, "GROUPS": groups,
        "SIDES": form.sides, "ALONG_K": form.along_k,
    }  # fmt: skip
    program = Program(scaled_kernel, args, constants)
    source, _ = source_of(program)
    return replace(program, expected=interpreted(program, source.module(FrontendOptions())))


def _fp8() -> Any:
    import ml_dtypes

    return ml_dtypes.float8_e4m3fn


MX = "kind::mxf8f6f4.block_scale.scale_vec::1X"
FORMS = {
    Form(): MX,
    Form("e5m2", "e4m3", tile=(256, 128)): MX,
    Form(tile=(128, 16), bytes=64): MX,
    Form(tile=(128, 64), bytes=256): MX,
    Form(tile=(128, 256), bytes=32): MX,
    Form(sides=1): MX,
    Form(typed=True): MX,
    Form("e2m1", "e2m1", bytes=64): "kind::mxf4.block_scale.scale_vec::2X",
    Form("e2m1", "e2m1", tile=(128, 128)): "kind::mxf4.block_scale.scale_vec::2X",
    Form("e2m1", "e2m1", 16, "fp8e4nv"): "kind::mxf4nvf4.block_scale.scale_vec::4X",
}
"""Forms, and the instruction for each."""

OTHERS = [
    Form("e2m1", "e2m1", 16),
    Form(tile=(64, 32)),
    Form("e4m3", "e4m3", 16),
    Form(along_k=False),
]
"""Forms for which there is no instruction, or which no tensor copy can load."""


@pytest.mark.sampled(3)
@pytest.mark.parametrize("form", FORMS, ids=str)
@pytest.mark.parametrize("warps", [4, 8])
def test_forms(form: Form, warps: int) -> None:
    for steps in (2, 5):
        program = program_of(form, steps)
        module, counts = lowered(program, num_warps=warps)
        assert (counts["tensor_mma"], counts["rings"], counts["mma"]) == (1, 1, 0)
        check(program, module)
        for seed in range(2):
            check(program, module, seed)


@pytest.mark.parametrize("form", OTHERS, ids=str)
def test_others_are_expanded(form: Form) -> None:
    program = program_of(form, 3)
    module, counts = lowered(program)
    assert (counts["tensor_mma"], counts["mma"]) == (0, 1)
    check(program, module)


@pytest.mark.parametrize("options", [{"num_warps": 2}, {"num_stages": 1}, {"tensor_copies": False}])
def test_options_that_exclude_it(options: dict[str, Any]) -> None:
    module, counts = lowered(program_of(Form(), 2), **options)
    assert (counts["tensor_mma"], counts["mma"]) == (0, 1)
    assert not all_of(module, TensorScaledMma)


def test_scales_that_do_not_change_are_stored_once() -> None:
    module, _ = lowered(program_of(Form(sides=1)))
    stores = [op for op in all_of(module, StoreTensor) if is_scales(op.value.type)]
    assert [in_loop(op) for op in stores].count(True) == 1
    assert len(stores) == 2


def test_descriptor() -> None:
    """PTX ISA, "Instruction descriptor": 4-5 and 29-30 the places of scales; 7-9 and 10-12 the
    formats; 17-22 columns / 8; 23 the type of scales; 27-28 rows / 128."""
    found = scaled_descriptor(MIXED, ("e5m2", "e4m3"), (128, 256), 3)
    assert found == 3 << 4 | 1 << 7 | 32 << 17 | 1 << 23 | 1 << 27 | 3 << 29
    found = scaled_descriptor(MXFP4, ("e2m1", "e2m1"), (128, 16), 2)
    assert found == 2 << 4 | 1 << 7 | 1 << 10 | 2 << 17 | 1 << 23 | 1 << 27 | 2 << 29
    found = scaled_descriptor(NVFP4, ("e2m1", "e2m1"), (128, 64), 0)
    assert found == 1 << 7 | 1 << 10 | 8 << 17 | 1 << 27


# -- mutants --------------------------------------------------------------------------------------


def _scale_stores(module: Module) -> list[StoreTensor]:
    return [op for op in all_of(module, StoreTensor) if is_scales(op.value.type) and in_loop(op)]


def _products_waits(module: Module) -> list[WaitBarrier]:
    """The waits of the loop for products."""
    waits = [op for op in all_of(module, WaitBarrier) if in_loop(op)]
    return [op for op in waits if isinstance(op.prev, CommitProducts)]


def _without_the_wait(module: Module) -> None:
    (wait,) = _products_waits(module)
    wait.erase()


def _without_the_commit(module: Module) -> None:
    (wait,) = _products_waits(module)
    assert wait.prev is not None
    wait.prev.erase()


def _commit_before_the_product(module: Module) -> None:
    (wait,) = _products_waits(module)
    commit = wait.prev
    assert commit is not None
    (mma,) = all_of(module, TensorScaledMma)
    commit.remove()
    insert_before(commit, mma)


def _constant_parity(module: Module) -> None:
    (wait,) = _products_waits(module)
    loop = wait.parent_op()
    assert loop is not None
    number = loop.regions[0].args.index(wait.parity)
    wait.set_operand(2, loop.operands[2 + number])


def _scales_of_the_iteration_before(module: Module) -> None:
    """The product takes what is in memory when it starts: the scales are stored after it."""
    for store in _scale_stores(module):
        store.result.replace_with(store.memory)


MUTANTS = [
    _without_the_wait, _without_the_commit, _commit_before_the_product, _constant_parity,
    _scales_of_the_iteration_before,
]  # fmt: skip


@cache
def _subject() -> tuple[Program, Module]:
    """What is spoiled in copies; right itself."""
    program = program_of(Form(), 9)
    module, _ = lowered(program)
    check(program, module)
    return program, module


@pytest.mark.sampled(3)
@pytest.mark.parametrize("spoil", MUTANTS)
def test_mutants_are_found(spoil: Callable[[Module], None]) -> None:
    program, module = _subject()
    module = module.clone()
    spoil(module)
    with pytest.raises((InterpreterError, AssertionError)):
        check(program, module)


# -- code -----------------------------------------------------------------------------------------


@pytest.mark.sampled(3)
@pytest.mark.parametrize("warps", [4, 8])
@pytest.mark.parametrize(("form", "name"), FORMS.items(), ids=str)
def test_instructions(form: Form, name: str, warps: int) -> None:
    """One for each 128 rows, 256 columns and 32 bytes along K; each warp stores a word for 32 rows
    and four scales of each."""
    options = {"num_warps": warps, "num_stages": 2}
    kernel = compile(source_of(program_of(form, 2))[0], target=CHIP, options=options)
    text = kernel.asm["ptx"]
    assert isinstance(text, str)
    m, n = form.tile
    assert text.count(f"tcgen05.mma.cta_group::1.{name} ") == m // 128 * (form.bytes // 32)
    assert "mma.sync" not in text
    k = form.bytes * (2 if form.left == "e2m1" else 1)
    words = -(-k // form.group // 4)
    stores = re.findall(r"tcgen05\.st\.sync\.aligned\.32x32b\.x(\d+)\.b32", text)
    scales = words * (m // 32 + max(n // 32, 1))
    assert sum(map(int, stores)) == scales + m * n // (32 * warps)
    assert kernel.asm["cubin"]


@pytest.mark.parametrize("chip", [103, 110])
def test_other_chips_with_tensor_memory(chip: int) -> None:
    target = GPUTarget("cuda", chip, 32)
    kernel = compile(source_of(program_of(Form(), 2))[0], target=target)
    assert f".{MX} " in str(kernel.asm["ptx"])
    assert kernel.asm["cubin"]
