"""Kernels with long compile times: unrolled windows and parts, many products.

They are compiled for `benchmarks.gpu.compile_time` and not run.
"""

from __future__ import annotations

import tilewright as triton
import tilewright.language as tl


@triton.jit
def combine_parts(
    part_ptr, lse_ptr, out_ptr, out_lse_ptr, lengths_ptr, rows, PARTS: tl.constexpr,
    ROWS: tl.constexpr, D: tl.constexpr, UNROLL: tl.constexpr,
):  # fmt: skip
    """Attention over parts of the keys, combined: each part has a sum of D values and a logsumexp.

    Args:
        part_ptr: (PARTS, rows, D).
        lse_ptr: (PARTS, rows).
        lengths_ptr: number of valid parts of each row.
    """
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, D)
    there = row < rows
    count = tl.load(lengths_ptr + row, mask=there, other=0)
    highest = tl.full((ROWS,), -float("inf"), tl.float32)
    weight = tl.zeros((ROWS,), tl.float32)
    total = tl.zeros((ROWS, D), tl.float32)
    for start in range(0, PARTS, UNROLL):
        for step in tl.static_range(UNROLL):
            part = start + step
            used = there & (part < count)
            lse = tl.load(lse_ptr + part * rows + row, mask=used, other=-float("inf"))
            at = (part * rows + row)[:, None] * D + column[None, :]
            value = tl.load(part_ptr + at, mask=used[:, None], other=0.0)
            now = tl.maximum(highest, lse)
            old = tl.where(highest > -float("inf"), tl.exp(highest - now), 0.0)
            new = tl.where(used, tl.exp(lse - now), 0.0)
            total = total * old[:, None] + value.to(tl.float32) * new[:, None]
            weight = weight * old + new
            highest = now
    at = row[:, None] * D + column[None, :]
    tl.store(out_ptr + at, total / weight[:, None], mask=there[:, None])
    tl.store(out_lse_ptr + row, highest + tl.log(weight), mask=there)


@triton.jit
def chunk_backward(
    q_ptr, k_ptr, v_ptr, state_ptr, gate_ptr, do_ptr, dstate_ptr, dq_ptr, dk_ptr, dv_ptr, dgate_ptr,
    length, scale, K: tl.constexpr, V: tl.constexpr, C: tl.constexpr,
    BLOCK_K: tl.constexpr, BLOCK_V: tl.constexpr,
):  # fmt: skip
    """Gradients of linear attention with a decay, of one chunk of C positions and BLOCK_K keys.

    The loop over V carries five tiles and has seven products.
    """
    keys, chunk, head = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    row = chunk * C + tl.arange(0, C)
    key = keys * BLOCK_K + tl.arange(0, BLOCK_K)
    inside = row < length
    base = head * length
    gate = tl.load(gate_ptr + base + row, mask=inside, other=0.0)
    last = tl.load(gate_ptr + base + tl.minimum(chunk * C + C, length) - 1)
    causal = tl.arange(0, C)[:, None] >= tl.arange(0, C)[None, :]
    decay = tl.where(causal, tl.exp(gate[:, None] - gate[None, :]), 0.0)
    at = (base + row)[:, None] * K + key[None, :]
    q = tl.load(q_ptr + at, mask=inside[:, None], other=0.0)
    k = tl.load(k_ptr + at, mask=inside[:, None], other=0.0)
    scores = tl.dot(q, tl.trans(k)) * decay * scale
    dq = tl.zeros((C, BLOCK_K), tl.float32)
    dk = tl.zeros((C, BLOCK_K), tl.float32)
    dscores = tl.zeros((C, C), tl.float32)
    dlast = tl.zeros((BLOCK_K,), tl.float32)
    dgate = tl.zeros((C,), tl.float32)
    for start in range(0, V, BLOCK_V):
        value = start + tl.arange(0, BLOCK_V)
        at_v = (base + row)[:, None] * V + value[None, :]
        v = tl.load(v_ptr + at_v, mask=inside[:, None], other=0.0)
        do = tl.load(do_ptr + at_v, mask=inside[:, None], other=0.0)
        at_s = ((head * tl.num_programs(1) + chunk) * K + key)[:, None] * V + value[None, :]
        state = tl.load(state_ptr + at_s)
        dstate = tl.load(dstate_ptr + at_s)
        dscores += tl.dot(do, tl.trans(v))
        dq += tl.dot(do, tl.trans(state))
        dk += tl.dot(v, tl.trans(dstate))
        dlast += tl.sum(state.to(tl.float32) * dstate.to(tl.float32), 1)
        read = tl.dot(q, state) * tl.exp(gate)[:, None] * scale
        dgate += tl.sum(read * do.to(tl.float32), 1)
        dv = tl.dot(tl.trans(scores.to(do.dtype)), do)
        dv += tl.dot(k, dstate) * tl.exp(last - gate)[:, None]
        tl.store(dv_ptr + keys * length * V + at_v, dv.to(do.dtype), mask=inside[:, None])
    dscores = dscores * decay * scale
    products = dscores.to(q.dtype)
    dq = dq * tl.exp(gate)[:, None] * scale + tl.dot(products, k)
    dk = dk * tl.exp(last - gate)[:, None]
    dgate -= tl.sum(dk * k.to(tl.float32), 1)
    dk += tl.dot(tl.trans(products), q)
    kept = dscores * tl.dot(q, tl.trans(k))
    dgate += tl.sum(kept, 1) - tl.sum(kept, 0) + tl.exp(last) * tl.sum(dlast, 0)
    tl.store(dq_ptr + at, dq.to(q.dtype), mask=inside[:, None])
    tl.store(dk_ptr + at, dk.to(q.dtype), mask=inside[:, None])
    tl.store(dgate_ptr + keys * length + base + row, dgate, mask=inside)


