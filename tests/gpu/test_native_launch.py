"""Native launches on a real GPU: torch's tensors, streams, graphs and devices.

`tests/runtime/test_native_cuda.py` looks at the same without a GPU.
"""

import ctypes
from typing import Any

import pytest
import torch

import tilewright.language as tl
from tests.threads import in_threads
from tilewright.runtime.autotuner import Autotuner, autotune
from tilewright.runtime.config import Config
from tilewright.runtime.devices.cuda_torch import checked_stream_function
from tilewright.runtime.heuristics import Heuristics, heuristics
from tilewright.runtime.jit import JITFunction, jit
from tilewright.runtime.native.runtime import runtime
from tilewright.tools.tensor_descriptor import TensorDescriptor

pytestmark = pytest.mark.gpu

N = 1000


def add(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < n
    tl.store(out + i, tl.load(x + i, inside) + tl.load(y + i, inside), inside)


def grid(meta: dict[str, Any]) -> tuple[int]:
    return (-(-meta["n"] // meta["BLOCK"]),)


def vectors(where: str = "cuda") -> tuple[Any, Any, Any]:
    x, y = torch.randn(N, device=where), torch.randn(N, device=where)
    return x, y, torch.zeros(N, device=where)


def require_torch_functions() -> None:
    if not hasattr(ctypes.CDLL(torch._C.__file__), "aoti_torch_get_data_ptr"):
        pytest.skip("needs a torch that describes its tensors by C functions")


def ready(monkeypatch: pytest.MonkeyPatch, *devices: str) -> JITFunction:
    """The kernel, after a launch on each device; from then on a launch by Python is a failure."""
    require_torch_functions()
    kernel = jit(add)
    for device in devices or ("cuda",):
        for _ in range(3):  # the first of a process is Python's, the next one finds torch
            with torch.cuda.device(device):
                kernel[grid](*vectors(device), N, BLOCK=128)

    def fail(*args: Any, **kwargs: Any) -> Any:
        raise AssertionError("launched by Python")

    monkeypatch.setattr(JITFunction, "run", fail)
    return kernel


@pytest.mark.parametrize("chosen", [grid, (8,)])
def test_torch_tensors(monkeypatch: pytest.MonkeyPatch, chosen: Any) -> None:
    kernel = ready(monkeypatch)
    x, y, out = vectors()
    for _ in range(3):
        out.zero_()
        kernel[chosen](x, y, out, N, BLOCK=128)
        assert torch.equal(out, x + y)


def test_numbers_divisible_by_8() -> None:
    """Rows of such lengths are loaded in vectors by a variant that other lengths must not get."""

    def negated_rows(x, out, columns, pitch, BLOCK: tl.constexpr):
        i = tl.arange(0, BLOCK)
        inside = i < columns
        row = tl.load(x + tl.program_id(0) * pitch + i, inside)
        tl.store(out + tl.program_id(0) * pitch + i, -row, inside)

    kernel = jit(negated_rows)
    for columns in (1000, 1001, 1024, 1000, 1016, 7, 8, 1001, 1000):
        x = torch.randn(5, columns, device="cuda", dtype=torch.float16)
        out = torch.zeros_like(x)
        kernel[(5,)](x, out, columns, columns, BLOCK=1024)
        assert torch.equal(out, -x)
    (cache,) = kernel.device_caches.values()
    assert len(cache.kernel_cache) == 3


@pytest.mark.parametrize("grid", [(9000,), (9001,), (4000, 3), (7, 5)])
def test_packed_programs(grid: tuple[int, ...]) -> None:
    """Programs of one warp that use shared memory, in blocks of one or of several."""

    def counts(x, out, BLOCK: tl.constexpr):
        program = tl.program_id(1) * tl.num_programs(0) + tl.program_id(0)
        i = tl.arange(0, BLOCK)
        found = tl.histogram(tl.load(x + program * BLOCK + i), BLOCK)
        tl.store(out + program * BLOCK + i, found)

    kernel = jit(counts)
    x = torch.randint(0, 64, (*reversed(grid), 64), device="cuda", dtype=torch.int32)
    expected = torch.zeros_like(x).scatter_add_(-1, x.long(), torch.ones_like(x))
    for _ in range(3):
        out = torch.zeros_like(x)
        kernel[grid](x, out, BLOCK=64, num_warps=1)
        assert torch.equal(out, expected)
    (cache,) = kernel.device_caches.values()
    (compiled,) = cache.kernel_cache.values()
    assert compiled.metadata.packed_programs == 4


def products(
    a, b, c, counts, m, n, k,
    axes: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """A tile of each program, on a grid of one axis or of three; all store its extents."""
    x, y, batch = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    if axes == 1:
        tiles_m, tiles_n = tl.cdiv(m, BM), tl.cdiv(n, BN)
        x, y, batch = x % tiles_m, x // tiles_m % tiles_n, x // (tiles_m * tiles_n)
    rows, columns = x * BM + tl.arange(0, BM), y * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), tl.float32)
    for start in range(0, k, BK):
        inner = start + tl.arange(0, BK)
        left = a + batch * m * k + rows[:, None] * k + inner
        right = b + batch * k * n + inner[:, None] * n + columns
        left = tl.load(left, (rows[:, None] < m) & (inner < k), 0.0)
        right = tl.load(right, (inner[:, None] < k) & (columns < n), 0.0)
        total = tl.dot(left, right, total)
    inside = (rows[:, None] < m) & (columns < n)
    tl.store(c + batch * m * n + rows[:, None] * n + columns, total.to(tl.float16), inside)
    for axis in tl.static_range(3):
        tl.store(counts + axis, tl.num_programs(axis))


@pytest.mark.parametrize("axes", [1, 3])
@pytest.mark.parametrize("size", [(9, 72, 80), (8, 1000, 1320)])
def test_blocks_that_loop_over_programs(axes: int, size: tuple[int, int, int]) -> None:
    """Fewer programs than are resident at once, and many more; directly and in a graph."""
    if torch.cuda.get_device_capability() < (9, 0):
        pytest.skip("needs tensor copies")
    kernel, (batches, m, n), k = jit(products), size, 192
    # Small integers, so that sums of any order are exact.
    a = torch.randint(-3, 4, (batches, m, k), device="cuda").half()
    b = torch.randint(-3, 4, (batches, k, n), device="cuda").half()
    counts = torch.zeros(3, device="cuda", dtype=torch.int32)
    grid = (-(-m // 64), -(-n // 128), batches)
    grid = (grid[0] * grid[1] * grid[2],) if axes == 1 else grid
    constants = {"axes": axes, "BM": 64, "BN": 128, "BK": 64, "num_warps": 4}
    c = torch.empty(batches, m, n, device="cuda", dtype=torch.float16)

    def launch() -> None:
        kernel[grid](a, b, c, counts, m, n, k, **constants)

    for _ in range(3):  # the first one by Python
        c.zero_()
        launch()
        assert torch.equal(c, a @ b)
        assert counts.tolist() == [*grid, 1, 1][:3]
    (cache,) = kernel.device_caches.values()
    (compiled,) = cache.kernel_cache.values()
    assert compiled.metadata.looped_axes == axes
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        launch()
    a.neg_()
    c.zero_()
    graph.replay()
    assert torch.equal(c, a @ b)


def test_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = ready(monkeypatch)
    for _ in range(8):
        x, y, out = vectors()
        torch.cuda.synchronize()
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            x.mul_(2)
            kernel[grid](x, y, out, N, BLOCK=128)
            total = out.sum()
        stream.synchronize()
        assert torch.equal(out, x + y)
        assert torch.equal(total, out.sum())


def test_c_function_of_torch_returns_the_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else each launch calls Python, which is correct too, and slower."""
    ready(monkeypatch)
    found = runtime()
    assert found is not None
    for index in range(torch.cuda.device_count()):
        before = torch.cuda.current_stream(index)
        assert checked_stream_function(found.torch_stream, index) == found.torch_stream != 0
        assert torch.cuda.current_stream(index) == before


def test_graph_capture(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = ready(monkeypatch)
    x, y, out = vectors()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kernel[grid](x, y, out, N, BLOCK=128)
    assert not out.any()
    x.fill_(3)
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(out, x + y)


def scaled(pair, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < n
    tl.store(out + i, tl.load(pair[0] + i, inside) * pair[1], inside)


def copy_blocks(source, out, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK
    tl.store(out + at + tl.arange(0, BLOCK), source.load([at]))


def without_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on a launch by Python is a failure."""
    require_torch_functions()
    for kind in (JITFunction, Autotuner, Heuristics):
        monkeypatch.setattr(kind, "run", None)


@pytest.mark.parametrize("way", ["tuned", "computed", "bound"])
def test_wrapped_and_bound_launches(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    x, y, out = vectors()
    kernel: Any = jit(add)
    if way == "tuned":
        configs = [Config({"BLOCK": 128}), Config({"BLOCK": 256}, num_warps=8)]
        kernel = autotune(configs, key=["n"])(kernel)
    elif way == "computed":
        kernel = heuristics({"BLOCK": lambda args: 128})(kernel)
    launch = lambda: kernel[grid](x, y, out, N)  # noqa: E731
    if way == "bound":
        launch = kernel.bind(x, y, out, N, BLOCK=128, grid=grid)
    for _ in range(4):
        launch()
    without_python(monkeypatch)
    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    for where in (torch.cuda.current_stream(), stream):
        where.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(where):
            out.zero_()
            launch()
        where.synchronize()
        assert torch.equal(out, x + y)
    with torch.cuda.graph(graph):
        launch()
    x.fill_(3)
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(out, x + y)


def test_arguments_with_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    x, _, out = vectors()
    block = TensorDescriptor.from_tensor(torch.randn(1024, device="cuda"), [128])
    copied = torch.zeros(1024, device="cuda")
    first, second = jit(scaled), jit(copy_blocks)
    for _ in range(4):
        first[grid]((x, 2.5), out, N, BLOCK=128)
        second[(8,)](block, copied, BLOCK=128)
    without_python(monkeypatch)
    out.zero_()
    copied.zero_()
    first[grid]((x, 2.5), out, N, BLOCK=128)
    second[(8,)](block, copied, BLOCK=128)
    assert torch.equal(out, x * 2.5)
    assert torch.equal(copied, block.base)


def test_many_threads_on_separate_streams() -> None:
    kernel = jit(add)
    given = [vectors() for _ in range(6)]
    torch.cuda.synchronize()

    def work(number: int) -> None:
        x, y, out = given[number]
        with torch.cuda.stream(torch.cuda.Stream()) as _:
            for _ in range(200):
                kernel[grid](x, y, out, N, BLOCK=128)
            torch.cuda.current_stream().synchronize()
        assert torch.equal(out, x + y)

    in_threads(work, len(given))


def test_two_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two CUDA devices")
    kernel = ready(monkeypatch, "cuda:0", "cuda:1")
    for device in ("cuda:0", "cuda:1", "cuda:0"):
        x, y, out = vectors(device)
        with torch.cuda.device(device):
            kernel[grid](x, y, out, N, BLOCK=128)
        assert torch.equal(out, x + y)
