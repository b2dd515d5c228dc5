"""Attention through descriptors, of batches without padding, of int8, of pages, of latents."""

# pyright: reportUnnecessaryComparison=false, reportArgumentType=false, reportIndexIssue=false
# pyright: reportAttributeAccessIssue=false, reportUnusedImport=false
import tilewright as triton
import tilewright.language as tl
import tilewright.tools.tensor_descriptor as descriptors  # noqa: F401 (launches take it from here)


@triton.jit
def walk(
    acc, total, m, q, keys, values, base_k, base_v, step_v, T, scale, rows, begin, end,
    D: tl.constexpr, BN: tl.constexpr, DIAGONAL: tl.constexpr, FP8: tl.constexpr,
):  # fmt: skip
    """The keys from `begin` to `end`; those of fp8 have their values stored along the keys."""
    n = tl.arange(0, BN)
    for start in tl.range(begin, end, BN):
        start = tl.multiple_of(start, BN)
        s = tl.dot(q, keys.load([base_k + start, 0]).T)
        if DIAGONAL:
            s = s * scale + tl.where(rows[:, None] >= start + n[None, :], 0, -1.0e6)
            new = tl.maximum(m, tl.max(s, 1))
            s -= new[:, None]
        else:
            new = tl.maximum(m, tl.max(s, 1) * scale)
            s = s * scale - new[:, None]
        p = tl.math.exp2(s)
        alpha = tl.math.exp2(m - new)
        added = tl.sum(p, 1)
        acc = acc * alpha[:, None]
        v = values.load([base_v, step_v + start]).T if FP8 else values.load([base_v + start, 0])
        acc = tl.dot(p.to(v.dtype), v, acc)
        total = total * alpha + added
        m = new
    return acc, total, m


