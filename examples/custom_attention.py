"""Attention with a score of one's own, trained without a hand-written gradient.
python examples/custom_attention.py

The score of query i and key j ≤ i is

    s = cap tanh(q kᵀ / (√D cap)) - slope (i - j)

with a slope for each head that is learned, as the vectors are. The forward kernel is all that is
written: `tw.autograd_function` makes it an operator of torch, whose gradient is derived. It has a
kernel for the gradient of the queries and the slopes and one for that of keys and values, as
hand-written gradients of attention do; neither stores the scores, and there are no atomics. On a
GPU, the same script runs there.
"""

from __future__ import annotations

import math
from typing import Any

from report import QUICK, check, compare_speed, require_torch

import tilewright as tw
import tilewright.language as tl

torch = require_torch("autograd")

CAP = 5.0
BLOCK = 32 if QUICK else 64
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@tw.jit
def tanh(x):
    return 2 * tl.sigmoid(2 * x) - 1


@tw.jit
def score(dot, slope, distance, CAP: tl.constexpr):
    """Change this function to try another score."""
    return CAP * tanh(dot / CAP) - slope * distance


@tw.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, slope_ptr, out_ptr, lse_ptr, positions, scale,
    D: tl.constexpr, BLOCK: tl.constexpr, CAP: tl.constexpr,
):  # fmt: skip
    """A tile of queries of one head. `lse` lets the gradient compute the weights of keys anew."""
    head = tl.program_id(1)
    first = tl.program_id(0) * BLOCK
    row, d = first + tl.arange(0, BLOCK), tl.arange(0, D)
    start = head.to(tl.int64) * positions * D
    place = start + row[:, None] * D + d[None, :]
    q = tl.load(q_ptr + place)
    slope = tl.load(slope_ptr + head)
    peak = tl.full([BLOCK], -float("inf"), tl.float32)
    total = tl.zeros([BLOCK], tl.float32)
    out = tl.zeros([BLOCK, D], tl.float32)
    for begin in tl.range(0, first + BLOCK, BLOCK):
        column = begin + tl.arange(0, BLOCK)
        tile = start + column[:, None] * D + d[None, :]
        k, v = tl.load(k_ptr + tile), tl.load(v_ptr + tile)
        distance = row[:, None] - column[None, :]
        s = score(tl.dot(q, tl.trans(k)) * scale, slope, distance, CAP)
        s = tl.where(distance >= 0, s, -float("inf"))
        larger = tl.maximum(peak, tl.max(s, axis=1))
        weight, shrink = tl.exp(s - larger[:, None]), tl.exp(peak - larger)
        total = total * shrink + tl.sum(weight, axis=1)
        out = tl.dot(weight.to(v.dtype), v, out * shrink[:, None])
        peak = larger
    tl.store(out_ptr + place, (out / total[:, None]).to(q.dtype))
    tl.store(lse_ptr + head * positions + row, peak + tl.log(total))


__tilewright_signatures__ = {
    "attention_kernel": (
        "q_ptr=*fp16:16, k_ptr=*fp16:16, v_ptr=*fp16:16, slope_ptr=*fp32:16, out_ptr=*fp16:16, "
        "lse_ptr=*fp32:16, positions=i32:16, scale=fp32",
        {"D": 64, "BLOCK": 64, "CAP": CAP},
    ),
}

attend = tw.autograd_function(
    attention_kernel,
    grid=lambda a: (a["positions"] // a["BLOCK"], a["q_ptr"].shape[0]),
    outputs={
        "out_ptr": lambda a: torch.empty_like(a["q_ptr"]),
        "lse_ptr": lambda a: a["q_ptr"].new_empty(a["q_ptr"].shape[:2], dtype=torch.float32),
    },
)


def attention(q: Any, k: Any, v: Any, slope: Any) -> Any:
    """Attention of tensors (heads, positions, D) with a slope for each head."""
    _, positions, d = q.shape
    out, _ = attend(q, k, v, slope, positions, d**-0.5, D=d, BLOCK=BLOCK, CAP=CAP)
    return out


def eager_attention(q: Any, k: Any, v: Any, slope: Any) -> Any:
    """The same in plain torch."""
    at = torch.arange(q.shape[1], device=q.device)
    distance = at[:, None] - at[None, :]
    s = CAP * torch.tanh(q @ k.mT * (q.shape[2] ** -0.5 / CAP)).float()
    s = s - slope[:, None, None] * distance
    return s.masked_fill(distance < 0, -math.inf).softmax(-1).to(v.dtype) @ v


def main() -> None:
    heads, positions, d = (2, 64, 16) if QUICK else (8, 1024, 64)
    torch.manual_seed(0)
    shape = (heads, positions, d)
    leaves = [torch.randn(shape, device=DEVICE, requires_grad=True) for _ in range(3)]
    leaves.append((torch.rand(heads, device=DEVICE) * 0.1).requires_grad_())
    dout = torch.randn(shape, device=DEVICE)

    def gradients_of(function: Any, inputs: Any, dout: Any) -> Any:
        return torch.autograd.grad(function(*inputs), inputs, dout)

    exact = [leaf.detach().double().requires_grad_() for leaf in leaves]
    result, expected = attention(*leaves), eager_attention(*exact)
    check("attention", result.detach().cpu(), expected.detach().cpu(), 1e-2)
    ours = gradients_of(attention, leaves, dout)
    torchs = gradients_of(eager_attention, exact, dout.double())
    for name, got, want in zip(("q", "k", "v", "slope"), ours, torchs, strict=True):
        largest = want.abs().max()
        check(f"d{name}", (got / largest).cpu(), (want / largest).cpu(), 1e-2)
    print("forward and backward")
    compare_speed(
        {
            "tilewright": lambda: gradients_of(attention, leaves, dout),
            "eager torch": lambda: gradients_of(eager_attention, leaves, dout),
        },
        wait=torch.cuda.synchronize if DEVICE == "cuda" else None,
    )


if __name__ == "__main__":
    main()
