"""Kernels of the first milestone: one tile for each row or block, no loops."""

GELU = """
def kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n, other=0.0)
    y = 0.5 * x * (1 + tl.erf(x * 0.7071067811865476))
    tl.store(y_ptr + at, y, mask=at < n)
"""
SWIGLU = """
def kernel(a_ptr, b_ptr, y_ptr, n, stride, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    a = tl.load(a_ptr + row * stride + at, mask=at < n, other=0.0)
    b = tl.load(b_ptr + row * stride + at, mask=at < n, other=0.0)
    tl.store(y_ptr + row * stride + at, a * tl.sigmoid(a) * b, mask=at < n)
"""
SOFTMAX = """
def kernel(x_ptr, y_ptr, n, stride, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * stride + at, mask=at < n, other=-float("inf"))
    e = tl.exp(x - tl.max(x, 0))
    tl.store(y_ptr + row * stride + at, e / tl.sum(e, 0), mask=at < n)
"""
DROPOUT = """
def kernel(x_ptr, y_ptr, n, seed, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n)
    keep = tl.rand(seed, at) > 0.25
    tl.store(y_ptr + at, tl.where(keep, x / 0.75, 0.0), mask=at < n)
"""
ROPE = """
def kernel(x_ptr, angle_ptr, y_ptr, heads, HALF: tl.constexpr):
    program = tl.program_id(0)
    at = tl.arange(0, HALF)
    angle = tl.load(angle_ptr + program // heads * HALF + at)
    first = tl.load(x_ptr + program * (2 * HALF) + at)
    second = tl.load(x_ptr + program * (2 * HALF) + HALF + at)
    cos, sin = tl.cos(angle), tl.sin(angle)
    tl.store(y_ptr + program * (2 * HALF) + at, first * cos - second * sin)
    tl.store(y_ptr + program * (2 * HALF) + HALF + at, second * cos + first * sin)
"""
BOXES = """
def kernel(a_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    left = tl.load(a_ptr + at * 4, mask=inside, other=0.0)
    top = tl.load(a_ptr + at * 4 + 1, mask=inside, other=0.0)
    right = tl.load(a_ptr + at * 4 + 2, mask=inside, other=0.0)
    bottom = tl.load(a_ptr + at * 4 + 3, mask=inside, other=0.0)
    tl.store(y_ptr + at, tl.maximum(right - left, 0.0) * (bottom - top), mask=inside)
"""
ROW_SUMS = """
def kernel(x_ptr, w_ptr, y_ptr, n, stride, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    total = tl.zeros([BLOCK], tl.float64)
    for start in range(0, n, BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * stride + at, mask=at < n, other=0.0)
        w = tl.load(w_ptr + at, mask=at < n, other=0.0)
        total += x * x * w
    tl.store(y_ptr + row, tl.sqrt(tl.sum(total, 0)))
"""
EARLY_RETURN = """
def kernel(x_ptr, y_ptr, n, stop, BLOCK: tl.constexpr):
    program = tl.program_id(0)
    at = program * BLOCK + tl.arange(0, BLOCK)
    if program >= stop:
        return
    x = tl.load(x_ptr + at, mask=at < n)
    if program % 2 == 0:
        x = x * x
    else:
        x = tl.sin(x)
        x = x * 3.0
    tl.store(y_ptr + at, x, mask=at < n)
"""
LAYER_NORM = """
def kernel(x_ptr, w_ptr, b_ptr, y_ptr, n, stride, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    inside = at < n
    x = tl.load(x_ptr + row * stride + at, mask=inside, other=0.0)
    mean = tl.sum(x, 0) / n
    centred = tl.where(inside, x - mean, 0.0)
    scale = tl.rsqrt(tl.sum(centred * centred, 0) / n + 1e-5)
    w = tl.load(w_ptr + at, mask=inside)
    b = tl.load(b_ptr + at, mask=inside)
    tl.store(y_ptr + row * stride + at, centred * scale * w + b, mask=inside)
"""
RMS_NORM = """
def kernel(x_ptr, w_ptr, y_ptr, n, stride, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * stride + at, mask=at < n, other=0.0)
    w = tl.load(w_ptr + at, mask=at < n, other=0.0)
    y = x * tl.rsqrt(tl.sum(x * x, 0) / n + 1e-5) * w
    tl.store(y_ptr + row * stride + at, y, mask=at < n)
"""
GROUP_NORM = """
def kernel(x_ptr, w_ptr, b_ptr, y_ptr, size, C: tl.constexpr, BLOCK: tl.constexpr):
    group, image = tl.program_id(0), tl.program_id(1)
    groups = tl.num_programs(0)
    channel = group * C + tl.arange(0, C)
    at = tl.arange(0, BLOCK)
    inside = (at < size)[None, :] & (channel < groups * C)[:, None]
    place = (image * groups * C + channel)[:, None] * size + at[None, :]
    x = tl.load(x_ptr + place, mask=inside, other=0.0)
    mean = tl.sum(x) / (C * size)
    centred = tl.where(inside, x - mean, 0.0)
    scale = tl.rsqrt(tl.sum(centred * centred) / (C * size) + 1e-5)
    w, b = tl.load(w_ptr + channel), tl.load(b_ptr + channel)
    tl.store(y_ptr + place, centred * scale * w[:, None] + b[:, None], mask=inside)
"""
LOOPED_LAYER_NORM = """
def kernel(x_ptr, w_ptr, b_ptr, y_ptr, n, stride, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    total = tl.zeros([BLOCK], tl.float64)
    for start in range(0, n, BLOCK):
        at = start + tl.arange(0, BLOCK)
        total += tl.load(x_ptr + row * stride + at, mask=at < n, other=0.0)
    mean = tl.sum(total, 0) / n
    squares = tl.zeros([BLOCK], tl.float64)
    for start in range(0, n, BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * stride + at, mask=at < n, other=0.0)
        centred = tl.where(at < n, x - mean, 0.0)
        squares += centred * centred
    scale = tl.rsqrt(tl.sum(squares, 0) / n + 1e-5)
    for start in range(0, n, BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * stride + at, mask=at < n)
        w = tl.load(w_ptr + at, mask=at < n)
        b = tl.load(b_ptr + at, mask=at < n)
        tl.store(y_ptr + row * stride + at, (x - mean) * scale * w + b, mask=at < n)
"""
