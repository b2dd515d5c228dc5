"""The random generator, bit for bit against one written for NumPy from its definition."""

from typing import Any

import numpy as np
import pytest

import tilewright.language as tl
from tests.frontend.kernels import evaluate, fails, kernel_from, launch
from tilewright.base.diagnostics import CompileTimeAssertionFailure

MULTIPLIERS = {32: (0xD2511F53, 0xCD9E8D57), 64: (0xD2E7470EE14C6C93, 0xCA5A826395121157)}
INCREMENTS = {32: (0x9E3779B9, 0xBB67AE85), 64: (0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B)}


def philox(counter: list[int], key: list[int], bits: int = 32, rounds: int = 10) -> list[int]:
    """Four words, in Python's unbounded integers."""
    mask = (1 << bits) - 1
    (ma, mb), (wa, wb) = MULTIPLIERS[bits], INCREMENTS[bits]
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(rounds):
        product_a, product_b = ma * c0, mb * c2
        c0, c1 = (product_b >> bits) ^ c1 ^ k0, product_b & mask
        c2, c3 = (product_a >> bits) ^ c3 ^ k1, product_a & mask
        k0, k1 = (k0 + wa) & mask, (k1 + wb) & mask
    return [c0, c1, c2, c3]


# Known answers of Philox-4x32-10: the test vectors published with Random123.
KNOWN = [
    ([0] * 4, [0] * 2, [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
    ([2**32 - 1] * 4, [2**32 - 1] * 2, [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
    (
        [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
        [0xA4093822, 0x299F31D0],
        [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1],
    ),
]  # fmt: skip


@pytest.mark.parametrize(("counter", "key", "expected"), KNOWN)
def test_known_answers(counter: list[int], key: list[int], expected: list[int]) -> None:
    assert philox(counter, key) == expected
    text = """
    def kernel(out, c, k):
        words = tl.philox_impl(tl.load(c), tl.load(c + 1), tl.load(c + 2), tl.load(c + 3),
                               tl.load(k), tl.load(k + 1), 10)
        for i in tl.static_range(4):
            tl.store(out + i, words[i])
    """
    out = np.zeros(4, np.uint32)
    launch(kernel_from(text), out, np.array(counter, np.uint32), np.array(key, np.uint32))
    assert out.tolist() == expected


def words_of(seed: int, offsets: Any, rounds: int = 10) -> Any:
    """uint32 words [4, n]: the counter is the offset's 64 bits, the key the seed's."""
    key = [seed & 0xFFFFFFFF, seed >> 32 & 0xFFFFFFFF]
    rows = [
        philox([int(o) & 0xFFFFFFFF, int(o) >> 32 & 0xFFFFFFFF, 0, 0], key, rounds=rounds)
        for o in offsets
    ]
    return np.array(rows, np.uint32).T


SEEDS = [0, 1, 54, 2**31 - 1, 2**31, 2**40 + 7, 2**63 - 1]
OFFSETS = np.array([0, 1, 2, 1000, 2**31 - 1, 5, 6, 7], np.int32)


@pytest.mark.parametrize("seed", SEEDS)
def test_randint4x(seed: int) -> None:
    for i, expected in enumerate(words_of(seed, OFFSETS)):
        np.testing.assert_array_equal(evaluate(f"tl.randint4x(b, a)[{i}]", OFFSETS, seed), expected)


def test_randint_is_the_first_word_and_takes_rounds() -> None:
    np.testing.assert_array_equal(evaluate("tl.randint(3, a)", OFFSETS), words_of(3, OFFSETS)[0])
    found = evaluate("tl.randint(3, a, n_rounds=7)", OFFSETS)
    np.testing.assert_array_equal(found, words_of(3, OFFSETS, 7)[0])


def test_wide_offsets_use_the_second_word_of_the_counter() -> None:
    offsets = np.array([0, 2**32, 2**40 + 3, -1], np.int64)
    np.testing.assert_array_equal(evaluate("tl.randint(5, a)", offsets), words_of(5, offsets)[0])


def test_negative_seed_is_extended_by_its_sign() -> None:
    found = evaluate("tl.randint(b, a)", OFFSETS, -3)
    np.testing.assert_array_equal(found, words_of(2**64 - 3, OFFSETS)[0])


def test_philox_of_64_bits() -> None:
    counters = np.array([0, 1, 2**40], np.uint64)[[0, 1, 2, 2]]
    expected = [philox([int(c), 0, 0, 0], [9, 0], 64)[0] for c in counters]
    found = evaluate("tl.philox(9, a, a * 0, a * 0, a * 0)[0]", counters)
    assert found.dtype == np.uint64
    assert found.tolist() == expected


def uniform(words: Any) -> Any:
    signed = words.view(np.int32)
    folded = np.where(signed < 0, -signed - 1, signed)
    return folded.astype(np.float32) * np.float32(4.6566127342e-10)


def normal(u1: Any, u2: Any) -> Any:
    u1 = np.maximum(np.float32(1e-7), u1).astype(np.float64)
    angle = 6.283185307179586 * u2.astype(np.float64)
    radius = np.sqrt(-2.0 * np.log(u1))
    return radius * np.cos(angle), radius * np.sin(angle)


def test_uniform_floats_are_exact_and_below_1() -> None:
    words = words_of(7, OFFSETS)
    np.testing.assert_array_equal(evaluate("tl.rand(7, a)", OFFSETS), uniform(words[0]))
    for i in range(4):
        found = evaluate(f"tl.rand4x(7, a)[{i}]", OFFSETS)
        np.testing.assert_array_equal(found, uniform(words[i]))
    edges = np.array([0, 2**31 - 1, 2**31, 2**32 - 1], np.uint32)
    found = evaluate("tl.uint_to_uniform_float(a)", edges)
    np.testing.assert_array_equal(found, uniform(edges))
    assert (found < 1).all()
    wide = np.array([0, 2**63 - 1, 2**63, 2**64 - 1], np.uint64)
    found = evaluate("tl.uint_to_uniform_float(a)", wide)
    assert found.dtype == np.float32
    assert ((found >= 0) & (found < 1)).all()


def test_normal_floats_follow_box_and_muller() -> None:
    u = uniform(words_of(11, OFFSETS))
    pairs = [*normal(u[0], u[1]), *normal(u[2], u[3])]
    found = evaluate("tl.randn(11, a)", OFFSETS)
    np.testing.assert_allclose(found, pairs[0], rtol=1e-5, atol=1e-6)
    for i, expected in enumerate(pairs):
        found = evaluate(f"tl.randn4x(11, a)[{i}]", OFFSETS)
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    assert np.isfinite(evaluate("tl.pair_uniform_to_normal(a, a)[0]", np.zeros(2, "f4"))).all()


def test_seed_must_be_an_integer() -> None:
    error = fails("def k():\n    tl.rand(1.5, tl.arange(0, 4))\n")
    assert isinstance(error, CompileTimeAssertionFailure)
    assert tl.random.N_ROUNDS_DEFAULT.value == 10
