"""Reductions as compilers generate them, choices by random numbers, and rounding by them."""

# pyright: reportUnnecessaryComparison=false, reportArgumentType=false, reportIndexIssue=false
# pyright: reportAttributeAccessIssue=false
import tilewright as triton
import tilewright.language as tl


@triton.jit
def norm_rows_at_once(
    x, weight, bias, y, means, scales, rows, columns, XBLOCK: tl.constexpr, RBLOCK: tl.constexpr
):
    """Layer norm of XBLOCK rows that fit into a tile."""
    i = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:, None]
    r = tl.arange(0, RBLOCK)[None, :]
    inside = (i < rows) & (r < columns)
    v = tl.load(x + (r + columns * i), inside, other=0.0).to(tl.float32)
    w = tl.load(weight + r, r < columns, eviction_policy="evict_last", other=0.0).to(tl.float32)
    b = tl.load(bias + r, r < columns, eviction_policy="evict_last", other=0.0).to(tl.float32)
    mean = tl.sum(v, 1)[:, None] / columns
    apart = tl.where(inside, v - mean, 0)
    scale = tl.rsqrt(tl.sum(apart * apart, 1)[:, None] / columns + 1e-5)
    tl.store(y + (r + columns * i), ((v - mean) * scale * w + b).to(tl.bfloat16), inside)
    tl.store(means + i, mean, i < rows)
    tl.store(scales + i, scale, i < rows)


@triton.jit
def join_statistics(mean_a, m2_a, weight_a, mean_b, m2_b, weight_b):
    """Mean, sum of squared distances and count of two parts together."""
    delta = mean_b - mean_a
    weight = weight_a + weight_b
    part = tl.where(weight == 0.0, 0.0, weight_b / weight)
    return mean_a + delta * part, m2_a + m2_b + delta * delta * weight_a * part, weight


@triton.jit
def norm_rows_by_statistics(
    x, weight, bias, y, rows, columns, XBLOCK: tl.constexpr, RBLOCK: tl.constexpr
):
    """Layer norm with running statistics over blocks of the row, and a second loop."""
    i = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:, None]
    base = tl.arange(0, RBLOCK)[None, :]
    mean = tl.zeros([XBLOCK, RBLOCK], tl.float32)
    m2 = tl.zeros([XBLOCK, RBLOCK], tl.float32)
    count = tl.zeros([XBLOCK, RBLOCK], tl.float32)
    for start in range(0, columns, RBLOCK):
        r = start + base
        inside = (i < rows) & (r < columns)
        v = tl.load(x + (r + columns * i), inside, eviction_policy="evict_last", other=0.0).to(
            tl.float32
        )
        new = count + 1
        delta = v - mean
        mean_new = mean + delta / new
        m2_new = m2 + delta * (v - mean_new)
        mean = tl.where(inside, mean_new, mean)
        m2 = tl.where(inside, m2_new, m2)
        count = tl.where(inside, new, count)
    mean, m2, count = tl.reduce((mean, m2, count), 1, join_statistics)
    mean, scale = mean[:, None], tl.rsqrt(m2[:, None] / columns + 1e-5)
    for start in range(0, columns, RBLOCK):
        r = start + base
        inside = (i < rows) & (r < columns)
        v = tl.load(x + (r + columns * i), inside, eviction_policy="evict_first", other=0.0).to(
            tl.float32
        )
        w = tl.load(weight + r, r < columns, eviction_policy="evict_last", other=0.0).to(tl.float32)
        b = tl.load(bias + r, r < columns, eviction_policy="evict_last", other=0.0).to(tl.float32)
        v = (v - mean) * scale * w + b
        tl.store(y + (r + columns * i), v.to(tl.bfloat16), inside)


@triton.jit
def sums_of_columns(x, y, rows, columns, per, XBLOCK: tl.constexpr, RBLOCK: tl.constexpr):
    """Sums over a part of the rows: columns are contiguous, and not reduced."""
    i = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:, None]
    column, part = i % columns, i // columns
    base = tl.arange(0, RBLOCK)[None, :]
    acc = tl.full([XBLOCK, RBLOCK], 0, tl.float32)
    for start in range(0, per, RBLOCK):
        r = start + base
        row = part * per + r
        inside = (r < per) & (row < rows)
        v = tl.load(x + column + columns * row, inside, eviction_policy="evict_first", other=0.0)
        acc = acc + v.to(tl.float32)
    tl.store(y + i, tl.sum(acc, 1)[:, None])


