"""Inference of language models: gating, attention over pages, rotary embeddings, adapters."""

# pyright: reportUnnecessaryComparison=false, reportArgumentType=false, reportIndexIssue=false
import tilewright as triton
import tilewright.language as tl


@triton.jit
def top_experts(
    logits, weights, chosen, tokens, E: tl.constexpr, TOP: tl.constexpr, BT: tl.constexpr
):
    """Softmax over the experts of each token, and the TOP largest, renormalised."""
    token = tl.program_id(0) * BT + tl.arange(0, BT)
    expert = tl.arange(0, E)
    inside = token < tokens
    x = tl.load(logits + token[:, None] * E + expert[None, :], mask=inside[:, None], other=0.0).to(
        tl.float32
    )
    p = tl.exp(x - tl.max(x, axis=1)[:, None])
    p = p / tl.sum(p, axis=1)[:, None]
    total = tl.zeros((BT,), dtype=tl.float32)
    rest = p
    for k in tl.static_range(TOP):
        best = tl.argmax(rest, axis=1)
        value = tl.max(rest, axis=1)
        total += value
        tl.store(chosen + token * TOP + k, best.to(tl.int32), mask=inside)
        tl.store(weights + token * TOP + k, value, mask=inside)
        rest = tl.where(expert[None, :] == best[:, None], -1.0, rest)
    for k in tl.static_range(TOP):
        value = tl.load(weights + token * TOP + k, mask=inside)
        tl.store(weights + token * TOP + k, value / total, mask=inside)


