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
def copy(x_ptr, out_ptr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + i, tl.load(x_ptr + i))


@tw.jit
def total(x_ptr, out_ptr, BLOCK: tl.constexpr):
    tl.store(out_ptr, tl.sum(tl.load(x_ptr + tl.arange(0, BLOCK)), 0))


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
    """A kernel for a processor; pointers are multiples of 16."""
    attrs = {(i,): ALIGNED for i, kind in enumerate(types.values()) if kind.startswith("*")}
    source = ASTSource(kernel, types, constants, attrs)
    return compile(
        source, GPUTarget("hip", arch, processor(arch).lanes), {"num_warps": warps, **options}
    )


def counted(kernel: CompiledKernel) -> Counter[str]:
    """The instructions of a kernel, by name without encoding suffix."""
    text = str(kernel.asm["amdgcn"]).partition("s_endpgm")[0]
    names = re.findall(r"^\t([a-z]+_\w+)", text, re.MULTILINE)
    return Counter(re.sub(r"_(e32|e64|dpp|e64_dpp)$", "", name) for name in names)
