"""Native launches on a CUDA driver that records, against those by Python."""

import ctypes
import inspect
import os
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch  # noqa: F401  # pyright: ignore[reportUnusedImport]  # tensors here have its types

from tests.runtime.fake_cuda import FakeCuda, Gpu, Launch, Tensor, compiled
from tests.runtime.native_cases import native
from tilewright.base.diagnostics import DeviceError
from tilewright.compiler.artifact import CompiledKernel, Runner
from tilewright.frontend.source import KernelParam
from tilewright.runtime import launch
from tilewright.runtime.devices import cuda_api, cuda_torch
from tilewright.runtime.devices.cuda import device
from tilewright.runtime.grid import extents_of
from tilewright.runtime.launchers import tensor_maps
from tilewright.runtime.native.launcher import Launcher
from tilewright.runtime.native.layout import MAP_SETS, TORCH_CUDA, TORCH_OFFSETS
from tilewright.runtime.specialize import make_binder

TORCH_FP32 = 6  # c10::ScalarType::Float


class OnGpu(Tensor):
    """What takes the place of torch.Tensor."""


def _tells(width: Any, what: Callable[[Any], int]) -> Any:
    """A C function like torch's for code compiled ahead of time, which returns this of a tensor."""

    def report(tensor: int, out: int) -> int:
        found: Any = ctypes.cast(tensor - TORCH_OFFSETS[0], ctypes.py_object).value
        width.from_address(out).value = what(found)
        return 0

    return ctypes.PYFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p)(report)


_TELL = {
    "torch_get_device_type": _tells(ctypes.c_int32, lambda tensor: TORCH_CUDA),
    "torch_get_device_index": _tells(
        ctypes.c_int32, lambda tensor: int(tensor.device.partition(":")[2])
    ),
    "torch_get_dtype": _tells(ctypes.c_int32, lambda tensor: TORCH_FP32),
    "torch_get_data_ptr": _tells(ctypes.c_int64, lambda tensor: tensor.address),
    "torch_get_storage_size": _tells(ctypes.c_int64, lambda tensor: tensor.nbytes),
    "torch_get_storage_offset": _tells(ctypes.c_int64, lambda tensor: 0),
}


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCuda]:
    """Two GPUs, and tensors on them that native code reads as it does torch's."""
    found = native()
    found.look_for_torch()
    made = FakeCuda([Gpu(), Gpu()])
    made.install(monkeypatch)
    found._put_type("torch:Tensor", OnGpu)
    found._all.put("torch_offset", TORCH_OFFSETS[0])
    for field, function in _TELL.items():
        found._all.put(field, ctypes.cast(function, ctypes.c_void_p).value or 0)
    yield made
    found._torch_sought = False
    found.look_for_torch()
    assert not made.faults


def scale(x, out, n, factor): ...


ARGUMENTS = [((0,), "*fp32"), ((1,), "*fp32"), ((2,), "i32"), ((3,), "fp32")]
WIDTHS = [8, 8, 4, 4]


class Kernel:
    """A kernel launched by native code where it can, else as CudaLaunch does.

    `natively` is whether the last launch was native.
    """

    def __init__(self, **metadata: Any) -> None:
        self.signature = inspect.signature(scale)
        self.pre_run_hooks: list[Any] = []
        self.used_global_vals: dict[Any, Any] = {}
        self.used_objects: dict[Any, Any] = {}
        parameters = self.signature.parameters.values()
        self.params = [KernelParam(i, p, False, False) for i, p in enumerate(parameters)]
        self.binder = make_binder("scale", self.signature, self.params)
        self.metadata = metadata
        self.kernels: dict[Any, CompiledKernel] = {}
        self.natively = True
        self.launcher = Launcher(native(), self, self.by_python)

    def by_python(self, grid: Any, /, *args: Any, **kwargs: Any) -> CompiledKernel:
        self.natively = False
        values, slots, key, _ = self.binder(*args, **kwargs)
        kernel = self.kernels.get(key)
        if kernel is None:
            kernel = self.kernels[key] = compiled(ARGUMENTS, key[0], **self.metadata)
        kernel.load().start(extents_of(grid), values, slots)
        return kernel

    def __call__(self, grid: Any, *args: Any) -> CompiledKernel:
        self.natively = True
        return self.launcher.bind(grid)(*args)


