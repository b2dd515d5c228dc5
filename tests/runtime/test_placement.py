"""Where a launch runs: on the device of its tensors, else on the active driver's; what is rejected.

The CUDA driver only records, and the target for it only makes the PTX of an empty kernel.
"""

from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import tilewright.language as tl
from tests.runtime.fake_cuda import DEVICE, FakeCuda, Gpu, Tensor, ptx
from tilewright.base import knobs
from tilewright.base.diagnostics import DeviceError
from tilewright.compiler.artifact import CompiledKernel
from tilewright.compiler.driver import compile
from tilewright.compiler.source import ASTSource
from tilewright.ir.core import Module
from tilewright.ir.passes import PassContext
from tilewright.runtime import driver
from tilewright.runtime.devices import cuda_api
from tilewright.runtime.devices.cuda import device
from tilewright.runtime.drivers.cpu import CpuDriver
from tilewright.runtime.drivers.cuda import CudaDriver
from tilewright.runtime.jit import jit
from tilewright.runtime.tensors import read
from tilewright.runtime.wrappers import MockTensor
from tilewright.targets import registry
from tilewright.targets.interpreter.target import InterpreterTarget
from tilewright.targets.protocol import GPUTarget, Lowered

pytestmark = pytest.mark.usefixtures("launcher")


class PtxTarget(InterpreterTarget):
    """Compiles every kernel to one that does nothing."""

    name = "cuda"

    def key(self) -> str:
        return f"empty kernels for {self.arch}"

    def compile(self, module: Module, ctx: PassContext, options: Any) -> Lowered:
        name = module.entry.name
        return Lowered({"ptx": ptx(name)}, {"name": name, "shared": 0})


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCuda]:
    """Two GPUs of different kinds."""
    made = FakeCuda([Gpu(), Gpu(b"NVIDIA A100", {**DEVICE, 75: 8})])
    made.widths["copy"] = [8, 8]
    made.install(monkeypatch)
    monkeypatch.setattr(registry, "_REGISTERED", {"cuda": PtxTarget})
    monkeypatch.setattr(registry, "_INSTANCES", {})
    yield made
    driver.reset_active()
    assert not made.faults


def copy(x, out):
    tl.store(out, tl.load(x))


def nothing(n):
    pass


def on_gpu(device: str = "cuda:0") -> Tensor:
    return Tensor(0x7000, device)


def addresses(fake: FakeCuda) -> list[tuple[int, ...]]:
    """What each launch passed, as numbers."""
    return [tuple(int.from_bytes(a, "little") for a in each.arguments) for each in fake.launches]


# -- the device of the tensors --------------------------------------------------------------------


def test_tensors_determine_the_device(fake: FakeCuda) -> None:
    kernel = jit(copy)
    x, out = np.array([5.0], np.float32), np.zeros(1, np.float32)
    assert kernel[(1,)](x, out).metadata.target.backend == "cpu"
    assert out[0] == 5
    assert fake.calls == []
    first = kernel[(2,)](on_gpu(), Tensor(0x8000, "cuda:0"))
    assert first.metadata.target == GPUTarget("cuda", 90, 32)
    second = kernel[(3,)](on_gpu("cuda:1"), on_gpu("cuda:1"))
    assert second.metadata.target == GPUTarget("cuda", 80, 32)
    assert [launch.context for launch in fake.launches] == [0x100, 0x101]
    assert [launch.grid for launch in fake.launches] == [(2, 1, 1), (3, 1, 1)]
    assert addresses(fake) == [(0x7000, 0x8000), (0x7000, 0x7000)]
    assert list(kernel.device_caches) == ["cpu", "cuda:0", "cuda:1"]
    assert kernel[(1,)](on_gpu(), Tensor(0x9000, "cuda:0")) is first


