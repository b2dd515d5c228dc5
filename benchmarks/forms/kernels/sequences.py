"""State-space and delta-rule models by chunks, scans between programs, segments, routing."""

# pyright: reportUnnecessaryComparison=false, reportArgumentType=false, reportIndexIssue=false
# pyright: reportAttributeAccessIssue=false
import tilewright as triton
import tilewright.language as tl


@triton.jit
def conv_update(x, state, weight, bias, y, D, WIDTH: tl.constexpr, BD: tl.constexpr):
    """One step of a causal convolution: the state holds the last WIDTH - 1 inputs, and moves on."""
    b = tl.program_id(0)
    d = tl.program_id(1) * BD + tl.arange(0, BD)
    inside = d < D
    base = state + (b * D + d) * (WIDTH - 1)
    acc = tl.load(bias + d, mask=inside, other=0.0).to(tl.float32)
    for i in tl.static_range(WIDTH - 1):
        old = tl.load(base + i, mask=inside, other=0.0)
        acc += old.to(tl.float32) * tl.load(weight + d * WIDTH + i, mask=inside).to(tl.float32)
        if i > 0:
            tl.store(base + i - 1, old, mask=inside)
    new = tl.load(x + b * D + d, mask=inside, other=0.0)
    acc += new.to(tl.float32) * tl.load(weight + d * WIDTH + WIDTH - 1, mask=inside).to(tl.float32)
    tl.store(base + WIDTH - 2, new, mask=inside)
    tl.store(y + b * D + d, (acc * tl.sigmoid(acc)).to(tl.bfloat16), mask=inside)


@triton.jit
def state_update(state, x, dt, A, B, C, y, P: tl.constexpr, N: tl.constexpr, HEADS: tl.constexpr):
    """A step of a state-space model, for a head: s = s * exp(dt A) + dt x B; y = s C."""
    b, h = tl.program_id(0), tl.program_id(1)
    p, n = tl.arange(0, P), tl.arange(0, N)
    at = state + ((b * HEADS + h) * P + p[:, None]) * N + n[None, :]
    delta = tl.load(dt + b * HEADS + h).to(tl.float32)
    delta = tl.where(delta <= 20.0, tl.log(1 + tl.exp(delta)), delta)
    decay = tl.exp(tl.load(A + h) * delta)
    u = tl.load(x + (b * HEADS + h) * P + p).to(tl.float32)
    bs = tl.load(B + b * N + n).to(tl.float32)
    cs = tl.load(C + b * N + n).to(tl.float32)
    s = tl.load(at) * decay + (u * delta)[:, None] * bs[None, :]
    tl.store(at, s)
    tl.store(y + (b * HEADS + h) * P + p, tl.sum(s * cs[None, :], 1).to(tl.bfloat16))


