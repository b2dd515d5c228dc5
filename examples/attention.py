"""Attention with its gradient, as a function of torch's autograd. python examples/attention.py

Forward, a program computes a tile of queries: it walks over the keys with an online softmax, and
stores the output and, for each query, log2 of the sum of its 2^score. From that, the weights P of
any tile of queries and keys can be recomputed. Backward, with the gradient dO of the output,

    dV = Pᵀ dO,   dP = dO Vᵀ,   dS = P (dP - delta),   delta = sum over the features of O dO
    dQ = scale dS K,   dK = scale dSᵀ Q

One kernel computes all three gradients, with a tile of keys per program, by five products for each
pair of tiles. Programs add to the same dQ, atomically, in fp32, so that its last bits vary from run
to run. (`benchmarks/gpu/kernels/attention_backward.py` also has two kernels without atomics, which
need seven products.)
"""

from __future__ import annotations

import math
from typing import Any

from report import QUICK, check, compare_speed, require_torch

import tilewright as tw
import tilewright.language as tl

torch = require_torch("autograd")

BLOCK = 64
"""Queries and keys of a tile; the number of positions must be a multiple."""


@tw.jit
def forward_kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    out_ptr,
    lse_ptr,
    positions,
    scale2,
    D: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    CAUSAL: tl.constexpr,
):
    tile, head = tl.program_id(0), tl.program_id(1).to(tl.int64) * positions
    query, feature = tile * BLOCK_M + tl.arange(0, BLOCK_M), tl.arange(0, D)
    place = query[:, None] * D + feature
    q = tl.load(q_ptr + head * D + place)
    peak = tl.full((BLOCK_M,), float("-inf"), tl.float32)
    total = tl.zeros((BLOCK_M,), tl.float32)
    out = tl.zeros((BLOCK_M, D), tl.float32)
    last = (tile + 1) * BLOCK_M if CAUSAL else positions
    for start in tl.range(0, last, BLOCK_N):
        key = start + tl.arange(0, BLOCK_N)
        at = head * D + key[:, None] * D + feature
        score = tl.dot(q, tl.trans(tl.load(k_ptr + at))) * scale2
        if CAUSAL:
            score = tl.where(query[:, None] >= key, score, float("-inf"))
        higher = tl.maximum(peak, tl.max(score, axis=1))
        p = tl.exp2(score - higher[:, None])
        shrink = tl.exp2(peak - higher)
        total = total * shrink + tl.sum(p, axis=1)
        v = tl.load(v_ptr + at)
        out = tl.dot(p.to(v.dtype), v, out * shrink[:, None])
        peak = higher
    tl.store(out_ptr + head * D + place, (out / total[:, None]).to(out_ptr.dtype.element_ty))
    tl.store(lse_ptr + head + query, peak + tl.log2(total))


@tw.jit
def delta_kernel(out_ptr, dout_ptr, delta_ptr, D: tl.constexpr, BLOCK: tl.constexpr):
    position = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    place = position[:, None] * D + tl.arange(0, D)
    product = tl.load(out_ptr + place).to(tl.float32) * tl.load(dout_ptr + place).to(tl.float32)
    tl.store(delta_ptr + position, tl.sum(product, axis=1))


@tw.jit
def backward_kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    dout_ptr,
    lse_ptr,
    delta_ptr,
    dq_ptr,
    dk_ptr,
    dv_ptr,
    positions,
    scale,
    scale2,
    D: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    CAUSAL: tl.constexpr,
):
    tile, head = tl.program_id(0), tl.program_id(1).to(tl.int64) * positions
    key, feature = tile * BLOCK_N + tl.arange(0, BLOCK_N), tl.arange(0, D)
    place = head * D + key[:, None] * D + feature
    k, v = tl.load(k_ptr + place), tl.load(v_ptr + place)
    dk, dv = tl.zeros((BLOCK_N, D), tl.float32), tl.zeros((BLOCK_N, D), tl.float32)
    first = tile * BLOCK_N // BLOCK_M * BLOCK_M if CAUSAL else 0
    for start in tl.range(first, positions, BLOCK_M):
        query = start + tl.arange(0, BLOCK_M)
        at = head * D + query[:, None] * D + feature
        q, dout = tl.load(q_ptr + at), tl.load(dout_ptr + at)
        # Transposed, keys by queries, so that dV and dK take them as they are.
        score = tl.dot(k, tl.trans(q)) * scale2
        dp = tl.dot(v, tl.trans(dout))
        p = tl.exp2(score - tl.load(lse_ptr + head + query))
        if CAUSAL:
            p = tl.where(query >= key[:, None], p, 0.0)
        dv = tl.dot(p.to(dout.dtype), dout, dv)
        ds = (p * (dp - tl.load(delta_ptr + head + query))).to(q.dtype)
        dq = tl.dot(tl.trans(ds), k)
        dk = tl.dot(ds, q, dk)
        tl.atomic_add(dq_ptr + at, dq, sem="relaxed")
    tl.store(dk_ptr + place, (dk * scale).to(dk_ptr.dtype.element_ty))
    tl.store(dv_ptr + place, dv.to(dv_ptr.dtype.element_ty))


