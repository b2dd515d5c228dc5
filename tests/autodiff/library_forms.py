"""Further kernels in the forms of public libraries: losses, embeddings, routers, recurrences,
products with quantised or gated operands, pooling. They were written before any was differentiated.
"""

from __future__ import annotations

import tilewright as tw
import tilewright.language as tl


@tw.jit
def triplet_margin(
    anchor_ptr, positive_ptr, negative_ptr, loss_ptr, margin, dims, BLOCK_SIZE: tl.constexpr
):  # fmt: skip
    pid = tl.program_id(0)
    start = pid * dims
    near = tl.zeros((), tl.float32)
    far = tl.zeros((), tl.float32)
    for off in range(0, dims, BLOCK_SIZE):
        cols = off + tl.arange(0, BLOCK_SIZE)
        mask = cols < dims
        a = tl.load(anchor_ptr + start + cols, mask=mask, other=0.0)
        p = tl.load(positive_ptr + start + cols, mask=mask, other=0.0)
        n = tl.load(negative_ptr + start + cols, mask=mask, other=0.0)
        near += tl.sum((a - p) * (a - p))
        far += tl.sum((a - n) * (a - n))
    loss = tl.maximum(tl.sqrt(near) - tl.sqrt(far) + margin, 0.0)
    tl.store(loss_ptr + pid, loss)


@tw.jit
def focal_loss(
    x_ptr, t_ptr, out_ptr, n, alpha, GAMMA: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask)
    t = tl.load(t_ptr + offs, mask=mask)
    p = tl.sigmoid(x)
    bce = tl.maximum(x, 0.0) - x * t + tl.log(1.0 + tl.exp(-tl.abs(x)))
    p_t = p * t + (1 - p) * (1 - t)
    modulator = 1.0 - p_t
    weight = modulator
    for _ in tl.static_range(GAMMA - 1):
        weight *= modulator
    loss = bce * weight
    if alpha >= 0:
        loss = (alpha * t + (1 - alpha) * (1 - t)) * loss
    tl.store(out_ptr + offs, loss, mask=mask)


@tw.jit
def gated_chunk_output(
    q, v, g, h, o, A, scale, T: tl.constexpr, K: tl.constexpr, V: tl.constexpr, BT: tl.constexpr,
    BK: tl.constexpr, BV: tl.constexpr, NT: tl.constexpr,
):  # fmt: skip
    i_v, i_t, i_bh = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    m_s = tl.arange(0, BT)[:, None] >= tl.arange(0, BT)[None, :]
    b_o = tl.zeros([BT, BV], dtype=tl.float32)
    for i_k in range(tl.cdiv(K, BK)):
        p_q = tl.make_block_ptr(
            q + i_bh * T * K, (T, K), (K, 1), (i_t * BT, i_k * BK), (BT, BK), (1, 0)
        )
        p_g = tl.make_block_ptr(
            g + i_bh * T * K, (T, K), (K, 1), (i_t * BT, i_k * BK), (BT, BK), (1, 0)
        )
        p_h = tl.make_block_ptr(
            h + i_bh * NT * K * V + i_t * K * V, (K, V), (V, 1), (i_k * BK, i_v * BV), (BK, BV),
            (1, 0),
        )  # fmt: skip
        b_q = tl.load(p_q, boundary_check=(0, 1)) * scale
        b_g = tl.load(p_g, boundary_check=(0, 1))
        b_h = tl.load(p_h, boundary_check=(0, 1))
        if i_k >= 0:
            b_o += tl.dot(b_q * tl.exp(b_g), b_h)
    p_v = tl.make_block_ptr(
        v + i_bh * T * V, (T, V), (V, 1), (i_t * BT, i_v * BV), (BT, BV), (1, 0)
    )
    p_o = tl.make_block_ptr(
        o + i_bh * T * V, (T, V), (V, 1), (i_t * BT, i_v * BV), (BT, BV), (1, 0)
    )
    p_A = tl.make_block_ptr(A + i_bh * T * BT, (T, BT), (BT, 1), (i_t * BT, 0), (BT, BT), (1, 0))
    b_v = tl.load(p_v, boundary_check=(0, 1))
    b_A = tl.where(m_s, tl.load(p_A, boundary_check=(0, 1)), 0.0)
    b_o += tl.dot(b_A, b_v)
    tl.store(p_o, b_o, boundary_check=(0, 1))


