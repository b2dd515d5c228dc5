"""Training: norms and their gradients, losses over large vocabularies, embeddings, activations."""

# pyright: reportUnnecessaryComparison=false, reportArgumentType=false, reportIndexIssue=false
import tilewright as triton
import tilewright.language as tl


@triton.jit
def add_rms_norm(x, residual, weight, y, columns, eps, BLOCK: tl.constexpr):
    """residual += x, written back; y = its RMS norm."""
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    inside = at < columns
    a = tl.load(x + row * columns + at, mask=inside, other=0.0)
    r = tl.load(residual + row * columns + at, mask=inside, other=0.0)
    s = (a + r).to(tl.float32)
    tl.store(residual + row * columns + at, s.to(tl.float16), mask=inside)
    mean = tl.sum(s * s, axis=0) / columns
    w = tl.load(weight + at, mask=inside, other=0.0)
    tl.store(y + row * columns + at, (s * tl.rsqrt(mean + eps)).to(tl.float16) * w, mask=inside)


@triton.jit
def swiglu_packed(x, y, columns, BLOCK: tl.constexpr):
    """y = silu(x[:, :columns]) * x[:, columns:]."""
    row = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = at < columns
    gate = tl.load(x + row * 2 * columns + at, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(x + row * 2 * columns + columns + at, mask=inside, other=0.0)
    tl.store(y + row * columns + at, (gate * tl.sigmoid(gate)).to(up.dtype) * up, mask=inside)


@triton.jit
def embedding(ids, table, out, columns, n, BLOCK: tl.constexpr, BN: tl.constexpr):
    """Rows of the table, for blocks of ids and columns."""
    i = tl.program_id(0) * BN + tl.arange(0, BN)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    rows = tl.load(ids + i, mask=i < n, other=0)
    inside = (i[:, None] < n) & (at[None, :] < columns)
    value = tl.load(table + rows[:, None] * columns + at[None, :], mask=inside, other=0.0)
    tl.store(out + i[:, None] * columns + at[None, :], value, mask=inside)


@triton.jit
def embedding_gradient(ids, grads, table, columns, n, BLOCK: tl.constexpr, BN: tl.constexpr):
    """Adds the gradients of rows to those of the table."""
    i = tl.program_id(0) * BN + tl.arange(0, BN)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    rows = tl.load(ids + i, mask=i < n, other=0)
    inside = (i[:, None] < n) & (at[None, :] < columns)
    value = tl.load(grads + i[:, None] * columns + at[None, :], mask=inside, other=0.0)
    tl.atomic_add(table + rows[:, None] * columns + at[None, :], value, mask=inside, sem="relaxed")


@triton.jit
def group_norm_nhwc(x, weight, bias, y, pixels, channels, eps, C: tl.constexpr, BP: tl.constexpr):
    """Group norm of one group of one image: channels are contiguous, C of them in a group."""
    image, group = tl.program_id(0), tl.program_id(1)
    c = tl.arange(0, C)
    base = image * pixels * channels + group * C
    total = tl.zeros((BP, C), dtype=tl.float32)
    squares = tl.zeros((BP, C), dtype=tl.float32)
    for start in range(0, pixels, BP):
        p = start + tl.arange(0, BP)
        v = tl.load(
            x + base + p[:, None] * channels + c[None, :], mask=p[:, None] < pixels, other=0.0
        ).to(tl.float32)
        total += v
        squares += v * v
    n = pixels * C
    mean = tl.sum(total) / n
    rstd = tl.rsqrt(tl.sum(squares) / n - mean * mean + eps)
    w = tl.load(weight + group * C + c).to(tl.float32)
    b = tl.load(bias + group * C + c).to(tl.float32)
    for start in range(0, pixels, BP):
        p = start + tl.arange(0, BP)
        at = base + p[:, None] * channels + c[None, :]
        v = tl.load(x + at, mask=p[:, None] < pixels, other=0.0).to(tl.float32)
        v = (v - mean) * rstd * w[None, :] + b[None, :]
        tl.store(y + at, v.to(tl.float16), mask=p[:, None] < pixels)


@triton.jit
def norm_gradient(
    x, dy, weight, mean, rstd, dx, dw, db, locks, columns, SLOTS: tl.constexpr, BLOCK: tl.constexpr
):
    """A row of the layer norm's gradient; sums of dw, db for several rows, each behind a lock."""
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    inside = at < columns
    v = tl.load(x + row * columns + at, mask=inside, other=0.0).to(tl.float32)
    g = tl.load(dy + row * columns + at, mask=inside, other=0.0).to(tl.float32)
    w = tl.load(weight + at, mask=inside, other=0.0).to(tl.float32)
    r = tl.load(rstd + row)
    hat = tl.where(inside, (v - tl.load(mean + row)) * r, 0.0)
    wg = w * g
    c1 = tl.sum(hat * wg, axis=0) / columns
    c2 = tl.sum(wg, axis=0) / columns
    tl.store(dx + row * columns + at, ((wg - (hat * c1 + c2)) * r).to(tl.float16), mask=inside)
    slot = row % SLOTS
    lock, count = locks + slot, locks + SLOTS + slot
    pw, pb = dw + slot * columns + at, db + slot * columns + at
    partial_w, partial_b = g * hat, g
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    if tl.load(count) == 0:
        tl.atomic_xchg(count, 1)
    else:
        partial_w += tl.load(pw, mask=inside)
        partial_b += tl.load(pb, mask=inside)
    tl.store(pw, partial_w, mask=inside)
    tl.store(pb, partial_b, mask=inside)
    tl.debug_barrier()
    tl.atomic_xchg(lock, 0)


@triton.jit
def sum_of_slots(dw, db, final_w, final_b, slots, columns, BM: tl.constexpr, BN: tl.constexpr):
    """The sums over the slots of `norm_gradient`."""
    at = tl.program_id(0) * BN + tl.arange(0, BN)
    w = tl.zeros((BM, BN), dtype=tl.float32)
    b = tl.zeros((BM, BN), dtype=tl.float32)
    for i in range(0, slots, BM):
        rows = i + tl.arange(0, BM)
        inside = (rows[:, None] < slots) & (at[None, :] < columns)
        w += tl.load(dw + rows[:, None] * columns + at[None, :], mask=inside, other=0.0)
        b += tl.load(db + rows[:, None] * columns + at[None, :], mask=inside, other=0.0)
    tl.store(final_w + at, tl.sum(w, axis=0), mask=at < columns)
    tl.store(final_b + at, tl.sum(b, axis=0), mask=at < columns)


@triton.jit
def smoothed_loss(logits, labels, losses, lses, columns, smoothing, BLOCK: tl.constexpr):
    """Cross-entropy with label smoothing, by a running maximum over blocks of the vocabulary."""
    row = tl.program_id(0)
    x = logits + row.to(tl.int64) * columns
    label = tl.load(labels + row)
    m = -float("inf")
    total = 0.0
    plain = 0.0
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        v = tl.load(x + at, mask=at < columns, other=-float("inf")).to(tl.float32)
        plain += tl.sum(tl.where(at < columns, v, 0.0))
        new = tl.maximum(m, tl.max(v))
        total = total * tl.exp(m - new) + tl.sum(tl.exp(v - new))
        m = new
    lse = m + tl.log(total)
    picked = tl.load(x + label).to(tl.float32)
    loss = lse - (1 - smoothing) * picked - smoothing * plain / columns
    tl.store(losses + row, loss)
    tl.store(lses + row, lse)


@triton.jit
def loss_gradient(logits, labels, lses, grads, columns, smoothing, BLOCK: tl.constexpr):
    """The gradient of `smoothed_loss`, for one block of one row, in place of the logits."""
    row = tl.program_id(0)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    x = logits + row.to(tl.int64) * columns
    v = tl.load(x + at, mask=at < columns, other=-float("inf")).to(tl.float32)
    p = tl.exp(v - tl.load(lses + row))
    p -= smoothing / columns
    p = tl.where(at == tl.load(labels + row), p - (1 - smoothing), p)
    tl.store(x + at, (p * tl.load(grads + row)).to(tl.bfloat16), mask=at < columns)


@triton.jit
def dropout_residual(x, residual, y, n, p, seed, BLOCK: tl.constexpr):
    """y = dropout(x) + residual."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    v = tl.load(x + at, mask=inside)
    r = tl.load(residual + at, mask=inside)
    keep = tl.rand(seed, at) > p
    tl.store(y + at, tl.where(keep, v / (1 - p), 0.0) + r, mask=inside)
