"""Products of operands of two types, with more than one product for a tile, or of odd shapes."""

# pyright: reportUnnecessaryComparison=false, reportArgumentType=false, reportIndexIssue=false
# pyright: reportAttributeAccessIssue=false
import tilewright as triton
import tilewright.language as tl


@triton.jit
def weights_by_groups(
    x, w, scales, zeros, y, M, N, K, GROUP: tl.constexpr, ZEROS: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """y = x @ ((w - zeros) * scales): weights [N, K] of 8 bits, scales [N, K / GROUP]."""
    i, j = tl.program_id(0) // tl.cdiv(N, BN), tl.program_id(0) % tl.cdiv(N, BN)
    rows, columns, depth = i * BM + tl.arange(0, BM), j * BN + tl.arange(0, BN), tl.arange(0, BK)
    pa = x + (rows % M)[:, None] * K + depth[None, :]
    pb = w + columns[None, :] * K + depth[:, None]
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        a, b = tl.load(pa), tl.load(pb).to(x.dtype.element_ty)
        if ZEROS:
            b = b - tl.load(zeros + columns * (K // GROUP) + k // GROUP)[None, :]
        b = b * tl.load(scales + columns * (K // GROUP) + k // GROUP)[None, :]
        acc = tl.dot(a, b, acc)
        pa += BK
        pb += BK
    at = y + rows[:, None] * N + columns[None, :]
    tl.store(at, acc.to(y.dtype.element_ty), mask=rows[:, None] < M)


@triton.jit
def swiglu_products(
    x, w, y, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """silu(x @ gate) * (x @ up), of weights [2 N, K] of which gates are the upper half."""
    i, j = tl.program_id(0) // tl.cdiv(N, BN), tl.program_id(0) % tl.cdiv(N, BN)
    rows, columns, depth = i * BM + tl.arange(0, BM), j * BN + tl.arange(0, BN), tl.arange(0, BK)
    pa = x + (rows % M)[:, None] * K + depth[None, :]
    pg = w + (columns % N)[None, :] * K + depth[:, None]
    pu = pg + N * K
    gate = tl.zeros((BM, BN), dtype=tl.float32)
    up = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(tl.cdiv(K, BK)):
        left = K - k * BK
        a = tl.load(pa, mask=depth[None, :] < left, other=0.0)
        gate = tl.dot(a, tl.load(pg, mask=depth[:, None] < left, other=0.0), gate)
        up = tl.dot(a, tl.load(pu, mask=depth[:, None] < left, other=0.0), up)
        pa += BK
        pg += BK
        pu += BK
    out = gate * tl.sigmoid(gate) * up
    at = y + rows[:, None] * N + columns[None, :]
    inside = (rows[:, None] < M) & (columns[None, :] < N)
    tl.store(at, out.to(y.dtype.element_ty), mask=inside)


@triton.jit
def low_rank_product(
    x, w, down, up, y, M, N, K, R: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """x @ w + (x @ down) @ up: a weight with a correction of low rank."""
    i, j = tl.program_id(0), tl.program_id(1)
    rows, columns, depth = i * BM + tl.arange(0, BM), j * BN + tl.arange(0, BN), tl.arange(0, BK)
    rank = tl.arange(0, R)
    pa = x + rows[:, None] * K + depth[None, :]
    pb = w + depth[:, None] * N + columns[None, :]
    pd = down + depth[:, None] * R + rank[None, :]
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    low = tl.zeros((BM, R), dtype=tl.float32)
    for _ in range(0, K, BK):
        a = tl.load(pa)
        acc = tl.dot(a, tl.load(pb), acc)
        low = tl.dot(a, tl.load(pd), low)
        pa += BK
        pb += BK * N
        pd += BK * R
    u = tl.load(up + rank[:, None] * N + columns[None, :])
    acc = tl.dot(low.to(u.dtype), u, acc)
    tl.store(y + rows[:, None] * N + columns[None, :], acc.to(y.dtype.element_ty))


@triton.jit
def strided_product(
    a, b, c, M, N, K, am, ak, bk, bn, cm, cn, az, bz, cz,
    PRECISION: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """Products of a batch, with all strides and all masks."""
    i, j, z = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    rows, columns, depth = i * BM + tl.arange(0, BM), j * BN + tl.arange(0, BN), tl.arange(0, BK)
    pa = a + z * az + rows[:, None] * am + depth[None, :] * ak
    pb = b + z * bz + depth[:, None] * bk + columns[None, :] * bn
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        known = depth < K - k
        u = tl.load(pa, mask=(rows[:, None] < M) & known[None, :], other=0.0)
        v = tl.load(pb, mask=known[:, None] & (columns[None, :] < N), other=0.0)
        acc += tl.dot(u, v, input_precision=PRECISION)
        pa += BK * ak
        pb += BK * bk
    at = c + z * cz + rows[:, None] * cm + columns[None, :] * cn
    inside = (rows[:, None] < M) & (columns[None, :] < N)
    tl.store(at, acc.to(c.dtype.element_ty), mask=inside)


@triton.jit
def stream_k(
    a, b, c, M, N, K, STEPS: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    """Programs with equal numbers of steps along K, of one tile or more, added atomically."""
    tiles_n, per_tile = tl.cdiv(N, BN), tl.cdiv(K, BK)
    start = tl.program_id(0) * STEPS
    end = tl.minimum(start + STEPS, tl.cdiv(M, BM) * tiles_n * per_tile)
    while start < end:
        tile, first = start // per_tile, start % per_tile
        last = tl.minimum(first + (end - start), per_tile)
        i, j = tile // tiles_n, tile % tiles_n
        rows, columns = i * BM + tl.arange(0, BM), j * BN + tl.arange(0, BN)
        depth = first * BK + tl.arange(0, BK)
        pa = a + rows[:, None] * K + depth[None, :]
        pb = b + depth[:, None] * N + columns[None, :]
        acc = tl.zeros((BM, BN), dtype=tl.float32)
        for _ in range(first, last):
            acc = tl.dot(tl.load(pa), tl.load(pb), acc)
            pa += BK
            pb += BK * N
        tl.atomic_add(c + rows[:, None] * N + columns[None, :], acc, sem="relaxed")
        start += last - first


@triton.jit
def values_of_chunks(
    k, v, beta, a, g, w, u, T, HEADS: tl.constexpr, K: tl.constexpr, V: tl.constexpr,
    BT: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr,
):  # fmt: skip
    """w = a (beta exp(g) k) and u = a (beta v) of each chunk, for triangular a [BT, BT]."""
    c, z = tl.program_id(0), tl.program_id(1)
    b, head = z // HEADS, z % HEADS
    first = b * T * HEADS + head
    pb = tl.make_block_ptr(beta + first, (T,), (HEADS,), (c * BT,), (BT,), (0,))
    pg = tl.make_block_ptr(g + first, (T,), (HEADS,), (c * BT,), (BT,), (0,))
    pa = tl.make_block_ptr(a + first * BT, (T, BT), (HEADS * BT, 1), (c * BT, 0), (BT, BT), (1, 0))
    betas = tl.load(pb, boundary_check=(0,))
    gates = tl.exp(tl.load(pg, boundary_check=(0,)))
    matrix = tl.load(pa, boundary_check=(0, 1))
    for i in range(tl.cdiv(V, BV)):
        pv = tl.make_block_ptr(
            v + first * V, (T, V), (HEADS * V, 1), (c * BT, i * BV), (BT, BV), (1, 0)
        )
        pu = tl.make_block_ptr(
            u + first * V, (T, V), (HEADS * V, 1), (c * BT, i * BV), (BT, BV), (1, 0)
        )
        vs = tl.load(pv, boundary_check=(0, 1))
        scaled = (vs * betas[:, None]).to(vs.dtype)
        found = tl.dot(matrix, scaled, allow_tf32=False)
        tl.store(pu, found.to(pu.dtype.element_ty), boundary_check=(0, 1))
    for i in range(tl.cdiv(K, BK)):
        pk = tl.make_block_ptr(
            k + first * K, (T, K), (HEADS * K, 1), (c * BT, i * BK), (BT, BK), (1, 0)
        )
        pw = tl.make_block_ptr(
            w + first * K, (T, K), (HEADS * K, 1), (c * BT, i * BK), (BT, BK), (1, 0)
        )
        ks = tl.load(pk, boundary_check=(0, 1))
        scaled = (ks * betas[:, None] * gates[:, None]).to(ks.dtype)
        found = tl.dot(matrix, scaled)
        tl.store(pw, found.to(pw.dtype.element_ty), boundary_check=(0, 1))


@triton.jit
def gradients_of_values(
    q, k, g, do, dv, scale, T, HEADS: tl.constexpr, K: tl.constexpr, V: tl.constexpr,
    BT: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr,
):  # fmt: skip
    """The gradient of values of gated linear attention, of pairs within a chunk."""
    c, z = tl.program_id(0), tl.program_id(1)
    b, head = z // HEADS, z % HEADS
    first = b * T * HEADS + head
    s = tl.zeros([BT, BT], dtype=tl.float32)
    for i in range(tl.cdiv(K, BK)):
        pk = tl.make_block_ptr(
            k + first * K, (T, K), (HEADS * K, 1), (c * BT, i * BK), (BT, BK), (1, 0)
        )
        pq = tl.make_block_ptr(
            q + first * K, (K, T), (1, HEADS * K), (i * BK, c * BT), (BK, BT), (0, 1)
        )
        ks = tl.load(pk, boundary_check=(0, 1))
        qs = tl.load(pq, boundary_check=(0, 1))
        s += tl.dot(ks, qs) * scale
    t = c * BT + tl.arange(0, BT)
    inside = t < T
    pg = tl.make_block_ptr(g + first, (T,), (HEADS,), (c * BT,), (BT,), (0,))
    gs = tl.load(pg, boundary_check=(0,))
    s *= tl.exp(gs[None, :] - gs[:, None])
    keep = (t[:, None] <= t[None, :]) & (inside[:, None] & inside)
    s = tl.where(keep, s, 0).to(do.dtype.element_ty)
    for i in range(tl.cdiv(V, BV)):
        po = tl.make_block_ptr(
            do + first * V, (T, V), (HEADS * V, 1), (c * BT, i * BV), (BT, BV), (1, 0)
        )
        pv = tl.make_block_ptr(
            dv + first * V, (T, V), (HEADS * V, 1), (c * BT, i * BV), (BT, BV), (1, 0)
        )
        found = tl.dot(s, tl.load(po, boundary_check=(0, 1)))
        tl.store(pv, found.to(pv.dtype.element_ty), boundary_check=(0, 1))


@triton.jit
def attend_slopes(
    q, k, v, out, slopes, scale, T, seed, rate, D: tl.constexpr, DROP: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """Causal attention with a linear bias by distance (ALiBi), or with dropout of weights."""
    i, z = tl.program_id(0), tl.program_id(1)
    rows, d = i * BM + tl.arange(0, BM), tl.arange(0, D)
    q += z * T * D
    k += z * T * D
    v += z * T * D
    qs = tl.load(q + rows[:, None] * D + d[None, :], mask=rows[:, None] < T, other=0.0)
    slope = tl.load(slopes + z)
    most = tl.full([BM], float("-inf"), dtype=tl.float32)
    total = tl.zeros([BM], dtype=tl.float32)
    acc = tl.zeros([BM, D], dtype=tl.float32)
    for start in range(0, tl.minimum((i + 1) * BM, T), BN):
        n = start + tl.arange(0, BN)
        ks = tl.load(k + n[None, :] * D + d[:, None], mask=n[None, :] < T, other=0.0)
        s = tl.dot(qs, ks) * scale
        if not DROP:
            s += slope * (n[None, :] - rows[:, None])
        s = tl.where((rows[:, None] >= n[None, :]) & (n[None, :] < T), s, float("-inf"))
        new = tl.maximum(most, tl.max(s, 1))
        p = tl.exp(s - new[:, None])
        decay = tl.exp(most - new)
        total = total * decay + tl.sum(p, 1)
        if DROP:
            offsets = (z * T + rows[:, None]) * T + n[None, :]
            p = tl.where(tl.rand(seed, offsets) > rate, p / (1 - rate), 0.0)
        vs = tl.load(v + n[:, None] * D + d[None, :], mask=n[:, None] < T, other=0.0)
        acc = acc * decay[:, None] + tl.dot(p.to(vs.dtype), vs)
        most = new
    at = out + z * T * D + rows[:, None] * D + d[None, :]
    tl.store(at, (acc / total[:, None]).to(out.dtype.element_ty), mask=rows[:, None] < T)
