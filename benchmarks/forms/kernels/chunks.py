"""Chunks of state-space models and of gated delta rules, and steps of a delta rule."""

# pyright: reportUnnecessaryComparison=false, reportArgumentType=false, reportIndexIssue=false
# pyright: reportAttributeAccessIssue=false
import tilewright as triton
import tilewright.language as tl


@triton.jit
def chunk_states(
    x, b, states, dt, sums, P, N, T, HEADS: tl.constexpr, RATIO: tl.constexpr, L: tl.constexpr,
    BP: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """What each chunk of L inputs adds to the state [P, N]: x weighted by decay and dt, times b."""
    z, h = tl.program_id(1), tl.program_id(2)
    i, j = tl.program_id(0) // tl.cdiv(N, BN), tl.program_id(0) % tl.cdiv(N, BN)
    p, n, k = i * BP + tl.arange(0, BP), j * BN + tl.arange(0, BN), tl.arange(0, BK)
    groups = HEADS // RATIO
    px = x + (z * L * HEADS + h) * P + p[:, None] + k[None, :] * (HEADS * P)
    pb = b + (z * L * groups + h // RATIO) * N + n[None, :] + k[:, None] * (groups * N)
    ps, pd = sums + (z * HEADS + h) * L + k, dt + (z * HEADS + h) * L + k
    last = tl.load(sums + (z * HEADS + h) * L + L - 1).to(tl.float32)
    limit = tl.minimum(L, T - z * L)
    acc = tl.zeros((BP, BN), dtype=tl.float32)
    for start in range(0, limit, BK):
        left = limit - start
        u = tl.load(px, mask=(p[:, None] < P) & (k[None, :] < left), other=0.0)
        v = tl.load(pb, mask=(k[:, None] < left) & (n[None, :] < N), other=0.0).to(tl.float32)
        s = tl.load(ps, mask=k < left, other=0.0).to(tl.float32)
        d = tl.load(pd, mask=k < left, other=0.0).to(tl.float32)
        v *= (tl.exp(tl.minimum(last - s, 0.0)) * d)[:, None]
        acc += tl.dot(u, v.to(x.dtype.element_ty))
        px += BK * HEADS * P
        pb += BK * groups * N
        ps += BK
        pd += BK
    at = states + (z * HEADS + h) * P * N + p[:, None] * N + n[None, :]
    tl.store(at, acc.to(states.dtype.element_ty), mask=(p[:, None] < P) & (n[None, :] < N))


@triton.jit
def products_in_chunks(
    a, b, out, L, K, GROUPS: tl.constexpr, CAUSAL: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """a b^T within each chunk, for each group; tiles above the diagonal are left out."""
    i, j = tl.program_id(0) // tl.cdiv(L, BN), tl.program_id(0) % tl.cdiv(L, BN)
    z, g = tl.program_id(1), tl.program_id(2)
    if CAUSAL and j * BN >= (i + 1) * BM:
        return
    m, n, k = i * BM + tl.arange(0, BM), j * BN + tl.arange(0, BN), tl.arange(0, BK)
    row = GROUPS * K
    base = z * L * row + g * K
    pa = a + base + m[:, None] * row + k[None, :]
    pb = b + base + n[None, :] * row + k[:, None]
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(tl.cdiv(K, BK)):
        left = K - start * BK
        u = tl.load(pa, mask=(m[:, None] < L) & (k[None, :] < left), other=0.0)
        v = tl.load(pb, mask=(k[:, None] < left) & (n[None, :] < L), other=0.0)
        acc += tl.dot(u, v)
        pa += BK
        pb += BK
    at = out + (z * GROUPS + g) * L * L + m[:, None] * L + n[None, :]
    inside = (m[:, None] < L) & (n[None, :] < L)
    tl.store(at, acc.to(out.dtype.element_ty), mask=inside)


@triton.jit
def pass_states(states, out, last, decays, chunks, size, HEADS: tl.constexpr, B: tl.constexpr):
    """The state before each chunk, from what the chunks add; a block of the state by program."""
    j, z, h = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    at = j * B + tl.arange(0, B)
    states += (z * chunks * HEADS + h) * size
    out += (z * chunks * HEADS + h) * size
    decays += (z * HEADS + h) * chunks
    s = tl.zeros((B,), dtype=tl.float32)
    tl.store(out + at, s, mask=at < size)
    out += HEADS * size
    for c in range(chunks):
        new = tl.load(states + at, mask=at < size, other=0.0).to(tl.float32)
        s = tl.exp(tl.load(decays + c).to(tl.float32)) * s + new
        if c < chunks - 1:
            tl.store(out + at, s, mask=at < size)
        else:
            tl.store(last + (z * HEADS + h) * size + at, s, mask=at < size)
        states += HEADS * size
        out += HEADS * size


@triton.jit
def gated_outputs(
    q, k, v, h, g, out, scale, T, HEADS: tl.constexpr, K: tl.constexpr, V: tl.constexpr,
    BT: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr,
):  # fmt: skip
    """Outputs of a chunk of gated linear attention: of its state, and of pairs within it."""
    j, c, z = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    b, head = z // HEADS, z % HEADS
    chunk = b * tl.cdiv(T, BT) + c
    q += (b * T * HEADS + head) * K
    k += (b * T * HEADS + head) * K
    v += (b * T * HEADS + head) * V
    out += (b * T * HEADS + head) * V
    h += (chunk * HEADS + head).to(tl.int64) * K * V
    acc = tl.zeros([BT, BV], dtype=tl.float32)
    s = tl.zeros([BT, BT], dtype=tl.float32)
    for i in range(tl.cdiv(K, BK)):
        pq = tl.make_block_ptr(q, (T, K), (HEADS * K, 1), (c * BT, i * BK), (BT, BK), (1, 0))
        pk = tl.make_block_ptr(k, (K, T), (1, HEADS * K), (i * BK, c * BT), (BK, BT), (0, 1))
        ph = tl.make_block_ptr(h, (K, V), (V, 1), (i * BK, j * BV), (BK, BV), (1, 0))
        qs = tl.load(pq, boundary_check=(0, 1))
        ks = tl.load(pk, boundary_check=(0, 1))
        hs = tl.load(ph, boundary_check=(0, 1))
        acc += tl.dot(qs, hs)
        s += tl.dot(qs, ks)
    g += b * T * HEADS + head
    pg = tl.make_block_ptr(g, (T,), (HEADS,), (c * BT,), (BT,), (0,))
    gs = tl.load(pg, boundary_check=(0,))
    acc = acc * tl.exp(gs)[:, None]
    s = s * tl.exp(gs[:, None] - gs[None, :])
    t = c * BT + tl.arange(0, BT)
    inside = t < T
    keep = (t[:, None] >= t[None, :]) & (inside[:, None] & inside)
    s = tl.where(keep, s, 0)
    pv = tl.make_block_ptr(v, (T, V), (HEADS * V, 1), (c * BT, j * BV), (BT, BV), (1, 0))
    po = tl.make_block_ptr(out, (T, V), (HEADS * V, 1), (c * BT, j * BV), (BT, BV), (1, 0))
    vs = tl.load(pv, boundary_check=(0, 1))
    acc = acc * scale + tl.dot(s.to(vs.dtype), vs) * scale
    tl.store(po, acc.to(po.dtype.element_ty), boundary_check=(0, 1))


@triton.jit
def scaled_keys(
    k, g, beta, out, T, HEADS: tl.constexpr, K: tl.constexpr, BT: tl.constexpr, BK: tl.constexpr
):
    """beta k k^T of each chunk below its diagonal, with the decay between the two times."""
    c, z = tl.program_id(0), tl.program_id(1)
    b, head = z // HEADS, z % HEADS
    t = c * BT + tl.arange(0, BT)
    inside = t < T
    first = b * T * HEADS + head
    pb = tl.make_block_ptr(beta + first, (T,), (HEADS,), (c * BT,), (BT,), (0,))
    betas = tl.load(pb, boundary_check=(0,))
    acc = tl.zeros([BT, BT], dtype=tl.float32)
    for i in range(tl.cdiv(K, BK)):
        pk = tl.make_block_ptr(
            k + first * K, (T, K), (HEADS * K, 1), (c * BT, i * BK), (BT, BK), (1, 0)
        )
        ks = tl.load(pk, boundary_check=(0, 1))
        acc += tl.dot((ks * betas[:, None]).to(ks.dtype), tl.trans(ks))
    pg = tl.make_block_ptr(g + first, (T,), (HEADS,), (c * BT,), (BT,), (0,))
    gs = tl.load(pg, boundary_check=(0,))
    acc = acc * tl.exp(gs[:, None] - gs[None, :])
    keep = (t[:, None] > t[None, :]) & (inside[:, None] & inside)
    po = tl.make_block_ptr(
        out + first * BT, (T, BT), (HEADS * BT, 1), (c * BT, 0), (BT, BT), (1, 0)
    )
    tl.store(po, tl.where(keep, acc, 0).to(po.dtype.element_ty), boundary_check=(0, 1))


@triton.jit
def inverse_of_block(a, T, HEADS: tl.constexpr, BT: tl.constexpr, row, column):
    """The inverse of 1 + a 16 x 16 block below the diagonal, by rows."""
    t = tl.arange(0, 16)
    block = tl.make_block_ptr(a, (T, BT), (HEADS * BT, 1), (row, column), (16, 16), (1, 0))
    x = tl.load(block, boundary_check=(0, 1)).to(tl.float32)
    x = -tl.where(t[:, None] > t[None, :], x, 0)
    for i in range(2, tl.minimum(16, T - row)):
        new = -tl.load(a + (row + i) * HEADS * BT + column + t)
        new = tl.where(t < i, new, 0.0)
        new += tl.sum(new[:, None] * x, 0)
        x = tl.where((t == i)[:, None], new, x)
    return x + (t[:, None] == t[None, :])


@triton.jit
def load_block(a, T, HEADS: tl.constexpr, BT: tl.constexpr, row, column):
    block = tl.make_block_ptr(a, (T, BT), (HEADS * BT, 1), (row, column), (16, 16), (1, 0))
    return tl.load(block, boundary_check=(0, 1)).to(tl.float32)


@triton.jit
def store_block(a, T, HEADS: tl.constexpr, BT: tl.constexpr, row, column, value):
    block = tl.make_block_ptr(a, (T, BT), (HEADS * BT, 1), (row, column), (16, 16), (1, 0))
    tl.store(block, value.to(block.dtype.element_ty), boundary_check=(0, 1))


@triton.jit
def inverses_of_chunks(a, out, T, HEADS: tl.constexpr, BT: tl.constexpr, PRECISION: tl.constexpr):
    """Inverses of 1 + lower triangles of 32 x 32, from those of their diagonal blocks."""
    c, z = tl.program_id(0), tl.program_id(1)
    first = (z // HEADS * T * HEADS + z % HEADS) * BT
    a += first
    out += first
    x = inverse_of_block(a, T, HEADS, BT, c * BT, 0)
    y = inverse_of_block(a, T, HEADS, BT, c * BT + 16, 16)
    between = load_block(a, T, HEADS, BT, c * BT + 16, 0)
    below = -tl.dot(tl.dot(y, between, input_precision=PRECISION), x, input_precision=PRECISION)
    store_block(out, T, HEADS, BT, c * BT, 0, x)
    store_block(out, T, HEADS, BT, c * BT + 16, 16, y)
    store_block(out, T, HEADS, BT, c * BT + 16, 0, below)


@triton.jit
def delta_steps(
    q, k, v, g, beta, out, state, scale, T, HEADS: tl.constexpr, K: tl.constexpr,
    V: tl.constexpr, BV: tl.constexpr,
):  # fmt: skip
    """A gated delta rule step by step: the state forgets, is corrected, and is read."""
    j, z = tl.program_id(0), tl.program_id(1)
    b, head = z // HEADS, z % HEADS
    f, d = tl.arange(0, K), j * BV + tl.arange(0, BV)
    first = b * T * HEADS + head
    pq, pk, pv = q + first * K + f, k + first * K + f, v + first * V + d
    po, pg, pb = out + first * V + d, g + first, beta + first
    ps = state + (z * K + f[:, None]) * V + d[None, :]
    h = tl.load(ps).to(tl.float32)
    for _ in range(T):
        qs, ks = tl.load(pq).to(tl.float32), tl.load(pk).to(tl.float32)
        vs = tl.load(pv).to(tl.float32)
        qs = qs / tl.sqrt(tl.sum(qs * qs) + 1e-6)
        ks = ks / tl.sqrt(tl.sum(ks * ks) + 1e-6)
        qs = qs * scale
        h *= tl.exp(tl.load(pg).to(tl.float32))
        vs -= tl.sum(h * ks[:, None], 0)
        vs *= tl.load(pb).to(tl.float32)
        h += ks[:, None] * vs[None, :]
        tl.store(po, tl.sum(h * qs[:, None], 0).to(po.dtype.element_ty))
        pq += HEADS * K
        pk += HEADS * K
        pv += HEADS * V
        po += HEADS * V
        pg += HEADS
        pb += HEADS
    tl.store(ps, h)


@triton.jit
def sums_in_chunks(
    x, y, T, S: tl.constexpr, HEADS: tl.constexpr, BT: tl.constexpr, BS: tl.constexpr
):
    """Cumulative sums along time within each chunk."""
    j, c, z = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    base = (z // HEADS * T * HEADS + z % HEADS) * S
    px = tl.make_block_ptr(x + base, (T, S), (HEADS * S, 1), (c * BT, j * BS), (BT, BS), (1, 0))
    py = tl.make_block_ptr(y + base, (T, S), (HEADS * S, 1), (c * BT, j * BS), (BT, BS), (1, 0))
    v = tl.load(px, boundary_check=(0, 1)).to(tl.float32)
    tl.store(py, tl.cumsum(v, axis=0), boundary_check=(0, 1))


@triton.jit
def states_in_parts(
    k, v, w, u, states, T, HEADS: tl.constexpr, K: tl.constexpr, V: tl.constexpr,
    BT: tl.constexpr, BC: tl.constexpr, BV: tl.constexpr,
):  # fmt: skip
    """The state before each chunk of a delta rule, of which each part adds to it; most launches
    have one part in a chunk."""
    j, head = tl.program_id(0), tl.program_id(1)
    f, n, e = tl.arange(0, K), tl.arange(0, BC), j * BV + tl.arange(0, BV)
    state = tl.zeros((K, BV), dtype=tl.float32)
    for i in range(tl.cdiv(T, BT)):
        at = ((i * HEADS + head) * K + f[:, None]) * V + e[None, :]
        tl.store(states + at, state.to(states.dtype.element_ty))
        added = tl.zeros((K, BV), dtype=tl.float32)
        for part in range(tl.cdiv(tl.minimum(BT, T - i * BT), BC)):
            step = i * BT + part * BC + n
            inside = step < T
            row = (step * HEADS + head) * K
            kc = tl.load(k + row[None, :] + f[:, None], inside[None, :], other=0.0)
            wc = tl.load(w + row[:, None] + f[None, :], inside[:, None], other=0.0)
            column = ((step * HEADS + head) * V)[:, None] + e[None, :]
            vc = tl.load(v + column, inside[:, None], other=0.0)
            new = tl.dot(wc, state.to(wc.dtype))
            new += tl.load(u + column, inside[:, None], other=0.0)
            added += tl.dot(kc, (vc - new).to(kc.dtype))
        state += added