@triton.jit
def paged_attention(
    q,
    keys,
    values,
    tables,
    lengths,
    part,
    lse,
    scale,
    table_stride,
    page_stride,
    token_stride,
    HEADS: tl.constexpr,
    RATIO: tl.constexpr,
    D: tl.constexpr,
    PAGE: tl.constexpr,
    BH: tl.constexpr,
    BN: tl.constexpr,
    SPLITS: tl.constexpr,
):
    """One part of a sequence's keys for the query heads of one head of keys, in pages."""
    b, kv, split = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    length = tl.load(lengths + b)
    per = tl.cdiv(tl.cdiv(length, SPLITS), BN) * BN
    begin, end = split * per, tl.minimum(split * per + per, length)
    row = tl.arange(0, BH)
    head = kv * RATIO + row
    f = tl.arange(0, D)
    qs = tl.load(
        q + (b * HEADS + head[:, None]) * D + f[None, :], mask=row[:, None] < RATIO, other=0.0
    )
    m = tl.zeros((BH,), dtype=tl.float32) - float("inf")
    total = tl.zeros((BH,), dtype=tl.float32)
    acc = tl.zeros((BH, D), dtype=tl.float32)
    for start in range(begin, end, BN):
        n = start + tl.arange(0, BN)
        page = tl.load(tables + b * table_stride + n // PAGE, mask=n < end, other=0).to(tl.int64)
        at = page * page_stride + (n % PAGE) * token_stride + kv * D
        k = tl.load(keys + at[None, :] + f[:, None], mask=n[None, :] < end, other=0.0)
        s = tl.dot(qs, k) * scale
        s = tl.where((n[None, :] < end) & (row[:, None] < RATIO), s, float("-inf"))
        new = tl.maximum(m, tl.max(s, 1))
        new = tl.where(new == float("-inf"), 0.0, new)
        alpha, p = tl.exp(m - new), tl.exp(s - new[:, None])
        v = tl.load(values + at[:, None] + f[None, :], mask=n[:, None] < end, other=0.0)
        acc = acc * alpha[:, None] + tl.dot(p.to(v.dtype), v)
        total = total * alpha + tl.sum(p, 1)
        m = new
    total = tl.where(total > 0.0, total, 1.0)  # the last parts may be empty
    out = (b * HEADS + head) * SPLITS + split
    tl.store(part + out[:, None] * D + f[None, :], acc / total[:, None], mask=row[:, None] < RATIO)
    tl.store(lse + out, m + tl.log(total), mask=row < RATIO)


@triton.jit
def combine_parts(part, lse, out, SPLITS: tl.constexpr, D: tl.constexpr):
    """The weighted sum of a head's parts, one at a time."""
    head = tl.program_id(0)
    f = tl.arange(0, D)
    m = -float("inf")
    total = 0.0
    acc = tl.zeros((D,), dtype=tl.float32)
    for split in range(SPLITS):
        value = tl.load(part + (head * SPLITS + split) * D + f)
        weight = tl.load(lse + head * SPLITS + split)
        new = tl.maximum(m, weight)
        old, now = tl.exp(m - new), tl.exp(weight - new)
        acc = acc * old + now * value
        total = total * old + now
        m = new
    tl.store(out + head * D + f, (acc / total).to(tl.float16))


@triton.jit
def rope_in_place(
    q,
    k,
    table,
    positions,
    tokens,
    q_stride,
    k_stride,
    QH: tl.constexpr,
    KH: tl.constexpr,
    HALF: tl.constexpr,
):
    """Rotates both halves of each head in place: one program for each token."""
    token = tl.program_id(0)
    at = tl.load(positions + token)
    f = tl.arange(0, HALF)
    c = tl.load(table + at * (2 * HALF) + f).to(tl.float32)
    s = tl.load(table + at * (2 * HALF) + HALF + f).to(tl.float32)
    head = tl.arange(0, QH)
    base = q + token * q_stride + head[:, None] * (2 * HALF) + f[None, :]
    a, b = tl.load(base).to(tl.float32), tl.load(base + HALF).to(tl.float32)
    tl.store(base, (a * c[None, :] - b * s[None, :]).to(tl.bfloat16))
    tl.store(base + HALF, (b * c[None, :] + a * s[None, :]).to(tl.bfloat16))
    head = tl.arange(0, KH)
    base = k + token * k_stride + head[:, None] * (2 * HALF) + f[None, :]
    a, b = tl.load(base).to(tl.float32), tl.load(base + HALF).to(tl.float32)
    tl.store(base, (a * c[None, :] - b * s[None, :]).to(tl.bfloat16))
    tl.store(base + HALF, (b * c[None, :] + a * s[None, :]).to(tl.bfloat16))


@triton.jit
def rope_by_block(x, y, table, heads, width, BLOCK: tl.constexpr):
    """Rotates pairs at distance width, of blocks of a token's heads: quotients of flat indices."""
    token = tl.program_id(0)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = at < heads * width
    head, f = at // width, at % width
    base = token * heads * width * 2 + head * width * 2 + f
    c = tl.load(table + token * width * 2 + f, mask=inside, other=0.0)
    s = tl.load(table + token * width * 2 + width + f, mask=inside, other=0.0)
    a = tl.load(x + base, mask=inside, other=0.0)
    b = tl.load(x + base + width, mask=inside, other=0.0)
    tl.store(y + base, a * c - b * s, mask=inside)
    tl.store(y + base + width, b * c + a * s, mask=inside)


@triton.jit
def lora_shrink(
    x,
    a,
    ids,
    out,
    tokens,
    K,
    scale,
    R: tl.constexpr,
    BM: tl.constexpr,
    BK: tl.constexpr,
    SPLIT: tl.constexpr,
):
    """out[tokens, R] += x @ a[id].T over a part of K; one adapter for each block of tokens."""
    i, z = tl.program_id(0), tl.program_id(1)
    adapter = tl.load(ids + i)
    if adapter < 0:
        return
    rows = i * BM + tl.arange(0, BM)
    rank = tl.arange(0, R)
    depth = z * BK + tl.arange(0, BK)
    px = x + rows[:, None] * K + depth[None, :]
    pa = a + adapter * R * K + rank[None, :] * K + depth[:, None]
    acc = tl.zeros((BM, R), dtype=tl.float32)
    for k in range(tl.cdiv(K, BK * SPLIT)):
        left = K - k * BK * SPLIT
        u = tl.load(px, mask=(rows[:, None] < tokens) & (depth[None, :] < left), other=0.0)
        v = tl.load(pa, mask=depth[:, None] < left, other=0.0)
        acc += tl.dot(u, v)
        px += BK * SPLIT
        pa += BK * SPLIT
    tl.atomic_add(
        out + rows[:, None] * R + rank[None, :],
        acc * scale,
        mask=rows[:, None] < tokens,
        sem="relaxed",
    )


@triton.jit
def lora_expand(x, b, ids, out, tokens, N, R: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    """out[tokens, N] += x[tokens, R] @ b[id].T."""
    i, j = tl.program_id(0), tl.program_id(1)
    adapter = tl.load(ids + i)
    if adapter < 0:
        return
    rows, columns = i * BM + tl.arange(0, BM), j * BN + tl.arange(0, BN)
    rank = tl.arange(0, R)
    u = tl.load(x + rows[:, None] * R + rank[None, :], mask=rows[:, None] < tokens, other=0.0)
    v = tl.load(b + adapter * N * R + columns[None, :] * R + rank[:, None])
    acc = tl.dot(u.to(tl.float16), v)
    at = out + rows[:, None] * N + columns[None, :]
    inside = (rows[:, None] < tokens) & (columns[None, :] < N)
    tl.store(at, acc.to(tl.float16) + tl.load(at, mask=inside), mask=inside)


@triton.jit
def sample_weights(logits, out, columns, temperature, top_p, BLOCK: tl.constexpr):
    """Softmax at a temperature, less the tokens outside the most likely ones whose sum is top_p:
    the bound is found by bisection."""
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    inside = at < columns
    x = tl.load(logits + row * columns + at, mask=inside, other=-float("inf")).to(tl.float32)
    x = x / temperature
    p = tl.exp(x - tl.max(x, axis=0))
    p = p / tl.sum(p, axis=0)
    low, high = 0.0, tl.max(p, axis=0)
    for _ in range(20):
        middle = (low + high) * 0.5
        enough = tl.sum(tl.where(p >= middle, p, 0.0), axis=0) >= top_p
        low = tl.where(enough, middle, low)
        high = tl.where(enough, high, middle)
    p = tl.where(p >= low, p, 0.0)
    tl.store(out + row * columns + at, p / tl.sum(p, axis=0), mask=inside)


@triton.jit
def largest_of_rows(x, values, columns, TOP: tl.constexpr, BLOCK: tl.constexpr):
    """The TOP largest of each row, in descending order."""
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    v = tl.load(x + row * columns + at, mask=at < columns, other=-float("inf"))
    tl.store(values + row * TOP + tl.arange(0, TOP), tl.topk(v, TOP))


@triton.jit
def sort_rows(x, y, columns, BLOCK: tl.constexpr):
    """Each row in ascending order."""
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    v = tl.load(x + row * columns + at, mask=at < columns, other=float("inf"))
    tl.store(y + row * columns + at, tl.sort(v), mask=at < columns)
