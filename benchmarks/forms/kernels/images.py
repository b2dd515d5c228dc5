"""Images: pixels to tensors and back, boxes, pooling, norms and losses of maps."""

# pyright: reportUnnecessaryComparison=false, reportArgumentType=false, reportIndexIssue=false
# pyright: reportAttributeAccessIssue=false
import tilewright as triton
import tilewright.language as tl


@triton.jit
def normalise_pixels(x, y, mean, std, pixels, n, BLOCK: tl.constexpr):
    """Bytes with channels last to normalised fp16 with channels first."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < n
    image, at = i // pixels, i % pixels
    for c in tl.static_range(3):
        v = tl.load(x + i * 3 + c, mask=inside, other=0).to(tl.float32) / 255.0
        v = (v - tl.load(mean + c)) / tl.load(std + c)
        tl.store(y + (image * 3 + c) * pixels + at, v.to(tl.float16), mask=inside)


@triton.jit
def overlaps(a, b, y, N, M, BN: tl.constexpr, BM: tl.constexpr):
    """Intersection over union of each box of one list with each of another."""
    i = tl.program_id(0) * BN + tl.arange(0, BN)
    j = tl.program_id(1) * BM + tl.arange(0, BM)
    ax0 = tl.load(a + i * 4, mask=i < N, other=0.0)[:, None]
    ay0 = tl.load(a + i * 4 + 1, mask=i < N, other=0.0)[:, None]
    ax1 = tl.load(a + i * 4 + 2, mask=i < N, other=0.0)[:, None]
    ay1 = tl.load(a + i * 4 + 3, mask=i < N, other=0.0)[:, None]
    bx0 = tl.load(b + j * 4, mask=j < M, other=0.0)[None, :]
    by0 = tl.load(b + j * 4 + 1, mask=j < M, other=0.0)[None, :]
    bx1 = tl.load(b + j * 4 + 2, mask=j < M, other=0.0)[None, :]
    by1 = tl.load(b + j * 4 + 3, mask=j < M, other=0.0)[None, :]
    width = tl.maximum(tl.minimum(ax1, bx1) - tl.maximum(ax0, bx0), 0.0)
    height = tl.maximum(tl.minimum(ay1, by1) - tl.maximum(ay0, by0), 0.0)
    common = width * height
    union = (ax1 - ax0) * (ay1 - ay0) + (bx1 - bx0) * (by1 - by0) - common
    inside = (i[:, None] < N) & (j[None, :] < M)
    tl.store(y + i[:, None] * M + j[None, :], common / (union + 1e-7), mask=inside)


@triton.jit
def box_loss(a, b, losses, n, BLOCK: tl.constexpr):
    """Generalised intersection over union of pairs of boxes."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < n
    ax0 = tl.load(a + i * 4, mask=inside, other=0.0)
    ay0 = tl.load(a + i * 4 + 1, mask=inside, other=0.0)
    ax1 = tl.load(a + i * 4 + 2, mask=inside, other=0.0)
    ay1 = tl.load(a + i * 4 + 3, mask=inside, other=0.0)
    bx0 = tl.load(b + i * 4, mask=inside, other=0.0)
    by0 = tl.load(b + i * 4 + 1, mask=inside, other=0.0)
    bx1 = tl.load(b + i * 4 + 2, mask=inside, other=0.0)
    by1 = tl.load(b + i * 4 + 3, mask=inside, other=0.0)
    width = tl.maximum(tl.minimum(ax1, bx1) - tl.maximum(ax0, bx0), 0.0)
    height = tl.maximum(tl.minimum(ay1, by1) - tl.maximum(ay0, by0), 0.0)
    common = width * height
    union = (ax1 - ax0) * (ay1 - ay0) + (bx1 - bx0) * (by1 - by0) - common
    hull = (tl.maximum(ax1, bx1) - tl.minimum(ax0, bx0)) * (
        tl.maximum(ay1, by1) - tl.minimum(ay0, by0)
    )
    ratio = common / (union + 1e-7)
    tl.store(losses + i, 1 - ratio + (hull - union) / (hull + 1e-7), mask=inside)


