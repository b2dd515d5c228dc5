"""Numerics: stencils, small factorisations, Fourier transforms, optimisers, gradients of norms."""

# pyright: reportUnnecessaryComparison=false, reportArgumentType=false, reportIndexIssue=false
import tilewright as triton
import tilewright.language as tl


@triton.jit
def stencil(x, y, X, Y, Z, a, b, BY: tl.constexpr, BZ: tl.constexpr):
    """Seven points in three dimensions, for a block of a plane."""
    i = tl.program_id(2)
    j = tl.program_id(1) * BY + tl.arange(0, BY)[:, None]
    k = tl.program_id(0) * BZ + tl.arange(0, BZ)[None, :]
    at = (i * Y + j) * Z + k
    inside = (j < Y) & (k < Z)
    inner = inside & (i > 0) & (i < X - 1) & (j > 0) & (j < Y - 1) & (k > 0) & (k < Z - 1)
    v = tl.load(x + at, mask=inside)
    around = tl.load(x + at - 1, mask=inner, other=0.0) + tl.load(x + at + 1, mask=inner, other=0.0)
    around += tl.load(x + at - Z, mask=inner, other=0.0) + tl.load(
        x + at + Z, mask=inner, other=0.0
    )
    around += tl.load(x + at - Y * Z, mask=inner, other=0.0)
    around += tl.load(x + at + Y * Z, mask=inner, other=0.0)
    tl.store(y + at, tl.where(inner, a * v + b * around, v), mask=inside)


