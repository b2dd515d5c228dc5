"""Kernels that are long chains of ops: their code grows with their length, and no faster.

What is counted is lines of LLVM IR. Each runs in a loop over the tile, so that they stand for the
work of the kernel as well as for what compiling it takes.
"""

from __future__ import annotations

import hashlib
import re
from functools import partial
from math import isqrt
from typing import Any

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from benchmarks.compile_forms import (
    copies_kernel,
    flips_kernel,
    ifs_kernel,
    reshapes_kernel,
    shapes_kernel,
)
from tests.targets.cpu.harness import assert_same, host, run_compiled
from tests.targets.cpu.test_kernels import module_of
from tilewright.base import llvm_library
from tilewright.ir.passes import PassContext
from tilewright.lowering.split_function import split_function
from tilewright.targets.cpu import emit, program
from tilewright.targets.cpu.codegen import generate


@tw.jit
def add_gathered(x, o, N: tl.constexpr, STEPS: tl.constexpr):
    i = tl.arange(0, N)
    v = tl.load(x + i)
    for step in tl.static_range(STEPS):
        v = v * 0.5 + tl.gather(v, i ^ (1 << (step % 5)), 0)
    tl.store(o + i, v)


@tw.jit
def add_rotated(x, o, N: tl.constexpr, STEPS: tl.constexpr):
    i = tl.arange(0, N)
    v = tl.load(x + i)
    for _ in tl.static_range(STEPS):
        halves = tl.reshape(v, (2, N // 2))
        v = v * 0.5 + tl.reshape(tl.flip(halves, 0), (N,))
    tl.store(o + i, v)


@tw.jit
def hadamard(x, o, N: tl.constexpr, STEPS: tl.constexpr):
    """The Walsh-Hadamard transform, where STEPS is log2(N)."""
    i = tl.arange(0, N)
    v = tl.load(x + i)
    for _ in tl.static_range(STEPS):
        a, b = tl.split(tl.reshape(v, (N // 2, 2)))
        v = tl.reshape(tl.trans(tl.join(a + b, a - b)), (N,))
    tl.store(o + i, v)


@tw.jit
def newton(x, o, N: tl.constexpr, STEPS: tl.constexpr):
    """Steps towards reciprocals: each value is used twice by the next."""
    i = tl.arange(0, N)
    a = tl.load(x + i, mask=i < N - 3, other=0.5)
    v = 1.5 - a
    for _ in tl.static_range(STEPS):
        v = v * (2.0 - a * v)
    tl.store(o + i, v)


@tw.jit
def conditions(x, o, N: tl.constexpr, STEPS: tl.constexpr):
    """Masks that are conjunctions of those before."""
    i = tl.arange(0, N)
    v = tl.load(x + i)
    inside = i < N - 3
    for step in tl.static_range(STEPS):
        inside = inside & (v > step * 0.01) & inside
        v = tl.where(inside, v * 0.75, v + 0.25)
    tl.store(o + i, v, mask=inside)


FAMILIES = [
    flips_kernel, reshapes_kernel, add_gathered, add_rotated, hadamard, newton, conditions
]  # fmt: skip


def floats(n: int) -> Any:
    return np.random.default_rng(n).random(n, np.float32)


def lines_of(kernel: Any, steps: int, n: int = 1024) -> int:
    """Lines of LLVM IR of a kernel with this number of steps."""
    module = module_of(kernel, [floats(n), floats(n)], N=n, STEPS=steps)
    return len(generate(module, host())[0].splitlines())


@pytest.mark.parametrize("kernel", FAMILIES, ids=lambda k: k.__name__)
def test_code_grows_with_the_number_of_steps_and_no_faster(kernel: Any) -> None:
    few, more, many = (lines_of(kernel, steps) for steps in (6, 12, 24))
    assert many - more <= 2.5 * (more - few) + 200
    assert many < 4000


def test_buffers_use_a_bounded_part_of_the_stack() -> None:
    """Each is small, and a long kernel has many."""
    n, steps = 1024, 400
    module = module_of(add_rotated, [floats(n), floats(n)], N=n, STEPS=steps)
    text, workspace = generate(module, host())
    kept = [int(count) * 4 for count in re.findall(r"alloca \[(\d+) x float\]", text)]
    assert kept
    assert sum(kept) <= 64 * 1024
    assert 0 < workspace <= 64 * 1024  # where the others are, one after the other
    x, o = floats(n), np.zeros(n, np.float32)
    assert_same(module_of(add_rotated, [x, o], N=n, STEPS=60), (2, 1, 1), [x, o])


@pytest.mark.parametrize("n", [32, 96, 1024])
@pytest.mark.parametrize("kernel", FAMILIES, ids=lambda k: k.__name__)
def test_long_chains_agree_with_the_interpreter(kernel: Any, n: int) -> None:
    x, o = floats(n), np.zeros(n, np.float32)
    assert_same(module_of(kernel, [x, o], N=n, STEPS=7), (1, 1, 1), [x, o])


def test_expensive_values_at_several_coordinates_are_materialised() -> None:
    """A stage of a transform is computed N times, not N times for each element of the result."""
    n = 4096
    text = generate(module_of(hadamard, [floats(n), floats(n)], N=n, STEPS=12), host())[0]
    sums = text.count("= fadd") + text.count("= fsub") + text.count("= fneg")
    assert sums <= 12 * 16  # a few points of each stage


def test_a_walsh_hadamard_transform_of_4096() -> None:
    n = 4096
    x, o = floats(n), np.zeros(n, np.float32)
    run_compiled(module_of(hadamard, [x, o], N=n, STEPS=12), (1, 1, 1), [x, o])
    matrix = np.ones((1, 1))
    for _ in range(12):
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    np.testing.assert_allclose(np.sort(o), np.sort(matrix @ x), atol=2e-3)


@tw.jit
def chain(x, o, N: tl.constexpr, STEPS: tl.constexpr):
    i = tl.arange(0, N)
    v = tl.load(x + i)
    for _ in tl.static_range(STEPS):
        v = tl.where(v > 1.0, v * 0.5, v + 0.25)
    tl.store(o + i, v)


def test_a_chain_of_thousands_of_ops_compiles_without_recursion() -> None:
    x, o = floats(64), np.zeros(64, np.float32)
    assert_same(module_of(chain, [x, o], N=64, STEPS=1300), (1, 1, 1), [x, o])


@tw.jit
def offsets_chain(x, o, n, N: tl.constexpr, STEPS: tl.constexpr):
    i = tl.arange(0, N)
    at = i
    for _ in tl.static_range(STEPS):
        at = (at * n + 7) & (N - 1)
    tl.store(o + i, tl.load(x + at))


def test_addresses_that_are_long_chains() -> None:
    x, o = floats(64), np.zeros(64, np.float32)
    module = module_of(offsets_chain, [x, o, 5], N=64, STEPS=400)
    assert_same(module, (1, 1, 1), [x, o, np.int32(5)])


@tw.jit
def fourier(re, im, out_re, out_im, N: tl.constexpr, STEPS: tl.constexpr):
    """Halves are combined, and the results interleaved, which leaves them in reversed bit order."""
    i = tl.arange(0, N)
    half = tl.arange(0, N // 2)
    x, y = tl.load(re + i), tl.load(im + i)
    for step in tl.static_range(STEPS):
        a, b = tl.split(tl.trans(tl.reshape(x, (2, N // 2))))
        c, d = tl.split(tl.trans(tl.reshape(y, (2, N // 2))))
        angle = ((half >> step) << step).to(tl.float32) * (-6.283185307179586 / N)
        cosine, sine = tl.cos(angle), tl.sin(angle)
        x = tl.reshape(tl.join(a + b, (a - b) * cosine - (c - d) * sine), (N,))
        y = tl.reshape(tl.join(c + d, (a - b) * sine + (c - d) * cosine), (N,))
    tl.store(out_re + i, x)
    tl.store(out_im + i, y)


@pytest.mark.parametrize("n", [16, 1024])
def test_a_fourier_transform_by_split_and_join(n: int) -> None:
    args = [floats(n), floats(n) - 0.5, np.zeros(n, np.float32), np.zeros(n, np.float32)]
    module = module_of(fourier, args, N=n, STEPS=n.bit_length() - 1)
    assert len(generate(module, host())[0].splitlines()) < 5000
    run_compiled(module, (1, 1, 1), args)
    bits = n.bit_length() - 1
    reversed_bits = [int(f"{k:0{bits}b}"[::-1], 2) for k in range(n)]
    expected = np.fft.fft(args[0] + 1j * args[1])[reversed_bits]
    np.testing.assert_allclose(args[2] + 1j * args[3], expected, atol=2e-5 * n)


@tw.jit
def exchange(v, i, k: tl.constexpr, j: tl.constexpr):
    other = tl.gather(v, i ^ (1 << j), 0)
    lower = ((i >> k) & 1) == ((i >> j) & 1)
    return tl.where(lower, tl.minimum(v, other), tl.maximum(v, other))


@tw.jit
def bitonic_sort(x, o, N: tl.constexpr, STEPS: tl.constexpr):
    i = tl.arange(0, N)
    v = tl.load(x + i)
    for k in tl.static_range(1, STEPS + 1):
        for j in tl.static_range(k):
            v = exchange(v, i, k, k - 1 - j)
    tl.store(o + i, v)


def test_a_sorting_network_by_gathers() -> None:
    x, o = floats(64), np.zeros(64, np.float32)
    module = module_of(bitonic_sort, [x, o], N=64, STEPS=6)
    assert len(generate(module, host())[0].splitlines()) < 3000
    run_compiled(module, (1, 1, 1), [x, o])
    assert np.array_equal(o, np.sort(x))


@tw.jit
def rotated(x, n: tl.constexpr):
    return (x >> n) | (x << (32 - n))


@tw.jit
def vectors_at(words, step, zero, count: tl.constexpr):
    """A tuple of this number of vectors."""
    found = ()
    for k in tl.static_range(count):
        found = (*found, tl.load(words + k * step) + zero)
    return found


@tw.jit
def compress_block(words, key, out, N: tl.constexpr, ROUNDS: tl.constexpr):
    """SHA-256 of one block for each lane; `key` is the 8 first words of the state, then the 64
    constants."""
    i = tl.arange(0, N)
    zero = tl.zeros((N,), tl.uint32)
    w = vectors_at(words + i, N, zero, 16)
    state = vectors_at(key, 1, zero, 8)
    a, b, c, d, e, f, g, h = state
    for r in tl.static_range(ROUNDS):
        first = h + (rotated(e, 6) ^ rotated(e, 11) ^ rotated(e, 25)) + ((e & f) ^ (~e & g))
        first += w[0] + tl.load(key + 8 + r)
        second = (rotated(a, 2) ^ rotated(a, 13) ^ rotated(a, 22)) + ((a & b) ^ (a & c) ^ (b & c))
        h, g, f, e, d, c, b, a = g, f, e, d + first, c, b, a, first + second
        x, y = w[1], w[14]
        new = w[0] + (rotated(x, 7) ^ rotated(x, 18) ^ (x >> 3)) + w[9]
        new += rotated(y, 17) ^ rotated(y, 19) ^ (y >> 10)
        w = (*w[1:], new)
    last = (a, b, c, d, e, f, g, h)
    for k in tl.static_range(8):
        tl.store(out + k * N + i, last[k] + state[k])


def _root_bits(prime: int, power: int) -> int:
    """The first 32 bits after the point of a prime's square or cube root."""
    if power == 2:
        return isqrt(prime << 64) & 0xFFFFFFFF
    low, high = 0, 1 << 36
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if middle**3 <= prime << 96 else (low, middle)
    return low & 0xFFFFFFFF


def test_sha256_of_64_rounds() -> None:
    n = 16
    primes = [p for p in range(2, 312) if all(p % q for q in range(2, isqrt(p) + 1))]
    key = [_root_bits(p, 2) for p in primes[:8]] + [_root_bits(p, 3) for p in primes[:64]]
    texts = [bytes([65 + k]) * k for k in range(n)]
    blocks = [t + b"\x80" + bytes(55 - len(t)) + (8 * len(t)).to_bytes(8, "big") for t in texts]
    words = np.stack([np.frombuffer(b, ">u4") for b in blocks], 1).astype(np.uint32)
    args = [words.reshape(-1), np.array(key, np.uint32), np.zeros(8 * n, np.uint32)]
    module = module_of(compress_block, args, N=n, ROUNDS=64)
    assert len(generate(module, host())[0].splitlines()) < 20_000
    run_compiled(module, (1, 1, 1), args)
    for lane, text in enumerate(texts):
        digest = args[2].reshape(8, n)[:, lane].astype(">u4").tobytes()
        assert digest == hashlib.sha256(text).digest()


@pytest.mark.parametrize(
    "kernel",
    [copies_kernel, ifs_kernel, newton, shapes_kernel],
    ids=lambda k: k.__name__,
)
def test_long_kernels_are_split_into_functions(
    kernel: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    split = partial(split_function, long=60, part=30)
    monkeypatch.setattr(program, "split_function", split)
    x, o = floats(32 * 8), np.zeros(32 * 8, np.float32)
    args = [x, o, 9] if kernel is ifs_kernel else [x, o]
    module = module_of(kernel, args, N=32, STEPS=8)
    text, _ = generate(module, host(), ctx=PassContext(explain=True))
    assert len(re.findall(r"^define internal .*\.part\d+\(", text, re.MULTILINE)) > 1
    emit.compile_text(text, host())  # with locations
    assert_same(module, (1, 1, 1), args)


def test_loops_of_long_kernels_are_not_strength_reduced(monkeypatch: pytest.MonkeyPatch) -> None:
    """LLVM's time for it grows faster than the number of loops."""
    used: list[str] = []

    def option(name: str, value: str, default: str) -> Any:
        used.append(name)
        return llvm_library.option(name, value, default)

    monkeypatch.setattr(emit, "option", option)
    monkeypatch.setattr(emit, "LONG", 200)
    x, o = floats(256), np.zeros(256, np.float32)
    assert_same(module_of(copies_kernel, [x, o], N=32, STEPS=2), (1, 1, 1), [x, o])
    assert not used
    assert_same(module_of(copies_kernel, [x, o], N=32, STEPS=8), (1, 1, 1), [x, o])
    assert set(used) == {"disable-lsr"}


DELAY = 120  # LLVM's value numbering allows for 100 passes, of which each separates one value


@tw.jit
def delay_line(x, o, n, DELAY: tl.constexpr):
    line = (0,) * DELAY
    for i in range(n):
        line = (*line[1:], tl.load(x + i))
    for k in tl.static_range(DELAY):
        tl.store(o + k, line[k])


@pytest.mark.parametrize("n", [0, 1, 7, 200])
def test_values_that_move_on_in_a_loop(n: int) -> None:
    x, o = np.arange(1, 201, dtype=np.int32), np.zeros(DELAY, np.int32)
    assert_same(module_of(delay_line, [x, o, n], DELAY=DELAY), (1, 1, 1), [x, o, n])
