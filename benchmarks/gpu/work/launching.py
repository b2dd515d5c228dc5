"""How long the host takes to launch a compiled kernel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from benchmarks.gpu.case import Case, Setting
from benchmarks.gpu.clock import HostClock
from benchmarks.gpu.measure import Bench, Planned, measure_case
from benchmarks.gpu.results import Bars, Row

ELEMENTS = 16
BARS = Bars(triton=2.0, us=6.0)  # under half of Triton's time
WHOLE = tuple(range(3, 11))
SCALE, SHIFT = 0.5, -1.25


def _case(setting: Setting, kernel: str, tensors: int, *scalars: float) -> Case:
    given = [setting.randn(ELEMENTS) for _ in range(tensors - 1)]
    out, theirs = setting.empty(ELEMENTS), setting.empty(ELEMENTS)
    launch = partial(_launch, kernel, [*given, out], scalars)
    total = torch.stack(given).double().sum(0)
    right = total * SCALE + SHIFT + sum(WHOLE) if len(scalars) > 2 else total
    return Case(
        kernels="launch",
        launches=lambda kernels: {f"{tensors + len(scalars)} arguments": launch(kernels)},
        outputs=[out],
        expected=lambda: [right],
        tolerance=1e-6,
        bytes=0,
        bars=BARS,
        library={"add": partial(torch.add, given[0], given[1], out=theirs)},
    )


def _launch(
    kernel: str, tensors: Sequence[torch.Tensor], scalars: Sequence[float], kernels: Any
) -> partial[Any]:
    return partial(getattr(kernels, kernel)[(1,)], *tensors, *scalars, BLOCK=ELEMENTS, num_warps=1)


def _planned(kernel: str, tensors: int, *scalars: float) -> Planned:
    def measure(bench: Bench, row: Row) -> None:
        clock = None if bench.clock is None else HostClock()
        case = _case(bench.setting, kernel, tensors, *scalars)
        measure_case(case, replace(bench, clock=clock), row)

    return measure


def plan(setting: Setting) -> dict[str, Planned]:
    many = ELEMENTS, *WHOLE, SCALE, SHIFT
    return {
        "5 arguments": _planned("five_arguments_kernel", 3, 0, ELEMENTS),
        "19 arguments": _planned("nineteen_arguments_kernel", 8, *many),
    }