@triton.jit
def depthwise(x, weight, y, H, W, C, BW: tl.constexpr, BC: tl.constexpr):
    """A 3 x 3 convolution of each channel; channels are contiguous."""
    h, image = tl.program_id(1), tl.program_id(2)
    blocks = tl.cdiv(C, BC)
    w = (tl.program_id(0) // blocks) * BW + tl.arange(0, BW)
    c = (tl.program_id(0) % blocks) * BC + tl.arange(0, BC)
    acc = tl.zeros((BW, BC), dtype=tl.float32)
    for i in tl.static_range(3):
        for j in tl.static_range(3):
            row, column = h + i - 1, w + j - 1
            inside = (row >= 0) & (row < H) & (column >= 0) & (column < W)
            at = x + ((image * H + row) * W + column[:, None]) * C + c[None, :]
            v = tl.load(at, mask=inside[:, None] & (c < C)[None, :], other=0.0)
            k = tl.load(weight + (i * 3 + j) * C + c, mask=c < C, other=0.0)
            acc += v.to(tl.float32) * k.to(tl.float32)[None, :]
    at = y + ((image * H + h) * W + w[:, None]) * C + c[None, :]
    tl.store(at, acc.to(tl.float16), mask=(w < W)[:, None] & (c < C)[None, :])


@triton.jit
def cholesky(x, y, N: tl.constexpr):
    """The lower factor of a small symmetric matrix for each program, column by column."""
    z = tl.program_id(0)
    i, j = tl.arange(0, N)[:, None], tl.arange(0, N)[None, :]
    a = tl.load(x + z * N * N + i * N + j)
    for k in range(N):
        column = tl.sum(tl.where(j == k, a, 0.0), 1)
        pivot = tl.sum(tl.where(tl.arange(0, N) == k, column, 0.0), 0)
        column = tl.where(tl.arange(0, N) >= k, column / tl.sqrt(pivot), 0.0)
        rest = a - column[:, None] * column[None, :]
        a = tl.where(j == k, column[:, None], tl.where((i > k) & (j > k), rest, a))
    tl.store(y + z * N * N + i * N + j, tl.where(i >= j, a, 0.0))


@triton.jit
def solve_lower(lower, b, x, columns, N: tl.constexpr, BC: tl.constexpr):
    """x of lower @ x = b by substitution, for a block of columns."""
    z = tl.program_id(0)
    i = tl.arange(0, N)
    c = tl.program_id(1) * BC + tl.arange(0, BC)
    at = z * N * columns + i[:, None] * columns + c[None, :]
    v = tl.load(b + at, mask=c[None, :] < columns, other=0.0)
    for k in range(N):
        column = tl.load(lower + z * N * N + i * N + k)
        pivot = tl.load(lower + z * N * N + k * N + k)
        row = tl.sum(tl.where((i == k)[:, None], v, 0.0), 0) / pivot
        rest = v - column[:, None] * row[None, :]
        v = tl.where((i == k)[:, None], row[None, :], tl.where((i > k)[:, None], rest, v))
    tl.store(x + at, v, mask=c[None, :] < columns)


@triton.jit
def butterflies(a, b, HALF: tl.constexpr, WIDTH: tl.constexpr):
    """A step of Stockham's transform: the halves of the row are the inputs of the butterflies."""
    a0, a1 = tl.split(tl.trans(tl.reshape(a, (2, HALF))))
    b0, b1 = tl.split(tl.trans(tl.reshape(b, (2, HALF))))
    angle = (tl.arange(0, HALF) % WIDTH).to(tl.float32) * (-3.141592653589793 / WIDTH)
    c, d = tl.cos(angle), tl.sin(angle)
    u, w = a1 * c - b1 * d, a1 * d + b1 * c
    a, b = tl.join(a0 + u, a0 - u), tl.join(b0 + w, b0 - w)
    a = tl.permute(tl.reshape(a, (HALF // WIDTH, WIDTH, 2)), (0, 2, 1))
    b = tl.permute(tl.reshape(b, (HALF // WIDTH, WIDTH, 2)), (0, 2, 1))
    return tl.reshape(a, (2 * HALF,)), tl.reshape(b, (2 * HALF,))


@triton.jit
def fourier(re, im, out_re, out_im, N: tl.constexpr, STEPS: tl.constexpr):
    """Transforms of rows of N = 2^STEPS, in registers."""
    row = tl.program_id(0)
    n = tl.arange(0, N)
    a, b = tl.load(re + row * N + n), tl.load(im + row * N + n)
    for step in tl.static_range(STEPS):
        a, b = butterflies(a, b, N // 2, 2**step)
    tl.store(out_re + row * N + n, a)
    tl.store(out_im + row * N + n, b)


@triton.jit
def adam(p, g, m, v, n, rate, beta1, beta2, eps, decay, step1, step2, BLOCK: tl.constexpr):
    """One step of AdamW in place: bf16 parameters and gradients, fp32 moments."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    w = tl.load(p + at, mask=inside).to(tl.float32)
    d = tl.load(g + at, mask=inside).to(tl.float32)
    a = beta1 * tl.load(m + at, mask=inside) + (1 - beta1) * d
    b = beta2 * tl.load(v + at, mask=inside) + (1 - beta2) * d * d
    w -= rate * (a / step1 / (tl.sqrt(b / step2) + eps) + decay * w)
    tl.store(p + at, w.to(tl.bfloat16), mask=inside)
    tl.store(m + at, a, mask=inside)
    tl.store(v + at, b, mask=inside)


@triton.jit
def rms_gradient(
    x, dy, weight, rstd, dx, dw, rows, columns, PER: tl.constexpr, BLOCK: tl.constexpr
):
    """Gradients of an RMS norm for PER rows of a program, and the part of dw that they add."""
    program = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    inside = at < columns
    w = tl.load(weight + at, mask=inside, other=0.0).to(tl.float32)
    part = tl.zeros((BLOCK,), dtype=tl.float32)
    for row in range(program * PER, tl.minimum(program * PER + PER, rows)):
        v = tl.load(x + row * columns + at, mask=inside, other=0.0).to(tl.float32)
        g = tl.load(dy + row * columns + at, mask=inside, other=0.0).to(tl.float32)
        r = tl.load(rstd + row)
        hat = v * r
        part += g * hat
        wg = w * g
        mean = tl.sum(hat * wg, 0) / columns
        tl.store(dx + row * columns + at, ((wg - hat * mean) * r).to(tl.bfloat16), mask=inside)
    tl.store(dw + program * columns + at, part, mask=inside)


@triton.jit
def geglu_gradient(dy, x, dx, columns, BLOCK: tl.constexpr):
    """The gradient of gelu(x[:, :columns]) * x[:, columns:], by tanh."""
    row = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = at < columns
    base = row * 2 * columns + at
    a = tl.load(x + base, mask=inside, other=0.0).to(tl.float32)
    b = tl.load(x + base + columns, mask=inside, other=0.0).to(tl.float32)
    g = tl.load(dy + row * columns + at, mask=inside, other=0.0).to(tl.float32)
    inner = 0.7978845608028654 * (a + 0.044715 * a * a * a)
    t = 2 * tl.sigmoid(2 * inner) - 1
    slope = 0.7978845608028654 * (1 + 0.134145 * a * a)
    da = g * b * (0.5 * (1 + t) + 0.5 * a * (1 - t * t) * slope)
    tl.store(dx + base, da.to(tl.bfloat16), mask=inside)
    tl.store(dx + base + columns, (g * 0.5 * a * (1 + t)).to(tl.bfloat16), mask=inside)


@triton.jit
def linear_loss(
    x,
    w,
    targets,
    largest,
    totals,
    picked,
    V,
    K,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
):
    """Cross-entropy of x @ w.T without storing it: statistics for each block of the vocabulary."""
    i, j = tl.program_id(0), tl.program_id(1)
    rows, columns = i * BM + tl.arange(0, BM), j * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        a = tl.load(x + rows[:, None] * K + k[None, :])
        b = tl.load(w + columns[None, :] * K + k[:, None], mask=columns[None, :] < V, other=0.0)
        acc = tl.dot(a, b, acc)
    acc = tl.where(columns[None, :] < V, acc, -float("inf"))
    m = tl.max(acc, 1)
    at = rows * tl.num_programs(1) + j
    tl.store(largest + at, m)
    tl.store(totals + at, tl.sum(tl.exp(acc - m[:, None]), 1))
    target = tl.load(targets + rows)
    found = tl.sum(tl.where(columns[None, :] == target[:, None], acc, 0.0), 1)
    tl.store(picked + rows, found, mask=target // BN == j)
