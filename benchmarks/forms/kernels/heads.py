"""Attention of other head sizes, layouts and element types: padded features, two parts of features,
pages of a cache, fp8."""

# pyright: reportUnnecessaryComparison=false, reportArgumentType=false, reportIndexIssue=false
import tilewright as triton
import tilewright.language as tl


@triton.jit
def load_rows(at, row, f, T, D, EVEN_T: tl.constexpr, EVEN_D: tl.constexpr):
    """Rows of features, with masks only where they are needed."""
    if EVEN_T & EVEN_D:
        found = tl.load(at)
    elif EVEN_T:
        found = tl.load(at, mask=f[None, :] < D, other=0.0)
    elif EVEN_D:
        found = tl.load(at, mask=row[:, None] < T, other=0.0)
    else:
        found = tl.load(at, mask=(row[:, None] < T) & (f[None, :] < D), other=0.0)
    return found


@triton.jit
def attend_padded(
    q, k, v, bias, out, lse, scale, step_q, step_k, T, S, D,
    HEADS: tl.constexpr, BIAS: tl.constexpr, CAUSAL: tl.constexpr, BD: tl.constexpr,
    EVEN_T: tl.constexpr, EVEN_S: tl.constexpr, EVEN_D: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """Tensors [batch, T, HEADS, D], with D rounded up to BD, and masks only where they are needed.
    The sums are carried as logarithms."""
    i, z = tl.program_id(0), tl.program_id(1)
    b, h = z // HEADS, z % HEADS
    rows, n, f = i * BM + tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, BD)
    q += b.to(tl.int64) * T * step_q + h * D
    k += b.to(tl.int64) * S * step_k + h * D
    v += b.to(tl.int64) * S * step_k + h * D
    at_q = q + (rows[:, None] * step_q + f[None, :])
    at_k = k + (n[:, None] * step_k + f[None, :])
    at_v = v + (n[:, None] * step_k + f[None, :])
    qs = load_rows(at_q, rows, f, T, D, EVEN_T, EVEN_D)
    known = tl.zeros((BM,), dtype=tl.float32) - float("inf")
    m = tl.zeros((BM,), dtype=tl.float32) - float("inf")
    acc = tl.zeros((BM, BD), dtype=tl.float32)
    end = tl.minimum((i + 1) * BM, S) if CAUSAL else S
    for start in range(0, end, BN):
        start = tl.multiple_of(start, BN)
        ks = load_rows(at_k + start * step_k, start + n, f, S, D, EVEN_S, EVEN_D)
        s = tl.zeros((BM, BN), dtype=tl.float32)
        s += tl.dot(qs, tl.trans(ks))
        if not EVEN_S:
            s += tl.where((start + n)[None, :] < S, 0, float("-inf"))
        if CAUSAL:
            s += tl.where(rows[:, None] >= (start + n)[None, :], 0, float("-inf"))
        if BIAS == "none":
            new = tl.maximum(tl.max(s, 1) * scale, known)
            p = tl.exp(s * scale - new[:, None])
        else:
            if BIAS == "vector":
                added = tl.load(bias + z * S + start + n, mask=(start + n) < S, other=0.0)
                added = added.to(tl.float32)[None, :]
            else:
                at = bias + (h * T + rows[:, None]).to(tl.int64) * S + (start + n)[None, :]
                inside = (rows[:, None] < T) & ((start + n)[None, :] < S)
                added = tl.load(at, mask=inside, other=0.0).to(tl.float32)
            s = s * scale + added
            new = tl.maximum(tl.max(s, 1), known)
            p = tl.exp(s - new[:, None])
        total = tl.sum(p, 1)
        acc = acc * tl.exp(m - new)[:, None]
        vs = load_rows(at_v + start * step_k, start + n, f, S, D, EVEN_S, EVEN_D)
        acc += tl.dot(p.to(vs.dtype), vs)
        m = new
        known = new + tl.log(tl.exp(known - new) + total)
    acc = acc * tl.exp(m - known)[:, None]
    tl.store(lse + z * T + rows, known, mask=rows < T)
    at = out + b.to(tl.int64) * T * step_q + h * D + (rows[:, None] * step_q + f[None, :])
    tl.store(at, acc.to(out.dtype.element_ty), mask=(rows[:, None] < T) & (f[None, :] < D))


