"""Calls of sglang's kernels (0.5.10): attention, quantised products, LoRA, Mamba, gating."""

# The packages need not be installed where this is checked.
# pyright: reportMissingImports=false

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from benchmarks.programs.libraries.absent import allow, bare
from benchmarks.programs.libraries.inputs import (
    FP16,
    FP32,
    Call,
    Calls,
    integers,
    rand,
    randn,
    unit,
)

allow(
    *("IPython", "PIL", "aiohttp", "datasets", "dill", "fastapi", "gguf", "huggingface_hub"),
    *("interegular", "msgspec", "openai", "orjson", "outlines", "partial_json_parser"),
    *("prometheus_client", "psutil", "pybase64", "pydantic", "requests", "safetensors"),
    *("setproctitle", "sgl_kernel", "starlette", "torchvision", "tqdm", "transformers", "uvicorn"),
    *("uvloop", "zmq", "sglang.jit_kernel"),
    *(f"sglang.srt.{name}" for name in ("configs", "dllm", "model_executor", "server_args")),
    "sglang.srt.utils.hf_transformers_utils",  # registers classes of those modules
)
bare("sglang", "sglang.srt", "sglang.srt.layers", "sglang.srt.lora", "sglang.srt.lora.triton_ops")
bare(*(f"sglang.srt.layers.{name}" for name in ("attention", "quantization")))
bare(*(f"sglang.srt.layers.attention.{name}" for name in ("fla", "linear", "mamba", "triton_ops")))
bare("sglang.srt.layers.attention.mamba.ops")

from sglang.srt.layers import elementwise  # noqa: E402
from sglang.srt.layers.attention.fla.fused_sigmoid_gating_recurrent import (  # noqa: E402
    fused_sigmoid_gating_delta_rule_update,
)
from sglang.srt.layers.attention.linear.lightning_attn import (  # noqa: E402
    lightning_attention,
    linear_decode_forward_triton,
)
from sglang.srt.layers.attention.mamba import causal_conv1d_triton as conv  # noqa: E402
from sglang.srt.layers.attention.mamba.ops.mamba_ssm import selective_state_update  # noqa: E402
from sglang.srt.layers.attention.mamba.ops.ssd_combined import (  # noqa: E402
    mamba_chunk_scan_combined,
)
from sglang.srt.layers.attention.triton_ops import (  # noqa: E402
    decode_attention,
    extend_attention,
    merge_state,
    prefill_attention,
)
from sglang.srt.layers.quantization import awq_triton, fp8_kernel, int8_kernel  # noqa: E402
from sglang.srt.lora.triton_ops.qkv_lora_b import qkv_lora_b_fwd  # noqa: E402
from sglang.srt.lora.triton_ops.sgemm_lora_a import sgemm_lora_a_fwd  # noqa: E402
from sglang.srt.lora.triton_ops.sgemm_lora_b import sgemm_lora_b_fwd  # noqa: E402
from sglang.srt.lora.utils import LoRABatchInfo  # noqa: E402

CALLS = Calls()

FP8 = torch.float8_e4m3fn


def _starts(count: int, length: int) -> torch.Tensor:
    """The first token of each of `count` sequences of equal length, and the number of all."""
    return torch.arange(count + 1, device="cuda", dtype=torch.int32) * length


def _adapters(sequences: int, length: int, rank: int, count: int = 4) -> LoRABatchInfo:
    return LoRABatchInfo(
        use_cuda_graph=False,
        bs=sequences,
        num_segments=sequences,
        seg_indptr=_starts(sequences, length),
        weight_indices=torch.arange(sequences, device="cuda", dtype=torch.int32) % count,
        lora_ranks=torch.full((count,), rank, device="cuda", dtype=torch.int32),
        scalings=torch.ones(count, device="cuda"),
        max_len=length,
        seg_lens=torch.full((sequences,), length, device="cuda", dtype=torch.int32),
        permutation=None,
    )


