"""Machine code of derived kernels for a GPU, which needs none: they are derived on the CPU."""

from __future__ import annotations

from typing import Any

import pytest

import tilewright as tw
from benchmarks.gradients.kernels import matmul
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
