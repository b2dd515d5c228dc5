"""Kernels in the form that graph compilers generate: flat indices with quotients and remainders,
masks that are mostly true, and loops over blocks of the reduced axis."""

# pyright: reportUnnecessaryComparison=false, reportArgumentType=false, reportIndexIssue=false
# pyright: reportConstantRedefinition=false
import tilewright as triton
import tilewright.language as tl


@triton.jit
def add_relu_of_two_layouts(
    x, scale, shift, residual, out, rows, columns, YBLOCK: tl.constexpr, XBLOCK: tl.constexpr
):
    """relu(x * scale + shift + residual): x with its channels last, all else with them first."""
    channels = 64
    y = (tl.program_id(1) * YBLOCK + tl.arange(0, YBLOCK))[None, :]
    ymask = y < rows
    at = (tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK))[:, None]
    xmask = at < columns
    channel, image = y % channels, y // channels
    value = tl.load(
        x + (channel + channels * at + channels * columns * image),
        xmask & ymask,
        eviction_policy="evict_last",
    ).to(tl.float32)
    factor = tl.load(scale + channel, ymask, eviction_policy="evict_last")
    term = tl.load(shift + channel, ymask, eviction_policy="evict_last")
    other = tl.load(residual + (at + columns * y), xmask & ymask, eviction_policy="evict_last")
    total = value * factor + term + other.to(tl.float32)
    zero = tl.full([1, 1], 0, tl.int32)
    tl.store(out + (at + columns * y), triton.language.maximum(zero, total), xmask & ymask)


@triton.jit
def normalise_channels(x, mean, variance, weight, bias, out, n, XBLOCK: tl.constexpr):
    """Batch norm in inference and ReLU, on a flat index: the channel is a quotient's remainder."""
    at = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:]
    mask = at < n
    channel = (at // 3136) % 256
    value = tl.load(x + at, mask).to(tl.float32)
    centred = value - tl.load(mean + channel, mask, eviction_policy="evict_last")
    spread = tl.load(variance + channel, mask, eviction_policy="evict_last") + 1e-5
    scaled = centred * (1.0 / tl.sqrt_rn(spread))
    result = scaled * tl.load(weight + channel, mask, eviction_policy="evict_last")
    result = result + tl.load(bias + channel, mask, eviction_policy="evict_last")
    tl.store(out + at, tl.maximum(tl.full([1], 0, tl.int32), result), mask)


@triton.jit
def statistics_of_channels_last(
    x, sums, squares, xnumel, rnumel, XBLOCK: tl.constexpr, R0_BLOCK: tl.constexpr
):
    """Sums and sums of squares of the channels, of a part of the pixels each: the reduced axis is
    not the contiguous one."""
    channels = 256
    at = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:, None]
    mask = at < xnumel
    channel, part = at % channels, at // channels
    base = tl.arange(0, R0_BLOCK)[None, :]
    total = tl.full([XBLOCK, R0_BLOCK], 0, tl.float32)
    square = tl.full([XBLOCK, R0_BLOCK], 0, tl.float32)
    for offset in range(0, rnumel, R0_BLOCK):
        r = offset + base
        rmask = r < rnumel
        value = tl.load(
            x + (channel + channels * r + channels * rnumel * part),
            rmask & mask,
            eviction_policy="evict_first",
            other=0.0,
        ).to(tl.float32)
        total = tl.where(rmask & mask, total + value, total)
        square = tl.where(rmask & mask, square + value * value, square)
    tl.store(sums + at, tl.sum(total, 1)[:, None], mask)
    tl.store(squares + at, tl.sum(square, 1)[:, None], mask)


@triton.jit
def layer_norm_persistent(
    inout, residual, weight, bias, out, xnumel, XBLOCK: tl.constexpr, R0_BLOCK: tl.constexpr
):
    """A residual added in place, and its layer norm: a row is one block, mean and variance are
    found one after the other."""
    rnumel = 768
    at = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:, None]
    mask = at < xnumel
    r = tl.arange(0, R0_BLOCK)[None, :]
    rmask = r < rnumel
    first = tl.load(inout + (r + rnumel * at), rmask & mask, other=0.0).to(tl.float32)
    second = tl.load(residual + (r + rnumel * at), rmask & mask, other=0.0).to(tl.float32)
    total = first + second
    kept = tl.where(rmask & mask, tl.broadcast_to(total, [XBLOCK, R0_BLOCK]), 0)
    mean = tl.sum(kept, 1)[:, None].to(tl.float32) / tl.full([1, 1], rnumel, tl.float32)
    centred = total - mean
    squares = tl.where(rmask & mask, tl.broadcast_to(centred * centred, [XBLOCK, R0_BLOCK]), 0)
    deviation = tl.sum(squares, 1)[:, None].to(tl.float32) / rnumel
    factor = tl.rsqrt(deviation + 1e-5)
    gain = tl.load(weight + r, rmask, eviction_policy="evict_last", other=0.0).to(tl.float32)
    shift = tl.load(bias + r, rmask, eviction_policy="evict_last", other=0.0).to(tl.float32)
    tl.store(inout + (r + rnumel * at), total, rmask & mask)
    tl.store(out + (r + rnumel * at), centred * factor * gain + shift, rmask & mask)


