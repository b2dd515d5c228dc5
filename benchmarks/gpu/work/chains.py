"""Chains of small kernels, each of which reads what the one before has written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch

import tilewright as tw
from benchmarks.gpu.case import Case, Run, Setting
from benchmarks.gpu.clock import HostClock
from benchmarks.gpu.measure import Bench, Planned, measure_case
from benchmarks.gpu.results import Bars, Row

LENGTH = 20
BLOCK, WARPS = 1024, 4
BARS = Bars(triton=1.15)

Step = Callable[[torch.Tensor, torch.Tensor], Any]
"""Launches a kernel, from one buffer to another."""


class Chain:
    """LENGTH launches in turn between two buffers, from the first back to the first.

    Args:
        step: launches one kernel.
        buffers: the input, which is restored before each run, and two to work in.
        captured: whether runs after the first replay a CUDA graph.
    """

    def __init__(self, step: Step, buffers: tuple[torch.Tensor, ...], captured: bool) -> None:
        self.step = step
        self.start, self.one, self.other = buffers
        self.captured = captured
        self.graph: torch.cuda.CUDAGraph | None = None

    def __call__(self) -> None:
        if self.graph is not None:
            self.graph.replay()
            return
        self._launch()
        if self.captured:
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                self._launch()

    def _launch(self) -> None:
        self.step(self.start, self.one)
        for _ in range(LENGTH // 2 - 1):
            self.step(self.one, self.other)
            self.step(self.other, self.one)
        self.step(self.one, self.other)


def _case(
    setting: Setting, steps: Callable[[Any], Step], start: torch.Tensor, right: torch.Tensor,
    kernels: str, captured: bool,
) -> Case:  # fmt: skip
    one, other = torch.empty_like(start), torch.empty_like(start)
    captured &= setting.device == "cuda"

    def launches(loaded: Any) -> dict[str, Run]:
        return {f"{LENGTH} launches": Chain(steps(loaded), (start, one, other), captured)}

    return Case(
        kernels=kernels,
        launches=launches,
        outputs=[other],
        expected=lambda: [right],
        tolerance=2e-5,
        bytes=0,
        bars=BARS,
    )


def _additions(setting: Setting, programs: int, captured: bool) -> Case:
    """Elementwise: `programs` programs of BLOCK elements."""
    n = programs * BLOCK
    start, more = setting.randn(n), setting.randn(n)

    def steps(kernels: Any) -> Step:
        launch = partial(kernels.add_kernel[(programs,)], BLOCK=BLOCK, num_warps=WARPS)
        return lambda x, y: launch(x, more, y, n)

    right = start.double() + LENGTH * more.double()
    return _case(setting, steps, start, right, "elementwise", captured)


def _softmaxes(setting: Setting, rows: int, captured: bool) -> Case:
    """A reduction in each program."""
    start = setting.randn(rows, BLOCK)

    def steps(kernels: Any) -> Step:
        launch = partial(kernels.row_kernel[(rows,)], BLOCK=BLOCK, num_warps=WARPS)
        return lambda x, y: launch(x, y, BLOCK, BLOCK, BLOCK)

    right = start.double()
    for _ in range(LENGTH):
        right = right.softmax(1)
    return _case(setting, steps, start, right, "softmax", captured)


def _products(setting: Setting, size: int, captured: bool) -> Case:
    """Products with a matrix that permutes the columns, so that results stay exact."""
    start = setting.randn(size, size).half()
    order = torch.randperm(size, device=setting.device)
    factor = torch.eye(size, device=setting.device, dtype=torch.float16)[order]
    tiles = tw.cdiv(size, 64)

    def steps(kernels: Any) -> Step:
        launch = partial(
            kernels.matmul_kernel[(tiles * tiles,)],
            BLOCK_M=64, BLOCK_N=64, BLOCK_K=64, GROUP=8, PRECISION="tf32", num_warps=WARPS,
        )  # fmt: skip
        return lambda x, y: launch(x, factor, y, size, size, size, size, 1, size, 1, size, 1)

    right = start
    for _ in range(LENGTH):
        right = right @ factor
    return _case(setting, steps, start, right, "matmul", captured)


def _planned(make: Callable[[Setting, int, bool], Case], size: int, captured: bool) -> Planned:
    def measure(bench: Bench, row: Row) -> None:
        clock = None if bench.clock is None else HostClock(calls=20, until_done=True)
        case = make(bench.setting, size, captured)
        measure_case(case, replace(bench, clock=clock), row)

    return measure


def plan(setting: Setting) -> dict[str, Planned]:
    made: dict[str, tuple[Callable[[Setting, int, bool], Case], tuple[int, ...]]] = {
        "additions of {} x 1024": (_additions, setting.pick((3,), (32,), (32, 264, 1024))),
        "softmaxes of {} x 1024": (_softmaxes, setting.pick((3,), (264,), (264, 2112))),
        "products of {}": (_products, setting.pick((128,), (512,), (512, 1024))),
    }
    return {
        f"{name.format(size)}, {how}": _planned(make, size, captured)
        for name, (make, sizes) in made.items()
        for size in sizes
        for how, captured in (("launched", False), ("in a graph", True))
    }
