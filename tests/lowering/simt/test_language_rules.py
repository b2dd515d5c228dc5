"""Aggregates, loops that are left, and tiles that are cut, on the emulated GPU."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.frontend.kernels import build, jit
from tests.language_programs import cut, first_above, streams
from tests.lowering.simt.harness import assert_same

DATA = np.random.default_rng(3).uniform(-1, 1, 400).astype(np.float32)
INTS = np.arange(64, dtype=np.int32) * 7
FLOATS = {"out": "*fp32", "x": "*fp32"}

CASES: list[tuple[Callable[..., Any], dict[str, str], dict[str, Any], list[Any], int]] = [
    (
        streams,
        {**FLOATS, "y": "*fp32", "n": "i32"},
        {"size": 16},
        [np.zeros(16, np.float32), DATA[:64], DATA[64:128], 3],
        1,
    ),
    (
        first_above,
        {**FLOATS, "rows": "i32", "limit": "fp32"},
        {"N": 8},
        [np.zeros(96, np.float32), DATA[:240], 5, np.float32(0.9)],
        6,
    ),
    (
        cut,
        {"out": "*i32", "x": "*i32", "i": "i32"},
        {"N": 8},
        [np.zeros(40, np.int32), INTS, 5],
        1,
    ),
]


@pytest.mark.parametrize("warps", [1, 2])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0].__name__)
def test_kernel_agrees_with_the_interpreter(case: Any, warps: int) -> None:
    fn, signature, constants, args, programs = case
    module = build(jit(fn), signature, constants)
    assert_same(module, (programs, 1, 1), args, warps=warps)
