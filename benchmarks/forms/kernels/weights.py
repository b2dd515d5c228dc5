"""Products with weights of few bits, in sparse blocks or as convolutions, and their conversion."""

# pyright: reportUnnecessaryComparison=false, reportArgumentType=false, reportIndexIssue=false
# pyright: reportAttributeAccessIssue=false
import tilewright as triton
import tilewright.language as tl


@triton.jit
def weights_by_table(
    x, packed, scales, zeros, groups, y, M, N, K,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """y = x @ weights of 4 bits, eight along K in a word; a table gives the group of each k."""
    i, j = tl.program_id(0) // tl.cdiv(N, BN), tl.program_id(0) % tl.cdiv(N, BN)
    rows, columns, depth = i * BM + tl.arange(0, BM), j * BN + tl.arange(0, BN), tl.arange(0, BK)
    pa = x + rows[:, None] * K + depth[None, :]
    pb = packed + (depth[:, None] // 8) * N + columns[None, :]
    shift, shift_zero = (depth % 8) * 4, (columns % 8) * 4
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(tl.cdiv(K, BK)):
        g = tl.load(groups + k * BK + depth)
        scale = tl.load(scales + g[:, None] * N + columns[None, :])
        zero = tl.load(zeros + g[:, None] * (N // 8) + columns[None, :] // 8)
        zero = ((zero >> shift_zero[None, :]) & 15) + 1
        a = tl.load(pa, mask=rows[:, None] < M, other=0.0)
        b = (tl.load(pb) >> shift[:, None]) & 15
        acc += tl.dot(a, ((b - zero) * scale).to(tl.float16))
        pa += BK
        pb += (BK // 8) * N
    at = y + rows[:, None] * N + columns[None, :]
    tl.store(at, acc.to(tl.float16), mask=rows[:, None] < M)


@triton.jit
def weights_interleaved(
    x, packed, scales, zeros, y, M, N, K, GROUP: tl.constexpr, SPLITS: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """y += x @ weights of 4 bits, eight along N in a word in the order 0 2 4 6 1 3 5 7."""
    i, j = tl.program_id(0) // tl.cdiv(N, BN), tl.program_id(0) % tl.cdiv(N, BN)
    split = tl.program_id(1)
    order = ((tl.arange(0, 2) * 4)[None, :] + tl.arange(0, 4)[:, None]).reshape(8)
    shifts = tl.broadcast_to((order * 4)[None, :], (BK * (BN // 8), 8))
    shifts = tl.reshape(shifts, (BK, BN))
    rows, depth = i * BM + tl.arange(0, BM), split * BK + tl.arange(0, BK)
    words, columns = j * (BN // 8) + tl.arange(0, BN // 8), j * BN + tl.arange(0, BN)
    pa = x + K * rows[:, None] + depth[None, :]
    pb = packed + (N // 8) * depth[:, None] + words[None, :]
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(tl.cdiv(K, BK * SPLITS)):
        inside = depth < K
        a = tl.load(pa, mask=(rows < M)[:, None] & inside[None, :], other=0.0)
        b = tl.load(pb, mask=inside[:, None], other=0)
        b = tl.interleave(b, b)
        b = tl.interleave(b, b)
        b = tl.interleave(b, b)
        group = BK * SPLITS * k // GROUP + split * BK // GROUP
        zero = tl.load(zeros + (N // 8) * group + words[None, :])
        zero = tl.interleave(zero, zero)
        zero = tl.interleave(zero, zero)
        zero = tl.interleave(zero, zero)
        zero = tl.broadcast_to(zero, (BK, BN))
        scale = tl.broadcast_to(tl.load(scales + N * group + columns[None, :]), (BK, BN))
        b, zero = (b >> shifts) & 15, (zero >> shifts) & 15
        acc = tl.dot(a, ((b - zero) * scale).to(tl.float16), acc, out_dtype=tl.float32)
        depth += BK * SPLITS
        pa += BK * SPLITS
        pb += BK * SPLITS * (N // 8)
    at = y + split * M * N + N * rows[:, None] + columns[None, :]
    tl.store(at, acc.to(tl.float16), mask=(rows < M)[:, None])


@triton.jit
def convert_interleaved(packed, scales, zeros, y, rows, words, GROUP: tl.constexpr,
                        BX: tl.constexpr, BY: tl.constexpr):  # fmt: skip
    """The weights of `weights_interleaved` as fp16."""
    i, j = tl.program_id(1) * BY + tl.arange(0, BY), tl.program_id(0) * BX + tl.arange(0, BX)
    inside = (i < rows)[:, None] & (j < words)[None, :]
    v = tl.load(packed + words * i[:, None] + j[None, :], mask=inside, other=0)
    v = tl.interleave(v, v)
    v = tl.interleave(v, v)
    v = tl.interleave(v, v)
    order = ((tl.arange(0, 2) * 4)[None, :] + tl.arange(0, 4)[:, None]).reshape(8)
    shifts = tl.reshape(tl.broadcast_to((order * 4)[None, :], (BY * BX, 8)), (BY, BX * 8))
    group = tl.program_id(1) * BY // GROUP
    z = tl.load(zeros + words * group + j[None, :], mask=(j < words)[None, :], other=0)
    z = tl.interleave(z, z)
    z = tl.interleave(z, z)
    z = tl.interleave(z, z)
    z = (tl.broadcast_to(z, (BY, BX * 8)) >> shifts) & 15
    columns = tl.program_id(0) * BX * 8 + tl.arange(0, BX * 8)
    known = (columns < words * 8)[None, :]
    s = tl.load(scales + words * 8 * group + columns[None, :], mask=known, other=0.0)
    v = (((v >> shifts) & 15) - z) * tl.broadcast_to(s, (BY, BX * 8))
    at = y + words * 8 * i[:, None] + columns[None, :]
    tl.store(at, v.to(tl.float16), mask=(i < rows)[:, None] & known)


@triton.jit
def experts_int4(
    x, packed, scales, y, sorted_ids, expert_ids, tokens, N, K, TOP: tl.constexpr,
    GROUP: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """Sorted tokens times the weights [N, K] of their expert: two of 4 bits along K in a byte."""
    i, j = tl.program_id(0) // tl.cdiv(N, BN), tl.program_id(0) % tl.cdiv(N, BN)
    ids = tl.load(sorted_ids + i * BM + tl.arange(0, BM)).to(tl.int64)
    inside = ids < tokens * TOP
    columns, depth = (j * BN + tl.arange(0, BN)).to(tl.int64) % N, tl.arange(0, BK)
    expert = tl.load(expert_ids + i).to(tl.int64)
    pa = x + (ids // TOP)[:, None] * K + depth[None, :]
    pb = packed + expert * N * (K // 2) + (depth[:, None] // 2) + columns[None, :] * (K // 2)
    shift = (depth[:, None] % 2) * 4
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(tl.cdiv(K, BK)):
        a = tl.load(pa, mask=inside[:, None] & (depth[None, :] < K - k * BK), other=0.0)
        b = (tl.load(pb) >> shift) & 15
        group = (depth[:, None] + BK * k) // GROUP
        s = tl.load(scales + (expert * N + columns[None, :]) * (K // GROUP) + group)
        b = ((b.to(tl.float32) - 8) * s.to(tl.float32)).to(tl.bfloat16)
        acc = tl.dot(a, b, acc=acc)
        pa += BK
        pb += BK // 2
    columns = j * BN + tl.arange(0, BN)
    at = y + ids[:, None] * N + columns[None, :]
    tl.store(at, acc.to(tl.bfloat16), mask=inside[:, None] & (columns[None, :] < N))


@triton.jit
def experts_fp8(
    x, w, scales_x, scales_w, y, sorted_ids, expert_ids, tokens, N, K, TOP: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """Sorted tokens times the weights [N, K] of their expert: fp8, scales by blocks of 128."""
    i, j = tl.program_id(0) // tl.cdiv(N, BN), tl.program_id(0) % tl.cdiv(N, BN)
    ids = tl.load(sorted_ids + i * BM + tl.arange(0, BM)).to(tl.int64)
    inside = ids < tokens * TOP
    columns, depth = (j * BN + tl.arange(0, BN)).to(tl.int64) % N, tl.arange(0, BK)
    expert = tl.load(expert_ids + i).to(tl.int64)
    pa = x + (ids // TOP)[:, None] * K + depth[None, :]
    pb = w + expert * N * K + (depth[:, None] + columns[None, :] * K)
    ps = scales_x + (ids // TOP) * (K // 128)
    pt = scales_w + expert * (N // 128) * (K // 128) + (columns // 128) * (K // 128)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(tl.cdiv(K, BK)):
        left = K - k * BK
        a = tl.load(pa, mask=inside[:, None] & (depth[None, :] < left), other=0.0)
        b = tl.load(pb, mask=depth[:, None] < left, other=0.0)
        s = tl.load(ps + k * BK // 128, mask=inside, other=0.0)
        t = tl.load(pt + k * BK // 128)
        acc += tl.dot(a, b) * s[:, None] * t[None, :]
        pa += BK
        pb += BK
    columns = j * BN + tl.arange(0, BN)
    at = y + ids[:, None] * N + columns[None, :]
    tl.store(at, acc.to(tl.bfloat16), mask=inside[:, None] & (columns[None, :] < N))


@triton.jit
def weights_fp4(
    x, packed, scales, y, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    """y = x @ weights of 4-bit floats with a scale for 32 along K: a block-scaled product."""
    i, j = tl.program_id(0), tl.program_id(1)
    rows, columns = i * BM + tl.arange(0, BM), j * BN + tl.arange(0, BN)
    k, half, part = tl.arange(0, BK), tl.arange(0, BK // 2), tl.arange(0, BK // 32)
    pa = x + rows[:, None] * K + k[None, :]
    pb = packed + half[:, None] + columns[None, :] * (K // 2)
    ps = scales + columns[:, None] * (K // 32) + part[None, :]
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for _ in range(0, K, BK):
        a, b, s = tl.load(pa), tl.load(pb), tl.load(ps)
        acc = tl.dot_scaled(a, None, "bf16", b, s, "e2m1", acc)
        pa += BK
        pb += BK // 2
        ps += BK // 32
    tl.store(y + rows[:, None] * N + columns[None, :], acc.to(tl.bfloat16))


@triton.jit
def sparse_blocks(values, starts, columns_of, b, y, N, SIZE: tl.constexpr, BN: tl.constexpr):
    """A matrix of SIZE x SIZE blocks in compressed rows, times a dense one."""
    i, j = tl.program_id(0), tl.program_id(1)
    r, n = tl.arange(0, SIZE), j * BN + tl.arange(0, BN)
    acc = tl.zeros((SIZE, BN), dtype=tl.float32)
    for at in range(tl.load(starts + i), tl.load(starts + i + 1)):
        a = tl.load(values + at * SIZE * SIZE + r[:, None] * SIZE + r[None, :])
        k = tl.load(columns_of + at) * SIZE + r
        acc += tl.dot(a, tl.load(b + k[:, None] * N + n[None, :]), out_dtype=tl.float32)
    tl.store(y + (i * SIZE + r[:, None]) * N + n[None, :], acc.to(tl.float16))


@triton.jit
def convolution(
    x, weight, y, H, W, C, F, P, Q, R: tl.constexpr, S: tl.constexpr, PAD: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """A convolution as a product of pixels and filters: channels are contiguous, as are filters."""
    i, j = tl.program_id(0), tl.program_id(1)
    pixel, filters = i * BM + tl.arange(0, BM), j * BN + tl.arange(0, BN)
    image, p, q = pixel // (P * Q), pixel // Q % P, pixel % Q
    c = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    blocks = tl.cdiv(C, BK)
    for step in range(R * S * blocks):
        block, place = step % blocks, step // blocks
        r, s, channel = place // S, place % S, block * BK + c
        h, w = p - PAD + r, q - PAD + s
        a = tl.load(
            x + ((image * H + h) * W + w)[:, None] * C + channel[None, :],
            mask=((h >= 0) & (h < H) & (w >= 0) & (w < W))[:, None] & (channel < C)[None, :],
            other=0.0,
        )
        b = tl.load(
            weight + ((r * S + s) * C + channel)[:, None] * F + filters[None, :],
            mask=(channel < C)[:, None] & (filters < F)[None, :],
            other=0.0,
        )
        acc = tl.dot(a, b, acc)
    at = y + pixel[:, None] * F + filters[None, :]
    tl.store(at, acc.to(tl.float16), mask=(filters < F)[None, :])


@triton.jit
def split_product(
    a, b, c, M, N, K, SPLITS: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    """c += a @ b for a part of K, by atomic additions."""
    i, j = tl.program_id(0) // tl.cdiv(N, BN), tl.program_id(0) % tl.cdiv(N, BN)
    split = tl.program_id(1)
    rows = tl.max_contiguous(tl.multiple_of((i * BM + tl.arange(0, BM)) % M, BM), BM)
    columns = tl.max_contiguous(tl.multiple_of((j * BN + tl.arange(0, BN)) % N, BN), BN)
    depth = split * BK + tl.arange(0, BK)
    pa, pb = a + rows[:, None] * K + depth[None, :], b + depth[:, None] * N + columns[None, :]
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(tl.cdiv(K, BK * SPLITS)):
        left = K - k * BK * SPLITS
        u = tl.load(pa, mask=depth[None, :] < left, other=0.0)
        v = tl.load(pb, mask=depth[:, None] < left, other=0.0)
        acc = tl.dot(u, v, acc)
        pa += BK * SPLITS
        pb += BK * SPLITS * N
    rows, columns = i * BM + tl.arange(0, BM), j * BN + tl.arange(0, BN)
    inside = (rows < M)[:, None] & (columns < N)[None, :]
    at = c + rows[:, None] * N + columns[None, :]
    tl.atomic_add(at, acc.to(c.dtype.element_ty), mask=inside)
