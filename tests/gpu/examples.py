"""The examples that show more of the language: their recipes and jobs."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

import tilewright as tw
from tests.gpu.programs import Job, Program
from tests.gpu.recipes import integral, kernel_at, rng_of


def top_k(rows: int, columns: int, k: int) -> Program:
    """Many equal values, in rows of more or less than a piece."""
    x = rng_of(rows, columns, k).integers(-300, 300, (rows, columns)).astype(np.float32)
    out = [np.zeros((rows, k), np.float32), np.zeros((rows, k), np.int32)]
    constants = {"K": tw.next_power_of_2(k), "BLOCK": 256}
    fn = kernel_at("examples/top_k.py::top_k_kernel")
    return Program(fn, [x, *out, columns, columns, k], constants, (rows,))


def count_tones(n: int) -> Program:
    fn = kernel_at("examples/equalize.py::count_kernel")
    image = rng_of(n).integers(0, 256, n).astype(np.uint8)
    constants = {"SHARE": 4096, "BLOCK": 1024}
    return Program(fn, [image, np.zeros(256, np.int32), n], constants, (tw.cdiv(n, 4096),))


def tone_table(n: int) -> Program:
    fn = kernel_at("examples/equalize.py::table_kernel")
    counts = rng_of(n).multinomial(n, np.full(200, 1 / 200)).astype(np.int32)
    return Program(fn, [np.pad(counts, (20, 36)), np.zeros(256, np.uint8), n])


def look_up_tones(n: int) -> Program:
    fn = kernel_at("examples/equalize.py::look_up_kernel")
    image, table = (rng_of(n, i).integers(0, 256, i).astype(np.uint8) for i in (n, 256))
    args = [image, table, np.zeros_like(image), n]
    return Program(fn, args, {"BLOCK": 1024}, (tw.cdiv(n, 1024),))


def _begins(n: int, length: int) -> np.ndarray:
    return rng_of(n, length).random(n) < 1 / length


def describe_shares(n: int, length: int) -> Program:
    fn = kernel_at("examples/segmented_scan.py::describe_kernel")
    shares = tw.cdiv(n, 512)
    out = [np.zeros(shares, np.bool_), np.zeros(shares, np.float32)]
    args = [integral("fp32", (n,), rng_of(n)), _begins(n, length), *out, n]
    return Program(fn, args, {"SHARE": 512}, (shares,))


def carry_between_shares(shares: int) -> Program:
    fn = kernel_at("examples/segmented_scan.py::carry_kernel")
    total = integral("fp32", (shares,), rng_of(shares))
    args = [_begins(shares, 9), total, np.zeros(shares, np.float32), shares]
    return Program(fn, args, {"SHARES": 128})


def scan_shares(n: int, length: int) -> Program:
    fn = kernel_at("examples/segmented_scan.py::scan_kernel")
    shares = tw.cdiv(n, 512)
    x, carry = (integral("fp32", (size,), rng_of(size)) for size in (n, shares))
    args = [x, _begins(n, length), carry, np.zeros_like(x), n]
    return Program(fn, args, {"SHARE": 512}, (shares,))


def quantized_matmul(type: str, m: int, n: int, k: int, tile: tuple[int, int]) -> Program:
    fn = kernel_at("examples/quantized_matmul.py::quantized_matmul_kernel")
    rng = rng_of(type, m, n, k)
    a = integral(type, (m, k), rng)
    groups = tw.cdiv(k, 64)
    packed = rng.integers(0, 256, (groups * 32, n)).astype(np.uint8)
    scale = np.exp2(rng.integers(-6, -3, (groups, n))).astype(np.float32)  # nothing is rounded
    args = [a, packed, scale, np.zeros((m, n), np.float32), m, n, k, k, n]
    constants = {"GROUP": 64, "BLOCK_M": tile[0], "BLOCK_N": tile[1]}
    return Program(fn, args, constants, (tw.cdiv(n, tile[1]), tw.cdiv(m, tile[0])))


def convolution(steps: int, taps: int, made: int) -> Program:
    fn = kernel_at("examples/convolution.py::convolution_kernel")
    rng = rng_of(steps, taps)
    x, weight = (rng.normal(size=s).astype(np.float32) for s in ((2, steps, 48), (taps, 48)))
    args = [x, weight, np.zeros_like(x), steps, 1e-5]
    constants = {"CHANNELS": 48, "TAPS": taps, "STEPS": made}
    return Program(fn, args, constants, (tw.cdiv(steps, made), 2), 1e-5)


def jobs() -> Iterator[Job]:
    for warps in (1, 2, 4, 8):
        options = {"num_warps": warps}
        for columns, k in ((5, 5), (700, 8), (300, 70)):
            yield Job(top_k, (3, columns, k), options)
        for n in (1, 1000, 20_011):
            yield Job(count_tones, (n,), options)
            yield Job(tone_table, (n,), options)
            yield Job(look_up_tones, (n,), options)
        for n, length in ((1, 1), (2000, 7), (2000, 900)):
            yield Job(describe_shares, (n, length), options)
            yield Job(scan_shares, (n, length), options)
        for shares in (1, 128, 400):
            yield Job(carry_between_shares, (shares,), options)
        for type, tile in (("fp16", (16, 128)), ("fp16", (64, 64)), ("fp32", (16, 32))):
            yield Job(quantized_matmul, (type, 21, 136, 150, tile), options)
        for steps, taps, made in ((1, 3, 14), (61, 7, 26), (101, 7, 58)):
            yield Job(convolution, (steps, taps, made), options)
