"""Native launches on a device of another package, by C functions of its driver and tensors."""

import ctypes
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from tests.runtime.native_cases import Twin, Variant, outcome
from tilewright.runtime import driver
from tilewright.runtime.devices.code import LoadedCode
from tilewright.runtime.devices.llvm import assemble
from tilewright.runtime.launchers.functions import read_by_function, start_by_function
from tilewright.runtime.native import runtime as native_runtime
from tilewright.runtime.native.records import Start
from tilewright.runtime.native.runtime import Runtime
from tilewright.runtime.tensors import NATIVE_READERS

START = ctypes.CFUNCTYPE(
    ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p
)


class Tensor:
    """A tensor on the device."""

    dtype = "float32"

    def __init__(self, address: int, device: str = "npu") -> None:
        self.address, self.device = address, device

    def data_ptr(self) -> int:
        return self.address


class Npu:
    """A device that records what it is started with.

    Attributes:
        started: kernel, grid and stream of each launch.
        status: the result of the device's function.
        address: of the function that starts kernels.
    """

    def __init__(self) -> None:
        self.started: list[tuple[int, tuple[int, ...], int | None]] = []
        self.status = 0
        self.function = START(self.start)
        self.words: list[bytes] = []
        self.size = 0
        self.stream: Any = None
        self.address = ctypes.cast(self.function, ctypes.c_void_p).value or 0

    def start(self, kernel: int, words: int, grid: int, stream: int | None) -> int:
        self.started.append((kernel, tuple((ctypes.c_int64 * 3).from_address(grid)), stream))
        self.words.append(ctypes.string_at(words, self.size))
        return self.status

    def raise_error(self, status: int, grid: tuple[int, int, int]) -> None:
        raise RuntimeError(f"status {status} of {grid}")

    def native_start(self, variant: Variant) -> Start | None:
        self.size = 8 * len(variant.arguments)
        signature = {str(i): kind for i, kind in enumerate(variant.types)}
        metadata = SimpleNamespace(arguments=variant.arguments, signature=signature)
        kernel: Any = SimpleNamespace(metadata=metadata)
        return start_by_function(kernel, self.address, 4711, self.raise_error, self.stream, 3)


# The functions of a vendor's library: one that reads tensors with the address in the first slot of
# the object, where it is a Python int, and fails for the address 0; and one that counts launches.
LIBRARY = """
@reads = global i64 0
@starts = global i64 0
define i64 @read_count() {{ %n = load i64, ptr @reads ret i64 %n }}
define i64 @start_count() {{ %n = load i64, ptr @starts ret i64 %n }}
define i32 @read(ptr %tensor, ptr %result) {{
  %before = load i64, ptr @reads
  %after = add i64 %before, 1
  store i64 %after, ptr @reads
  %slot = getelementptr i8, ptr %tensor, i64 {head}
  %object = load ptr, ptr %slot
  %convert = inttoptr i64 {convert} to ptr
  %address = call i64 %convert(ptr %object)
  store i64 %address, ptr %result
  %low = getelementptr i8, ptr %result, i64 8
  store i64 -1, ptr %low
  %high = getelementptr i8, ptr %result, i64 16
  store i64 -1, ptr %high
  %dtype = getelementptr i8, ptr %result, i64 24
  store i32 {dtype}, ptr %dtype
  %read_only = getelementptr i8, ptr %result, i64 28
  store i32 0, ptr %read_only
  %failed = icmp eq i64 %address, 0
  %status = zext i1 %failed to i32
  ret i32 %status
}}
define i32 @start(ptr %kernel, ptr %words, ptr %grid, ptr %stream) {{
  %before = load i64, ptr @starts
  %after = add i64 %before, 1
  store i64 %after, ptr @starts
  ret i32 0
}}
"""
FP32 = 2 | 32 << 8 | 1 << 16  # DLDataType


class SlottedTensor:
    """A tensor on the device whose address C code can read.

    Attributes:
        calls: how many times Python's readers have called `data_ptr`.
    """

    __slots__ = ("address",)
    dtype, device, calls = "float32", "npu", 0

    def __init__(self, address: int) -> None:
        self.address = address

    def data_ptr(self) -> int:
        SlottedTensor.calls += 1
        return self.address


@pytest.fixture
def library(npu: "Npu") -> Iterator[Any]:
    """The vendor's library; its functions read tensors and start kernels."""
    convert = ctypes.cast(ctypes.pythonapi.PyLong_AsUnsignedLongLong, ctypes.c_void_p).value
    text = LIBRARY.format(head=object.__basicsize__, convert=convert, dtype=FP32)
    names = ["read", "start", "read_count", "start_count"]
    code = LoadedCode(assemble(text, 2), names)
    counter = ctypes.CFUNCTYPE(ctypes.c_int64)
    SlottedTensor.calls = 0
    read_by_function(SlottedTensor, code["read"], "npu")
    yield SimpleNamespace(
        start=code["start"],
        reads=counter(code["read_count"]),
        starts=counter(code["start_count"]),
        code=code,
    )
    del NATIVE_READERS[SlottedTensor]


