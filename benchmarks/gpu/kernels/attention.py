"""Attention, forward: O = softmax(scale Q Kᵀ) V for each head, without the matrix of scores.

A program has one tile of queries of one head and iterates over the keys, keeping for each query the
running maximum m of the scores, the sum l of 2^(score - m), and the unnormalised output, which are
scaled down when m grows. Scores are in powers of two: scale already has the factor log2(e).

Q, K, V and O are contiguous (heads of all batches, positions, D). The number of positions is a
multiple of both tile sizes.
"""

from __future__ import annotations

import tilewright as triton
import tilewright.language as tl


@triton.jit
def walk_keys(
    q, k_ptr, v_ptr, acc, greatest, total, scale, query, first, last,
    D: tl.constexpr, BLOCK_N: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """Keys `first` to `last`; MASKED masks off those after the query."""
    feature = tl.arange(0, D)
    for start in range(first, last, BLOCK_N):
        key = start + tl.arange(0, BLOCK_N)
        k = tl.load(k_ptr + key[:, None] * D + feature[None, :])
        score = tl.dot(q, tl.trans(k))
        if MASKED:
            score = tl.where(query[:, None] >= key[None, :], score, -float("inf"))
        before = greatest
        greatest = tl.maximum(before, tl.max(score, axis=1) * scale)
        weight = tl.exp2(score * scale - greatest[:, None])
        shrink = tl.exp2(before - greatest)
        total = total * shrink + tl.sum(weight, axis=1)
        acc = acc * shrink[:, None]
        v = tl.load(v_ptr + key[:, None] * D + feature[None, :])
        acc = tl.dot(weight.to(v.dtype), v, acc)
    return acc, greatest, total


@triton.jit
def forward_kernel(
    q_ptr, k_ptr, v_ptr, o_ptr, lse_ptr, positions, scale,
    D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    """O and, for the backward pass, log2 of the sum of 2^score of each query, in fp32."""
    # With a causal mask the last queries have the most keys: they start first.
    tile = tl.num_programs(0) - 1 - tl.program_id(0)
    head = tl.program_id(1).to(tl.int64) * positions
    query = tile * BLOCK_M + tl.arange(0, BLOCK_M)
    place = query[:, None] * D + tl.arange(0, D)[None, :]
    q = tl.load(q_ptr + head * D + place)
    k_ptr += head * D
    v_ptr += head * D

    acc = tl.zeros((BLOCK_M, D), tl.float32)
    greatest = tl.full((BLOCK_M,), -float("inf"), tl.float32)
    total = tl.zeros((BLOCK_M,), tl.float32)
    if CAUSAL:
        diagonal = tile * BLOCK_M // BLOCK_N * BLOCK_N
        acc, greatest, total = walk_keys(
            q, k_ptr, v_ptr, acc, greatest, total, scale, query, 0, diagonal, D, BLOCK_N, False
        )
        acc, greatest, total = walk_keys(
            q, k_ptr, v_ptr, acc, greatest, total, scale, query, diagonal, (tile + 1) * BLOCK_M,
            D, BLOCK_N, True,
        )  # fmt: skip
    else:
        acc, greatest, total = walk_keys(
            q, k_ptr, v_ptr, acc, greatest, total, scale, query, 0, positions, D, BLOCK_N, False
        )

    o = acc / total[:, None]
    tl.store(o_ptr + head * D + place, o.to(o_ptr.dtype.element_ty))
    tl.store(lse_ptr + head + query, greatest + tl.log2(total))
