"""Products of matrices for the GPU tests, as `recipes.py` has the rest."""

from __future__ import annotations

import numpy as np

import tilewright as tw
import tilewright.language as tl
from tests.gpu.programs import Program
from tests.gpu.recipes import TYPES, integral, kernel_at, rng_of
from tests.ir_values import floats_in, numbers
from tilewright.frontend.source import SourceFunction

# How far a sum of products may be off, as a part of the sum of their absolute values: what the
# operands are rounded to, and how the matrix units add up (fp8: some 14 bits).
ERROR = {
    "fp16": 2.0**-20, "bf16": 2.0**-20, "i8": 0.0, "u8": 0.0, "fp8e4nv": 2.0**-10,
    "fp8e5": 2.0**-10, "tf32": 2.0**-9, "ieee": 2.0**-20, "tf32x3": 2.0**-18, "fp64": 2.0**-48,
    "bf16x3": 2.0**-15, "bf16x6": 2.0**-20, "fp8e4b8": 2.0**-20, "fp8e5b16": 2.0**-20,
    "fp8e4b15": 2.0**-20,
}  # fmt: skip


def matrix(type: str, rows: int, columns: int) -> np.ndarray:
    rng = rng_of(type, rows, columns)
    if type == "fp8e4b15":
        return floats_in(rng.normal(size=(rows, columns)), TYPES[type])
    if TYPES[type].is_int():
        low, high = (-128, 128) if type == "i8" else (0, 256)
        return rng.integers(low, high, (rows, columns)).astype(TYPES[type].numpy)
    return rng.normal(size=(rows, columns)).astype(TYPES[type].numpy)


def product(a: np.ndarray, b: np.ndarray, kind: str) -> tuple[np.ndarray, np.ndarray]:
    """The product in fp64, and how far a result may be from it."""
    x, y = numbers(a).astype(np.float64), numbers(b).astype(np.float64)
    return x @ y, ERROR[kind] * (np.abs(x) @ np.abs(y)) + 1e-12


def matmul(
    type: str, out: str, orders: str, shape: tuple[int, int, int], tile: tuple[int, int, int],
    precision: str = "tf32",
) -> Program:  # fmt: skip
    """The benchmarks' product, of operands with contiguous rows (``n``) or columns (``t``)."""
    fn = kernel_at("benchmarks/gpu/kernels/matmul.py::matmul_kernel")
    (m, n, k), (block_m, block_n, block_k) = shape, tile
    a, b = matrix(type, m, k), matrix(type, k, n)
    c = np.zeros((m, n), TYPES[out].numpy)
    exact, error = product(a, b, precision if type == "fp32" else type)
    stored = [x if order == "n" else np.ascontiguousarray(x.T) for x, order in
              zip((a, b), orders, strict=True)]  # fmt: skip
    strides = [*((k, 1) if orders[0] == "n" else (1, m)), *((n, 1) if orders[1] == "n" else (1, k))]
    if TYPES[out].is_floating():
        # The exact result is rounded too, perhaps the other way.
        error = error + np.abs(exact) * 2.0 ** -TYPES[out].fp_mantissa_width
        exact = exact.astype(c.dtype)
    constants = {"BLOCK_M": block_m, "BLOCK_N": block_n, "BLOCK_K": block_k, "GROUP": 3,
                 "PRECISION": precision}  # fmt: skip
    grid = tw.cdiv(m, block_m) * tw.cdiv(n, block_n)
    args = [*stored, c, m, n, k, *strides, n, 1]
    return Program(fn, args, constants, (grid,), error, [*stored, exact.astype(c.dtype)])