@triton.jit
def attend_by_descriptors(
    q, k, v, out, lse, scale, T, HEADS: tl.constexpr, D: tl.constexpr, BM: tl.constexpr,
    BN: tl.constexpr, CAUSAL: tl.constexpr, FP8: tl.constexpr,
):  # fmt: skip
    """Attention of a block of rows; with CAUSAL, the blocks at the diagonal come last."""
    i, z = tl.program_id(0), tl.program_id(1)
    base = (z // HEADS) * (T * HEADS) + (z % HEADS) * T
    base_v = z * D if FP8 else base
    rows = i * BM + tl.arange(0, BM)
    m = tl.zeros((BM,), dtype=tl.float32) - float("inf")
    total = tl.zeros((BM,), dtype=tl.float32) + 1.0
    acc = tl.zeros((BM, D), dtype=tl.float32)
    scale *= 1.44269504
    qs = q.load([base + i * BM, 0])
    if CAUSAL:
        acc, total, m = walk(
            acc, total, m, qs, k, v, base, base_v, 0, T, scale, rows, 0, i * BM, D, BN, False, FP8
        )
        acc, total, m = walk(
            acc, total, m, qs, k, v, base, base_v, 0, T, scale, rows,
            tl.multiple_of(i * BM, BM), (i + 1) * BM, D, BN, True, FP8,
        )  # fmt: skip
    else:
        acc, total, m = walk(
            acc, total, m, qs, k, v, base, base_v, 0, T, scale, rows, 0, T, D, BN, False, FP8
        )
    m += tl.math.log2(total)
    tl.store(lse + z * T + rows, m)
    out.store([base + i * BM, 0], (acc / total[:, None]).to(tl.float16))


@triton.jit
def attend_packed(
    q, k, v, out, starts, scale, stride, HEADS: tl.constexpr, RATIO: tl.constexpr,
    D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """Causal attention of sequences that lie one after the other, without padding."""
    sequence, h, i = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    first = tl.load(starts + sequence)
    length = tl.load(starts + sequence + 1) - first
    if i * BM >= length:
        return
    rows, n, f = i * BM + tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, D)
    at = (first + rows[:, None]) * stride + h * D + f[None, :]
    qs = tl.load(q + at, mask=rows[:, None] < length, other=0.0)
    narrow = stride // RATIO
    pk = k + (first + n[None, :]) * narrow + h // RATIO * D + f[:, None]
    pv = v + (first + n[:, None]) * narrow + h // RATIO * D + f[None, :]
    m = tl.zeros((BM,), dtype=tl.float32) - float("inf")
    total = tl.zeros((BM,), dtype=tl.float32)
    acc = tl.zeros((BM, D), dtype=tl.float32)
    for start in range(0, tl.minimum((i + 1) * BM, length), BN):
        start = tl.multiple_of(start, BN)
        inside = start + n < length
        ks = tl.load(pk + start * narrow, mask=inside[None, :], other=0.0)
        s = tl.dot(qs, ks) * scale
        s = tl.where(rows[:, None] >= start + n[None, :], s, -1.0e8)
        new = tl.maximum(m, tl.max(s, 1))
        p = tl.math.exp2(s - new[:, None])
        alpha = tl.math.exp2(m - new)
        total = total * alpha + tl.sum(p, 1)
        vs = tl.load(pv + start * narrow, mask=inside[:, None], other=0.0)
        acc = tl.dot(p.to(vs.dtype), vs, acc * alpha[:, None])
        m = new
    tl.store(out + at, (acc / total[:, None]).to(out.dtype.element_ty), mask=rows[:, None] < length)


@triton.jit
def attend_int8(
    q, k, v, scales_q, scales_k, out, T, HEADS: tl.constexpr, D: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """Scores of int8 with a scale for each block, and a second product of fp16."""
    i, z = tl.program_id(0), tl.program_id(1)
    rows, n, f = i * BM + tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, D)
    base = z.to(tl.int64) * T * D
    qs = tl.load(q + base + rows[:, None] * D + f[None, :], mask=rows[:, None] < T)
    sq = tl.load(scales_q + z * tl.cdiv(T, BM) + i)
    ps = scales_k + z * tl.cdiv(T, BN)
    pk = k + base + n[None, :] * D + f[:, None]
    pv = v + base + n[:, None] * D + f[None, :]
    m = tl.zeros((BM,), dtype=tl.float32) - float("inf")
    total = tl.zeros((BM,), dtype=tl.float32) + 1.0
    acc = tl.zeros((BM, D), dtype=tl.float32)
    for start in range(0, T, BN):
        start = tl.multiple_of(start, BN)
        inside = n < T - start
        ks = tl.load(pk, mask=inside[None, :])
        s = tl.dot(qs, ks).to(tl.float32) * (sq * tl.load(ps))
        s += tl.where(inside[None, :], 0, -1.0e6)
        new = tl.maximum(m, tl.max(s, 1))
        p = tl.math.exp2(s - new[:, None])
        alpha = tl.math.exp2(m - new)
        total = total * alpha + tl.sum(p, 1)
        acc = acc * alpha[:, None]
        vs = tl.load(pv, mask=inside[:, None])
        acc += tl.dot(p.to(tl.float16), vs, out_dtype=tl.float16)
        m = new
        pk += BN * D
        ps += 1
        pv += BN * D
    at = out + base + rows[:, None] * D + f[None, :]
    tl.store(at, (acc / total[:, None]).to(tl.float16), mask=rows[:, None] < T)


@triton.jit
def prefill_pages(
    q, keys, values, out, table, lengths, contexts, starts, scale, pages, stride,
    HEADS_KV: tl.constexpr, RATIO: tl.constexpr, D: tl.constexpr, PAGE: tl.constexpr,
    BQ: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """New tokens of a sequence, all heads of a group in one tile, attend to pages of its keys."""
    i, g, sequence = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    first = tl.load(starts + sequence)
    new_tokens = tl.load(starts + sequence + 1) - first
    if i * BQ >= new_tokens:
        return
    r, n, f = tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, D)
    token, head = i * BQ + r // RATIO, g * RATIO + r % RATIO
    inside = (token < new_tokens)[:, None]
    at = (first + token[:, None]) * stride + head[:, None] * D + f[None, :]
    qs = tl.load(q + at, mask=inside, other=0.0)
    context = tl.load(contexts + sequence)
    end = tl.minimum(context + (i + 1) * BQ, tl.load(lengths + sequence))
    m = tl.full((BM,), -float("inf"), dtype=tl.float32)
    total = tl.full((BM,), 1.0, dtype=tl.float32)
    acc = tl.zeros((BM, D), dtype=tl.float32)
    for block in range(tl.cdiv(end, BN)):
        k = block * BN + n
        page = tl.load(table + sequence * pages + k // PAGE).to(tl.int64)
        slot = ((page * PAGE + k % PAGE) * HEADS_KV + g) * D
        valid = k < end
        ks = tl.load(keys + slot[None, :] + f[:, None], mask=valid[None, :], other=0.0)
        vs = tl.load(values + slot[:, None] + f[None, :], mask=valid[:, None], other=0.0)
        s = scale * tl.dot(qs, ks)
        s = tl.where(inside & (k[None, :] < context + token[:, None] + 1), s, float("-inf"))
        new = tl.maximum(m, tl.max(s, 1))
        new = tl.where(new > float("-inf"), new, 0.0)
        p = tl.exp(s - new[:, None])
        alpha = tl.exp(m - new)
        acc = acc * alpha[:, None]
        total = total * alpha + tl.sum(p, 1)
        m = new
        acc += tl.dot(p.to(vs.dtype), vs)
    tl.store(out + at, (acc / total[:, None]).to(out.dtype.element_ty), mask=inside)


@triton.jit
def decode_latents(
    q, cache, places, starts, part, scale, HEADS: tl.constexpr, BH: tl.constexpr,
    BN: tl.constexpr, D: tl.constexpr, ROTARY: tl.constexpr, SPLITS: tl.constexpr,
):  # fmt: skip
    """Decoding from latents: keys are the D values and ROTARY more, shared by all heads."""
    sequence, j, split = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    heads = j * BH + tl.arange(0, BH)
    f, e, n = tl.arange(0, D), D + tl.arange(0, ROTARY), tl.arange(0, BN)
    first = tl.load(starts + sequence)
    length = tl.load(starts + sequence + 1) - first
    width: tl.constexpr = D + ROTARY
    at = (sequence * HEADS + heads[:, None]) * width
    qs, qe = tl.load(q + at + f[None, :]), tl.load(q + at + e[None, :])
    each = tl.cdiv(length, SPLITS)
    begin, end = each * split, tl.minimum(each * split + each, length)
    m = tl.zeros((BH,), dtype=tl.float32) - float("inf")
    total = tl.zeros((BH,), dtype=tl.float32)
    acc = tl.zeros((BH, D), dtype=tl.float32)
    for start in range(begin, end, BN):
        k = start + n
        place = tl.load(places + first + k, mask=k < end, other=0)
        ks = tl.load(cache + place[None, :] * width + f[:, None], mask=k[None, :] < end, other=0.0)
        s = tl.dot(qs, ks.to(qs.dtype))
        ke = tl.load(cache + place[None, :] * width + e[:, None], mask=k[None, :] < end, other=0.0)
        s += tl.dot(qe, ke.to(qe.dtype))
        s = tl.where(k[None, :] < end, s * scale, float("-inf"))
        vs = tl.load(cache + place[:, None] * width + f[None, :], mask=k[:, None] < end, other=0.0)
        new = tl.maximum(tl.max(s, 1), m)
        alpha = tl.exp(m - new)
        p = tl.exp(s - new[:, None])
        acc *= alpha[:, None]
        acc += tl.dot(p.to(vs.dtype), vs)
        total = total * alpha + tl.sum(p, 1)
        m = new
    at = part + ((sequence * HEADS + heads) * SPLITS + split) * (D + 1)
    tl.store(at[:, None] + f[None, :], acc / total[:, None])
    tl.store(at + D, m + tl.log(total))


@triton.jit
def attend_to_blocks(
    q, k, v, out, blocks, scale, GROUP: tl.constexpr, D: tl.constexpr, SPAN: tl.constexpr,
    BN: tl.constexpr,
):  # fmt: skip
    """A token's heads of one group attend to one key and value for each block of SPAN tokens that
    has ended: at most a few iterations."""
    token, group, groups = tl.program_id(0), tl.program_id(1), tl.num_programs(1)
    heads, f, n = group * GROUP + tl.arange(0, GROUP), tl.arange(0, D), tl.arange(0, BN)
    at = (token * groups * GROUP + heads[:, None]) * D + f[None, :]
    qs = (tl.load(q + at) * scale).to(q.dtype.element_ty)
    ended = (token + 1) // SPAN
    m = tl.full((GROUP,), float("-inf"), tl.float32)
    total = tl.zeros((GROUP,), tl.float32)
    acc = tl.zeros((GROUP, D), tl.float32)
    for start in range(0, ended, BN):
        block = start + n
        row = (block * groups + group) * D
        ks = tl.load(k + row[None, :] + f[:, None], (block < blocks)[None, :], other=0.0)
        vs = tl.load(v + row[:, None] + f[None, :], (block < blocks)[:, None], other=0.0)
        s = tl.where((block < ended)[None, :], tl.dot(qs, ks), float("-inf"))
        new = tl.maximum(m, tl.max(s, 1))
        alpha, p = tl.exp(m - new), tl.exp(s - new[:, None])
        total = total * alpha + tl.sum(p, 1)
        acc = acc * alpha[:, None] + tl.dot(p.to(vs.dtype), vs)
        m = new
    if ended > 0:
        acc = acc / total[:, None]
    tl.store(out + at, acc.to(out.dtype.element_ty))
