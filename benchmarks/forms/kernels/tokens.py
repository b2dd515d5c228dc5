"""Work on tokens between products: caches, quantisation, rotation, merging, ragged rows."""

# pyright: reportUnnecessaryComparison=false, reportArgumentType=false, reportIndexIssue=false
# pyright: reportAttributeAccessIssue=false
import tilewright as triton
import tilewright.language as tl
import tilewright.language.extra.libdevice as libdevice


@triton.jit
def write_cache(k, v, keys, values, slots, width, PAGE: tl.constexpr, BLOCK: tl.constexpr):
    """Copies the keys and values of new tokens to their slots of the pages."""
    token = tl.program_id(0)
    slot = tl.load(slots + token).to(tl.int64)
    if slot < 0:
        return
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = at < width
    to = (slot // PAGE * PAGE + slot % PAGE) * width + at
    tl.store(keys + to, tl.load(k + token * width + at, mask=inside), mask=inside)
    tl.store(values + to, tl.load(v + token * width + at, mask=inside), mask=inside)


@triton.jit
def to_int8_by_token(x, y, scales, columns, BLOCK: tl.constexpr):
    """Each row is scaled to the range of int8 and rounded."""
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    inside = at < columns
    v = tl.load(x + row * columns + at, mask=inside, other=0.0).to(tl.float32)
    largest = tl.maximum(tl.max(tl.abs(v)), 1e-10)
    scale = largest / 127
    rounded = libdevice.round(v * (127 / largest)).to(tl.int8)
    tl.store(y + row * columns + at, rounded, mask=inside)
    tl.store(scales + row, scale)


@triton.jit
def merge_parts(out, lse, a, lse_a, b, lse_b, heads, D: tl.constexpr, BLOCK: tl.constexpr):
    """Joins two results of attention over different keys by their sums."""
    token, head = tl.program_id(0), tl.program_id(1)
    la, lb = (
        tl.load(lse_a + head * tl.num_programs(0) + token),
        tl.load(lse_b + head * tl.num_programs(0) + token),
    )
    la = float("-inf") if la == float("inf") else la
    lb = float("-inf") if lb == float("inf") else lb
    most = tl.maximum(la, lb)
    wa, wb = tl.exp(la - most), tl.exp(lb - most)
    total = wa + wb
    tl.store(lse + head * tl.num_programs(0) + token, tl.log(total) + most)
    f = tl.arange(0, BLOCK)
    at = (token * heads + head) * D + f
    va, vb = tl.load(a + at, mask=f < D), tl.load(b + at, mask=f < D)
    tl.store(out + at, va * (wa / total) + vb * (wb / total), mask=f < D)


@triton.jit
def rotate_heads(
    q, k, cosines, sines, T, HEADS: tl.constexpr, HEADS_KV: tl.constexpr, D: tl.constexpr
):
    """Rotates halves of all heads of a token in place, in a tile of heads and features."""
    token = tl.program_id(0).to(tl.int64)
    f = tl.arange(0, D // 2)
    c = tl.load(cosines + token % T * D + f)
    s = tl.load(sines + token % T * D + f)
    at = tl.arange(0, HEADS)[:, None] * D + f[None, :]
    a, b = tl.load(q + token * HEADS * D + at), tl.load(q + token * HEADS * D + at + D // 2)
    tl.store(q + token * HEADS * D + at, a * c - b * s)
    tl.store(q + token * HEADS * D + at + D // 2, b * c + a * s)
    at = tl.arange(0, HEADS_KV)[:, None] * D + f[None, :]
    k += token * HEADS_KV * D
    a, b = tl.load(k + at), tl.load(k + at + D // 2)
    tl.store(k + at, a * c - b * s)
    tl.store(k + at + D // 2, b * c + a * s)


@triton.jit
def swiglu_gradient(dy, gate, up, n, BLOCK: tl.constexpr):
    """Gradients of silu(gate) * up in place of its inputs, and the result in place of dy."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    d = tl.load(dy + at, mask=inside, other=0)
    e = tl.load(gate + at, mask=inside, other=0).to(tl.float32)
    g = tl.load(up + at, mask=inside, other=0)
    s = tl.sigmoid(e)
    f = (s * e).to(d.dtype)
    df = d * f
    de = (d * g).to(tl.float32) * s * (1.0 + e * (1.0 - s))
    tl.store(dy + at, f * g, mask=inside)
    tl.store(gate + at, df, mask=inside)
    tl.store(up + at, de.to(d.dtype), mask=inside)


@triton.jit
def part_of_loss(
    logits, losses, sums, labels, columns, parts, PARTS: tl.constexpr, BLOCK: tl.constexpr
):
    """The log of the sum of exponentials of a part of the vocabulary, for long vocabularies."""
    row, part = tl.program_id(0), tl.program_id(1)
    logits += row.to(tl.int64) * columns
    at = part * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(logits + at, mask=at < columns, other=-float("inf")).to(tl.float32)
    label = tl.load(labels + row)
    most = tl.max(v, 0)
    sum_of_part = most + tl.log(tl.sum(tl.exp(v - most), 0))
    if part == 0:
        loss = 0.0
        if label != -100:
            loss = -1.0 * tl.load(logits + label).to(tl.float32)
        tl.store(losses + row, loss)
    tl.store(sums + row * PARTS + part, sum_of_part)


@triton.jit
def ragged_to_padded(x, starts, y, most, columns, BT: tl.constexpr, BC: tl.constexpr):
    """Rows of sequences without padding to a tensor with it."""
    sequence, i, j = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    first, end = tl.load(starts + sequence), tl.load(starts + sequence + 1)
    t, c = i * BT + tl.arange(0, BT), j * BC + tl.arange(0, BC)
    inside = (t[:, None] < end - first) & (c[None, :] < columns)
    v = tl.load(x + (first + t[:, None]) * columns + c[None, :], mask=inside, other=0.0)
    at = y + (sequence * most + t[:, None]).to(tl.int64) * columns + c[None, :]
    tl.store(at, v, mask=(t[:, None] < most) & (c[None, :] < columns))


@triton.jit
def softmax_of_ragged(x, starts, y, columns, BT: tl.constexpr, BC: tl.constexpr):
    """Softmax along time of each column of a sequence, in two loops."""
    sequence, j = tl.program_id(0), tl.program_id(1)
    first, end = tl.load(starts + sequence), tl.load(starts + sequence + 1)
    c = j * BC + tl.arange(0, BC)
    m = tl.full((BC,), -float("inf"), dtype=tl.float32)
    total = tl.zeros((BC,), dtype=tl.float32)
    for start in range(first, end, BT):
        t = start + tl.arange(0, BT)
        inside = (t[:, None] < end) & (c[None, :] < columns)
        v = tl.load(x + t[:, None] * columns + c[None, :], mask=inside, other=-float("inf"))
        new = tl.maximum(m, tl.max(v, 0))
        total = total * tl.exp(m - new) + tl.sum(tl.exp(v - new[None, :]), 0)
        m = new
    for start in range(first, end, BT):
        t = start + tl.arange(0, BT)
        inside = (t[:, None] < end) & (c[None, :] < columns)
        v = tl.load(x + t[:, None] * columns + c[None, :], mask=inside, other=-float("inf"))
        v = tl.exp(v - m[None, :]) / total[None, :]
        tl.store(y + t[:, None] * columns + c[None, :], v, mask=inside)


@triton.jit
def group_norm(
    x, weight, bias, y, pixels, channels, eps, CHANNELS: tl.constexpr, BLOCK: tl.constexpr
):
    """Group norm of CHANNELS channels of an image, whose pixels are contiguous by channels."""
    image, group = tl.program_id(0), tl.program_id(1)
    size = CHANNELS * pixels
    base = (image * channels + group * CHANNELS) * pixels
    total, squares = 0.0, 0.0
    for start in range(0, size, BLOCK):
        at = start + tl.arange(0, BLOCK)
        v = tl.load(x + base + at, mask=at < size, other=0.0).to(tl.float32)
        total += tl.sum(v)
        squares += tl.sum(v * v)
    mean = total / size
    rstd = tl.rsqrt(squares / size - mean * mean + eps)
    for c in range(CHANNELS):
        w = tl.load(weight + group * CHANNELS + c) * rstd
        b = tl.load(bias + group * CHANNELS + c)
        for start in range(0, pixels, BLOCK):
            at = start + tl.arange(0, BLOCK)
            inside = at < pixels
            v = tl.load(x + base + c * pixels + at, mask=inside, other=0.0).to(tl.float32)
            v = (v - mean) * w + b
            tl.store(y + base + c * pixels + at, v.to(y.dtype.element_ty), mask=inside)


@triton.jit
def pool(x, y, places, H, W, P, Q, n, BLOCK: tl.constexpr):
    """The largest of 3 x 3 at distance 2, and its place: quotients of flat indices."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    q, p, plane = at % Q, at // Q % P, at // (P * Q)
    best = tl.full((BLOCK,), -float("inf"), dtype=tl.float32)
    place = tl.zeros((BLOCK,), dtype=tl.int32)
    for r in tl.static_range(3):
        for s in tl.static_range(3):
            h, w = 2 * p - 1 + r, 2 * q - 1 + s
            known = inside & (h >= 0) & (h < H) & (w >= 0) & (w < W)
            v = tl.load(x + plane * H * W + h * W + w, mask=known, other=-float("inf"))
            better = v.to(tl.float32) > best
            best, place = (
                tl.where(better, v.to(tl.float32), best),
                tl.where(better, r * 3 + s, place),
            )
    tl.store(y + at, best.to(y.dtype.element_ty), mask=inside)
    tl.store(places + at, place.to(tl.int8), mask=inside)


@triton.jit
def elementwise_functions(x, y, n, BLOCK: tl.constexpr):
    """Functions of a library: asin, tanh, a power, erf."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + at, mask=at < n)
    v = libdevice.asin(libdevice.tanh(v)) + libdevice.pow(tl.abs(v), 1.5)
    tl.store(y + at, libdevice.erf(v), mask=at < n)