@triton.jit
def log_softmax_looped(x, out, xnumel, rnumel, XBLOCK: tl.constexpr, R0_BLOCK: tl.constexpr):
    """Log-softmax of rows: the maximum, the sum and the result are three loops."""
    at = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:, None]
    mask = at < xnumel
    base = tl.arange(0, R0_BLOCK)[None, :]
    most = tl.full([XBLOCK, R0_BLOCK], float("-inf"), tl.float32)
    for offset in range(0, rnumel, R0_BLOCK):
        r = offset + base
        rmask = r < rnumel
        value = tl.load(
            x + (r + rnumel * at), rmask & mask, eviction_policy="evict_last", other=0.0
        ).to(tl.float32)
        most = tl.where(rmask & mask, tl.maximum(most, value), most)
    top = tl.max(most, 1)[:, None]
    total = tl.full([XBLOCK, R0_BLOCK], 0, tl.float32)
    for offset in range(0, rnumel, R0_BLOCK):
        r = offset + base
        rmask = r < rnumel
        value = tl.load(
            x + (r + rnumel * at), rmask & mask, eviction_policy="evict_last", other=0.0
        ).to(tl.float32)
        total = tl.where(rmask & mask, total + tl.exp(value - top), total)
    logarithm = tl.log(tl.sum(total, 1)[:, None])
    for offset in range(0, rnumel, R0_BLOCK):
        r = offset + base
        rmask = r < rnumel
        value = tl.load(
            x + (r + rnumel * at), rmask & mask, eviction_policy="evict_first", other=0.0
        ).to(tl.float32)
        tl.store(out + (r + rnumel * at), value - top - logarithm, rmask & mask)


@triton.jit
def softmax_gradient_looped(
    dy, y, out, xnumel, rnumel, XBLOCK: tl.constexpr, R0_BLOCK: tl.constexpr
):
    """The gradient of log-softmax: dy - exp(y) * sum(dy)."""
    at = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:, None]
    mask = at < xnumel
    base = tl.arange(0, R0_BLOCK)[None, :]
    total = tl.full([XBLOCK, R0_BLOCK], 0, tl.float32)
    for offset in range(0, rnumel, R0_BLOCK):
        r = offset + base
        rmask = r < rnumel
        value = tl.load(
            dy + (r + rnumel * at), rmask & mask, eviction_policy="evict_last", other=0.0
        ).to(tl.float32)
        total = tl.where(rmask & mask, total + value, total)
    whole = tl.sum(total, 1)[:, None]
    for offset in range(0, rnumel, R0_BLOCK):
        r = offset + base
        rmask = r < rnumel
        of = r + rnumel * at
        value = tl.load(dy + of, rmask & mask, eviction_policy="evict_first", other=0.0)
        result = tl.load(y + of, rmask & mask, eviction_policy="evict_first", other=0.0)
        share = tl.exp(result.to(tl.float32)) * whole
        tl.store(out + of, value.to(tl.float32) - share, rmask & mask)


@triton.jit
def gelu_by_erf(x, out, n, XBLOCK: tl.constexpr):
    at = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:]
    mask = at < n
    value = tl.load(x + at, mask).to(tl.float32)
    half = value * tl.full([1], 0.5, tl.float32)
    scaled = value * tl.full([1], 0.7071067811865476, tl.float32)
    tl.store(out + at, half * (tl.erf(scaled) + 1.0), mask)


@triton.jit
def gather_rows(indices, table, out, n, ROWS: tl.constexpr, XBLOCK: tl.constexpr):
    """Rows of a table by an index, which may be negative, on a flat index."""
    at = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:]
    mask = at < n
    row, column = at // 768, at % 768
    index = tl.load(indices + row, mask, eviction_policy="evict_last")
    index = tl.where(index < 0, index + tl.full([XBLOCK], ROWS, tl.int32), index)
    tl.device_assert(((index >= 0) & (index < ROWS)) | ~mask, "index out of bounds")
    tl.store(out + at, tl.load(table + (column + 768 * index), mask), mask)


@triton.jit
def concatenated(a, b, c, out, n, XBLOCK: tl.constexpr):
    """Three matrices side by side: each load has the mask of its columns."""
    at = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:]
    mask = at < n
    column, row = at % 1536, at // 1536
    in_a = column < 512
    first = tl.load(a + (512 * row + column), in_a & mask, eviction_policy="evict_last", other=0.0)
    in_b = (column >= 512) & (column < 1024)
    second = tl.load(
        b + (512 * row + (column - 512)), in_b & mask, eviction_policy="evict_last", other=0.0
    )
    in_c = column >= 1024
    third = tl.load(
        c + (512 * row + (column - 1024)), in_c & mask, eviction_policy="evict_last", other=0.0
    )
    value = tl.where(in_b, second, third)
    tl.store(out + at, tl.where(in_a, first, value), mask)


@triton.jit
def greatest_of_windows(x, out, place, n, XBLOCK: tl.constexpr):
    """Max pooling of 2x2 with places, channels last."""
    at = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:]
    mask = at < n
    channel, column, row = at % 64, (at // 64) % 56, at // 3584
    corner = channel + 128 * column + 14336 * row
    a = tl.load(x + corner, mask)
    b = tl.load(x + (64 + corner), mask)
    c = tl.load(x + (7168 + corner), mask)
    d = tl.load(x + (7232 + corner), mask)
    top = tl.maximum(b, a)
    of_top = tl.where(b > a, tl.full([1], 1, tl.int8), tl.full([1], 0, tl.int8))
    third = tl.maximum(c, top)
    of_third = tl.where(c > top, tl.full([1], 2, tl.int8), of_top)
    fourth = tl.maximum(d, third)
    of_fourth = tl.where(d > third, tl.full([1], 3, tl.int8), of_third)
    tl.store(out + at, fourth, mask)
    tl.store(place + at, of_fourth, mask)


@triton.jit
def random_dropout(seed, x, out, n, XBLOCK: tl.constexpr):
    """Dropout by a stored seed, scaled."""
    at = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:]
    mask = at < n
    kept = tl.rand(tl.load(seed), at.to(tl.uint32)) > 0.1
    value = tl.load(x + at, mask).to(tl.float32)
    tl.store(out + at, kept.to(tl.float32) * value * 1.1111111111111112, mask)