@triton.jit
def chunk_outputs(
    c,
    b,
    x,
    sums,
    states,
    y,
    T,
    N: tl.constexpr,
    P: tl.constexpr,
    L: tl.constexpr,
    BL: tl.constexpr,
):
    """Outputs of a chunk of a state-space model: of its state, and of earlier inputs within it."""
    z, chunk, block = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    rows = block * BL + tl.arange(0, BL)
    n, p = tl.arange(0, N), tl.arange(0, P)
    base = z * T + chunk * L
    cs = tl.load(c + (base + rows[:, None]) * N + n[None, :])
    total = tl.load(sums + base + rows)
    at = states + ((z * (T // L) + chunk) * N + n[:, None]) * P + p[None, :]
    acc = tl.dot(cs, tl.load(at)) * tl.exp(total)[:, None]
    for start in range(0, (block + 1) * BL, BL):
        k = start + tl.arange(0, BL)
        bs = tl.load(b + (base + k[None, :]) * N + n[:, None])
        s = tl.dot(cs, bs) * tl.exp(total[:, None] - tl.load(sums + base + k)[None, :])
        s = tl.where(rows[:, None] >= k[None, :], s, 0.0)
        xs = tl.load(x + (base + k[:, None]) * P + p[None, :])
        acc += tl.dot(s.to(xs.dtype), xs)
    tl.store(y + (base + rows[:, None]) * P + p[None, :], acc.to(tl.bfloat16))


@triton.jit
def delta_inverse(k, beta, out, T, D: tl.constexpr, L: tl.constexpr):
    """The inverse of 1 + strictly lower (beta k k^T) for each chunk, row by row."""
    z, chunk = tl.program_id(0), tl.program_id(1)
    t, f = tl.arange(0, L), tl.arange(0, D)
    base = z * T + chunk * L
    ks = tl.load(k + (base + t[:, None]) * D + f[None, :])
    scaled = (ks * tl.load(beta + base + t)[:, None]).to(ks.dtype)
    a = -tl.where(t[:, None] > t[None, :], tl.dot(scaled, tl.trans(ks)), 0.0)
    for i in range(1, L):
        row = tl.sum(tl.where((t == i)[:, None], a, 0.0), 0)
        row += tl.sum(row[:, None] * a, 0) * (t < i)
        a = tl.where((t == i)[:, None], row[None, :], a)
    a += tl.where(t[:, None] == t[None, :], 1.0, 0.0)
    tl.store(out + (base + t[:, None]) * L + t[None, :], a.to(tl.bfloat16))


@triton.jit
def delta_states(
    k, w, u, gates, states, new, T,
    D: tl.constexpr, DV: tl.constexpr, BV: tl.constexpr, L: tl.constexpr,
):  # fmt: skip
    """States of a gated delta rule before each chunk, and what each chunk adds to them."""
    z, j = tl.program_id(0), tl.program_id(1)
    f, g, t = tl.arange(0, D), j * BV + tl.arange(0, BV), tl.arange(0, L)
    h = tl.zeros((D, BV), dtype=tl.float32)
    for chunk in range(T // L):
        base = z * T + chunk * L
        at = states + ((z * (T // L) + chunk) * D + f[:, None]) * DV + g[None, :]
        tl.store(at, h.to(tl.bfloat16))
        ws = tl.load(w + (base + t[:, None]) * D + f[None, :])
        us = tl.load(u + (base + t[:, None]) * DV + g[None, :])
        v = us.to(tl.float32) - tl.dot(ws, h.to(ws.dtype))
        tl.store(new + (base + t[:, None]) * DV + g[None, :], v.to(tl.bfloat16))
        gate = tl.load(gates + base + t)
        last = tl.load(gates + base + L - 1)
        v *= tl.exp(last - gate)[:, None]
        ks = tl.load(k + (base + t[None, :]) * D + f[:, None])
        h = h * tl.exp(last) + tl.dot(ks, v.to(ks.dtype))


@triton.jit
def look_back_sum(x, y, flags, sums, ticket, n, BLOCK: tl.constexpr):
    """Cumulative sums of a long row in one launch: each program adds the sum of the one before, in
    the order in which they draw tickets."""
    i = tl.atomic_add(ticket, 1)
    at = i * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + at, mask=at < n, other=0.0)
    before = 0.0
    own = tl.sum(v, axis=0)
    if i > 0:
        while tl.atomic_add(flags + i - 1, 0, sem="acquire") == 0:
            pass
        before = tl.load(sums + i - 1, volatile=True)
    tl.store(sums + i, before + own)
    tl.debug_barrier()
    tl.atomic_xchg(flags + i, 1, sem="release")
    tl.store(y + at, tl.cumsum(v, axis=0) + before, mask=at < n)


@triton.jit
def align_experts(chosen, counts, n, EXPERTS: tl.constexpr, BLOCK: tl.constexpr):
    """The tokens of each expert in a block of the list, one row of counts for each program."""
    i = tl.program_id(0)
    at = i * BLOCK + tl.arange(0, BLOCK)
    e = tl.load(chosen + at, mask=at < n, other=-1)
    experts = tl.arange(0, EXPERTS)
    found = tl.sum((e[:, None] == experts[None, :]).to(tl.int32), axis=0)
    tl.store(counts + i * EXPERTS + experts, found)


@triton.jit
def permute_tokens(x, order, y, columns, TOP: tl.constexpr, BLOCK: tl.constexpr):
    """Copies each token to its places among the sorted tokens."""
    token = tl.program_id(0).to(tl.int64)
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        v = tl.load(x + token * columns + at, mask=at < columns)
        for k in tl.static_range(TOP):
            place = tl.load(order + token * TOP + k).to(tl.int64)
            tl.store(y + place * columns + at, v, mask=at < columns)


@triton.jit
def segment_sums(x, offsets, y, columns, BR: tl.constexpr, BC: tl.constexpr):
    """The sum of the rows of each segment."""
    segment = tl.program_id(0)
    at = tl.program_id(1) * BC + tl.arange(0, BC)
    begin, end = tl.load(offsets + segment), tl.load(offsets + segment + 1)
    acc = tl.zeros((BR, BC), dtype=tl.float32)
    for start in range(begin, end, BR):
        rows = start + tl.arange(0, BR)
        inside = (rows[:, None] < end) & (at[None, :] < columns)
        acc += tl.load(x + rows[:, None] * columns + at[None, :], mask=inside, other=0.0)
    tl.store(y + segment * columns + at, tl.sum(acc, 0), mask=at < columns)


@triton.jit
def bag_of_rows(table, ids, weights, y, columns, BAG: tl.constexpr, BLOCK: tl.constexpr):
    """The weighted sum of BAG rows of a table."""
    bag = tl.program_id(0)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = at < columns
    acc = tl.zeros((BLOCK,), dtype=tl.float32)
    for i in range(BAG):
        row = tl.load(ids + bag * BAG + i)
        weight = tl.load(weights + bag * BAG + i)
        acc += tl.load(table + row * columns + at, mask=inside, other=0.0).to(tl.float32) * weight
    tl.store(y + bag * columns + at, acc.to(tl.float16), mask=inside)
