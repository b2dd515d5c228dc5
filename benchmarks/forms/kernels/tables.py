"""Indices, tables and states: optimisers of many tensors, packed codes, sparse and ragged rows."""

# pyright: reportUnnecessaryComparison=false, reportArgumentType=false, reportIndexIssue=false
# pyright: reportAttributeAccessIssue=false, reportCallIssue=false
import tilewright as triton
import tilewright.language as tl


@triton.jit
def sgd_of_tensors(
    weights, grads, states, tensors, chunks, sizes, rate, momentum, decay, BLOCK: tl.constexpr
):
    """Momentum for a list of tensors by tables of pointers: a chunk of one of them."""
    t = tl.load(tensors + tl.program_id(0))
    at = tl.load(chunks + tl.program_id(0)) * BLOCK + tl.arange(0, BLOCK)
    inside = at < tl.load(sizes + t)
    p = tl.load(weights + t).to(tl.pointer_type(tl.float32))
    g = tl.load(grads + t).to(tl.pointer_type(tl.float32))
    m = tl.load(states + t).to(tl.pointer_type(tl.float32))
    old = tl.load(p + at, mask=inside)
    grad = tl.load(g + at, mask=inside) + decay * old
    state = momentum * tl.load(m + at, mask=inside) + grad
    tl.store(m + at, state, mask=inside)
    tl.store(p + at, old - rate * (grad + momentum * state), mask=inside)


@triton.jit
def square_sums(x, total, n, BLOCK: tl.constexpr):
    """Sum of squares, for the norm of all gradients."""
    acc = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(tl.program_id(0) * BLOCK, n, tl.num_programs(0) * BLOCK):
        at = start + tl.arange(0, BLOCK)
        v = tl.load(x + at, mask=at < n, other=0.0).to(tl.float32)
        acc += v * v
    tl.atomic_add(total, tl.sum(acc, axis=0))


@triton.jit
def factored_moments(g, rows, columns, R, C, decay, BR: tl.constexpr, BC: tl.constexpr):
    """Means of squares of rows and of columns, for states that are products of both."""
    i = tl.program_id(0) * BR + tl.arange(0, BR)
    j = tl.program_id(1) * BC + tl.arange(0, BC)
    inside = (i[:, None] < R) & (j[None, :] < C)
    v = tl.load(g + i[:, None] * C + j[None, :], mask=inside, other=0.0).to(tl.float32)
    squares = v * v + 1e-30
    weight = 1 - decay
    tl.atomic_add(rows + i, tl.sum(squares, axis=1) * (weight / C), mask=i < R, sem="relaxed")
    tl.atomic_add(columns + j, tl.sum(squares, axis=0) * (weight / R), mask=j < C, sem="relaxed")


@triton.jit
def factored_step(p, g, rows, columns, mean, R, C, rate, BR: tl.constexpr, BC: tl.constexpr):
    """The step with those states."""
    i = tl.program_id(0) * BR + tl.arange(0, BR)
    j = tl.program_id(1) * BC + tl.arange(0, BC)
    at = i[:, None] * C + j[None, :]
    inside = (i[:, None] < R) & (j[None, :] < C)
    row = tl.load(rows + i, mask=i < R, other=1.0)
    column = tl.load(columns + j, mask=j < C, other=1.0)
    scale = tl.rsqrt(row / tl.load(mean))[:, None] * tl.rsqrt(column)[None, :]
    old = tl.load(p + at, mask=inside, other=0.0).to(tl.float32)
    step = tl.load(g + at, mask=inside, other=0.0).to(tl.float32) * scale
    tl.store(p + at, (old - rate * step).to(tl.bfloat16), mask=inside)


