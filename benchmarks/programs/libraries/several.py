"""Calls of libraries of a few kernels each, by name; a package that is missing fails its calls.

adasplash 0.2.2, bitsandbytes 0.50.2, conch-triton-kernels 1.3, cut-cross-entropy 25.1.1,
flash-kmeans 0.3.1, hilbertsfc 0.5.1, late-interaction-kernels 0.4.5, mlstm-kernels 2.0.6,
sageattention 1.0.6, torchao 0.18.0, transformer-engine 2.20.2, xformers 0.0.35.
"""

# The packages need not be installed where this is checked.
# pyright: reportMissingImports=false

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from benchmarks.programs.libraries.absent import allow, bare
from benchmarks.programs.libraries.inputs import (
    FP16,
    FP32,
    Calls,
    integers,
    rand,
    randn,
    unit,
    with_gradients,
)

CALLS = Calls()


@CALLS.call("adasplash: attention with entmax")
def entmax_attention() -> Callable[[], Any]:
    from adasplash.adasplash_no_block_mask import sparse_attn

    q, k, v = (randn(2, 16, 2048, 64) for _ in range(3))
    return with_gradients(lambda q, k, v: sparse_attn(q, k, v, is_causal=True), [q, k, v])


@CALLS.call("adasplash: entmax of rows")
def entmax() -> Callable[[], Any]:
    from adasplash.triton_entmax import triton_entmax

    return with_gradients(triton_entmax, [randn(4096, 4096, dtype=FP32)])


@CALLS.call("bitsandbytes: weights to 4 bits")
def to_nf4() -> Callable[[], Any]:
    bare("bitsandbytes", "bitsandbytes.backends", "bitsandbytes.backends.triton")
    from bitsandbytes.backends.triton.ops import quantize_4bit

    x = randn(4096, 4096)
    return lambda: quantize_4bit(x, 64, "nf4", torch.uint8)


@CALLS.call("bitsandbytes: weights from 4 bits")
def from_nf4() -> Callable[[], Any]:
    bare("bitsandbytes", "bitsandbytes.backends", "bitsandbytes.backends.triton")
    from bitsandbytes.backends.triton.ops import dequantize_4bit

    x, most = integers(256, 8 << 20, 1, dtype=torch.uint8), rand(1 << 18, dtype=FP32)
    return lambda: dequantize_4bit(x, most, 64, "nf4", (4096, 4096), torch.bfloat16)


@CALLS.call("conch: attention over pages")
def conch_pages() -> Callable[[], Any]:
    from conch.ops.attention.paged_attention import paged_attention

    q = randn(64, 32, 128, dtype=FP16)
    k, v = (randn(64 * 64, 32, 8, 128, dtype=FP16) for _ in range(2))
    table = torch.randperm(64 * 64).to("cuda", torch.int32).view(64, 64)
    lengths = torch.full((64,), 2000, device="cuda", dtype=torch.int32)
    return lambda: paged_attention(q, k, v, table, lengths)


@CALLS.call("conch: product with 4-bit weights")
def conch_product() -> Callable[[], Any]:
    from conch.ops.quantization.gemm import mixed_precision_gemm

    x, w = randn(512, 4096, dtype=FP16), integers(1 << 31, 512, 4096, dtype=torch.int32)
    scales = rand(32, 4096, dtype=FP16)
    return lambda: mixed_precision_gemm(x, w, scales, None, 4, 8, 128)


@CALLS.call("conch: scaled int8 product")
def conch_int8() -> Callable[[], Any]:
    from conch.ops.quantization.gemm import scaled_gemm

    a, b = (integers(255, 1024, 4096).sub(127).to(torch.int8) for _ in range(2))
    x, y = rand(1024, 1, dtype=FP32), rand(1024, 1, dtype=FP32)
    return lambda: scaled_gemm(a, b.t(), x, y, torch.bfloat16)


@CALLS.call("conch: boxes that do not overlap")
def conch_nms() -> Callable[[], Any]:
    from conch.ops.vision.nms import nms

    corners = rand(4096, 2, dtype=FP32) * 100
    boxes = torch.cat([corners, corners + 1 + 10 * rand(4096, 2, dtype=FP32)], 1)
    scores = rand(4096, dtype=FP32)
    return lambda: nms(boxes, scores, 0.5)