@tw.jit
def chunk_states(
    k, v, g, h, T: tl.constexpr, K: tl.constexpr, V: tl.constexpr, BT: tl.constexpr,
    BK: tl.constexpr, BV: tl.constexpr, NT: tl.constexpr,
):  # fmt: skip
    i_k, i_v, i_bh = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    b_h = tl.zeros([BK, BV], dtype=tl.float32)
    for i_t in range(NT):
        p_k = tl.make_block_ptr(
            k + i_bh * T * K, (K, T), (1, K), (i_k * BK, i_t * BT), (BK, BT), (0, 1)
        )
        p_v = tl.make_block_ptr(
            v + i_bh * T * V, (T, V), (V, 1), (i_t * BT, i_v * BV), (BT, BV), (1, 0)
        )
        p_h = tl.make_block_ptr(
            h + i_bh * NT * K * V + i_t * K * V, (K, V), (V, 1), (i_k * BK, i_v * BV), (BK, BV),
            (1, 0),
        )  # fmt: skip
        tl.store(p_h, b_h, boundary_check=(0, 1))
        b_k = tl.load(p_k, boundary_check=(0, 1))
        b_v = tl.load(p_v, boundary_check=(0, 1))
        last = min((i_t + 1) * BT, T) - 1
        b_last = tl.load(g + i_bh * T + last)
        b_g = tl.load(
            g + i_bh * T + i_t * BT + tl.arange(0, BT),
            mask=i_t * BT + tl.arange(0, BT) < T,
            other=0.0,
        )
        b_h *= tl.exp(b_last)
        b_v = b_v * tl.exp(b_last - b_g)[:, None]
        b_h += tl.dot(b_k, b_v)


@tw.jit
def embeddings_with_dropout(
    x_ptr, wte_ptr, wpe_ptr, z_ptr, L, N, p, seed, BLOCK_SIZE: tl.constexpr
):  # fmt: skip
    pid = tl.program_id(0)
    wte_ptr += tl.load(x_ptr + pid) * N
    wpe_ptr += (pid % L) * N
    z_ptr += pid * N
    for k in range(0, N, BLOCK_SIZE):
        offset = k + tl.arange(0, BLOCK_SIZE)
        mask = offset < N
        z = tl.load(wte_ptr + offset, mask=mask, other=0.0)
        z += tl.load(wpe_ptr + offset, mask=mask, other=0.0)
        random = tl.rand(seed, pid * N + offset)
        z = tl.where(random > p, z / (1 - p), 0.0)
        tl.store(z_ptr + offset, z, mask=mask)


