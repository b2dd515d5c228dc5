"""Conversions from and to fp8 on the CPU, all of them, against a list of the type's values."""

from typing import Any

import numpy as np
import pytest

from tests.frontend.kernels import build, kernel_from
from tests.ops.exact import FORMATS
from tests.ops.fp8_reference import FP8, WIDER, canonical, inputs, narrowed, values
from tests.targets.cpu.harness import PLAIN_AVX2, host, run_compiled
from tilewright.ir import types as ir

SIZE = 1024

KERNEL = f"""
def kernel(source, out, TO: tl.constexpr, ROUNDING: tl.constexpr):
    at = tl.program_id(0) * {SIZE} + tl.arange(0, {SIZE})
    tl.store(out + at, tl.load(source + at).to(TO, ROUNDING))
"""


def cast(
    numbers: np.ndarray, source: ir.DType, to: ir.DType, rounding: str | None, features: Any = None
) -> np.ndarray:
    """The numbers converted by programs of one tile each."""
    signature = {"source": f"*{source.short}", "out": f"*{to.short}"}
    module = build(kernel_from(KERNEL), signature, {"TO": to, "ROUNDING": rounding})
    programs = -(-len(numbers) // SIZE)
    out = np.zeros(programs * SIZE, to.numpy)
    args = [np.resize(numbers, programs * SIZE), out]
    run_compiled(module, (programs, 1, 1), args, machine=host(features))
    return out[: len(numbers)]


@pytest.mark.parametrize("to", WIDER, ids=str)
@pytest.mark.parametrize("source", FP8, ids=str)
def test_every_fp8_number_widens_exactly(source: ir.DType, to: ir.DType) -> None:
    numbers = np.arange(256, dtype=np.uint8).view(source.numpy)
    found = cast(numbers, source, to, None).astype(np.float64)
    expected = values(FORMATS[source.short])
    np.testing.assert_array_equal(found, expected)
    known = ~np.isnan(expected)
    assert (np.signbit(found) == np.signbit(expected))[known].all()


@pytest.mark.sampled(3)
@pytest.mark.parametrize("features", [None, PLAIN_AVX2], ids=["host", "avx2"])
@pytest.mark.parametrize("rounding", ["rtne", "rtz"])
@pytest.mark.parametrize("to", FP8, ids=str)
@pytest.mark.parametrize("source", WIDER, ids=str)
def test_narrowing_to_fp8(
    source: ir.DType, to: ir.DType, rounding: str, features: str | None
) -> None:
    numbers = inputs(source, to)
    found = cast(numbers, source, to, rounding, features).view(np.uint8)
    wrong = np.nonzero(canonical(found, to) != narrowed(numbers, to, rounding))[0]
    assert not wrong.size, f"{len(wrong)}, first {numbers[wrong[0]]!r}"
