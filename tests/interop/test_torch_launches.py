"""How Inductor launches kernels for GPUs, without a GPU."""

from pathlib import Path

import pytest

from tests.interop.forked import output
from tilewright.targets.nvidia.assemble import find_assembler

STATIC = """
import copy, pickle, tilewright, torch
tilewright.torch.enable()
from tilewright.interop.torch_kernels import adapt_autotuner
adapt_autotuner()
import triton, triton.language as tl
from torch._inductor.runtime import triton_heuristics
from torch._inductor.runtime.hints import HeuristicType
from torch._inductor.runtime.triton_heuristics import StaticTritonCompileResult

@triton.jit
def scale(x, out, n, factor, unused, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, i < n) * factor, i < n)

@triton.jit
def product(x, y, out, n, BLOCK: tl.constexpr):
    m, k = tl.arange(0, 128), tl.arange(0, BLOCK)
    total = tl.zeros((128, 128), tl.float32)
    for i in range(0, n, BLOCK):
        a = tl.load(x + m[:, None] * n + i + k[None, :])
        b = tl.load(y + (i + k)[:, None] * 128 + m[None, :])
        total = tl.dot(a, b, total)
    tl.store(out + m[:, None] * 128 + m[None, :], total)

def result_of(kernel, signature, **options):
    aligned = {(i,): [["tt.divisibility", 16]] for i in range(len(signature) - 1)}
    source = triton.compiler.ASTSource(kernel, signature, {"BLOCK": 64}, aligned)
    target = triton.backends.compiler.GPUTarget("cuda", 90, 32)
    compiled = triton.compile(source, target=target, options=options)
    return compiled, StaticTritonCompileResult.can_statically_launch(
        compiled, {}, {"device_type": "cuda", "device": 0}, HeuristicType.POINTWISE
    )
"""


def _output(code: str, folder: Path) -> str:
    pytest.importorskip("torch", minversion="2.13")
    if find_assembler() is None:
        pytest.skip("there is no assembler of PTX")
    return output(code, environment={"TRITON_CACHE_DIR": str(folder)})


LAUNCHER = (
    STATIC
    + """
types = {"x": "*fp32", "out": "*fp32", "n": "i32", "factor": "fp32", "unused": "i64"}
compiled, found = result_of(scale, {**types, "BLOCK": "constexpr"})
print(found.name, found.arg_tys, found.has_global_scratch, found.has_profile_scratch)
print(open(found.cubin_path, "rb").read() == compiled.asm["cubin"] == found.cubin_raw)
print(found.name.encode() in found.cubin_raw, len(compiled.metadata.arguments))
print(pickle.loads(pickle.dumps(found)).hash == compiled.hash)
held = {name: getattr(scale, name) for name in ("fn", "__globals__", "used_global_vals")}
for name in held:
    setattr(scale, name, None)  # as torch does before it copies a kernel for its cache
stored = copy.deepcopy(scale)
for name, value in held.items():
    setattr(scale, name, value)
print(pickle.loads(pickle.dumps(stored)).src == scale.src, copy.deepcopy(scale) is scale)
"""
)


def test_kernel_for_gpus_is_launched_by_torch(tmp_path: Path) -> None:
    """The types are of the arguments that the kernel has, and of nothing else."""
    assert _output(LAUNCHER, tmp_path).split("\n") == [
        "scale OOifl False False",
        "True",
        "True 5",
        "True",
        "True True",
    ]


MAPS = (
    STATIC
    + """
types = {"x": "*fp16", "y": "*fp16", "out": "*fp32", "n": "i32", "BLOCK": "constexpr"}
compiled, found = result_of(product, types, num_warps=8, num_stages=3)
print(len(compiled.metadata.tensor_maps) > 0, found)
compiled, found = result_of(product, types, num_warps=8, num_stages=3, tensor_copies=False)
print(len(compiled.metadata.tensor_maps) > 0, found is not None)
"""
)


def test_kernel_with_tensor_maps_is_launched_by_tilewright(tmp_path: Path) -> None:
    """Torch's launcher would not pass the maps."""
    assert _output(MAPS, tmp_path).split("\n") == ["True None", "False True"]