@triton.jit
def statistics_of_channels(
    x, means, variances, images, channels, pixels, XBLOCK: tl.constexpr, RBLOCK: tl.constexpr
):
    """Mean and variance of each channel; a channel's pixels are contiguous in each image."""
    c = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:, None]
    base = tl.arange(0, RBLOCK)[None, :]
    mean = tl.zeros([XBLOCK, RBLOCK], tl.float32)
    m2 = tl.zeros([XBLOCK, RBLOCK], tl.float32)
    count = tl.zeros([XBLOCK, RBLOCK], tl.float32)
    for start in range(0, images * pixels, RBLOCK):
        r = start + base
        inside = (c < channels) & (r < images * pixels)
        at = r % pixels + pixels * c + channels * pixels * (r // pixels)
        v = tl.load(x + at, inside, eviction_policy="evict_first", other=0.0).to(tl.float32)
        new = count + 1
        delta = v - mean
        mean_new = mean + delta / new
        m2 = tl.where(inside, m2 + delta * (v - mean_new), m2)
        mean = tl.where(inside, mean_new, mean)
        count = tl.where(inside, new, count)
    mean, m2, count = tl.reduce((mean, m2, count), 1, join_statistics)
    tl.store(means + c, mean[:, None], c < channels)
    tl.store(variances + c, m2[:, None] / count[:, None], c < channels)


@triton.jit
def larger(value_a, index_a, value_b, index_b):
    """The larger value and its index; of equal ones the first."""
    first = (value_a > value_b) | ((value_a == value_b) & (index_a < index_b))
    return tl.where(first, value_a, value_b), tl.where(first, index_a, index_b)


@triton.jit
def largest_index(x, y, columns, XBLOCK: tl.constexpr, RBLOCK: tl.constexpr):
    """The index of the largest value of each row, in a loop over blocks of it."""
    i = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:, None]
    base = tl.arange(0, RBLOCK)[None, :]
    best = tl.full([XBLOCK, RBLOCK], float("-inf"), tl.float32)
    index = tl.full([XBLOCK, RBLOCK], 2147483647, tl.int32)
    for start in range(0, columns, RBLOCK):
        r = start + base
        v = tl.load(x + (r + columns * i), r < columns, other=float("-inf")).to(tl.float32)
        value, at = larger(best, index, v, tl.broadcast_to(r, [XBLOCK, RBLOCK]))
        best, index = tl.where(r < columns, value, best), tl.where(r < columns, at, index)
    best, index = tl.reduce((best, index), 1, larger)
    tl.store(y + i, index[:, None].to(tl.int64))


@triton.jit
def sample_by_noise(logits, chosen, columns, seed, temperature, BLOCK: tl.constexpr):
    """A token by the largest of logits with Gumbel noise, over blocks of the vocabulary."""
    row = tl.program_id(0)
    best = tl.full([BLOCK], float("-inf"), tl.float32)
    index = tl.full([BLOCK], 0, tl.int32)
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        v = tl.load(logits + row * columns + at, mask=at < columns, other=float("-inf"))
        u = tl.rand(seed, row * columns + at)
        noisy = v.to(tl.float32) / temperature - tl.log(-tl.log(u + 1e-10) + 1e-10)
        better = (noisy > best) & (at < columns)
        best, index = tl.where(better, noisy, best), tl.where(better, at, index)
    _, lane = tl.max(best, 0, return_indices=True)
    tl.store(chosen + row, tl.sum(tl.where(tl.arange(0, BLOCK) == lane, index, 0), 0))