@tw.jit
def dot_kernel(
    a_ptr, b_ptr, c_ptr, out_ptr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """One product of tiles that are computed, not loaded: a a + c."""
    m, n, k = tl.arange(0, M)[:, None], tl.arange(0, N)[None, :], tl.arange(0, K)
    a = tl.load(a_ptr + m * K + k[None, :])
    b = tl.load(b_ptr + k[:, None] * N + n)
    c = tl.load(c_ptr + m * N + n)
    c = tl.dot(-a, b + b, c, input_precision=PRECISION, out_dtype=c.dtype)
    tl.store(out_ptr + m * N + n, c)


def dot(type: str, acc: str, shape: tuple[int, int, int], precision: str = "tf32") -> Program:
    m, n, k = shape
    rng = rng_of(type, shape)
    a, b, c = (integral(t, s, rng) for t, s in ((type, (m, k)), (type, (k, n)), (acc, (m, n))))
    constants = {"M": m, "N": n, "K": k, "PRECISION": precision}
    return Program(dot_kernel, [a, b, c, np.zeros_like(c)], constants)


@tw.jit
def persistent_kernel(a_ptr, b_ptr, c_ptr, tiles, steps, M: tl.constexpr, N: tl.constexpr):
    """A product for each of several tiles in one program: the inner loop restarts each time."""
    m, n, k = tl.arange(0, M)[:, None], tl.arange(0, N)[None, :], tl.arange(0, 32)
    for tile in tl.range(tl.program_id(0), tiles, tl.num_programs(0)):
        acc = tl.zeros((M, N), tl.float32)
        for step in range(steps):
            start = tile * steps + step
            a = tl.load(a_ptr + start * M * 32 + m * 32 + k[None, :])
            b = tl.load(b_ptr + start * N * 32 + k[:, None] * N + n)
            acc = tl.dot(a, b, acc)
        tl.store(c_ptr + tile * M * N + m * N + n, acc)


@tw.jit
def transposed_kernel(a_ptr, b_ptr, c_ptr, tiles, steps, M: tl.constexpr, N: tl.constexpr):
    """The same with a right side that is transposed after it is loaded, through descriptors."""
    a_desc = tl.make_tensor_descriptor(a_ptr, [tiles * steps * M, 32], [32, 1], [M, 32])
    b_desc = tl.make_tensor_descriptor(b_ptr, [tiles * steps * N, 32], [32, 1], [N, 32])
    c_desc = tl.make_tensor_descriptor(c_ptr, [tiles * M, N], [N, 1], [M, N])
    for tile in tl.range(tl.program_id(0), tiles, tl.num_programs(0)):
        acc = tl.zeros((M, N), tl.float32)
        for step in range(steps):
            start = tile * steps + step
            acc = tl.dot(a_desc.load([start * M, 0]), b_desc.load([start * N, 0]).T, acc)
        c_desc.store([tile * M, 0], acc)


def persistent(
    tiles: int, steps: int, m: int, n: int, programs: int = 2, transposed: bool = False
) -> Program:
    rng = rng_of(tiles, steps, m, n)
    a = integral("fp16", (tiles, steps, m, 32), rng)
    b = integral("fp16", (tiles, steps, n, 32) if transposed else (tiles, steps, 32, n), rng)
    c = np.zeros((tiles, m, n), np.float32)
    right = (b.mT if transposed else b).astype(np.float32)
    exact = (a.astype(np.float32) @ right).sum(axis=1, dtype=np.float32)
    args = [a, b, c, tiles, steps]
    kernel = transposed_kernel if transposed else persistent_kernel
    return Program(kernel, args, {"M": m, "N": n}, (programs,), None, [a, b, exact])


@tw.jit
def computed_kernel(
    a_ptr, b_ptr, x_ptr, c_ptr, sums_ptr, steps, M: tl.constexpr, N: tl.constexpr
):  # fmt: skip
    """The right side is computed in each step, and a sum over warps overlaps the product."""
    m, n, k = tl.arange(0, M)[:, None], tl.arange(0, N)[None, :], tl.arange(0, 64)
    a = tl.load(a_ptr + m * 64 + k[None, :])
    acc = tl.zeros((M, N), tl.float32)
    sums = tl.zeros((N,), tl.float32)
    for step in range(steps):
        b = tl.load(b_ptr + step * N * 64 + k[:, None] * N + n)
        acc = tl.dot(a, b * 2, acc)
        sums += tl.sum(tl.load(x_ptr + step * M * N + m * N + n), 0)
        acc = acc * 0.5
    tl.store(c_ptr + m * N + n, acc)
    tl.store(sums_ptr + tl.arange(0, N), sums)


def computed(steps: int, m: int, n: int) -> Program:
    rng = rng_of(steps, m, n)
    a, b = integral("fp16", (m, 64), rng), integral("fp16", (steps, 64, n), rng)
    x = integral("fp32", (steps, m, n), rng)
    acc = np.zeros((m, n), np.float32)
    for step in range(steps):
        acc = (acc + a.astype(np.float32) @ (2 * b[step].astype(np.float32))) * np.float32(0.5)
    sums = x.sum(axis=(0, 1), dtype=np.float32)
    args = [a, b, x, np.zeros_like(acc), np.zeros_like(sums), steps]
    return Program(computed_kernel, args, {"M": m, "N": n}, (1,), 2e-5, [a, b, x, acc, sums])


@tw.jit
def packed_kernel(
    a_ptr, w_ptr, c_ptr, steps, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr
):  # fmt: skip
    """The right side has eight numbers of four bits along K in a word: few rows of words."""
    m, n, k = tl.arange(0, M)[:, None], tl.arange(0, N)[None, :], tl.arange(0, K)
    acc = tl.zeros((M, N), tl.float32)
    for step in range(steps):
        a = tl.load(a_ptr + (step * M + m) * K + k[None, :])
        w = tl.load(w_ptr + ((step * K + k[:, None]) // 8) * N + n)
        w = (w >> (k % 8 * 4)[:, None]) & 15
        acc = tl.dot(a, w.to(a.dtype), acc)
    tl.store(c_ptr + m * N + n, acc)


def packed(steps: int, m: int, n: int, k: int) -> Program:
    rng = rng_of(steps, m, n, k)
    a = integral("fp16", (steps, m, k), rng)
    w = rng.integers(0, 1 << 31, (steps, k // 8, n)).astype(np.int32)
    right = (w[:, :, None, :] >> np.arange(0, 32, 4, dtype=np.int32)[:, None]) & 15
    right = right.reshape(steps, k, n).astype(np.float32)
    c = (a.astype(np.float32) @ right).sum(axis=0, dtype=np.float32)
    args = [a, w, np.zeros_like(c), steps]
    return Program(packed_kernel, args, {"M": m, "N": n, "K": k}, (1,), None, [a, w, c])


@tw.jit
def weighted_kernel(
    a_ptr, w_ptr, scales_ptr, c_ptr, steps, M: tl.constexpr, N: tl.constexpr, LINES: tl.constexpr
):  # fmt: skip
    """The right side is computed from weights, whose lines are along N or along K."""
    m, n, k = tl.arange(0, M)[:, None], tl.arange(0, N)[None, :], tl.arange(0, 64)
    acc = tl.zeros((M, N), tl.float32)
    for step in range(steps):
        a = tl.load(a_ptr + (step * M + m) * 64 + k[None, :])
        if LINES == "n":
            w = tl.load(w_ptr + (step * 64 + k[:, None]) * N + n)
        else:
            w = tl.load(w_ptr + (step * N + n) * 64 + k[:, None])
        scale = tl.load(scales_ptr + step * 64 + k)
        acc = tl.dot(a, (w.to(tl.float32) * scale[:, None]).to(a.dtype), acc)
    tl.store(c_ptr + m * N + n, acc)


def weighted(type: str, steps: int, m: int, n: int, lines: str = "n") -> Program:
    rng = rng_of(type, steps, m, n)
    a, scales = integral("fp16", (steps, m, 64), rng), integral("fp32", (steps, 64), rng)
    w = integral(type, (steps, 64, n), rng)
    right = w.astype(np.float32) * scales[:, :, None]
    c = (a.astype(np.float32) @ right).sum(axis=0, dtype=np.float32)
    stored = w if lines == "n" else np.ascontiguousarray(w.mT)
    args = [a, stored, scales, np.zeros_like(c), steps]
    constants = {"M": m, "N": n, "LINES": lines}
    return Program(weighted_kernel, args, constants, (1,), None, [a, stored, scales, c])


@tw.jit
def biased_kernel(
    q_ptr, k_ptr, bias_ptr, v_ptr, c_ptr, most_ptr, steps, M: tl.constexpr, N: tl.constexpr
):
    """The maximum of biased scores, and their product with values."""
    m, n, d = tl.arange(0, M), tl.arange(0, N), tl.arange(0, 64)
    q = tl.load(q_ptr + m[:, None] * 64 + d[None, :])
    acc = tl.zeros((M, 64), tl.float32)
    most = tl.full((M,), -1e30, tl.float32)
    for step in range(steps):
        k = tl.load(k_ptr + (step * N + n[None, :]) * 64 + d[:, None])
        s = tl.dot(q, k)
        s += tl.load(bias_ptr + (step * M + m[:, None]) * N + n[None, :]).to(tl.float32)
        most = tl.maximum(most, tl.max(s, 1))
        v = tl.load(v_ptr + (step * N + n[:, None]) * 64 + d[None, :])
        acc = tl.dot(s.to(v.dtype), v, acc)
    tl.store(c_ptr + m[:, None] * 64 + d[None, :], acc)
    tl.store(most_ptr + m, most)


def biased(steps: int, m: int, n: int) -> Program:
    rng = rng_of(steps, m, n)
    q, bias = integral("fp16", (m, 64), rng), integral("fp16", (steps, m, n), rng)
    k, v = (integral("fp16", (steps, n, 64), rng) for _ in range(2))
    s = q.astype(np.float32) @ k.astype(np.float32).mT + bias.astype(np.float32)
    c = (s @ v.astype(np.float32)).sum(axis=0, dtype=np.float32)
    most = s.max(axis=(0, 2), initial=-1e30).astype(np.float32)
    args = [q, k, bias, v, np.zeros_like(c), np.zeros_like(most), steps]
    return Program(biased_kernel, args, {"M": m, "N": n}, (1,), None, [q, k, bias, v, c, most])


def attention(
    d: int, queries: int, keys: int, tile: tuple[int, int], causal: bool, heads: int = 2
) -> Program:
    """The benchmarks' attention: two products of which the second's operand is computed."""
    fn = kernel_at("benchmarks/gpu/kernels/attention.py::forward_kernel")
    return _attention_by(fn, d, queries, tile, causal, heads)


def example_attention(d: int, queries: int, causal: bool) -> Program:
    fn = kernel_at("examples/attention.py::forward_kernel")
    return _attention_by(fn, d, queries, (64, 64), causal, 2)


def _attention_by(
    fn: SourceFunction, d: int, queries: int, tile: tuple[int, int], causal: bool, heads: int
) -> Program:
    rng = rng_of(d, queries)
    q, k, v = (rng.normal(size=(heads, queries, d)).astype(np.float16) for _ in range(3))
    scale = float(np.float32(1.4426950408889634 / d**0.5))
    exact, sums = _attention(q, k, v, scale, causal)
    out, lse = np.zeros_like(q), np.zeros((heads, queries), np.float32)
    constants = {"D": d, "BLOCK_M": tile[0], "BLOCK_N": tile[1], "CAUSAL": causal}
    args = [q, k, v, out, lse, queries, scale]
    expected = [q, k, v, exact.astype(np.float16), sums.astype(np.float32)]
    return Program(fn, args, constants, (queries // tile[0], heads), 4e-3, expected)


def _attention(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, scale: float, causal: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Attention in fp64, and log2 of the sums of the weights."""
    x, y, z = (a.astype(np.float64) for a in (q, k, v))
    score = x @ y.transpose(0, 2, 1) * scale
    if causal:
        score = np.where(np.tril(np.ones(score.shape[1:], bool)), score, -np.inf)
    peak = score.max(axis=2, keepdims=True)
    weight = np.exp2(score - peak)
    total = weight.sum(axis=2, keepdims=True)
    return weight @ z / total, (peak + np.log2(total))[..., 0]


def attention_gradients(
    d: int, positions: int, tile: tuple[int, int], causal: bool, heads: int = 1
) -> Program:
    """The benchmarks' gradient of attention in one kernel: three of its products have computed
    operands, and one is added to memory atomically."""
    fn = kernel_at("benchmarks/gpu/kernels/attention_backward.py::gradients_kernel")
    rng = rng_of(d, positions, causal)
    shape = heads, positions, d
    q, k, v, do = (rng.normal(size=shape).astype(np.float16) for _ in range(4))
    scale = float(np.float32(d**-0.5))
    scale2 = float(np.float32(scale * 1.4426950408889634))
    out, lse = _attention(q, k, v, scale2, causal)
    lse = lse.astype(np.float32)
    delta = (out * do).sum(axis=2).astype(np.float32)
    x, y, z, w = (a.astype(np.float64) for a in (q, k, v, do))
    p = np.exp2(x @ y.transpose(0, 2, 1) * scale2 - lse[..., None])
    if causal:
        p = np.where(np.tril(np.ones(p.shape[1:], bool)), p, 0)
    ds = p * (w @ z.transpose(0, 2, 1) - delta[..., None])
    half = [ds.transpose(0, 2, 1) @ x * scale, p.transpose(0, 2, 1) @ w]
    expected = [(ds @ y).astype(np.float32), *(a.astype(np.float16) for a in half)]
    outputs = [np.zeros_like(a) for a in expected]
    constants = {"D": d, "BLOCK_M": tile[0], "BLOCK_N": tile[1], "CAUSAL": causal}
    args = [q, k, v, do, lse, delta, *outputs, positions, scale, scale2]
    grid = positions // tile[1], heads
    return Program(fn, args, constants, grid, 2e-2, [q, k, v, do, lse, delta, *expected])


def example_matmul(m: int, n: int, k: int, tile: tuple[int, int, int]) -> Program:
    fn = kernel_at("examples/matmul.py::matmul_kernel")
    activation = kernel_at("examples/matmul.py::leaky_relu")
    a, b = matrix("fp32", m, k), matrix("fp32", k, n)
    constants = {**dict(zip(("BLOCK_M", "BLOCK_N", "BLOCK_K"), tile, strict=True)), "GROUP_M": 4,
                 "ACTIVATION": activation}  # fmt: skip
    grid = tw.cdiv(m, tile[0]) * tw.cdiv(n, tile[1])
    exact, error = product(a, b, "tf32")
    exact = np.where(exact >= 0, exact, 0.01 * exact).astype(np.float32)
    args = [a, b, np.zeros((m, n), np.float32), m, n, k, k, n, n]
    return Program(fn, args, constants, (grid,), error, [a, b, exact])