@tw.jit
def gathered_rows(
    x_ptr, wte_ptr, stride_v, stride_h, out_ptr, stride_ob, stride_oh, B, H,
    BLOCK_B: tl.constexpr, BLOCK_H: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(0) * BLOCK_B + tl.arange(0, BLOCK_B)
    cols = tl.program_id(1) * BLOCK_H + tl.arange(0, BLOCK_H)
    index = tl.load(x_ptr + rows, mask=rows < B, other=0)
    mask = (rows < B)[:, None] & (cols < H)[None, :]
    words = tl.load(
        wte_ptr + index[:, None] * stride_v + cols[None, :] * stride_h, mask=mask, other=0.0
    )
    tl.store(out_ptr + rows[:, None] * stride_ob + cols[None, :] * stride_oh, words, mask=mask)


@tw.jit
def interleaved_rope(
    x_ptr, freqs_ptr, out_ptr, seq, heads, D: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    row = tl.program_id(0)
    position = row // heads % seq
    cols = tl.arange(0, BLOCK)
    pairs = tl.arange(0, BLOCK // 2)
    x = tl.load(x_ptr + row * D + cols, mask=cols < D, other=0.0)
    angle = tl.load(freqs_ptr + position * (D // 2) + pairs, mask=pairs < D // 2, other=0.0)
    even, odd = tl.split(tl.reshape(x, [BLOCK // 2, 2]))
    c, s = tl.cos(angle), tl.sin(angle)
    out = tl.interleave(even * c - odd * s, even * s + odd * c)
    tl.store(out_ptr + row * D + cols, out, mask=cols < D)


@tw.jit
def top_k_router(
    logits_ptr, weights_ptr, index_ptr, experts, K: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    x = tl.load(logits_ptr + row * experts + cols, mask=cols < experts, other=-float("inf"))
    slots = tl.arange(0, K)
    values = tl.full([K], -float("inf"), tl.float32)
    rest = x
    for i in tl.static_range(K):
        top, where = tl.max(rest, axis=0, return_indices=True)
        values = tl.where(slots == i, top, values)
        tl.store(index_ptr + row * K + i, where)
        rest = tl.where(cols == where, -float("inf"), rest)
    e = tl.exp(values - tl.max(values, axis=0))
    tl.store(weights_ptr + row * K + slots, e / tl.sum(e, axis=0))


@tw.jit
def fake_quantised_linear(
    x_ptr, w_ptr, scale_ptr, y_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):  # fmt: skip
    i, j = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    scale = tl.load(scale_ptr + j, mask=j < N, other=1.0)
    acc = tl.zeros([BM, BN], tl.float32)
    for k in range(0, K, BK):
        at = k + tl.arange(0, BK)
        x = tl.load(
            x_ptr + i[:, None] * K + at[None, :], mask=(i < M)[:, None] & (at < K)[None, :],
            other=0.0,
        )  # fmt: skip
        w = tl.load(
            w_ptr + at[:, None] * N + j[None, :], mask=(at < K)[:, None] & (j < N)[None, :],
            other=0.0,
        )  # fmt: skip
        fixed = tl.stop_gradient(scale)[None, :]
        rounded = tl.floor(w / fixed + 0.5) * fixed
        acc = tl.dot(x, w + tl.stop_gradient(rounded - w), acc)
    acc *= scale[None, :]
    tl.store(y_ptr + i[:, None] * N + j[None, :], acc, mask=(i < M)[:, None] & (j < N)[None, :])


@tw.jit
def int8_linear(
    x_ptr, w_ptr, scale_ptr, zero_ptr, y_ptr, M, N, K, GROUP: tl.constexpr, BM: tl.constexpr,
    BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """w is int8, with a scale and a zero for GROUP rows of each column."""
    pid = tl.program_id(0)
    pid_m, pid_n = pid // tl.cdiv(N, BN), pid % tl.cdiv(N, BN)
    i, j = pid_m * BM + tl.arange(0, BM), pid_n * BN + tl.arange(0, BN)
    acc = tl.zeros([BM, BN], tl.float32)
    for k in range(tl.cdiv(K, BK)):
        at = k * BK + tl.arange(0, BK)
        x = tl.load(x_ptr + i[:, None] * K + at[None, :], mask=i[:, None] < M, other=0.0)
        w = tl.load(w_ptr + at[:, None] * N + j[None, :], mask=j[None, :] < N, other=0)
        group = k * BK // GROUP
        scale = tl.load(scale_ptr + group * N + j, mask=j < N, other=0.0)
        zero = tl.load(zero_ptr + group * N + j, mask=j < N, other=0.0)
        acc += tl.dot(x, (w.to(tl.float32) - zero[None, :]) * scale[None, :])
    tl.store(y_ptr + i[:, None] * N + j[None, :], acc, mask=(i < M)[:, None] & (j < N)[None, :])


@tw.jit
def split_k_matmul(
    a_ptr, b_ptr, c_ptr, M, N, K, SPLIT: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
    BK: tl.constexpr,
):  # fmt: skip
    pid, split = tl.program_id(0), tl.program_id(1)
    i = pid // tl.cdiv(N, BN) * BM + tl.arange(0, BM)
    j = pid % tl.cdiv(N, BN) * BN + tl.arange(0, BN)
    at = split * BK + tl.arange(0, BK)
    a_tile = a_ptr + i[:, None] * K + at[None, :]
    b_tile = b_ptr + at[:, None] * N + j[None, :]
    acc = tl.zeros([BM, BN], tl.float32)
    for k in range(tl.cdiv(K, BK * SPLIT)):
        left = K - k * BK * SPLIT
        a = tl.load(a_tile, mask=(i < M)[:, None] & (at < left)[None, :], other=0.0)
        b = tl.load(b_tile, mask=(at < left)[:, None] & (j < N)[None, :], other=0.0)
        acc += tl.dot(a, b)
        a_tile += BK * SPLIT
        b_tile += BK * SPLIT * N
    tl.atomic_add(
        c_ptr + i[:, None] * N + j[None, :], acc, mask=(i < M)[:, None] & (j < N)[None, :]
    )


@tw.jit
def persistent_softmax(
    out_ptr, in_ptr, in_stride, out_stride, rows, cols, BLOCK: tl.constexpr
):  # fmt: skip
    for row in tl.range(tl.program_id(0), rows, tl.num_programs(0), num_stages=2):
        at = tl.arange(0, BLOCK)
        mask = at < cols
        x = tl.load(in_ptr + row * in_stride + at, mask=mask, other=-float("inf"))
        top = tl.exp(x - tl.max(x, axis=0))
        tl.store(out_ptr + row * out_stride + at, top / tl.sum(top, axis=0), mask=mask)


@tw.jit
def jensen_shannon(
    x_ptr, x_stride, y_ptr, y_stride, loss_ptr, beta, cols, BLOCK: tl.constexpr
):  # fmt: skip
    pid = tl.program_id(0).to(tl.int64)
    x_ptr += pid * x_stride
    y_ptr += pid * y_stride
    loss_ptr += pid * x_stride
    for i in range(0, cols, BLOCK):
        at = i + tl.arange(0, BLOCK)
        mask = at < cols
        x = tl.load(x_ptr + at, mask=mask, other=float("-inf")).to(tl.float32)
        y = tl.load(y_ptr + at, mask=mask, other=float("-inf")).to(tl.float32)
        top = tl.maximum(tl.max(x), tl.max(y))
        q, p = tl.exp(x - top) * tl.exp(top), tl.exp(y - top) * tl.exp(top)
        m = beta * p + (1 - beta) * q
        log_m = tl.log(m)
        loss = beta * p * y + (1 - beta) * q * x - m * log_m
        tl.store(loss_ptr + at, loss, mask=mask)


@tw.jit
def dropout_add_layer_norm(
    x_ptr, r_ptr, w_ptr, b_ptr, y_ptr, z_ptr, stride, cols, eps, p, seed, BLOCK: tl.constexpr
):  # fmt: skip
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    mask = at < cols
    x = tl.load(x_ptr + row * stride + at, mask=mask, other=0.0).to(tl.float32)
    keep = tl.rand(seed, row * cols + at) > p
    x = tl.where(keep, x / (1.0 - p), 0.0)
    x += tl.load(r_ptr + row * stride + at, mask=mask, other=0.0).to(tl.float32)
    tl.store(z_ptr + row * stride + at, x, mask=mask)
    mean = tl.sum(x, axis=0) / cols
    xbar = tl.where(mask, x - mean, 0.0)
    rstd = 1 / tl.sqrt(tl.sum(xbar * xbar, axis=0) / cols + eps)
    w = tl.load(w_ptr + at, mask=mask).to(tl.float32)
    b = tl.load(b_ptr + at, mask=mask, other=0.0).to(tl.float32)
    tl.store(y_ptr + row * stride + at, (x - mean) * rstd * w + b, mask=mask)


@tw.jit
def looped_group_norm(
    x_ptr, y_ptr, w_ptr, b_ptr, mean_ptr, rstd_ptr, hidden, channels_per_group, HW: tl.constexpr,
    eps, BLOCK: tl.constexpr,
):  # fmt: skip
    batch, group = tl.program_id(0), tl.program_id(1)
    first = (batch * tl.num_programs(1) + group) * hidden
    s = 0.0
    squared = 0.0
    for i in tl.range(0, hidden, BLOCK):
        at = i + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + first + at, mask=at < hidden, other=0.0)
        s += tl.sum(x)
        squared += tl.sum(x * x)
    m = s / hidden
    rstd = tl.rsqrt(squared / hidden - m * m + eps)
    for channel in tl.range(group * channels_per_group, (group + 1) * channels_per_group):
        w = tl.load(w_ptr + channel)
        b = tl.load(b_ptr + channel)
        inner = first + (channel - group * channels_per_group) * HW
        for i in range(0, HW, BLOCK):
            at = i + tl.arange(0, BLOCK)
            x = tl.load(x_ptr + inner + at, mask=at < HW, other=m)
            tl.store(y_ptr + inner + at, (x - m) * rstd * w + b, mask=at < HW)
    tl.store(mean_ptr + batch * tl.num_programs(1) + group, m)
    tl.store(rstd_ptr + batch * tl.num_programs(1) + group, rstd)


@tw.jit
def flat_batch_norm(
    x_ptr, w_ptr, b_ptr, y_ptr, n, C, HW, BLOCK: tl.constexpr
):  # fmt: skip
    """Weights of the channel of each element of a flat image: lanes share them."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    channel = at // HW % C
    x = tl.load(x_ptr + at, mask=mask)
    w = tl.load(w_ptr + channel, mask=mask)
    b = tl.load(b_ptr + channel, mask=mask)
    tl.store(y_ptr + at, x * w + b, mask=mask)


@tw.jit
def gated_mlp(
    x_ptr, gate_ptr, up_ptr, y_ptr, M, N, K, stride_xm, stride_xk, stride_wk, stride_wn,
    stride_ym, stride_yn, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    offs_m = tl.program_id(0) * BM + tl.arange(0, BM)
    offs_n = tl.program_id(1) * BN + tl.arange(0, BN)
    offs_k = tl.arange(0, BK)
    x_ptrs = x_ptr + offs_m[:, None] * stride_xm + offs_k[None, :] * stride_xk
    offset = offs_k[:, None] * stride_wk + offs_n[None, :] * stride_wn
    gate_ptrs, up_ptrs = gate_ptr + offset, up_ptr + offset
    gate = tl.zeros((BM, BN), dtype=tl.float32)
    up = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(tl.cdiv(K, BK)):
        left = K - k * BK
        x = tl.load(x_ptrs, mask=(offs_m[:, None] < M) & (offs_k[None, :] < left), other=0.0)
        inside = (offs_k[:, None] < left) & (offs_n[None, :] < N)
        gate += tl.dot(x, tl.load(gate_ptrs, mask=inside, other=0.0))
        up += tl.dot(x, tl.load(up_ptrs, mask=inside, other=0.0))
        x_ptrs += BK * stride_xk
        gate_ptrs += BK * stride_wk
        up_ptrs += BK * stride_wk
    y = gate * tl.sigmoid(gate) * up
    y_ptrs = y_ptr + offs_m[:, None] * stride_ym + offs_n[None, :] * stride_yn
    tl.store(y_ptrs, y, mask=(offs_m[:, None] < M) & (offs_n[None, :] < N))


@tw.jit
def _attend(
    acc, l_i, m_i, q, K_block, V_block, start_m, qk_scale, offs_m, offs_n, BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr, STAGE: tl.constexpr, N_CTX: tl.constexpr,
):  # fmt: skip
    if STAGE == 1:
        lo, hi = 0, start_m * BLOCK_M
    elif STAGE == 2:
        lo, hi = start_m * BLOCK_M, (start_m + 1) * BLOCK_M
        lo = tl.multiple_of(lo, BLOCK_M)
    else:
        lo, hi = 0, N_CTX
    K_block = tl.advance(K_block, (0, lo))
    V_block = tl.advance(V_block, (lo, 0))
    for start_n in range(lo, hi, BLOCK_N):
        start_n = tl.multiple_of(start_n, BLOCK_N)
        k = tl.load(K_block)
        qk = tl.dot(q, k)
        if STAGE == 2:
            mask = offs_m[:, None] >= (start_n + offs_n[None, :])
            qk = qk * qk_scale + tl.where(mask, 0, -1.0e6)
            m_ij = tl.maximum(m_i, tl.max(qk, 1))
            qk -= m_ij[:, None]
        else:
            m_ij = tl.maximum(m_i, tl.max(qk, 1) * qk_scale)
            qk = qk * qk_scale - m_ij[:, None]
        p = tl.math.exp2(qk)
        l_ij = tl.sum(p, 1)
        alpha = tl.math.exp2(m_i - m_ij)
        l_i = l_i * alpha + l_ij
        acc = acc * alpha[:, None]
        v = tl.load(V_block)
        acc = tl.dot(p.to(v.dtype), v, acc)
        m_i = m_ij
        V_block = tl.advance(V_block, (BLOCK_N, 0))
        K_block = tl.advance(K_block, (0, BLOCK_N))
    return acc, l_i, m_i


@tw.jit
def two_stage_attention(
    Q, K, V, sm_scale, M, Out, stride_z, stride_h, stride_m, stride_k, Z, H,
    N_CTX: tl.constexpr, HEAD_DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    STAGE: tl.constexpr,
):  # fmt: skip
    start_m = tl.program_id(0)
    off_hz = tl.program_id(1)
    off_z, off_h = off_hz // H, off_hz % H
    base = off_z.to(tl.int64) * stride_z + off_h.to(tl.int64) * stride_h
    Q_block = tl.make_block_ptr(
        Q + base, (N_CTX, HEAD_DIM), (stride_m, stride_k), (start_m * BLOCK_M, 0),
        (BLOCK_M, HEAD_DIM), (1, 0),
    )  # fmt: skip
    V_block = tl.make_block_ptr(
        V + base, (N_CTX, HEAD_DIM), (stride_m, stride_k), (0, 0), (BLOCK_N, HEAD_DIM), (1, 0)
    )
    K_block = tl.make_block_ptr(
        K + base, (HEAD_DIM, N_CTX), (stride_k, stride_m), (0, 0), (HEAD_DIM, BLOCK_N), (0, 1)
    )
    O_block = tl.make_block_ptr(
        Out + base, (N_CTX, HEAD_DIM), (stride_m, stride_k), (start_m * BLOCK_M, 0),
        (BLOCK_M, HEAD_DIM), (1, 0),
    )  # fmt: skip
    offs_m = start_m * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.arange(0, BLOCK_N)
    m_i = tl.zeros([BLOCK_M], dtype=tl.float32) - float("inf")
    l_i = tl.zeros([BLOCK_M], dtype=tl.float32) + 1.0
    acc = tl.zeros([BLOCK_M, HEAD_DIM], dtype=tl.float32)
    qk_scale = sm_scale * 1.44269504
    q = tl.load(Q_block)
    if STAGE & 1:
        acc, l_i, m_i = _attend(
            acc, l_i, m_i, q, K_block, V_block, start_m, qk_scale, offs_m, offs_n, BLOCK_M,
            BLOCK_N, 4 - STAGE, N_CTX,
        )  # fmt: skip
    if STAGE & 2:
        acc, l_i, m_i = _attend(
            acc, l_i, m_i, q, K_block, V_block, start_m, qk_scale, offs_m, offs_n, BLOCK_M,
            BLOCK_N, 2, N_CTX,
        )  # fmt: skip
    m_i += tl.math.log2(l_i)
    acc = acc / l_i[:, None]
    tl.store(M + off_hz * N_CTX + offs_m, m_i)
    tl.store(O_block, acc.to(Out.type.element_ty))


@tw.jit
def chunk_scan(
    x_ptr, dt_ptr, dA_ptr, C_ptr, B_ptr, D_ptr, out_ptr, length, heads, HEAD: tl.constexpr,
    STATE: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    """Of one chunk and one head: the part of its own inputs, weighted by decays."""
    chunk, head = tl.program_id(0), tl.program_id(1)
    t = chunk * CHUNK + tl.arange(0, CHUNK)
    d, s = tl.arange(0, HEAD), tl.arange(0, STATE)
    inside = t < length
    dA = tl.load(dA_ptr + t * heads + head, mask=inside, other=0.0)
    dt = tl.load(dt_ptr + t * heads + head, mask=inside, other=0.0)
    x = tl.load(
        x_ptr + (t[:, None] * heads + head) * HEAD + d[None, :], mask=inside[:, None], other=0.0
    )
    c = tl.load(C_ptr + t[:, None] * STATE + s[None, :], mask=inside[:, None], other=0.0)
    b = tl.load(B_ptr + t[:, None] * STATE + s[None, :], mask=inside[:, None], other=0.0)
    total = tl.cumsum(dA, 0)
    scores = tl.dot(c, tl.trans(b)) * tl.exp(total[:, None] - total[None, :]) * dt[None, :]
    causal = tl.arange(0, CHUNK)[:, None] >= tl.arange(0, CHUNK)[None, :]
    acc = tl.dot(tl.where(causal, scores, 0.0), x)
    acc += x * tl.load(D_ptr + head)
    tl.store(out_ptr + (t[:, None] * heads + head) * HEAD + d[None, :], acc, mask=inside[:, None])


@tw.jit
def short_convolution(
    x_ptr, w_ptr, b_ptr, y_ptr, T, D, W: tl.constexpr, BT: tl.constexpr, BD: tl.constexpr
):  # fmt: skip
    i_d, i_t, i_b = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    o_d = i_d * BD + tl.arange(0, BD)
    o_t = i_t * BT + tl.arange(0, BT)
    m_d = o_d < D
    acc = tl.zeros([BT, BD], tl.float32)
    for i in tl.static_range(-W + 1, 1):
        at = o_t + i
        m = (at >= 0)[:, None] & (at < T)[:, None] & m_d[None, :]
        x = tl.load(x_ptr + (i_b * T + at)[:, None] * D + o_d[None, :], mask=m, other=0.0)
        w = tl.load(w_ptr + o_d * W + (i + W - 1), mask=m_d, other=0.0)
        acc += x * w[None, :]
    acc += tl.load(b_ptr + o_d, mask=m_d, other=0.0)[None, :]
    acc = acc * tl.sigmoid(acc)
    tl.store(
        y_ptr + (i_b * T + o_t)[:, None] * D + o_d[None, :], acc,
        mask=(o_t < T)[:, None] & m_d[None, :],
    )  # fmt: skip


@tw.jit
def max_pool(
    x_ptr, y_ptr, H, W, OH, OW, KERNEL: tl.constexpr, STRIDE: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    plane = tl.program_id(0)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = at < OH * OW
    row, column = at // OW, at % OW
    best = tl.full([BLOCK], -float("inf"), tl.float32)
    for i in range(KERNEL):
        for j in range(KERNEL):
            y, x = row * STRIDE + i, column * STRIDE + j
            inside = mask & (y < H) & (x < W)
            value = tl.load(x_ptr + plane * H * W + y * W + x, mask=inside, other=-float("inf"))
            best = tl.maximum(best, value)
    tl.store(y_ptr + plane * OH * OW + at, best, mask=mask)


@tw.jit
def dynamic_tanh(
    x_ptr, alpha_ptr, gamma_ptr, beta_ptr, y_ptr, rows, cols, BLOCK: tl.constexpr
):  # fmt: skip
    row = tl.program_id(1)
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < cols
    alpha = tl.load(alpha_ptr)
    gamma = tl.load(gamma_ptr + at, mask=mask, other=0.0)
    beta = tl.load(beta_ptr + at, mask=mask, other=0.0)
    x = tl.load(x_ptr + row * cols + at, mask=mask, other=0.0)
    e = tl.exp(2 * alpha * x)
    tl.store(y_ptr + row * cols + at, gamma * ((e - 1) / (e + 1)) + beta, mask=mask)


@tw.jit
def weighted_key_value(
    w_ptr, u_ptr, k_ptr, v_ptr, out_ptr, T, C, BLOCK: tl.constexpr
):  # fmt: skip
    """A weighted mean of values over time whose weights decay, in a stable form."""
    batch = tl.program_id(0)
    c = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = c < C
    w = -tl.exp(tl.load(w_ptr + c, mask=mask, other=0.0))
    u = tl.load(u_ptr + c, mask=mask, other=0.0)
    num = tl.zeros([BLOCK], tl.float32)
    den = tl.zeros([BLOCK], tl.float32)
    eps = tl.full([BLOCK], -1e30, tl.float32)
    k_at = k_ptr + batch * T * C + c
    v_at = v_ptr + batch * T * C + c
    o_at = out_ptr + batch * T * C + c
    for _ in range(T):
        k = tl.load(k_at, mask=mask, other=0.0)
        v = tl.load(v_at, mask=mask, other=0.0)
        tau = tl.maximum(u + k, eps)
        e1, e2 = tl.exp(eps - tau), tl.exp(u + k - tau)
        tl.store(o_at, (e1 * num + e2 * v) / (e1 * den + e2), mask=mask)
        eps_w = eps + w
        nxt = tl.maximum(eps_w, k)
        e1, e2 = tl.exp(eps_w - nxt), tl.exp(k - nxt)
        num = e1 * num + e2 * v
        den = e1 * den + e2
        eps = nxt
        k_at += C
        v_at += C
        o_at += C


@tw.jit
def attention_with_dropout(
    q_ptr, k_ptr, v_ptr, bias_ptr, keep_ptr, o_ptr, heads, n, scale, p, seed, D: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """A bias that all heads share, keys that are padding, and dropped weights."""
    bh = tl.program_id(1)
    batch = bh // heads
    i = tl.program_id(0) * BM + tl.arange(0, BM)
    d = tl.arange(0, D)
    q = tl.load(q_ptr + (bh * n + i)[:, None] * D + d[None, :], mask=(i < n)[:, None], other=0.0)
    m = tl.full([BM], -float("inf"), tl.float32)
    total = tl.zeros([BM], tl.float32)
    acc = tl.zeros([BM, D], tl.float32)
    for start in range(0, n, BN):
        j = start + tl.arange(0, BN)
        place = (bh * n + j)[:, None] * D + d[None, :]
        k = tl.load(k_ptr + place, mask=(j < n)[:, None], other=0.0)
        s = tl.dot(q, tl.trans(k)) * scale
        inside = (i < n)[:, None] & (j < n)[None, :]
        s += tl.load(bias_ptr + i[:, None] * n + j[None, :], mask=inside, other=0.0)
        keep = tl.load(keep_ptr + batch * n + j, mask=j < n, other=0)
        s = tl.where(keep[None, :] > 0, s, -float("inf"))
        m_new = tl.maximum(m, tl.max(s, 1))
        safe = tl.where(m_new > -float("inf"), m_new, 0.0)
        weight = tl.exp(s - safe[:, None])
        shrink = tl.exp(m - safe)
        total = total * shrink + tl.sum(weight, 1)
        random = tl.rand(seed, (bh * n + i)[:, None] * n + j[None, :])
        weight = tl.where(random > p, weight / (1 - p), 0.0)
        v = tl.load(v_ptr + place, mask=(j < n)[:, None], other=0.0)
        acc = acc * shrink[:, None] + tl.dot(weight, v)
        m = m_new
    tl.store(
        o_ptr + (bh * n + i)[:, None] * D + d[None, :], acc / total[:, None],
        mask=(i < n)[:, None],
    )  # fmt: skip


@tw.jit
def expert_gather(
    x_ptr, w_ptr, token_ptr, expert_ptr, gate_ptr, y_ptr, tokens, H, F, BM: tl.constexpr,
    BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """Rows of tokens that are sorted by expert, times the weights of the block's expert."""
    block, column = tl.program_id(0), tl.program_id(1)
    slot = block * BM + tl.arange(0, BM)
    token = tl.load(token_ptr + slot)
    valid = token < tokens
    expert = tl.load(expert_ptr + block)
    j = column * BN + tl.arange(0, BN)
    acc = tl.zeros([BM, BN], tl.float32)
    for k in range(0, H, BK):
        at = k + tl.arange(0, BK)
        x = tl.load(x_ptr + token[:, None] * H + at[None, :], mask=valid[:, None], other=0.0)
        w = tl.load(w_ptr + expert * H * F + at[:, None] * F + j[None, :])
        acc = tl.dot(x, w, acc)
    gate = tl.load(gate_ptr + slot, mask=valid, other=0.0)
    tl.store(y_ptr + slot[:, None] * F + j[None, :], acc * gate[:, None])