@pytest.fixture
def npu(monkeypatch: pytest.MonkeyPatch) -> Iterator[Npu]:
    made = Npu()
    monkeypatch.setitem(driver.DRIVERS, "npu", lambda: lambda: made)
    monkeypatch.setattr(Variant, "device", "npu", raising=False)

    def native_start(self: Variant, runtime: Runtime) -> Start | None:
        return made.native_start(self)

    monkeypatch.setattr(Variant, "native_start", native_start)
    yield made
    native_runtime.DEVICES.pop("npu", None)


def test_function_receives_the_same_as_from_python(npu: Npu) -> None:
    twin = Twin(lambda x, n, f: ...)
    args: tuple[Any, ...] = Tensor(0x1000), 7, 2.5
    expected = twin.bind(*args)
    packed = expected[2].packer(expected[1])
    assert not any(_natively(twin, (2, 3), *args) for _ in range(2))
    assert _natively(twin, (2, 3), *args)
    assert npu.started == [(4711, (2, 3, 1), None)]
    assert npu.words == [packed]
    assert _natively(twin, (5,), Tensor(0x2000), 9, 1.0)
    assert npu.started[1:] == [(4711, (5, 1, 1), None)]


def test_tensors_are_read_by_the_function_of_their_library(npu: Npu, library: Any) -> None:
    twin = Twin(lambda x, n, f: ...)
    args: tuple[Any, ...] = SlottedTensor(0x1000), 7, 2.5
    expected = twin.bind(*args)
    packed = expected[2].packer(expected[1])
    assert not any(_natively(twin, (2, 3), *args) for _ in range(2))
    calls, reads = SlottedTensor.calls, library.reads()
    assert _natively(twin, (2, 3), *args)
    assert (SlottedTensor.calls, library.reads()) == (calls, reads + 1)
    assert npu.words == [packed]
    assert not _natively(twin, (1,), SlottedTensor(0x1008), 7, 2.5), "another alignment"
    assert not _natively(twin, (1,), SlottedTensor(0), 7, 2.5), "the function fails"
    assert len(twin.variants) == 2
    ours, theirs = SlottedTensor(0x1000), Tensor(0x1000)
    _natively(twin, (2, 3), theirs, 7, 2.5)  # the first tensor of a class is read by Python
    assert _natively(twin, (2, 3), theirs, 7, 2.5), "the key is that of a tensor read by Python"
    assert _natively(twin, (2, 3), ours, 7, 2.5)
    assert len(twin.variants) == 2


def test_whole_launch_is_by_the_functions_of_a_library(npu: Npu, library: Any) -> None:
    npu.address = library.start
    twin = Twin(lambda x, y, z, n, m: ...)
    args = (*map(SlottedTensor, (0x1000, 0x2000, 0x3000)), 5, 32)
    for _ in range(3):
        _natively(twin, (1,), *args)
    calls, starts = SlottedTensor.calls, library.starts()
    launch = twin.launcher.bind((1,))
    for _ in range(10):
        launch(*args)
    assert (SlottedTensor.calls, library.starts()) == (calls, starts + 10)


def test_stream_is_looked_up_on_each_launch(npu: Npu) -> None:
    streams = iter([10, 11])
    npu.stream = lambda index: next(streams) + index
    twin = Twin(lambda x: ...)
    for _ in range(4):
        _natively(twin, (1,), Tensor(0x1000))
    assert [stream for _, _, stream in npu.started] == [13, 14]
    with pytest.raises(StopIteration):
        _natively(twin, (1,), Tensor(0x1000))


def test_failed_launch_raises_the_error_of_the_driver(npu: Npu) -> None:
    twin = Twin(lambda x: ...)
    for _ in range(3):
        _natively(twin, (1,), Tensor(0x1000))
    npu.status = -5
    found = outcome(twin.launcher.bind((4, 1, 1)), Tensor(0x1000))
    assert found == (RuntimeError, "status -5 of (4, 1, 1)")


def test_tensors_of_unknown_and_of_several_devices_fall_back_to_python(npu: Npu) -> None:
    twin = Twin(lambda x, y: ...)
    here, there = Tensor(0x1000), Tensor(0x2000, "elsewhere")
    for _ in range(4):
        assert not _natively(twin, (1,), here, there)
        assert not _natively(twin, (1,), there, there)
    assert not _natively(twin, (1,), here, here)
    assert _natively(twin, (1,), here, here)


def _natively(twin: Twin, grid: Any, *args: Any) -> bool:
    """Launch; whether native code did."""
    twin.natively = True
    twin.launcher.bind(grid)(*args)
    return twin.natively


def test_device_type_without_a_driver_is_named() -> None:
    message = r"no driver for devices of type 'tpu'; there are drivers for cpu, cuda"
    with pytest.raises(ValueError, match=message):
        driver.driver_of("tpu")