def _lora(name: str, sequences: int, length: int) -> None:
    def inputs(columns: int, weights: tuple[int, int]) -> tuple[Any, ...]:
        """Tokens, a matrix for each adapter, and the adapters of the sequences."""
        x, w = randn(sequences * length, columns), randn(4, *weights)
        return x, w, _adapters(sequences, length, 64)

    def first() -> Callable[[], Any]:
        return partial(sgemm_lora_a_fwd, *inputs(4096, (64, 4096)))

    def second() -> Callable[[], Any]:
        return partial(sgemm_lora_b_fwd, *inputs(64, (4096, 64)))

    def three() -> Callable[[], Any]:
        offsets = torch.tensor([0, 4096, 5120, 6144], device="cuda", dtype=torch.int32)
        return partial(qkv_lora_b_fwd, *inputs(192, (6144, 64)), offsets, 4096)

    CALLS[f"first product of LoRA, {name}"] = first
    CALLS[f"second product of LoRA, {name}"] = second
    CALLS[f"three second products of LoRA, {name}"] = three


_lora("prompts", 8, 512)
_lora("decode", 128, 1)


@CALLS.call("int8 of rows")
def int8_rows() -> Callable[[], Any]:
    x = randn(4096, 4096)
    return lambda: int8_kernel.per_token_quant_int8(x)


@CALLS.call("int8 of groups")
def int8_groups() -> Callable[[], Any]:
    x = randn(4096, 4096)
    return lambda: int8_kernel.per_token_group_quant_int8(x, 128)


def _int8_product(rows: int) -> Call:
    def make() -> Callable[[], Any]:
        a, b = (integers(255, n, 4096).sub(127).to(torch.int8) for n in (rows, 4096))
        x, y = rand(rows, 32, dtype=FP32), rand(32, 32, dtype=FP32)
        return lambda: int8_kernel.w8a8_block_int8_matmul(a, b, x, y, [128, 128])

    return make


def _fp8_product(rows: int) -> Call:
    def make() -> Callable[[], Any]:
        a, b = (randn(n, 4096).to(FP8) for n in (rows, 4096))
        x, y = rand(rows, 32, dtype=FP32), rand(32, 32, dtype=FP32)
        return lambda: fp8_kernel.w8a8_block_fp8_matmul_triton(a, b, x, y, [128, 128])

    return make


CALLS["int8 product by blocks, 1024 rows"] = _int8_product(1024)
CALLS["int8 product by blocks, 16 rows"] = _int8_product(16)
CALLS["fp8 product by blocks, 1024 rows"] = _fp8_product(1024)
CALLS["fp8 product by blocks, 16 rows"] = _fp8_product(16)


@CALLS.call("scaled int8 product")
def scaled_int8() -> Callable[[], Any]:
    a, b = (integers(255, n, 4096).sub(127).to(torch.int8) for n in (1024, 4096))
    x, y = rand(1024, 1, dtype=FP32), rand(4096, 1, dtype=FP32)
    return lambda: fp8_kernel.triton_scaled_mm(a, b.t(), x, y, torch.bfloat16)


@CALLS.call("fp8 of a tensor")
def fp8_tensor() -> Callable[[], Any]:
    x, scale = randn(8192, 4096), torch.full((1,), 0.01, device="cuda")
    return lambda: fp8_kernel.static_quant_fp8(x, scale)


@CALLS.call("fp8 of latents")
def fp8_latents() -> Callable[[], Any]:
    x = randn(16, 4096, 512)
    return lambda: fp8_kernel.per_tensor_quant_mla_fp8(x, torch.zeros(1, device="cuda"))


@CALLS.call("fp8 of groups for experts")
def fp8_masked() -> Callable[[], Any]:
    x = randn(16, 2048, 512)
    return lambda: fp8_kernel.per_token_group_quant_mla_deep_gemm_masked_fp8(x)


@CALLS.call("AWQ weights to fp16")
def awq() -> Callable[[], Any]:
    q = integers(1 << 31, 4096, 512, dtype=torch.int32)
    scales, zeros = rand(32, 4096, dtype=FP16), integers(1 << 31, 32, 512, dtype=torch.int32)
    return lambda: awq_triton.awq_dequantize_triton(q, scales, zeros)


