"""The CUDA device on a real GPU, with kernels in hand-written PTX that the driver compiles.

`tests/runtime/test_cuda_device.py` looks at the same without a GPU. What ends a process's use of
the GPU, such as an illegal address, runs in a process of its own.
"""

import multiprocessing
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import tilewright.language as tl
from tests.gpu.kernels import TEXTS, kernel, ptx
from tilewright.base.diagnostics import DeviceError, OutOfResources
from tilewright.ir.core import Module
from tilewright.ir.passes import PassContext
from tilewright.runtime.devices.cuda import device, device_count, index_of
from tilewright.runtime.devices.cuda_api import FORKED
from tilewright.runtime.drivers.cuda import CudaDriver
from tilewright.runtime.jit import jit
from tilewright.targets import registry
from tilewright.targets.interpreter.target import InterpreterTarget
from tilewright.targets.protocol import GPUTarget, Lowered

ROOT = Path(__file__).parents[2]
N = 1000
GRID = (8, 1, 1)

gpu = pytest.mark.gpu


def vectors(where: str = "cuda") -> tuple[Any, Any, Any]:
    """Two vectors of N random numbers, and one of zeros."""
    x, y = torch.randn(N, device=where), torch.randn(N, device=where)
    return x, y, torch.zeros(N, device=where)


def ptxas(text: str, folder: Path, arch: str) -> bytes:
    """The cubin of a PTX text; skips the test where there is no assembler."""
    tool = shutil.which("ptxas")
    if tool is None:
        pytest.skip("needs ptxas")
    source, code = folder / "k.ptx", folder / "k.cubin"
    source.write_text(text)
    subprocess.run([tool, f"-arch={arch}", str(source), "-o", str(code)], check=True)
    return code.read_bytes()


def process(script: str, **environment: str) -> str:
    """The output of a script in a separate Python process, which can import the tests' modules."""
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("name", TEXTS)
def test_kernels_assemble(name: str, tmp_path: Path) -> None:
    assert ptxas(ptx(name), tmp_path, "sm_90")


# -- devices --------------------------------------------------------------------------------------


@gpu
def test_properties_equal_those_of_torch() -> None:
    assert device_count() == torch.cuda.device_count()
    for index in range(device_count()):
        ours, theirs = device(index).properties, torch.cuda.get_device_properties(index)
        assert ours.name == theirs.name
        assert ours.capability == (theirs.major, theirs.minor)
        assert ours.total_memory == theirs.total_memory
        assert ours.multiprocessor_count == theirs.multi_processor_count
        assert ours.max_shared_mem == theirs.shared_memory_per_block_optin
        assert ours.l2_cache_size == theirs.L2_cache_size
    found = CudaDriver().utils.get_device_properties(0)
    assert found["warpSize"] == 32
    assert min(found["sm_clock_rate"], found["mem_clock_rate"], found["mem_bus_width"]) > 0


@gpu
def test_device_of_a_pointer() -> None:
    x = torch.zeros(4, device="cuda")
    pinned, plain = torch.zeros(4).pin_memory(), torch.zeros(4)
    assert index_of(x.data_ptr()) == 0
    assert index_of(plain.data_ptr()) is None
    assert device(0).reaches(pinned.data_ptr())
    assert not device(0).reaches(plain.data_ptr())


@gpu
def test_current_device_and_target() -> None:
    driver = CudaDriver()
    assert driver.get_current_device() == torch.cuda.current_device()
    major, minor = torch.cuda.get_device_capability()
    assert driver.get_current_target() == GPUTarget("cuda", 10 * major + minor, 32)
    assert driver.get_active_torch_device() == torch.device("cuda", 0)
    buffer = driver.get_empty_cache_for_benchmark()
    assert buffer.nbytes > device(0).properties.l2_cache_size
    driver.clear_cache(buffer)
    assert driver.get_device_interface() is torch.cuda


# -- launching ------------------------------------------------------------------------------------


@gpu
def test_vector_add_from_ptx() -> None:
    x, y, out = vectors()
    add = kernel("add")
    add[GRID](x, y, out, N)
    assert torch.equal(out, x + y)
    assert add.n_regs > 0
    assert add.n_spills == 0
    assert add.n_max_threads == 1024


