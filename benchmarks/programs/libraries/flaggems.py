"""Calls of FlagGems 5.0.2: operators of torch."""

# The packages need not be installed where this is checked.
# pyright: reportMissingImports=false

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from benchmarks.programs.libraries.inputs import (
    FP16,
    FP32,
    Calls,
    integers,
    rand,
    randn,
    with_gradients,
)

# FlagGems registers operators for a GPU while it is imported.
import flag_gems  # isort: skip

CALLS = Calls()


def add(name: str, function: Callable[..., Any], *shapes: Sequence[int], **named: Any) -> None:
    """A call of an operator of random tensors of bf16."""

    def make() -> Callable[[], Any]:
        inputs = [randn(*shape) for shape in shapes]
        return lambda: function(*inputs, **named)

    CALLS[name] = make


WIDE = (4096, 4096)
MAPS = (16, 128, 56, 56)

add("product", flag_gems.mm, (2048, 2048), (2048, 2048))
add("batched product", flag_gems.bmm, (16, 1024, 512), (16, 512, 1024))
add("product plus bias", flag_gems.addmm, (4096,), (1024, 4096), (4096, 4096))
add("product with a vector", flag_gems.mv, (4096, 8192), (8192,))
add("batched product plus bias", flag_gems.baddbmm, (16, 512, 512), (16, 512, 512), (16, 512, 512))
add("Kronecker product", flag_gems.kron, (64, 64), (64, 64))
add("maxima of rows", flag_gems.amax, WIDE, dim=[1])
add("maxima of columns", flag_gems.amax, WIDE, dim=[0])
add("index of the largest of rows", flag_gems.argmax, WIDE, dim=1)
add("index of the least of all", flag_gems.argmin, WIDE)
add("means of columns", flag_gems.mean_dim, WIDE, dim=[0])
add("sums of rows", flag_gems.sum_dim, WIDE, dim=[1])
add("variances and means of rows", flag_gems.var_mean, WIDE, dim=[1])
add("standard deviation of columns", flag_gems.std, WIDE, dim=[0])
add("norms of rows", flag_gems.vector_norm, WIDE, dim=[1])
add("sorted rows", flag_gems.sort, (512, 2048))
add("largest 16 of rows", flag_gems.topk, (512, 8192), k=16)
add("sums along rows", flag_gems.cumsum, WIDE, dim=1)
add("maxima along rows", flag_gems.cummax, WIDE, dim=1)
add("softmax of rows", flag_gems.softmax, (4096, 8192), dim=1)
add("softmax of columns", flag_gems.softmax, (2048, 512, 8), dim=1)
add("logarithm of softmax", flag_gems.log_softmax, (2048, 32000), dim=1)
add("scaled softmax", flag_gems.scaled_softmax_forward, (4, 16, 512, 512), scale_factor=0.1)
add("rows reversed", flag_gems.flip, WIDE, dims=[1])
add("rolled", flag_gems.roll, WIDE, shifts=[100], dims=[1])
add("lower triangle", flag_gems.tril, WIDE)
add("repeated rows", flag_gems.repeat_interleave_self_int, (2048, 4096), repeats=3, dim=0)
add("convolution", flag_gems.conv2d, MAPS, (128, 128, 3, 3), padding=1)
add("convolution, 1 x 1", flag_gems.conv2d, MAPS, (256, 128, 1, 1))
add("convolution in groups", flag_gems.conv2d, MAPS, (128, 32, 3, 3), padding=1, groups=4)
add("convolution of rows", flag_gems.conv1d, (16, 256, 2048), (256, 256, 3), padding=1)
add("convolution of volumes", flag_gems.conv3d, (2, 32, 16, 32, 32), (64, 32, 3, 3, 3))
add("largest of windows", flag_gems.max_pool2d_with_indices, MAPS, kernel_size=3, stride=2)
add("means of windows", flag_gems.avg_pool2d, MAPS, kernel_size=3, stride=2)
add("nearest pixels", flag_gems.upsample_nearest2d, MAPS, output_size=(112, 112))
add("groups normalised", flag_gems.instance_norm, MAPS, (128,), (128,))
add("gated GELU", flag_gems.geglu, (4096, 8192))
add("gated SiLU", flag_gems.silu_and_mul, WIDE, WIDE)
add("Hadamard transform", flag_gems.hadamard_transform, (4096, 4096))
add("pixels to channels", flag_gems.pixel_unshuffle, (16, 64, 128, 128), downscale_factor=2)
add("squared differences", flag_gems.mse_loss, WIDE, WIDE)
add("weights normalised", flag_gems.weight_norm, WIDE, (4096, 1))


@CALLS.call("fp32 product")
def product() -> Callable[[], Any]:
    a, b = (randn(1024, 1024, dtype=FP32) for _ in range(2))
    return lambda: flag_gems.mm(a, b)


@CALLS.call("fp32 convolution")
def convolution() -> Callable[[], Any]:
    x, w = randn(16, 64, 56, 56, dtype=FP32), randn(64, 64, 3, 3, dtype=FP32)
    return lambda: flag_gems.conv2d(x, w, padding=1)


@CALLS.call("fp32 convolution, stride of 2")
def strided() -> Callable[[], Any]:
    x, w = randn(16, 64, 56, 56, dtype=FP32), randn(128, 64, 3, 3, dtype=FP32)
    return lambda: flag_gems.conv2d(x, w, padding=1, stride=2)


