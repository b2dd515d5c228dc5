"""Accesses of 32 bytes, of chips that have them: their code, and what they read and write."""

from __future__ import annotations

import re
from itertools import product

import numpy as np
import pytest

from tests.frontend.kernels import build, kernel_from
from tests.lowering.simt.harness import assert_same
from tests.targets.nvidia.lowered import ptx_of
from tilewright.compiler.driver import compile
from tilewright.compiler.source import IRSource
from tilewright.ir.core import Module
from tilewright.targets.nvidia.features import processor
from tilewright.targets.protocol import GPUTarget

CHIPS = (100, 103, 120)
TYPES = {"i8": 1, "fp16": 2, "fp32": 4, "i64": 8}


def moved(type: str, *, mask: str = "", policy: str = "", aligned: int = 32) -> Module:
    """A kernel that moves 8192 bytes in each program."""
    block = 8192 // TYPES[type]
    text = f"""
    def kernel(x, y, n):
        i = tl.program_id(0) * {block} + tl.arange(0, {block})
        tl.store(y + i, tl.load(x + i{mask}{policy}){mask}{policy})
    """
    module = build(kernel_from(text), {"x": f"*{type}", "y": f"*{type}", "n": "i32"})
    for facts in module.entry.arg_attrs[:2]:
        facts["divisibility"] = aligned
    module.entry.arg_attrs[2]["divisibility"] = 32
    return module


def widths(module: Module, arch: int) -> set[tuple[str, int]]:
    """The loads and stores of global memory, and the bytes of each."""
    text = ptx_of(module, arch, num_warps=4)
    found = re.findall(r"\b(ld|st)\.global[\w.:]*?(?:\.v(\d))?\.b(\d+)", text)
    return {(kind, int(count or 1) * int(bits) // 8) for kind, count, bits in found}


def assembled(module: Module, arch: int) -> None:
    kernel = compile(IRSource.of_module(module), GPUTarget("cuda", arch, 32), {"num_warps": 4})
    assert kernel.asm["cubin"]


@pytest.mark.parametrize("arch", CHIPS)
@pytest.mark.parametrize("type", TYPES)
@pytest.mark.parametrize("mask", ["", ", mask=i < n"])
def test_accesses_of_32_bytes(type: str, mask: str, arch: int) -> None:
    module = moved(type, mask=mask)
    assert widths(module, arch) == {("ld", 32), ("st", 32)}
    assembled(module, arch)


@pytest.mark.parametrize(
    ("cache", "evict"), list(product(("", ".cg", ".cs"), ("", "evict_first", "evict_last")))
)
@pytest.mark.parametrize("mask", ["", ", mask=i < n"])
def test_cache_hints_assemble(cache: str, evict: str, mask: str) -> None:
    policy = f", eviction_policy='{evict}', cache_modifier='{cache}'"
    module = moved("fp32", mask=mask, policy=policy)
    assert widths(module, 100) == {("ld", 32), ("st", 32)}
    assembled(module, 100)


def test_others_have_16_bytes() -> None:
    """Chips without such accesses, and arrays that are not known to be aligned."""
    for module, arch in ((moved("fp32"), 90), (moved("fp32", aligned=16), 100)):
        assert widths(module, arch) == {("ld", 16), ("st", 16)}


def test_chips() -> None:
    assert [processor(n).access_bytes for n in (90, *CHIPS)] == [16, 32, 32, 32]


@pytest.mark.parametrize("type", TYPES)
@pytest.mark.parametrize("mask", ["", ", mask=i < n"])
def test_results_on_the_emulated_gpu(type: str, mask: str) -> None:
    names = {"i8": np.int8, "fp16": np.float16, "fp32": np.float32, "i64": np.int64}
    x = np.arange(3 * 8192 // TYPES[type]).astype(names[type])
    n = len(x) - 32 if mask else len(x)
    for lanes, warps in ((8, 4), (32, 1)):
        args = [x, np.zeros_like(x), n]
        module = moved(type, mask=mask)
        assert_same(module, (3, 1, 1), args, lanes=lanes, warps=warps, access_bytes=32)