@triton.jit
def adam_by_table(
    p, g, codes, maxima, table, n, rate, beta, eps, BLOCK: tl.constexpr, STEPS: tl.constexpr
):
    """A state of bytes by a table of 256 sorted numbers, which is searched for the nearest."""
    block = tl.program_id(0)
    at = block * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    code = tl.load(codes + at, mask=inside, other=0).to(tl.int32)
    state = tl.load(table + code) * tl.load(maxima + block)
    grad = tl.load(g + at, mask=inside, other=0.0).to(tl.float32)
    state = beta * state + (1 - beta) * grad
    old = tl.load(p + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(p + at, (old - rate * state / (tl.abs(state) + eps)).to(tl.bfloat16), mask=inside)
    most = tl.max(tl.abs(state), axis=0)
    part = state / tl.maximum(most, 1e-30)
    low = tl.zeros((BLOCK,), dtype=tl.int32)
    for i in tl.static_range(STEPS):
        middle = low + (128 >> i)
        low = tl.where(tl.load(table + middle) <= part, middle, low)
    tl.store(codes + at, low.to(tl.uint8), mask=inside)
    tl.store(maxima + block, most)


@triton.jit
def masters_to_bf16(master, mean, out, n, decay, BLOCK: tl.constexpr):
    """A running mean of fp32 weights, and the weights in bf16."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    w = tl.load(master + at, mask=inside)
    m = tl.load(mean + at, mask=inside)
    tl.store(mean + at, m + (1 - decay) * (w - m), mask=inside)
    tl.store(out + at, w.to(tl.bfloat16), mask=inside)


@triton.jit
def four_bit_codes(packed, maxima, table, y, n, BLOCK: tl.constexpr, GROUP: tl.constexpr):
    """Numbers by a table of 16, two codes in a byte, with a scale for each group."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n // 2
    byte = tl.load(packed + at, mask=inside, other=0)
    scale = tl.load(maxima + at * 2 // GROUP, mask=inside, other=0.0)
    first = tl.load(table + (byte >> 4).to(tl.int32)) * scale
    second = tl.load(table + (byte & 15).to(tl.int32)) * scale
    both = tl.interleave(first, second).to(tl.bfloat16)
    whole = tl.program_id(0) * 2 * BLOCK + tl.arange(0, 2 * BLOCK)
    tl.store(y + whole, both, mask=whole < n)


@triton.jit
def weights_by_order(packed, zeros, scales, groups, y, K, N, BK: tl.constexpr, BN: tl.constexpr):
    """4-bit weights, 8 rows in a word; the group of each row is in a table."""
    k = tl.program_id(0) * BK + tl.arange(0, BK)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    group = tl.load(groups + k, mask=k < K, other=0)
    inside = (k[:, None] < K) & (n[None, :] < N)
    word = tl.load(packed + (k[:, None] // 8) * N + n[None, :], mask=inside, other=0)
    zero = tl.load(zeros + group[:, None] * (N // 8) + n[None, :] // 8, mask=inside, other=0)
    scale = tl.load(scales + group[:, None] * N + n[None, :], mask=inside, other=0.0)
    number = (word >> (k[:, None] % 8 * 4)) & 15
    zero = ((zero >> (n[None, :] % 8 * 4)) & 15) + 1
    tl.store(y + k[:, None] * N + n[None, :], (number - zero).to(tl.float16) * scale, mask=inside)


@triton.jit
def sparse_rows(starts, columns, values, x, y, D, BLOCK: tl.constexpr):
    """A sparse matrix by compressed rows, times a dense one."""
    row = tl.program_id(0)
    d = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    acc = tl.zeros((BLOCK,), dtype=tl.float32)
    for i in range(tl.load(starts + row), tl.load(starts + row + 1)):
        column = tl.load(columns + i).to(tl.int64)
        v = tl.load(x + column * D + d, mask=d < D, other=0.0).to(tl.float32)
        acc += tl.load(values + i) * v
    tl.store(y + row * D + d, acc.to(tl.float16), mask=d < D)


@triton.jit
def softmax_of_segments(x, starts, y, H: tl.constexpr, BLOCK: tl.constexpr):
    """Softmax over the edges of each node, for all heads."""
    begin, end = tl.load(starts + tl.program_id(0)), tl.load(starts + tl.program_id(0) + 1)
    h = tl.arange(0, H)
    most = tl.full((H,), -float("inf"), dtype=tl.float32)
    total = tl.zeros((H,), dtype=tl.float32)
    for first in range(begin, end, BLOCK):
        e = first + tl.arange(0, BLOCK)
        at = e[:, None] * H + h[None, :]
        v = tl.load(x + at, mask=e[:, None] < end, other=-float("inf"))
        new = tl.maximum(most, tl.max(v, axis=0))
        total = total * tl.exp(most - new) + tl.sum(tl.exp(v - new[None, :]), axis=0)
        most = new
    for first in range(begin, end, BLOCK):
        e = first + tl.arange(0, BLOCK)
        at = e[:, None] * H + h[None, :]
        v = tl.load(x + at, mask=e[:, None] < end, other=0.0)
        tl.store(y + at, tl.exp(v - most[None, :]) / total[None, :], mask=e[:, None] < end)


@triton.jit
def mean_of_ragged(x, starts, y, D, BR: tl.constexpr, BD: tl.constexpr):
    """Means of the rows of each sequence."""
    sequence = tl.program_id(0)
    d = tl.program_id(1) * BD + tl.arange(0, BD)
    begin, end = tl.load(starts + sequence), tl.load(starts + sequence + 1)
    acc = tl.zeros((BR, BD), dtype=tl.float32)
    for first in range(begin, end, BR):
        r = first + tl.arange(0, BR)
        inside = (r[:, None] < end) & (d[None, :] < D)
        acc += tl.load(x + r[:, None] * D + d[None, :], mask=inside, other=0.0).to(tl.float32)
    mean = tl.sum(acc, axis=0) / tl.maximum(end - begin, 1)
    tl.store(y + sequence * D + d, mean.to(tl.float16), mask=d < D)


@triton.jit
def penalties(logits, counts, seen, repetition, frequency, presence, V, BLOCK: tl.constexpr):
    """Logits of tokens that were there before are lowered, in place."""
    row = tl.program_id(0)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = at < V
    v = tl.load(logits + row * V + at, mask=inside, other=0.0)
    count = tl.load(counts + row * V + at, mask=inside, other=0)
    prompt = tl.load(seen + row * V + at, mask=inside, other=0) != 0
    factor = tl.where((count > 0) | prompt, tl.load(repetition + row), 1.0)
    v = tl.where(v > 0, v / factor, v * factor)
    v -= tl.load(frequency + row) * count + tl.load(presence + row) * (count > 0)
    tl.store(logits + row * V + at, v, mask=inside)


@triton.jit
def likely_tokens(logits, y, V, least, BLOCK: tl.constexpr):
    """Logits whose probability is a part of the largest one or less become -inf (min-p)."""
    row = tl.program_id(0)
    most = tl.full((BLOCK,), -float("inf"), dtype=tl.float32)
    for start in range(0, V, BLOCK):
        at = start + tl.arange(0, BLOCK)
        most = tl.maximum(most, tl.load(logits + row * V + at, mask=at < V, other=-float("inf")))
    limit = tl.max(most, axis=0) + tl.log(least)
    for start in range(0, V, BLOCK):
        at = start + tl.arange(0, BLOCK)
        v = tl.load(logits + row * V + at, mask=at < V, other=-float("inf"))
        tl.store(y + row * V + at, tl.where(v < limit, -float("inf"), v), mask=at < V)


@triton.jit
def groups_of_experts(
    logits, bias, weights, ids, n, E: tl.constexpr, G: tl.constexpr, TOPG: tl.constexpr,
    TOP: tl.constexpr, BT: tl.constexpr,
):  # fmt: skip
    """Experts of each token: the best groups by their two best scores, then the best in them."""
    t = tl.program_id(0) * BT + tl.arange(0, BT)
    e = tl.arange(0, E)
    at = t[:, None] * E + e[None, :]
    score = tl.sigmoid(tl.load(logits + at, mask=t[:, None] < n, other=0.0).to(tl.float32))
    biased = score + tl.load(bias + e)[None, :]
    grouped = tl.reshape(biased, (BT, G, E // G))
    inner = tl.arange(0, E // G)[None, None, :]
    best, place = tl.max(grouped, axis=2, return_indices=True)
    rest = tl.where(inner == place[:, :, None], -float("inf"), grouped)
    strength = best + tl.max(rest, axis=2)
    g = tl.arange(0, G)[None, :]
    kept = tl.zeros((BT, G), dtype=tl.int32)
    for _ in tl.static_range(TOPG):
        place = tl.argmax(strength, axis=1)
        kept = tl.where(g == place[:, None], 1, kept)
        strength = tl.where(g == place[:, None], -float("inf"), strength)
    grouped = tl.where(kept[:, :, None] > 0, grouped, -float("inf"))
    biased = tl.reshape(grouped, (BT, E))
    for k in tl.static_range(TOP):
        place = tl.argmax(biased, axis=1)
        found = e[None, :] == place[:, None]
        weight = tl.sum(tl.where(found, score, 0.0), axis=1)
        tl.store(ids + t * TOP + k, place, mask=t < n)
        tl.store(weights + t * TOP + k, weight, mask=t < n)
        biased = tl.where(found, -float("inf"), biased)


@triton.jit
def cache_fp8(keys, slots, cache, scales, H, D: tl.constexpr, BH: tl.constexpr):
    """Keys of tokens to slots of a cache in fp8, with a scale for each head."""
    token = tl.program_id(0)
    slot = tl.load(slots + token).to(tl.int64)
    if slot >= 0:
        h = tl.program_id(1) * BH + tl.arange(0, BH)
        d = tl.arange(0, D)
        inside = h[:, None] < H
        at = h[:, None] * D + d[None, :]
        v = tl.load(keys + token * H * D + at, mask=inside, other=0.0).to(tl.float32)
        scale = tl.maximum(tl.max(tl.abs(v), axis=1), 1e-12) / 448.0
        tl.store(scales + slot * H + h, scale, mask=h < H)
        q = (v / scale[:, None]).to(cache.dtype.element_ty)
        tl.store(cache + slot * H * D + at, q, mask=inside)


@triton.jit
def weighted_keys(w, u, k, v, y, T, C, BC: tl.constexpr):
    """The recurrence of RWKV-4: means of values by exponentials of keys that decay."""
    c = tl.program_id(0) * BC + tl.arange(0, BC)
    base = tl.program_id(1) * T * C + c
    decay, bonus = -tl.exp(tl.load(w + c)), tl.load(u + c)
    a = tl.zeros((BC,), dtype=tl.float32)
    b = tl.zeros((BC,), dtype=tl.float32)
    most = tl.full((BC,), -1e38, dtype=tl.float32)
    for t in range(T):
        kt = tl.load(k + base + t * C).to(tl.float32)
        vt = tl.load(v + base + t * C).to(tl.float32)
        top = tl.maximum(most, bonus + kt)
        e1, e2 = tl.exp(most - top), tl.exp(bonus + kt - top)
        tl.store(y + base + t * C, ((e1 * a + e2 * vt) / (e1 * b + e2)).to(tl.bfloat16))
        top = tl.maximum(most + decay, kt)
        e1, e2 = tl.exp(most + decay - top), tl.exp(kt - top)
        a, b, most = e1 * a + e2 * vt, e1 * b + e2, top


@triton.jit
def hadamard(x, y, rows, scale, N: tl.constexpr, LOG: tl.constexpr, BR: tl.constexpr):
    """Hadamard transforms of rows: sums and differences of halves, LOG times."""
    r = tl.program_id(0) * BR + tl.arange(0, BR)
    at = r[:, None] * N + tl.arange(0, N)[None, :]
    v = tl.load(x + at, mask=r[:, None] < rows, other=0.0).to(tl.float32)
    for _ in tl.static_range(LOG):
        a, b = tl.split(tl.permute(tl.reshape(v, (BR, 2, N // 2)), (0, 2, 1)))
        v = tl.reshape(tl.join(a + b, a - b), (BR, N))
    tl.store(y + at, (v * scale).to(tl.float16), mask=r[:, None] < rows)


@triton.jit
def decayed(a1, b1, a2, b2):
    return a1 * a2, b1 * a2 + b2


@triton.jit
def linear_recurrence(a, b, h, T, C, BT: tl.constexpr, BC: tl.constexpr):
    """h = a h + b along time, by scans of blocks."""
    c = tl.program_id(0) * BC + tl.arange(0, BC)
    base = tl.program_id(1) * T * C
    t = tl.arange(0, BT)
    state = tl.zeros((BC,), dtype=tl.float32)
    for start in range(0, T, BT):
        at = base + (start + t)[:, None] * C + c[None, :]
        factor = tl.load(a + at).to(tl.float32)
        value = tl.load(b + at).to(tl.float32)
        factor, value = tl.associative_scan((factor, value), 0, decayed)
        value += factor * state[None, :]
        state = tl.sum(tl.where(t[:, None] == BT - 1, value, 0.0), axis=0)
        tl.store(h + at, value.to(tl.bfloat16))


@triton.jit
def bias_dropout_norm(
    x, bias, residual, weight, shift, out, y, columns, p, seed, eps, BLOCK: tl.constexpr
):
    """A bias, dropout and a residual added, and the layer norm of that."""
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    inside = at < columns
    v = tl.load(x + row * columns + at, mask=inside, other=0.0).to(tl.float32)
    v += tl.load(bias + at, mask=inside, other=0.0).to(tl.float32)
    keep = tl.rand(seed, row * columns + at) >= p
    v = tl.where(keep, v / (1 - p), 0.0)
    v += tl.load(residual + row * columns + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + row * columns + at, v.to(tl.float16), mask=inside)
    mean = tl.sum(v, axis=0) / columns
    apart = tl.where(inside, v - mean, 0.0)
    rstd = tl.rsqrt(tl.sum(apart * apart, axis=0) / columns + eps)
    w = tl.load(weight + at, mask=inside).to(tl.float32)
    b = tl.load(shift + at, mask=inside).to(tl.float32)
    tl.store(y + row * columns + at, (apart * rstd * w + b).to(tl.float16), mask=inside)


@triton.jit
def bytes_by_rows(x, y, scales, zeros, columns, BLOCK: tl.constexpr):
    """Bytes from the least to the most of each row."""
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    inside = at < columns
    v = tl.load(x + row * columns + at, mask=inside, other=0.0).to(tl.float32)
    least = tl.min(tl.where(inside, v, float("inf")), axis=0)
    most = tl.max(tl.where(inside, v, -float("inf")), axis=0)
    scale = tl.maximum(most - least, 1e-8) / 255.0
    zero = tl.floor(-least / scale + 0.5)
    q = tl.clamp(tl.floor(v / scale + 0.5) + zero, 0.0, 255.0)
    tl.store(y + row * columns + at, q.to(tl.uint8), mask=inside)
    tl.store(scales + row, scale)
    tl.store(zeros + row, zero)


@triton.jit
def distillation(student, teacher, losses, V, temperature, BLOCK: tl.constexpr):
    """Divergence of softmaxes at a temperature: sums of both, then the mean of differences."""
    row = tl.program_id(0).to(tl.int64)
    student += row * V
    teacher += row * V
    ms, mt = -float("inf"), -float("inf")
    ts, tt = 0.0, 0.0
    for start in range(0, V, BLOCK):
        at = start + tl.arange(0, BLOCK)
        s = tl.load(student + at, mask=at < V, other=-float("inf")).to(tl.float32) / temperature
        t = tl.load(teacher + at, mask=at < V, other=-float("inf")).to(tl.float32) / temperature
        new_s, new_t = tl.maximum(ms, tl.max(s, axis=0)), tl.maximum(mt, tl.max(t, axis=0))
        ts = ts * tl.exp(ms - new_s) + tl.sum(tl.exp(s - new_s), axis=0)
        tt = tt * tl.exp(mt - new_t) + tl.sum(tl.exp(t - new_t), axis=0)
        ms, mt = new_s, new_t
    ls, lt = ms + tl.log(ts), mt + tl.log(tt)
    loss = 0.0
    for start in range(0, V, BLOCK):
        at = start + tl.arange(0, BLOCK)
        s = tl.load(student + at, mask=at < V, other=0.0).to(tl.float32) / temperature - ls
        t = tl.load(teacher + at, mask=at < V, other=0.0).to(tl.float32) / temperature - lt
        loss += tl.sum(tl.where(at < V, tl.exp(t) * (t - s), 0.0), axis=0)
    tl.store(losses + row, loss * temperature * temperature)


@triton.jit
def rotate_sections(q, cos, sin, tokens, heads, first, second, D: tl.constexpr, BH: tl.constexpr):
    """Rotary embedding in place with three positions, each for a section of the frequencies."""
    token = tl.program_id(0)
    h = tl.program_id(1) * BH + tl.arange(0, BH)
    i = tl.arange(0, D // 2)
    section = (i >= first).to(tl.int32) + (i >= second).to(tl.int32)
    at = (section * tokens + token) * (D // 2) + i
    c = tl.load(cos + at).to(tl.float32)[None, :]
    s = tl.load(sin + at).to(tl.float32)[None, :]
    place = q + (token * heads + h[:, None]) * D + i[None, :]
    inside = h[:, None] < heads
    a = tl.load(place, mask=inside, other=0.0).to(tl.float32)
    b = tl.load(place + D // 2, mask=inside, other=0.0).to(tl.float32)
    tl.store(place, (a * c - b * s).to(tl.bfloat16), mask=inside)
    tl.store(place + D // 2, (b * c + a * s).to(tl.bfloat16), mask=inside)


@triton.jit
def unit_rows_gradient(x, dy, dx, columns, BLOCK: tl.constexpr):
    """The gradient of x / |x| of each row."""
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    inside = at < columns
    v = tl.load(x + row * columns + at, mask=inside, other=0.0).to(tl.float32)
    g = tl.load(dy + row * columns + at, mask=inside, other=0.0).to(tl.float32)
    factor = 1 / tl.maximum(tl.sqrt(tl.sum(v * v, axis=0)), 1e-12)
    unit = v * factor
    d = (g - unit * tl.sum(g * unit, axis=0)) * factor
    tl.store(dx + row * columns + at, d.to(tl.float16), mask=inside)