def test_equal_gpus_load_separately(fake: FakeCuda) -> None:
    fake.gpus[1] = Gpu()
    kernel = jit(copy)
    first = kernel[(1,)](on_gpu(), on_gpu())
    second = kernel[(1,)](on_gpu("cuda:1"), on_gpu("cuda:1"))
    assert first is not second
    assert first.hash == second.hash
    assert (first.device, second.device) == ("cuda:0", "cuda:1")
    assert [launch.context for launch in fake.launches] == [0x100, 0x101]


@pytest.mark.parametrize(
    "unnumbered", ["cuda", SimpleNamespace(type="cuda"), SimpleNamespace(type="cuda", index=None)]
)
def test_driver_determines_the_device_where_the_tensor_does_not(
    fake: FakeCuda, unnumbered: Any
) -> None:
    fake.owners = {0x7000: 1}
    jit(copy)[(1,)](on_gpu(unnumbered), on_gpu(unnumbered))
    assert fake.launches[0].context == 0x101


def test_device_objects_with_an_index(fake: FakeCuda) -> None:
    numbered: Any = SimpleNamespace(type="cuda", index=1)
    assert read(on_gpu(numbered))[2] == "cuda:1"


def test_cuda_array_interface(fake: FakeCuda) -> None:
    class Array:
        __cuda_array_interface__: Mapping[str, Any]

        def __init__(self, address: int) -> None:
            self.__cuda_array_interface__ = {
                "data": (address, False),
                "typestr": "<f4",
                "shape": (4,),
                "version": 3,
            }

    fake.owners = {0x7000: 1, 0x8000: 1}
    kernel = jit(copy)
    kernel[(1,)](Array(0x7000), Array(0x8000))
    assert fake.launches[0].context == 0x101
    assert addresses(fake) == [(0x7000, 0x8000)]
    # An array of no elements has no address: it is on whichever device the others are.
    kernel[(1,)](Array(0), Array(0x8000))
    assert fake.launches[1].context == 0x101
    with device(0).current():
        kernel[(1,)](Array(0), Array(0))
    assert fake.launches[2].context == 0x100


def test_torch_tensor_on_a_gpu_is_read_with_its_storage(fake: FakeCuda) -> None:
    class GpuTensor(torch.Tensor):
        is_cpu = False
        is_cuda = True

        def get_device(self) -> int:
            return 1

    view = torch.zeros(8)[2:6].as_subclass(GpuTensor)
    start = view.data_ptr() - 8
    assert read(view) == (start + 8, "fp32", "cuda:1", start, start + 32, True)


# -- no tensors -----------------------------------------------------------------------------------


def test_active_driver_is_used_without_tensors(fake: FakeCuda) -> None:
    kernel = jit(nothing)
    driver.set_active(CpuDriver())
    assert kernel[(1,)](5).metadata.target.backend == "cpu"
    driver.set_active(CudaDriver())
    assert kernel[(1,)](5).metadata.target == GPUTarget("cuda", 90, 32)
    CudaDriver().set_current_device(1)
    assert kernel[(1,)](5).metadata.target == GPUTarget("cuda", 80, 32)
    assert [launch.context for launch in fake.launches] == [0x100, 0x101]
    # Tensors still decide for themselves.
    assert jit(copy)[(1,)](np.zeros(1), np.zeros(1)).metadata.target.backend == "cpu"
    driver.set_active(CpuDriver())
    assert kernel[(1,)](5).metadata.target.backend == "cpu"


def test_default_driver_is_that_of_a_gpu_that_can_be_used(fake: FakeCuda) -> None:
    assert isinstance(driver.active, CudaDriver)
    assert jit(nothing)[(1,)](5).metadata.target == GPUTarget("cuda", 90, 32)
    assert driver.active.get_current_target() == GPUTarget("cuda", 90, 32)
    with knobs.runtime.scope():
        knobs.runtime.default_backend = "cpu"
        assert isinstance(driver.active, CpuDriver)
    fake.gpus.clear()
    driver.reset_active()
    assert isinstance(driver.active, CpuDriver)
    assert jit(nothing)[(1,)](5).metadata.target.backend == "cpu"


