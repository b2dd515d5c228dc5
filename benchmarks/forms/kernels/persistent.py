"""Softmax and products whose programs loop over tiles, and products through tensor descriptors."""

# pyright: reportUnnecessaryComparison=false, reportArgumentType=false, reportIndexIssue=false
# pyright: reportAttributeAccessIssue=false, reportUnusedImport=false
import tilewright as triton
import tilewright.language as tl
import tilewright.tools.tensor_descriptor as descriptors  # noqa: F401 (launches take it from here)


@triton.jit
def softmax_of_rows(
    x, y, stride_x, stride_y, rows, columns, BLOCK: tl.constexpr, STAGES: tl.constexpr
):
    """Each program takes every num_programs-th row, and loads ahead of what it computes."""
    at = tl.arange(0, BLOCK)
    for row in tl.range(tl.program_id(0), rows, tl.num_programs(0), num_stages=STAGES):
        inside = at < columns
        v = tl.load(x + row * stride_x + at, mask=inside, other=-float("inf"))
        e = tl.exp(v - tl.max(v, axis=0))
        tl.store(y + row * stride_y + at, e / tl.sum(e, axis=0), mask=inside)


@triton.jit
def in_groups(tile, blocks_m, blocks_n, GROUP: tl.constexpr):
    """The row and column of a tile, in groups of rows."""
    group = tile // (GROUP * blocks_n)
    first = group * GROUP
    size = tl.minimum(blocks_m - first, GROUP)
    return first + tile % size, (tile % (GROUP * blocks_n)) // size


@triton.jit
def leaky(x):
    return tl.where(x >= 0, x, 0.01 * x)


@triton.jit
def grouped(
    a, b, c, M, N, K, sam, sak, sbk, sbn, scm, scn,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr, LEAKY: tl.constexpr,
):  # fmt: skip
    """A product through pointers; indices of rows and columns wrap around."""
    tile = tl.program_id(0)
    i, j = in_groups(tile, tl.cdiv(M, BM), tl.cdiv(N, BN), GROUP)
    tl.assume(i >= 0)
    tl.assume(j >= 0)
    tl.assume(sam > 0)
    tl.assume(sbk > 0)
    rows, columns = (i * BM + tl.arange(0, BM)) % M, (j * BN + tl.arange(0, BN)) % N
    depth = tl.arange(0, BK)
    pa = a + rows[:, None] * sam + depth[None, :] * sak
    pb = b + depth[:, None] * sbk + columns[None, :] * sbn
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(tl.cdiv(K, BK)):
        u = tl.load(pa, mask=depth[None, :] < K - k * BK, other=0.0)
        v = tl.load(pb, mask=depth[:, None] < K - k * BK, other=0.0)
        acc = tl.dot(u, v, acc)
        pa += BK * sak
        pb += BK * sbk
    if LEAKY:
        acc = leaky(acc)
    rows, columns = i * BM + tl.arange(0, BM), j * BN + tl.arange(0, BN)
    at = c + scm * rows[:, None] + scn * columns[None, :]
    inside = (rows[:, None] < M) & (columns[None, :] < N)
    tl.store(at, acc.to(tl.float16), mask=inside)


