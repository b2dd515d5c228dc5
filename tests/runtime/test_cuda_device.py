"""The CUDA device on a driver that only records: opening, loading, launching, failures."""

import struct
import sys
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.runtime.fake_cuda import (
    DEVICE,
    ILLEGAL_ADDRESS,
    INVALID_VALUE,
    FakeCuda,
    Gpu,
    Launch,
    compiled,
    ptx,
)
from tilewright.base.diagnostics import DeviceError, OutOfResources
from tilewright.compiler.artifact import CompiledKernel
from tilewright.runtime.devices import cuda_api
from tilewright.runtime.devices.cuda import current_index, device, device_count, index_of
from tilewright.runtime.devices.cuda_function import Function, Shape
from tilewright.runtime.drivers.cuda import CudaDriver


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCuda]:
    made = FakeCuda([Gpu(), Gpu(b"Old GPU", {**DEVICE, 75: 7, 76: 5, 97: 65536})])
    made.install(monkeypatch)
    yield made
    assert not made.faults


# -- devices --------------------------------------------------------------------------------------


def test_nothing_is_loaded_before_the_first_use(fake: FakeCuda) -> None:
    CudaDriver()
    assert fake.calls == []
    assert device_count() == 2
    assert fake.calls[0] == "cuInit"


def test_devices_and_their_properties(fake: FakeCuda) -> None:
    first, second = device(0), device(1)
    assert device(0) is first
    assert (first.name, first.arch, second.name, second.arch) == ("cuda:0", 90, "cuda:1", 75)
    properties = second.properties
    assert (properties.name, properties.capability) == ("Old GPU", (7, 5))
    assert properties.max_grid == (2**31 - 1, 65535, 65535)
    assert properties.max_shared_mem == 65536
    assert properties.total_memory == 140 << 30
    with pytest.raises(DeviceError, match="there is no device cuda:2: the driver sees 2"):
        device(2)


