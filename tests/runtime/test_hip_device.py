"""AMD GPUs on a HIP runtime that only records: opening, loading, launching, failures."""

from __future__ import annotations

import struct
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tests.runtime.fake_hip import ILLEGAL_ADDRESS, FakeHip, Gpu
from tilewright.base.diagnostics import DeviceError
from tilewright.runtime import driver
from tilewright.runtime.devices import hip_api
from tilewright.runtime.devices.gpu_clock import DeviceMemory
from tilewright.runtime.devices.hip import current_index, device, device_count
from tilewright.runtime.drivers.hip import HipDriver
from tilewright.runtime.native.torch_tensors import find_torch_tensors
from tilewright.runtime.tensors import find_reader, read
from tilewright.targets.protocol import GPUTarget


@tw.jit
def scale(x_ptr, out_ptr, factor, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + i, tl.load(x_ptr + i, mask=i < n) * factor, mask=i < n)


class OnGpu:
    """A tensor of some library in the memory of a GPU."""

    def __init__(self, count: int, index: int = 0) -> None:
        self.memory = DeviceMemory(device(index), 4 * count, stream=0)
        self.device, self.dtype = f"hip:{index}", "float32"
        self.count = count

    def data_ptr(self) -> int:
        return self.memory.address

    def untyped_storage(self) -> Any:
        size = 4 * self.count
        return SimpleNamespace(data_ptr=self.data_ptr, nbytes=lambda: size)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHip]:
    made = FakeHip([Gpu(), Gpu("gfx1100", 32, "AMD Radeon RX 7900 XTX")])
    made.install(monkeypatch)
    yield made
    assert not made.faults


def test_nothing_is_loaded_before_the_first_use(fake: FakeHip) -> None:
    HipDriver()
    assert fake.calls == []
    assert device_count() == 2
    assert fake.calls[0] == "hipInit"


def test_devices_and_their_properties(fake: FakeHip) -> None:
    first, second = device(0), device(1)
    assert device(0) is first
    assert (first.arch, first.lanes, first.multiprocessors) == ("gfx942", 64, 304)
    assert (second.name, second.arch, second.product) == (
        *("hip:1", "gfx1100"),
        "AMD Radeon RX 7900 XTX",
    )
    assert (first.shared_bytes, first.memory, first.clock) == (65536, 192 << 30, 2_100_000)
    assert HipDriver().target_of(1) == GPUTarget("hip", "gfx1100", 32)
    assert "gfx942 304 compute units" in HipDriver().describe(0)
    properties = HipDriver().utils.get_device_properties(0)
    assert (properties["warpSize"], properties["arch"]) == (64, "gfx942")
    with pytest.raises(DeviceError, match="there is no device hip:2: the driver sees 2"):
        device(2)


def test_a_launch_passes_arguments_and_threads(fake: FakeHip) -> None:
    x, out = OnGpu(1000, 1), OnGpu(1000, 1)
    fake.widths["scale"] = [8, 8, 4, 4]
    kernel = scale[(4,)](x, out, 2.5, 1000, BLOCK=256, num_warps=8)
    assert kernel.metadata.target == GPUTarget("hip", "gfx1100", 32)
    (launch,) = fake.launches
    assert (launch.device, launch.grid, launch.block) == (1, (4, 1, 1), (256, 1, 1))
    assert (launch.shared, launch.stream) == (0, 0)
    pointers = [struct.pack("<Q", t.data_ptr()) for t in (x, out)]
    assert launch.arguments == [*pointers, struct.pack("<f", 2.5), struct.pack("<i", 1000)]
    assert current_index() == 0
    scale[(0,)](x, out, 2.5, 1000, BLOCK=256, num_warps=8)
    assert len(fake.launches) == 1


def test_a_kernel_is_unloaded_with_its_module(fake: FakeHip) -> None:
    x = OnGpu(8)
    kernel = scale.warmup(x, x, 1.0, 8, BLOCK=8, grid=(1,))
    loaded = device(0).load(kernel.asm["hsaco"], "scale")
    assert loaded.handle
    assert len(fake.images) == 1
    with pytest.raises(DeviceError, match="looking for other in its code object: named symbol"):
        device(0).load(kernel.asm["hsaco"], "other")
    with pytest.raises(DeviceError, match=r"loading k on hip:0 \(gfx942\): device kernel image"):
        device(0).load(b"text".ljust(64), "k")
    del loaded
    assert not fake.images


