"""Kernels in the forms in which public libraries write them: strides of all axes as arguments,
block pointers, casts to fp32, loops over heads, blocks or chunks, early returns. They were written
before any of them was differentiated. Results that are saved for a backward kernel are `aux`."""

from __future__ import annotations

import tilewright as tw
import tilewright.language as tl


@tw.jit
def fused_add_rms_norm(
    y_ptr, y_row_stride, s_ptr, s_row_stride, x_ptr, x_row_stride, r_ptr, r_row_stride, w_ptr,
    rstd_ptr, n_cols, eps, offset, BLOCK_SIZE: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK_SIZE)
    mask = cols < n_cols
    y_ptr += row * y_row_stride
    s_ptr += row * s_row_stride
    x_ptr += row * x_row_stride
    r_ptr += row * r_row_stride
    x = tl.load(x_ptr + cols, mask=mask, other=0)
    r = tl.load(r_ptr + cols, mask=mask, other=0)
    s = x + r
    tl.store(s_ptr + cols, s, mask=mask)
    s = s.to(tl.float32)
    mean_square = tl.sum(s * s, axis=0) / n_cols
    rstd = tl.rsqrt(mean_square + eps)
    tl.store(rstd_ptr + row, rstd)
    w = tl.load(w_ptr + cols, mask=mask, other=0)
    y = (s * rstd).to(x.dtype) * (offset + w)
    tl.store(y_ptr + cols, y, mask=mask)


@tw.jit
def geglu_tanh(a, b, c, stride, n_cols: tl.constexpr, BLOCK_SIZE: tl.constexpr):
    program_id = tl.program_id(0).to(tl.int64)
    a += program_id * stride
    b += program_id * stride
    c += program_id * stride
    col_offsets = tl.arange(0, BLOCK_SIZE)
    mask = col_offsets < n_cols
    a_row = tl.load(a + col_offsets, mask=mask, other=0).to(tl.float32)
    b_row = tl.load(b + col_offsets, mask=mask, other=0)
    inner = 0.7978845608028654 * (a_row + 0.044715 * a_row * a_row * a_row)
    tanh = 2 * tl.sigmoid(2 * inner) - 1
    geglu = 0.5 * a_row * (1 + tanh)
    tl.store(c + col_offsets, geglu.cast(b_row.dtype) * b_row, mask=mask)


