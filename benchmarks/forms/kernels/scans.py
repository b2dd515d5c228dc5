"""Recurrences and small products: sums along rows, state-space scans, convolutions, histograms."""

# pyright: reportUnnecessaryComparison=false, reportArgumentType=false, reportIndexIssue=false
import tilewright as triton
import tilewright.language as tl


@triton.jit
def running_sum(x, y, columns, BLOCK: tl.constexpr):
    """Cumulative sums of a row, block by block with a carry."""
    row = tl.program_id(0)
    carry = 0.0
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        v = tl.load(x + row * columns + at, mask=at < columns, other=0.0)
        tl.store(y + row * columns + at, tl.cumsum(v, axis=0) + carry, mask=at < columns)
        carry += tl.sum(v, axis=0)


@triton.jit
def _compose(a0, b0, a1, b1):
    return a0 * a1, b0 * a1 + b1


@triton.jit
def gated_scan(gates, inputs, y, T, D, BT: tl.constexpr, BD: tl.constexpr):
    """h = gate * h + input along time, a chunk at a time by an associative scan."""
    b, j = tl.program_id(0), tl.program_id(1)
    d = j * BD + tl.arange(0, BD)
    h = tl.zeros((BD,), dtype=tl.float32)
    for start in range(0, T, BT):
        t = start + tl.arange(0, BT)
        at = b * T * D + t[:, None] * D + d[None, :]
        a = tl.load(gates + at).to(tl.float32)
        u = tl.load(inputs + at).to(tl.float32)
        a, u = tl.associative_scan((a, u), 0, _compose)
        out = u + a * h[None, :]
        tl.store(y + at, out.to(tl.bfloat16))
        h = tl.sum(tl.where((tl.arange(0, BT) == BT - 1)[:, None], out, 0.0), axis=0)


@triton.jit
def selective_scan(x, dt, A, B, C, y, T, D, N: tl.constexpr, BD: tl.constexpr):
    """A selective state-space model, step by step, with the state in registers."""
    b, j = tl.program_id(0), tl.program_id(1)
    d, n = j * BD + tl.arange(0, BD), tl.arange(0, N)
    a = tl.load(A + d[:, None] * N + n[None, :])
    h = tl.zeros((BD, N), dtype=tl.float32)
    for t in range(T):
        at = (b * T + t) * D + d
        u = tl.load(x + at).to(tl.float32)
        delta = tl.load(dt + at).to(tl.float32)
        bs = tl.load(B + (b * T + t) * N + n).to(tl.float32)
        cs = tl.load(C + (b * T + t) * N + n).to(tl.float32)
        h = h * tl.exp(delta[:, None] * a) + (delta * u)[:, None] * bs[None, :]
        tl.store(y + at, tl.sum(h * cs[None, :], axis=1).to(tl.bfloat16))