def test_threads_open_a_device_once(fake: FakeCuda) -> None:
    start, found = threading.Barrier(8), list[Any]()

    def opens() -> None:
        start.wait()
        found.append(device(1))

    threads = [threading.Thread(target=opens) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({id(each) for each in found}) == 1
    assert fake.calls.count("cuDevicePrimaryCtxRetain") == 1


def test_current_device_is_that_of_the_context(fake: FakeCuda) -> None:
    assert current_index() == 0  # no context yet
    with device(1).current():
        assert current_index() == 1
        assert fake.stack == [0x101]
    assert fake.stack == []
    device(1).make_current()
    assert current_index() == 1


def test_device_of_a_pointer(fake: FakeCuda) -> None:
    fake.owners = {0x5000: 1}
    fake.pinned = {0x6000: 0x6000, 0x6100: 0x9100}
    assert index_of(0x5000) == 1
    assert index_of(0x5001) is None
    assert device(0).reaches(0x6000)
    assert not device(0).reaches(0x6100)  # registered, but elsewhere for the GPU
    assert not device(0).reaches(0x5000)


# -- a missing or old driver ----------------------------------------------------------------------


def test_no_driver(fake: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails() -> Any:
        raise OSError("cannot open shared object file")

    monkeypatch.setattr(cuda_api, "_open_library", fails)
    for _ in range(2):
        with pytest.raises(DeviceError, match=r"there is no CUDA driver: .* \(cannot open"):
            device_count()
    assert not CudaDriver.is_active()
    assert index_of(0x5000) is None


def test_no_gpu(fake: FakeCuda) -> None:
    fake.fail["cuInit"] = 100
    text = r"does not start: no CUDA-capable .* \(CUDA_ERROR_NO_DEVICE\)\. .*CUDA_VISIBLE_DEVICES"
    with pytest.raises(DeviceError, match=text) as raised:
        device_count()
    assert raised.value.code == "CUDA_ERROR_NO_DEVICE"
    assert not CudaDriver.is_active()


def test_function_that_an_old_driver_lacks(fake: FakeCuda) -> None:
    fake.version = 11010
    fake.missing.add("cuLaunchKernelEx")
    function = Function(device(0), ptx("k"), "k", Shape(32, ctas=2))
    text = r"installed driver \(CUDA 11\.1\) has no cuLaunchKernelEx: a newer driver"
    with pytest.raises(DeviceError, match=text):
        function.launch((1, 1, 1), 0, 0)


def test_unknown_status_has_its_number(fake: FakeCuda) -> None:
    fake.fail["cuDeviceGetCount"] = 4242
    with pytest.raises(DeviceError, match="counting the devices: CUDA error 4242"):
        device_count()


@pytest.mark.parametrize(
    ("status", "image", "text"),
    [
        (222, ptx("k"), r"The code is PTX 8\.0, .* driver \(CUDA 12\.2\)"),
        (218, ptx("k"), r"code is for sm_90a; the GPU is Old GPU, compute capability 7\.5"),
        (209, b"\x7fELF", r"for another GPU than this one \(Old GPU, compute capability 7\.5\)"),
        (222, b"\x7fELF", r"PTX of an unknown version"),
        (INVALID_VALUE, b"\x7fELF", r"invalid argument \(CUDA_ERROR_INVALID_VALUE\)\nline 7: bad"),
    ],
)
def test_code_that_the_driver_rejects(fake: FakeCuda, status: int, image: Any, text: str) -> None:
    fake.version, fake.load_status, fake.log = 12020, status, b"line 7: bad\n"
    form = "cubin" if isinstance(image, bytes) else "PTX"
    with pytest.raises(DeviceError, match=rf"(?s)loading the {form} of k on cuda:1: .*{text}") as e:
        Function(device(1), image, "k", Shape(32))
    assert str(e.value).endswith("\nline 7: bad")


def test_kernel_that_the_code_lacks(fake: FakeCuda) -> None:
    with pytest.raises(DeviceError, match="looking for the kernel other in its code: named symb"):
        Function(device(0), ptx("k"), "other", Shape(32))
    assert fake.images == {}


# -- loading --------------------------------------------------------------------------------------


def test_loading_queries_the_function_attributes(fake: FakeCuda) -> None:
    fake.function_attributes |= {0: 512, 3: 40, 4: 168}
    function = Function(device(0), ptx("k"), "k", Shape(128))
    assert (function.n_regs, function.n_spills, function.n_max_threads) == (168, 10, 512)
    (image,) = fake.images.values()
    assert image.decode() == ptx("k")
    assert fake.set_attributes == []
    assert fake.calls.count("cuThreadExchangeStreamCaptureMode") == 2
    assert fake.stack == []


def test_module_is_unloaded_with_its_kernel(fake: FakeCuda) -> None:
    function = Function(device(0), b"\x7fELF k", "k", Shape(32))
    assert len(fake.images) == 1
    del function
    assert fake.images == {}


@pytest.mark.parametrize(
    ("shared", "static", "requested"),
    [(48 << 10, 0, False), (48 << 10, 1, True), (200000, 0, True)],
)
def test_more_shared_memory_is_requested(
    fake: FakeCuda, shared: int, static: int, requested: bool
) -> None:
    fake.function_attributes[1] = static
    Function(device(0), ptx("k"), "k", Shape(32, shared))
    assert fake.set_attributes == ([("k", 8, shared), ("k", 9, 100)] if requested else [])


@pytest.mark.parametrize(
    ("shape", "attributes", "error"),
    [
        (Shape(32, 232449), {}, (232449, 232448, "shared memory")),
        (Shape(32, 232448), {1: 8}, (232456, 232448, "shared memory")),
        (Shape(2048), {}, (2048, 1024, "threads")),
        (Shape(1024), {0: 384}, (1024, 384, "threads")),
    ],
)
def test_too_much_shared_memory_is_rejected_before_a_launch(
    fake: FakeCuda, shape: Shape, attributes: dict[int, int], error: tuple[int, int, str]
) -> None:
    fake.function_attributes |= attributes
    with pytest.raises(OutOfResources) as raised:
        Function(device(0), ptx("k"), "k", shape)
    assert (raised.value.required, raised.value.limit, raised.value.name) == error
    assert fake.images == {}


def test_large_clusters_are_requested(fake: FakeCuda) -> None:
    Function(device(0), ptx("k"), "k", Shape(32, ctas=8))
    assert fake.set_attributes == []
    Function(device(0), ptx("k"), "k", Shape(32, ctas=16))
    assert fake.set_attributes == [("k", 14, 1)]


# -- launching ------------------------------------------------------------------------------------


def test_arguments_grid_and_block(fake: FakeCuda) -> None:
    types = ["*fp32", "i32", "i64", "u1", "fp16", "fp32", "fp64", "i8"]
    fake.widths["k"] = [8, 4, 8, 1, 2, 4, 8, 1]
    kernel = compiled([((i,), t) for i, t in enumerate(types)], num_warps=2, shared=1000)
    slots = (2**47, -3, -(2**40), True, 1.5, 0.1, 0.1, -1)
    kernel.load().start((5, 6, 7), slots, slots)
    formats = ["Q", "i", "q", "?", "e", "f", "d", "b"]
    expected = [struct.pack(f"<{f}", v) for f, v in zip(formats, slots, strict=True)]
    assert fake.launches == [Launch("k", (5, 6, 7), (64, 1, 1), 1000, 0, expected, 0x100)]
    assert kernel.function == kernel.load().handle
    assert fake.functions[kernel.function] == "k"
    assert kernel.device == "cuda:0"
    assert (kernel.n_regs, kernel.n_spills, kernel.n_max_threads) == (32, 0, 1024)


def test_kernel_without_arguments(fake: FakeCuda) -> None:
    compiled([]).load().start((1, 1, 1), (), ())
    assert fake.launches[0].arguments == []


def test_cubin_is_preferred_to_ptx(fake: FakeCuda) -> None:
    kernel = compiled([])
    with_cubin = CompiledKernel({"ptx": ptx("k"), "cubin": b"\x7fELF k"}, kernel.metadata)
    with_cubin.load().start((1, 1, 1), (), ())
    (image,) = fake.images.values()
    assert image == b"\x7fELF k"


def test_cluster_cooperative_and_dependent_launches(fake: FakeCuda) -> None:
    fake.widths["k"] = [4]
    arguments = [((0,), "i32")]
    kernel = compiled(
        arguments, num_ctas=2, launch_cooperative_grid=True, begins_early=True, shared=64
    )
    kernel.load().start((3, 4, 1), (7,), (7,))
    (launch,) = fake.launches
    assert launch.grid == (6, 4, 1)
    assert (launch.block, launch.shared, launch.arguments) == ((128, 1, 1), 64, [b"\7\0\0\0"])
    assert [(n, v[0]) for n, v in launch.attributes] == [(4, 2), (2, 1), (6, 1)]
    assert launch.attributes[0][1] == (2, 1, 1)


@pytest.mark.parametrize(
    ("shared", "spare", "blocks", "provided"),
    [
        (98432, 99200, (132, 1, 1), True),  # one block for each multiprocessor
        (98432, 99200, (133, 1, 1), False),  # of which two would be resident
        (98432, 99200, (11, 4, 3), True),
        (98432, 99200, (11, 4, 4), False),
        (32896, 33664, (396, 1, 1), True),  # three for each, of which six would be resident
        (32896, 33664, (397, 1, 1), False),
        (147456, 49152, (1000, 1, 1), True),  # one is resident anyway
        (147456, 0, (1, 1, 1), False),
    ],
)
def test_spare_memory(
    fake: FakeCuda, shared: int, spare: int, blocks: tuple[int, int, int], provided: bool
) -> None:
    compiled([], shared=shared, spare_shared=spare).load().start(blocks, (), ())
    assert fake.set_attributes == [("k", 8, shared + spare), ("k", 9, 100)]
    assert fake.launches[0].shared == shared + provided * spare


@pytest.mark.parametrize(
    ("shared", "programs", "packed"),
    [
        (0, (32 * 132 + 4, 1, 1), 4),
        (0, (32 * 132, 1, 1), 1),  # all are resident at once
        (0, (32 * 132 + 6, 1, 1), 1),  # blocks along x would not be whole
        (0, (4, 9000, 1), 4),
        (512, (40000, 1, 1), 4),
        (12300, (40000, 1, 1), 2),  # the limit of a block without opt-in
        (40000, (40000, 1, 1), 1),
        (10000, (40000, 1, 1), 2),  # 21 alone, 11 pairs or 5 blocks of four
    ],
)
def test_packed_programs(
    fake: FakeCuda, shared: int, programs: tuple[int, int, int], packed: int
) -> None:
    kernel = compiled([], num_warps=1, shared=shared, packed_programs=4)
    kernel.load().start(programs, (), ())
    (launch,) = fake.launches
    assert launch.grid == (programs[0] // packed, *programs[1:])
    assert launch.block == (32, packed, 1)
    assert launch.shared == packed * shared


@pytest.mark.parametrize(
    ("axes", "shared", "programs", "blocks"),
    [
        (1, 147456, (4096, 1, 1), (132, 1, 1)),
        (1, 98432, (4096, 1, 1), (264, 1, 1)),  # two are resident
        (1, 98432, (200, 1, 1), (200, 1, 1)),
        (1, 147456, (4096, 3, 2), (132, 3, 2)),  # those along y and z are not looped over
        (3, 147456, (40, 30, 2), (132, 1, 1)),
        (3, 147456, (4, 3, 2), (24, 1, 1)),
        (3, 147456, (1, 70000, 3), (132, 1, 1)),
    ],
)
def test_blocks_that_loop_over_programs(
    fake: FakeCuda,
    axes: int,
    shared: int,
    programs: tuple[int, int, int],
    blocks: tuple[int, int, int],
) -> None:
    fake.widths["k"] = [24]
    kernel = compiled([], shared=shared, looped_axes=axes)
    kernel.load().start(programs, (), ())
    (launch,) = fake.launches
    assert launch.grid == blocks
    assert np.frombuffer(launch.arguments[0], np.int64).tolist() == list(programs)


def test_context_of_the_thread_is_kept(fake: FakeCuda) -> None:
    launches = [compiled([], f"cuda:{i}") for i in range(2)]
    for kernel in launches:
        kernel.run  # noqa: B018
    launches[1].load().start((1, 1, 1), (), ())
    assert fake.stack == []  # the thread has none, which means device 0
    launches[0].load().start((1, 1, 1), (), ())
    assert fake.stack == [0x100]
    launches[1].load().start((1, 1, 1), (), ())
    assert fake.stack == [0x100]
    assert [launch.context for launch in fake.launches] == [0x101, 0x100, 0x101]


def test_threads_launch_at_the_same_time(fake: FakeCuda) -> None:
    """Each launch passes its own arguments, even if others launch between packing and launching."""
    fake.widths["k"] = [8]
    kernel = compiled([((0,), "i64")])
    start = kernel.load().start

    def launches(first: int) -> None:
        for value in range(first, first + 50):
            start((1, 1, 1), (value,), (value,))

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=launches, args=(1000 * i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    passed = sorted(int.from_bytes(launch.arguments[0], "little") for launch in fake.launches)
    assert passed == [1000 * i + j for i in range(4) for j in range(50)]


def test_launch_inside_a_launch_has_its_own_arguments(fake: FakeCuda) -> None:
    """As a signal handler may do it, after the arguments were written and before they are read."""
    fake.widths["k"] = [8]
    kernel = compiled([((0,), "i64")])
    start, real = kernel.load().start, fake.do_cuCtxGetCurrent

    def interrupted(out: int) -> None:
        fake.do_cuCtxGetCurrent = real
        start((1, 1, 1), (2,), (2,))
        real(out)

    start((1, 1, 1), (0,), (0,))
    fake.do_cuCtxGetCurrent = interrupted
    start((1, 1, 1), (1,), (1,))
    assert [launch.arguments[0][0] for launch in fake.launches] == [0, 2, 1]


# -- failures of kernels --------------------------------------------------------------------------


def test_failed_kernel_is_reported_by_a_later_call(fake: FakeCuda) -> None:
    kernel = compiled([])
    kernel.load().start((1, 1, 1), (), ())
    fake.fail["cuCtxSynchronize"] = ILLEGAL_ADDRESS
    text = (
        r"waiting for cuda:0: a kernel read or wrote an illegal address on cuda:0 "
        r"\(CUDA_ERROR_ILLEGAL_ADDRESS\)\. .*The last one launched was `k`\. "
        r".*CUDA_LAUNCH_BLOCKING=1"
    )
    with pytest.raises(DeviceError, match=text) as raised:
        device(0).synchronize()
    assert raised.value.code == "CUDA_ERROR_ILLEGAL_ADDRESS"
    fake.fail["cuLaunchKernel"] = ILLEGAL_ADDRESS
    with pytest.raises(RuntimeError, match=r"launching k on cuda:0 with grid \(2, 1, 1\): a kern"):
        kernel.load().start((2, 1, 1), (), ())
    fake.fail["cuCtxPushCurrent_v2"] = ILLEGAL_ADDRESS
    kernel.loaded = None  # unloading fails in silence
    del kernel


def test_failed_kernel_is_identified_by_its_stream(fake: FakeCuda) -> None:
    device(0).synchronize_stream(0xAB)
    fake.fail["cuStreamSynchronize"] = ILLEGAL_ADDRESS
    with pytest.raises(DeviceError, match="waiting for stream 0xab of cuda:0: a kernel read"):
        device(0).synchronize_stream(0xAB)
    assert fake.stack == []


def test_first_launch_has_no_earlier_kernel(fake: FakeCuda) -> None:
    fake.fail["cuLaunchKernel"] = ILLEGAL_ADDRESS
    with pytest.raises(DeviceError) as raised:
        compiled([]).load().start((1, 1, 1), (), ())
    assert "last one" not in str(raised.value)


def test_grid_beyond_the_limits(fake: FakeCuda) -> None:
    fake.fail["cuLaunchKernel"] = INVALID_VALUE
    kernel = compiled([])
    with pytest.raises(DeviceError, match=r"grid \(1, 65536, 1\): .*at most \(2147483647, 65535,"):
        kernel.load().start((1, 65536, 1), (), ())
    with pytest.raises(DeviceError, match=r"\(CUDA_ERROR_INVALID_VALUE\)$"):
        kernel.load().start((1, 65535, 1), (), ())