@triton.jit
def attend_parts(
    q, k, v, out, scale, T, HEADS: tl.constexpr, D: tl.constexpr, ROTARY: tl.constexpr,
    DV: tl.constexpr, CAUSAL: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """Queries and keys of D + ROTARY features, values of DV: two products add up to the scores."""
    i, z = tl.program_id(0), tl.program_id(1)
    rows, n = i * BM + tl.arange(0, BM), tl.arange(0, BN)
    f, r, fv = tl.arange(0, D), D + tl.arange(0, ROTARY), tl.arange(0, DV)
    width: tl.constexpr = D + ROTARY
    q += (z * T).to(tl.int64) * width
    k += (z * T).to(tl.int64) * width
    v += (z * T).to(tl.int64) * DV
    inside = rows[:, None] < T
    qs = tl.load(q + rows[:, None] * width + f[None, :], mask=inside, other=0.0)
    qr = tl.load(q + rows[:, None] * width + r[None, :], mask=inside, other=0.0)
    m = tl.zeros((BM,), dtype=tl.float32) - float("inf")
    total = tl.zeros((BM,), dtype=tl.float32)
    acc = tl.zeros((BM, DV), dtype=tl.float32)
    end = tl.minimum(T, (i + 1) * BM) if CAUSAL else T
    for start in range(0, end, BN):
        start = tl.multiple_of(start, BN)
        keep = (start + n) < end
        ks = tl.load(k + (start + n[None, :]) * width + f[:, None], mask=keep[None, :], other=0.0)
        kr = tl.load(k + (start + n[None, :]) * width + r[:, None], mask=keep[None, :], other=0.0)
        s = tl.dot(qs, ks)
        s += tl.dot(qr, kr)
        s *= scale
        allowed = keep[None, :] & (rows[:, None] < T)
        if CAUSAL:
            allowed &= rows[:, None] >= start + n[None, :]
        s = tl.where(allowed, s, float("-inf"))
        most = tl.max(s, 1)
        most = tl.where(most == float("-inf"), -1e20, most)
        new = tl.maximum(most, m)
        alpha = tl.exp(m - new)
        p = tl.exp(s - new[:, None])
        total = total * alpha + tl.sum(p, 1)
        vs = tl.load(v + (start + n[:, None]) * DV + fv[None, :], mask=keep[:, None], other=0.0)
        acc = acc * alpha[:, None] + tl.dot(p.to(vs.dtype), vs)
        m = new
    at = out + (z * T).to(tl.int64) * DV + rows[:, None] * DV + fv[None, :]
    tl.store(at, (acc / total[:, None]).to(out.dtype.element_ty), mask=inside)


@triton.jit
def attend_pages(
    q, keys, values, out, table, lengths, starts, k_scale, v_scale, scale, cap, pages,
    HEADS: tl.constexpr, RATIO: tl.constexpr, D: tl.constexpr, PAGE: tl.constexpr,
    WINDOW: tl.constexpr, CAP: tl.constexpr, BQ: tl.constexpr, BM: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """Queries of all heads of one head of keys are one tile; keys and values come from pages of a
    cache, which may be fp8."""
    block, kv = tl.program_id(0), tl.program_id(1)
    sequence = tl.program_id(2)
    begin = tl.load(starts + sequence)
    fresh = tl.load(starts + sequence + 1) - begin
    if block * BQ >= fresh:
        return
    row, f, t = tl.arange(0, BM), tl.arange(0, D), tl.arange(0, TILE)
    position = block * BQ + row // RATIO
    head = kv * RATIO + row % RATIO
    inside = (position < fresh)[:, None]
    at_q = ((begin + position)[:, None] * HEADS + head[:, None]).to(tl.int64) * D + f[None, :]
    qs = tl.load(q + at_q, mask=inside, other=0.0)
    before = tl.load(lengths + sequence) - fresh
    m = tl.full((BM,), float("-inf"), dtype=tl.float32)
    total = tl.full((BM,), 1.0, dtype=tl.float32)
    acc = tl.zeros((BM, D), dtype=tl.float32)
    last = tl.minimum(before + block * BQ + (BM - 1) // RATIO + 1, before + fresh)
    first = 0
    if WINDOW > 0:
        first = tl.maximum(before + block * BQ - WINDOW + 1, 0) // TILE
    step = HEADS // RATIO * D
    for j in range(first, tl.cdiv(last, TILE)):
        at = j * TILE + t
        page = tl.load(table + sequence * pages + at // PAGE).to(tl.int64)
        place = page * PAGE * step + at % PAGE * step + kv * D
        kept = at < last
        ks = tl.load(keys + place[None, :] + f[:, None], mask=kept[None, :], other=0.0)
        vs = tl.load(values + place[:, None] + f[None, :], mask=kept[:, None], other=0.0)
        if ks.dtype.is_fp8():
            ks = (ks.to(tl.float32) * tl.load(k_scale)).to(qs.dtype)
            vs = (vs.to(tl.float32) * tl.load(v_scale)).to(qs.dtype)
        allowed = at[None, :] < before + position[:, None] + 1
        s = scale * tl.dot(qs, ks)
        if CAP:
            x = s / cap
            up, down = tl.exp(x), tl.exp(-x)
            s = cap * (up - down) / (up + down)
        s = tl.where(inside & allowed, s, float("-inf"))
        if WINDOW > 0:
            s = tl.where(before + position[:, None] - at < WINDOW, s, float("-inf"))
        new = tl.maximum(m, tl.max(s, 1))
        new = tl.where(new > float("-inf"), new, 0.0)
        p = tl.exp(s - new[:, None])
        added = tl.sum(p, 1)
        alpha = tl.exp(m - new)
        acc = acc * alpha[:, None]
        total = total * alpha + added
        m = new
        acc += tl.dot(p.to(vs.dtype), vs)
    tl.store(out + at_q, (acc / total[:, None]).to(out.dtype.element_ty), mask=inside)


@triton.jit
def attend_fp8(
    q, k, v, out, scale, scale_v, T, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr
):
    """fp8 queries, keys and values [heads, T, D]; the weights are rounded to fp8, too."""
    i, z = tl.program_id(0), tl.program_id(1)
    rows, n, f = i * BM + tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, D)
    base = (z * T).to(tl.int64) * D
    qs = tl.load(q + base + rows[:, None] * D + f[None, :])
    m = tl.full((BM,), -float("inf"), dtype=tl.float32)
    total = tl.zeros((BM,), dtype=tl.float32)
    acc = tl.zeros((BM, D), dtype=tl.float32)
    for start in range(0, T, BN):
        ks = tl.load(k + base + (start + n[None, :]) * D + f[:, None])
        s = tl.dot(qs, ks) * scale
        new = tl.maximum(m, tl.max(s, 1))
        p = tl.exp2(s - new[:, None])
        alpha = tl.exp2(m - new)
        total = total * alpha + tl.sum(p, 1)
        acc = acc * alpha[:, None]
        vs = tl.load(v + base + (start + n[:, None]) * D + f[None, :])
        acc = tl.dot((p * 256).to(vs.dtype), vs, acc)
        m = new
    acc = acc * (scale_v / 256) / total[:, None]
    tl.store(out + base + rows[:, None] * D + f[None, :], acc.to(out.dtype.element_ty))
