"""Quantisation: products of vectors with quantised weights, casts to fp8 and int8, and back."""

import tilewright as triton
import tilewright.language as tl


@triton.jit
def gemv_int4(
    x, weights, scales, zeros, y, N, K, GROUP: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    """y = dequantised weights [N, K] @ x; eight consecutive weights of a row in an int32."""
    rows = tl.program_id(0) * BN + tl.arange(0, BN)
    acc = tl.zeros((BN,), dtype=tl.float32)
    for start in range(0, K, BK):
        depth = start + tl.arange(0, BK)
        packed = tl.load(weights + rows[:, None] * (K // 8) + depth[None, :] // 8)
        values = (packed >> ((depth % 8) * 4)[None, :]) & 15
        group = rows * (K // GROUP) + start // GROUP
        scale, zero = tl.load(scales + group), tl.load(zeros + group)
        w = (values.to(tl.float32) - zero[:, None].to(tl.float32)) * scale[:, None].to(tl.float32)
        acc += tl.sum(w * tl.load(x + depth).to(tl.float32)[None, :], axis=1)
    tl.store(y + rows, acc.to(tl.float16))


@triton.jit
def gemv_int8(x, weights, scales, y, N, K, BN: tl.constexpr, BK: tl.constexpr):
    """y = (weights [N, K] @ x) * scales, with int8 weights."""
    rows = tl.program_id(0) * BN + tl.arange(0, BN)
    columns = tl.arange(0, BK)
    acc = tl.zeros((BN, BK), dtype=tl.float32)
    for start in range(0, K, BK):
        at = start + columns
        w = tl.load(weights + rows[:, None] * K + at[None, :], mask=at[None, :] < K, other=0)
        v = tl.load(x + at, mask=at < K, other=0.0)
        acc += w.to(tl.float32) * v[None, :].to(tl.float32)
    tl.store(y + rows, (tl.sum(acc, axis=1) * tl.load(scales + rows)).to(tl.float16), mask=rows < N)


@triton.jit
def to_fp8_by_group(x, y, scales, columns, eps, GROUP: tl.constexpr):
    """Each group of a row is scaled to the range of fp8: one program for each group."""
    program = tl.program_id(0).to(tl.int64)
    groups = columns // GROUP
    row, group = program // groups, program % groups
    at = tl.arange(0, GROUP)
    value = tl.load(x + row * columns + group * GROUP + at).to(tl.float32)
    scale = tl.maximum(tl.max(tl.abs(value)), eps) / 448.0
    y += row * columns + group * GROUP
    tl.store(y + at, tl.clamp(value / scale, -448.0, 448.0).to(y.dtype.element_ty))
    tl.store(scales + program, scale)


@triton.jit
def to_fp8_by_token(x, y, scales, columns, BLOCK: tl.constexpr):
    """Each row is scaled to the range of fp8, in two loops over its blocks."""
    row = tl.program_id(0)
    x += row.to(tl.int64) * columns
    y += row.to(tl.int64) * columns
    largest = 0.0
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        value = tl.load(x + at, mask=at < columns, other=0.0).to(tl.float32)
        largest = tl.maximum(largest, tl.max(tl.abs(value)))
    scale = tl.maximum(largest / 448.0, 1e-10)
    tl.store(scales + row, scale)
    inverse = 1.0 / scale
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        value = tl.load(x + at, mask=at < columns, other=0.0).to(tl.float32)
        tl.store(y + at, (value * inverse).to(tl.float8e4nv), mask=at < columns)


@triton.jit
def from_int8(x, scales, y, n, columns, BLOCK: tl.constexpr):
    """y = x * scales[column], elementwise over a flat range."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    value = tl.load(x + at, mask=inside)
    scale = tl.load(scales + at % columns, mask=inside)
    tl.store(y + at, value.to(tl.float16) * scale, mask=inside)


@triton.jit
def from_int4(packed, scales, y, columns, GROUP: tl.constexpr, BLOCK: tl.constexpr):
    """Two weights of a byte, the low half first, to two neighbouring columns."""
    row = tl.program_id(0)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    byte = tl.load(packed + row * (columns // 2) + at)
    low, high = (byte & 15).to(tl.int8) - 8, (byte >> 4).to(tl.int8) - 8
    value = tl.interleave(low, high).to(tl.float16)
    out = tl.program_id(1) * (2 * BLOCK) + tl.arange(0, 2 * BLOCK)
    scale = tl.load(scales + row * (columns // GROUP) + out // GROUP)
    tl.store(y + row * columns + out, value * scale)