def test_failures_of_kernels_name_the_last_one(fake: FakeHip) -> None:
    x = OnGpu(8)
    scale[(1,)](x, x, 1.0, 8, BLOCK=8)
    fake.fail["hipDeviceSynchronize"] = ILLEGAL_ADDRESS
    with pytest.raises(DeviceError, match=r"illegal address on hip:0.*last one launched.*`scale`"):
        device(0).synchronize()


def test_memory_is_copied_saved_and_timed(fake: FakeHip) -> None:
    hip = HipDriver()
    memory = hip.allocate(0, 64)
    data = np.arange(64, dtype=np.uint8)
    hip.write_memory(0, memory.address, data)
    saved = hip.save_memory(0, memory.address, 64)
    hip.write_memory(0, memory.address, np.zeros(64, np.uint8))
    saved.restore()
    saved.free()
    found = np.empty(64, np.uint8)
    hip.read_memory(0, memory.address, found)
    np.testing.assert_array_equal(found, data)
    with hip.clock(0) as clock:
        start = clock.mark()
        clock.flush()
        assert clock.elapsed(start, clock.mark()) == 0.5
        assert not clock.is_capturing()
        clock.synchronize()
    memory.free()
    assert not fake.events
    assert not fake.memory
    assert hip.free_memory(0) == 100 << 30
    assert not hip.reaches(0, data.ctypes.data)


def test_an_old_runtime_is_named(fake: FakeHip) -> None:
    fake.missing = {"hipGetDevicePropertiesR0600"}
    with pytest.raises(
        DeviceError, match=r"HIP 6\.3\) has no hipGetDevicePropertiesR0600: a newer"
    ):
        device(0)


def test_without_a_runtime_there_is_no_device(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> Any:
        raise OSError("no such file")

    monkeypatch.setattr(hip_api, "_open_library", missing)
    monkeypatch.setattr(hip_api.connect, "api", None)
    assert not HipDriver.is_active()
    with pytest.raises(
        DeviceError, match=r"there is no HIP runtime: libamdhip64.so cannot be load"
    ):
        device_count()


def test_a_forked_child_is_an_error_that_suggests_spawn(fake: FakeHip) -> None:
    device_count()
    hip_api.connect.close_in_child()
    with pytest.raises(DeviceError, match="HIP was in use before this process was forked"):
        device_count()
    assert not HipDriver.is_active()


def test_the_driver_is_found_by_name(fake: FakeHip) -> None:
    assert driver.has_driver("hip")
    assert driver.target_of("hip:0") == GPUTarget("hip", "gfx942", 64)
    hip = HipDriver()
    hip.set_current_device(1)
    assert hip.get_current_device() == 1
    assert hip.get_current_target().arch == "gfx1100"
    with pytest.raises(RuntimeError, match="built for ROCm"):
        hip.get_device_interface()


class RocmTensor:
    """A tensor as a torch that was built for ROCm has it."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.is_cpu = index < 0
        self.is_cuda = index >= 0
        self.dtype = "torch.float16"

    def get_device(self) -> int:
        return self.index

    def data_ptr(self) -> int:
        return 0x1000

    def untyped_storage(self) -> Any:
        return SimpleNamespace(data_ptr=lambda: 0x1000, nbytes=lambda: 64)


def test_tensors_of_a_torch_for_rocm_are_on_hip_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    class Tensor(RocmTensor):
        is_cpu = False

    torch = SimpleNamespace(version=SimpleNamespace(hip="6.3", cuda=None), cuda=None)
    monkeypatch.setitem(sys.modules, "torch", torch)
    assert read(Tensor(1))[:3] == (0x1000, "fp16", "hip:1")
    assert find_torch_tensors(torch, {}) is None
    reader = find_reader(Tensor(-1))
    assert reader is not None
    assert reader(Tensor(-1))[2] == "cpu"