_HALVES = "q_ptr=*fp16:16, k_ptr=*fp16:16, v_ptr=*fp16:16"

__tilewright_signatures__ = {
    "forward_kernel": (
        f"{_HALVES}, out_ptr=*fp16:16, lse_ptr=*fp32:16, positions=i32:16, scale2=fp32",
        {"D": 64, "BLOCK_M": 64, "BLOCK_N": 64, "CAUSAL": True},
    ),
    "delta_kernel": (
        "out_ptr=*fp16:16, dout_ptr=*fp16:16, delta_ptr=*fp32:16",
        {"D": 64, "BLOCK": 64},
    ),
    "backward_kernel": (
        f"{_HALVES}, dout_ptr=*fp16:16, lse_ptr=*fp32:16, delta_ptr=*fp32:16, dq_ptr=*fp32:16, "
        "dk_ptr=*fp16:16, dv_ptr=*fp16:16, positions=i32:16, scale=fp32, scale2=fp32",
        {"D": 64, "BLOCK_M": 64, "BLOCK_N": 64, "CAUSAL": False},
    ),
}


class Attention(torch.autograd.Function):
    """``Attention.apply(q, k, v, causal)``: softmax(q kᵀ / √D) v of tensors (batch, heads,
    positions, D), where D is a power of two, and the positions are a multiple of `BLOCK`."""

    @staticmethod
    def forward(ctx: Any, q: Any, k: Any, v: Any, causal: bool) -> Any:
        q, k, v = (x.contiguous() for x in (q, k, v))
        batch, heads, positions, d = q.shape
        out = torch.empty_like(q)
        lse = torch.empty(q.shape[:-1], dtype=torch.float32, device=q.device)
        forward_kernel[(positions // BLOCK, batch * heads)](
            q, k, v, out, lse, positions, math.log2(math.e) / d**0.5,
            D=d, BLOCK_M=BLOCK, BLOCK_N=BLOCK, CAUSAL=causal,
        )  # fmt: skip
        ctx.save_for_backward(q, k, v, out, lse)
        ctx.causal = causal
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        q, k, v, out, lse = ctx.saved_tensors
        dout = gradients[0].contiguous()
        batch, heads, positions, d = q.shape
        delta, dk, dv = torch.empty_like(lse), torch.empty_like(k), torch.empty_like(v)
        dq = torch.zeros(q.shape, dtype=torch.float32, device=q.device)
        delta_kernel[(lse.numel() // BLOCK,)](out, dout, delta, D=d, BLOCK=BLOCK)
        # On Hopper, two tiles of keys in a program share what it loads and adds.
        keys = 2 * BLOCK if positions % (2 * BLOCK) == 0 else BLOCK
        scale = d**-0.5
        backward_kernel[(positions // keys, batch * heads)](
            q, k, v, dout, lse, delta, dq, dk, dv, positions, scale, scale * math.log2(math.e),
            D=d, BLOCK_M=BLOCK, BLOCK_N=keys, CAUSAL=ctx.causal, num_warps=8, num_stages=2,
        )  # fmt: skip
        return (dq * scale).to(q.dtype), dk, dv, None


def main() -> None:
    shape = (1, 2, 128, 32) if QUICK else (1, 8, 1024, 64)
    torch.manual_seed(0)
    q, k, v = (torch.randn(shape, requires_grad=True) for _ in range(3))
    dout = torch.randn(shape)

    def ours(causal: bool) -> Any:
        return Attention.apply(q, k, v, causal)

    def torchs(causal: bool) -> Any:
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)

    def gradients_of(function: Any, causal: bool) -> Any:
        return torch.autograd.grad(function(causal), (q, k, v), dout)

    for causal in (False, True):
        kind = "causal" if causal else "full"
        check(f"{kind} attention", ours(causal).detach(), torchs(causal).detach(), 1e-5)
        results = (gradients_of(f, causal) for f in (ours, torchs))
        for name, got, expected in zip("qkv", *results, strict=True):
            check(f"d{name}", got, expected, 1e-4)
    print("causal, forward and backward")
    compare_speed(
        {
            "tilewright": lambda: gradients_of(ours, True),
            "torch": lambda: gradients_of(torchs, True),
        }
    )


if __name__ == "__main__":
    main()
