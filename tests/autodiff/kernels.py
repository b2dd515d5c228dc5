"""Kernels to differentiate: elementwise, rows in a tile or in loops, attention."""

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
ONLINE_SOFTMAX = """
def kernel(x_ptr, y_ptr, n, stride, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    m = tl.full([], -float("inf"), tl.float64)
    total = tl.full([], 0.0, tl.float64)
    for start in range(0, n, BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * stride + at, mask=at < n, other=-float("inf"))
        largest = tl.maximum(m, tl.max(x, 0))
        total = total * tl.exp(m - largest) + tl.sum(tl.exp(x - largest), 0)
        m = largest
    for start in range(0, n, BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * stride + at, mask=at < n)
        tl.store(y_ptr + row * stride + at, tl.exp(x - m) / total, mask=at < n)
"""
LOG_SUM_EXP = """
def kernel(x_ptr, y_ptr, n, stride, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    m = tl.full([BLOCK], -float("inf"), tl.float64)
    total = tl.zeros([BLOCK], tl.float64)
    for start in range(0, n, BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * stride + at, mask=at < n, other=-1e9)
        largest = tl.maximum(m, x * 1.4426950408889634)
        total = tl.exp2(m - largest) * total + tl.exp2(x * 1.4426950408889634 - largest)
        m = largest
    peak = tl.max(m, 0)
    total = tl.sum(total * tl.exp2(m - peak), 0)
    tl.store(y_ptr + row, (peak + tl.log2(total)) * 0.6931471805599453)
"""
CROSS_ENTROPY = """
def kernel(x_ptr, label_ptr, y_ptr, n, stride, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    label = tl.load(label_ptr + row)
    m = tl.full([], -float("inf"), tl.float64)
    total = tl.full([], 0.0, tl.float64)
    for start in range(0, n, BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * stride + at, mask=at < n, other=-float("inf"))
        largest = tl.maximum(m, tl.max(x, 0))
        total = total * tl.exp(m - largest) + tl.sum(tl.exp(x - largest), 0)
        m = largest
    correct = tl.load(x_ptr + row * stride + label)
    tl.store(y_ptr + row, m + tl.log(total) - correct)
"""
_ATTENTION = """
@jit
def attend(q, k_ptr, v_ptr, base, rows, n, m, total, acc, low, high,
           N: tl.constexpr, D: tl.constexpr, CAUSAL: tl.constexpr):
    dims = tl.arange(0, D)
    for start in range(low, high, N):
        columns = start + tl.arange(0, N)
        inside = columns[:, None] < n
        place = base + columns[:, None] * D + dims[None, :]
        k = tl.load(k_ptr + place, mask=inside, other=0.0)
        v = tl.load(v_ptr + place, mask=inside, other=0.0)
        s = tl.dot(q, tl.trans(k)) * 0.3
        keep = columns[None, :] < n
        if CAUSAL:
            keep = keep & (columns[None, :] <= rows[:, None])
        s = tl.where(keep, s, -float("inf"))
        largest = tl.maximum(m, tl.max(s, 1))
        p = tl.exp(s - largest[:, None])
        alpha = tl.exp(m - largest)
        total = total * alpha + tl.sum(p, 1)
        acc = tl.dot(p, v, acc * alpha[:, None])
        m = largest
    return m, total, acc
"""
_ATTENTION_HEAD = """
def kernel(q_ptr, k_ptr, v_ptr, o_ptr, lse_ptr, n, M: tl.constexpr, N: tl.constexpr,
           D: tl.constexpr):
    first = tl.program_id(0) * M
    rows = first + tl.arange(0, M)
    base = tl.program_id(1) * n * D
    place = base + rows[:, None] * D + tl.arange(0, D)[None, :]
    q = tl.load(q_ptr + place, mask=rows[:, None] < n, other=0.0)
    m = tl.full([M], -float("inf"), tl.float64)
    total = tl.zeros([M], tl.float64)
    acc = tl.zeros([M, D], tl.float64)
"""
_ATTENTION_TAIL = """
    tl.store(o_ptr + place, acc / total[:, None], mask=rows[:, None] < n)
    tl.store(lse_ptr + tl.program_id(1) * n + rows, m + tl.log(total), mask=rows < n)
"""
_LOOP = "    m, total, acc = attend(q, k_ptr, v_ptr, base, rows, n, m, total, acc, {}, N, D, {})"
FULL_ATTENTION = _ATTENTION + _ATTENTION_HEAD + _LOOP.format("0, n", "False") + _ATTENTION_TAIL
CAUSAL_ATTENTION = (
    _ATTENTION + _ATTENTION_HEAD + _LOOP.format("0, first", "False") + "\n"
    + _LOOP.format("first, min(first + M, n)", "True") + _ATTENTION_TAIL
)  # fmt: skip
MATMUL = """
def kernel(a_ptr, b_ptr, bias_ptr, c_ptr, m, n, k, GROUP: tl.constexpr, GELU: tl.constexpr,
           M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    if GROUP > 0:
        rows, columns = tl.cdiv(m, M), tl.cdiv(n, N)
        group = tl.program_id(0) // (GROUP * columns)
        size = min(rows - group * GROUP, GROUP)
        row = group * GROUP + tl.program_id(0) % (GROUP * columns) % size
        column = tl.program_id(0) % (GROUP * columns) // size
    else:
        row, column = tl.program_id(0), tl.program_id(1)
    i, j, at = row * M + tl.arange(0, M), column * N + tl.arange(0, N), tl.arange(0, K)
    a_tile = a_ptr + i[:, None] * k + at[None, :]
    b_tile = b_ptr + at[:, None] * n + j[None, :]
    acc = tl.zeros([M, N], tl.float64)
    for step in range(0, tl.cdiv(k, K)):
        a = tl.load(a_tile, mask=(i[:, None] < m) & (at[None, :] < k - step * K), other=0.0)
        b = tl.load(b_tile, mask=(at[:, None] < k - step * K) & (j[None, :] < n), other=0.0)
        acc = tl.dot(a, b, acc)
        a_tile += K
        b_tile += K * n
    acc += tl.load(bias_ptr + j, mask=j < n, other=0.0)[None, :]
    if GELU:
        acc = 0.5 * acc * (1 + tl.erf(acc * 0.7071067811865476))
    tl.store(c_ptr + i[:, None] * n + j[None, :], acc, mask=(i[:, None] < m) & (j[None, :] < n))
"""
CUMSUM = """
def kernel(x_ptr, y_ptr, n, stride, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * stride + at, mask=at < n, other=0.0)
    tl.store(y_ptr + row * stride + at, tl.cumsum(x * x, 0), mask=at < n)
"""
GATED_SCAN = """
@jit
def gated(a, x, b, y):
    return a * b, x * b + y

def kernel(a_ptr, x_ptr, y_ptr, n, stride, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    place = tl.program_id(0) * stride + at
    a = tl.load(a_ptr + place, mask=at < n)
    x = tl.load(x_ptr + place, mask=at < n)
    decay, h = tl.associative_scan((a, x), 0, gated)
    tl.store(y_ptr + place, h * decay + h, mask=at < n)
"""
PRODUCT_OF_ROWS = """
@jit
def times(a, b):
    return a * b

def kernel(x_ptr, y_ptr, n, stride, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * stride + at, mask=at < n, other=1.0)
    tl.store(y_ptr + row, tl.reduce(x * x, 0, times))
"""
CONVOLUTION = """
def kernel(x_ptr, w_ptr, y_ptr, n, channels, taps, BLOCK: tl.constexpr, C: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    out = tl.program_id(1) * C + tl.arange(0, C)
    acc = tl.zeros([C, BLOCK], tl.float64)
    for channel in range(channels):
        for tap in range(taps):
            x = tl.load(x_ptr + channel * (n + taps - 1) + at + tap, mask=at < n, other=0.0)
            w = tl.load(w_ptr + (out * channels + channel) * taps + tap)
            acc += w[:, None] * x[None, :]
    tl.store(y_ptr + out[:, None] * n + at[None, :], acc, mask=(at < n)[None, :])
"""
PERSISTENT_MATMUL = """
def kernel(a_ptr, b_ptr, c_ptr, m, n, k, GELU: tl.constexpr, M: tl.constexpr, N: tl.constexpr,
           K: tl.constexpr):
    columns = tl.cdiv(n, N)
    for tile in range(tl.program_id(0), tl.cdiv(m, M) * columns, tl.num_programs(0)):
        i, j = tile // columns * M + tl.arange(0, M), tile % columns * N + tl.arange(0, N)
        acc = tl.zeros([M, N], tl.float64)
        for start in range(0, k, K):
            at = start + tl.arange(0, K)
            a = tl.load(a_ptr + i[:, None] * k + at[None, :],
                        mask=(i[:, None] < m) & (at[None, :] < k), other=0.0)
            b = tl.load(b_ptr + at[:, None] * n + j[None, :],
                        mask=(at[:, None] < k) & (j[None, :] < n), other=0.0)
            acc = tl.dot(a, b, acc)
        if GELU:
            acc = 0.5 * acc * (1 + tl.erf(acc * 0.7071067811865476))
        tl.store(c_ptr + i[:, None] * n + j[None, :], acc,
                 mask=(i[:, None] < m) & (j[None, :] < n))
"""
WINDOWED_ATTENTION = (
    _ATTENTION
    + _ATTENTION_HEAD
    + _LOOP.format("max(first - M, 0) // N * N, min(first + M, n)", "True")
    + _ATTENTION_TAIL
)
GROUPED_QUERIES = FULL_ATTENTION.replace(
    "= attend(q, k_ptr, v_ptr, base", "= attend(q, k_ptr, v_ptr, tl.program_id(1) // 2 * n * D"
)
# Two images of four heads, of which two share keys and values; the first image is shared, too.
GROUPED_HEADS = FULL_ATTENTION.replace(
    "= attend(q, k_ptr, v_ptr, base",
    "= attend(q, k_ptr, v_ptr, tl.program_id(1).to(tl.int64) % 4 // 2 * n * D",
)
ATTENTION_IN_A_BRANCH = GROUPED_QUERIES.replace(
    "    rows = first", "    if first >= n:\n        return\n    rows = first"
)
# Sequences of several lengths, one behind the other.
VARIABLE_LENGTHS = (
    _ATTENTION
    + """
def kernel(q_ptr, k_ptr, v_ptr, starts_ptr, o_ptr, M: tl.constexpr, N: tl.constexpr,
           D: tl.constexpr, CAUSAL: tl.constexpr):
    begin = tl.load(starts_ptr + tl.program_id(1))
    n = tl.load(starts_ptr + tl.program_id(1) + 1) - begin
    first = tl.program_id(0) * M
    if first >= n:
        return
    rows = first + tl.arange(0, M)
    base = begin * D
    place = base + rows[:, None] * D + tl.arange(0, D)[None, :]
    q = tl.load(q_ptr + place, mask=rows[:, None] < n, other=0.0)
    m = tl.full([M], -float("inf"), tl.float64)
    total = tl.zeros([M], tl.float64)
    acc = tl.zeros([M, D], tl.float64)
    stop = min(first + M, n) if CAUSAL else n
    m, total, acc = attend(q, k_ptr, v_ptr, base, rows, n, m, total, acc, 0, stop, N, D, CAUSAL)
    tl.store(o_ptr + place, acc / total[:, None], mask=rows[:, None] < n)
"""
)
