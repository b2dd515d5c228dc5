"""Attention, backward. With P = softmax(scale Q Kᵀ), O = P V, and dO the gradient of O:

    dV = Pᵀ dO,   dP = dO Vᵀ,   dS = P (dP - delta),   delta = sum over the features of O dO
    dQ = scale dS K,   dK = scale dSᵀ Q

P is recomputed from Q, K and `lse`, log2 of the sum of 2^score of each query. There are two ways:

- `keys_kernel` computes dK and dV, with a tile of keys per program, and `queries_kernel` dQ, with a
  tile of queries per program: seven products for each pair of tiles. The result is deterministic.
- `gradients_kernel` computes all three, with a tile of keys per program: five products. It adds to
  the dQ of each tile of queries atomically, in fp32, so that the order of additions varies.

All matrices are contiguous (heads of all batches, positions, D). The number of positions is a
multiple of both tile sizes. `scale2` is scale log2(e).
"""

from __future__ import annotations

import tilewright as triton
import tilewright.language as tl


@triton.jit
def delta_kernel(o_ptr, do_ptr, delta_ptr, D: tl.constexpr, BLOCK: tl.constexpr):
    """delta of BLOCK positions; the heads are flattened into the positions."""
    position = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    place = position[:, None] * D + tl.arange(0, D)[None, :]
    product = tl.load(o_ptr + place).to(tl.float32) * tl.load(do_ptr + place).to(tl.float32)
    tl.store(delta_ptr + position, tl.sum(product, axis=1))