@triton.jit
def convolve_volume(
    x_ptr, w_ptr, out_ptr, batch, channels, depth, height, width, filters,
    out_depth, out_height, out_width, DEEP: tl.constexpr, HIGH: tl.constexpr, WIDE: tl.constexpr,
    STEP: tl.constexpr, PAD: tl.constexpr, BLOCK_P: tl.constexpr, BLOCK_C: tl.constexpr,
    BLOCK_F: tl.constexpr,
):  # fmt: skip
    """A convolution of volumes as products, one for each offset in the window, all unrolled."""
    place = tl.program_id(0) * BLOCK_P + tl.arange(0, BLOCK_P)
    one = tl.program_id(1) * BLOCK_F + tl.arange(0, BLOCK_F)
    w = place % out_width
    h = place // out_width % out_height
    d = place // (out_width * out_height) % out_depth
    n = place // (out_width * out_height * out_depth)
    total = tl.zeros((BLOCK_P, BLOCK_F), tl.float32)
    for i in tl.static_range(DEEP):
        for j in tl.static_range(HIGH):
            for k in tl.static_range(WIDE):
                at_d, at_h, at_w = d * STEP - PAD + i, h * STEP - PAD + j, w * STEP - PAD + k
                inside = (n < batch) & (at_d >= 0) & (at_d < depth) & (at_h >= 0)
                inside = inside & (at_h < height) & (at_w >= 0) & (at_w < width)
                for start in range(0, channels, BLOCK_C):
                    c = start + tl.arange(0, BLOCK_C)
                    row = (n[:, None] * channels + c[None, :]) * depth + at_d[:, None]
                    x_at = (row * height + at_h[:, None]) * width + at_w[:, None]
                    x = tl.load(
                        x_ptr + x_at, mask=inside[:, None] & (c < channels)[None, :], other=0.0
                    )
                    w_row = (one[None, :] * channels + c[:, None]) * DEEP + i
                    w_at = (w_row * HIGH + j) * WIDE + k
                    kept = (c < channels)[:, None] & (one < filters)[None, :]
                    total += tl.dot(x, tl.load(w_ptr + w_at, mask=kept, other=0.0))
    out_row = (n[:, None] * filters + one[None, :]) * out_depth + d[:, None]
    out_at = (out_row * out_height + h[:, None]) * out_width + w[:, None]
    tl.store(out_ptr + out_at, total, mask=(n < batch)[:, None] & (one < filters)[None, :])


@triton.jit
def normalise_columns(
    x_ptr, scale_ptr, norm_ptr, out_ptr, rows, columns, eps, ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):  # fmt: skip
    """Columns divided by their norms; the squares of ROWS rows are accumulated separately."""
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    inside = column < columns
    squares = tl.zeros((ROWS, COLUMNS), tl.float32)
    for start in range(0, rows, ROWS):
        row = start + tl.arange(0, ROWS)[:, None]
        there = (row < rows) & inside
        x = tl.load(x_ptr + row * columns + column, mask=there, other=0.0).to(tl.float32)
        squares += x * x
    norm = tl.sqrt(tl.sum(squares, 0) + eps)[None, :]
    tl.store(norm_ptr + column, norm, mask=inside)
    scale = tl.load(scale_ptr + column, mask=inside, other=0.0)
    for start in range(0, rows, ROWS):
        row = start + tl.arange(0, ROWS)[:, None]
        there = (row < rows) & inside
        x = tl.load(x_ptr + row * columns + column, mask=there, other=0.0).to(tl.float32)
        tl.store(out_ptr + row * columns + column, x / norm * scale, mask=there)
