"""Kernels with hand-written backward kernels, in the forms in which libraries write them.

Everything is computed in fp32. A row of a matrix is one tile, except in `cross_entropy`.
"""

from __future__ import annotations

import tilewright as tw
import tilewright.language as tl


@tw.jit
def swiglu(a_ptr, b_ptr, y_ptr, stride, columns, BLOCK: tl.constexpr):
    """y = a sigmoid(a) b"""
    at = tl.program_id(0).to(tl.int64) * stride + tl.arange(0, BLOCK)
    inside = tl.arange(0, BLOCK) < columns
    a = tl.load(a_ptr + at, mask=inside, other=0.0).to(tl.float32)
    b = tl.load(b_ptr + at, mask=inside, other=0.0)
    y = (a * tl.sigmoid(a)).to(b.dtype) * b
    tl.store(y_ptr + at, y, mask=inside)


@tw.jit
def swiglu_backward(
    dy_ptr, a_ptr, b_ptr, da_ptr, db_ptr, stride, columns, BLOCK: tl.constexpr
):  # fmt: skip
    at = tl.program_id(0).to(tl.int64) * stride + tl.arange(0, BLOCK)
    inside = tl.arange(0, BLOCK) < columns
    dy = tl.load(dy_ptr + at, mask=inside, other=0.0).to(tl.float32)
    a = tl.load(a_ptr + at, mask=inside, other=0.0).to(tl.float32)
    b = tl.load(b_ptr + at, mask=inside, other=0.0).to(tl.float32)
    gate = tl.sigmoid(a)
    silu = a * gate
    tl.store(db_ptr + at, dy * silu, mask=inside)
    tl.store(da_ptr + at, dy * (silu * (1 - gate) + gate) * b, mask=inside)


