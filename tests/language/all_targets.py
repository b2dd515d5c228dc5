"""Runs a kernel on the interpreter, on the CPU, and as threads of an emulated GPU."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.frontend.kernels import flat, kernel_from, launch
from tests.lowering.simt import harness as simt
from tests.targets.cpu import harness as cpu
from tilewright.compiler.pipeline import STEPS
from tilewright.ir.core import Module
from tilewright.ir.passes import PassContext, run


def run_everywhere(
    text: str,
    /,
    *args: Any,
    grid: tuple[int, ...] = (1,),
    constexprs: dict[str, Any] | None = None,
    threads: tuple[tuple[int, int], ...] = ((1, 8), (4, 4)),
    **names: Any,
) -> Module:
    """Interpret the kernel on the arguments, in place, and see that the other targets do the same.

    Args:
        text: its source.
        constexprs: its compile-time arguments.
        threads: numbers of warps, and of lanes, of the emulated GPUs.
        names: globals.
    """
    x, y, z = (*grid, 1, 1)[:3]
    before = [a.copy() if isinstance(a, np.ndarray) else a for a in flat(args)]
    kernel = kernel_from(text, **names)
    module = launch(kernel, *args, grid=(x, y, z), **(constexprs or {}))
    lowered = module.clone()
    run(lowered, STEPS, PassContext(), [])
    cpu.assert_same(lowered, (x, y, z), before)
    for warps, lanes in threads:
        simt.assert_same(module, (x, y, z), before, warps=warps, lanes=lanes)
    return module
