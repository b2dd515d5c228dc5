"""Random programs leave in memory what NumPy does, which is told what they mean apart.

Many at once are run by

    python -m tests.fuzz.run --numpy=20000 --numpy-emulated=5000 --processes=16

and, on a machine with a GPU, with ``--numpy-launched``.
"""

from __future__ import annotations

import numpy as np
import pytest

from tests.fuzz.numpy_programs import check as checks
from tests.fuzz.numpy_programs.generator import random_program
from tests.fuzz.numpy_programs.meaning import leave
from tests.fuzz.programs.check import Difference
from tests.fuzz.test_programs import agrees

SEEDS = 4


@pytest.mark.parametrize("place", range(SEEDS))
def test_random_program_is_what_numpy_computes_on_the_cpu(fuzz_seed: int, place: int) -> None:
    agrees(random_program(fuzz_seed * SEEDS + place), checks.check)


def test_random_program_is_what_numpy_computes_on_an_emulated_gpu(fuzz_seed: int) -> None:
    if fuzz_seed % 2:
        agrees(random_program(fuzz_seed), checks.check_emulated)


def test_random_program_is_what_numpy_computes_when_launched(fuzz_seed: int) -> None:
    if fuzz_seed % 5 == 0:
        agrees(random_program(fuzz_seed), checks.check_launched)


KERNEL = """
@tw.jit
def kernel(x, y, n, N: tl.constexpr):
    i = tl.arange(0, N)
    values = tl.load(x + i)
    step = 3
    for k in range(n):
        if k > 1:
            break
        values = values * 2.0
    result = values.to(tl.int8).to(tl.int32) // step
    tl.store(y + (N - 1 - i), result, mask=values == values)
"""


def test_meaning_of_a_program() -> None:
    """Doubled twice, saturated to int8, divided towards zero, stored in reverse but for NaN."""
    x = np.array([1.5, -1.9, 100.0, np.nan], np.float16)
    y = np.full(4, 9, np.int32)
    leave(KERNEL, [x, y, 5], ["*float16", "*int32", ""], {"N": 4}, (1,))
    assert y.tolist() == [9, 42, -2, 2]


def test_wrong_result_is_a_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "run_compiled", lambda *_, **__: None)
    with pytest.raises(Difference, match="on the CPU in "):
        checks.check(random_program(0))