def test_what_programs_read_of_the_driver_of_the_cpu() -> None:
    cpu = CpuDriver()
    assert cpu.get_active_torch_device() == torch.device("cpu")
    cpu.get_device_interface().synchronize()
    buffer = cpu.get_empty_cache_for_benchmark()
    assert buffer.nbytes >= 64 << 20
    cpu.clear_cache(buffer[:4])
    assert not buffer[:4].any()


def test_both_drivers_report_the_same_device_properties(fake: FakeCuda) -> None:
    drivers: list[Any] = [CpuDriver(), CudaDriver()]
    cpu, cuda = (d.utils.get_device_properties(0) for d in drivers)
    assert cpu.keys() == cuda.keys()
    assert cpu["multiprocessor_count"] >= 1
    assert all(isinstance(value, int) for value in cpu.values())


def test_a_launch_uses_the_kernel_of_a_warmup(fake: FakeCuda) -> None:
    kernel = jit(copy)
    driver.set_active(CpuDriver())
    compiled = kernel.warmup(torch.float32, torch.float32, grid=(1,))
    x, out = torch.zeros(16), torch.zeros(16)
    assert kernel[(1,)](x, out) is compiled
    assert len(kernel.device_caches["cpu"].kernel_cache) == 1


def test_warmup_is_for_the_active_driver(fake: FakeCuda) -> None:
    for mock in (MockTensor(tl.float32), torch.float32):
        kernel = jit(copy)
        driver.set_active(CpuDriver())
        assert kernel.warmup(mock, mock, grid=(1,)).metadata.target.backend == "cpu"
        driver.set_active(CudaDriver())
        assert kernel.warmup(mock, mock, grid=(1,)).metadata.target.backend == "cuda"
        assert kernel.warmup(mock, np.zeros(1), grid=(1,)).metadata.target.backend == "cpu"
        driver.reset_active()
    assert fake.launches == []


def test_setting_chooses_the_default_driver(fake: FakeCuda) -> None:
    with knobs.runtime.scope():
        knobs.runtime.default_backend = "cuda"
        assert isinstance(driver.default, CudaDriver)
        assert jit(nothing)[(1,)](5).metadata.target.backend == "cuda"
        driver.set_active(CpuDriver())
        assert jit(nothing)[(1,)](5).metadata.target.backend == "cpu"
        driver.reset_active()
        knobs.runtime.default_backend = "abacus"
        with pytest.raises(RuntimeError, match=r"Unknown backend device 'abacus'.*\['cpu', 'cuda"):
            jit(nothing)[(1,)](5)
        fake.gpus.clear()
        knobs.runtime.default_backend = "cuda"
        with pytest.raises(RuntimeError, match="Backend device 'cuda' is not active"):
            jit(nothing)[(1,)](5)


# -- what is rejected -----------------------------------------------------------------------------


def test_cpu_tensor_among_gpu_tensors(fake: FakeCuda) -> None:
    kernel, array = jit(copy), np.zeros((2, 3), np.float32)
    text = (
        r"Pointer argument \(at 1\) cannot be accessed from cuda:0 \(cpu tensor\?\): argument "
        r"`out` is a numpy\.ndarray of shape \(2, 3\) on 'cpu', while argument `x` is a "
        r"tests\.Tensor of shape \(4, 4\) on 'cuda:0'\. .*`out\.to\('cuda:0'\)`"
    )
    for _ in range(2):
        with pytest.raises(ValueError, match=text):
            kernel[(1,)](on_gpu(), array)
    with pytest.raises(ValueError, match=r"\(at 0\) .* argument `x` is a numpy.*`out` is a tests"):
        kernel[(1,)](array, on_gpu())
    assert fake.launches == []


def test_two_gpus(fake: FakeCuda) -> None:
    text = (
        r"Pointer argument \(at 1\) cannot be accessed from cuda:1 \(cuda:0 tensor\?\): argument "
        r"`out` is .* on 'cuda:0', while argument `x` is .* on 'cuda:1'"
    )
    with pytest.raises(ValueError, match=text):
        jit(copy)[(1,)](on_gpu("cuda:1"), on_gpu())