@CALLS.call("conch: rotary embedding")
def conch_rotary() -> Callable[[], Any]:
    from conch.ops.embedding.rotary_embedding import rotary_embedding

    at = torch.arange(4096, device="cuda")
    q, k, table = randn(4096, 4096), randn(4096, 1024), rand(4096, 128)
    return lambda: rotary_embedding(at, q.clone(), k.clone(), 128, table)


@CALLS.call("conch: tokens to pages")
def conch_cache() -> Callable[[], Any]:
    from conch.ops.vllm.reshape_and_cache import reshape_and_cache

    k, v = randn(8192, 8, 128), randn(8192, 8, 128)
    caches = [torch.zeros(512, 16, 8, 128, device="cuda", dtype=k.dtype) for _ in range(2)]
    slots = torch.randperm(8192).to("cuda")

    def run() -> list[torch.Tensor]:
        reshape_and_cache(k, v, *caches, slots)
        return caches

    return run


@CALLS.call("cut-cross-entropy")
def cut_loss() -> Callable[[], Any]:
    from cut_cross_entropy.cce import cce_linear_cross_entropy

    x, w, target = randn(2048, 2048), 0.02 * randn(32000, 2048), integers(32000, 2048)
    return with_gradients(lambda x, w: cce_linear_cross_entropy(x, w, target), [x, w])


@CALLS.call("flash-kmeans: nearest centroids")
def nearest() -> Callable[[], Any]:
    from flash_kmeans.assign_euclid_triton import euclid_assign_triton

    x, centroids = randn(4, 65536, 128, dtype=FP16), randn(4, 1024, 128, dtype=FP16)
    squares = x.float().square().sum(-1)
    return lambda: euclid_assign_triton(x, centroids, squares)


@CALLS.call("flash-kmeans: means of sorted points")
def means() -> Callable[[], Any]:
    allow("tqdm")
    from flash_kmeans.centroid_update_triton import triton_centroid_update_sorted_euclid

    x, old = randn(4, 65536, 128, dtype=FP16), randn(4, 1024, 128, dtype=FP16)
    clusters = integers(1024, 4, 65536, dtype=torch.int32)
    return lambda: triton_centroid_update_sorted_euclid(x, clusters, old)


@CALLS.call("hilbertsfc: places on a curve")
def hilbert() -> Callable[[], Any]:
    from hilbertsfc.torch import hilbert_encode_2d

    x, y = (integers(1 << 15, 1 << 22, dtype=torch.int32) for _ in range(2))
    return lambda: hilbert_encode_2d(x, y, nbits=16, gpu_backend="triton")


@CALLS.call("late-interaction: largest similarities")
def maxsim() -> Callable[[], Any]:
    from late_interaction_kernels.autograd import maxsim

    q, d = unit(32, 32, 128, dtype=FP16), unit(256, 512, 128, dtype=FP16)
    return with_gradients(maxsim, [q, d])


@CALLS.call("mLSTM: chunks")
def mlstm() -> Callable[[], Any]:
    from mlstm_kernels.torch.chunkwise.triton_xl_chunk import mlstm_chunkwise__xl_chunk

    q, k, v = randn(1, 8, 4096, 128), randn(1, 8, 4096, 128), randn(1, 8, 4096, 256)
    i, f = randn(1, 8, 4096, dtype=FP32), 3 + randn(1, 8, 4096, dtype=FP32)
    return with_gradients(lambda *given: mlstm_chunkwise__xl_chunk(*given), [q, k, v, i, f])


@CALLS.call("mLSTM: step")
def mlstm_step() -> Callable[[], Any]:
    from mlstm_kernels.torch.recurrent.triton_step import mlstm_recurrent_step__triton

    q, k, v = randn(64, 8, 128), randn(64, 8, 128), randn(64, 8, 256)
    i, f, m = randn(64, 8, 1, dtype=FP32), 3 + randn(64, 8, 1, dtype=FP32), randn(64, 8, 1)
    c, n = randn(64, 8, 128, 256, dtype=FP32), randn(64, 8, 128, dtype=FP32)
    return lambda: mlstm_recurrent_step__triton(q, k, v, i, f, c, n, m.float())


