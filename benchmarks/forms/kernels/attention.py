"""Attention as libraries vary it: biases, capped scores, windows, lists of blocks, decoding."""

# pyright: reportUnnecessaryComparison=false, reportArgumentType=false, reportIndexIssue=false
import tilewright as triton
import tilewright.language as tl


@triton.jit
def attend(
    q,
    k,
    v,
    bias,
    out,
    scale,
    T,
    cap,
    HEADS: tl.constexpr,
    RATIO: tl.constexpr,
    D: tl.constexpr,
    CAUSAL: tl.constexpr,
    WINDOW: tl.constexpr,
    BIAS: tl.constexpr,
    CAP: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
):
    """Softmax of scores in base 2; each option changes the scores or the range of the keys."""
    i, z = tl.program_id(0), tl.program_id(1)
    b, h = z // HEADS, z % HEADS
    rows, f = i * BM + tl.arange(0, BM), tl.arange(0, D)
    q += (z * T).to(tl.int64) * D
    k += ((b * (HEADS // RATIO) + h // RATIO) * T).to(tl.int64) * D
    v += ((b * (HEADS // RATIO) + h // RATIO) * T).to(tl.int64) * D
    qs = tl.load(q + rows[:, None] * D + f[None, :], mask=rows[:, None] < T, other=0.0)
    m = tl.full((BM,), -float("inf"), dtype=tl.float32)
    total = tl.zeros((BM,), dtype=tl.float32)
    acc = tl.zeros((BM, D), dtype=tl.float32)
    begin, end = 0, T
    if CAUSAL:
        end = tl.minimum((i + 1) * BM, T)
    if WINDOW > 0:
        begin = tl.maximum(i * BM - WINDOW, 0) // BN * BN
    for start in range(begin, end, BN):
        n = start + tl.arange(0, BN)
        ks = tl.load(k + n[None, :] * D + f[:, None], mask=n[None, :] < T, other=0.0)
        s = tl.dot(qs, ks) * scale
        if CAP:
            s = cap * (2 * tl.sigmoid(2 * s / cap) - 1)
        if BIAS:
            at = bias + (h * T + rows[:, None]) * T + n[None, :]
            inside = (rows[:, None] < T) & (n[None, :] < T)
            s += tl.load(at, mask=inside, other=0.0).to(tl.float32)
        keep = n[None, :] < T
        if CAUSAL:
            keep &= rows[:, None] >= n[None, :]
        if WINDOW > 0:
            keep &= rows[:, None] - n[None, :] < WINDOW
        s = tl.where(keep, s * 1.4426950408889634, -1e30)
        new = tl.maximum(m, tl.max(s, 1))
        p = tl.exp2(s - new[:, None])
        alpha = tl.exp2(m - new)
        total = total * alpha + tl.sum(p, 1)
        vs = tl.load(v + n[:, None] * D + f[None, :], mask=n[:, None] < T, other=0.0)
        acc = tl.dot(p.to(vs.dtype), vs, acc * alpha[:, None])
        m = new
    at = out + (z * T).to(tl.int64) * D + rows[:, None] * D + f[None, :]
    tl.store(at, (acc / total[:, None]).to(tl.bfloat16), mask=rows[:, None] < T)


@triton.jit
def attend_blocks(
    q, k, v, starts, blocks, out, scale, T, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr
):
    """Block-sparse: the blocks of keys of each block of rows, listed one after the other."""
    i, z = tl.program_id(0), tl.program_id(1)
    rows, f = i * BM + tl.arange(0, BM), tl.arange(0, D)
    base = z * T * D
    qs = tl.load(q + base + rows[:, None] * D + f[None, :])
    m = tl.full((BM,), -float("inf"), dtype=tl.float32)
    total = tl.zeros((BM,), dtype=tl.float32)
    acc = tl.zeros((BM, D), dtype=tl.float32)
    for entry in range(tl.load(starts + i), tl.load(starts + i + 1)):
        n = tl.load(blocks + entry) * BN + tl.arange(0, BN)
        ks = tl.load(k + base + n[None, :] * D + f[:, None])
        s = tl.dot(qs, ks) * scale
        s = tl.where(rows[:, None] >= n[None, :], s * 1.4426950408889634, -1e30)
        new = tl.maximum(m, tl.max(s, 1))
        p, alpha = tl.exp2(s - new[:, None]), tl.exp2(m - new)
        total = total * alpha + tl.sum(p, 1)
        vs = tl.load(v + base + n[:, None] * D + f[None, :])
        acc = tl.dot(p.to(vs.dtype), vs, acc * alpha[:, None])
        m = new
    tl.store(out + base + rows[:, None] * D + f[None, :], (acc / total[:, None]).to(tl.bfloat16))


@triton.jit
def decode(
    q,
    k,
    v,
    part,
    lse,
    scale,
    T,
    HEADS: tl.constexpr,
    RATIO: tl.constexpr,
    D: tl.constexpr,
    BH: tl.constexpr,
    BN: tl.constexpr,
    SPLITS: tl.constexpr,
):
    """One position, the query heads of one head of keys, and a part of the keys [B, T, KV, D]."""
    b, kv, split = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    row, f = tl.arange(0, BH), tl.arange(0, D)
    head = b * HEADS + kv * RATIO + row
    inside = row[:, None] < RATIO
    qs = tl.load(q + head[:, None] * D + f[None, :], mask=inside, other=0.0)
    stride = HEADS // RATIO * D
    k += b.to(tl.int64) * T * stride + kv * D
    v += b.to(tl.int64) * T * stride + kv * D
    m = tl.full((BH,), -float("inf"), dtype=tl.float32)
    total = tl.zeros((BH,), dtype=tl.float32)
    acc = tl.zeros((BH, D), dtype=tl.float32)
    per = tl.cdiv(T, SPLITS)
    end = tl.minimum(split * per + per, T)
    for start in range(split * per, end, BN):
        n = start + tl.arange(0, BN)
        ks = tl.load(k + n[None, :] * stride + f[:, None], mask=n[None, :] < end, other=0.0)
        s = tl.dot(qs, ks) * scale
        s = tl.where(n[None, :] < end, s, -1e30)
        new = tl.maximum(m, tl.max(s, 1))
        alpha, p = tl.exp(m - new), tl.exp(s - new[:, None])
        vs = tl.load(v + n[:, None] * stride + f[None, :], mask=n[:, None] < end, other=0.0)
        acc = acc * alpha[:, None] + tl.dot(p.to(vs.dtype), vs)
        total = total * alpha + tl.sum(p, 1)
        m = new
    at = head * SPLITS + split
    tl.store(part + at[:, None] * D + f[None, :], acc / total[:, None], mask=inside)
    tl.store(lse + at, m + tl.log(total), mask=row < RATIO)


@triton.jit
def decode_int8(
    q,
    k,
    v,
    scales_k,
    scales_v,
    out,
    scale,
    T,
    HEADS: tl.constexpr,
    D: tl.constexpr,
    BN: tl.constexpr,
):
    """One position of one head without matrix instructions, keys and values in int8 with a scale
    for each position."""
    z = tl.program_id(0)
    f = tl.arange(0, D)
    qs = tl.load(q + z * D + f).to(tl.float32) * scale
    m = -float("inf")
    total = 0.0
    acc = tl.zeros((D,), dtype=tl.float32)
    for start in range(0, T, BN):
        n = start + tl.arange(0, BN)
        inside = n < T
        at = z * T * D + n[:, None] * D + f[None, :]
        ks = tl.load(k + at, mask=inside[:, None], other=0).to(tl.float32)
        s = tl.sum(ks * qs[None, :], 1) * tl.load(scales_k + z * T + n, mask=inside, other=0.0)
        s = tl.where(inside, s, -1e30)
        new = tl.maximum(m, tl.max(s, 0))
        p, alpha = tl.exp(s - new), tl.exp(m - new)
        total = total * alpha + tl.sum(p, 0)
        p *= tl.load(scales_v + z * T + n, mask=inside, other=0.0)
        vs = tl.load(v + at, mask=inside[:, None], other=0).to(tl.float32)
        acc = acc * alpha + tl.sum(p[:, None] * vs, 0)
        m = new
    tl.store(out + z * D + f, (acc / total).to(tl.float16))