@CALLS.call("product with AWQ weights")
def awq_product() -> Callable[[], Any]:
    x, q = randn(64, 4096, dtype=FP16), integers(1 << 31, 4096, 512, dtype=torch.int32)
    scales, zeros = rand(32, 4096, dtype=FP16), integers(1 << 31, 32, 512, dtype=torch.int32)
    return lambda: awq_triton.awq_gemm_triton(x, q, scales, zeros, 8)


@CALLS.call("update of a convolution")
def conv_update() -> Callable[[], Any]:
    x, state, w, b = randn(256, 4096), randn(256, 4096, 3), randn(4096, 4), randn(4096)
    return lambda: conv.causal_conv1d_update(x, state.clone(), w, b, "silu")


@CALLS.call("update of a convolution by indices")
def conv_update_by_index() -> Callable[[], Any]:
    x, state, w, b = randn(256, 4096), randn(512, 4096, 3), randn(4096, 4), randn(4096)
    i = torch.randperm(512)[:256].to("cuda", torch.int32)
    return lambda: conv.causal_conv1d_update(x, state.clone(), w, b, "silu", conv_state_indices=i)


@CALLS.call("convolution of sequences")
def conv_sequences() -> Callable[[], Any]:
    x, w, b = randn(8 * 1024, 4096).t(), randn(4096, 4), randn(4096)
    state = torch.zeros(8, 4096, 3, device="cuda", dtype=x.dtype)
    where = torch.arange(8, device="cuda", dtype=torch.int32)
    old = torch.zeros(8, device="cuda", dtype=torch.bool)
    return lambda: conv.causal_conv1d_fn(x, w, b, state, _starts(8, 1024), [1024] * 8, where, old)


@CALLS.call("chunks of Mamba 2")
def mamba() -> Callable[[], Any]:
    x, dt = randn(2, 2048, 64, 64), rand(2, 2048, 64)
    a, d = -rand(64, dtype=FP32), randn(64)
    b, c = randn(2, 2048, 8, 128), randn(2, 2048, 8, 128)
    out = torch.zeros_like(x)

    def run() -> torch.Tensor:
        mamba_chunk_scan_combined(x, dt, a, b, c, 256, d, dt_softplus=True, out=out)
        return out

    return run


@CALLS.call("update of a state of Mamba 2")
def mamba_update() -> Callable[[], Any]:
    state, x, dt = randn(128, 64, 64, 128), randn(128, 64, 64), rand(128, 64)
    a, b, c = -rand(64, dtype=FP32), randn(128, 8, 128), randn(128, 8, 128)
    d, bias, out = randn(64), randn(64), torch.zeros(128, 64, 64, device="cuda", dtype=x.dtype)
    a = a[:, None, None].expand(64, 64, 128)
    dt, bias = dt[:, :, None].expand(128, 64, 64), bias[:, None].expand(64, 64)
    d = d[:, None].expand(64, 64)

    def run() -> torch.Tensor:
        selective_state_update(state, x, dt, a, b, c, d, dt_bias=bias, dt_softplus=True, out=out)
        return out

    return run


@CALLS.call("update by a gated delta rule")
def delta_update() -> Callable[[], Any]:
    n, heads = 128, 16
    logs, a, bias = -rand(heads, dtype=FP32), randn(n, heads), randn(heads)
    q, k, v = unit(1, n, heads, 128), unit(1, n, heads, 128), randn(1, n, heads, 128)
    b, state = randn(n, heads), 0.1 * randn(n, heads, 128, 128, dtype=FP32)
    where = torch.arange(n, device="cuda", dtype=torch.int32)
    return lambda: fused_sigmoid_gating_delta_rule_update(
        logs, a, bias, 1.0, 20.0, q, k, v, b, state.clone(), where,
        use_qk_l2norm_in_kernel=True, cu_seqlens=_starts(n, 1),
    )  # fmt: skip