@triton.jit
def roi_align(
    x, rois, y, H, W, channels, scale, POOL: tl.constexpr, SAMPLES: tl.constexpr, BC: tl.constexpr
):
    """Means of bilinear samples in the cells of boxes; channels are contiguous."""
    roi, cell = tl.program_id(0), tl.program_id(1)
    c = tl.program_id(2) * BC + tl.arange(0, BC)
    inside = c < channels
    image = tl.load(rois + roi * 5).to(tl.int32)
    x0 = tl.load(rois + roi * 5 + 1) * scale - 0.5
    y0 = tl.load(rois + roi * 5 + 2) * scale - 0.5
    step_x = (tl.load(rois + roi * 5 + 3) * scale - 0.5 - x0) / POOL
    step_y = (tl.load(rois + roi * 5 + 4) * scale - 0.5 - y0) / POOL
    row, column = cell // POOL, cell % POOL
    acc = tl.zeros((BC,), dtype=tl.float32)
    for sy in tl.static_range(SAMPLES):
        for sx in tl.static_range(SAMPLES):
            py = y0 + (row + (sy + 0.5) / SAMPLES) * step_y
            px = x0 + (column + (sx + 0.5) / SAMPLES) * step_x
            py = tl.minimum(tl.maximum(py, 0.0), H - 1.0)
            px = tl.minimum(tl.maximum(px, 0.0), W - 1.0)
            top, left = py.to(tl.int32), px.to(tl.int32)
            bottom, right = tl.minimum(top + 1, H - 1), tl.minimum(left + 1, W - 1)
            wy, wx = py - top, px - left
            base = x + image * H * W * channels
            a = tl.load(base + (top * W + left) * channels + c, mask=inside, other=0.0)
            b = tl.load(base + (top * W + right) * channels + c, mask=inside, other=0.0)
            d = tl.load(base + (bottom * W + left) * channels + c, mask=inside, other=0.0)
            e = tl.load(base + (bottom * W + right) * channels + c, mask=inside, other=0.0)
            acc += (1 - wy) * (1 - wx) * a + (1 - wy) * wx * b + wy * (1 - wx) * d + wy * wx * e
    at = (roi * POOL * POOL + cell) * channels + c
    tl.store(y + at, (acc / (SAMPLES * SAMPLES)).to(tl.float16), mask=inside)


@triton.jit
def shuffle_pixels(x, y, C, H, W, n, R: tl.constexpr, BLOCK: tl.constexpr):
    """Channels in groups of R * R become pixels of an image that is R times as large."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < n
    column, rest = i % (W * R), i // (W * R)
    row, rest = rest % (H * R), rest // (H * R)
    c, image = rest % C, rest // C
    channel = (c * R + row % R) * R + column % R
    at = ((image * C * R * R + channel) * H + row // R) * W + column // R
    tl.store(y + i, tl.load(x + at, mask=inside), mask=inside)


@triton.jit
def instance_norm(x, weight, bias, y, pixels, channels, eps, BLOCK: tl.constexpr):
    """Norm of each map of each image."""
    plane = tl.program_id(0)
    c = plane % channels
    x += plane * pixels
    y += plane * pixels
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    squares = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, pixels, BLOCK):
        at = start + tl.arange(0, BLOCK)
        v = tl.load(x + at, mask=at < pixels, other=0.0).to(tl.float32)
        total += v
        squares += v * v
    mean = tl.sum(total, axis=0) / pixels
    rstd = tl.rsqrt(tl.sum(squares, axis=0) / pixels - mean * mean + eps)
    w, b = tl.load(weight + c), tl.load(bias + c)
    for start in range(0, pixels, BLOCK):
        at = start + tl.arange(0, BLOCK)
        v = tl.load(x + at, mask=at < pixels, other=0.0).to(tl.float32)
        tl.store(y + at, ((v - mean) * rstd * w + b).to(tl.float16), mask=at < pixels)


@triton.jit
def batch_norm_sums(x, dy, mean, rstd, dw, db, rows, C, BR: tl.constexpr, BC: tl.constexpr):
    """Sums of the gradient and of its products with the normalised input, channels last."""
    c = tl.program_id(1) * BC + tl.arange(0, BC)
    m = tl.load(mean + c, mask=c < C, other=0.0)
    r = tl.load(rstd + c, mask=c < C, other=0.0)
    total = tl.zeros((BC,), dtype=tl.float32)
    product = tl.zeros((BC,), dtype=tl.float32)
    for start in range(tl.program_id(0) * BR, rows, tl.num_programs(0) * BR):
        i = start + tl.arange(0, BR)
        at = i[:, None] * C + c[None, :]
        inside = (i[:, None] < rows) & (c[None, :] < C)
        g = tl.load(dy + at, mask=inside, other=0.0).to(tl.float32)
        v = tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
        total += tl.sum(g, axis=0)
        product += tl.sum(g * (v - m[None, :]) * r[None, :], axis=0)
    tl.atomic_add(db + c, total, mask=c < C)
    tl.atomic_add(dw + c, product, mask=c < C)


@triton.jit
def mean_pool(x, y, H, W, OH, OW, n, BLOCK: tl.constexpr):
    """Means of 3x3 pixels in steps of 2, without those outside the image."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < n
    column, row, plane = i % OW, i // OW % OH, i // (OW * OH)
    acc = tl.zeros((BLOCK,), dtype=tl.float32)
    count = tl.zeros((BLOCK,), dtype=tl.float32)
    for dy in tl.static_range(3):
        for dx in tl.static_range(3):
            r, c = row * 2 + dy - 1, column * 2 + dx - 1
            found = inside & (r >= 0) & (r < H) & (c >= 0) & (c < W)
            acc += tl.load(x + (plane * H + r) * W + c, mask=found, other=0.0).to(tl.float32)
            count += found.to(tl.float32)
    tl.store(y + i, (acc / count).to(tl.float16), mask=inside)


