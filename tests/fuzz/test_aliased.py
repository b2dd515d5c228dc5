"""Kernels launched with arrays that overlap in other ways than those of earlier launches."""

from __future__ import annotations

import pytest

from tests.fuzz.programs.aliased import check_aliased
from tests.fuzz.programs.check import Difference
from tilewright.runtime import specialize


def test_random_kernel_agrees_for_arrays_that_overlap(fuzz_seed: int) -> None:
    if fuzz_seed % 5 == 3:
        check_aliased(fuzz_seed)


def check_many() -> None:
    for seed in range(200):
        check_aliased(seed)


def test_a_key_without_alias_classes_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The variant of arrays that are apart would run for arrays that overlap."""

    def none(extents: list[tuple[int, int]], devices: str) -> tuple[int, ...]:
        return ()

    monkeypatch.setattr(specialize, "_aliases", none)
    with pytest.raises(Difference, match="differs on launch"):
        check_many()
