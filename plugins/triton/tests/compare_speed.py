"""Times of kernels as the target `cuda` and as Triton's back end compile the same tile IR.

    PYTHONPATH=.:examples:plugins/triton/tests python plugins/triton/tests/compare_speed.py

Needs the plug-in installed, Triton in this environment, and a GPU. Medians of rounds in which the
two take turns.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from fused_softmax import softmax_kernel
from layer_norm import forward_kernel
from matmul import identity, matmul_kernel
from tilewright_triton.driver import OnTriton
from vector_add import add_kernel

import tilewright as tw

ROUNDS, LAUNCHES = 7, 20
Wrap = Callable[[torch.Tensor], Any]


class Work(NamedTuple):
    """A launch: its name, and a function of how tensors are passed."""

    name: str
    launch: Callable[[Wrap], None]
    results: list[torch.Tensor]


def works() -> Iterator[Work]:
    x, y = (torch.randn(1 << 26, device="cuda") for _ in range(2))
    out = torch.empty_like(x)
    grid = (tw.cdiv(out.numel(), 1024),)
    yield Work(
        "vector_add 2^26",
        lambda wrap: add_kernel[grid](wrap(x), wrap(y), wrap(out), out.numel(), BLOCK=1024),
        [out],
    )
    for columns in (1024, 4096, 12672):
        a = torch.randn(8192, columns, device="cuda")
        yield _softmax(a, torch.empty_like(a))
    for size, type in ((1024, torch.float16), (4096, torch.float16), (4096, torch.float32)):
        for stages in (3, 4):
            yield _matmul(size, type, stages)
    yield _layer_norm(torch.randn(8192, 4096, device="cuda"))


def _softmax(a: torch.Tensor, b: torch.Tensor) -> Work:
    rows, columns = a.shape
    block = tw.next_power_of_2(columns)
    return Work(
        f"softmax {rows}x{columns}",
        lambda wrap: softmax_kernel[(rows,)](
            wrap(a), wrap(b), columns, columns, columns, BLOCK=block, num_warps=8
        ),
        [b],
    )


def _layer_norm(x: torch.Tensor) -> Work:
    rows, columns = x.shape
    weight, bias = (torch.randn(columns, device="cuda") for _ in range(2))
    mean, rstd = (torch.empty(rows, device="cuda") for _ in range(2))
    y, block = torch.empty_like(x), tw.next_power_of_2(columns)

    def launch(wrap: Wrap) -> None:
        tensors = [wrap(t) for t in (x, weight, bias, y, mean, rstd)]
        forward_kernel[(rows,)](*tensors, columns, 1e-5, BLOCK=block, num_warps=8)

    return Work(f"layer_norm {rows}x{columns}", launch, [y])


def _matmul(size: int, type: torch.dtype, stages: int) -> Work:
    a, b = (torch.randn(size, size, device="cuda").to(type) for _ in range(2))
    c = torch.empty(size, size, device="cuda")
    depth = 64 if type == torch.float16 else 32
    constants = {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": depth, "GROUP_M": 8}
    grid = (tw.cdiv(size, 128) ** 2,)
    return Work(
        f"matmul {size} {str(type).partition('.')[2]} stages={stages}",
        lambda wrap: matmul_kernel[grid](
            wrap(a), wrap(b), wrap(c), size, size, size, size, size, size, ACTIVATION=identity,
            **constants, num_warps=8, num_stages=stages,
        ),
        [c],
    )  # fmt: skip


def recorded(work: Work, wrap: Wrap) -> torch.cuda.CUDAGraph:
    """Launches in a graph, so that their host side is not measured."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(LAUNCHES):
            work.launch(wrap)
    graph.replay()
    return graph


def milliseconds(graph: torch.cuda.CUDAGraph) -> float:
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    graph.replay()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / LAUNCHES


def main() -> None:
    ways: dict[str, Wrap] = {"cuda": lambda tensor: tensor, "triton": OnTriton}
    print(f"{'kernel':34} {'cuda ms':>9} {'triton ms':>9} {'ratio':>6}  largest difference")
    for work in works():
        try:
            found: dict[str, list[torch.Tensor]] = {}
            for way, wrap in ways.items():
                for _ in range(3):
                    work.launch(wrap)
                found[way] = [r.double().clone() for r in work.results]
            graphs = {way: recorded(work, wrap) for way, wrap in ways.items()}
            times: dict[str, list[float]] = {way: [] for way in ways}
            for _ in range(ROUNDS):
                for way, graph in graphs.items():
                    times[way].append(milliseconds(graph))
            ours, theirs = (statistics.median(times[way]) for way in ways)
            pairs = zip(found["cuda"], found["triton"], strict=True)
            difference = max(float((a - b).abs().max()) for a, b in pairs)
            line = f"{ours:9.4f} {theirs:9.4f} {ours / theirs:6.2f}  {difference:.3g}"
        except Exception as error:
            line = f"{type(error).__name__}: {str(error).strip().splitlines()[-1][:200]}"
        print(f"{work.name:34} {line}", flush=True)


if __name__ == "__main__":
    main()
