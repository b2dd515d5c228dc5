"""Tile IR through the whole NVIDIA target, without a GPU."""

from __future__ import annotations

from typing import Any

import pytest

from tilewright.compiler.build import context_for
from tilewright.compiler.pipeline import pipeline
from tilewright.ir.core import Module
from tilewright.ir.passes import run
from tilewright.targets.nvidia.assemble import find_assembler
from tilewright.targets.nvidia.target import NvidiaTarget
from tilewright.targets.protocol import Lowered


def lower(module: Module, arch: int = 90, **options: Any) -> Lowered:
    """All stages of a module, which is left as it is; skips the test where none makes cubins."""
    if find_assembler() is None:
        pytest.skip("needs ptxas or nvJitLink")
    target = NvidiaTarget(arch)
    parsed = target.parse_options(options)
    ctx = context_for(target, parsed)
    module = module.clone()
    run(module, pipeline(target), ctx)
    return target.compile(module, ctx, parsed)


def ptx_of(module: Module, arch: int = 90, **options: Any) -> str:
    """The PTX, which an assembler has accepted."""
    text = lower(module, arch, **options).stages["ptx"]
    assert isinstance(text, str)
    return text
