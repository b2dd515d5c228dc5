"""Kernels that fuse what models have one after the other, in the forms of public libraries. They
were written before any of them was differentiated."""

from __future__ import annotations

from typing import Any

import tilewright as triton
import tilewright.language as tl


@triton.jit
def fused_linear_cross_entropy(
    x_ptr: Any, w_ptr: Any, b_ptr: Any, target_ptr: Any, loss_ptr: Any, lse_ptr: Any, T: Any,
    V: Any, stride_x: Any, stride_w: Any, softcap: Any, ignore_index: Any, D: tl.constexpr,
    HAS_CAP: tl.constexpr, BT: tl.constexpr, BV: tl.constexpr, BD: tl.constexpr,
):  # fmt: skip
    """The cross-entropy of a linear layer, of which no logits are stored."""
    rows = tl.program_id(0) * BT + tl.arange(0, BT)
    valid = rows < T
    target = tl.load(target_ptr + rows, mask=valid, other=ignore_index)
    m = tl.full((BT,), float("-inf"), tl.float32)
    total = tl.zeros((BT,), tl.float32)
    z = tl.zeros((BT,), tl.float32)
    for v0 in range(0, V, BV):
        cols = v0 + tl.arange(0, BV)
        logits = tl.zeros((BT, BV), tl.float32)
        for d0 in range(0, D, BD):
            d = d0 + tl.arange(0, BD)
            x = tl.load(
                x_ptr + rows[:, None] * stride_x + d[None, :],
                mask=valid[:, None] & (d[None, :] < D), other=0.0,
            )  # fmt: skip
            w = tl.load(
                w_ptr + cols[None, :] * stride_w + d[:, None],
                mask=(cols[None, :] < V) & (d[:, None] < D), other=0.0,
            )  # fmt: skip
            logits = tl.dot(x, w, logits, input_precision="ieee")
        logits += tl.load(b_ptr + cols, mask=cols < V, other=0.0)[None, :]
        if HAS_CAP:
            logits = softcap * (2.0 * tl.sigmoid(2.0 * logits / softcap) - 1.0)
        z += tl.sum(tl.where(cols[None, :] == target[:, None], logits, 0.0), 1)
        logits = tl.where(cols[None, :] < V, logits, float("-inf"))
        m_new = tl.maximum(m, tl.max(logits, 1))
        total = total * tl.exp(m - m_new) + tl.sum(tl.exp(logits - m_new[:, None]), 1)
        m = m_new
    lse = m + tl.log(total)
    loss = tl.where(target == ignore_index, 0.0, lse - z)
    tl.store(lse_ptr + rows, lse, mask=valid)
    tl.store(loss_ptr + rows, loss, mask=valid)


@triton.jit
def distillation(
    s_ptr: Any, t_ptr: Any, label_ptr: Any, loss_ptr: Any, s_stride: Any, t_stride: Any, V: Any,
    temperature: Any, alpha: Any, BLOCK: tl.constexpr,
):  # fmt: skip
    """alpha KL(teacher || student) at a temperature, and the cross-entropy of labels, of a row."""
    row = tl.program_id(0).to(tl.int64)
    s_ptr += row * s_stride
    t_ptr += row * t_stride
    label = tl.load(label_ptr + row)
    ms, mt, m1 = float("-inf"), float("-inf"), float("-inf")
    ls, lt, l1 = 0.0, 0.0, 0.0
    for i in range(0, V, BLOCK):
        cols = i + tl.arange(0, BLOCK)
        s = tl.load(s_ptr + cols, mask=cols < V, other=float("-inf")).to(tl.float32)
        t = tl.load(t_ptr + cols, mask=cols < V, other=float("-inf")).to(tl.float32) / temperature
        m1_new = tl.maximum(m1, tl.max(s))
        l1 = l1 * tl.exp(m1 - m1_new) + tl.sum(tl.exp(s - m1_new))
        s = s / temperature
        ms_new = tl.maximum(ms, tl.max(s))
        ls = ls * tl.exp(ms - ms_new) + tl.sum(tl.exp(s - ms_new))
        mt_new = tl.maximum(mt, tl.max(t))
        lt = lt * tl.exp(mt - mt_new) + tl.sum(tl.exp(t - mt_new))
        ms, mt, m1 = ms_new, mt_new, m1_new
    kl = 0.0
    for i in range(0, V, BLOCK):
        cols = i + tl.arange(0, BLOCK)
        s = tl.load(s_ptr + cols, mask=cols < V, other=0.0).to(tl.float32) / temperature
        t = tl.load(t_ptr + cols, mask=cols < V, other=0.0).to(tl.float32) / temperature
        log_s = s - ms - tl.log(ls)
        log_t = t - mt - tl.log(lt)
        kl += tl.sum(tl.where(cols < V, tl.exp(log_t) * (log_t - log_s), 0.0))
    ce = m1 + tl.log(l1) - tl.load(s_ptr + label).to(tl.float32)
    tl.store(loss_ptr + row, alpha * kl * temperature * temperature + (1 - alpha) * ce)


