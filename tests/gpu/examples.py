"""The examples that show more of the language: their recipes and jobs."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

import tilewright as tw
from tests.gpu.programs import Job, Program
from tests.gpu.recipes import kernel_at, rng_of


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


def jobs() -> Iterator[Job]:
    for warps in (1, 2, 4, 8):
        options = {"num_warps": warps}
        for columns, k in ((5, 5), (700, 8), (300, 70)):
            yield Job(top_k, (3, columns, k), options)
        for n in (1, 1000, 20_011):
            yield Job(count_tones, (n,), options)
            yield Job(tone_table, (n,), options)
            yield Job(look_up_tones, (n,), options)