@CALLS.call("sageattention")
def sage() -> Callable[[], Any]:
    from sageattention.core import sageattn

    q, k, v = (randn(2, 16, 4096, 128, dtype=FP16) for _ in range(3))
    return lambda: sageattn(q, k, v)


@CALLS.call("sageattention, causal")
def sage_causal() -> Callable[[], Any]:
    from sageattention.core import sageattn

    q, k, v = (randn(2, 32, 4096, 64, dtype=FP16) for _ in range(3))
    return lambda: sageattn(q, k, v, is_causal=True)


@CALLS.call("torchao: fp8 product by blocks")
def torchao_product() -> Callable[[], Any]:
    bare("torchao", "torchao.kernel")
    from torchao.kernel.blockwise_quantization import blockwise_fp8_gemm

    a, b = (randn(n, 4096).to(torch.float8_e4m3fn) for n in (1024, 4096))
    x, y = rand(1024, 32, dtype=FP32), rand(32, 32, dtype=FP32)
    return lambda: blockwise_fp8_gemm(a, x, b, y)


@CALLS.call("torchao: fp8 of blocks")
def torchao_quantise() -> Callable[[], Any]:
    bare("torchao", "torchao.kernel")
    from torchao.kernel.blockwise_quantization import fp8_blockwise_act_quant

    x = randn(4096, 4096)
    return lambda: fp8_blockwise_act_quant(x)


@CALLS.call("torchao: fp8 of weights")
def torchao_weights() -> Callable[[], Any]:
    bare("torchao", "torchao.kernel")
    from torchao.kernel.blockwise_quantization import fp8_blockwise_weight_quant

    x = randn(4096, 4096)
    return lambda: fp8_blockwise_weight_quant(x)


def _experts() -> tuple[Any, torch.Tensor, torch.Tensor]:
    for part in ("common", "pytorch"):
        bare(
            "transformer_engine", f"transformer_engine.{part}", f"transformer_engine.{part}.triton"
        )
    from transformer_engine.pytorch.triton import permutation

    chosen = rand(8192, 64, dtype=FP32).topk(4).indices
    routes = torch.zeros(8192, 64, device="cuda", dtype=torch.int32).scatter(1, chosen, 1)
    return permutation, routes, permutation.make_row_id_map(routes, 8192, 64)


@CALLS.call("transformer-engine: tokens to experts")
def permute() -> Callable[[], Any]:
    permutation, _, rows = _experts()
    x = randn(8192, 2048)
    return lambda: permutation.permute_with_mask_map(
        x, rows, None, None, None, 8192, 64, 32768, 2048, 0
    )[0]


@CALLS.call("transformer-engine: tokens from experts")
def unpermute() -> Callable[[], Any]:
    permutation, _, rows = _experts()
    y, weights = randn(32768, 2048), rand(8192, 64)
    return lambda: permutation.unpermute_with_mask_map(
        y, rows, weights, None, None, 8192, 64, 2048
    )[0]


@CALLS.call("transformer-engine: places of tokens")
def places() -> Callable[[], Any]:
    permutation, routes, _ = _experts()
    return lambda: permutation.make_row_id_map(routes, 8192, 64)


@CALLS.call("xformers: rows by index")
def index_rows() -> Callable[[], Any]:
    bare("xformers", "xformers.ops", "xformers.ops._triton")
    from xformers.ops._triton.k_index_select_cat import index_select_cat_fwd

    x, i = randn(8192, 4096), torch.randperm(8192)[:4096].to("cuda")
    y = torch.zeros(4096, 4096, device="cuda", dtype=x.dtype)
    return lambda: index_select_cat_fwd(y, x, i)


@CALLS.call("xformers: rows added by index")
def index_add() -> Callable[[], Any]:
    bare("xformers", "xformers.ops", "xformers.ops._triton")
    from xformers.ops._triton.k_scaled_index_add import scaled_index_add_fwd

    x, y, scale = randn(64, 256, 1024), randn(32, 256, 1024), randn(1024)
    i = torch.randperm(64)[:32].to("cuda")

    def run() -> torch.Tensor:
        z = x.clone()
        scaled_index_add_fwd(z, i, y, scale, 0.5)
        return z

    return run
