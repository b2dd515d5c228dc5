"""Conversions of fp8, for all numbers, on the emulator."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tests.amd_emulator.launch import launch, target_of
from tests.targets.amd.product_loops import loops_of
from tests.targets.amd.sources import WAVE_32, WAVE_64, compiled
from tests.targets.amd.test_mma import matmul
from tilewright.compiler.driver import compile
from tilewright.compiler.source import ASTSource
from tilewright.ir.types import BY_SHORT
from tilewright.ops.numeric import float_to_float

FP8 = ("fp8e5", "fp8e4nv", "fp8e4b8", "fp8e5b16", "fp8e4b15")


@tw.jit
def widen(x_ptr, out_ptr, FROM: tl.constexpr):
    i = tl.arange(0, 256)
    x = tl.load(x_ptr + i).to(FROM, bitcast=True)
    tl.store(out_ptr + i, x.to(out_ptr.dtype.element_ty))


@pytest.mark.parametrize("arch", [WAVE_64, WAVE_32])
@pytest.mark.parametrize("to", ["fp16", "fp32", "fp64", "bf16"])
@pytest.mark.parametrize("source", FP8)
def test_all_numbers_widen_exactly(source: str, to: str, arch: str) -> None:
    element, wide = BY_SHORT[source], BY_SHORT[to]
    types = {"x_ptr": "*u8", "out_ptr": f"*{to}"}
    kernel = compile(ASTSource(widen, types, {"FROM": element}), target_of(arch), {"num_warps": 1})
    x = np.arange(256).astype(np.uint8)
    _, found = launch(kernel.asm["hsaco"], arch, 1, (1,), [x, np.zeros(256, wide.numpy)])
    if source == "fp8e4b15":  # has no type of NumPy, and neither infinities nor NaN
        exponent, mantissa = (x >> 3 & 15).astype(int), (x & 7) / 8
        size = np.where(exponent, 1 + mantissa, mantissa) * 2.0 ** (np.maximum(exponent, 1) - 15)
        right = np.where(x >> 7, -size, size).astype(wide.numpy)
    else:
        right = float_to_float(x.view(element.numpy), wide, "rtne")
    nan = np.isnan(right.astype(np.float64))
    assert np.array_equal(np.isnan(found.astype(np.float64)), nan)
    assert found[~nan].tobytes() == right[~nan].tobytes()


@pytest.mark.parametrize("source", ["fp8e5", "fp8e4nv"])
def test_numbers_that_are_alone_in_a_thread_widen_exactly(source: str) -> None:
    types, constants = {"x_ptr": "*u8", "out_ptr": "*fp16"}, {"FROM": BY_SHORT[source]}
    kernel = compile(ASTSource(widen, types, constants), target_of(WAVE_32), {"num_warps": 8})
    x = np.arange(256).astype(np.uint8)
    _, found = launch(kernel.asm["hsaco"], WAVE_32, 8, (1,), [x, np.zeros(256, np.float16)])
    right = float_to_float(x.view(BY_SHORT[source].numpy), BY_SHORT["fp16"], "rtne")
    assert np.array_equal(np.isnan(found), np.isnan(right))
    assert found[~np.isnan(right)].tobytes() == right[~np.isnan(right)].tobytes()


@pytest.mark.parametrize(
    ("arch", "source", "step", "most"),
    [
        (WAVE_64, "fp8e5", 64, 230),
        (WAVE_32, "fp8e5", 64, 460),
        (WAVE_64, "fp8e4nv", 64, 355),
        (WAVE_32, "fp8e4nv", 64, 800),
        (WAVE_32, "fp8e4nv", 128, 1700),
    ],
)
def test_operands_are_converted_before_they_are_shared(
    arch: str, source: str, step: int, most: int
) -> None:
    """A thread converts its part of both tiles, 128 elements with 64 lanes and 64 columns: one or
    three instructions an element. On RDNA3, four times as many would be converted behind shared
    memory, in 10,600 instructions for 128 columns: the operands may have all of it."""
    types = {**dict.fromkeys(("a_ptr", "b_ptr"), f"*{source}"), "c_ptr": "*fp32"}
    types |= dict.fromkeys(("K", "stride_a", "stride_b", "stride_c"), "i32")
    kernel = compiled(matmul, types, arch, 4, M=128, N=128, STEP=step, SUM=tl.float32)
    assert max(loops_of(str(kernel.asm["amdgcn"]))) <= most
    assert kernel.metadata.n_spills == 0 or step > 64


def test_operands_that_would_not_fit_are_converted_after_shared_memory() -> None:
    types = {**dict.fromkeys(("a_ptr", "b_ptr"), "*fp8e5"), "c_ptr": "*fp32"}
    types |= dict.fromkeys(("K", "stride_a", "stride_b", "stride_c"), "i32")
    kernel = compiled(matmul, types, WAVE_64, 8, M=256, N=128, STEP=128, SUM=tl.float32)
    assert kernel.metadata.shared <= 64 * 1024