@CALLS.call("Lightning attention")
def lightning() -> Callable[[], Any]:
    q, k, v = (0.1 * randn(2, 16, 2048, 128, dtype=FP32) for _ in range(3))
    slopes = rand(16, dtype=FP32)
    return lambda: lightning_attention(q, k, v, slopes)[0]


@CALLS.call("step of Lightning attention")
def lightning_step() -> Callable[[], Any]:
    q, k, v = (randn(128, 16, 1, 128) for _ in range(3))
    caches, slopes = randn(128, 16, 128, 128, dtype=FP32), rand(16, dtype=FP32)
    where = torch.arange(128, device="cuda", dtype=torch.int32)
    return lambda: linear_decode_forward_triton(q, k, v, caches.clone(), slopes, where)


def _decode(heads: int, kv_heads: int, size: int, value_size: int) -> Call:
    def make() -> Callable[[], Any]:
        n, length, splits = 32, 2048, 8
        q, k = randn(n, heads, size), randn(n * length, kv_heads, size)
        v = randn(n * length, kv_heads, value_size)
        out = torch.zeros(n, heads, value_size, device="cuda", dtype=q.dtype)
        where = torch.randperm(n * length).to("cuda")
        parts = torch.zeros(n, heads, splits, value_size, device="cuda")
        sums = torch.zeros(n, heads, splits, device="cuda")
        counts = torch.full((n,), splits, device="cuda", dtype=torch.int32)

        def run() -> torch.Tensor:
            decode_attention.decode_attention_fwd(
                q, k, v, out, _starts(n, length), where, parts, sums, counts, splits,
                size**-0.5, 1.0, 1.0,
            )  # fmt: skip
            return out

        return run

    return make


CALLS["decode, 16 heads"] = _decode(16, 16, 128, 128)
CALLS["decode, 32 heads of 8"] = _decode(32, 8, 128, 128)
CALLS["decode from latents"] = _decode(16, 1, 576, 512)


@CALLS.call("attention of extensions")
def extend() -> Callable[[], Any]:
    n, before, after = 8, 1024, 512
    q = randn(n * after, 32, 128)
    k, v = randn(n * after, 8, 128), randn(n * after, 8, 128)
    caches = randn(n * before, 8, 128), randn(n * before, 8, 128)
    out = torch.zeros_like(q)
    where = torch.randperm(n * before).to("cuda")

    def run() -> torch.Tensor:
        extend_attention.extend_attention_fwd(
            q, k, v, out, *caches, _starts(n, after), _starts(n, before), where,
            None, True, None, after, 1.0, 1.0,
        )  # fmt: skip
        return out

    return run


@CALLS.call("attention of prompts")
def prefill() -> Callable[[], Any]:
    n, length = 8, 1024
    q, k, v = (randn(n * length, heads, 128) for heads in (32, 8, 8))
    out = torch.zeros_like(q)
    lengths = torch.full((n,), length, device="cuda", dtype=torch.int32)

    def run() -> torch.Tensor:
        prefill_attention.context_attention_fwd(
            q, k, v, out, _starts(n, length)[:-1].contiguous(), lengths, length
        )
        return out

    return run


@CALLS.call("parts of attention merged")
def merge() -> Callable[[], Any]:
    a, b = randn(8192, 32, 128), randn(8192, 32, 128)
    x, y = randn(8192, 32, dtype=FP32), randn(8192, 32, dtype=FP32)
    return lambda: merge_state.merge_state_triton(a, x, b, y)


@CALLS.call("two norms of a sum")
def norms() -> Callable[[], Any]:
    x, y, a, b = randn(4096, 4096), randn(4096, 4096), randn(4096), randn(4096)
    return lambda: elementwise.fused_dual_residual_rmsnorm(x, y, a, b, 1e-6)


@CALLS.call("gated GELU")
def gelu() -> Callable[[], Any]:
    x = randn(4096, 16384)
    return lambda: elementwise.gelu_and_mul_triton(x)[0]


@CALLS.call("capped scores")
def softcap() -> Callable[[], Any]:
    x = randn(1024, 128256)
    return lambda: elementwise.fused_softcap(x, 30.0)
