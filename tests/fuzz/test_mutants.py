"""Edited kernels of people leave the same memory on every target (`mutants/check.py`)."""

from __future__ import annotations

import random

from tests.fuzz.mutants.check import (
    Invalid,
    check_mutant,
    check_mutant_emulated,
    original,
    valid_mutant,
    validated,
)
from tests.fuzz.mutants.corpus import families


def test_mutant_agrees_on_the_cpu(fuzz_seed: int) -> None:
    check_mutant(fuzz_seed)


def test_mutant_agrees_on_an_emulated_gpu(fuzz_seed: int) -> None:
    if fuzz_seed % 5 == 0:  # the emulator is slow
        check_mutant_emulated(fuzz_seed)


def test_a_seed_has_one_mutant() -> None:
    first, second = valid_mutant(3), valid_mutant(3)
    assert first is not None
    assert second is not None
    assert first.mutant.text() == second.mutant.text()
    assert first.mutant.edits == second.mutant.edits


def test_kernels_of_the_corpus_are_valid_as_they_are() -> None:
    """What the edits begin with; a few are of what the interpreter lacks."""
    valid = 0
    for seed in range(40):
        try:
            validated(original(random.Random(seed)))
        except Invalid:
            continue
        valid += 1
    assert valid >= 30


def test_the_corpus_holds_the_examples() -> None:
    names = {family.name for family in families()}
    assert {"top_k", "layer_norm_forward", "quantized_matmul"} <= names
    assert len(names) > 300