@triton.jit
def normal_noise(x, y, n, seed, strength, BLOCK: tl.constexpr):
    """Adds normal noise, four numbers of each draw."""
    at = tl.program_id(0) * BLOCK * 4 + tl.arange(0, BLOCK)
    a, b, c, d = tl.randn4x(seed, tl.program_id(0) * BLOCK + tl.arange(0, BLOCK))
    va = tl.load(x + at, mask=at < n)
    vb = tl.load(x + at + BLOCK, mask=at + BLOCK < n)
    vc = tl.load(x + at + 2 * BLOCK, mask=at + 2 * BLOCK < n)
    vd = tl.load(x + at + 3 * BLOCK, mask=at + 3 * BLOCK < n)
    tl.store(y + at, va + strength * a, mask=at < n)
    tl.store(y + at + BLOCK, vb + strength * b, mask=at + BLOCK < n)
    tl.store(y + at + 2 * BLOCK, vc + strength * c, mask=at + 2 * BLOCK < n)
    tl.store(y + at + 3 * BLOCK, vd + strength * d, mask=at + 3 * BLOCK < n)


@triton.jit
def round_by_chance(x, y, n, seed, BLOCK: tl.constexpr):
    """fp32 to bf16 by adding random low bits, so that the mean is kept."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    bits = tl.load(x + at, mask=at < n).to(tl.uint32, bitcast=True)
    noise = tl.randint(seed, at).to(tl.uint32) & 0xFFFF
    kept = ((bits + noise) & 0xFFFF0000).to(tl.float32, bitcast=True)
    tl.store(y + at, kept.to(tl.bfloat16), mask=at < n)


@triton.jit
def dropout_rows(x, y, seeds, rows, columns, p, BM: tl.constexpr, BN: tl.constexpr):
    """Dropout with a seed for each row."""
    i = tl.program_id(0) * BM + tl.arange(0, BM)
    j = tl.program_id(1) * BN + tl.arange(0, BN)
    inside = (i[:, None] < rows) & (j[None, :] < columns)
    seed = tl.load(seeds + i, mask=i < rows, other=0)
    v = tl.load(x + i[:, None] * columns + j[None, :], mask=inside)
    keep = tl.rand(seed[:, None], j[None, :]) > p
    tl.store(y + i[:, None] * columns + j[None, :], tl.where(keep, v / (1 - p), 0.0), mask=inside)


@triton.jit
def norm_rows(x, y, weight, bias, means, rstds, stride, columns, eps, BLOCK: tl.constexpr):
    """Layer norm in three loops over blocks of a row: mean, variance, result."""
    row = tl.program_id(0)
    x += row * stride
    y += row * stride
    total = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        total += tl.load(x + at, mask=at < columns, other=0.0).to(tl.float32)
    mean = tl.sum(total, axis=0) / columns
    squares = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        v = tl.load(x + at, mask=at < columns, other=0.0).to(tl.float32)
        v = tl.where(at < columns, v - mean, 0.0)
        squares += v * v
    rstd = 1 / tl.sqrt(tl.sum(squares, axis=0) / columns + eps)
    tl.store(means + row, mean)
    tl.store(rstds + row, rstd)
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        inside = at < columns
        w, b = tl.load(weight + at, mask=inside), tl.load(bias + at, mask=inside)
        v = tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
        tl.store(y + at, (v - mean) * rstd * w + b, mask=inside)


@triton.jit
def weighted_layers(x, query, y, tokens, layers, D: tl.constexpr, BL: tl.constexpr):
    """The mean of a token's vectors in all layers, weighted by the softmax of their scores."""
    token = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, D)
    direction = tl.load(query + at).to(tl.float32)
    most, total = float("-inf"), 0.0
    mean = tl.zeros((D,), tl.float32)
    for first in range(0, layers, BL):
        layer = first + tl.arange(0, BL)
        row = layer[:, None].to(tl.int64) * tokens + token
        v = tl.load(x + row * D + at[None, :], (layer < layers)[:, None], other=0.0).to(tl.float32)
        score = tl.sum(v * direction[None, :], 1) * tl.rsqrt(tl.sum(v * v, 1) / D + 1e-6)
        score = tl.where(layer < layers, score, float("-inf"))
        now = tl.maximum(most, tl.max(score, 0))
        weight, scale = tl.exp(score - now), tl.exp(most - now)
        total = total * scale + tl.sum(weight, 0)
        mean = mean * scale + tl.sum(weight[:, None] * v, 0)
        most = now
    tl.store(y + token * D + at, (mean / total).to(y.dtype.element_ty))
