"""Further kernels in the forms in which people publish them."""

from __future__ import annotations

from typing import Any

import tilewright as triton
import tilewright.language as tl


@triton.jit
def pairwise_distance(
    x_ptr: Any, y_ptr: Any, out_ptr: Any, m: Any, n: Any, d: Any,
    BM: tl.constexpr, BN: tl.constexpr, BD: tl.constexpr,
):  # fmt: skip
    """Euclidean distances of all pairs of rows, by |x|² + |y|² - 2 x y."""
    i = tl.program_id(0) * BM + tl.arange(0, BM)
    j = tl.program_id(1) * BN + tl.arange(0, BN)
    products = tl.zeros((BM, BN), tl.float32)
    xx, yy = tl.zeros((BM,), tl.float32), tl.zeros((BN,), tl.float32)
    for start in range(0, d, BD):
        k = start + tl.arange(0, BD)
        inside = (i[:, None] < m) & (k[None, :] < d)
        x = tl.load(x_ptr + i[:, None] * d + k[None, :], mask=inside, other=0.0)
        inside = (j[:, None] < n) & (k[None, :] < d)
        y = tl.load(y_ptr + j[:, None] * d + k[None, :], mask=inside, other=0.0)
        products += tl.dot(x, tl.trans(y), input_precision="ieee")
        xx += tl.sum(x * x, 1)
        yy += tl.sum(y * y, 1)
    squares = tl.maximum(xx[:, None] + yy[None, :] - 2.0 * products, 1e-6)
    inside = (i[:, None] < m) & (j[None, :] < n)
    tl.store(out_ptr + i[:, None] * n + j[None, :], tl.sqrt(squares), mask=inside)


@triton.jit
def cosine_embedding_loss(
    a_ptr: Any, b_ptr: Any, t_ptr: Any, loss_ptr: Any, d: Any, margin: Any, BLOCK: tl.constexpr
):
    row = tl.program_id(0)
    ab = tl.zeros((BLOCK,), tl.float32)
    aa, bb = tl.zeros((BLOCK,), tl.float32), tl.zeros((BLOCK,), tl.float32)
    for start in range(tl.cdiv(d, BLOCK)):
        at = start * BLOCK + tl.arange(0, BLOCK)
        a = tl.load(a_ptr + row * d + at, mask=at < d, other=0.0).to(tl.float32)
        b = tl.load(b_ptr + row * d + at, mask=at < d, other=0.0).to(tl.float32)
        ab += a * b
        aa += a * a
        bb += b * b
    cosine = tl.sum(ab, 0) / tl.maximum(tl.sqrt(tl.sum(aa, 0)) * tl.sqrt(tl.sum(bb, 0)), 1e-8)
    target = tl.load(t_ptr + row)
    loss = tl.where(target == 1, 1.0 - cosine, tl.maximum(cosine - margin, 0.0))
    tl.store(loss_ptr + row, loss)


@triton.jit
def weight_norm(v_ptr: Any, g_ptr: Any, w_ptr: Any, n: Any, BLOCK: tl.constexpr):
    """w = g v / |v|, of rows that are read twice."""
    row = tl.program_id(0)
    v_ptr += row * n
    w_ptr += row * n
    squares = tl.zeros((BLOCK,), dtype=tl.float32)
    for off in range(0, n, BLOCK):
        cols = off + tl.arange(0, BLOCK)
        v = tl.load(v_ptr + cols, mask=cols < n, other=0.0)
        squares += v * v
    scale = tl.load(g_ptr + row) * tl.rsqrt(tl.sum(squares, axis=0))
    for off in range(0, n, BLOCK):
        cols = off + tl.arange(0, BLOCK)
        v = tl.load(v_ptr + cols, mask=cols < n, other=0.0)
        tl.store(w_ptr + cols, v * scale, mask=cols < n)


