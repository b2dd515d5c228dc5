"""Several GPUs in one process: launches go where their tensors are, and the current device stays.

All of it needs two GPUs; `tests/runtime/test_native_cuda.py` and `test_cuda_device.py` look at what
the driver is queried without any.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import tilewright as tw
import tilewright.language as tl
from tests.gpu.kernels import kernel as by_hand
from tests.threads import in_threads
from tilewright import testing
from tilewright.base import knobs
from tilewright.runtime import _allocation, driver
from tilewright.runtime.autotuner import Config
from tilewright.runtime.devices.cuda import device
from tilewright.runtime.drivers.cuda import CudaDriver
from tilewright.tools.tensor_descriptor import TensorDescriptor

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs"),
]

N = 1000
ONE, OTHER = "cuda:0", "cuda:1"


def add(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < n
    tl.store(out + i, tl.load(x + i, inside) + tl.load(y + i, inside), inside)


def increment(x, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + i, tl.load(x + i, i < n) + 1, i < n)


def gather(addresses, out, n, BLOCK: tl.constexpr):
    """Adds up the elements at addresses, which may be another GPU's."""
    i = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for rank in range(2):
        source = tl.load(addresses + rank).to(tl.pointer_type(tl.float32))
        total += tl.load(source + i, i < n, other=0.0)
    tl.store(out + i, total, i < n)


def fill(address, value, BLOCK: tl.constexpr):
    """Writes at an address given as a number."""
    target = address.to(tl.pointer_type(tl.float32))
    tl.store(target + tl.arange(0, BLOCK), value)


def copy_block(source, to, BLOCK: tl.constexpr):
    tl.store(to + tl.arange(0, BLOCK), source.load([0]))


