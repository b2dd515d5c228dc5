"""The operators of liger-kernel with their inputs: small ones, and those of a large model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F

from benchmarks.liger import references as ref
from benchmarks.liger.make import Make

Sizes = tuple[Any, ...]


@dataclass(frozen=True)
class Operator:
    """An operator of liger-kernel.

    Attributes:
        name: its module in `liger_kernel.ops`.
        function: the class in it.
        inputs: creates the arguments of ``apply`` for given sizes.
        reference: the same in torch.
        small: sizes for comparing results; odd, so that masks matter.
        large: sizes for timing: those of a model with billions of parameters.
        needs_cuda: why it works on CUDA only, "" if it does not.
        pose_as: the device that its module is made to detect, if it does not support the CPU.
        slack: factor of the tolerance in 16-bit types, for operators that round intermediates.
    """

    name: str
    function: str
    inputs: Callable[..., tuple[Any, ...]]
    reference: Callable[..., Any] = field(repr=False)
    small: Sizes
    large: Sizes
    needs_cuda: str = ""
    pose_as: str = ""
    slack: float = 1.0

    @property
    def label(self) -> str:
        return f"{self.name}: {self.function}"


def _rope(make: Make, b: int, heads: int, kv_heads: int, t: int, d: int) -> tuple[Any, ...]:
    return make(b, heads, t, d), make(b, kv_heads, t, d), *make.angles(b, t, d // 2)


def _mrope(
    make: Make, b: int, heads: int, kv_heads: int, t: int, sections: list[int]
) -> tuple[Any, ...]:
    half = sum(sections)
    q, k = make(b, heads, t, 2 * half), make(b, kv_heads, t, 2 * half)
    return q, k, *make.angles(3, b, t, half), sections


def _llama4(make: Make, b: int, t: int, heads: int, kv_heads: int, d: int) -> tuple[Any, ...]:
    angle = make.normal(t, d // 2)
    turns = torch.polar(torch.ones_like(angle), angle)
    return make(b, t, heads, d), make(b, t, kv_heads, d), turns


def _grpo(make: Make, b: int, length: int, words: int) -> tuple[Any, ...]:
    old, reference = (make.normal(b, length, scale=0.1) - 4 for _ in range(2))
    ids = make.below(words, b, length)
    mask = torch.ones(b, length, device=make.device)
    mask[1, length // 2 :] = 0
    logits = make(b, length + 1, words)
    return logits, old, reference, ids, make.normal(b), mask, 0.9, 0.04, 0.2, 0.2, False


def _mhc_coeffs(make: Make, n: int, streams: int, c: int) -> tuple[Any, ...]:
    outs = streams * streams + 2 * streams
    x, phi = make(n, streams, c), make(streams * c, outs, scale=0.1)
    numbers = make.fp32(outs), make.fp32(), make.fp32(), make.fp32()
    return x, phi, *numbers, True, 5, 1e-6, 0.0, 1e-6, 2.0


def _moe(make: Make, t: int, h: int, experts: int, inner: int) -> tuple[Any, ...]:
    index = make.normal(t, experts).topk(2).indices.int()
    weights = make.positive(t, 2)
    up = make(experts, 2 * inner, h, scale=h**-0.5)
    return make(t, h), up, make(experts, h, inner, scale=inner**-0.5), index, weights


def _mlp(make: Make, b: int, t: int, h: int, inner: int) -> tuple[Any, ...]:
    up = [make(inner, h, scale=h**-0.5) for _ in range(2)]
    return make(b, t, h), *up, make(h, inner, scale=inner**-0.5)


def _linear(make: Make, t: int, h: int, words: int) -> tuple[Any, ...]:
    return make(t, h), make(words, h, scale=h**-0.5)


def _linear_jsd(make: Make, t: int, h: int, teacher_h: int, words: int) -> tuple[Any, ...]:
    teacher = [x.detach() for x in _linear(make, t, teacher_h, words)]
    return *_linear(make, t, h, words), *teacher


MODEL = (4, 2048, 4096)
"""Sequences, their length and the width of a row, in the large sizes."""

INNER = (4, 2048, 14336)
"""The same within a multilayer perceptron."""

WORDS = 128256
"""Vocabulary size in the large sizes."""

OPERATORS = (
    Operator(
        "attn_res", "LigerAttnResFunction",
        lambda m, *shape: (m(*shape), m(shape[-1]), m(shape[-1]), 1e-6), ref.attn_res,
        (4, 2, 9, 96), (8, 2, 2048, 4096),
        slack=4,  # rounds each key twice before it computes scores
    ),
    Operator(
        "cross_entropy", "LigerCrossEntropyFunction",
        lambda m, t, v: (m(t, v), m.below(v, t), None, -100, 0.0, 0.1), ref.cross_entropy,
        (40, 3001), (4096, WORDS),
    ),
    Operator(
        "dyt", "LigerDyTFunction",
        lambda m, *shape: (m(*shape), m(1), m(shape[-1]), m(shape[-1])),
        lambda x, alpha, gamma, beta: gamma * torch.tanh(alpha * x) + beta,
        (6, 9, 200), MODEL,
        pose_as="npu",  # its backward pass cannot determine the number of processors of a CPU
    ),
    Operator(
        "experimental.embedding", "LigerEmbeddingFunction",
        lambda m, v, h, *shape: (m(v, h), m.below(v, *shape)), lambda e, i: F.embedding(i, e),
        (50, 72, 7, 11), (WORDS, 4096, 4, 2048),
    ),
    Operator(
        "fused_add_rms_norm", "LigerFusedAddRMSNormFunction",
        lambda m, *shape: (m(*shape), m(*shape), m(shape[-1]), 1e-6), ref.fused_add_rms_norm,
        (5, 7, 300), MODEL,
    ),
    Operator(
        "fused_ce_tvd", "LigerFusedCETVDFunction",
        lambda m, t, v: (m(t, v), m(t, v).detach(), m.below(v, t)), ref.ce_tvd,
        (12, 1500), (4096, WORDS),
    ),
    Operator(
        "fused_linear_cross_entropy", "LigerFusedLinearCrossEntropyFunction",
        lambda m, t, h, v: (*_linear(m, t, h, v), m.below(v, t), m(v)), ref.linear_cross_entropy,
        (33, 64, 500), (4096, 4096, WORDS),
    ),
    Operator(
        "fused_linear_jsd", "LigerFusedLinearJSDFunction", _linear_jsd, ref.linear_jsd,
        (33, 64, 96, 500), (2048, 2048, 4096, WORDS),
    ),
    Operator(
        "fused_linear_kl_div", "LigerFusedLinearKLDivFunction",
        lambda m, t, h, v: (*_linear(m, t, h, v), m.positive(t, v).detach()), ref.linear_kl_div,
        (33, 64, 500), (2048, 4096, WORDS),
    ),
    Operator(
        "fused_linear_scaled_cross_entropy", "LigerFusedLinearScaledCrossEntropyFunction",
        lambda m, t, h, v: (*_linear(m, t, h, v), m.below(v, t), 0.8), ref.scaled_cross_entropy,
        (33, 64, 500), (2048, 4096, WORDS),
    ),
    Operator("fused_moe", "LigerFusedMoEFunction", _moe, ref.moe,
             (23, 64, 4, 48), (4096, 2048, 8, 1408)),
    Operator(
        "fused_neighborhood_attention", "LigerFusedNeighborhoodAttentionFunction",
        lambda m, *shape: (m(*shape), m(*shape), m(*shape), 7), ref.neighborhood,
        (2, 3, 50, 32), (2, 16, 1024, 64),
    ),
    Operator(
        "geglu", "LigerGELUMulFunction", lambda m, *shape: (m(*shape), m(*shape)),
        lambda a, b: F.gelu(a, approximate="tanh") * b, (5, 7, 300), INNER,
    ),
    Operator(
        "group_norm", "LigerGroupNormFunction",
        lambda m, b, c, n, groups: (m(b, c, n), m(c), m(c), c, groups, 1e-6),
        lambda x, w, b, _, groups, eps: F.group_norm(x, groups, w, b, eps),
        (3, 12, 100, 4), (128, 512, 512, 128),
    ),
    Operator("grpo_loss", "GrpoLossFunction", _grpo, ref.grpo, (3, 9, 70), (4, 1024, WORDS)),
    Operator(
        "jsd", "LigerJSDFunction", lambda m, t, v: (m.logs(t, v), m.logs(t, v).detach()), ref.jsd,
        (30, 700), (4096, WORDS),
    ),
    Operator(
        "kl_div", "LigerKLDivLossFunction",
        lambda m, t, v: (m.logs(t, v), m.positive(t, v).detach(), "batchmean"),
        lambda x, y, reduction: F.kl_div(x, y, reduction=reduction),
        (30, 700), (4096, WORDS),
    ),
    Operator(
        "layer_norm", "LigerLayerNormFunction",
        lambda m, *shape: (m(*shape), m(shape[-1]), m(shape[-1]), 1e-6),
        lambda x, w, b, eps: F.layer_norm(x, (x.shape[-1],), w, b, eps),
        (5, 7, 300), MODEL,
    ),
    Operator("llama4_rope", "LigerLlama4RopeFunction", _llama4, ref.llama4_rope,
             (2, 19, 4, 2, 32), (4, 2048, 32, 8, 128)),
    Operator("mhc", "LigerMHCCoeffsFunction", _mhc_coeffs, ref.mhc_coeffs,
             (21, 4, 96), (4096, 4, 2048)),
    Operator(
        "mhc", "LigerMHCPreFunction", lambda m, n, s, c: (m(n, s, c), m.fp32(n, s)),
        lambda x, pre: (x * pre[..., None]).sum(-2), (21, 4, 96), (8192, 4, 2048),
    ),
    Operator(
        "mhc", "LigerMHCPostResFunction",
        lambda m, n, s, c: (m(n, s, c), m(n, c), m.fp32(n, s), m.fp32(n, s, s)), ref.mhc_post_res,
        (21, 4, 96), (8192, 4, 2048),
    ),
    Operator(
        "mlp", "LigerMLPFunction", _mlp, ref.mlp, (2, 40, 128, 256), (2, 2048, 4096, 8192),
        needs_cuda="it asserts that its tensors are on CUDA",
    ),
    Operator(
        "modulated_rms_norm", "LigerModulatedRMSNormFunction",
        lambda m, b, t, h: (m(b, t, h), m(h), m(b, h), m(b, h), 1e-6, 0.0, "llama", False),
        ref.modulated,
        (5, 7, 300), MODEL,
    ),
    Operator(
        "multi_token_attention", "LigerMultiTokenAttentionFunction",
        lambda m, b, heads, t: (m(b, heads, t, t), m(heads, heads, 3, 3), m(heads), 1, 1),
        ref.multi_token, (2, 4, 24), (8, 16, 128),
    ),
    Operator(
        "poly_norm", "LigerPolyNormFunction",
        lambda m, *shape: (m(*shape), m(3), m(), 1e-6, False), ref.poly_norm, (5, 7, 300), MODEL,
    ),
    Operator("qwen2vl_mrope", "LigerQwen2VLMRopeFunction", _mrope, ref.mrope,
             (2, 4, 2, 19, [4, 6, 6]), (4, 32, 8, 2048, [16, 24, 24])),
    Operator(
        "relu_squared", "LigerReLUSquaredFunction", lambda m, *shape: (m(*shape),),
        lambda x: F.relu(x) ** 2, (5, 7, 300), INNER,
    ),
    Operator(
        "rms_norm", "LigerRMSNormFunction",
        lambda m, *shape: (m(*shape), m(shape[-1]), 1e-6, 0.0, "llama", False), ref.rms_norm,
        (5, 7, 300), MODEL,
    ),
    Operator("rope", "LigerRopeFunction", _rope, ref.rope,
             (2, 4, 2, 19, 32), (4, 32, 8, 2048, 128)),
    Operator(
        "softmax", "LigerSoftmaxFunction", lambda m, *shape: (m(*shape),), lambda x: x.softmax(-1),
        (5, 7, 300), MODEL,
    ),
    Operator("sparsemax", "LigerSparsemaxFunction", lambda m, *shape: (m(*shape), -1),
             ref.sparsemax, (35, 300), (8192, 4096)),
    Operator(
        "swiglu", "LigerSiLUMulFunction", lambda m, *shape: (m(*shape), m(*shape)),
        lambda a, b: F.silu(a) * b, (5, 7, 300), INNER,
    ),
    Operator(
        "swiglu", "LigerFusedGateUpSiLUMulFunction", lambda m, t, n: (m(t, n),), ref.fused_gate_up,
        (35, 600), (8192, 28672),
    ),
    Operator(
        "tvd", "LigerTVDLossFunction",
        lambda m, t, v: (m.positive(t, v), m.positive(t, v).detach()), ref.tvd,
        (30, 700), (4096, WORDS),
    ),
    Operator(
        "vocab_parallel_cross_entropy", "LigerVocabParallelCEFunction",
        lambda m, t, b, v: (m(t, b, v), m.below(v, t, b), None, -100, 0.0, "standard", "local"),
        lambda x, target, *_: F.cross_entropy(x.movedim(-1, 1), target, reduction="none"),
        (9, 4, 501), (1024, 4, WORDS // 4),
    ),
)  # fmt: skip
