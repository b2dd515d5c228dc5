"""Autotuning on a real GPU: timing on the device, restored memory, OutOfResources."""

import time
from pathlib import Path
from typing import Any

import pytest
import torch

import tilewright as tw
import tilewright.language as tl
from tilewright import testing
from tilewright.base import knobs
from tilewright.runtime.autotuner import Config
from tilewright.runtime.bench import clock_of

pytestmark = pytest.mark.gpu

N = 1 << 20


def increment(x, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + i, tl.load(x + i, i < n) + 1, i < n)


def grid(meta: dict[str, Any]) -> tuple[int]:
    return (-(-meta["n"] // meta["BLOCK"]),)


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path) -> Any:
    with knobs.cache.scope(), knobs.autotuning.scope():
        knobs.cache.dir = str(tmp_path)
        yield


@pytest.mark.parametrize("workers", [0, 2])
def test_in_place_kernel_has_the_effect_of_one_run(workers: int) -> None:
    knobs.autotuning.workers = workers
    configs = [Config({"BLOCK": b}, num_warps=w) for b in (32, 1024) for w in (1, 4)]
    kernel = tw.autotune(configs, ["n"])(tw.jit(increment))
    x = torch.arange(N, device="cuda", dtype=torch.float32)
    kernel[grid](x, N)
    assert torch.equal(x, torch.arange(N, device="cuda", dtype=torch.float32) + 1)
    assert kernel.best_config.kwargs["BLOCK"] == 1024
    medians = [kernel.configs_timings[config][0] for config in configs]
    assert 0 < min(medians) < max(medians) < 10


def test_second_process_on_an_equal_device_measures_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    x = torch.zeros(N, device="cuda")
    configs = [Config({"BLOCK": b}) for b in (256, 1024)]
    first = tw.autotune(configs, ["n"])(tw.jit(increment))
    first[grid](x, N)
    monkeypatch.setattr("tilewright.runtime.tuning.search.measure", None)
    again = tw.autotune(configs, ["n"])(tw.jit(increment))
    again[grid](x, N)
    assert again.configs_timings == first.configs_timings
    assert x.eq(2).all()


def test_launches_of_a_tuned_kernel_are_captured() -> None:
    x = torch.zeros(N, device="cuda")
    kernel = tw.autotune([Config({"BLOCK": b}) for b in (256, 1024)], ["n"])(tw.jit(increment))
    kernel[grid](x, N)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kernel[grid](x, N)
    for _ in range(3):
        graph.replay()
    assert x.eq(4).all()


def test_time_is_at_least_that_of_the_bytes() -> None:
    x = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
    y = torch.empty_like(x)
    ms = testing.do_bench(lambda: y.copy_(x), return_mode="median")
    assert 2 * x.numel() / ms / 1e6 < 1.05 * testing.get_dram_gbps()


@pytest.mark.parametrize("ours_inside", [True, False])
def test_intervals_of_torchs_events_contain_ours_and_the_reverse(ours_inside: bool) -> None:
    """Whatever else runs: of two intervals, one within the other, the outer is the longer one."""
    x = torch.randn(4096, 4096, device="cuda", dtype=torch.float16)
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.mm(x, x)
    with clock_of("cuda:0") as clock:
        if ours_inside:
            start.record()
        begin = clock.mark()
        if not ours_inside:
            start.record()
        for _ in range(10):
            torch.mm(x, x)
        if not ours_inside:
            end.record()
        finish = clock.mark()
        if ours_inside:
            end.record()
        torch.cuda.synchronize()
        ours, torchs = clock.elapsed(begin, finish), start.elapsed_time(end)
    inner, outer = (ours, torchs) if ours_inside else (torchs, ours)
    assert 0 < inner <= outer + 0.002  # ms; the resolution of events is 0.5 us


def test_graphs_measure_short_functions() -> None:
    x = torch.zeros(256, device="cuda")
    in_graph = testing.do_bench_cudagraph(lambda: x.add_(1), return_mode="min")
    begin = time.perf_counter()
    x.add_(1)
    torch.cuda.synchronize()
    assert 0 < in_graph < (time.perf_counter() - begin) * 1e3  # with the launch, and the wait