def grid(meta: dict[str, Any]) -> tuple[int]:
    return (-(-meta["n"] // meta["BLOCK"]),)


def vectors(where: str) -> tuple[Any, Any, Any]:
    x, y = torch.randn(N, device=where), torch.randn(N, device=where)
    return x, y, torch.zeros(N, device=where)


@pytest.fixture(autouse=True)
def first_device_is_current(tmp_path: Path) -> Iterator[None]:
    """Before each test and after it, and each test compiles and tunes separately."""
    torch.cuda.set_device(0)
    with knobs.cache.scope(), knobs.autotuning.scope(), knobs.compilation.scope():
        knobs.cache.dir = str(tmp_path)
        yield
    assert torch.cuda.current_device() == 0


# -- launches -------------------------------------------------------------------------------------


def launches_of(kernel: Any) -> dict[str, Callable[..., Any]]:
    """Ways of launching."""
    return {
        "in brackets": lambda *args: kernel[grid](*args, N, BLOCK=128),
        "by Python": lambda *args: kernel.run(*args, N, BLOCK=128, grid=grid),
        "bound": lambda *args: kernel.bind(*args, N, BLOCK=128, grid=grid)(),
    }


@pytest.mark.parametrize("way", ["in brackets", "by Python", "bound"])
def test_tensors_determine_the_device(way: str) -> None:
    launch = launches_of(tw.jit(add))[way]
    for where in (OTHER, ONE, OTHER, OTHER, ONE):
        for current in (0, 1):
            x, y, out = vectors(where)
            torch.cuda.synchronize(where)
            with torch.cuda.device(current):
                launch(x, y, out)
                assert torch.cuda.current_device() == current
            torch.cuda.synchronize(where)
            assert torch.equal(out, x + y)
            assert torch.cuda.current_device() == 0


def test_bound_arguments_stay_where_they_are() -> None:
    kernel = tw.jit(increment)
    tensors = {where: torch.zeros(N, device=where) for where in (ONE, OTHER)}
    steps = {where: kernel.bind(x, N, BLOCK=128, grid=grid) for where, x in tensors.items()}
    for current in (0, 1, 0):
        with torch.cuda.device(current):
            for step in steps.values():
                step()
    for where, x in tensors.items():
        torch.cuda.synchronize(where)
        assert x.eq(3).all()


def test_one_kernel_for_both_devices() -> None:
    """Each device loads it; for devices of one kind it is compiled once."""
    made: list[bool] = []
    knobs.compilation.listener = lambda *, cache_hit, **reported: made.append(cache_hit)
    kernel = tw.jit(add)
    compiled = [kernel[grid](*vectors(where), N, BLOCK=128) for where in (ONE, OTHER, OTHER)]
    assert [each.device for each in compiled] == [ONE, OTHER, OTHER]
    assert compiled[1] is compiled[2]
    assert compiled[0].function != compiled[1].function
    same_kind = device(0).arch == device(1).arch
    assert made == ([False, True] if same_kind else [False, False])


@pytest.mark.parametrize("way", ["in brackets", "by Python", "bound"])
@pytest.mark.parametrize("warm", [False, True])
def test_tensors_on_two_devices_are_named(way: str, warm: bool) -> None:
    kernel = tw.jit(add)
    launch = launches_of(kernel)[way]
    if warm:
        for where in (ONE, OTHER, ONE, OTHER):
            launch(*vectors(where))
    x, y, out = vectors(ONE)
    with pytest.raises(ValueError, match=r"from cuda:0 \(cuda:1 tensor\?\).*`y`.*`x`.*cuda:0"):
        launch(x, y.to(OTHER), out)
    with pytest.raises(ValueError, match=r"from cuda:1 \(cuda:0 tensor\?\)"):
        launch(x.to(OTHER), y, out)
    assert torch.cuda.current_device() == 0


def test_pinned_memory_is_reached_from_both() -> None:
    kernel = tw.jit(add)
    for where in (ONE, OTHER):
        x, y, out = vectors(where)
        pinned = y.cpu().pin_memory()
        kernel[grid](x, pinned, out, N, BLOCK=128)
        torch.cuda.synchronize(where)
        assert torch.equal(out, x + y)


def test_streams_are_those_of_the_device() -> None:
    kernel = tw.jit(add)
    for _ in range(4):
        for where in (ONE, OTHER):
            x, y, out = vectors(where)
            torch.cuda.synchronize(where)
            stream = torch.cuda.Stream(where)
            with torch.cuda.stream(stream):  # makes the device current, too
                x.mul_(2)
                kernel[grid](x, y, out, N, BLOCK=128)
                total = out.sum()
            stream.synchronize()
            assert torch.allclose(total, (x + y).sum(), rtol=1e-4, atol=1e-4)


def test_descriptors() -> None:
    kernel = tw.jit(copy_block)
    for where in (OTHER, ONE, OTHER):
        source, to = torch.randn(128, device=where), torch.zeros(128, device=where)
        kernel[(1,)](TensorDescriptor.from_tensor(source, [128]), to, BLOCK=128)
        torch.cuda.synchronize(where)
        assert torch.equal(source, to)


def test_without_tensors_the_current_device_counts() -> None:
    kernel = tw.jit(fill)
    driver.set_active(CudaDriver())
    try:
        for current in (0, 1, 0, 1):
            out = torch.zeros(128, device=f"cuda:{current}")
            torch.cuda.synchronize(current)
            with torch.cuda.device(current):
                compiled = kernel[(1,)](out.data_ptr(), 2.5, BLOCK=128)
            torch.cuda.synchronize(current)
            assert compiled.device == f"cuda:{current}"
            assert out.eq(2.5).all()
    finally:
        driver.reset_active()


def test_scratch_memory_is_on_the_device_of_the_launch() -> None:
    out = torch.zeros(8, dtype=torch.int32, device=OTHER)
    requested: list[int] = []

    def allocate(size: int, alignment: int, stream: int | None) -> Any:
        requested.append(torch.cuda.current_device())
        return torch.empty(size, dtype=torch.uint8, device="cuda")

    for allocator in (_allocation._NULL_ALLOCATOR, allocate):
        kernel = by_hand("scratch", global_scratch_size=128, global_scratch_align=128)
        token = _allocation._allocator.set(allocator)
        try:
            kernel[(8, 1, 1)](out)
        finally:
            _allocation._allocator.reset(token)
        torch.cuda.synchronize(OTHER)
        assert out.tolist() == list(range(1000, 1008))
        out.zero_()
    assert requested == [1]
    assert torch.cuda.current_device() == 0


# -- memory of another GPU ------------------------------------------------------------------------


def test_addresses_of_a_peer() -> None:
    """Which the program has made accessible, as torch does for its copies."""
    if not all(torch.cuda.can_device_access_peer(i, 1 - i) for i in (0, 1)):
        pytest.skip("these GPUs do not reach each other's memory")
    kernel = tw.jit(gather)
    parts = [torch.randn(N, device=where) for where in (ONE, OTHER)]
    torch.empty(1, device=ONE).copy_(parts[1][:1])  # both ways: torch opens the way
    torch.empty(1, device=OTHER).copy_(parts[0][:1])
    for where in (ONE, OTHER):
        torch.cuda.synchronize(ONE)
        torch.cuda.synchronize(OTHER)
        addresses = torch.tensor([p.data_ptr() for p in parts], device=where)
        out = torch.zeros(N, device=where)
        kernel[(1,)](addresses, out, N, BLOCK=1024)
        torch.cuda.synchronize(where)
        assert torch.equal(out.cpu(), parts[0].cpu() + parts[1].cpu())


# -- tuning and measuring -------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [0, 2])
def test_tuning_where_the_tensors_are(workers: int) -> None:
    knobs.autotuning.workers = workers
    measured: list[bool] = []
    knobs.autotuning.listener = lambda *, cache_hit, **reported: measured.append(not cache_hit)
    configs = [Config({"BLOCK": b}, num_warps=w) for b in (32, 1024) for w in (1, 4)]
    tuned = tw.autotune(configs, ["n"])(tw.jit(increment))
    count = 1 << 20
    for where in (OTHER, ONE, OTHER):
        x = torch.arange(count, device=where, dtype=torch.float32)
        expected = x + 1
        torch.cuda.synchronize(where)
        tuned[grid](x, count)
        torch.cuda.synchronize(where)
        assert torch.equal(x, expected)
        assert torch.cuda.current_device() == 0
        assert all(0 < times[0] < 10 for times in tuned.configs_timings.values())
    same_kind = CudaDriver().describe(0) == CudaDriver().describe(1)
    assert measured == ([True, False] if same_kind else [True, True])
    assert len(tuned.cache) == 2
    assert {key[-1] for key in tuned.cache} >= {ONE}


def test_measuring_another_device() -> None:
    x = torch.empty(64 << 20, dtype=torch.uint8, device=OTHER)
    y = torch.empty_like(x)
    torch.cuda.synchronize(OTHER)
    named = testing.do_bench(lambda: y.copy_(x), return_mode="median", device=OTHER)
    with torch.cuda.device(1):
        current = testing.do_bench(lambda: y.copy_(x), return_mode="median")
    assert named == pytest.approx(current, rel=0.5)
    assert torch.cuda.current_device() == 0


# -- graphs ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", [ONE, OTHER])
def test_graphs(where: str) -> None:
    kernel = tw.jit(increment)
    x = torch.zeros(N, device=where)
    kernel[grid](x, N, BLOCK=128)  # compiles; what follows may also load while it captures
    kernel[grid](x, N, BLOCK=128)
    torch.cuda.synchronize(where)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=torch.cuda.Stream(where)):
        for _ in range(3):
            kernel[grid](x, N, BLOCK=128)
    graph.replay()
    torch.cuda.synchronize(where)
    assert x.eq(5).all()


# -- threads --------------------------------------------------------------------------------------


def test_new_thread_keeps_the_first_device() -> None:
    """A launch elsewhere does not choose a device for a thread that has chosen none."""
    kernel = tw.jit(add)
    x, y, out = vectors(OTHER)
    torch.cuda.synchronize(OTHER)
    seen: list[int] = []

    def work(number: int) -> None:
        for _ in range(3):
            kernel[grid](x, y, out, N, BLOCK=128)
        seen.append(torch.cuda.current_device())

    in_threads(work, 1)
    torch.cuda.synchronize(OTHER)
    assert torch.equal(out, x + y)
    assert seen == [0]


@pytest.mark.parametrize("chooses", [True, False])
def test_threads_with_a_device_each(chooses: bool) -> None:
    """One kernel, compiled while others wait, launched from four threads on both devices."""
    kernel = tw.jit(add)

    def work(number: int) -> None:
        where = number % 2
        if chooses:
            torch.cuda.set_device(where)
        for step in range(100):
            x = torch.full((N,), float(number), device=f"cuda:{where}")
            out = torch.empty_like(x)
            kernel[grid](x, x, out, N, BLOCK=128)
            assert bool((out == 2 * number).all()), f"thread {number}, step {step}"
        assert torch.cuda.current_device() == (where if chooses else 0)

    in_threads(work, 4)


def test_threads_tune_on_a_device_each() -> None:
    configs = [Config({"BLOCK": b}) for b in (64, 256, 1024)]
    tuned = tw.autotune(configs, ["n"])(tw.jit(increment))

    def work(number: int) -> None:
        x = torch.zeros(N, device=f"cuda:{number % 2}")
        for _ in range(5):
            tuned[grid](x, N)
        torch.cuda.synchronize(x.device)
        assert bool(x.eq(5).all())

    in_threads(work, 4)
    assert len(tuned.cache) == 2
