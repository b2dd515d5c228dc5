"""Reference implementations of liger-kernel's operators in torch.

A reference takes the same arguments as the operator's ``Function.apply``; its results correspond to
the operator's first results.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

Tensor = torch.Tensor


def _rms(x: Tensor, eps: float) -> Tensor:
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps)


def rms_norm(x: Tensor, w: Tensor, eps: float, *_: Any) -> Tensor:
    return _rms(x, eps) * w


def fused_add_rms_norm(x: Tensor, r: Tensor, w: Tensor, eps: float) -> Any:
    return _rms(x + r, eps) * w, x + r


def modulated(x: Tensor, w: Tensor, scale: Tensor, shift: Tensor, eps: float, *_: Any) -> Tensor:
    return (1 + scale[:, None]) * (_rms(x, eps) * w) + shift[:, None]


def poly_norm(x: Tensor, w: Tensor, b: Tensor, eps: float, *_: Any) -> Tensor:
    return w[0] * _rms(x**3, eps) + w[1] * _rms(x**2, eps) + w[2] * _rms(x, eps) + b


def sparsemax(x: Tensor, dim: int) -> Tensor:
    z, _ = torch.sort(x, dim=dim, descending=True)
    k = torch.arange(1, x.shape[dim] + 1, device=x.device)
    support = 1 + k * z > z.cumsum(dim)
    count = support.sum(dim, keepdim=True)
    tau = ((z * support).sum(dim, keepdim=True) - 1) / count
    return F.relu(x - tau)  # elements equal to tau are not in the support


def fused_gate_up(y: Tensor) -> Tensor:
    gate, up = y.chunk(2, -1)
    return F.silu(gate) * up


def _turned(x: Tensor) -> Tensor:
    first, second = x.chunk(2, -1)
    return torch.cat((-second, first), -1)


def rope(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> Any:
    cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)
    return q * cos + _turned(q) * sin, k * cos + _turned(k) * sin


def mrope(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, sections: list[int]) -> Any:
    def chosen(x: Tensor) -> Tensor:
        parts = x.split(sections * 2, -1)
        return torch.cat([part[i % 3] for i, part in enumerate(parts)], -1)

    return rope(q, k, chosen(cos), chosen(sin))


def llama4_rope(q: Tensor, k: Tensor, freqs: Tensor) -> Any:
    def turn(x: Tensor) -> Tensor:
        pairs = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2))
        return torch.view_as_real(pairs * freqs[None, :, None, :]).flatten(3)

    return turn(q), turn(k)


def cross_entropy(x: Tensor, target: Tensor, weight: Any, *_: Any) -> Tensor:
    return F.cross_entropy(x, target, weight, label_smoothing=0.1)


def jsd(q: Tensor, p: Tensor) -> Tensor:
    mean = torch.logsumexp(torch.stack((q, p)), 0) - torch.log(torch.tensor(2.0))
    parts = [F.kl_div(mean, side, reduction="batchmean", log_target=True) for side in (p, q)]
    return (parts[0] + parts[1]) / 2


def tvd(p: Tensor, q: Tensor) -> Tensor:
    return (p - q).abs().sum() / 2 / p.shape[0]


def linear_cross_entropy(x: Tensor, w: Tensor, target: Tensor, bias: Tensor) -> Tensor:
    return F.cross_entropy(F.linear(x, w, bias), target)


def linear_jsd(x: Tensor, w: Tensor, teacher: Tensor, teacher_w: Tensor) -> Tensor:
    return jsd(F.log_softmax(x @ w.T, -1), F.log_softmax(teacher @ teacher_w.T, -1))


def linear_kl_div(x: Tensor, w: Tensor, target: Tensor) -> Tensor:
    return F.kl_div(F.log_softmax(x @ w.T, -1), target, reduction="batchmean")


def ce_tvd(student: Tensor, teacher: Tensor, target: Tensor) -> Any:
    distance = (student.softmax(-1) - teacher.softmax(-1)).abs().sum(-1) / 2
    return F.cross_entropy(student, target, reduction="none"), distance


def scaled_cross_entropy(x: Tensor, w: Tensor, target: Tensor, temperature: float) -> Tensor:
    return F.cross_entropy(x @ w.T / temperature, target, reduction="none")


def grpo(*args: Any) -> Tensor:
    logits, old, ref, ids, advantages, mask, temperature, beta, low, high, *_ = args
    logs = (logits[:, :-1] / temperature).log_softmax(-1)
    logp = logs.gather(-1, ids[..., None])[..., 0]
    ratio = torch.exp(logp - old)
    gain = advantages[:, None]
    loss = -torch.min(ratio * gain, ratio.clamp(1 - low, 1 + high) * gain)
    loss = loss + beta * (torch.exp(ref - logp) - (ref - logp) - 1)
    return ((loss * mask).sum(1) / mask.sum(1)).mean()


def multi_token(scores: Tensor, w: Tensor, b: Tensor, stride: int, padding: int) -> Tensor:
    ahead = torch.ones(scores.shape[-2:], device=scores.device).triu(1).bool()
    weights = scores.masked_fill(ahead, -torch.inf).softmax(-1)
    return F.conv2d(weights, w, b, stride, padding).masked_fill(ahead, 0.0)


def neighborhood(q: Tensor, k: Tensor, v: Tensor, size: int) -> Tensor:
    i = torch.arange(q.shape[2], device=q.device)
    far = (i[:, None] - i[None, :]).abs() > size // 2
    scores = (q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5).masked_fill(far, -torch.inf)
    return scores.softmax(-1) @ v


def attn_res(blocks: Tensor, query: Tensor, norm: Tensor, eps: float) -> Tensor:
    scores = torch.einsum("d,n...d->n...", query, _rms(blocks, eps) * norm)
    return torch.einsum("n...,n...d->...d", scores.softmax(0), blocks)


def mhc_coeffs(x: Tensor, phi: Tensor, b: Tensor, *rest: Any) -> Any:
    (pre, post, res), (_, rounds, rms_eps, pre_eps, eps, factor) = rest[:3], rest[3:]
    n = x.shape[-2]
    mix = _rms(x.flatten(-2), rms_eps) @ phi
    first, second, square = mix.split([n, n, n * n], -1)
    b_first, b_second, b_square = b.split([n, n, n * n])
    matrix = (square * res + b_square).unflatten(-1, (n, n)).softmax(-1) + eps
    matrix = matrix / (matrix.sum(-2, keepdim=True) + eps)
    for _ in range(rounds - 1):
        matrix = matrix / (matrix.sum(-1, keepdim=True) + eps)
        matrix = matrix / (matrix.sum(-2, keepdim=True) + eps)
    weights = torch.sigmoid(first * pre + b_first) + pre_eps
    return weights, torch.sigmoid(second * post + b_second) * factor, matrix


def mhc_post_res(x: Tensor, f: Tensor, post: Tensor, res: Tensor) -> Tensor:
    return torch.einsum("noi,nic->noc", res, x) + post[..., None] * f[:, None]


def moe(x: Tensor, up: Tensor, down: Tensor, index: Tensor, weights: Tensor) -> Tensor:
    """Applies every expert to every row, and sums the results weighted by the routing."""
    out = torch.zeros_like(x)
    for expert in range(up.shape[0]):
        share = (weights * (index == expert)).sum(1, keepdim=True)
        out = out + share * F.linear(fused_gate_up(F.linear(x, up[expert])), down[expert])
    return out


def mlp(x: Tensor, gate: Tensor, up: Tensor, down: Tensor) -> Tensor:
    return F.linear(F.silu(F.linear(x, gate)) * F.linear(x, up), down)
