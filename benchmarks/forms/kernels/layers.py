"""Products within layers: norms before them, routing, convolutions, and short types of weights."""

import tilewright as triton
import tilewright.language as tl


@triton.jit
def normed_product(
    x, gain, w, y, M, N, K, eps, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    """RMS norm of the rows, and a product: the sums of squares are computed on the way."""
    i, j = tl.program_id(0), tl.program_id(1)
    m, n, k = i * BM + tl.arange(0, BM), j * BN + tl.arange(0, BN), tl.arange(0, BK)
    px, pw = x + m[:, None] * K + k[None, :], w + n[None, :] * K + k[:, None]
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    squares = tl.zeros((BM,), dtype=tl.float32)
    for start in range(0, K, BK):
        a = tl.load(px).to(tl.float32)
        squares += tl.sum(a * a, 1)
        a *= tl.load(gain + start + k).to(tl.float32)[None, :]
        acc += tl.dot(a.to(w.dtype.element_ty), tl.load(pw))
        px += BK
        pw += BK
    acc *= tl.rsqrt(squares / K + eps)[:, None]
    tl.store(y + m[:, None] * N + n[None, :], acc.to(y.dtype.element_ty))


@triton.jit
def experts_down(
    h, w, out, weights, ids, of, N, K, SLOTS,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """The second product of experts: rows are weighted and added to their tokens."""
    i, j = tl.program_id(0), tl.program_id(1)
    m, n, k = i * BM + tl.arange(0, BM), j * BN + tl.arange(0, BN), tl.arange(0, BK)
    slot = tl.load(ids + m)
    known = slot < SLOTS
    expert = tl.load(of + i).to(tl.int64)
    ph = h + slot[:, None].to(tl.int64) * K + k[None, :]
    pw = w + expert * N * K + n[None, :] * K + k[:, None]
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(0, K, BK):
        a = tl.load(ph, mask=known[:, None] & (k[None, :] < K - start), other=0.0)
        acc += tl.dot(a, tl.load(pw, mask=k[:, None] < K - start, other=0.0))
        ph += BK
        pw += BK
    acc *= tl.load(weights + slot, mask=known, other=0.0)[:, None]
    at = out + (slot // 2)[:, None] * N + n[None, :]
    tl.atomic_add(at, acc, mask=known[:, None], sem="relaxed")


@triton.jit
def gradient_of_experts(
    x, dy, dw, ends, K, N, BK: tl.constexpr, BN: tl.constexpr, BT: tl.constexpr
):
    """x^T dy over the rows of each expert, which are many or few."""
    e, pid = tl.program_id(1), tl.program_id(0)
    i, j = pid // tl.cdiv(N, BN), pid % tl.cdiv(N, BN)
    begin = tl.load(ends + e - 1, mask=e > 0, other=0)
    end = tl.load(ends + e)
    k, n, t = i * BK + tl.arange(0, BK), j * BN + tl.arange(0, BN), tl.arange(0, BT)
    acc = tl.zeros((BK, BN), dtype=tl.float32)
    for start in tl.range(begin, end, BT):
        rows = start + t
        a = tl.load(x + rows[:, None] * K + k[None, :], mask=rows[:, None] < end, other=0.0)
        b = tl.load(dy + rows[:, None] * N + n[None, :], mask=rows[:, None] < end, other=0.0)
        acc += tl.dot(tl.trans(a), b)
    at = dw + e.to(tl.int64) * K * N + k[:, None] * N + n[None, :]
    tl.store(at, acc.to(dw.dtype.element_ty))


@triton.jit
def sparse_convolution(
    x, w, neighbours, y, N, CI: tl.constexpr, CO: tl.constexpr, TAPS: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """Rows of voxels times a matrix for each neighbour that exists."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n, k = tl.program_id(1) * BN + tl.arange(0, BN), tl.arange(0, BK)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for step in range(TAPS * (CI // BK)):
        tap, begin = step // (CI // BK), step % (CI // BK) * BK
        rows = tl.load(neighbours + m * TAPS + tap, mask=m < N, other=-1)
        known = rows >= 0
        a = tl.load(x + rows[:, None] * CI + begin + k[None, :], mask=known[:, None], other=0.0)
        b = tl.load(w + (tap * CI + begin + k)[:, None] * CO + n[None, :])
        acc = tl.dot(a, b, acc)
    tl.store(y + m[:, None] * CO + n[None, :], acc.to(y.dtype.element_ty), mask=m[:, None] < N)


@triton.jit
def gradient_of_convolution(
    x, dy, dw, H, W, PIXELS, PART, CI: tl.constexpr, CO: tl.constexpr,
    BI: tl.constexpr, BO: tl.constexpr, BP: tl.constexpr,
):  # fmt: skip
    """The gradient of a 3x3 convolution's weights, channels last; programs share the pixels."""
    tap, part = tl.program_id(0), tl.program_id(1)
    i, j = tl.program_id(2) // (CO // BO), tl.program_id(2) % (CO // BO)
    dr, dc = tap // 3 - 1, tap % 3 - 1
    ci, co, p = i * BI + tl.arange(0, BI), j * BO + tl.arange(0, BO), tl.arange(0, BP)
    acc = tl.zeros((BI, BO), dtype=tl.float32)
    for start in tl.range(part * PART, tl.minimum(part * PART + PART, PIXELS), BP):
        at = start + p
        row, column = at // W % H + dr, at % W + dc
        inside = (row >= 0) & (row < H) & (column >= 0) & (column < W) & (at < PIXELS)
        moved = at + dr * W + dc
        a = tl.load(x + moved[None, :] * CI + ci[:, None], mask=inside[None, :], other=0.0)
        b = tl.load(dy + at[:, None] * CO + co[None, :], mask=at[:, None] < PIXELS, other=0.0)
        acc += tl.dot(a, b)
    place = dw + tap * CI * CO + ci[:, None] * CO + co[None, :]
    tl.atomic_add(place, acc, sem="relaxed")


@triton.jit
def pointwise_convolution(
    x, w, bias, residual, y, CI, CO, S, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    """A 1x1 convolution, channels first, with bias, residual and ReLU."""
    i, j, z = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    m, n, k = i * BM + tl.arange(0, BM), j * BN + tl.arange(0, BN), tl.arange(0, BK)
    px = x + z * CI * S + k[:, None] * S + n[None, :]
    pw = w + m[:, None] * CI + k[None, :]
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(0, CI, BK):
        left = CI - start
        a = tl.load(pw, mask=k[None, :] < left, other=0.0)
        b = tl.load(px, mask=(k[:, None] < left) & (n[None, :] < S), other=0.0)
        acc = tl.dot(a, b, acc)
        px += BK * S
        pw += BK
    acc += tl.load(bias + m).to(tl.float32)[:, None]
    at = z * CO * S + m[:, None] * S + n[None, :]
    inside = (m[:, None] < CO) & (n[None, :] < S)
    acc += tl.load(residual + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(y + at, tl.maximum(acc, 0.0).to(y.dtype.element_ty), mask=inside)


@triton.jit
def ternary_weights(
    x, packed, y, scales, scale, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    """int8 rows times weights of -1, 0, 1, four of a byte along K."""
    i, j = tl.program_id(0), tl.program_id(1)
    m, n, k = i * BM + tl.arange(0, BM), j * BN + tl.arange(0, BN), tl.arange(0, BK)
    px = x + m[:, None] * K + k[None, :]
    pw = packed + n[None, :] * (K // 4) + (k // 4)[:, None]
    shift = (k % 4 * 2)[:, None].to(tl.uint8)
    acc = tl.zeros((BM, BN), dtype=tl.int32)
    for _ in range(0, K, BK):
        a = tl.load(px, mask=m[:, None] < M, other=0)
        b = ((tl.load(pw) >> shift) & 3).to(tl.int8) - 1
        acc += tl.dot(a, b)
        px += BK
        pw += BK // 4
    row = tl.load(scales + m, mask=m < M, other=0.0)
    result = acc.to(tl.float32) * row[:, None] * scale
    inside = m[:, None] < M
    tl.store(y + m[:, None] * N + n[None, :], result.to(y.dtype.element_ty), mask=inside)


@triton.jit
def weights_by_codebook(
    x, packed, codebook, scales, y, M, N, K,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    """Weights of 4 bits that are numbers of 16 values, with a scale for each group along K."""
    i, j = tl.program_id(0), tl.program_id(1)
    m, n, k = i * BM + tl.arange(0, BM), j * BN + tl.arange(0, BN), tl.arange(0, BK)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(0, K, BK):
        at = start + k
        a = tl.load(x + m[:, None] * K + at[None, :], mask=m[:, None] < M, other=0.0)
        byte = tl.load(packed + n[None, :] * (K // 2) + (at // 2)[:, None])
        code = (byte >> (at % 2 * 4)[:, None].to(tl.uint8)) & 15
        value = tl.load(codebook + code.to(tl.int32))
        s = tl.load(scales + n * (K // GROUP) + start // GROUP)
        acc += tl.dot(a, (value * s[None, :]).to(a.dtype))
    inside = m[:, None] < M
    tl.store(y + m[:, None] * N + n[None, :], acc.to(y.dtype.element_ty), mask=inside)


@triton.jit
def int8_with_zeros(
    a, b, c, row_scales, row_zeros, column_scales, column_sums, M, N, K,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """int8 rows with a zero point each, times int8 columns."""
    i, j = tl.program_id(0), tl.program_id(1)
    m, n, k = i * BM + tl.arange(0, BM), j * BN + tl.arange(0, BN), tl.arange(0, BK)
    pa, pb = a + m[:, None] * K + k[None, :], b + n[None, :] * K + k[:, None]
    acc = tl.zeros((BM, BN), dtype=tl.int32)
    for _ in range(0, K, BK):
        acc += tl.dot(tl.load(pa), tl.load(pb))
        pa += BK
        pb += BK
    zero, total = tl.load(row_zeros + m), tl.load(column_sums + n)
    acc -= zero[:, None] * total[None, :]
    factor = tl.load(row_scales + m)[:, None] * tl.load(column_scales + n)[None, :]
    tl.store(c + m[:, None] * N + n[None, :], (acc.to(tl.float32) * factor).to(c.dtype.element_ty))


@triton.jit
def rotated_scores(
    q, k, cos, sin, out, T, scale, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr
):
    """Scores of queries and keys, both rotated by their positions, for an indexer of tokens."""
    i, j, z = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    m, n, d = i * BM + tl.arange(0, BM), j * BN + tl.arange(0, BN), tl.arange(0, D // 2)
    pq, pk = (
        q + z * T * D + m[:, None] * D + d[None, :],
        k + z * T * D + n[:, None] * D + d[None, :],
    )
    q1, q2 = tl.load(pq).to(tl.float32), tl.load(pq + D // 2).to(tl.float32)
    k1, k2 = tl.load(pk).to(tl.float32), tl.load(pk + D // 2).to(tl.float32)
    cq, sq = tl.load(cos + m[:, None] * (D // 2) + d), tl.load(sin + m[:, None] * (D // 2) + d)
    ck, sk = tl.load(cos + n[:, None] * (D // 2) + d), tl.load(sin + n[:, None] * (D // 2) + d)
    short = q.dtype.element_ty
    acc = tl.dot((q1 * cq - q2 * sq).to(short), tl.trans((k1 * ck - k2 * sk).to(short)))
    acc = tl.dot((q2 * cq + q1 * sq).to(short), tl.trans((k2 * ck + k1 * sk).to(short)), acc)
    at = z.to(tl.int64) * T * T + m[:, None] * T + n[None, :]
    tl.store(out + at, (acc * scale).to(out.dtype.element_ty))


@triton.jit
def microscaled(
    a, scales_a, b, scales_b, c, M, N, K,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, FORMAT: tl.constexpr,
    PACK: tl.constexpr,
):  # fmt: skip
    """fp8 rows times fp8 or fp4 columns, both with a scale for each 32 numbers."""
    i, j = tl.program_id(0), tl.program_id(1)
    m, n = i * BM + tl.arange(0, BM), j * BN + tl.arange(0, BN)
    k, kb, group = tl.arange(0, BK), tl.arange(0, BK // PACK), tl.arange(0, BK // 32)
    pa, pb = a + m[:, None] * K + k[None, :], b + n[None, :] * (K // PACK) + kb[:, None]
    sa = scales_a + m[:, None] * (K // 32) + group[None, :]
    sb = scales_b + n[:, None] * (K // 32) + group[None, :]
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for _ in range(0, K, BK):
        acc = tl.dot_scaled(tl.load(pa), tl.load(sa), "e4m3", tl.load(pb), tl.load(sb), FORMAT, acc)
        pa += BK
        pb += BK // PACK
        sa += BK // 32
        sb += BK // 32
    tl.store(c + m[:, None] * N + n[None, :], acc.to(c.dtype.element_ty))


@triton.jit
def rows_by_few(x, w, y, N, K, M: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Few rows times a matrix, without matrix instructions: decoding with a small batch."""
    n, k, m = tl.program_id(0) * BN + tl.arange(0, BN), tl.arange(0, BK), tl.arange(0, M)
    acc = tl.zeros((M, BN, BK), dtype=tl.float32)
    for start in range(0, K, BK):
        a = tl.load(x + m[:, None] * K + (start + k)[None, :]).to(tl.float32)
        b = tl.load(w + n[:, None] * K + (start + k)[None, :]).to(tl.float32)
        acc += a[:, None, :] * b[None, :, :]
    tl.store(y + m[:, None] * N + n[None, :], tl.sum(acc, 2).to(y.dtype.element_ty))


@triton.jit
def columns_in_parts(x, w, y, N, K, PART, BN: tl.constexpr, BK: tl.constexpr):
    """A row times a matrix that lies along its columns; parts of K are added atomically."""
    n, k = tl.program_id(0) * BN + tl.arange(0, BN), tl.arange(0, BK)
    begin = tl.program_id(1) * PART
    acc = tl.zeros((BN,), dtype=tl.float32)
    for start in range(begin, begin + PART, BK):
        a = tl.load(x + start + k).to(tl.float32)
        b = tl.load(w + (start + k)[:, None] * N + n[None, :]).to(tl.float32)
        acc += tl.sum(a[:, None] * b, 0)
    tl.atomic_add(y + n, acc, sem="relaxed")
