"""Products of matrices as optimisers, losses, signal processing and statistics take them."""

import tilewright as triton
import tilewright.language as tl


@triton.jit
def lower_gram(
    x, out, M, K, alpha, beta, COMBINES: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    """alpha x x^T + beta x, of which the tiles below the diagonal are mirrored: Newton-Schulz steps
    of an optimiser that makes updates orthogonal."""
    z, pid = tl.program_id(1), tl.program_id(0)
    across = tl.cdiv(M, BN)
    i, j = tl.swizzle2d(pid // across, pid % across, tl.cdiv(M, BM), across, GROUP)
    if i * BM + BM <= j * BN:
        return
    x += z * M * K
    out += z * M * M
    m = (i * BM + tl.arange(0, BM)) % M
    n = (j * BN + tl.arange(0, BN)) % M
    k = tl.arange(0, BK)
    pa = x + m[:, None] * K + k[None, :]
    pb = x + n[None, :] * K + k[:, None]
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for step in tl.range(0, tl.cdiv(K, BK)):
        a = tl.load(pa, mask=k[None, :] < K - step * BK, other=0.0)
        b = tl.load(pb, mask=k[:, None] < K - step * BK, other=0.0)
        acc = tl.dot(a, b, acc)
        pa += BK
        pb += BK
    rows, columns = i * BM + tl.arange(0, BM), j * BN + tl.arange(0, BN)
    inside = (rows[:, None] < M) & (columns[None, :] < M)
    if COMBINES:
        own = tl.load(x + rows[:, None] * K + columns[None, :], mask=inside, other=0.0)
        acc = acc * alpha + own.to(tl.float32) * beta
    y = acc.to(out.dtype.element_ty)
    tl.store(out + rows[:, None] * M + columns[None, :], y, mask=inside)
    mirrored = (columns[:, None] < M) & (rows[None, :] < M)
    tl.store(out + columns[:, None] * M + rows[None, :], y.T, mask=mirrored)


@triton.jit
def accumulate_gradient(
    x, dy, dw, T, K, N, BK: tl.constexpr, BN: tl.constexpr, BT: tl.constexpr
):  # fmt: skip
    """dw += x^T dy in fp32, over all tokens."""
    i, j = tl.program_id(0), tl.program_id(1)
    k, n, t = i * BK + tl.arange(0, BK), j * BN + tl.arange(0, BN), tl.arange(0, BT)
    acc = tl.zeros((BK, BN), dtype=tl.float32)
    for start in range(0, T, BT):
        rows = start + t
        a = tl.load(x + rows[None, :] * K + k[:, None], mask=rows[None, :] < T, other=0.0)
        b = tl.load(dy + rows[:, None] * N + n[None, :], mask=rows[:, None] < T, other=0.0)
        acc += tl.dot(a, b)
    at = dw + k[:, None] * N + n[None, :]
    tl.store(at, tl.load(at) + acc)


@triton.jit
def gram_in_parts(x, out, rows, BM: tl.constexpr, N: tl.constexpr):
    """x^T x of a tall matrix: each program adds that of its rows."""
    count = tl.cdiv(rows, tl.num_programs(0))
    begin = tl.program_id(0) * count
    end = tl.minimum(begin + count, rows)
    n, m = tl.arange(0, N), tl.arange(0, BM)
    acc = tl.zeros((N, N), dtype=tl.float32)
    for start in tl.range(begin, end, BM):
        at = start + m
        a = tl.load(x + at[:, None] * N + n[None, :], mask=at[:, None] < end, other=0.0)
        acc = tl.dot(tl.trans(a), a, acc)
    tl.atomic_add(out + n[:, None] * N + n[None, :], acc, sem="relaxed")


@triton.jit
def nearest(
    x, centroids, norms, labels, distances, N, COUNT,
    D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """The nearest of some centroids to each point."""
    m, d = tl.program_id(0) * BM + tl.arange(0, BM), tl.arange(0, D)
    points = tl.load(x + m[:, None] * D + d[None, :], mask=m[:, None] < N, other=0.0)
    best = tl.full((BM,), float("inf"), dtype=tl.float32)
    label = tl.zeros((BM,), dtype=tl.int32)
    for start in range(0, COUNT, BN):
        c = start + tl.arange(0, BN)
        other = tl.load(centroids + c[None, :] * D + d[:, None], mask=c[None, :] < COUNT, other=0.0)
        norm = tl.load(norms + c, mask=c < COUNT, other=float("inf"))
        far = norm[None, :] - 2.0 * tl.dot(points, other)
        least, at = tl.min(far, 1, return_indices=True)
        label = tl.where(least < best, start + at, label)
        best = tl.minimum(best, least)
    tl.store(labels + m, label, mask=m < N)
    tl.store(distances + m, best, mask=m < N)


@triton.jit
def kernel_sum(
    x, y, v, out, N, M, scale, D: tl.constexpr, DV: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """exp(-scale |x - y|^2) @ v: a Gaussian kernel's matrix that is never stored."""
    m, d, e = tl.program_id(0) * BM + tl.arange(0, BM), tl.arange(0, D), tl.arange(0, DV)
    a = tl.load(x + m[:, None] * D + d[None, :], mask=m[:, None] < N, other=0.0)
    own = tl.sum(a.to(tl.float32) * a.to(tl.float32), 1)
    acc = tl.zeros((BM, DV), dtype=tl.float32)
    for start in range(0, M, BN):
        n = start + tl.arange(0, BN)
        b = tl.load(y + n[:, None] * D + d[None, :], mask=n[:, None] < M, other=0.0)
        norm = tl.sum(b.to(tl.float32) * b.to(tl.float32), 1)
        far = own[:, None] + norm[None, :] - 2.0 * tl.dot(a, tl.trans(b))
        p = tl.where(n[None, :] < M, tl.exp(-scale * tl.maximum(far, 0.0)), 0.0)
        w = tl.load(v + n[:, None] * DV + e[None, :], mask=n[:, None] < M, other=0.0)
        acc += tl.dot(p.to(w.dtype), w)
    tl.store(out + m[:, None] * DV + e[None, :], acc, mask=m[:, None] < N)


@triton.jit
def complex_product(
    ar, ai, br, bi, cr, ci, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    """The product of complex matrices, with real and imaginary parts apart."""
    i, j = tl.program_id(0), tl.program_id(1)
    m, n, k = i * BM + tl.arange(0, BM), j * BN + tl.arange(0, BN), tl.arange(0, BK)
    left = m[:, None] * K + k[None, :]
    right = k[:, None] * N + n[None, :]
    real = tl.zeros((BM, BN), dtype=tl.float32)
    imaginary = tl.zeros((BM, BN), dtype=tl.float32)
    for _ in range(0, K, BK):
        xr, xi = tl.load(ar + left), tl.load(ai + left)
        yr, yi = tl.load(br + right), tl.load(bi + right)
        real += tl.dot(xr, yr) - tl.dot(xi, yi)
        imaginary += tl.dot(xr, yi) + tl.dot(xi, yr)
        left += BK
        right += BK * N
    at = m[:, None] * N + n[None, :]
    tl.store(cr + at, real)
    tl.store(ci + at, imaginary)


@triton.jit
def short_sums(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """A product whose sums are fp16."""
    i, j = tl.program_id(0), tl.program_id(1)
    m, n, k = i * BM + tl.arange(0, BM), j * BN + tl.arange(0, BN), tl.arange(0, BK)
    acc = tl.zeros((BM, BN), dtype=tl.float16)
    for start in range(0, K, BK):
        x = tl.load(a + m[:, None] * K + (start + k)[None, :])
        y = tl.load(b + n[None, :] * K + (start + k)[:, None])
        acc = tl.dot(x, y, acc, out_dtype=tl.float16)
    tl.store(c + m[:, None] * N + n[None, :], acc)


@triton.jit
def several_at_once(a, b, c, COUNT: tl.constexpr, S: tl.constexpr):
    """Small square matrices, several of them in one product of three axes."""
    z, r = tl.program_id(0) * COUNT + tl.arange(0, COUNT), tl.arange(0, S)
    at = z[:, None, None] * S * S + r[None, :, None] * S + r[None, None, :]
    tl.store(c + at, tl.dot(tl.load(a + at), tl.load(b + at)))


@triton.jit
def hadamard(x, h, y, rows, scale, N: tl.constexpr, BM: tl.constexpr):
    """Rows times a matrix of signs, before quantisation."""
    m, n = tl.program_id(0) * BM + tl.arange(0, BM), tl.arange(0, N)
    matrix = tl.load(h + n[:, None] * N + n[None, :])
    at = m[:, None] * N + n[None, :]
    row = tl.load(x + at, mask=m[:, None] < rows, other=0.0)
    tl.store(y + at, (tl.dot(row, matrix) * scale).to(y.dtype.element_ty), mask=m[:, None] < rows)


@triton.jit
def scaled_and_added(
    a, b, c, d, M, N, K, alpha, beta, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    """alpha a b + beta c, with a stored across."""
    i, j = tl.program_id(0), tl.program_id(1)
    m, n, k = i * BM + tl.arange(0, BM), j * BN + tl.arange(0, BN), tl.arange(0, BK)
    pa, pb = a + k[None, :] * M + m[:, None], b + k[:, None] * N + n[None, :]
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(0, K, BK):
        left = K - start
        x = tl.load(pa, mask=(k[None, :] < left) & (m[:, None] < M), other=0.0)
        y = tl.load(pb, mask=(k[:, None] < left) & (n[None, :] < N), other=0.0)
        acc += tl.dot(x, y)
        pa += BK * M
        pb += BK * N
    inside = (m[:, None] < M) & (n[None, :] < N)
    at = m[:, None] * N + n[None, :]
    bias = tl.load(c + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(d + at, (alpha * acc + beta * bias).to(d.dtype.element_ty), mask=inside)


@triton.jit
def solve_rows(a, b, x, rows, STEPS: tl.constexpr, N: tl.constexpr, BM: tl.constexpr):
    """Steps of conjugate gradients for x A = b, with a symmetric matrix for each program."""
    m, n = tl.program_id(0) * BM + tl.arange(0, BM), tl.arange(0, N)
    matrix = tl.load(a + tl.program_id(1) * N * N + n[:, None] * N + n[None, :])
    at = (tl.program_id(1) * rows + m[:, None]) * N + n[None, :]
    inside = (m < rows)[:, None]
    rest = tl.load(b + at, inside, other=0.0).to(tl.float32)
    direction, found = rest, tl.zeros((BM, N), tl.float32)
    size = tl.sum(rest * rest, 1)
    for _ in range(STEPS):
        moved = tl.dot(direction, matrix)
        step = size / (tl.sum(direction * moved, 1) + 1e-5)
        found += step[:, None] * direction
        rest -= step[:, None] * moved
        now = tl.sum(rest * rest, 1)
        direction = rest + (now / (size + 1e-5))[:, None] * direction
        size = now
    tl.store(x + at, found, inside)
