"""Kernels that differ only in their form leave the same memory, interpreted and on every target."""

from __future__ import annotations

from tests.fuzz.forms.check import check_forms, check_forms_emulated


def test_forms_agree_on_the_cpu(fuzz_seed: int) -> None:
    check_forms(fuzz_seed)


def test_forms_agree_on_emulated_processors(fuzz_seed: int) -> None:
    if fuzz_seed % 4 == 0:  # emulators are slow
        check_forms_emulated(fuzz_seed)