@pytest.fixture
def kernel(fake: FakeCuda) -> Kernel:
    fake.widths["k"] = WIDTHS
    made = Kernel()
    made((1,), *arguments())
    return made


def arguments(number: int = 0) -> tuple[Any, ...]:
    place = f"cuda:{number}"
    return OnGpu(0x10000, place), OnGpu(0x20040, place), 33, 0.1


@pytest.mark.parametrize(
    "metadata",
    [
        {},
        {"num_ctas": 2, "shared": 1024},
        {"begins_early": True},
        {"shared": 98432, "spare_shared": 99200},
        {"num_warps": 1, "shared": 1024, "packed_programs": 4},
        {"num_warps": 1, "shared": 1024, "packed_programs": 4, "begins_early": True},
        {"shared": 98432, "spare_shared": 99200, "looped_axes": 1},
        {"shared": 147456, "looped_axes": 3, "begins_early": True},
    ],
)
@pytest.mark.parametrize(
    "grid", [(5,), (5, 6, 7), (8, 3000), (9000,), (9002, 2), lambda meta: (meta["n"], 2)]
)
def test_driver_receives_the_same_as_from_python(
    fake: FakeCuda, metadata: dict[str, Any], grid: Any
) -> None:
    fake.widths["k"] = [*WIDTHS, *([24] if "looped_axes" in metadata else [])]
    kernel = Kernel(**metadata)
    made = kernel((1,), *arguments())
    assert kernel(grid, *arguments()) is made
    assert kernel.natively
    extents = grid if isinstance(grid, tuple) else grid({"n": 33})
    kernel.by_python(extents, *arguments())
    by_native, by_python = fake.launches[-2:]
    assert by_native == by_python
    assert isinstance(by_native, Launch)
    assert bool(by_native.attributes) == bool(metadata.keys() & {"num_ctas", "begins_early"})
    packed = 4 if "packed_programs" in metadata and grid in ((8, 3000), (9000,)) else 1
    assert by_native.block[1] == packed
    if "looped_axes" in metadata:
        assert np.frombuffer(by_native.arguments[-1], np.int64).tolist() == [*extents, 1, 1][:3]
        blocks, along = resident_blocks(metadata["shared"]), metadata["looped_axes"]
        assert np.prod(by_native.grid[:along]) == min(blocks, np.prod(extents[:along]))


def resident_blocks(shared: int) -> int:
    """The blocks with so much shared memory that are resident on the GPU."""
    return 132 * (2 if shared < 113 << 10 else 1)


