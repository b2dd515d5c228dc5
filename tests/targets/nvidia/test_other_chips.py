"""Products on chips other than Hopper: instructions, shared loads, and chips that are unknown."""

from __future__ import annotations

import re

import pytest

from benchmarks.gpu import compile_time
from tests.gpu import products
from tests.gpu.programs import source_of
from tests.targets.nvidia.test_kernels import BENCHMARKS, matmul
from tilewright.compiler.driver import compile
from tilewright.targets.nvidia.features import processor
from tilewright.targets.protocol import GPUTarget


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("type", "chip", "shape", "steps"),
    [
        ("fp16", 75, "m16n8k8", 2),
        ("i8", 75, "m8n8k16", 4),
        ("fp8e4nv", 75, "m16n8k8", 4),  # as fp16
        ("fp16", 80, "m16n8k16", 1),
        ("i8", 80, "m16n8k32", 1),
        ("fp8e4nv", 89, "m16n8k32", 1),
        ("fp16", 120, "m16n8k16", 1),
    ],
)
@pytest.mark.parametrize("orders", ["nn", "nt"])
def test_shapes_and_shared_loads_of_a_chip(
    type: str, chip: int, shape: str, steps: int, orders: str
) -> None:
    """A warp computes 64 x 32, of which 64 instructions of m16n8 need 24 loads of four matrices."""
    gpu = GPUTarget("cuda", chip, 32)
    text = matmul(type, (128, 128, 64), 8, 2, orders, gpu).asm["ptx"]
    found = re.findall(r"^\s+mma\.sync\.aligned\.(m\d+n\d+k\d+)", text, re.MULTILINE)
    size = 1 if type in ("i8", "fp8e4nv") else 2
    assert found == [shape] * (64 * size // 2 * steps)
    if steps == 1 and orders == "nt":
        assert text.count("ldmatrix.sync.aligned.m8n8.x4") == 24 * size // 2


@pytest.mark.parametrize("chip", [80, 86, 89, 120])
def test_chain_of_products_exchanges_nothing(chip: int) -> None:
    """The weights of attention stay in the registers of the warp that computed them, so that its
    memory is that of the queries and of as many slots of keys and values as fit."""
    kernel = BENCHMARKS["attention 128 x 64, D 128, causal"]
    gpu = GPUTarget("cuda", chip, 32)
    found = compile(compile_time.source("tilewright", kernel), gpu, kernel.options)
    limit = processor(chip).shared_limit
    queries, slot = 128 * kernel.constants["D"] * 2, 2 * kernel.constants["BLOCK_N"]
    slot *= kernel.constants["D"] * 2
    slots = min(kernel.options["num_stages"], (limit - queries) // slot)
    weights = 128 * kernel.constants["BLOCK_N"] * 2
    assert found.metadata.shared <= limit
    assert 0 <= found.metadata.shared - (queries + slots * slot) < weights


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("name", "chip"),
    [
        (name, chip)
        for place, name in enumerate(BENCHMARKS)
        for chip in (86, (80, 89, 120)[place % 3])
    ],
)
def test_kernels_of_the_benchmarks_fit(name: str, chip: int) -> None:
    """Their tiles are chosen for Hopper, which has more shared memory. 8.6 has the least, and the
    fewest features; the others take turns."""
    kernel = BENCHMARKS[name]
    gpu = GPUTarget("cuda", chip, 32)
    found = compile(compile_time.source("tilewright", kernel), gpu, kernel.options)
    assert found.asm["cubin"]
    assert found.metadata.shared <= processor(chip).shared_limit


def test_fp64_product_of_a_chip() -> None:
    for chip, shape, count in ((80, "m8n8k4", 32), (90, "m16n8k8", 8)):
        job = products.dot("fp64", "fp64", (64, 32, 16), "ieee")
        kernel = compile(source_of(job)[0], GPUTarget("cuda", chip, 32), {"num_warps": 4})
        name = f"mma.sync.aligned.{shape}.row.col.f64.f64.f64.f64"
        assert kernel.asm["ptx"].count(name) == count
        assert "fma.rn.f64" not in kernel.asm["ptx"]


def test_kernel_for_an_unknown_chip_is_ptx() -> None:
    with pytest.warns(RuntimeWarning, match="sm_151"):
        kernel = matmul("fp16", (64, 64, 32), 4, 2, "nn", GPUTarget("cuda", 151, 32))
    assert re.search(r"^\.target sm_121$", kernel.asm["ptx"], re.MULTILINE)
    assert "cubin" not in kernel.asm
    assert kernel.metadata.assembler == "driver"