@gpu
def test_vector_add_from_cubin(tmp_path: Path) -> None:
    arch = f"sm_{device(0).arch}"
    x, y, out = vectors()
    kernel("add", ptxas(ptx("add"), tmp_path, arch))[GRID](x, y, out, N)
    assert torch.equal(out, x + y)


@gpu
def test_scalars_in_their_widths() -> None:
    out = torch.zeros(6, device="cuda", dtype=torch.float64)
    values = (True, 1.5, 0.1, 0.1, -(2**31), -(2**53))
    kernel("scalars", num_warps=1)[(1, 1, 1)](out, *values)
    assert out.tolist() == [1.0, 1.5, float(np.float32(0.1)), 0.1, -(2.0**31), -(2.0**53)]


class AddTarget(InterpreterTarget):
    """Compiles every kernel to the vector add."""

    name = "cuda"

    def key(self) -> str:
        return "add"

    def compile(self, module: Module, ctx: PassContext, options: Any) -> Lowered:
        return Lowered({"ptx": ptx("add")}, {"name": "add", "shared": 0})


def plus(x, y, out, n):
    i = tl.arange(0, 128)
    tl.store(out + i, tl.load(x + i) + tl.load(y + i), i < n)


@gpu
def test_jit_launches_where_the_tensors_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_REGISTERED", {"cuda": AddTarget})
    monkeypatch.setattr(registry, "_INSTANCES", {})
    launch = jit(plus)
    x, y, out = vectors()
    compiled = launch[(8,)](x, y, out, N)
    assert compiled.metadata.target.backend == "cuda"
    assert torch.equal(out, x + y)
    with pytest.raises(ValueError, match=r"`y` is a torch\.Tensor of shape \(1000,\) on 'cpu'"):
        launch[(8,)](x, y.cpu(), out, N)
    pinned = y.cpu().pin_memory()
    out.zero_()
    launch[(8,)](x, pinned, out, N)
    assert torch.equal(out, x + y)


@gpu
def test_shared_memory_up_to_the_limit() -> None:
    limit = device(0).properties.max_shared_mem
    for size in (1024, 48 << 10, limit):
        out = torch.full((8,), -1, device="cuda", dtype=torch.int32)
        kernel("shared", num_warps=1, shared=size)[GRID](out, size)
        assert out.tolist() == list(range(8))
    with pytest.raises(OutOfResources) as raised:
        kernel("shared", shared=limit + 1)[GRID](torch.zeros(8, device="cuda"), limit)
    assert (raised.value.required, raised.value.limit) == (limit + 1, limit)


@gpu
def test_too_many_threads() -> None:
    x, y, out = vectors()
    with pytest.raises(OutOfResources) as raised:
        kernel("add", num_warps=64)[GRID](x, y, out, N)
    assert (raised.value.required, raised.value.limit, raised.value.name) == (2048, 1024, "threads")


