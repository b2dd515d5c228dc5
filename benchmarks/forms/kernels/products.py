"""Products with quantised operands, with work on their results, and by tables."""

# pyright: reportUnnecessaryComparison=false, reportArgumentType=false, reportIndexIssue=false
import tilewright as triton
import tilewright.language as tl


@triton.jit
def int8_weights(x, w, scales, y, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """y = x @ (w * scales): int8 weights [K, N] are converted in the loop."""
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        a = tl.load(x + rows[:, None] * K + k[None, :], mask=rows[:, None] < M, other=0.0)
        b = tl.load(w + k[:, None] * N + columns[None, :])
        acc = tl.dot(a, b.to(a.dtype), acc)
    acc *= tl.load(scales + columns)[None, :]
    at = y + rows[:, None] * N + columns[None, :]
    tl.store(at, acc.to(tl.float16), mask=rows[:, None] < M)


@triton.jit
def int4_weights(
    x,
    w,
    scales,
    zeros,
    y,
    M,
    N,
    K,
    GROUP: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
):
    """y = x @ dequantised weights: eight weights along K in a word, scales and zeros by groups."""
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    shift = (tl.arange(0, BK) % 8) * 4
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        a = tl.load(x + rows[:, None] * K + k[None, :], mask=rows[:, None] < M, other=0.0)
        packed = tl.load(w + (k // 8)[:, None] * N + columns[None, :])
        group = (start // GROUP) * N + columns
        scale, zero = tl.load(scales + group), tl.load(zeros + group)
        b = ((packed >> shift[:, None]) & 15).to(tl.float16)
        acc = tl.dot(a, (b - zero[None, :]) * scale[None, :], acc)
    at = y + rows[:, None] * N + columns[None, :]
    tl.store(at, acc.to(tl.float16), mask=rows[:, None] < M)


@triton.jit
def fp8_by_blocks(
    a, b, scales_a, scales_b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    """c = a @ b.T in fp8: a scale for each row and 128 of K, and for each 128 x 128 of b."""
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    depth = tl.arange(0, BK)
    pa = a + (rows % M)[:, None] * K + depth[None, :]
    pb = b + (columns % N)[None, :] * K + depth[:, None]
    ps = scales_a + (rows % M) * tl.cdiv(K, BK)
    pt = scales_b + ((columns % N) // 128) * tl.cdiv(K, BK)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(tl.cdiv(K, BK)):
        u = tl.load(pa, mask=depth[None, :] < K - k * BK, other=0.0)
        v = tl.load(pb, mask=depth[:, None] < K - k * BK, other=0.0)
        s, t = tl.load(ps + k), tl.load(pt + k)
        acc += tl.dot(u, v) * s[:, None] * t[None, :]
        pa += BK
        pb += BK
    at = c + rows[:, None] * N + columns[None, :]
    tl.store(at, acc.to(tl.bfloat16), mask=(rows[:, None] < M) & (columns[None, :] < N))


@triton.jit
def int8_scaled(
    a, b, scales_a, scales_b, bias, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    """c = (a @ b) * scales of rows and columns + bias, from int8; b is stored along K."""
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), dtype=tl.int32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        u = tl.load(a + rows[:, None] * K + k[None, :], mask=rows[:, None] < M, other=0)
        v = tl.load(b + columns[None, :] * K + k[:, None])
        acc = tl.dot(u, v, acc, out_dtype=tl.int32)
    s = tl.load(scales_a + rows, mask=rows < M, other=0.0)
    y = acc.to(tl.float32) * s[:, None] * tl.load(scales_b + columns)[None, :]
    y += tl.load(bias + columns).to(tl.float32)[None, :]
    at = c + rows[:, None] * N + columns[None, :]
    tl.store(at, y.to(tl.bfloat16), mask=rows[:, None] < M)


@triton.jit
def gelu(x):
    return 0.5 * x * (1 + tl.erf(x * 0.7071067811865476))


@triton.jit
def bias_gelu_residual(
    a,
    b,
    bias,
    residual,
    c,
    M,
    N,
    K,
    sam,
    sak,
    sbk,
    sbn,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    GROUP: tl.constexpr,
):
    """c = gelu(a @ b + bias) + residual, with blocks of rows in groups."""
    pid = tl.program_id(0)
    blocks_m, blocks_n = tl.cdiv(M, BM), tl.cdiv(N, BN)
    group = pid // (GROUP * blocks_n)
    first = group * GROUP
    size = tl.minimum(blocks_m - first, GROUP)
    i = first + (pid % (GROUP * blocks_n)) % size
    j = (pid % (GROUP * blocks_n)) // size
    rows, columns = i * BM + tl.arange(0, BM), j * BN + tl.arange(0, BN)
    depth = tl.arange(0, BK)
    pa = a + rows[:, None] * sam + depth[None, :] * sak
    pb = b + depth[:, None] * sbk + columns[None, :] * sbn
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(tl.cdiv(K, BK)):
        left = K - k * BK
        u = tl.load(pa, mask=(rows[:, None] < M) & (depth[None, :] < left), other=0.0)
        v = tl.load(pb, mask=(depth[:, None] < left) & (columns[None, :] < N), other=0.0)
        acc = tl.dot(u, v, acc)
        pa += BK * sak
        pb += BK * sbk
    acc += tl.load(bias + columns, mask=columns < N, other=0.0).to(tl.float32)[None, :]
    inside = (rows[:, None] < M) & (columns[None, :] < N)
    at = rows[:, None] * N + columns[None, :]
    r = tl.load(residual + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(c + at, (gelu(acc) + r).to(tl.bfloat16), mask=inside)


@triton.jit
def by_pointers(
    pointers_a, pointers_b, pointers_c, sizes, N, K,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """A product for each group, of its own rows: tables hold the addresses and numbers of rows."""
    group, i, j = tl.program_id(2), tl.program_id(0), tl.program_id(1)
    rows_of = tl.load(sizes + group)
    if i * BM >= rows_of:
        return
    a = tl.load(pointers_a + group).to(tl.pointer_type(tl.float16))
    b = tl.load(pointers_b + group).to(tl.pointer_type(tl.float16))
    c = tl.load(pointers_c + group).to(tl.pointer_type(tl.float16))
    rows, columns = i * BM + tl.arange(0, BM), j * BN + tl.arange(0, BN)
    depth = tl.arange(0, BK)
    pa = a + rows[:, None] * K + depth[None, :]
    pb = b + depth[:, None] * N + columns[None, :]
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for _ in range(0, K, BK):
        tl.multiple_of(pa, [16, 16])
        tl.multiple_of(pb, [16, 16])
        acc += tl.dot(tl.load(pa, mask=rows[:, None] < rows_of, other=0.0), tl.load(pb))
        pa += BK
        pb += BK * N
    at = c + rows[:, None] * N + columns[None, :]
    tl.store(at, acc.to(tl.float16), mask=rows[:, None] < rows_of)


@triton.jit
def experts(
    x,
    w,
    y,
    weights,
    sorted_ids,
    expert_ids,
    padded,
    tokens,
    N,
    K,
    TOP: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
):
    """Tokens, sorted by their expert in blocks, times the weights [N, K] of the expert."""
    i, j = tl.program_id(0) // tl.cdiv(N, BN), tl.program_id(0) % tl.cdiv(N, BN)
    if i * BM >= tl.load(padded):
        return
    ids = tl.load(sorted_ids + i * BM + tl.arange(0, BM)).to(tl.int64)
    inside = ids < tokens * TOP
    columns = (j * BN + tl.arange(0, BN)) % N
    depth = tl.arange(0, BK)
    expert = tl.load(expert_ids + i).to(tl.int64)
    pa = x + (ids // TOP)[:, None] * K + depth[None, :]
    pb = w + expert * N * K + columns[None, :] * K + depth[:, None]
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(tl.cdiv(K, BK)):
        left = K - k * BK
        u = tl.load(pa, mask=inside[:, None] & (depth[None, :] < left), other=0.0)
        v = tl.load(pb, mask=depth[:, None] < left, other=0.0)
        acc += tl.dot(u, v)
        pa += BK
        pb += BK
    acc *= tl.load(weights + ids, mask=inside, other=0.0)[:, None]
    columns = j * BN + tl.arange(0, BN)
    at = y + ids[:, None] * N + columns[None, :]
    tl.store(at, acc.to(tl.bfloat16), mask=inside[:, None] & (columns[None, :] < N))
