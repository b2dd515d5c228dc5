"""Small kernels, compiled for AMD processors."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import tilewright as tw
import tilewright.language as tl
from tilewright.compiler.artifact import CompiledKernel
from tilewright.compiler.driver import compile
from tilewright.compiler.source import ASTSource
from tilewright.targets.amd.features import processor
from tilewright.targets.protocol import GPUTarget

WAVE_64, WAVE_32 = "gfx942", "gfx1100"
ALIGNED = [["tt.divisibility", 16]]


@tw.jit
def add(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < n
    tl.store(
        out_ptr + i, tl.load(x_ptr + i, mask=inside) + tl.load(y_ptr + i, mask=inside), mask=inside
    )


@tw.jit
def sums(x_ptr, y_ptr, out_ptr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out_ptr + i, tl.load(x_ptr + i) + tl.load(y_ptr + i))


@tw.jit
def weighted(x_ptr, y_ptr, out_ptr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    x, y = tl.load(x_ptr + i).to(tl.float32), tl.load(y_ptr + i).to(tl.float32)
    tl.store(out_ptr + i, x * y + 1.5)


@tw.jit
def copy(x_ptr, out_ptr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + i, tl.load(x_ptr + i))


@tw.jit
def total(x_ptr, out_ptr, BLOCK: tl.constexpr):
    tl.store(out_ptr, tl.sum(tl.load(x_ptr + tl.arange(0, BLOCK)), 0))


@tw.jit
def shares(x_ptr, out_ptr, BLOCK: tl.constexpr):
    x = tl.exp(tl.load(x_ptr + tl.arange(0, BLOCK)))
    tl.store(out_ptr + tl.arange(0, BLOCK), x / tl.sum(x, 0))


@tw.jit
def grid(out_ptr):
    tl.store(out_ptr + tl.program_id(0), tl.num_programs(0))


@tw.jit
def accumulate(x_ptr, out_ptr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.atomic_add(out_ptr + i, tl.load(x_ptr + i), sem="relaxed")


def compiled(
    kernel: Any,
    types: dict[str, str],
    arch: str = WAVE_64,
    warps: int = 1,
    options: Mapping[str, int] = MappingProxyType({}),
    **constants: Any,
) -> CompiledKernel:
    """A kernel for a processor. Pointers are multiples of 16, and strides."""
    attrs = {
        (i,): ALIGNED
        for i, (name, kind) in enumerate(types.items())
        if kind.startswith("*") or name.startswith("stride")
    }
    source = ASTSource(kernel, types, constants, attrs)
    return compile(
        source, GPUTarget("hip", arch, processor(arch).lanes), {"num_warps": warps, **options}
    )


def counted(kernel: CompiledKernel) -> Counter[str]:
    """The instructions of a kernel, by name without encoding suffix."""
    return _counted(str(kernel.asm["amdgcn"]))


def innermost_loop(kernel: CompiledKernel) -> Counter[str]:
    """The instructions between the label and the branch of a loop that are the fewest."""
    text = str(kernel.asm["amdgcn"])
    loops: list[Counter[str]] = []
    for branch in re.finditer(r"^\ts_cbranch_\w+ (\.LBB\w+)$", text, re.MULTILINE):
        start = text.find(f"\n{branch[1]}:")
        if 0 <= start < branch.start():
            loops.append(_counted(text[start : branch.end()]))
    return min(loops, key=Counter.total)


def _counted(text: str) -> Counter[str]:
    names = re.findall(r"^\t([a-z]+_\w+)", text.partition(".amdhsa_kernel")[0], re.MULTILINE)
    return Counter(re.sub(r"_(e32|e64|dpp|e64_dpp)$", "", name) for name in names)