@tw.jit
def kl_divergence(
    pred_ptr, pred_stride, target_ptr, target_stride, loss_ptr, n_cols, eps,
    LOG_TARGET: tl.constexpr, BLOCK_SIZE: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    pred_ptr += row * pred_stride
    target_ptr += row * target_stride
    loss_sum = 0.0
    for i in range(0, n_cols, BLOCK_SIZE):
        offsets = i + tl.arange(0, BLOCK_SIZE)
        mask = offsets < n_cols
        y = tl.load(pred_ptr + offsets, mask=mask, other=0.0)
        y_true = tl.load(target_ptr + offsets, mask=mask, other=0.0)
        if not LOG_TARGET:
            loss = y_true * (tl.log(tl.maximum(y_true, eps)) - y)
        else:
            loss = tl.exp(y_true) * (y_true - y)
        loss_sum += tl.sum(tl.where(mask, loss, 0.0), axis=0)
    tl.store(loss_ptr + row, loss_sum)


@tw.jit
def smoothed_cross_entropy(
    x_ptr, x_stride, labels_ptr, loss_ptr, lse_ptr, n_cols, ignore_index, label_smoothing,
    softcap, BLOCK_SIZE: tl.constexpr, HAS_SOFTCAP: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    label = tl.load(labels_ptr + row)
    x_ptr += row * x_stride
    if label == ignore_index:
        tl.store(loss_ptr + row, 0.0)
        return
    m = float("-inf")
    d = 0.0
    total = 0.0
    for i in range(0, n_cols, BLOCK_SIZE):
        offsets = i + tl.arange(0, BLOCK_SIZE)
        x = tl.load(x_ptr + offsets, mask=offsets < n_cols, other=float("-inf")).to(tl.float32)
        if HAS_SOFTCAP:
            x = softcap * (2 * tl.sigmoid(2 * x / softcap) - 1)
            x = tl.where(offsets < n_cols, x, float("-inf"))
        total += tl.sum(tl.where(offsets < n_cols, x, 0.0))
        block_max = tl.max(x)
        m_new = tl.maximum(m, block_max)
        d = d * tl.exp(m - m_new) + tl.sum(tl.exp(x - m_new))
        m = m_new
    lse = m + tl.log(d)
    x_label = tl.load(x_ptr + label).to(tl.float32)
    if HAS_SOFTCAP:
        x_label = softcap * (2 * tl.sigmoid(2 * x_label / softcap) - 1)
    smooth = label_smoothing / n_cols
    loss = (1 - label_smoothing) * (lse - x_label) + smooth * (n_cols * lse - total)
    tl.store(lse_ptr + row, lse)
    tl.store(loss_ptr + row, loss)


@tw.jit
def rope_of_heads(
    q_ptr, q_row_stride, cos_ptr, cos_row_stride, sin_ptr, sin_row_stride, out_ptr, seq_len,
    head_dim: tl.constexpr, n_heads: tl.constexpr, HALF: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0)
    group = tl.program_id(1)
    cols = tl.arange(0, HALF)
    half: tl.constexpr = head_dim // 2
    mask = cols < half
    sin1 = tl.load(sin_ptr + (row % seq_len) * sin_row_stride + cols, mask=mask, other=0)
    cos1 = tl.load(cos_ptr + (row % seq_len) * cos_row_stride + cols, mask=mask, other=0)
    head_start = group * GROUP
    head_end = min(head_start + GROUP, n_heads)
    for k in tl.range(head_start, head_end):
        first = row * q_row_stride + k * head_dim + cols
        second = first + half
        q1 = tl.load(q_ptr + first, mask=mask, other=0).to(sin1.dtype)
        q2 = tl.load(q_ptr + second, mask=mask, other=0).to(sin1.dtype)
        tl.store(out_ptr + first, q1 * cos1 - q2 * sin1, mask=mask)
        tl.store(out_ptr + second, q2 * cos1 + q1 * sin1, mask=mask)


@tw.jit
def l2_norm_of_blocks(
    x, y, rstd, eps, T, D: tl.constexpr, BD: tl.constexpr, BT: tl.constexpr
):  # fmt: skip
    i_t = tl.program_id(0)
    p_x = tl.make_block_ptr(x, (T, D), (D, 1), (i_t * BT, 0), (BT, BD), (1, 0))
    p_y = tl.make_block_ptr(y, (T, D), (D, 1), (i_t * BT, 0), (BT, BD), (1, 0))
    p_rstd = tl.make_block_ptr(rstd, (T,), (1,), (i_t * BT,), (BT,), (0,))
    b_x = tl.load(p_x, boundary_check=(0, 1)).to(tl.float32)
    b_rstd = 1 / tl.sqrt(tl.sum(b_x * b_x, 1) + eps)
    b_y = b_x * b_rstd[:, None]
    tl.store(p_y, b_y.to(p_y.dtype.element_ty), boundary_check=(0, 1))
    tl.store(p_rstd, b_rstd.to(p_rstd.dtype.element_ty), boundary_check=(0,))


@tw.jit
def gated_layer_norm(
    x, g, y, w, b, mean, rstd, T, D: tl.constexpr, BT: tl.constexpr, BD: tl.constexpr, eps
):
    i_t = tl.program_id(0)
    o_d = tl.arange(0, BD)
    m_d = o_d < D
    o_t = i_t * BT + tl.arange(0, BT)
    m_t = o_t < T
    at = o_t[:, None] * D + o_d[None, :]
    m = m_t[:, None] & m_d[None, :]
    b_x = tl.load(x + at, mask=m, other=0.0).to(tl.float32)
    b_mean = tl.sum(b_x, axis=1) / D
    tl.store(mean + o_t, b_mean, mask=m_t)
    b_c = tl.where(m_d[None, :], b_x - b_mean[:, None], 0.0)
    b_var = tl.sum(b_c * b_c, axis=1) / D
    b_rstd = 1 / tl.sqrt(b_var + eps)
    tl.store(rstd + o_t, b_rstd, mask=m_t)
    b_w = tl.load(w + o_d, mask=m_d).to(tl.float32)
    b_b = tl.load(b + o_d, mask=m_d).to(tl.float32)
    b_y = b_c * b_rstd[:, None] * b_w[None, :] + b_b[None, :]
    b_g = tl.load(g + at, mask=m, other=0.0).to(tl.float32)
    tl.store(y + at, (b_y * b_g * tl.sigmoid(b_g)).to(y.dtype.element_ty), mask=m)


@tw.jit
def chunked_linear_attention(
    q, k, v, o, scale, T, H: tl.constexpr, K: tl.constexpr, V: tl.constexpr, BT: tl.constexpr,
    BV: tl.constexpr,
):  # fmt: skip
    i_v, i_bh = tl.program_id(0), tl.program_id(1)
    i_b, i_h = i_bh // H, i_bh % H
    o_i = tl.arange(0, BT)
    m_s = o_i[:, None] >= o_i[None, :]
    b_h = tl.zeros([K, BV], dtype=tl.float32)
    for i_t in range(tl.cdiv(T, BT)):
        p_q = tl.make_block_ptr(
            q + (i_b * T * H + i_h) * K, (T, K), (H * K, 1), (i_t * BT, 0), (BT, K), (1, 0)
        )
        p_k = tl.make_block_ptr(
            k + (i_b * T * H + i_h) * K, (K, T), (1, H * K), (0, i_t * BT), (K, BT), (0, 1)
        )
        p_v = tl.make_block_ptr(
            v + (i_b * T * H + i_h) * V, (T, V), (H * V, 1), (i_t * BT, i_v * BV), (BT, BV), (1, 0)
        )
        p_o = tl.make_block_ptr(
            o + (i_b * T * H + i_h) * V, (T, V), (H * V, 1), (i_t * BT, i_v * BV), (BT, BV), (1, 0)
        )
        b_q = tl.load(p_q, boundary_check=(0, 1)) * scale
        b_k = tl.load(p_k, boundary_check=(0, 1))
        b_v = tl.load(p_v, boundary_check=(0, 1))
        b_s = tl.where(m_s, tl.dot(b_q, b_k), 0)
        b_o = tl.dot(b_s.to(b_q.dtype), b_v) + tl.dot(b_q, b_h.to(b_q.dtype))
        b_h += tl.dot(b_k, b_v)
        tl.store(p_o, b_o.to(p_o.dtype.element_ty), boundary_check=(0, 1))


@tw.jit
def leaky_relu(x):
    return tl.where(x >= 0, x, 0.01 * x)


@tw.jit
def grouped_matmul(
    a_ptr, b_ptr, c_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    pid = tl.program_id(axis=0)
    num_pid_m = tl.cdiv(M, BLOCK_M)
    num_pid_n = tl.cdiv(N, BLOCK_N)
    num_pid_in_group = GROUP_M * num_pid_n
    group_id = pid // num_pid_in_group
    first_pid_m = group_id * GROUP_M
    group_size_m = min(num_pid_m - first_pid_m, GROUP_M)
    pid_m = first_pid_m + ((pid % num_pid_in_group) % group_size_m)
    pid_n = (pid % num_pid_in_group) // group_size_m
    offs_am = (pid_m * BLOCK_M + tl.arange(0, BLOCK_M)) % M
    offs_bn = (pid_n * BLOCK_N + tl.arange(0, BLOCK_N)) % N
    offs_k = tl.arange(0, BLOCK_K)
    a_ptrs = a_ptr + (offs_am[:, None] * stride_am + offs_k[None, :] * stride_ak)
    b_ptrs = b_ptr + (offs_k[:, None] * stride_bk + offs_bn[None, :] * stride_bn)
    accumulator = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(tl.cdiv(K, BLOCK_K)):
        a = tl.load(a_ptrs, mask=offs_k[None, :] < K - k * BLOCK_K, other=0.0)
        b = tl.load(b_ptrs, mask=offs_k[:, None] < K - k * BLOCK_K, other=0.0)
        accumulator = tl.dot(a, b, accumulator)
        a_ptrs += BLOCK_K * stride_ak
        b_ptrs += BLOCK_K * stride_bk
    c = leaky_relu(accumulator)
    offs_cm = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_cn = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
    c_ptrs = c_ptr + stride_cm * offs_cm[:, None] + stride_cn * offs_cn[None, :]
    tl.store(c_ptrs, c, mask=(offs_cm[:, None] < M) & (offs_cn[None, :] < N))


@tw.jit
def attention_with_slopes(
    Q, K, V, slopes, Out, L, sm_scale, stride_z, stride_h, stride_m, stride_d, H, H_KV, N_CTX,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, HEAD_DIM: tl.constexpr,
):  # fmt: skip
    start_m = tl.program_id(0)
    off_z = tl.program_id(1) // H
    off_h = tl.program_id(1) % H
    off_kv = off_h // (H // H_KV)
    q_base = Q + off_z.to(tl.int64) * stride_z + off_h.to(tl.int64) * stride_h
    kv_offset = off_z.to(tl.int64) * (H_KV * stride_h) + off_kv.to(tl.int64) * stride_h
    offs_m = start_m * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.arange(0, BLOCK_N)
    offs_d = tl.arange(0, HEAD_DIM)
    q = tl.load(
        q_base + offs_m[:, None] * stride_m + offs_d[None, :] * stride_d,
        mask=offs_m[:, None] < N_CTX,
        other=0.0,
    )
    slope = tl.load(slopes + off_h)
    m_i = tl.zeros([BLOCK_M], dtype=tl.float32) - float("inf")
    l_i = tl.zeros([BLOCK_M], dtype=tl.float32) + 1.0
    acc = tl.zeros([BLOCK_M, HEAD_DIM], dtype=tl.float32)
    qk_scale = sm_scale * 1.44269504
    hi = min((start_m + 1) * BLOCK_M, N_CTX)
    for start_n in tl.range(0, hi, BLOCK_N):
        cols = start_n + offs_n
        kv = kv_offset + cols[:, None] * stride_m + offs_d[None, :] * stride_d
        k = tl.load(K + kv, mask=cols[:, None] < N_CTX, other=0.0)
        qk = tl.dot(q, tl.trans(k)) * qk_scale
        distance = (cols[None, :] - offs_m[:, None]).to(tl.float32)
        qk += slope * 1.44269504 * distance
        qk = tl.where((offs_m[:, None] >= cols[None, :]) & (cols[None, :] < N_CTX), qk, -1.0e6)
        m_ij = tl.maximum(m_i, tl.max(qk, 1))
        qk -= m_ij[:, None]
        p = tl.math.exp2(qk)
        alpha = tl.math.exp2(m_i - m_ij)
        l_i = l_i * alpha + tl.sum(p, 1)
        acc = acc * alpha[:, None]
        v = tl.load(V + kv, mask=cols[:, None] < N_CTX, other=0.0)
        acc = tl.dot(p.to(v.dtype), v, acc)
        m_i = m_ij
    acc = acc / l_i[:, None]
    tl.store(L + tl.program_id(1) * N_CTX + offs_m, m_i + tl.math.log2(l_i), mask=offs_m < N_CTX)
    o_base = Out + off_z.to(tl.int64) * stride_z + off_h.to(tl.int64) * stride_h
    tl.store(
        o_base + offs_m[:, None] * stride_m + offs_d[None, :] * stride_d,
        acc.to(Out.dtype.element_ty),
        mask=offs_m[:, None] < N_CTX,
    )
