"""Edited kernels of people leave the same memory on every target (`mutants/check.py`)."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tests.arrays import copied
from tests.fuzz.mutants.check import (
    Invalid,
    check_mutant,
    check_mutant_amd,
    check_mutant_emulated,
    original,
    valid_mutant,
    validated,
)
from tests.fuzz.mutants.corpus import families
from tests.fuzz.mutants.rounding import alternatives, differs
from tests.fuzz.programs.check import build
from tests.gpu.programs import Program
from tilewright.ir.core import Module
from tilewright.ir.interpret import interpret


def test_mutant_agrees_on_the_cpu(fuzz_seed: int) -> None:
    check_mutant(fuzz_seed)


def test_mutant_agrees_on_an_emulated_gpu(fuzz_seed: int) -> None:
    if fuzz_seed % 5 == 0:  # the emulator is slow
        check_mutant_emulated(fuzz_seed)


def test_mutant_agrees_on_an_emulated_amd_processor(fuzz_seed: int) -> None:
    if fuzz_seed % 5 == 1:
        check_mutant_amd(fuzz_seed)


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


@tw.jit
def prefix_sums(out, x, n, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(out + i, tl.cumsum(tl.load(x + i), 0))


def _prefix_sums(x: np.ndarray) -> tuple[Module, list[Any]]:
    launch = Program(prefix_sums, [np.zeros_like(x), x, len(x)], {"N": len(x)})
    return build(launch)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_sums_of_other_groupings_are_within_what_the_data_allow(dtype: str) -> None:
    """Numbers that cancel, added in any order; what is wrong by a term is outside."""
    rng = np.random.default_rng(3)
    large = rng.choice((-(2.0**12), 2.0**12), 64)
    x = np.concatenate([large, -large[::-1], rng.integers(1, 9, 64)]).astype(np.dtype(dtype))
    module, args = _prefix_sums(x[:128])
    expected = copied(args)
    interpret(module, (1,), expected)
    others = [other[0] for other in alternatives(module, (1,), args, 5) or []]
    pairs = np.cumsum(x[:128].reshape(-1, 2).astype(np.float64).sum(1))  # grouped in twos
    found = expected[0].copy()
    found[1::2] = pairs.astype(found.dtype)
    assert not differs(found, expected[0], others).any()
    if found.itemsize > 2:  # a narrow type has no place left below such a term
        found[100] += np.asarray(2.0**12, found.dtype)
        assert np.flatnonzero(differs(found, expected[0], others)).tolist() == [100]


def test_well_conditioned_sums_are_compared_closely() -> None:
    x = np.linspace(1, 2, 128, dtype=np.float32)
    module, args = _prefix_sums(x)
    expected = copied(args)
    interpret(module, (1,), expected)
    others = [other[0] for other in alternatives(module, (1,), args, 5) or []]
    assert not differs(expected[0] * np.float32(1 + 1e-6), expected[0], others).any()
    assert differs(expected[0] * np.float32(1 + 3e-3), expected[0], others).all()


def test_scan_of_cancelling_sums_agrees() -> None:
    """Prefix sums of numbers near 2**31, of which most cancel."""
    check_mutant(60316)


def test_functions_of_a_narrow_type_are_compared_in_its_precision() -> None:
    """expm1 of fp32, stored as fp64."""
    check_mutant(62000044)