@triton.jit
def walk_queries(
    k, v, dk, dv, q_ptr, do_ptr, lse_ptr, delta_ptr, scale2, key, first, last,
    D: tl.constexpr, BLOCK_M: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """The contribution of queries `first` to `last` to unscaled dK and dV, by transposed scores."""
    feature = tl.arange(0, D)
    for start in range(first, last, BLOCK_M):
        query = start + tl.arange(0, BLOCK_M)
        place = query[:, None] * D + feature[None, :]
        q = tl.load(q_ptr + place)
        score = tl.dot(k, tl.trans(q)) * scale2
        p = tl.exp2(score - tl.load(lse_ptr + query)[None, :])
        if MASKED:
            p = tl.where(query[None, :] >= key[:, None], p, 0.0)
        do = tl.load(do_ptr + place)
        dv = tl.dot(p.to(do.dtype), do, dv)
        dp = tl.dot(v, tl.trans(do))
        ds = p * (dp - tl.load(delta_ptr + query)[None, :])
        dk = tl.dot(ds.to(q.dtype), q, dk)
    return dk, dv


@triton.jit
def keys_kernel(
    q_ptr, k_ptr, v_ptr, do_ptr, lse_ptr, delta_ptr, dk_ptr, dv_ptr, positions, scale, scale2,
    D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    """dK and dV of a tile of BLOCK_N keys."""
    tile = tl.program_id(0)  # with a causal mask the first keys have the most queries
    head = tl.program_id(1).to(tl.int64) * positions
    key = tile * BLOCK_N + tl.arange(0, BLOCK_N)
    place = key[:, None] * D + tl.arange(0, D)[None, :]
    k = tl.load(k_ptr + head * D + place)
    v = tl.load(v_ptr + head * D + place)
    q_ptr += head * D
    do_ptr += head * D
    lse_ptr += head
    delta_ptr += head

    dk = tl.zeros((BLOCK_N, D), tl.float32)
    dv = tl.zeros((BLOCK_N, D), tl.float32)
    first = 0
    if CAUSAL:
        diagonal = tile * BLOCK_N // BLOCK_M * BLOCK_M
        first = tl.cdiv((tile + 1) * BLOCK_N, BLOCK_M) * BLOCK_M
        dk, dv = walk_queries(
            k, v, dk, dv, q_ptr, do_ptr, lse_ptr, delta_ptr, scale2, key, diagonal, first,
            D, BLOCK_M, True,
        )  # fmt: skip
    dk, dv = walk_queries(
        k, v, dk, dv, q_ptr, do_ptr, lse_ptr, delta_ptr, scale2, key, first, positions,
        D, BLOCK_M, False,
    )  # fmt: skip
    tl.store(dk_ptr + head * D + place, (dk * scale).to(dk_ptr.dtype.element_ty))
    tl.store(dv_ptr + head * D + place, dv.to(dv_ptr.dtype.element_ty))


@triton.jit
def walk_keys(
    q, do, lse, delta, dq, k_ptr, v_ptr, scale2, query, first, last,
    D: tl.constexpr, BLOCK_N: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """The contribution of keys `first` to `last` to dQ (unscaled)."""
    feature = tl.arange(0, D)
    for start in range(first, last, BLOCK_N):
        key = start + tl.arange(0, BLOCK_N)
        place = key[:, None] * D + feature[None, :]
        k = tl.load(k_ptr + place)
        p = tl.exp2(tl.dot(q, tl.trans(k)) * scale2 - lse[:, None])
        if MASKED:
            p = tl.where(query[:, None] >= key[None, :], p, 0.0)
        v = tl.load(v_ptr + place)
        ds = p * (tl.dot(do, tl.trans(v)) - delta[:, None])
        dq = tl.dot(ds.to(k.dtype), k, dq)
    return dq


@triton.jit
def queries_kernel(
    q_ptr, k_ptr, v_ptr, do_ptr, lse_ptr, delta_ptr, dq_ptr, positions, scale, scale2,
    D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    """dQ of a tile of BLOCK_M queries."""
    tile = tl.num_programs(0) - 1 - tl.program_id(0)
    head = tl.program_id(1).to(tl.int64) * positions
    query = tile * BLOCK_M + tl.arange(0, BLOCK_M)
    place = query[:, None] * D + tl.arange(0, D)[None, :]
    q = tl.load(q_ptr + head * D + place)
    do = tl.load(do_ptr + head * D + place)
    lse = tl.load(lse_ptr + head + query)
    delta = tl.load(delta_ptr + head + query)
    k_ptr += head * D
    v_ptr += head * D

    dq = tl.zeros((BLOCK_M, D), tl.float32)
    last = positions
    if CAUSAL:
        last = tile * BLOCK_M // BLOCK_N * BLOCK_N
        end = tl.cdiv((tile + 1) * BLOCK_M, BLOCK_N) * BLOCK_N
        dq = walk_keys(
            q, do, lse, delta, dq, k_ptr, v_ptr, scale2, query, last, end, D, BLOCK_N, True
        )
    dq = walk_keys(q, do, lse, delta, dq, k_ptr, v_ptr, scale2, query, 0, last, D, BLOCK_N, False)
    tl.store(dq_ptr + head * D + place, (dq * scale).to(dq_ptr.dtype.element_ty))


@triton.jit
def walk_queries_once(
    k, v, dk, dv, q_ptr, do_ptr, dq_ptr, lse_ptr, delta_ptr, scale2, key, first, last, shift,
    D: tl.constexpr, BLOCK_M: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """As `walk_queries`, from `first + shift` on, and then up to there; adds the contribution of
    these keys to unscaled dQ, too."""
    feature = tl.arange(0, D)
    for step in range(first, last, BLOCK_M):
        start = step + shift
        start = tl.where(start < last, start, start - (last - first))
        query = start + tl.arange(0, BLOCK_M)
        place = query[:, None] * D + feature[None, :]
        q = tl.load(q_ptr + place)
        score = tl.dot(k, tl.trans(q)) * scale2
        do = tl.load(do_ptr + place)
        dp = tl.dot(v, tl.trans(do))
        p = tl.exp2(score - tl.load(lse_ptr + query)[None, :])
        if MASKED:
            p = tl.where(query[None, :] >= key[:, None], p, 0.0)
        dv = tl.dot(p.to(do.dtype), do, dv)
        ds = (p * (dp - tl.load(delta_ptr + query)[None, :])).to(q.dtype)
        dq = tl.dot(tl.trans(ds), k)
        dk = tl.dot(ds, q, dk)  # while dQ is added
        tl.atomic_add(dq_ptr + place, dq, sem="relaxed")
    return dk, dv


@triton.jit
def gradients_kernel(
    q_ptr, k_ptr, v_ptr, do_ptr, lse_ptr, delta_ptr, dq_ptr, dk_ptr, dv_ptr, positions, scale,
    scale2, D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    """dK and dV of a tile of BLOCK_N keys; their contribution is added to unscaled dQ, in fp32."""
    tile = tl.program_id(0)  # with a causal mask the first keys have the most queries
    head = tl.program_id(1).to(tl.int64) * positions
    key = tile * BLOCK_N + tl.arange(0, BLOCK_N)
    place = key[:, None] * D + tl.arange(0, D)[None, :]
    k = tl.load(k_ptr + head * D + place)
    v = tl.load(v_ptr + head * D + place)
    q_ptr += head * D
    do_ptr += head * D
    dq_ptr += head * D
    lse_ptr += head
    delta_ptr += head

    dk = tl.zeros((BLOCK_N, D), tl.float32)
    dv = tl.zeros((BLOCK_N, D), tl.float32)
    first = 0
    if CAUSAL:
        diagonal = tile * BLOCK_N // BLOCK_M * BLOCK_M
        first = tl.cdiv((tile + 1) * BLOCK_N, BLOCK_M) * BLOCK_M
        dk, dv = walk_queries_once(
            k, v, dk, dv, q_ptr, do_ptr, dq_ptr, lse_ptr, delta_ptr, scale2, key, diagonal, first,
            0, D, BLOCK_M, True,
        )  # fmt: skip
    # Programs of a head that run at the same time should add to dQ of different queries: each
    # begins at another tile. With a mask they do in any case.
    shift = 0 if CAUSAL else tile * BLOCK_N // BLOCK_M * BLOCK_M
    dk, dv = walk_queries_once(
        k, v, dk, dv, q_ptr, do_ptr, dq_ptr, lse_ptr, delta_ptr, scale2, key, first, positions,
        shift, D, BLOCK_M, False,
    )  # fmt: skip
    tl.store(dk_ptr + head * D + place, (dk * scale).to(dk_ptr.dtype.element_ty))
    tl.store(dv_ptr + head * D + place, dv.to(dv_ptr.dtype.element_ty))


@triton.jit
def scale_kernel(sum_ptr, dq_ptr, scale, BLOCK: tl.constexpr):
    """dQ from the unscaled sums in fp32, of BLOCK elements."""
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(dq_ptr + place, (tl.load(sum_ptr + place) * scale).to(dq_ptr.dtype.element_ty))
