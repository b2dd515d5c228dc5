"""Vector add and copy."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

import tilewright as tw
from benchmarks.gpu.case import Case, Run, Setting
from benchmarks.gpu.measure import Planned, planned
from benchmarks.gpu.results import Bars

CONFIGS = ((1024, 4), (4096, 8))
"""Elements and warps of a program."""


def _launches(kernel: Any, *args: Any, n: int) -> dict[str, Run]:
    return {
        f"{block} elements, {warps} warps": partial(
            kernel[(tw.cdiv(n, block),)], *args, n, BLOCK=block, num_warps=warps
        )
        for block, warps in CONFIGS
    }


def _add(setting: Setting, n: int) -> Case:
    x, y, out = setting.randn(n), setting.randn(n), setting.empty(n)
    return Case(
        kernels="elementwise",
        launches=lambda kernels: _launches(kernels.add_kernel, x, y, out, n=n),
        outputs=[out],
        expected=lambda: [x + y],
        tolerance=0.0,
        bytes=3 * 4 * n,
        bars=Bars(triton=0.99, torch=0.99),
        library={"add": partial(torch.add, x, y, out=out)},
    )


def add(setting: Setting) -> dict[str, Planned]:
    n = setting.pick(10_007, 2**28, 2**28)
    return {f"{n} elements": planned(_add, n)}


def _copy(setting: Setting, n: int, bars: Bars) -> Case:
    x, out = setting.randn(n, dtype=torch.bfloat16), setting.empty(n, dtype=torch.bfloat16)
    return Case(
        kernels="elementwise",
        launches=lambda kernels: _launches(kernels.copy_kernel, x, out, n=n),
        outputs=[out],
        expected=lambda: [x],
        tolerance=0.0,
        bytes=2 * 2 * n,
        bars=bars,
        library={"copy_": partial(out.copy_, x)},
    )


def copy(setting: Setting) -> dict[str, Planned]:
    """A long one for the speed of memory, and some as short as other work of this page.

    Nothing that reads and writes as many bytes can be expected to be faster than those.
    """
    n = setting.pick(10_007, 2**29, 2**29)
    short = setting.pick((), (2**23,), (2**23, 2**24, 2**25))
    sizes = {n: Bars(triton=0.99, torch=0.99)} | dict.fromkeys(short, Bars())
    return {
        f"{n} elements, {4 * n / 1e6:.0f} MB": planned(_copy, n, bars) for n, bars in sizes.items()
    }
