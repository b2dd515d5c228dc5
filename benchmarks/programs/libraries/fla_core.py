"""Calls of flash-linear-attention (fla-core 0.6.0): sequences of 4096 tokens, 16 heads of 128."""

# The packages need not be installed where this is checked.
# pyright: reportMissingImports=false

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from fla import ops
from fla.modules.causal_conv1d import causal_conv1d
from fla.modules.l2norm import l2norm
from fla.modules.token_shift import token_shift
from fla.ops.gdn2 import chunk_gdn2
from fla.ops.hgrn import chunk_hgrn
from fla.ops.ttt import chunk_ttt_linear
from fla.ops.utils.pooling import mean_pooling

from benchmarks.programs.libraries.inputs import (
    FP32,
    Call,
    Calls,
    decays,
    integers,
    rand,
    randn,
    unit,
    with_gradients,
)

B, T, H, D = 1, 4096, 16, 128

CALLS = Calls()


def _qkv(heads: int = H) -> list[torch.Tensor]:
    return [unit(B, T, heads, D), unit(B, T, heads, D), randn(B, T, heads, D)]


def _forward(function: Callable[..., Any], *more: Callable[[], torch.Tensor], **named: Any) -> Call:
    """A call of an operator of q, k and v, and of further tensors."""

    def make() -> Callable[[], Any]:
        inputs = [*_qkv(), *(make() for make in more)]
        return lambda: function(*inputs, **named)

    return make


def _gradients(
    function: Callable[..., Any], *more: Callable[[], torch.Tensor], **named: Any
) -> Call:
    """The same with gradients."""

    def make() -> Callable[[], Any]:
        inputs = [*_qkv(), *(make() for make in more)]
        return with_gradients(lambda *given: function(*given, **named), inputs)

    return make


def _gate() -> torch.Tensor:
    return decays(B, T, H)


def _gates() -> torch.Tensor:
    return decays(B, T, H, D)


def _beta() -> torch.Tensor:
    return rand(B, T, H)


def _betas() -> torch.Tensor:
    return rand(B, T, H, D)


CALLS["gated delta rule"] = _gradients(ops.chunk_gated_delta_rule, _gate, _beta)
CALLS["delta rule"] = _gradients(ops.chunk_delta_rule, _beta)
CALLS["gated linear attention"] = _gradients(ops.chunk_gla, _gates)
CALLS["simple gated linear attention"] = _gradients(ops.chunk_simple_gla, _gate)
CALLS["retention"] = _gradients(ops.chunk_retention)
CALLS["Kimi delta attention"] = _gradients(ops.chunk_kda, _gates, _beta)
CALLS["attention"] = _gradients(ops.parallel_attn)
CALLS["attention, window of 512"] = _forward(ops.parallel_attn, window_size=512)
CALLS["forgetting attention"] = _gradients(ops.parallel_forgetting_attn, _gate)
CALLS["stick-breaking attention"] = _forward(ops.parallel_stickbreaking_attn)
CALLS["Lightning attention"] = _forward(ops.chunk_lightning_attn, layer_idx=3, num_layers=12)
CALLS["linear attention"] = _forward(ops.chunk_linear_attn)
CALLS["recurrent delta rule"] = _forward(ops.fused_recurrent_delta_rule, _beta)
CALLS["recurrent gated linear attention"] = _forward(ops.fused_recurrent_gla, _gates)


@CALLS.call("Mesa network")
def mesa_net() -> Callable[[], Any]:
    inputs = [*_qkv(), _gate(), _beta(), 0.25 + rand(H, D, dtype=FP32)]
    return lambda: ops.chunk_mesa_net(*inputs, max_CG_iteration=8)


@CALLS.call("RWKV7")
def rwkv7() -> Callable[[], Any]:
    r, k, v = _qkv()
    w, kk, a = decays(B, T, H, D, least=-0.6).bfloat16(), unit(B, T, H, D), rand(B, T, H, D)
    return lambda: ops.chunk_rwkv7(r, w, k, v, -kk, kk * a)


@CALLS.call("RWKV6")
def rwkv6() -> Callable[[], Any]:
    r, k, v = _qkv()
    w, u = decays(B, T, H, D, least=-1.0), randn(H, D)
    return with_gradients(lambda *given: ops.chunk_rwkv6(*given), [r, k, v, w, u])


@CALLS.call("HGRN")
def hgrn() -> Callable[[], Any]:
    x, g = randn(4, T, 2048), decays(4, T, 2048, least=-1.0)
    return with_gradients(lambda *given: chunk_hgrn(*given), [x, g])


@CALLS.call("recurrent HGRN")
def recurrent_hgrn() -> Callable[[], Any]:
    x, g = randn(4, T, 2048), decays(4, T, 2048, least=-1.0)
    return lambda: ops.fused_recurrent_hgrn(x, g)


@CALLS.call("native sparse attention")
def nsa() -> Callable[[], Any]:
    q, k, v = randn(B, T, 64, D), randn(B, T, 4, D), randn(B, T, 4, D)
    gates = [rand(B, T, 64) for _ in range(2)]
    return lambda: ops.parallel_nsa(
        q, k, v, g_cmp=gates[0], g_slc=gates[1], block_counts=16, block_size=64
    )


