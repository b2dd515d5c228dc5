"""What launches on CUDA take from the program around them: streams, memory, the current device;
what programs ask of the driver; forks. The driver only records, and torch is a stand-in."""

import multiprocessing
import os
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

import tilewright as tw
from tests.runtime.fake_cuda import DEVICE, INVALID_VALUE, FakeCuda, Gpu, compiled
from tilewright.base.diagnostics import DeviceError
from tilewright.runtime import _allocation
from tilewright.runtime._allocation import set_allocator
from tilewright.runtime.devices import cuda_api, cuda_torch
from tilewright.runtime.devices.cuda import current_index, device, device_count, index_of
from tilewright.runtime.devices.cuda_torch import current_stream, scratch
from tilewright.runtime.drivers.cuda import CudaDriver
from tilewright.runtime.launchers.cuda import CudaLaunch
from tilewright.targets.protocol import GPUTarget


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCuda]:
    made = FakeCuda([Gpu(), Gpu(b"Old GPU", {**DEVICE, 75: 7, 76: 5, 97: 65536})])
    made.install(monkeypatch)
    yield made
    assert not made.faults


# -- streams and scratch memory -------------------------------------------------------------------


class FakeTorch(SimpleNamespace):
    """A torch built for CUDA, as far as launches need it."""

    def __init__(self, raw: bool = True) -> None:
        def stream(index: int) -> Any:
            return SimpleNamespace(cuda_stream=0xAB00 + index)

        functions = {"_cuda_getCurrentRawStream": lambda i: stream(i).cuda_stream} if raw else {}
        super().__init__(
            version=SimpleNamespace(cuda="13.0"),
            _C=SimpleNamespace(**functions),
            cuda=SimpleNamespace(
                current_stream=stream, current_device=lambda: 1, set_device=self.selected
            ),
            uint8="uint8",
            requested=[],
            chosen=[],
        )

    def selected(self, index: int) -> None:
        self.chosen.append(index)

    def empty(self, size: int, dtype: Any, device: str) -> Any:
        self.requested.append((size, dtype, device))
        return SimpleNamespace(data_ptr=lambda: 0x10040)


@pytest.mark.parametrize("raw", [True, False])
def test_stream_is_that_of_torch(fake: FakeCuda, raw: bool) -> None:
    kernel = compiled([], "cuda:1")
    kernel.load().start((1, 1, 1), (), ())
    fake.modules["torch"] = FakeTorch(raw)
    kernel.load().start((1, 1, 1), (), ())
    assert [launch.stream for launch in fake.launches] == [0, 0xAB01]
    assert CudaDriver().get_current_stream() == 0xAB01
    assert CudaDriver().get_current_stream(0) == 0xAB00


def test_torch_without_cuda_or_half_imported_is_none(fake: FakeCuda) -> None:
    for torch in (SimpleNamespace(), SimpleNamespace(version=SimpleNamespace(cuda=None), cuda=1)):
        fake.modules["torch"] = torch
        assert current_stream(0) == 0
        assert cuda_torch.cuda_torch() is None
    assert CudaDriver().get_current_device() == 0
    with pytest.raises(RuntimeError, match="get_device_interface is for programs that import t"):
        CudaDriver().get_device_interface()


def test_scratch_of_the_driver(fake: FakeCuda) -> None:
    fake.widths["k"] = [4, 8]
    kernel = compiled([((0,), "i32")], global_scratch_size=100, global_scratch_align=128)
    kernel.load().start((2, 3, 1), (5,), (5,))
    ((address, size),) = fake.allocated.items()
    assert fake.freed == [address]
    passed = int.from_bytes(fake.launches[0].arguments[1], "little")
    assert passed % 128 == 0
    assert address <= passed
    assert passed + 600 <= address + size
    names = [n for n in fake.calls if n in ("cuMemAllocAsync", "cuLaunchKernel", "cuMemFreeAsync")]
    assert names == ["cuMemAllocAsync", "cuLaunchKernel", "cuMemFreeAsync"]


def test_scratch_of_a_custom_allocator(fake: FakeCuda) -> None:
    fake.widths["k"] = [4, 8]
    requested: list[Any] = []

    class Memory:
        def data_ptr(self) -> int:
            return 0x7000

    def allocate(size: int, alignment: int, stream: int | None) -> Memory:
        requested.append((size, alignment, stream, current_index()))
        return Memory()

    kernel = compiled([((0,), "i32")], "cuda:1", global_scratch_size=100, global_scratch_align=128)
    token = _allocation._allocator.set(_allocation._NULL_ALLOCATOR)
    try:
        set_allocator(allocate)
        kernel.load().start((2, 3, 1), (5,), (5,))
    finally:
        _allocation._allocator.reset(token)
    assert requested == [(600, 128, None, 1)]
    assert fake.allocated == {}
    assert int.from_bytes(fake.launches[0].arguments[1], "little") == 0x7000


