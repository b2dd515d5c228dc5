"""Machine code of derived kernels for a GPU, which needs none: they are derived on the CPU."""

from __future__ import annotations

import re
from typing import Any

import pytest

import tilewright as tw
from benchmarks.gpu.kernels.attention import forward_kernel as attention
from benchmarks.gpu.kernels.layer_norm import forward_kernel as layer_norm
from benchmarks.gradients.kernels import cross_entropy, matmul, softmax, swiglu
from tilewright.backends.compiler import GPUTarget

torch = pytest.importorskip("torch")

HOPPER = GPUTarget("cuda", 90, 32)


def ptx_of(gradient: Any, **options: Any) -> list[str]:
    """The derived kernels of a gradient so far, for a GPU."""
    kernels = [tw.compile(kernel.src, HOPPER, options) for kernel in gradient.kernels]
    return [str(kernel.asm["ptx"]) for kernel in kernels]


@pytest.mark.parametrize("wraps", [False, True], ids=["masked", "wrapped"])
@pytest.mark.parametrize("operand", ["a", "b"])
def test_operands_of_derived_products_are_tensor_copies(operand: str, wraps: bool) -> None:
    """The kernel's pointers advance: the gradient's blocks begin at a multiple of their stride."""
    a, b, c, dc = (torch.zeros(512, 512, dtype=torch.float16) for _ in range(4))
    into = {f"{operand}_ptr": torch.zeros_like(a)}
    m, n, k = (128, 64, 128) if operand == "a" else (64, 128, 128)
    backward = tw.grad(matmul)
    backward[(512 // m * 512 // n,)](
        a, b, c, 512, 512, 512, BLOCK_M=m, BLOCK_N=n, BLOCK_K=k, GROUP=8, WRAPS=wraps,
        grads={"c_ptr": dc}, into=into, warmup=True,
    )  # fmt: skip
    (ptx,) = ptx_of(backward, num_warps=8, num_stages=3)
    assert "wgmma.mma_async" in ptx
    assert "cp.async.bulk.tensor" in ptx
    assert "cp.async.cg" not in ptx


def half(*shape: int) -> Any:
    return torch.zeros(*shape, dtype=torch.float16)


def floats(*shape: int) -> Any:
    return torch.zeros(*shape)


@pytest.mark.parametrize("causal", [False, True])
def test_keys_and_values_of_attention_are_tensor_copies(causal: bool) -> None:
    q, k, v, o, do = (half(2, 512, 128) for _ in range(5))
    backward = tw.grad(attention, aux=("lse_ptr",), deterministic=True)
    backward[(512 // 64, 2)](
        q, k, v, o, floats(2, 512), 512, 0.1, D=128, BLOCK_M=64, BLOCK_N=128, CAUSAL=causal,
        grads={"o_ptr": do}, into={"k_ptr": half(2, 512, 128), "v_ptr": half(2, 512, 128)},
        warmup=True,
    )  # fmt: skip
    sums, keys = ptx_of(backward, num_warps=8, num_stages=2)
    assert "wgmma" not in sums
    assert "wgmma.mma_async" in keys
    assert "cp.async.bulk.tensor" in keys
    assert "cp.async.cg" not in keys


@pytest.mark.parametrize("causal", [False, True])
def test_attention_with_added_queries_takes_five_products_and_one_transpose(causal: bool) -> None:
    q, k, v, o, do = (half(2, 512, 128) for _ in range(5))
    backward = tw.grad(attention, aux=("lse_ptr",), atomic=("q_ptr",))
    backward[(512 // 64, 2)](
        q, k, v, o, floats(2, 512), 512, 0.1, D=128, BLOCK_M=64, BLOCK_N=128, CAUSAL=causal,
        grads={"o_ptr": do},
        into={"q_ptr": floats(2, 512, 128), "k_ptr": half(2, 512, 128), "v_ptr": half(2, 512, 128)},
        warmup=True,
    )  # fmt: skip
    _, keys = ptx_of(backward, num_warps=8, num_stages=2)
    loops = 2 if causal else 1
    of_scores, of_sums = 128 // 16, 64 // 16  # instructions of 64 x 64 x 16, 64 x 128 x 16
    ahead = of_scores  # of the first iteration, before the loop
    products = 2 * of_scores + 2 * of_sums + 8 + ahead
    assert len(re.findall(r"wgmma\.mma_async", keys)) == loops * products
    assert len(re.findall(r"cp\.reduce\.async\.bulk\.tensor", keys)) == loops
    assert not re.search(r"\b(red|atom)\.(global|relaxed|add)", keys)
    assert "cp.async.cg" not in keys


def of_rows(name: str) -> Any:
    """A gradient of 64 rows of 4096 elements of fp16, derived."""
    a, b, y, dy, da = (half(64, 4096) for _ in range(5))
    shape, of_rows, of_columns = (4096, 4096), floats(64), half(4096)
    backward: Any
    match name:
        case "swiglu":
            backward, args = tw.grad(swiglu, deterministic=True), (a, b, y, *shape)
            more = {"grads": {"y_ptr": dy}, "into": {"a_ptr": da, "b_ptr": half(64, 4096)}}
        case "softmax":
            backward, args = tw.grad(softmax, deterministic=True), (a, y, *shape)
            more = {"grads": {"y_ptr": dy}, "into": {"x_ptr": da}}
        case "layer norm":
            backward = tw.grad(layer_norm, aux=("mean_ptr", "rstd_ptr"), deterministic=True)
            args = a, y, of_columns, half(4096), of_rows, floats(64), *shape, 1e-5
            into = {"x_ptr": da, "weight_ptr": half(4096), "bias_ptr": half(4096)}
            more = {"grads": {"y_ptr": dy}, "into": into}
        case _:
            backward = tw.grad(cross_entropy, aux=("lse_ptr",), deterministic=True)
            args = a, torch.zeros(64, dtype=torch.int64), of_rows, floats(64), *shape
            more = {"grads": {"loss_ptr": floats(64)}, "into": {"x_ptr": da}}
    backward[(64,)](*args, BLOCK=4096, **more, warmup=True)
    return backward


@pytest.mark.parametrize("name", ["swiglu", "softmax", "layer norm", "cross-entropy"])
def test_rows_are_read_and_written_as_vectors_without_atomics(name: str) -> None:
    """Of a layer norm, threads have four elements, as partial sums of its weights are fp32."""
    (ptx,) = ptx_of(of_rows(name), num_warps=8)
    words = 2 if name == "layer norm" else 4
    assert re.search(rf"ld\.global\S*\.v{words}\.b32", ptx)
    assert re.search(rf"st\.global\S*\.v{words}\.b32", ptx)
    assert not re.search(r"\b(red|atom)\.", ptx)