def test_programs_that_blocks_cannot_count_are_left_to_python(
    fake: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python launches the kernel without a loop over programs, which has no source here."""
    fake.widths["k"] = [*WIDTHS, 24]
    kernel = Kernel(looped_axes=3)
    kernel((1,), *arguments())
    for grid in ((2**31 - 1,), (1 << 15, 1 << 15), (1 << 10, 1 << 10, 1 << 10)):
        kernel(grid, *arguments())
        assert kernel.natively
    launches = len(fake.launches)
    for grid in ((1 << 16, 1 << 15), (1 << 30, 1 << 30, 1 << 30), (1 << 30, 1 << 30, 16)):
        with pytest.raises(DeviceError, match="compile it with tensor_copies=False"):
            kernel(grid, *arguments())
        assert not kernel.natively
    assert len(fake.launches) == launches


def test_tensors_that_overlap_are_another_variant(fake: FakeCuda, kernel: Kernel) -> None:
    """As on the CPU: what a loop loads may move past its stores where they cannot meet."""
    x, out, n, factor = arguments()
    inside = OnGpu(0x10020, "cuda:0")  # x has 64 bytes from 0x10000
    apart = kernel((1,), x, out, n, factor)
    for one, other in ((x, x), (x, inside), (inside, x)):
        together = kernel((1,), one, other, n, factor)
        assert together is not apart
        assert kernel((1,), one, other, n, factor) is together
        assert kernel.natively
    assert [aliases for _, aliases, *_ in kernel.kernels] == [(), (0, 0)]
    assert kernel((1,), out, x, n, factor) is apart
    assert kernel.natively


def test_each_device_has_its_own_kernel(fake: FakeCuda, kernel: Kernel) -> None:
    for number in (0, 1):
        with device(number).current():
            kernel((2,), *arguments(number))
            kernel((3,), *arguments(number))
        assert kernel.natively
        assert fake.launches[-1].context == 0x100 + number


def test_another_context_falls_back_to_python(fake: FakeCuda, kernel: Kernel) -> None:
    with device(1).current():
        kernel((2,), *arguments(0))
        assert not kernel.natively
        assert fake.stack[-1] == 0x101
    assert fake.launches[-1].context == 0x100
    kernel((3,), *arguments(0))
    assert kernel.natively


def test_grid_function_is_called_once_though_python_launches(
    fake: FakeCuda, kernel: Kernel
) -> None:
    calls: list[Any] = []

    def grid(meta: dict[str, Any]) -> tuple[int, int]:
        calls.append(meta["n"])
        return 4, 5

    with device(1).current():
        kernel(grid, *arguments(0))
    assert not kernel.natively
    assert calls == [33]
    assert fake.launches[-1].grid == (4, 5, 1)


def test_stream_is_queried_on_each_launch(fake: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    fake.widths["k"] = WIDTHS
    streams = iter([0xFFFF_8000_0000_1000, 0x2000, 0])
    monkeypatch.setattr(cuda_torch, "_stream_of", lambda index: next(streams))
    kernel = Kernel()
    for _ in range(3):
        kernel((1,), *arguments())
    assert kernel.natively
    assert [launch.stream for launch in fake.launches] == [0xFFFF_8000_0000_1000, 0x2000, 0]


class StreamsOfTorch:
    """torch's current stream, as a Python function and as a C function of DLPack's form.

    Attributes:
        current: the handle.
        queries: how often Python has called it.
        lies: what the C function returns instead, if anything.
        status: what it gives.
    """

    def __init__(self, fake: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> None:
        self.current, self.requested = 0x5000, 0
        self.lies: int | None = None
        self.status = 0
        fake.modules["torch"] = SimpleNamespace(
            version=SimpleNamespace(cuda="13.0"),
            _C=SimpleNamespace(_cuda_getCurrentRawStream=self.ask),
            cuda=SimpleNamespace(stream=self.using, ExternalStream=lambda handle, device: handle),
        )
        kind = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_int32, ctypes.c_void_p)
        self._function = kind(self.report)
        address = ctypes.cast(self._function, ctypes.c_void_p).value
        monkeypatch.setattr(native(), "torch_stream", address)

    @contextmanager
    def using(self, handle: int) -> Generator[None]:
        before, self.current = self.current, handle
        yield
        self.current = before

    def ask(self, index: int) -> int:
        self.requested += 1
        return self.current + index

    def report(self, kind: int, index: int, out: int) -> int:
        assert kind == 2
        reported = self.current + index if self.lies is None else self.lies
        ctypes.c_uint64.from_address(out).value = reported
        return self.status


def test_stream_is_returned_by_torchs_c_function(
    fake: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    streams = StreamsOfTorch(fake, monkeypatch)
    fake.widths["k"] = WIDTHS
    kernel = Kernel()
    kernel((1,), *arguments())
    requested = streams.requested
    for handle in (0xFFFF_8000_0000_1000, 0):
        streams.current = handle
        kernel((1,), *arguments())
        assert kernel.natively
        assert fake.launches[-1].stream == handle
    assert streams.requested == requested
    streams.status, streams.current = -1, 0x7000
    kernel((1,), *arguments())
    assert kernel.natively
    assert streams.requested == requested + 1
    assert fake.launches[-1].stream == 0x7000


@pytest.mark.parametrize("lie", [0, 0x5000])
def test_c_function_without_streams_is_not_called(
    fake: FakeCuda, monkeypatch: pytest.MonkeyPatch, lie: int
) -> None:
    streams = StreamsOfTorch(fake, monkeypatch)
    streams.lies = lie
    fake.widths["k"] = WIDTHS
    kernel = Kernel()
    kernel((1,), *arguments())
    streams.current = 0x6000
    kernel((1,), *arguments())
    assert kernel.natively
    assert fake.launches[-1].stream == 0x6000


def test_bound_launches_use_the_current_stream(
    fake: FakeCuda, kernel: Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_python: list[Any] = []

    def again() -> CompiledKernel:
        by_python.append(1)
        return kernel.by_python((5, 6), *arguments())

    bound = kernel.launcher.bound(again, lambda meta: (5, 6), arguments(), {})
    assert bound is not None
    monkeypatch.setattr(cuda_torch, "_stream_of", lambda index: 0x3000 + index)
    kernel.by_python((5, 6), *arguments())
    bound()
    assert fake.launches[-1] == fake.launches[-2]
    assert not by_python
    with device(1).current():
        bound()
    assert by_python
    assert fake.launches[-1].context == 0x100


def test_torch_imported_later_provides_the_stream(
    fake: FakeCuda, kernel: Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel((1,), *arguments())
    monkeypatch.setattr(cuda_torch, "_stream_of", lambda index: 0x3000 + index)
    kernel((1,), *arguments())
    assert kernel.natively
    assert fake.launches[-1].stream == 0x3000


def test_error_of_the_stream_query_propagates(
    kernel: Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cuda_torch, "_stream_of", lambda index: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        kernel((1,), *arguments())
    monkeypatch.setattr(cuda_torch, "_stream_of", lambda index: "a stream")
    with pytest.raises(TypeError):
        kernel((1,), *arguments())


@pytest.mark.parametrize(("status", "grid"), [(1, (5,)), (1, (1, 70000)), (700, (5,)), (999, (5,))])
def test_failed_launches_have_the_same_message(
    fake: FakeCuda, kernel: Kernel, status: int, grid: tuple[int, ...]
) -> None:
    fake.fail["cuLaunchKernel"] = status
    with pytest.raises(DeviceError) as by_native:
        kernel(grid, *arguments())
    assert kernel.natively
    with pytest.raises(DeviceError) as by_python:
        kernel.by_python(grid, *arguments())
    assert str(by_native.value) == str(by_python.value)
    assert by_native.value.code == by_python.value.code


def test_last_kernel_is_recorded(kernel: Kernel) -> None:
    for name in ("another", "größer", ""):
        device(0).last_kernel = name
        assert device(0).last_kernel == name
    for _ in range(2):
        kernel((1,), *arguments())
        assert kernel.natively
        assert device(0).last_kernel == "k"
        assert device(1).last_kernel == ""


def test_empty_and_oversized_grids(fake: FakeCuda, kernel: Kernel) -> None:
    before = len(fake.launches)
    kernel((0, 3), *arguments())
    assert kernel.natively
    assert len(fake.launches) == before
    kernel((2**31 - 1,), *arguments())
    assert kernel.natively
    kernel((2**31,), *arguments())
    assert not kernel.natively


def test_scratch_memory_falls_back_to_python(fake: FakeCuda) -> None:
    fake.widths["k"] = [*WIDTHS, 8]
    kernel = Kernel(global_scratch_size=64, global_scratch_align=16)
    for _ in range(2):
        kernel((1,), *arguments())
        assert not kernel.natively


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_forked_child_gets_an_error(kernel: Kernel) -> None:
    kernel((1,), *arguments())
    assert kernel.natively
    child = os.fork()
    if child == 0:
        reported = False
        try:
            kernel((1,), *arguments())
        except DeviceError as error:
            reported = str(error) == cuda_api.FORKED
        finally:
            os._exit(0 if reported else 1)
    assert os.waitpid(child, 0)[1] == 0


# -- tensor maps ----------------------------------------------------------------------------------

ROWS = {
    "base": 0,
    "offset": ((8, ()),),
    "extents": (((64, ()),), ((1, (2,)),)),
    "strides": (((1, ()),), ((64, ()),)),
    "box": (32, 8),
    "element_bytes": 4,
    "swizzle": 128,
    "added": False,
}
"""A tensor of fp32 at 32 bytes after the first argument: n rows of 64."""


@pytest.fixture
def mapped(fake: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> Kernel:
    fake.widths["k"] = [*WIDTHS, 128]
    monkeypatch.setattr(tensor_maps, "_ZEROS", {})
    return Kernel(tensor_maps=[ROWS], launch_warps=5)


def map_of(launch: Launch) -> list[int]:
    """Type, rank, address, extents, strides, box and the rest of the launch's tensor map."""
    return list((ctypes.c_uint64 * 16).from_buffer_copy(launch.arguments[-1]))


def test_tensor_maps_are_encoded_by_native_code_and_cached_by_their_arguments(
    fake: FakeCuda, mapped: Kernel
) -> None:
    _, out, _, factor = arguments()
    for n in (33, 35, 2**31 - 1):
        for address in (0x10000, 0x30000, 0x10000):
            mapped((4,), OnGpu(address, "cuda:0"), out, n, factor)
            launch = fake.launches[-1]
            assert map_of(launch)[:8] == [2, 2, address + 0x20, 64, n, 256, 32, 8]
            assert launch.block == (5 * 32, 1, 1)
            assert mapped.natively == (launch is not fake.launches[0])
    # The first launch is Python's; of the others, the last one with each n finds its maps.
    assert fake.calls.count("cuTensorMapEncodeTiled") == 1 + 2 + 2 * 2


SUMS = {
    "products": (((3, (2, 2)), (-5, (2,)), (7, ())), True),
    "many terms": (((1, (2,)), (1, (2,)), (1, (2,)), (1, ())), False),
    "many factors": (((1, (2, 2, 2)),), False),
}


@pytest.mark.parametrize(("terms", "natively"), SUMS.values(), ids=SUMS.keys())
def test_sums_that_describe_a_tensor(
    fake: FakeCuda, mapped: Kernel, terms: Any, natively: bool
) -> None:
    mapped.metadata["tensor_maps"] = [ROWS | {"extents": (((64, ()),), terms)}]
    x, out, _, factor = arguments()
    for n in (32, 34, 36):
        mapped((4,), x, out, n, factor)
        expected = tensor_maps.value_of(terms, [0, 0, n])
        assert map_of(fake.launches[-1])[4] == expected
    assert mapped.natively == natively


@pytest.mark.parametrize(
    "terms",
    [((1 << 30, (2,)),), ((1 << 24, (2, 2)), (1, ())), ((-1, (2,)),), ((1, (2,)), (-36, ()))],
)
def test_extents_beyond_the_limits_are_left_to_python(
    fake: FakeCuda, mapped: Kernel, terms: Any
) -> None:
    """Python finds no such map, or describes a tensor without elements."""
    x, out, _, factor = arguments()
    mapped.metadata["tensor_maps"] = [ROWS | {"extents": (((64, ()),), terms)}]
    value = tensor_maps.value_of(terms, [0, 0, 36])
    for _ in range(2):
        if value > 0:
            with pytest.raises(DeviceError, match="compile it with tensor_copies=False"):
                mapped((4,), x, out, 36, factor)
        else:
            mapped((4,), x, out, 36, factor)
            assert map_of(fake.launches[-1])[3:5] == [1, 1]
        assert not mapped.natively


def test_tensor_that_blocks_are_added_to_has_its_type(fake: FakeCuda, mapped: Kernel) -> None:
    mapped.metadata["tensor_maps"] = [ROWS | {"added": True}]
    x, out, _, factor = arguments()
    for n in (33, 35):
        mapped((4,), x, out, n, factor)
        assert map_of(fake.launches[-1])[0] == 7  # CU_TENSOR_MAP_DATA_TYPE_FLOAT32
    assert mapped.natively
    with pytest.raises(DeviceError, match="compile it with tensor_copies=False"):
        mapped((4,), x, out, 0, factor)  # there is no element to add to


def test_tensor_without_elements_has_a_null_map(fake: FakeCuda, mapped: Kernel) -> None:
    x, out, _, factor = arguments()
    mapped((4,), x, out, 0, factor)
    kind, rank, base, *extents = map_of(fake.launches[-1])[:5]
    assert (kind, rank, extents) == (2, 2, [1, 1])
    assert base in fake.allocated


def test_tensor_map_cache_evicts_and_re_encodes(fake: FakeCuda, mapped: Kernel) -> None:
    x, out, _, factor = arguments()
    for _ in range(2):
        for n in range(2, 3 * MAP_SETS, 2):
            mapped((4,), x, out, n, factor)
            assert map_of(fake.launches[-1])[4] == n


def test_tensor_without_a_valid_map(fake: FakeCuda, mapped: Kernel) -> None:
    """There is no source to compile the kernel without tensor copies from."""
    _, out, n, factor = arguments()
    with pytest.raises(DeviceError, match="compile it with tensor_copies=False"):
        mapped((4,), OnGpu(0x10004, "cuda:0"), out, n, factor)


# -- CompiledKernel.run ---------------------------------------------------------------------------

NO_HOOKS = (None, None, None, None, None)


@pytest.fixture
def by_python(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Gets the grid of each launch that Python makes."""
    seen: list[Any] = []
    real = launch._Launcher.launch

    def recorded(self: Any, kernel: Any, grid: Any, *rest: Any, **hooks: Any) -> None:
        seen.append(grid)
        real(self, kernel, grid, *rest, **hooks)

    monkeypatch.setattr(launch._Launcher, "launch", recorded)
    return seen


@pytest.mark.parametrize("stream", [None, 0x2000])
def test_run_of_a_compiled_kernel(
    fake: FakeCuda, monkeypatch: pytest.MonkeyPatch, by_python: list[Any], stream: int | None
) -> None:
    fake.widths["k"] = WIDTHS
    monkeypatch.setattr(cuda_torch, "_stream_of", lambda index: 0x2000)
    kernel = compiled(ARGUMENTS, "cuda:0")
    native().know_device("cuda:0")
    with device(0).current():
        kernel.run(5, 6, 7, stream, *NO_HOOKS, *arguments())
        assert not by_python
        Runner(kernel)(5, 6, 7, stream, *NO_HOOKS, *arguments())
    assert len(by_python) == 1
    natively, expected = fake.launches
    assert natively == expected
    assert (natively.grid, natively.stream) == ((5, 6, 7), 0x2000)


def test_run_on_a_stream_that_is_not_current_raises(
    fake: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake.widths["k"] = WIDTHS
    monkeypatch.setattr(cuda_torch, "_stream_of", lambda index: 0x2000)
    kernel = compiled(ARGUMENTS, "cuda:0")
    with device(0).current(), pytest.raises(ValueError, match="launched on the current stream"):
        kernel.run(5, 6, 7, 0, *NO_HOOKS, *arguments())
    assert not fake.launches


def test_run_with_tensors_of_another_device_raises(fake: FakeCuda) -> None:
    fake.widths["k"] = WIDTHS
    kernel = compiled(ARGUMENTS, "cuda:0")
    with device(0).current(), pytest.raises(ValueError, match="is loaded on cuda:0; its tensors"):
        kernel.run(5, 6, 7, None, *NO_HOOKS, *arguments(1))
    assert not fake.launches


def test_run_of_a_kernel_that_its_first_launch_places(fake: FakeCuda, by_python: list[Any]) -> None:
    fake.widths["k"] = WIDTHS
    kernel = compiled(ARGUMENTS)
    with device(0).current():
        for x in (1, 2, 3):
            kernel.run(x, 1, 1, None, *NO_HOOKS, *arguments())
    assert not by_python
    assert [launched.grid[0] for launched in fake.launches] == [1, 2, 3]