@gpu
@pytest.mark.parametrize("ctas", [2, 8, 16])
def test_clusters(ctas: int) -> None:
    if device(0).arch < 90:
        pytest.skip("needs a GPU with clusters")
    out = torch.full((3 * ctas,), -1, device="cuda", dtype=torch.int32)
    kernel("cluster", num_warps=1, num_ctas=ctas)[(3, 1, 1)](out)
    assert out.tolist() == [100 * (i // ctas) + i % ctas for i in range(3 * ctas)]


@gpu
def test_cooperative_and_dependent_launches() -> None:
    x, y, out = vectors()
    options: list[dict[str, Any]] = [{"launch_cooperative_grid": True}, {"launch_pdl": True}]
    for option in options:
        out.zero_()
        kernel("add", **option)[GRID](x, y, out, N)
        assert torch.equal(out, x + y)
    with pytest.raises(DeviceError, match="COOPERATIVE_LAUNCH_TOO_LARGE"):
        kernel("add", launch_cooperative_grid=True)[(1 << 20, 1, 1)](x, y, out, N)
    torch.cuda.synchronize()


@gpu
def test_grid_beyond_the_limits() -> None:
    x, y, out = vectors()
    with pytest.raises(DeviceError, match=r"launching add .* have at most \(2147483647, 65535, 65"):
        kernel("add")[(1, 65536, 1)](x, y, out, N)


# -- streams, graphs, scratch, threads ------------------------------------------------------------


@gpu
def test_launches_go_to_torchs_current_stream() -> None:
    """Many dependent launches on each of several streams, which nothing else orders."""
    add = kernel("add")
    streams = [torch.cuda.Stream() for _ in range(4)]
    sums: list[Any] = []
    one = torch.ones(N, device="cuda")
    torch.cuda.synchronize()
    for stream in streams:
        with torch.cuda.stream(stream):
            assert CudaDriver().get_current_stream() == stream.cuda_stream
            total = torch.zeros(N, device="cuda")
            for _ in range(100):
                add[GRID](total, one, total, N)
            sums.append(total)
    for stream in streams:
        device(0).synchronize_stream(stream.cuda_stream)
    assert all(bool((total == 100).all()) for total in sums)


@gpu
@pytest.mark.parametrize("loaded_before", [True, False])
def test_graph_capture(loaded_before: bool) -> None:
    x, y, out = vectors()
    add = kernel("add")
    if loaded_before:
        add[GRID](x, y, out, N)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        add[GRID](x, y, out, N)
        add[GRID](out, y, out, N)
    out.zero_()
    x.fill_(1)
    y.fill_(2)
    graph.replay()
    assert bool((out == 5).all())
    y.fill_(3)
    graph.replay()
    assert bool((out == 7).all())


@gpu
def test_scratch_memory_alone_and_in_a_graph() -> None:
    out = torch.zeros(64, device="cuda", dtype=torch.int32)
    run = kernel("scratch", num_warps=1, global_scratch_size=4, global_scratch_align=128)
    expected = [1000 + i for i in range(64)]
    run[(64, 1, 1)](out)
    assert out.tolist() == expected
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run[(64, 1, 1)](out)
    out.zero_()
    graph.replay()
    assert out.tolist() == expected


@gpu
def test_threads_launch_at_the_same_time() -> None:
    add, faults = kernel("add"), list[str]()

    def launches(number: int) -> None:
        with torch.cuda.stream(torch.cuda.Stream()):
            x = torch.full((N,), float(number), device="cuda")
            for step in range(200):
                out = torch.empty(N, device="cuda")
                add[GRID](x, x, out, N)
                if not bool((out == 2 * number).all()):
                    faults.append(f"thread {number}, step {step}")

    threads = [threading.Thread(target=launches, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert faults == []


@gpu
def test_two_devices() -> None:
    if device_count() < 2:
        pytest.skip("needs two GPUs")
    x, y, out = vectors("cuda:1")
    add = kernel("add")
    add[GRID](x, y, out, N)
    assert torch.cuda.current_device() == 0
    assert torch.equal(out, x + y)
    with pytest.raises(ValueError, match=r"add is loaded on cuda:1; its tensors are on cuda:0"):
        add[GRID](*vectors("cuda:0"), N)
    with pytest.raises(ValueError, match=r"cannot be accessed from cuda:1 \(cuda:0 tensor"):
        add[GRID](x, y.to("cuda:0"), out, N)
    with torch.cuda.device(1):
        first = vectors("cuda:0")
        other = kernel("add")
        other[GRID](*first, N)
        assert torch.cuda.current_device() == 1
    assert torch.equal(first[2], first[0] + first[1])


# -- rejected code --------------------------------------------------------------------------------


@gpu
def test_ptx_newer_than_the_driver() -> None:
    text = ptx("add").replace(".version 8.0", ".version 99.9")
    with pytest.raises(DeviceError, match=r"PTX 99\.9, .* driver \(CUDA \d+\.\d+\)"):
        kernel("add", text)._init_handles()


@gpu
def test_faulty_ptx_shows_the_assemblers_message() -> None:
    text = ptx("add").replace("add.f32", "sum.f32")
    with pytest.raises(DeviceError, match=r"(?s)loading the PTX of add .*\n.*line \d+"):
        kernel("add", text)._init_handles()


@gpu
def test_cubin_for_another_gpu(tmp_path: Path) -> None:
    other = "sm_80" if device(0).arch >= 90 else "sm_90"
    code = ptxas(ptx("add"), tmp_path, other)
    with pytest.raises(DeviceError, match="for another GPU than this one"):
        kernel("add", code)._init_handles()


# -- in processes of their own --------------------------------------------------------------------

ILLEGAL = """
import os, sys
import torch
from tests.gpu.kernels import kernel
from tilewright.runtime.devices.cuda import device
x = torch.zeros(1000, device="cuda")
add = kernel("add")
add[(8, 1, 1)](x, x, x, 1000)
torch.cuda.synchronize()
slots = (1 << 46, x.data_ptr(), x.data_ptr(), 1000)
try:
    add.load().start((8, 1, 1), slots, slots)
    print("launched")
    device(0).synchronize()
except RuntimeError as error:
    print(error)
try:
    add[(8, 1, 1)](x, x, x, 1000)
except RuntimeError as error:
    print("again:", error)
sys.stdout.flush()
os._exit(0)  # torch complains when it ends with such a device
"""


@gpu
def test_illegal_address_names_the_kernel() -> None:
    output = process(ILLEGAL)
    assert output.startswith("launched\nwaiting for cuda:0: a kernel read or wrote an illegal addr")
    assert "The last one launched was `add`." in output
    assert "again: launching add" in output


@gpu
def test_illegal_address_with_blocking_launches() -> None:
    output = process(ILLEGAL, CUDA_LAUNCH_BLOCKING="1")
    assert output.startswith("launching add on cuda:0 with grid (8, 1, 1): a kernel read or wrote")


WITHOUT_TORCH = """
import ctypes, sys
import numpy as np
from tests.gpu.kernels import kernel
from tilewright.runtime.devices.cuda import device
from tilewright.runtime.drivers.cuda import CudaDriver

assert CudaDriver().get_current_device() == 0
device(0).make_current()
driver = ctypes.CDLL("libcuda.so.1")

class Array:
    def __init__(self, host):
        address = ctypes.c_uint64()
        assert driver.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(host.nbytes)) == 0
        source = host.ctypes.data_as(ctypes.c_void_p)
        size = ctypes.c_size_t(host.nbytes)
        assert driver.cuMemcpyHtoD_v2(address, source, size) == 0
        self.host, self.size, self.address = host, size, address
        self.__cuda_array_interface__ = {
            "data": (address.value, False), "typestr": host.dtype.str, "shape": host.shape,
            "version": 3,
        }

    def get(self):
        target = self.host.ctypes.data_as(ctypes.c_void_p)
        assert driver.cuMemcpyDtoH_v2(target, self.address, self.size) == 0
        return self.host

x, out = Array(np.arange(1000, dtype=np.float32)), Array(np.zeros(1000, np.float32))
kernel("add")[(8, 1, 1)](x, x, out, 1000)
assert np.array_equal(out.get(), 2 * np.arange(1000))
words = Array(np.zeros(64, np.int32))
scratch = kernel("scratch", num_warps=1, global_scratch_size=4, global_scratch_align=128)
for _ in range(3):
    scratch[(64, 1, 1)](words)
assert np.array_equal(words.get(), 1000 + np.arange(64))
assert "torch" not in sys.modules
print("right")
"""


@gpu
def test_without_torch() -> None:
    assert process(WITHOUT_TORCH) == "right\n"


@gpu
def test_cupy_arrays() -> None:
    cupy = pytest.importorskip("cupy")
    x = cupy.arange(N, dtype=cupy.float32)
    out = cupy.zeros(N, dtype=cupy.float32)
    kernel("add")[GRID](x, x, out, N)
    assert bool((out == 2 * x).all())


def _launch_in_child(pipe: Any) -> None:
    try:
        device(0).synchronize()
    except DeviceError as error:
        pipe.send(str(error))
    else:
        pipe.send("no error")


@gpu
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_forked_child_gets_an_error() -> None:
    device(0).synchronize()
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe()
    child = context.Process(target=_launch_in_child, args=(there,))
    child.start()
    assert here.poll(60)
    assert here.recv() == FORKED
    child.join()
