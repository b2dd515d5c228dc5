"""Kernels that read numbers once: fused norms and quantisers, optimisers, losses, bits, pixels."""

# pyright: reportUnnecessaryComparison=false, reportArgumentType=false, reportIndexIssue=false
# pyright: reportAttributeAccessIssue=false
import tilewright as triton
import tilewright.language as tl


@triton.jit
def rotate_pairs(x, cos, sin, y, heads, D: tl.constexpr, BH: tl.constexpr):
    """Rotary embedding of adjacent pairs, for a block of heads of a token."""
    token = tl.program_id(0)
    h = tl.program_id(1) * BH + tl.arange(0, BH)
    i = tl.arange(0, D // 2)
    c = tl.load(cos + token * (D // 2) + i).to(tl.float32)[None, :]
    s = tl.load(sin + token * (D // 2) + i).to(tl.float32)[None, :]
    at = (token * heads + h[:, None]) * D + 2 * i[None, :]
    inside = h[:, None] < heads
    even = tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
    odd = tl.load(x + at + 1, mask=inside, other=0.0).to(tl.float32)
    tl.store(y + at, (even * c - odd * s).to(tl.bfloat16), mask=inside)
    tl.store(y + at + 1, (even * s + odd * c).to(tl.bfloat16), mask=inside)


@triton.jit
def add_norm_fp8(x, residual, weight, y, scales, columns, eps, BLOCK: tl.constexpr):
    """residual += x; y = its RMS norm in fp8, with a scale for the row."""
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    inside = at < columns
    v = tl.load(x + row * columns + at, mask=inside, other=0.0).to(tl.float32)
    v += tl.load(residual + row * columns + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(residual + row * columns + at, v.to(tl.bfloat16), mask=inside)
    rstd = tl.rsqrt(tl.sum(v * v, axis=0) / columns + eps)
    n = v * rstd * tl.load(weight + at, mask=inside, other=0.0).to(tl.float32)
    scale = tl.maximum(tl.max(tl.abs(n), axis=0), 1e-10) / 448.0
    tl.store(scales + row, scale)
    q = tl.clamp(n / scale, -448.0, 448.0).to(y.dtype.element_ty)
    tl.store(y + row * columns + at, q, mask=inside)


@triton.jit
def norm_heads(x, weight, y, rows, eps, D: tl.constexpr, BR: tl.constexpr):
    """RMS norm of each head of queries or keys."""
    r = tl.program_id(0) * BR + tl.arange(0, BR)
    d = tl.arange(0, D)
    inside = r[:, None] < rows
    v = tl.load(x + r[:, None] * D + d[None, :], mask=inside, other=0.0).to(tl.float32)
    rstd = tl.rsqrt(tl.sum(v * v, axis=1) / D + eps)
    n = v * rstd[:, None] * tl.load(weight + d).to(tl.float32)[None, :]
    tl.store(y + r[:, None] * D + d[None, :], n.to(tl.bfloat16), mask=inside)


@triton.jit
def adam_int8(p, g, m, v, scales_m, scales_v, n, rate, step1, step2, BLOCK: tl.constexpr):
    """Adam whose states are bytes with a scale for each block."""
    block = tl.program_id(0)
    at = block * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    grad = tl.load(g + at, mask=inside, other=0.0).to(tl.float32)
    first = tl.load(m + at, mask=inside, other=0).to(tl.float32) * tl.load(scales_m + block)
    root = tl.load(v + at, mask=inside, other=0).to(tl.float32) * tl.load(scales_v + block)
    first = 0.9 * first + 0.1 * grad
    second = 0.999 * root * root + 0.001 * grad * grad
    root = tl.sqrt(second)
    old = tl.load(p + at, mask=inside, other=0.0).to(tl.float32)
    new = old - rate * (first / step1) / (root / step2 + 1e-8)
    tl.store(p + at, new.to(tl.bfloat16), mask=inside)
    scale_m = tl.maximum(tl.max(tl.abs(first), axis=0), 1e-12) / 127.0
    scale_v = tl.maximum(tl.max(root, axis=0), 1e-12) / 127.0
    tl.store(scales_m + block, scale_m)
    tl.store(scales_v + block, scale_v)
    tl.store(m + at, tl.floor(first / scale_m + 0.5).to(tl.int8), mask=inside)
    tl.store(v + at, tl.floor(root / scale_v + 0.5).to(tl.int8), mask=inside)


@triton.jit
def lion(p, g, m, n, rate, decay, BLOCK: tl.constexpr):
    """Sign of a mean of gradients, in place."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    grad = tl.load(g + at, mask=inside, other=0.0).to(tl.float32)
    mean = tl.load(m + at, mask=inside, other=0.0).to(tl.float32)
    old = tl.load(p + at, mask=inside, other=0.0).to(tl.float32)
    update = 0.9 * mean + 0.1 * grad
    sign = tl.where(update > 0.0, 1.0, tl.where(update < 0.0, -1.0, 0.0))
    tl.store(p + at, (old * (1 - rate * decay) - rate * sign).to(tl.bfloat16), mask=inside)
    tl.store(m + at, (0.99 * mean + 0.01 * grad).to(tl.bfloat16), mask=inside)


@triton.jit
def pack_signs(x, words, n, BLOCK: tl.constexpr):
    """Signs of 32 numbers in each word."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    j = tl.arange(0, 32)
    at = i[:, None] * 32 + j[None, :]
    bits = (tl.load(x + at, mask=at < n, other=0.0) < 0).to(tl.int32)
    tl.store(words + i, tl.sum(bits << j[None, :], axis=1), mask=i * 32 < n)


@triton.jit
def unpack_signs(words, y, n, BLOCK: tl.constexpr):
    """Bits of words as numbers of +1 and -1."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    word = tl.load(words + at // 32, mask=at < n, other=0)
    bit = (word >> (at % 32)) & 1
    tl.store(y + at, (1 - 2 * bit).to(tl.float16), mask=at < n)


@triton.jit
def divergence(logp, target, losses, columns, BLOCK: tl.constexpr):
    """Kullback-Leibler divergence of each row."""
    row = tl.program_id(0).to(tl.int64)
    logp += row * columns
    target += row * columns
    total = 0.0
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        inside = at < columns
        p = tl.load(logp + at, mask=inside, other=0.0).to(tl.float32)
        t = tl.load(target + at, mask=inside, other=0.0).to(tl.float32)
        total += tl.sum(tl.where(t > 0.0, t * (tl.log(tl.maximum(t, 1e-10)) - p), 0.0), axis=0)
    tl.store(losses + row, total)


@triton.jit
def symmetric_divergence(p, q, losses, grads, rows, columns, BLOCK: tl.constexpr):
    """Jensen-Shannon divergence of log-probabilities, and its gradient."""
    row = tl.program_id(0).to(tl.int64)
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        inside = at < columns
        a = tl.load(p + row * columns + at, mask=inside, other=float("-inf")).to(tl.float32)
        b = tl.load(q + row * columns + at, mask=inside, other=float("-inf")).to(tl.float32)
        ea, eb = tl.exp(a), tl.exp(b)
        middle = 0.5 * (ea + eb)
        log_middle = tl.log(middle)
        loss = 0.5 * (ea * (a - log_middle) + eb * (b - log_middle))
        tl.store(losses + row * columns + at, loss / rows, mask=inside)
        grad = 0.5 * ea * (a - log_middle) / rows
        tl.store(grads + row * columns + at, grad.to(tl.bfloat16), mask=inside)


@triton.jit
def loss_in_place(logits, labels, losses, columns, cap, BLOCK: tl.constexpr):
    """Cross-entropy of capped logits: a loop for the sum, one that leaves gradients there."""
    row = tl.program_id(0).to(tl.int64)
    logits += row * columns
    label = tl.load(labels + row)
    m = float("-inf")
    total = 0.0
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        v = tl.load(logits + at, mask=at < columns, other=float("-inf")).to(tl.float32)
        v = cap * (1 - 2 / (tl.exp(2 * v / cap) + 1))
        v = tl.where(at < columns, v, float("-inf"))
        new = tl.maximum(m, tl.max(v))
        total = total * tl.exp(m - new) + tl.sum(tl.exp(v - new))
        m = new
    right = tl.load(logits + label).to(tl.float32)
    right = cap * (1 - 2 / (tl.exp(2 * right / cap) + 1))
    tl.store(losses + row, m + tl.log(total) - right)
    tl.debug_barrier()
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        v = tl.load(logits + at, mask=at < columns, other=0.0).to(tl.float32)
        t = 1 - 2 / (tl.exp(2 * v / cap) + 1)
        grad = (tl.exp(cap * t - m) / total - tl.where(at == label, 1.0, 0.0)) * (1 - t * t)
        tl.store(logits + at, grad.to(tl.bfloat16), mask=at < columns)


@triton.jit
def sum_of_experts(rows, places, weights, y, columns, TOP: tl.constexpr, BLOCK: tl.constexpr):
    """Each token's rows from its experts, weighted and added."""
    token = tl.program_id(0)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = at < columns
    acc = tl.zeros((BLOCK,), dtype=tl.float32)
    for k in range(TOP):
        place = tl.load(places + token * TOP + k).to(tl.int64)
        w = tl.load(weights + token * TOP + k)
        acc += w * tl.load(rows + place * columns + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(y + token * columns + at, acc.to(tl.bfloat16), mask=inside)


@triton.jit
def shift_tokens(x, mix, y, T, columns, BLOCK: tl.constexpr):
    """A mix of each token with the one before."""
    token = tl.program_id(0)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = at < columns
    v = tl.load(x + token * columns + at, mask=inside, other=0.0).to(tl.float32)
    before = tl.load(x + (token - 1) * columns + at, mask=inside & (token % T > 0), other=0.0).to(
        tl.float32
    )
    m = tl.load(mix + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(y + token * columns + at, (v + (before - v) * m).to(tl.bfloat16), mask=inside)


@triton.jit
def dynamic_tanh(x, weight, bias, y, columns, alpha, BLOCK: tl.constexpr):
    """y = weight * tanh(alpha x) + bias."""
    row = tl.program_id(1)
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < columns
    v = tl.load(x + row * columns + at, mask=inside, other=0.0).to(tl.float32)
    w = tl.load(weight + at, mask=inside, other=0.0).to(tl.float32)
    b = tl.load(bias + at, mask=inside, other=0.0).to(tl.float32)
    t = 1 - 2 / (tl.exp(2 * alpha * v) + 1)
    tl.store(y + row * columns + at, (w * t + b).to(tl.bfloat16), mask=inside)


@triton.jit
def twice_as_large(x, y, H, W, n, BLOCK: tl.constexpr):
    """Bilinear interpolation to twice the height and width, one output an element."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    column = at % (2 * W)
    row = at // (2 * W) % (2 * H)
    plane = at // (4 * H * W)
    u = tl.maximum(row.to(tl.float32) * 0.5 - 0.25, 0.0)
    v = tl.maximum(column.to(tl.float32) * 0.5 - 0.25, 0.0)
    i, j = u.to(tl.int32), v.to(tl.int32)
    below, right = tl.minimum(i + 1, H - 1), tl.minimum(j + 1, W - 1)
    du, dv = u - i.to(tl.float32), v - j.to(tl.float32)
    base = x + plane * H * W
    a = tl.load(base + i * W + j, mask=inside, other=0.0)
    b = tl.load(base + i * W + right, mask=inside, other=0.0)
    c = tl.load(base + below * W + j, mask=inside, other=0.0)
    d = tl.load(base + below * W + right, mask=inside, other=0.0)
    top, bottom = a + (b - a) * dv, c + (d - c) * dv
    tl.store(y + at, top + (bottom - top) * du, mask=inside)


@triton.jit
def keep_positive(x, y, offsets, n, BLOCK: tl.constexpr):
    """The numbers above 0, side by side, from a given place for each block."""
    block = tl.program_id(0)
    at = block * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + at, mask=at < n, other=0.0)
    keep = (v > 0.0).to(tl.int32)
    place = tl.load(offsets + block) + tl.cumsum(keep, axis=0) - keep
    tl.store(y + place, v, mask=keep != 0)


@triton.jit
def add_rows(table, ids, rows, columns, BLOCK: tl.constexpr):
    """Rows of a matrix are added to rows of a table in place, by atomics."""
    i = tl.program_id(0)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    row = tl.load(ids + i)
    v = tl.load(rows + i * columns + at, mask=at < columns, other=0.0)
    tl.atomic_add(table + row * columns + at, v, mask=at < columns, sem="relaxed")


@triton.jit
def silu_fp8_by_groups(x, y, scales, columns, GROUP: tl.constexpr, BR: tl.constexpr):
    """fp8 of silu(gate) * up, with a scale for each group of 128 columns: BR groups at once."""
    row = tl.program_id(0).to(tl.int64)
    group = tl.program_id(1) * BR + tl.arange(0, BR)
    at = group[:, None] * GROUP + tl.arange(0, GROUP)[None, :]
    inside = at < columns
    gate = tl.load(x + row * 2 * columns + at, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(x + row * 2 * columns + columns + at, mask=inside, other=0.0).to(tl.float32)
    v = gate * tl.sigmoid(gate) * up
    scale = tl.maximum(tl.max(tl.abs(v), axis=1), 1e-10) / 448.0
    q = tl.clamp(v / scale[:, None], -448.0, 448.0)
    tl.store(y + row * columns + at, q.to(y.dtype.element_ty), mask=inside)
    groups = columns // GROUP
    tl.store(scales + row * groups + group, scale, mask=group < groups)