def test_compiled_kernels_report_their_loaded_attributes(fake: FakeCuda) -> None:
    kernel = compiled([])
    assert kernel.module is None
    kernel._init_handles()
    assert kernel.module
    assert kernel.packed_metadata == (kernel.metadata.num_warps, kernel.metadata.num_ctas, 0)
    assert kernel.launch_metadata((2,), 0x5000) is None  # no hook is registered
    hook: Callable[[Any], None] = lambda reported: None  # noqa: E731
    tw.knobs.runtime.launch_enter_hook.add(hook)
    try:
        reported = kernel.launch_metadata((2,), 0x5000).get()
    finally:
        tw.knobs.runtime.launch_enter_hook.remove(hook)
    assert (reported["name"], reported["stream"]) == ("k", 0x5000)
    assert reported["function"] == kernel.function


def test_scratch_is_freed_when_the_launch_fails(fake: FakeCuda) -> None:
    fake.fail["cuLaunchKernel"] = INVALID_VALUE
    with pytest.raises(DeviceError):
        compiled([], global_scratch_size=1).load().start((1, 1, 1), (), ())
    assert fake.freed == list(fake.allocated)


def test_scratch_of_torch(fake: FakeCuda) -> None:
    torch = FakeTorch()
    fake.modules["torch"] = torch
    with scratch(device(1), 1000, 128, 0) as address:
        assert address == 0x10080
    assert torch.requested == [(1127, "uint8", "cuda:1")]
    assert fake.allocated == {}


# -- what programs ask of the driver --------------------------------------------------------------


def test_driver_of_the_devices(fake: FakeCuda) -> None:
    driver = CudaDriver()
    assert driver.is_active()
    assert driver.get_current_target() == GPUTarget("cuda", 90, 32)
    driver.set_current_device(1)
    assert driver.get_current_device() == 1
    assert driver.get_current_target() == GPUTarget("cuda", 75, 32)
    assert driver.get_device_capability() == (7, 5)
    assert driver.get_device_capability(0) == (9, 0)
    properties = driver.utils.get_device_properties(0)
    assert properties == {
        "max_shared_mem": 232448,
        "max_num_regs": 65536,
        "multiprocessor_count": 132,
        "warpSize": 32,
        "sm_clock_rate": 1980000,
        "mem_clock_rate": 3201000,
        "mem_bus_width": 6144,
    }
    loaded, handle, *numbers = driver.utils.load_binary("k", b"\x7fELF k", 0, 1)
    assert loaded.device is device(1)
    assert fake.functions[handle] == "k"
    assert numbers == [32, 0, 1024]


def test_current_device_is_that_of_torch(fake: FakeCuda) -> None:
    torch = FakeTorch()
    fake.modules["torch"] = torch
    driver = CudaDriver()
    assert driver.get_current_device() == 1
    assert driver.get_current_target().arch == 75
    driver.set_current_device(0)
    assert torch.chosen == [0]
    with pytest.raises(DeviceError, match="no device cuda:5"):
        driver.set_current_device(5)


# -- forks ----------------------------------------------------------------------------------------


def _in_child(launch: CudaLaunch, pipe: Any) -> None:
    messages: list[str] = []
    for use in (lambda: launch.start((1, 1, 1), (), ()), device_count, lambda: device(1)):
        try:
            use()
        except DeviceError as error:
            messages.append(str(error))
    pipe.send((messages, CudaDriver.is_active(), index_of(1)))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_forked_child_gets_an_error(fake: FakeCuda) -> None:
    kernel = compiled([])
    kernel.load().start((1, 1, 1), (), ())
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe()
    child = context.Process(target=_in_child, args=(kernel.load(), there))
    child.start()
    assert here.poll(30)
    messages, active, index = here.recv()
    child.join()
    assert child.exitcode == 0
    assert len(messages) == 3
    assert all(text == cuda_api.FORKED for text in messages)
    # The child can compile for the GPU, as torch's compile workers do, whose parent used it.
    assert (active, index) == (True, None)
    kernel.load().start((1, 1, 1), (), ())  # the parent goes on
    assert len(fake.launches) == 2


def test_child_whose_parent_used_cuda_by_another_library(fake: FakeCuda) -> None:
    """As in torch's compile workers: cuInit fails there."""
    fake.fail["cuInit"] = 3
    with pytest.raises(DeviceError, match="before this process was forked"):
        device_count()
    assert CudaDriver.is_active()


def _first_use(pipe: Any) -> None:
    pipe.send(device_count())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_child_forked_before_the_first_use_has_its_own(fake: FakeCuda) -> None:
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe()
    child = context.Process(target=_first_use, args=(there,))
    child.start()
    assert here.poll(30)
    assert here.recv() == 2
    child.join()
