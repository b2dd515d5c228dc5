"""The operators of liger-kernel: inputs for each, and what torch says that they compute.

A reference takes the same arguments as the operator's ``Function.apply``, and its results are the
first of the operator's. All is fp32, so that what differs is an error and not rounding of types.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F

Tensor = torch.Tensor


class Make:
    """Random tensors on a device, the same at each run."""

    def __init__(self, device: str) -> None:
        self.device = device
        self._state = torch.Generator().manual_seed(7)

    def __call__(self, *shape: int, scale: float = 1.0) -> Tensor:
        """A leaf that wants its gradient, normally distributed."""
        x = torch.randn(shape, generator=self._state) * scale
        return x.to(self.device).requires_grad_()

    def positive(self, *shape: int) -> Tensor:
        """Leaf rows that are distributions: positive, of sum 1."""
        return self(*shape).softmax(-1).detach().requires_grad_()

    def logs(self, *shape: int) -> Tensor:
        """Leaf rows that are logarithms of distributions."""
        return self(*shape).log_softmax(-1).detach().requires_grad_()

    def below(self, n: int, *shape: int) -> Tensor:
        """Integers from 0 to n - 1."""
        return torch.randint(n, shape, generator=self._state).to(self.device)


@dataclass(frozen=True)
class Operator:
    """An operator of liger-kernel.

    Attributes:
        name: its module in `liger_kernel.ops`.
        function: the class in it.
        inputs: makes the arguments of ``apply``.
        reference: the same in torch.
        needs_cuda: what of it asks for CUDA itself, "" if nothing does.
        pose_as: what its module is told that the device is, where it knows none for the CPU.
    """

    name: str
    function: str
    inputs: Callable[[Make], tuple[Any, ...]]
    reference: Callable[..., Any] = field(repr=False)
    needs_cuda: str = ""
    pose_as: str = ""


def _rms(x: Tensor, eps: float) -> Tensor:
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps)


def _rms_norm(x: Tensor, w: Tensor, eps: float, *_: Any) -> Tensor:
    return _rms(x, eps) * w


def _fused_add_rms_norm(x: Tensor, r: Tensor, w: Tensor, eps: float) -> Any:
    return _rms(x + r, eps) * w, x + r


def _modulated(x: Tensor, w: Tensor, scale: Tensor, shift: Tensor, eps: float, *_: Any) -> Tensor:
    return (1 + scale) * (_rms(x, eps) * w) + shift


def _poly_norm(x: Tensor, w: Tensor, b: Tensor, eps: float, *_: Any) -> Tensor:
    return w[0] * _rms(x**3, eps) + w[1] * _rms(x**2, eps) + w[2] * _rms(x, eps) + b


def _sparsemax(x: Tensor, dim: int) -> Tensor:
    z, _ = torch.sort(x, dim=dim, descending=True)
    k = torch.arange(1, x.shape[dim] + 1, device=x.device)
    support = 1 + k * z > z.cumsum(dim)
    count = support.sum(dim, keepdim=True)
    tau = ((z * support).sum(dim, keepdim=True) - 1) / count
    return (x - tau).clamp(min=0)


def _fused_gate_up(y: Tensor) -> Tensor:
    gate, up = y.chunk(2, -1)
    return F.silu(gate) * up


def _turned(x: Tensor) -> Tensor:
    first, second = x.chunk(2, -1)
    return torch.cat((-second, first), -1)


def _rope(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> Any:
    cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)
    return q * cos + _turned(q) * sin, k * cos + _turned(k) * sin


def _mrope(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, sections: list[int]) -> Any:
    def chosen(x: Tensor) -> Tensor:
        parts = x.split(sections * 2, -1)
        return torch.cat([part[i % 3] for i, part in enumerate(parts)], -1)

    return _rope(q, k, chosen(cos), chosen(sin))


def _llama4_rope(q: Tensor, k: Tensor, freqs: Tensor) -> Any:
    def turn(x: Tensor) -> Tensor:
        pairs = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2))
        return torch.view_as_real(pairs * freqs[None, :, None, :]).flatten(3)

    return turn(q), turn(k)


def _angles(make: Make, *shape: int) -> tuple[Tensor, Tensor]:
    half = make(*shape).detach()
    angles = torch.cat((half, half), -1)
    return angles.cos(), angles.sin()


def _rope_inputs(make: Make) -> tuple[Any, ...]:
    return make(2, 4, 19, 32), make(2, 2, 19, 32), *_angles(make, 2, 19, 16)


def _mrope_inputs(make: Make) -> tuple[Any, ...]:
    return make(2, 4, 19, 32), make(2, 2, 19, 32), *_angles(make, 3, 2, 19, 16), [4, 6, 6]


def _llama4_inputs(make: Make) -> tuple[Any, ...]:
    angle = make(19, 16).detach()
    return make(2, 19, 4, 32), make(2, 19, 2, 32), torch.polar(torch.ones_like(angle), angle)


def _cross_entropy(x: Tensor, target: Tensor, weight: Any, *_: Any) -> Tensor:
    return F.cross_entropy(x, target, weight, label_smoothing=0.1)


def _jsd(q: Tensor, p: Tensor) -> Tensor:
    mean = torch.logsumexp(torch.stack((q, p)), 0) - torch.log(torch.tensor(2.0))
    parts = [F.kl_div(mean, side, reduction="batchmean", log_target=True) for side in (p, q)]
    return (parts[0] + parts[1]) / 2


def _tvd(p: Tensor, q: Tensor) -> Tensor:
    return (p - q).abs().sum() / 2 / p.shape[0]


def _linear_cross_entropy(x: Tensor, w: Tensor, target: Tensor, bias: Tensor) -> Tensor:
    return F.cross_entropy(F.linear(x, w, bias), target)


def _linear_jsd(x: Tensor, w: Tensor, teacher: Tensor, teacher_w: Tensor) -> Tensor:
    return _jsd(F.log_softmax(x @ w.T, -1), F.log_softmax(teacher @ teacher_w.T, -1))


def _linear_kl_div(x: Tensor, w: Tensor, target: Tensor) -> Tensor:
    return F.kl_div(F.log_softmax(x @ w.T, -1), target, reduction="batchmean")


def _ce_tvd(student: Tensor, teacher: Tensor, target: Tensor) -> Any:
    distance = (student.softmax(-1) - teacher.softmax(-1)).abs().sum(-1) / 2
    return F.cross_entropy(student, target, reduction="none"), distance


def _scaled_cross_entropy(x: Tensor, w: Tensor, target: Tensor, temperature: float) -> Tensor:
    return F.cross_entropy(x @ w.T / temperature, target, reduction="none")


def _grpo(*args: Any) -> Tensor:
    logits, old, ref, ids, advantages, mask, temperature, beta, low, high, *_ = args
    logs = (logits[:, :-1] / temperature).log_softmax(-1)
    logp = logs.gather(-1, ids[..., None])[..., 0]
    ratio = torch.exp(logp - old)
    gain = advantages[:, None]
    loss = -torch.min(ratio * gain, ratio.clamp(1 - low, 1 + high) * gain)
    loss = loss + beta * (torch.exp(ref - logp) - (ref - logp) - 1)
    return ((loss * mask).sum(1) / mask.sum(1)).mean()


def _grpo_inputs(make: Make) -> tuple[Any, ...]:
    b, length, words = 3, 9, 70
    old, ref = (make(b, length, scale=0.1).detach() - 4 for _ in range(2))
    ids = make.below(words, b, length)
    mask = torch.ones(b, length, device=make.device)
    mask[1, 6:] = 0
    gains = make(b).detach()
    return make(b, length + 1, words), old, ref, ids, gains, mask, 0.9, 0.04, 0.2, 0.2, False


def _multi_token(scores: Tensor, w: Tensor, b: Tensor, stride: int, padding: int) -> Tensor:
    ahead = torch.ones(scores.shape[-2:], device=scores.device).triu(1).bool()
    weights = scores.masked_fill(ahead, -torch.inf).softmax(-1)
    return F.conv2d(weights, w, b, stride, padding).masked_fill(ahead, 0.0)


def _neighborhood(q: Tensor, k: Tensor, v: Tensor, size: int) -> Tensor:
    i = torch.arange(q.shape[2], device=q.device)
    far = (i[:, None] - i[None, :]).abs() > size // 2
    scores = (q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5).masked_fill(far, -torch.inf)
    return scores.softmax(-1) @ v


def _attn_res(blocks: Tensor, query: Tensor, norm: Tensor, eps: float) -> Tensor:
    scores = torch.einsum("d,n...d->n...", query, _rms(blocks, eps) * norm)
    return torch.einsum("n...,n...d->...d", scores.softmax(0), blocks)


def _mhc_coeffs(x: Tensor, phi: Tensor, b: Tensor, *rest: Any) -> Any:
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


def _mhc_inputs(make: Make) -> tuple[Any, ...]:
    scales = make(), make(), make()
    return (
        make(21, 4, 96),
        make(384, 24, scale=0.1),
        make(24),
        *scales,
        True,
        5,
        1e-6,
        0.0,
        1e-6,
        2.0,
    )


def _mhc_post_res(x: Tensor, f: Tensor, post: Tensor, res: Tensor) -> Tensor:
    return torch.einsum("noi,nic->noc", res, x) + post[..., None] * f[:, None]


def _moe(x: Tensor, up: Tensor, down: Tensor, index: Tensor, weights: Tensor) -> Tensor:
    rows = torch.einsum("th,teih->tei", x, up[index])
    inner = _fused_gate_up(rows)
    return (torch.einsum("tei,tehi->teh", inner, down[index]) * weights[..., None]).sum(1)


def _moe_inputs(make: Make) -> tuple[Any, ...]:
    index = make(23, 4).topk(2).indices.int()
    return (
        make(23, 64),
        make(4, 96, 64, scale=0.1),
        make(4, 64, 48, scale=0.1),
        index,
        make.positive(23, 2),
    )


def _mlp(x: Tensor, gate: Tensor, up: Tensor, down: Tensor) -> Tensor:
    return F.linear(F.silu(F.linear(x, gate)) * F.linear(x, up), down)


OPERATORS = (
    Operator(
        "attn_res", "LigerAttnResFunction",
        lambda m: (m(4, 2, 9, 96), m(96), m(96), 1e-6), _attn_res,
    ),
    Operator(
        "cross_entropy", "LigerCrossEntropyFunction",
        lambda m: (m(40, 3001), m.below(3001, 40), None, -100, 0.0, 0.1), _cross_entropy,
    ),
    Operator(
        "dyt", "LigerDyTFunction",
        lambda m: (m(6, 9, 200), m(1), m(200), m(200)),
        lambda x, alpha, gamma, beta: gamma * torch.tanh(alpha * x) + beta,
        pose_as="npu",  # on the CPU its backward would not know how many processors there are
    ),
    Operator(
        "experimental.embedding", "LigerEmbeddingFunction",
        lambda m: (m(50, 72), m.below(50, 7, 11)), lambda e, i: F.embedding(i, e),
    ),
    Operator(
        "fused_add_rms_norm", "LigerFusedAddRMSNormFunction",
        lambda m: (m(5, 7, 300), m(5, 7, 300), m(300), 1e-6), _fused_add_rms_norm,
    ),
    Operator(
        "fused_ce_tvd", "LigerFusedCETVDFunction",
        lambda m: (m(12, 1500), m(12, 1500).detach(), m.below(1500, 12)), _ce_tvd,
    ),
    Operator(
        "fused_linear_cross_entropy", "LigerFusedLinearCrossEntropyFunction",
        lambda m: (m(33, 64), m(500, 64), m.below(500, 33), m(500)), _linear_cross_entropy,
    ),
    Operator(
        "fused_linear_jsd", "LigerFusedLinearJSDFunction",
        lambda m: (m(33, 64), m(500, 64, scale=0.1), m(33, 96).detach(),
                   m(500, 96, scale=0.1).detach()), _linear_jsd,
    ),
    Operator(
        "fused_linear_kl_div", "LigerFusedLinearKLDivFunction",
        lambda m: (m(33, 64), m(500, 64, scale=0.1), m.positive(33, 500).detach()), _linear_kl_div,
    ),
    Operator(
        "fused_linear_scaled_cross_entropy", "LigerFusedLinearScaledCrossEntropyFunction",
        lambda m: (m(33, 64), m(500, 64, scale=0.1), m.below(500, 33), 0.8), _scaled_cross_entropy,
    ),
    Operator("fused_moe", "LigerFusedMoEFunction", _moe_inputs, _moe),
    Operator(
        "fused_neighborhood_attention", "LigerFusedNeighborhoodAttentionFunction",
        lambda m: (m(2, 3, 50, 32), m(2, 3, 50, 32), m(2, 3, 50, 32), 7), _neighborhood,
    ),
    Operator(
        "geglu", "LigerGELUMulFunction", lambda m: (m(5, 7, 300), m(5, 7, 300)),
        lambda a, b: F.gelu(a, approximate="tanh") * b,
    ),
    Operator(
        "group_norm", "LigerGroupNormFunction",
        lambda m: (m(3, 12, 100), m(12), m(12), 12, 4, 1e-6),
        lambda x, w, b, _, groups, eps: F.group_norm(x, groups, w, b, eps),
    ),
    Operator("grpo_loss", "GrpoLossFunction", _grpo_inputs, _grpo),
    Operator(
        "jsd", "LigerJSDFunction", lambda m: (m.logs(30, 700), m.logs(30, 700).detach()), _jsd
    ),
    Operator(
        "kl_div", "LigerKLDivLossFunction",
        lambda m: (m.logs(30, 700), m.positive(30, 700).detach(), "batchmean"),
        lambda x, y, reduction: F.kl_div(x, y, reduction=reduction),
    ),
    Operator(
        "layer_norm", "LigerLayerNormFunction",
        lambda m: (m(5, 7, 300), m(300), m(300), 1e-6),
        lambda x, w, b, eps: F.layer_norm(x, (x.shape[-1],), w, b, eps),
    ),
    Operator("llama4_rope", "LigerLlama4RopeFunction", _llama4_inputs, _llama4_rope),
    Operator("mhc", "LigerMHCCoeffsFunction", _mhc_inputs, _mhc_coeffs),
    Operator(
        "mhc", "LigerMHCPreFunction", lambda m: (m(21, 4, 96), m(21, 4)),
        lambda x, pre: (x * pre[..., None]).sum(-2),
    ),
    Operator(
        "mhc", "LigerMHCPostResFunction",
        lambda m: (m(21, 4, 96), m(21, 96), m(21, 4), m(21, 4, 4)), _mhc_post_res,
    ),
    Operator(
        "mlp", "LigerMLPFunction",
        lambda m: (m(64, 128), m(256, 128, scale=0.1), m(256, 128, scale=0.1),
                   m(128, 256, scale=0.1)), _mlp,
        needs_cuda="it asserts that its tensors are on CUDA",
    ),
    Operator(
        "modulated_rms_norm", "LigerModulatedRMSNormFunction",
        lambda m: (m(5, 7, 300), m(300), m(5, 300), m(5, 300), 1e-6, 0.0, "llama", False),
        lambda x, w, scale, shift, eps, *_: _modulated(x, w, scale[:, None], shift[:, None], eps),
    ),
    Operator(
        "multi_token_attention", "LigerMultiTokenAttentionFunction",
        lambda m: (m(2, 4, 24, 24), m(4, 4, 3, 3), m(4), 1, 1), _multi_token,
    ),
    Operator(
        "poly_norm", "LigerPolyNormFunction",
        lambda m: (m(5, 7, 300), m(3), m(), 1e-6, False), _poly_norm,
    ),
    Operator("qwen2vl_mrope", "LigerQwen2VLMRopeFunction", _mrope_inputs, _mrope),
    Operator(
        "relu_squared", "LigerReLUSquaredFunction", lambda m: (m(5, 7, 300),),
        lambda x: F.relu(x) ** 2,
    ),
    Operator(
        "rms_norm", "LigerRMSNormFunction",
        lambda m: (m(5, 7, 300), m(300), 1e-6, 0.0, "llama", False), _rms_norm,
    ),
    Operator("rope", "LigerRopeFunction", _rope_inputs, _rope),
    Operator("softmax", "LigerSoftmaxFunction", lambda m: (m(5, 7, 300),), lambda x: x.softmax(-1)),
    Operator("sparsemax", "LigerSparsemaxFunction", lambda m: (m(35, 300), -1), _sparsemax),
    Operator(
        "swiglu", "LigerSiLUMulFunction", lambda m: (m(5, 7, 300), m(5, 7, 300)),
        lambda a, b: F.silu(a) * b,
    ),
    Operator(
        "swiglu", "LigerFusedGateUpSiLUMulFunction", lambda m: (m(35, 600),), _fused_gate_up
    ),
    Operator(
        "tvd", "LigerTVDLossFunction",
        lambda m: (m.positive(30, 700), m.positive(30, 700).detach()), _tvd,
    ),
    Operator(
        "vocab_parallel_cross_entropy", "LigerVocabParallelCEFunction",
        lambda m: (m(9, 4, 501), m.below(501, 9, 4), None, -100, 0.0, "standard", "local"),
        lambda x, target, *_: F.cross_entropy(x.movedim(-1, 1), target, reduction="none"),
    ),
)  # fmt: skip