@CALLS.call("gated slot attention")
def gsa() -> Callable[[], Any]:
    q, k, v = _qkv()
    s, g = randn(B, T, H, 64), decays(B, T, H, 64)
    return lambda: ops.chunk_gsa(q, k, v, s, g)


@CALLS.call("test-time training")
def ttt() -> Callable[[], Any]:
    q, k, v = (unit(B, T, H, 64) for _ in range(3))
    w, b, eta = randn(H, 64), randn(H, 64), 5e-3 * rand(B, T, H, 1)
    return lambda: chunk_ttt_linear(q, k, v, w, b, eta)


@CALLS.call("gated delta rule, version 2")
def gdn2() -> Callable[[], Any]:
    inputs = [*_qkv(), _gates(), _betas(), _betas()]
    return lambda: chunk_gdn2(*inputs)


@CALLS.call("attention over layers")
def attnres() -> Callable[[], Any]:
    query, weight = randn(2048), randn(2048)
    layers = [randn(B, T, 2048) for _ in range(8)]
    return lambda: ops.fused_attnres(query, layers, weight)


@CALLS.call("attention with walls")
def wall() -> Callable[[], Any]:
    q, k, v = _qkv()
    g = _gates()
    return lambda: ops.parallel_wall_attn(q, k, v, g)


@CALLS.call("path attention")
def path() -> Callable[[], Any]:
    q, k, v = (randn(B, 2048, H, 64) for _ in range(3))
    w, beta = unit(B, 2048, H, 64, dtype=FP32), rand(B, 2048, H, dtype=FP32)
    g = decays(B, 2048, H)
    return lambda: ops.parallel_path_attn(q, k, v, w, beta, g)


@CALLS.call("Comba")
def comba() -> Callable[[], Any]:
    q, k, v = _qkv()
    p, g, beta = unit(B, T, H, D), _gate(), _beta()
    return lambda: ops.chunk_comba(q, k, v, p, g, beta)


@CALLS.call("log-linear attention")
def log_linear() -> Callable[[], Any]:
    q, k, v = randn(B, T, 1, D), randn(B, T, 1, D), randn(B, T, H, 64)
    g, scales = _gate(), rand(B, T, H, 13, dtype=FP32)
    return lambda: ops.chunk_log_linear_attn(q, k, v, g, scales)


@CALLS.call("attention with two queries")
def parallax() -> Callable[[], Any]:
    q, k, v = _qkv()
    r = unit(B, T, H, D)
    return lambda: ops.parallel_parallax(q, r, k, v)


@CALLS.call("mean of blocks")
def pooling() -> Callable[[], Any]:
    x = randn(4, T, H, D)
    return with_gradients(lambda x: mean_pooling(x, 64), [x])


@CALLS.call("short convolution")
def convolution() -> Callable[[], Any]:
    x, w = randn(4, T, 2048), randn(2048, 4)
    return with_gradients(lambda x, w: causal_conv1d(x, w, activation="silu"), [x, w])


@CALLS.call("token shift")
def shift() -> Callable[[], Any]:
    return with_gradients(token_shift, [randn(4, T, 2048)])


@CALLS.call("L2 norm")
def l2() -> Callable[[], Any]:
    return with_gradients(l2norm, [randn(4, T, H, D)])


@CALLS.call("loss of a linear layer")
def linear_loss() -> Callable[[], Any]:
    from fla.modules.fused_linear_cross_entropy import fused_linear_cross_entropy_loss

    x, w, target = randn(T, 2048), 0.02 * randn(32000, 2048), integers(32000, T)
    return with_gradients(lambda x, w: fused_linear_cross_entropy_loss(x, target, w), [x, w])


@CALLS.call("cross-entropy")
def loss() -> Callable[[], Any]:
    from fla.modules.fused_cross_entropy import cross_entropy_loss

    x, target = randn(T, 32000), integers(32000, T)
    return with_gradients(lambda x: cross_entropy_loss(x, target)[0], [x])


@CALLS.call("rotary embedding")
def rotary() -> Callable[[], Any]:
    from fla.modules.rotary import rotary_embedding

    x, cos, sin = randn(4, T, H, D), rand(T, D // 2), rand(T, D // 2)
    return with_gradients(lambda x: rotary_embedding(x, cos, sin), [x])


@CALLS.call("gated norm")
def gated_norm() -> Callable[[], Any]:
    from fla.modules.norm.fused_norm_gate import rms_norm_gated

    x, g, w = randn(4, T, H, D), randn(4, T, H, D), randn(D)
    return with_gradients(lambda x, g, w: rms_norm_gated(x, g, w, None), [x, g, w])


@CALLS.call("SwiGLU and a linear layer")
def swiglu() -> Callable[[], Any]:
    from fla.modules.activations import swiglu as function

    return with_gradients(function, [randn(T, 8192), randn(T, 8192)])