@triton.jit
def softmax_of_channels(x, y, pixels, C: tl.constexpr, BC: tl.constexpr, BLOCK: tl.constexpr):
    """Softmax over the channels of each pixel, channels first."""
    image = tl.program_id(1)
    p = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    c = tl.arange(0, BC)
    at = (image * C + c[:, None]) * pixels + p[None, :]
    inside = (c[:, None] < C) & (p[None, :] < pixels)
    v = tl.load(x + at, mask=inside, other=-float("inf")).to(tl.float32)
    e = tl.exp(v - tl.max(v, axis=0)[None, :])
    tl.store(y + at, (e / tl.sum(e, axis=0)[None, :]).to(tl.float16), mask=inside)


@triton.jit
def focal_loss(x, target, losses, n, alpha, BLOCK: tl.constexpr):
    """Cross-entropy of probabilities of their own, weighted by how wrong they are."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < n
    v = tl.load(x + i, mask=inside, other=0.0).to(tl.float32)
    t = tl.load(target + i, mask=inside, other=0.0).to(tl.float32)
    p = tl.sigmoid(v)
    entropy = tl.maximum(v, 0.0) - v * t + tl.log(1 + tl.exp(-tl.abs(v)))
    apart = p * (1 - t) + (1 - p) * t
    loss = entropy * apart * apart * (alpha * t + (1 - alpha) * (1 - t))
    tl.store(losses + i, loss, mask=inside)


@triton.jit
def pixels_to_channels(x, y, n, channels, height, width, FACTOR, BLOCK: tl.constexpr):
    """Blocks of FACTOR x FACTOR pixels become channels; remainders are written as differences."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    plane, image = height * width, channels * height * width
    i = at // image
    rest = at - i * image
    c = rest // plane
    rest = rest - c * plane
    row = rest // width
    column = rest - row * width
    source = c // (FACTOR * FACTOR)
    place = c - source * (FACTOR * FACTOR)
    down = place // FACTOR
    right = place - down * FACTOR
    line = source * height * FACTOR + row * FACTOR + down
    pixel = i * image + line * width * FACTOR + column * FACTOR + right
    tl.store(y + at, tl.load(x + pixel, mask=at < n), mask=at < n)


@triton.jit
def loss_of_places(x, labels, losses, classes, places, BC: tl.constexpr, BP: tl.constexpr):
    """Cross-entropy of the classes of some places: each has a running maximum and sum per lane."""
    i = tl.program_id(1).to(tl.int64)
    place = tl.program_id(0).to(tl.int64) * BP + tl.arange(0, BP)
    exists = place < places
    x += i * classes * places
    top = tl.full((BC, BP), -float("inf"), tl.float32)
    total = tl.zeros((BC, BP), tl.float32)
    for start in range(0, classes, BC):
        c = start + tl.arange(0, BC)
        inside = (c < classes)[:, None] & exists[None, :]
        v = tl.load(x + c[:, None] * places + place[None, :], mask=inside, other=-65504.0)
        higher = tl.maximum(top, v.to(tl.float32))
        total = total * tl.exp(top - higher) + tl.exp(v.to(tl.float32) - higher)
        top = higher
    most = tl.max(top, axis=0)
    total = tl.sum(total * tl.exp(top - most[None, :]), axis=0)
    label = tl.load(labels + i * places + place, mask=exists, other=0)
    chosen = tl.load(x + label * places + place, mask=exists, other=0.0).to(tl.float32)
    tl.store(losses + i * places + place, tl.log(total) + most - chosen, mask=exists)