def test_tensors_inside_tuples_are_found(fake: FakeCuda) -> None:
    with pytest.raises(ValueError, match=r"`out` is a numpy\.ndarray of shape \(1,\) on 'cpu'"):
        jit(copy)[(1,)](on_gpu(), (1, (np.zeros(1),)))


def test_pinned_memory_is_accepted_and_inspected_each_time(fake: FakeCuda) -> None:
    kernel, array = jit(copy), np.zeros(4, np.float32)
    address = array.ctypes.data
    fake.pinned = {address: address}
    kernel[(1,)](on_gpu("cuda:1"), array)
    assert fake.launches[0].context == 0x101
    assert addresses(fake) == [(0x7000, address)]
    fake.pinned.clear()
    with pytest.raises(ValueError, match="cannot be accessed from cuda:1"):
        kernel[(1,)](on_gpu("cuda:1"), array)
    assert jit(copy)[(1,)](array, array).metadata.target.backend == "cpu"


def test_device_without_kernels(fake: FakeCuda) -> None:
    text = r"\(at 1\) cannot be accessed \(meta tensor\?\): argument `out` is a torch\.Tensor .*"
    for x in (on_gpu(), np.zeros(1), torch.zeros(1, device="meta")):
        at = r"\(at \d\).*" if isinstance(x, torch.Tensor) else text
        with pytest.raises(ValueError, match=at + "on 'meta', where no kernel runs"):
            jit(copy)[(1,)](x, torch.zeros(3, device="meta"))


def test_gpu_tensor_without_a_driver(fake: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails() -> Any:
        raise OSError("not found")

    monkeypatch.setattr(cuda_api, "_open_library", fails)
    for name in ("cuda:0", "cuda"):
        with pytest.raises(DeviceError, match="there is no CUDA driver"):
            jit(copy)[(1,)](on_gpu(name), on_gpu(name))
    with pytest.raises(ValueError, match=r"\(at 1\) cannot be accessed from cuda:0"):
        jit(copy)[(1,)](on_gpu(), np.zeros(1))
    with pytest.raises(DeviceError, match="there is no CUDA driver"):
        jit(copy)[(1,)](on_gpu("cuda"), np.zeros(1))


# -- compiled kernels launched by themselves ------------------------------------------------------


def compiled_copy() -> CompiledKernel:
    source = ASTSource(jit(copy), {"x": "*fp32", "out": "*fp32"})
    return compile(source, target=GPUTarget("cuda", 90, 32))


def test_compiled_kernel_runs_where_its_arguments_are(fake: FakeCuda) -> None:
    compiled = compiled_copy()
    assert fake.calls == []
    compiled[(2, 1, 1)](on_gpu("cuda:1"), on_gpu("cuda:1"))
    assert (compiled.device, fake.launches[0].context) == ("cuda:1", 0x101)
    with pytest.raises(ValueError, match=r"copy is loaded on cuda:1; its tensors are on cuda:0"):
        compiled[(2, 1, 1)](on_gpu(), on_gpu())
    with pytest.raises(ValueError, match=r"copy is compiled for 'cuda'; its tensors are on cpu"):
        compiled[(2, 1, 1)](np.zeros(1), np.zeros(1))


def test_handle_is_on_the_current_device(fake: FakeCuda) -> None:
    compiled = compiled_copy()
    compiled._init_handles()
    assert compiled.device == "cuda:0"
    assert fake.functions[compiled.function] == "copy"
    assert compiled.n_regs == 32


def test_cpu_kernel_does_not_take_gpu_tensors(fake: FakeCuda) -> None:
    source = ASTSource(jit(copy), {"x": "*fp32", "out": "*fp32"})
    compiled = compile(source, target="cpu")
    with pytest.raises(ValueError, match=r"\(at 0\) cannot be accessed from the CPU \(cuda:0 ten"):
        compiled[(1, 1, 1)](on_gpu(), np.zeros(1))