@triton.jit
def huber_mean(
    x_ptr: Any, t_ptr: Any, loss_ptr: Any, n: Any, beta: Any, BLOCK: tl.constexpr
):  # fmt: skip
    """The mean of a smooth L1 loss, added up atomically."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    x = tl.load(x_ptr + at, mask=inside)
    t = tl.load(t_ptr + at, mask=inside)
    away = tl.abs(x - t)
    loss = tl.where(away < beta, 0.5 * away * away / beta, away - 0.5 * beta)
    tl.atomic_add(loss_ptr, tl.sum(tl.where(inside, loss, 0.0)) / n)


@triton.jit
def group_norm_swish(
    x_ptr: Any, w_ptr: Any, b_ptr: Any, y_ptr: Any, hw: Any, c: Any,
    GROUP: tl.constexpr, BG: tl.constexpr, BHW: tl.constexpr,
):  # fmt: skip
    """Images with channels last: a group is a tile of pixels and channels."""
    image, group = tl.program_id(0), tl.program_id(1)
    pixel = tl.arange(0, BHW)
    channel = tl.arange(0, BG)
    inside = (pixel[:, None] < hw) & (channel[None, :] < GROUP)
    at = (image * hw + pixel[:, None]) * c + group * GROUP + channel[None, :]
    x = tl.load(x_ptr + at, mask=inside, other=0.0)
    count = hw * GROUP
    mean = tl.sum(tl.sum(x, 0), 0) / count
    centred = tl.where(inside, x - mean, 0.0)
    variance = tl.sum(tl.sum(centred * centred, 0), 0) / count
    normal = centred * tl.rsqrt(variance + 1e-5)
    w = tl.load(w_ptr + group * GROUP + channel, mask=channel < GROUP, other=0.0)
    b = tl.load(b_ptr + group * GROUP + channel, mask=channel < GROUP, other=0.0)
    y = normal * w[None, :] + b[None, :]
    tl.store(y_ptr + at, y * tl.sigmoid(y), mask=inside)


@triton.jit
def capped_attention(
    q_ptr: Any, k_ptr: Any, v_ptr: Any, o_ptr: Any, lse_ptr: Any, n: Any, scale: Any, cap: Any,
    GROUPS: tl.constexpr, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """Causal attention with grouped queries, and scores cap tanh(s / cap)."""
    start, head = tl.program_id(0), tl.program_id(1)
    i, d = start * BM + tl.arange(0, BM), tl.arange(0, D)
    q = tl.load(q_ptr + (head * n + i[:, None]) * D + d[None, :], mask=i[:, None] < n, other=0.0)
    own = head // GROUPS
    m = tl.full((BM,), float("-inf"), tl.float32)
    total = tl.zeros((BM,), tl.float32)
    acc = tl.zeros((BM, D), tl.float32)
    for low in range(0, tl.minimum((start + 1) * BM, n), BN):  # pyright: ignore[reportArgumentType]
        j = low + tl.arange(0, BN)
        at = (own * n + j[:, None]) * D + d[None, :]
        k = tl.load(k_ptr + at, mask=j[:, None] < n, other=0.0)
        v = tl.load(v_ptr + at, mask=j[:, None] < n, other=0.0)
        s = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
        s = 2.0 * tl.sigmoid(2.0 * s / cap) - 1.0
        s = s * cap
        s = tl.where((j[None, :] <= i[:, None]) & (j[None, :] < n), s, float("-inf"))
        larger = tl.maximum(m, tl.max(s, 1))
        p = tl.exp(s - larger[:, None])
        alpha = tl.exp(m - larger)
        total = total * alpha + tl.sum(p, 1)
        acc = acc * alpha[:, None] + tl.dot(p, v, input_precision="ieee")
        m = larger
    acc = acc / total[:, None]
    tl.store(lse_ptr + head * n + i, m + tl.log(total), mask=i < n)
    tl.store(o_ptr + (head * n + i[:, None]) * D + d[None, :], acc, mask=i[:, None] < n)


@triton.jit
def retention(
    q_ptr: Any, k_ptr: Any, v_ptr: Any, o_ptr: Any, decay_ptr: Any, n: Any,
    D: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    """Chunks of C positions, with a state of D x D that decays from one to the next."""
    head = tl.program_id(0)
    log_decay = tl.load(decay_ptr + head)
    c, d = tl.arange(0, C), tl.arange(0, D)
    distance = c[:, None] - c[None, :]
    within = tl.where(distance >= 0, tl.exp(log_decay * distance.to(tl.float32)), 0.0)
    into = tl.exp(log_decay * (c + 1).to(tl.float32))
    out_of = tl.exp(log_decay * (C - 1 - c).to(tl.float32))  # pyright: ignore[reportAttributeAccessIssue]
    state = tl.zeros((D, D), tl.float32)
    for chunk in range(n // C):
        at = (head * n + chunk * C + c[:, None]) * D + d[None, :]
        q, k, v = tl.load(q_ptr + at), tl.load(k_ptr + at), tl.load(v_ptr + at)
        scores = tl.dot(q, tl.trans(k), input_precision="ieee") * within
        o = tl.dot(scores, v, input_precision="ieee")
        o += tl.dot(q, state, input_precision="ieee") * into[:, None]
        tl.store(o_ptr + at, o)
        update = tl.dot(tl.trans(k * out_of[:, None]), v, input_precision="ieee")
        state = state * tl.exp(log_decay * C) + update


@triton.jit
def depthwise_conv(
    x_ptr: Any, w_ptr: Any, b_ptr: Any, y_ptr: Any, height: Any, width: Any, channels: Any,
    BW: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """3 x 3 taps with padding, channels last, and SiLU. A program has a row of an image."""
    image, row = tl.program_id(0) // height, tl.program_id(0) % height
    column, channel = tl.arange(0, BW), tl.program_id(1) * BC + tl.arange(0, BC)
    has_channel = channel < channels
    acc = tl.zeros((BW, BC), tl.float32)
    acc += tl.load(b_ptr + channel, mask=has_channel, other=0.0)[None, :]
    for dy in tl.static_range(3):
        for dx in tl.static_range(3):
            i, j = row + dy - 1, column + dx - 1
            inside = (i >= 0) & (i < height) & (j >= 0) & (j < width)
            at = ((image * height + i) * width + j)[:, None] * channels + channel[None, :]
            x = tl.load(x_ptr + at, mask=inside[:, None] & has_channel[None, :], other=0.0)
            tap = tl.load(w_ptr + (dy * 3 + dx) * channels + channel, mask=has_channel, other=0.0)
            acc += x * tap[None, :]
    at = ((image * height + row) * width + column)[:, None] * channels + channel[None, :]
    inside = (column < width)[:, None] & has_channel[None, :]
    tl.store(y_ptr + at, acc * tl.sigmoid(acc), mask=inside)


@triton.jit
def _compose(a: Any, b: Any, c: Any, d: Any):
    return a * c, b * c + d


@triton.jit
def min_gru(
    z_ptr: Any, x_ptr: Any, h_ptr: Any, length: Any, channels: Any,
    BT: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """h[t] = (1 - z) h[t - 1] + z g(x), in blocks of time, each by a scan; the last state of a
    block is the first of the next."""
    batch = tl.program_id(0)
    channel = tl.program_id(1) * BC + tl.arange(0, BC)
    time = tl.arange(0, BT)
    carried = tl.zeros((BC,), tl.float32)
    for start in range(0, length, BT):
        t = start + time
        at = (batch * length + t[:, None]) * channels + channel[None, :]
        inside = (t[:, None] < length) & (channel[None, :] < channels)
        z = tl.sigmoid(tl.load(z_ptr + at, mask=inside, other=0.0))
        x = tl.load(x_ptr + at, mask=inside, other=0.0)
        g = tl.where(x >= 0, x + 0.5, tl.sigmoid(x))
        kept, new = tl.associative_scan((1.0 - z, z * g), 0, _compose)
        h = kept * carried[None, :] + new
        tl.store(h_ptr + at, h, mask=inside)
        carried = tl.sum(tl.where(time[:, None] == BT - 1, h, 0.0), 0)


@triton.jit
def contrastive_loss(
    q_ptr: Any, k_ptr: Any, positive_ptr: Any, loss_ptr: Any, lse_ptr: Any, n: Any, keys: Any,
    temperature: Any, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """-log softmax(q k / temperature) at the positive key, over blocks of keys."""
    i, d = tl.program_id(0) * BM + tl.arange(0, BM), tl.arange(0, D)
    q = tl.load(q_ptr + i[:, None] * D + d[None, :], mask=i[:, None] < n, other=0.0)
    positive = tl.load(positive_ptr + i, mask=i < n, other=0)
    m = tl.full((BM,), float("-inf"), tl.float32)
    total, chosen = tl.zeros((BM,), tl.float32), tl.zeros((BM,), tl.float32)
    for start in range(0, keys, BN):
        j = start + tl.arange(0, BN)
        k = tl.load(k_ptr + j[:, None] * D + d[None, :], mask=j[:, None] < keys, other=0.0)
        s = tl.dot(q, tl.trans(k), input_precision="ieee") / temperature
        s = tl.where((j < keys)[None, :], s, float("-inf"))
        larger = tl.maximum(m, tl.max(s, 1))
        total = total * tl.exp(m - larger) + tl.sum(tl.exp(s - larger[:, None]), 1)
        m = larger
        chosen += tl.sum(tl.where(j[None, :] == positive[:, None], s, 0.0), 1)
    lse = m + tl.log(total)
    tl.store(lse_ptr + i, lse, mask=i < n)
    tl.store(loss_ptr + i, lse - chosen, mask=i < n)


@triton.jit
def upsample_bilinear(
    x_ptr: Any, y_ptr: Any, rows: Any, columns: Any, BLOCK: tl.constexpr
):  # fmt: skip
    """Images of twice the size; indices are clamped at the border."""
    image, row = tl.program_id(0), tl.program_id(1)
    column = tl.arange(0, BLOCK)
    u = tl.maximum(row * 0.5 - 0.25, 0.0)
    v = tl.maximum(column.to(tl.float32) * 0.5 - 0.25, 0.0)
    i0, j0 = tl.floor(u).to(tl.int32), tl.floor(v).to(tl.int32)
    i1, j1 = tl.minimum(i0 + 1, rows - 1), tl.minimum(j0 + 1, columns - 1)
    du, dv = u - i0, v - j0
    inside = column < 2 * columns
    x_ptr += image * rows * columns
    a = tl.load(x_ptr + i0 * columns + j0, mask=inside, other=0.0)
    b = tl.load(x_ptr + i0 * columns + j1, mask=inside, other=0.0)
    c = tl.load(x_ptr + i1 * columns + j0, mask=inside, other=0.0)
    d = tl.load(x_ptr + i1 * columns + j1, mask=inside, other=0.0)
    y = (1 - du) * ((1 - dv) * a + dv * b) + du * ((1 - dv) * c + dv * d)
    at = (image * 2 * rows + row) * 2 * columns + column
    tl.store(y_ptr + at, y, mask=inside)


@triton.jit
def persistent_moving_average(
    x_ptr, decay_ptr, y_ptr, sequences, steps, channels, BLOCK: tl.constexpr
):  # fmt: skip
    """Two loops that count without `range`: over tiles, and over time by pointers."""
    tiles = tl.cdiv(channels, BLOCK)
    tile = tl.program_id(0)
    while tile < sequences * tiles:
        channel = tile % tiles * BLOCK + tl.arange(0, BLOCK)
        inside = channel < channels
        decay = tl.sigmoid(tl.load(decay_ptr + channel, mask=inside))
        at = tile // tiles * steps * channels + channel
        x, y = x_ptr + at, y_ptr + at
        average = tl.zeros((BLOCK,), tl.float32)
        left = steps
        while left > 0:
            average = decay * average + (1 - decay) * tl.load(x, mask=inside)
            tl.store(y, average * average, mask=inside)
            x += channels
            y += channels
            left -= 1
        tile += tl.num_programs(0)


@triton.jit
def rotary_of_both(
    q_ptr, k_ptr, angle_ptr, q_out_ptr, k_out_ptr, steps, heads, kv_heads, HALF: tl.constexpr
):  # fmt: skip
    """Queries and keys in one launch: a program has a head of either."""
    step, head = tl.program_id(0), tl.program_id(1)
    if head < heads:
        x_ptr = q_ptr + (step * heads + head) * 2 * HALF
        y_ptr = q_out_ptr + (step * heads + head) * 2 * HALF
    else:
        x_ptr = k_ptr + (step * kv_heads + head - heads) * 2 * HALF
        y_ptr = k_out_ptr + (step * kv_heads + head - heads) * 2 * HALF
    at = tl.arange(0, HALF)
    angle = tl.load(angle_ptr + step * HALF + at)
    a, b = tl.load(x_ptr + at), tl.load(x_ptr + HALF + at)
    tl.store(y_ptr + at, a * tl.cos(angle) - b * tl.sin(angle))
    tl.store(y_ptr + HALF + at, b * tl.cos(angle) + a * tl.sin(angle))