@CALLS.call("fp32 maxima of columns")
def columns() -> Callable[[], Any]:
    x = randn(4096, 4096, dtype=FP32)
    return lambda: flag_gems.amax(x, dim=[0])


@CALLS.call("fp16 convolution with gradients")
def convolution_gradients() -> Callable[[], Any]:
    x, w = randn(8, 64, 56, 56, dtype=FP16), randn(64, 64, 3, 3, dtype=FP16)
    return with_gradients(lambda x, w: flag_gems.conv2d(x, w, padding=1), [x, w])


@CALLS.call("rows normalised")
def layer_norm() -> Callable[[], Any]:
    x, w, b = randn(4096, 4096), randn(4096), randn(4096)
    return lambda: flag_gems.layer_norm(x, [4096], w, b)


@CALLS.call("root mean squares with gradients")
def rms_norm() -> Callable[[], Any]:
    x, w = randn(4096, 4096), randn(4096)
    return with_gradients(lambda x, w: flag_gems.rms_norm(x, [4096], w), [x, w])


@CALLS.call("sum normalised")
def add_norm() -> Callable[[], Any]:
    x, y, w = randn(4096, 4096), randn(4096, 4096), randn(4096)
    return lambda: flag_gems.fused_add_rms_norm(x.clone(), y.clone(), [4096], w)


@CALLS.call("groups of channels normalised")
def group_norm() -> Callable[[], Any]:
    x, w, b = randn(16, 128, 3136), randn(128), randn(128)
    return lambda: flag_gems.group_norm(x, w, b, 16, 128, 3136, 32)


@CALLS.call("batches normalised")
def batch_norm() -> Callable[[], Any]:
    x, w, b = randn(*MAPS), randn(128), randn(128)
    mean, var = randn(128, dtype=FP32), rand(128, dtype=FP32)
    return lambda: flag_gems.batch_norm(x, w, b, mean.clone(), var.clone(), training=True)


@CALLS.call("cross-entropy")
def loss() -> Callable[[], Any]:
    x, target = randn(2048, 32000), integers(32000, 2048)
    return with_gradients(lambda x: flag_gems.cross_entropy_loss(x, target), [x])


@CALLS.call("embedding")
def embedding() -> Callable[[], Any]:
    w, i = randn(32000, 4096), integers(32000, 8192)
    return lambda: flag_gems.embedding(w, i)


@CALLS.call("gradient of an embedding")
def embedding_gradient() -> Callable[[], Any]:
    dy, i = randn(8192, 1024), integers(4096, 8192)
    return lambda: flag_gems.embedding_dense_backward(dy, i, 4096, -1, False)


@CALLS.call("rows by index")
def index_select() -> Callable[[], Any]:
    x, i = randn(8192, 4096), integers(8192, 4096)
    return lambda: flag_gems.index_select(x, 0, i)


@CALLS.call("elements by index")
def gather() -> Callable[[], Any]:
    x, i = randn(4096, 4096), integers(4096, 4096, 1024)
    return lambda: flag_gems.gather(x, 1, i)


@CALLS.call("added by index")
def index_add() -> Callable[[], Any]:
    x, y, i = randn(4096, 2048, dtype=FP32), randn(1024, 2048, dtype=FP32), torch.randperm(4096)
    i = i[:1024].to("cuda")
    return lambda: flag_gems.index_add(x, 0, i, y)


@CALLS.call("members of a set")
def isin() -> Callable[[], Any]:
    x, y = integers(1 << 20, 1 << 20, dtype=torch.int32), integers(1 << 20, 512, dtype=torch.int32)
    return lambda: flag_gems.isin(x, y)


@CALLS.call("fp8 product by blocks")
def fp8_product() -> Callable[[], Any]:
    a, b = (randn(n, 4096).to(torch.float8_e4m3fn) for n in (1024, 4096))
    x, y = rand(1024, 32, dtype=FP32), rand(32, 32, dtype=FP32)
    return lambda: flag_gems.w8a8_block_fp8_matmul(a, b, x, y, [128, 128])


@CALLS.call("fp8 of groups")
def fp8_groups() -> Callable[[], Any]:
    x = randn(4096, 4096)
    return lambda: flag_gems.per_token_group_quant_fp8(x, 128)


@CALLS.call("attention")
def attention() -> Callable[[], Any]:
    q, k, v = (randn(2, 16, 2048, 128) for _ in range(3))
    return lambda: flag_gems.scaled_dot_product_attention(q, k, v, is_causal=True)


@CALLS.call("rotary embedding")
def rotary() -> Callable[[], Any]:
    q, k = randn(4, 2048, 32, 128), randn(4, 2048, 8, 128)
    cos, sin = rand(2048, 64), rand(2048, 64)
    return lambda: flag_gems.apply_rotary_pos_emb(q, k, cos, sin)


@CALLS.call("experts of tokens")
def experts() -> Callable[[], Any]:
    gates = randn(8192, 64, dtype=FP32)
    weights, ids = torch.zeros(8192, 8, device="cuda"), integers(1, 8192, 8, dtype=torch.int32)
    order = integers(1, 8192, 8, dtype=torch.int32)

    def run() -> list[torch.Tensor]:
        flag_gems.topk_softmax(weights, ids, order, gates)
        return [weights, ids]

    return run