@triton.jit
def chunk_state(k, v, decay, states, T, D: tl.constexpr, DV: tl.constexpr, BT: tl.constexpr):
    """States of linear attention before each chunk: h = h * decay + k^T v."""
    b = tl.program_id(0)
    f, g = tl.arange(0, D), tl.arange(0, DV)
    h = tl.zeros((D, DV), dtype=tl.float32)
    for c in range(T // BT):
        tl.store(
            states + ((b * (T // BT) + c) * D + f[:, None]) * DV + g[None, :], h.to(tl.bfloat16)
        )
        t = c * BT + tl.arange(0, BT)
        kt = tl.load(k + (b * T + t[None, :]) * D + f[:, None])
        vt = tl.load(v + (b * T + t[:, None]) * DV + g[None, :])
        w = tl.load(decay + b * T + t)
        last = tl.load(decay + b * T + c * BT + BT - 1)
        vt = (vt * tl.exp(last - w)[:, None]).to(vt.dtype)
        h = h * tl.exp(last) + tl.dot(kt, vt)


@triton.jit
def small_products(
    a,
    b,
    c,
    m,
    n,
    k,
    sab,
    sam,
    sak,
    sbb,
    sbk,
    sbn,
    scb,
    scm,
    scn,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
):
    """One product of a batch for each program, with all strides."""
    g = tl.program_id(0)
    rows, columns, depth = tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, BK)
    u = tl.load(
        a + g * sab + rows[:, None] * sam + depth[None, :] * sak,
        mask=(rows[:, None] < m) & (depth[None, :] < k),
        other=0.0,
    )
    v = tl.load(
        b + g * sbb + depth[:, None] * sbk + columns[None, :] * sbn,
        mask=(depth[:, None] < k) & (columns[None, :] < n),
        other=0.0,
    )
    at = c + g * scb + rows[:, None] * scm + columns[None, :] * scn
    tl.store(at, tl.dot(u, v).to(tl.float16), mask=(rows[:, None] < m) & (columns[None, :] < n))


@triton.jit
def causal_conv(x, weight, bias, y, T, D, WIDTH: tl.constexpr, BT: tl.constexpr, BD: tl.constexpr):
    """A depthwise convolution with earlier times, and SiLU; channels are contiguous."""
    b = tl.program_id(0)
    t = tl.program_id(1) * BT + tl.arange(0, BT)
    d = tl.program_id(2) * BD + tl.arange(0, BD)
    acc = tl.zeros((BT, BD), dtype=tl.float32) + tl.load(bias + d).to(tl.float32)[None, :]
    for i in tl.static_range(WIDTH):
        at = t - (WIDTH - 1) + i
        w = tl.load(weight + d * WIDTH + i).to(tl.float32)
        inside = (at[:, None] >= 0) & (at[:, None] < T)
        v = tl.load(x + (b * T + at[:, None]) * D + d[None, :], mask=inside, other=0.0)
        acc += v.to(tl.float32) * w[None, :]
    acc = acc * tl.sigmoid(acc)
    tl.store(y + (b * T + t[:, None]) * D + d[None, :], acc.to(tl.bfloat16), mask=t[:, None] < T)


@triton.jit
def counts(x, bins, n, BINS: tl.constexpr, BLOCK: tl.constexpr):
    """A histogram of small integers: one for each program, added to the others."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    found = tl.histogram(tl.load(x + at, mask=at < n, other=0), BINS)
    tl.atomic_add(bins + tl.arange(0, BINS), found, sem="relaxed")


@triton.jit
def transpose(x, y, rows, columns, BM: tl.constexpr, BN: tl.constexpr):
    """y = x.T by blocks."""
    i = tl.program_id(0) * BM + tl.arange(0, BM)
    j = tl.program_id(1) * BN + tl.arange(0, BN)
    inside = (i[:, None] < rows) & (j[None, :] < columns)
    v = tl.load(x + i[:, None] * columns + j[None, :], mask=inside)
    tl.store(y + j[:, None] * rows + i[None, :], tl.trans(v), mask=tl.trans(inside))


@triton.jit
def states_over_blocks(
    added, factors, states, blocks, K: tl.constexpr, V: tl.constexpr, BV: tl.constexpr
):
    """The state before each block of a sequence: it decays by a number, and a matrix is added."""
    head, j = tl.program_id(0), tl.program_id(1)
    k, v = tl.arange(0, K), j * BV + tl.arange(0, BV)
    added += head * blocks * K * V + k[:, None] * V + v[None, :]
    states += head * blocks * K * V + k[:, None] * V + v[None, :]
    factors += head * blocks
    state = tl.zeros((K, BV), dtype=tl.float32)
    for _ in range(blocks):
        tl.store(states, state)
        state = state * tl.load(factors) + tl.load(added)
        added += K * V
        states += K * V
        factors += 1


@triton.jit
def join_parts(parts, sums, lengths, y, most, PART: tl.constexpr, D: tl.constexpr):
    """Parts of a decoded row, of which sequences have different numbers, joined by their sums."""
    z, head = tl.program_id(0), tl.program_id(1)
    row, d = z * tl.num_programs(1) + head, tl.arange(0, D)
    largest, total = -float("inf"), 0.0
    acc = tl.zeros((D,), dtype=tl.float32)
    for i in range(tl.cdiv(tl.load(lengths + z), PART)):
        part = tl.load(parts + (row * most + i) * D + d)
        s = tl.load(sums + row * most + i)
        new = tl.maximum(largest, s)
        old = tl.exp(largest - new)
        share = tl.exp(s - new)
        acc = acc * old + share * part
        total = total * old + share
        largest = new
    tl.store(y + row * D + d, acc / total)