@triton.jit
def looping(
    a, b, c, M, N, K, sam, sak, sbk, sbn, scm, scn,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    """`grouped`, with programs that loop over tiles; the result's tile is found once more."""
    blocks_m, blocks_n, steps = tl.cdiv(M, BM), tl.cdiv(N, BN), tl.cdiv(K, BK)
    tiles, first = blocks_m * blocks_n, tl.program_id(0)
    later = first - tl.num_programs(0)
    depth = tl.arange(0, BK)
    for tile in tl.range(first, tiles, tl.num_programs(0), flatten=True):
        i, j = in_groups(tile, blocks_m, blocks_n, GROUP)
        rows, columns = i * BM + tl.arange(0, BM), j * BN + tl.arange(0, BN)
        rows, columns = tl.where(rows < M, rows, 0), tl.where(columns < N, columns, 0)
        rows = tl.max_contiguous(tl.multiple_of(rows, BM), BM)
        columns = tl.max_contiguous(tl.multiple_of(columns, BN), BN)
        acc = tl.zeros((BM, BN), dtype=tl.float32)
        for step in range(steps):
            k = step * BK + depth
            pa = a + (rows[:, None] * sam + k[None, :] * sak)
            pb = b + (k[:, None] * sbk + columns[None, :] * sbn)
            u = tl.load(pa, mask=depth[None, :] < K - step * BK, other=0.0)
            v = tl.load(pb, mask=depth[:, None] < K - step * BK, other=0.0)
            acc = tl.dot(u, v, acc)
        later += tl.num_programs(0)
        i, j = in_groups(later, blocks_m, blocks_n, GROUP)
        rows, columns = i * BM + tl.arange(0, BM), j * BN + tl.arange(0, BN)
        at = c + scm * rows[:, None] + scn * columns[None, :]
        inside = (rows[:, None] < M) & (columns[None, :] < N)
        tl.store(at, acc.to(c.dtype.element_ty), mask=inside)


@triton.jit
def by_descriptors(
    a, b, c, M, N, K,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    """A product through descriptors that the host made; b is stored along K."""
    i, j = in_groups(tl.program_id(0), tl.cdiv(M, BM), tl.cdiv(N, BN), GROUP)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in tl.range(tl.cdiv(K, BK), warp_specialize=False):
        u = a.load([i * BM, k * BK])
        v = b.load([j * BN, k * BK])
        acc = tl.dot(u, v.T, acc)
    c.store([i * BM, j * BN], acc.to(c.dtype))


@triton.jit
def store_tile(c, i, j, acc, BM: tl.constexpr, BN: tl.constexpr, HALVES: tl.constexpr):
    """Stores a result, in halves if the descriptor has half the width."""
    if HALVES:
        pair = tl.permute(tl.reshape(acc, (BM, 2, BN // 2)), (0, 2, 1))
        left, right = tl.split(pair)
        c.store([i * BM, j * BN], left.to(c.dtype))
        c.store([i * BM, j * BN + BN // 2], right.to(c.dtype))
    else:
        c.store([i * BM, j * BN], acc.to(c.dtype))


@triton.jit
def looping_by_descriptors(
    a, b, c, M, N, K,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr,
    HALVES: tl.constexpr,
):  # fmt: skip
    """`by_descriptors`, with programs that loop over tiles."""
    blocks_m, blocks_n, steps = tl.cdiv(M, BM), tl.cdiv(N, BN), tl.cdiv(K, BK)
    first, tiles = tl.program_id(0), blocks_m * blocks_n
    later = first - tl.num_programs(0)
    for tile in tl.range(first, tiles, tl.num_programs(0), flatten=True, warp_specialize=False):
        i, j = in_groups(tile, blocks_m, blocks_n, GROUP)
        acc = tl.zeros((BM, BN), dtype=tl.float32)
        for step in range(steps):
            u = a.load([i * BM, step * BK])
            v = b.load([j * BN, step * BK])
            acc = tl.dot(u, v.T, acc)
        later += tl.num_programs(0)
        i, j = in_groups(later, blocks_m, blocks_n, GROUP)
        store_tile(c, i, j, acc, BM, BN, HALVES)


@triton.jit
def looping_by_own_descriptors(
    a, b, c, M, N, K,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr,
    HALVES: tl.constexpr,
):  # fmt: skip
    """`looping_by_descriptors`, where each program makes the descriptors."""
    width: tl.constexpr = BN // 2 if HALVES else BN
    ds = tl.make_tensor_descriptor(a, shape=[M, K], strides=[K, 1], block_shape=[BM, BK])
    es = tl.make_tensor_descriptor(b, shape=[N, K], strides=[K, 1], block_shape=[BN, BK])
    fs = tl.make_tensor_descriptor(c, shape=[M, N], strides=[N, 1], block_shape=[BM, width])
    blocks_m, blocks_n, steps = tl.cdiv(M, BM), tl.cdiv(N, BN), tl.cdiv(K, BK)
    for tile in tl.range(tl.program_id(0), blocks_m * blocks_n, tl.num_programs(0), flatten=True):
        i, j = in_groups(tile, blocks_m, blocks_n, GROUP)
        acc = tl.zeros((BM, BN), dtype=tl.float32)
        for step in range(steps):
            u = ds.load([i * BM, step * BK])
            v = es.load([j * BN, step * BK])
            acc = tl.dot(u, v.T, acc)
        store_tile(fs, i, j, acc, BM, BN, HALVES)


@triton.jit
def of_groups(
    addresses_a, addresses_b, addresses_c, sizes, strides, groups,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """Products of different sizes in one launch: programs loop over the tiles of all of them."""
    tile, before = tl.program_id(0), 0
    for g in range(groups):
        m, n = tl.load(sizes + g * 3), tl.load(sizes + g * 3 + 1)
        k = tl.load(sizes + g * 3 + 2)
        blocks_n = tl.cdiv(n, BN)
        tiles = tl.cdiv(m, BM) * blocks_n
        while tile >= before and tile < before + tiles:
            sa, sb = tl.load(strides + g * 3), tl.load(strides + g * 3 + 1)
            sc = tl.load(strides + g * 3 + 2)
            a = tl.load(addresses_a + g).to(tl.pointer_type(tl.float16))
            b = tl.load(addresses_b + g).to(tl.pointer_type(tl.float16))
            c = tl.load(addresses_c + g).to(tl.pointer_type(tl.float16))
            i, j = (tile - before) // blocks_n, (tile - before) % blocks_n
            rows, columns = i * BM + tl.arange(0, BM), j * BN + tl.arange(0, BN)
            depth = tl.arange(0, BK)
            pa = a + rows[:, None] * sa + depth[None, :]
            pb = b + depth[:, None] * sb + columns[None, :]
            acc = tl.zeros((BM, BN), dtype=tl.float32)
            for _ in range(tl.cdiv(k, BK)):
                tl.multiple_of(pa, [16, 16])
                tl.multiple_of(pb, [16, 16])
                acc += tl.dot(tl.load(pa), tl.load(pb))
                pa += BK
                pb += BK * sb
            tl.store(c + rows[:, None] * sc + columns[None, :], acc.to(tl.float16))
            tile += tl.num_programs(0)
        before += tiles