@tw.jit
def softmax(x_ptr, y_ptr, stride, columns, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * stride + tl.arange(0, BLOCK)
    inside = tl.arange(0, BLOCK) < columns
    x = tl.load(x_ptr + at, mask=inside, other=-float("inf")).to(tl.float32)
    weight = tl.exp(x - tl.max(x, axis=0))
    tl.store(y_ptr + at, weight / tl.sum(weight, axis=0), mask=inside)


@tw.jit
def softmax_backward(dy_ptr, y_ptr, dx_ptr, stride, columns, BLOCK: tl.constexpr):
    """dx = y (dy - sum(y dy)), from the stored result"""
    at = tl.program_id(0).to(tl.int64) * stride + tl.arange(0, BLOCK)
    inside = tl.arange(0, BLOCK) < columns
    dy = tl.load(dy_ptr + at, mask=inside, other=0.0).to(tl.float32)
    y = tl.load(y_ptr + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(dx_ptr + at, y * (dy - tl.sum(y * dy, axis=0)), mask=inside)


@tw.jit
def rms_norm(
    x_ptr, w_ptr, y_ptr, rstd_ptr, stride, columns, epsilon, BLOCK: tl.constexpr
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    inside = column < columns
    x = tl.load(x_ptr + row * stride + column, mask=inside, other=0.0).to(tl.float32)
    rstd = tl.rsqrt(tl.sum(x * x, axis=0) / columns + epsilon)
    tl.store(rstd_ptr + row, rstd)
    w = tl.load(w_ptr + column, mask=inside, other=0.0).to(tl.float32)
    tl.store(y_ptr + row * stride + column, x * rstd * w, mask=inside)


@tw.jit
def rms_norm_backward(
    dy_ptr, x_ptr, w_ptr, rstd_ptr, dx_ptr, dw_ptr, stride, rows, columns, each,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """dx of `each` rows, and a row of parts of dw."""
    program = tl.program_id(0)
    column = tl.arange(0, BLOCK)
    inside = column < columns
    w = tl.load(w_ptr + column, mask=inside, other=0.0).to(tl.float32)
    dw = tl.zeros([BLOCK], tl.float32)
    for row in range(program * each, min((program + 1) * each, rows)):
        at = tl.cast(row, tl.int64) * stride + column
        x = tl.load(x_ptr + at, mask=inside, other=0.0).to(tl.float32)
        dy = tl.load(dy_ptr + at, mask=inside, other=0.0).to(tl.float32)
        rstd = tl.load(rstd_ptr + row)
        normal, g = x * rstd, dy * w
        tl.store(
            dx_ptr + at, rstd * (g - normal * (tl.sum(normal * g, axis=0) / columns)), mask=inside
        )
        dw += dy * normal
    tl.store(dw_ptr + program * columns + column, dw, mask=inside)


@tw.jit
def cross_entropy(
    x_ptr, label_ptr, loss_ptr, lse_ptr, stride, columns, BLOCK: tl.constexpr
):  # fmt: skip
    """loss = log(sum(exp(x))) - x[label], of a row in blocks"""
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * stride
    greatest = -float("inf")
    total = 0.0
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + at, mask=at < columns, other=-float("inf")).to(tl.float32)
        larger = tl.maximum(greatest, tl.max(x, axis=0))
        total = total * tl.exp(greatest - larger) + tl.sum(tl.exp(x - larger), axis=0)
        greatest = larger
    lse = greatest + tl.log(total)
    label = tl.load(label_ptr + row)
    tl.store(lse_ptr + row, lse)
    inside = (label >= 0) & (label < columns)
    tl.store(loss_ptr + row, lse - tl.load(x_ptr + label, mask=inside).to(tl.float32))


@tw.jit
def cross_entropy_backward(
    dloss_ptr, x_ptr, label_ptr, lse_ptr, dx_ptr, stride, columns, BLOCK: tl.constexpr
):  # fmt: skip
    """dx = (softmax(x) - (1 at the label)) dloss"""
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * stride
    dx_ptr += row * stride
    dloss, lse = tl.load(dloss_ptr + row), tl.load(lse_ptr + row)
    label = tl.load(label_ptr + row)
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + at, mask=at < columns, other=-float("inf")).to(tl.float32)
        share = tl.exp(x - lse) - (at == label)
        tl.store(dx_ptr + at, share * dloss, mask=at < columns)


@tw.jit
def matmul(
    a_ptr, b_ptr, c_ptr, m, n, k, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr, GROUP: tl.constexpr, WRAPS: tl.constexpr,
):  # fmt: skip
    """c = a b, in groups of GROUP rows of tiles. WRAPS: rows past the last are the first ones."""
    tiles_m, tiles_n = tl.cdiv(m, BLOCK_M), tl.cdiv(n, BLOCK_N)
    first = tl.program_id(0) // (GROUP * tiles_n) * GROUP
    height = min(tiles_m - first, GROUP)
    place = tl.program_id(0) % (GROUP * tiles_n)
    row = (first + place % height) * BLOCK_M + tl.arange(0, BLOCK_M)
    column = place // height * BLOCK_N + tl.arange(0, BLOCK_N)
    inner = tl.arange(0, BLOCK_K)
    if WRAPS:
        a_tile = a_ptr + (row % m)[:, None] * k + inner[None, :]
        b_tile = b_ptr + inner[:, None] * n + (column % n)[None, :]
    else:
        a_tile = a_ptr + row[:, None] * k + inner[None, :]
        b_tile = b_ptr + inner[:, None] * n + column[None, :]
    acc = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    for start in range(0, k, BLOCK_K):
        if WRAPS:
            a = tl.load(a_tile, mask=inner[None, :] < k - start, other=0.0)
            b = tl.load(b_tile, mask=inner[:, None] < k - start, other=0.0)
        else:
            within = (row < m)[:, None] & (inner < k - start)[None, :]
            a = tl.load(a_tile, mask=within, other=0.0)
            within = (inner < k - start)[:, None] & (column < n)[None, :]
            b = tl.load(b_tile, mask=within, other=0.0)
        acc = tl.dot(a, b, acc)
        a_tile += BLOCK_K
        b_tile += BLOCK_K * n
    inside = (row < m)[:, None] & (column < n)[None, :]
    at = row[:, None].to(tl.int64) * n + column[None, :]
    tl.store(c_ptr + at, acc.to(c_ptr.dtype.element_ty), mask=inside)


@tw.jit
def selective_scan(
    x_ptr, delta_ptr, a_ptr, b_ptr, c_ptr, y_ptr, length, channels,
    STATE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """h = exp(delta a) h + delta b x;  y = sum(c h), over time"""
    channel = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    batch = tl.program_id(1)
    state = tl.arange(0, STATE)
    inside = channel < channels
    a = tl.load(a_ptr + channel[:, None] * STATE + state[None, :], mask=inside[:, None], other=0.0)
    h = tl.zeros([BLOCK, STATE], tl.float32)
    for t in range(length):
        at = (batch * length + t) * channels + channel
        x = tl.load(x_ptr + at, mask=inside, other=0.0)
        delta = tl.load(delta_ptr + at, mask=inside, other=0.0)
        b = tl.load(b_ptr + (batch * length + t) * STATE + state)
        c = tl.load(c_ptr + (batch * length + t) * STATE + state)
        h = h * tl.exp(delta[:, None] * a) + (delta * x)[:, None] * b[None, :]
        tl.store(y_ptr + at, tl.sum(h * c[None, :], axis=1), mask=inside)