@triton.jit
def _normed_and_rotated(x, w, cos, sin, eps, D: tl.constexpr, rotate: tl.constexpr):
    x = x * tl.rsqrt(tl.sum(x * x, 1) / D + eps)[:, None] * w[None, :]
    halves = tl.permute(tl.reshape(x, (x.shape[0], 2, D // 2)), (0, 2, 1))
    a, b = tl.split(halves)
    if rotate:
        a, b = a * cos - b * sin, b * cos + a * sin
    return tl.reshape(tl.permute(tl.join(a, b), (0, 2, 1)), (x.shape[0], D))


@triton.jit
def rotary_attention(
    q_ptr: Any, k_ptr: Any, v_ptr: Any, wq_ptr: Any, wk_ptr: Any, cos_ptr: Any, sin_ptr: Any,
    o_ptr: Any, lse_ptr: Any, N: Any, scale: Any, eps: Any, H: tl.constexpr, GROUP: tl.constexpr,
    D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """Causal attention of queries and keys that are normalised and rotated in the kernel."""
    block, batch, head = tl.program_id(0), tl.program_id(1) // H, tl.program_id(1) % H
    kv_head = batch * (H // GROUP) + head // GROUP
    rows, dims, half = block * BM + tl.arange(0, BM), tl.arange(0, D), tl.arange(0, D // 2)
    q_at = (tl.program_id(1) * N + rows[:, None]) * D + dims[None, :]
    wq, wk = tl.load(wq_ptr + dims), tl.load(wk_ptr + dims)
    angle_at = rows[:, None] * (D // 2) + half[None, :]
    cos = tl.load(cos_ptr + angle_at, mask=rows[:, None] < N, other=0.0)
    sin = tl.load(sin_ptr + angle_at, mask=rows[:, None] < N, other=0.0)
    q = tl.load(q_ptr + q_at, mask=rows[:, None] < N, other=0.0)
    q = _normed_and_rotated(q, wq, cos, sin, eps, D, True)
    m = tl.full((BM,), float("-inf"), tl.float32)
    total = tl.zeros((BM,), tl.float32)
    acc = tl.zeros((BM, D), tl.float32)
    for start in tl.range(0, tl.minimum((block + 1) * BM, N), BN):
        cols = start + tl.arange(0, BN)
        kv_at = (kv_head * N + cols[:, None]) * D + dims[None, :]
        k = tl.load(k_ptr + kv_at, mask=cols[:, None] < N, other=0.0)
        v = tl.load(v_ptr + kv_at, mask=cols[:, None] < N, other=0.0)
        angle_at = cols[:, None] * (D // 2) + half[None, :]
        cos = tl.load(cos_ptr + angle_at, mask=cols[:, None] < N, other=0.0)
        sin = tl.load(sin_ptr + angle_at, mask=cols[:, None] < N, other=0.0)
        k = _normed_and_rotated(k, wk, cos, sin, eps, D, True)
        s = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
        s = tl.where(rows[:, None] >= cols[None, :], s, float("-inf"))
        m_new = tl.maximum(m, tl.max(s, 1))
        p = tl.exp(s - m_new[:, None])
        alpha = tl.exp(m - m_new)
        total = total * alpha + tl.sum(p, 1)
        acc = tl.dot(p, v, acc * alpha[:, None], input_precision="ieee")
        m = m_new
    tl.store(o_ptr + q_at, acc / total[:, None], mask=rows[:, None] < N)
    tl.store(lse_ptr + tl.program_id(1) * N + rows, m + tl.log(total), mask=rows < N)


@triton.jit
def lstm(
    x_ptr: Any, w_ptr: Any, h0_ptr: Any, c0_ptr: Any, h_ptr: Any, c_ptr: Any, B: Any, T: Any,
    H: tl.constexpr, BB: tl.constexpr,
):  # fmt: skip
    """A recurrent layer over time, whose inputs are projected already; x is (B, T, 4, H)."""
    b, i, j = tl.program_id(0) * BB + tl.arange(0, BB), tl.arange(0, H), tl.arange(0, H)
    mask = (b < B)[:, None]
    w_at = w_ptr + i[:, None] * H + j[None, :]
    wi, wf = tl.load(w_at), tl.load(w_at + H * H)
    wg, wo = tl.load(w_at + 2 * H * H), tl.load(w_at + 3 * H * H)
    h = tl.load(h0_ptr + b[:, None] * H + j[None, :], mask=mask, other=0.0)
    c = tl.load(c0_ptr + b[:, None] * H + j[None, :], mask=mask, other=0.0)
    for t in range(T):
        x_at = x_ptr + ((b[:, None] * T + t) * 4) * H + j[None, :]
        gi = tl.load(x_at, mask=mask, other=0.0) + tl.dot(h, wi, input_precision="ieee")
        gf = tl.load(x_at + H, mask=mask, other=0.0) + tl.dot(h, wf, input_precision="ieee")
        gg = tl.load(x_at + 2 * H, mask=mask, other=0.0) + tl.dot(h, wg, input_precision="ieee")
        go = tl.load(x_at + 3 * H, mask=mask, other=0.0) + tl.dot(h, wo, input_precision="ieee")
        c = tl.sigmoid(gf) * c + tl.sigmoid(gi) * (2 * tl.sigmoid(2 * gg) - 1)
        h = tl.sigmoid(go) * (2 * tl.sigmoid(2 * c) - 1)
        tl.store(h_ptr + (b[:, None] * T + t) * H + j[None, :], h, mask=mask)
    tl.store(c_ptr + b[:, None] * H + j[None, :], c, mask=mask)


@triton.jit
def window_attention(
    q_ptr: Any, k_ptr: Any, v_ptr: Any, table_ptr: Any, o_ptr: Any, heads: Any, side: Any,
    scale: Any, D: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Attention within windows of side x side, with a table of biases by relative position."""
    window, head = tl.program_id(0), tl.program_id(1)
    n = side * side
    i, d = tl.arange(0, BLOCK), tl.arange(0, D)
    at = ((window * heads + head) * n + i[:, None]) * D + d[None, :]
    inside = i[:, None] < n
    q = tl.load(q_ptr + at, mask=inside, other=0.0)
    k = tl.load(k_ptr + at, mask=inside, other=0.0)
    v = tl.load(v_ptr + at, mask=inside, other=0.0)
    dy = i[:, None] // side - i[None, :] // side + side - 1
    dx = i[:, None] % side - i[None, :] % side + side - 1
    both = inside & (i[None, :] < n)
    bias = tl.load(table_ptr + (dy * (2 * side - 1) + dx) * heads + head, mask=both, other=0.0)
    s = tl.dot(q, tl.trans(k), input_precision="ieee") * scale + bias
    s = tl.where(i[None, :] < n, s, float("-inf"))
    p = tl.exp(s - tl.max(s, 1)[:, None])
    p = p / tl.sum(p, 1)[:, None]
    tl.store(o_ptr + at, tl.dot(p, v, input_precision="ieee"), mask=inside)


@triton.jit
def gated_delta_rule(
    q_ptr: Any, k_ptr: Any, v_ptr: Any, g_ptr: Any, beta_ptr: Any, h0_ptr: Any, o_ptr: Any,
    ht_ptr: Any, T: Any, H: Any, scale: Any, K: tl.constexpr, V: tl.constexpr, BV: tl.constexpr,
):  # fmt: skip
    """A matrix that decays, and is corrected by each key and value, over time."""
    i_v, i_bh = tl.program_id(0), tl.program_id(1)
    i_b, i_h = i_bh // H, i_bh % H
    o_k, o_v = tl.arange(0, K), i_v * BV + tl.arange(0, BV)
    p_q = q_ptr + (i_b * T * H + i_h) * K + o_k
    p_k = k_ptr + (i_b * T * H + i_h) * K + o_k
    p_v = v_ptr + (i_b * T * H + i_h) * V + o_v
    p_o = o_ptr + (i_b * T * H + i_h) * V + o_v
    p_g = g_ptr + i_b * T * H + i_h
    p_beta = beta_ptr + i_b * T * H + i_h
    mask_v = o_v < V
    h = tl.load(
        h0_ptr + i_bh * K * V + o_k[:, None] * V + o_v[None, :], mask=mask_v[None, :], other=0.0
    )
    for _ in range(T):
        q = tl.load(p_q) * scale
        k = tl.load(p_k)
        v = tl.load(p_v, mask=mask_v, other=0)
        q = q / tl.sqrt(tl.sum(q * q) + 1e-6)
        k = k / tl.sqrt(tl.sum(k * k) + 1e-6)
        h *= tl.exp(tl.load(p_g))
        v -= tl.sum(h * k[:, None], 0)
        v *= tl.load(p_beta)
        h += k[:, None] * v[None, :]
        tl.store(p_o, tl.sum(h * q[:, None], 0), mask=mask_v)
        p_q += H * K
        p_k += H * K
        p_v += H * V
        p_o += H * V
        p_g += H
        p_beta += H
    tl.store(ht_ptr + i_bh * K * V + o_k[:, None] * V + o_v[None, :], h, mask=mask_v[None, :])


@triton.jit
def depthwise_conv2d(
    x_ptr: Any, w_ptr: Any, b_ptr: Any, y_ptr: Any, H: Any, W: Any, C: Any, OH: Any, OW: Any,
    STRIDE: tl.constexpr, PAD: tl.constexpr, K: tl.constexpr, BLOCK: tl.constexpr,
    BC: tl.constexpr,
):  # fmt: skip
    """A convolution of each channel by itself, channels last, with SiLU."""
    pixels = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    channels = tl.program_id(1) * BC + tl.arange(0, BC)
    image = tl.program_id(2)
    oh, ow = pixels // OW, pixels % OW
    acc = tl.zeros((BLOCK, BC), tl.float32)
    for kh in tl.static_range(K):
        for kw in tl.static_range(K):
            ih, iw = oh * STRIDE + kh - PAD, ow * STRIDE + kw - PAD
            inside = (ih >= 0) & (ih < H) & (iw >= 0) & (iw < W) & (pixels < OH * OW)
            mask = inside[:, None] & (channels < C)[None, :]
            x = tl.load(
                x_ptr + ((image * H + ih) * W + iw)[:, None] * C + channels[None, :],
                mask=mask, other=0.0,
            )  # fmt: skip
            w = tl.load(w_ptr + (kh * K + kw) * C + channels, mask=channels < C, other=0.0)
            acc += x * w[None, :]
    acc += tl.load(b_ptr + channels, mask=channels < C, other=0.0)[None, :]
    y = acc * tl.sigmoid(acc)
    mask = (pixels < OH * OW)[:, None] & (channels < C)[None, :]
    tl.store(y_ptr + (image * OH * OW + pixels)[:, None] * C + channels[None, :], y, mask=mask)


@triton.jit
def shifted_windows(
    q_ptr: Any, k_ptr: Any, v_ptr: Any, o_ptr: Any, height: Any, width: Any, shift: Any,
    scale: Any, SIDE: tl.constexpr, D: tl.constexpr,
):  # fmt: skip
    """Attention within windows of a rolled image, of rows of pixels."""
    columns = width // SIDE
    row, column = tl.program_id(0) // columns, tl.program_id(0) % columns
    t = tl.arange(0, SIDE * SIDE)
    y = (row * SIDE + t // SIDE + shift) % height
    x = (column * SIDE + t % SIDE + shift) % width
    at = (y * width + x)[:, None] * D + tl.arange(0, D)[None, :]
    q, k, v = tl.load(q_ptr + at), tl.load(k_ptr + at), tl.load(v_ptr + at)
    s = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
    p = tl.exp(s - tl.max(s, 1)[:, None])
    p = p / tl.sum(p, 1)[:, None]
    tl.store(o_ptr + at, tl.dot(p, v, input_precision="ieee"))


@triton.jit
def grouped_experts(
    x_ptr: Any, w_ptr: Any, gate_ptr: Any, token_ptr: Any, expert_ptr: Any, y_ptr: Any,
    count: Any, n: Any, d: Any, top: Any,
    BM: tl.constexpr, BN: tl.constexpr, BD: tl.constexpr,
):  # fmt: skip
    """Blocks of tokens of one expert each, padded: their rows are gathered and put back."""
    j, k = tl.program_id(1) * BN + tl.arange(0, BN), tl.arange(0, BD)
    token = tl.load(token_ptr + tl.program_id(0) * BM + tl.arange(0, BM))
    valid, expert = token < count, tl.load(expert_ptr + tl.program_id(0))
    x_ptrs = x_ptr + (token // top)[:, None] * d + k[None, :]
    w_ptrs = w_ptr + expert * n * d + j[None, :] * d + k[:, None]
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(0, d, BD):
        x = tl.load(x_ptrs, mask=valid[:, None] & (k[None, :] < d - start), other=0.0)
        w = tl.load(w_ptrs, mask=(k[:, None] < d - start) & (j[None, :] < n), other=0.0)
        acc += tl.dot(x, w, input_precision="ieee")
        x_ptrs += BD
        w_ptrs += BD
    acc = acc * tl.load(gate_ptr + token, mask=valid, other=0.0)[:, None]
    inside = valid[:, None] & (j[None, :] < n)
    tl.store(y_ptr + token[:, None] * n + j[None, :], acc, mask=inside)
