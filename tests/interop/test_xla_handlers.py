"""The native handlers, called as XLA calls them: with call frames made here, without JAX.

The structures are written down a second time, as `xla/ffi/api/c_api.h` declares them.
"""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tests.runtime.fake_cuda import FakeCuda, Gpu, compiled
from tilewright.compiler.source import ASTSource
from tilewright.interop import xla_kernels
from tilewright.interop.xla_handlers import ALIGNED, IS_WORD
from tilewright.interop.xla_kernels import UnsupportedXla, site_words
from tilewright.runtime.native.layout import FIELDS
from tilewright.runtime.native.structure import Structure

P, I64, I32 = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int32


def struct(name: str, **fields: Any) -> Any:
    return type(name, (ctypes.Structure,), {"_fields_": tuple(fields.items())})


Header = {"struct_size": ctypes.c_size_t, "extension_start": P}
List = struct("List", **Header, size=I64, types=P, items=P)
Attrs = struct("Attrs", **Header, size=I64, types=P, names=P, attrs=P)
CallFrame = struct(
    "CallFrame", **Header, api=P, ctx=P, stage=ctypes.c_int, args=List, rets=List, attrs=Attrs,
    future=P,
)  # fmt: skip
Buffer = struct("Buffer", **Header, dtype=ctypes.c_int, data=P, rank=I64, dims=P)
ByteSpan = struct("ByteSpan", ptr=P, len=ctypes.c_size_t)
Array = struct("Array", dtype=ctypes.c_int, size=ctypes.c_size_t, data=P)
ApiVersion = struct("ApiVersion", **Header, major=ctypes.c_int, minor=ctypes.c_int)
FUNCTIONS = (
    "error_create", "error_message", "error_destroy", "register", "stream_get", "type_register",
    "context_get", "state_set", "state_get", "allocate", "free",
)  # fmt: skip
Api = struct("Api", **Header, version=ApiVersion, internal=P, **dict.fromkeys(FUNCTIONS, P))
ErrorArgs = struct("ErrorArgs", **Header, message=ctypes.c_char_p, code=ctypes.c_int)
StreamArgs = struct("StreamArgs", **Header, ctx=P, stream=P)
AllocateArgs = struct(
    "AllocateArgs", **Header, ctx=P, size=ctypes.c_size_t, align=ctypes.c_size_t, data=P
)
FreeArgs = struct("FreeArgs", **Header, ctx=P, size=ctypes.c_size_t, data=P)
Metadata = struct("Metadata", struct_size=ctypes.c_size_t, version=ApiVersion, traits=I32)
Extension = struct("Extension", size=I64, type=ctypes.c_int, next=P, metadata=P)

EXECUTE = 3
STREAM = 0x5EED

PAIRS = {
    ("XlaFrame", "stage"): CallFrame.stage.offset,
    ("XlaFrame", "argument_count"): CallFrame.args.offset + List.size.offset,
    ("XlaFrame", "arguments"): CallFrame.args.offset + List.items.offset,
    ("XlaFrame", "result_count"): CallFrame.rets.offset + List.size.offset,
    ("XlaFrame", "results"): CallFrame.rets.offset + List.items.offset,
    ("XlaFrame", "attributes"): CallFrame.attrs.offset + Attrs.attrs.offset,
    ("XlaBuffer", "data"): Buffer.data.offset,
    ("XlaBuffer", "dims"): Buffer.dims.offset,
    ("XlaArray", "data"): Array.data.offset,
    ("XlaApi", "error_create"): Api.error_create.offset,
    ("XlaApi", "stream_get"): Api.stream_get.offset,
    ("XlaApi", "allocate"): Api.allocate.offset,
    ("XlaApi", "free"): Api.free.offset,
    ("XlaError", "code"): ErrorArgs.code.offset,
    ("XlaStream", "stream"): StreamArgs.stream.offset,
    ("XlaAllocation", "data"): AllocateArgs.data.offset,
    ("XlaRelease", "data"): FreeArgs.data.offset,
    ("XlaMetadata", "minor"): Metadata.version.offset + ApiVersion.minor.offset,
    ("XlaExtension", "metadata"): Extension.metadata.offset,
}  # fmt: skip


@pytest.mark.parametrize("field", PAIRS, ids=".".join)
def test_fields_are_where_the_header_has_them(field: tuple[str, str]) -> None:
    assert FIELDS[field[0]][field[1]].offset == PAIRS[field]


class Xla:
    """What calls handlers: makes frames, and has the functions that handlers call."""

    def __init__(self) -> None:
        self.errors: list[str] = []
        self.allocated: list[tuple[int, int]] = []
        self.freed: list[tuple[int, int]] = []
        self.fail_streams = False
        kind = ctypes.CFUNCTYPE(P, P)
        given = {
            "error_create": self._error, "stream_get": self._stream, "allocate": self._allocate,
            "free": self._free,
        }  # fmt: skip
        self._functions = {name: kind(function) for name, function in given.items()}
        self.api = Api(ctypes.sizeof(Api))
        for name, function in self._functions.items():
            setattr(self.api, name, ctypes.cast(function, P))
        self._kept: list[Any] = []

    def _error(self, address: int) -> int:
        given = ErrorArgs.from_address(address)
        assert given.struct_size == 28
        self.errors.append(given.message.decode())
        return 0xE0 + len(self.errors)

    def _stream(self, address: int) -> int | None:
        given = StreamArgs.from_address(address)
        assert (given.struct_size, given.ctx) == (32, 0xC0)
        given.stream = STREAM
        return 0xBAD if self.fail_streams else None

    def _allocate(self, address: int) -> None:
        given = AllocateArgs.from_address(address)
        assert (given.struct_size, given.ctx) == (48, 0xC0)
        self.allocated.append((given.size, given.align))
        given.data = 0xDA7A

    def _free(self, address: int) -> None:
        given = FreeArgs.from_address(address)
        assert (given.struct_size, given.ctx) == (40, 0xC0)
        self.freed.append((given.size, given.data))

    def frame(self, name: str, site: Any, operands: Sequence[int] = (), results: Any = ()) -> Any:
        """A call frame; operands and results are addresses."""
        text = ctypes.create_string_buffer(name.encode())
        words = (I64 * len(site))(*site)
        span = ByteSpan(ctypes.addressof(text), len(name))
        array = Array(5, len(site), ctypes.addressof(words))
        attributes = (P * 2)(ctypes.addressof(span), ctypes.addressof(array))
        lists: list[Any] = []
        for addresses in (operands, results):
            buffers = [Buffer(ctypes.sizeof(Buffer), None, 11, at, 0, None) for at in addresses]
            items = (P * len(buffers))(*map(ctypes.addressof, buffers))
            lists.append(List(40, None, len(buffers), None, ctypes.addressof(items)))
            self._kept += [buffers, items]
        attrs = Attrs(48, None, 2, None, None, ctypes.addressof(attributes))
        frame = CallFrame(168, None, ctypes.addressof(self.api), 0xC0, EXECUTE, *lists, attrs)
        self._kept += [text, words, span, array, attributes]
        return frame


def call(handler: int, frame: Any) -> int | None:
    return ctypes.CFUNCTYPE(P, P)(handler)(ctypes.addressof(frame))


@pytest.fixture
def kernels() -> Any:
    return xla_kernels._Kernels()


def test_metadata_has_the_version_of_the_installed_header(kernels: Any) -> None:
    handler = kernels.handler("cpu", (0, 7))
    metadata = Metadata(ctypes.sizeof(Metadata))
    extension = Extension(ctypes.sizeof(Extension), 1, None, ctypes.addressof(metadata))
    frame = CallFrame(168, ctypes.addressof(extension))
    assert call(handler, frame) is None
    assert (metadata.version.major, metadata.version.minor) == (0, 7)


def test_other_extensions_are_ignored(kernels: Any) -> None:
    xla, extension = Xla(), Extension(ctypes.sizeof(Extension), 77)
    frame = xla.frame("0" * 64, [1, 1, 1, 1, 0])
    frame.extension_start = ctypes.addressof(extension)
    assert call(kernels.handler("cpu", (0, 3)), frame) == 0xE1
    assert "not in tilewright's cache" in xla.errors[0]


def test_other_versions_and_layouts_are_errors(kernels: Any) -> None:
    with pytest.raises(UnsupportedXla, match=r"has version 1.0 .* knows 0.x"):
        xla_kernels.handler("cpu", (1, 0))
    xla = Xla()
    frame = xla.frame("k", [1, 1, 1, 1, 0])
    frame.struct_size = 160
    assert call(kernels.handler("cpu", (0, 3)), frame) == 0xE1
    assert "smaller than in version 0.x" in xla.errors[0]


def test_other_stages_do_nothing(kernels: Any) -> None:
    xla = Xla()
    frame = xla.frame("0" * 64, [1, 1, 1, 1, 0])
    for stage in (0, 1, 2):
        frame.stage = stage
        assert call(kernels.handler("cpu", (0, 3)), frame) is None
    frame.stage = EXECUTE
    assert call(kernels.handler("cpu", (0, 3)), frame) == 0xE1
    assert "not in tilewright's cache" in xla.errors[0]


def test_the_table_finds_each_of_many_kernels() -> None:
    runtime = Structure("XlaRuntime")
    table = xla_kernels._Table(runtime)
    rng = np.random.default_rng(0)
    keys = [int(k) for k in rng.integers(-(2**63), 2**63 - 1, 500)] + [256 * i for i in range(1, 9)]
    for i, key in enumerate(keys):
        table.add(key, i + 1)
        table.add(key, -1)  # has no effect
    words = list((I64 * (1 + 2 * table._size)).from_address(runtime.words()[0]))
    assert words[0] == table._size - 1
    for i, key in enumerate(keys):
        at = key & words[0]
        while words[1 + 2 * at] != key:
            assert words[1 + 2 * at], "the search ends at a vacant entry"
            at = (at + 1) & words[0]
        assert words[2 + 2 * at] == i + 1


@tw.jit
def low_bits_kernel(x, out):
    tl.store(out, x.to(tl.int64) & 15)


def compiled_for_cpu(divisible: bool) -> Any:
    attrs = {(0,): [["tt.divisibility", 16]]} if divisible else {}
    signature = {"x": "*fp32", "out": "*i64"}
    return tw.compile(ASTSource(low_bits_kernel, signature, attrs=attrs), target="cpu")


def test_buffers_at_any_address(kernels: Any) -> None:
    """The compiler knows the low bits of an address that is divisible by 16."""
    xla, aligned = Xla(), compiled_for_cpu(True)
    kernels.offer(aligned, lambda: compiled_for_cpu(False))
    handler = kernels.handler("cpu", (0, 3))
    site = site_words(aligned, (1, 1, 1), [0, 0], {0: ALIGNED, 1: 1})
    for address, low in ((0x1000, 0), (0x1004, 4), (0x1010, 0), (0x100C, 12)):
        out = np.full(1, -1, np.int64)
        frame = xla.frame(aligned.hash, site, [address], [out.ctypes.data])
        assert call(handler, frame) is None, xla.errors
        assert out[0] == low


# -- CUDA -----------------------------------------------------------------------------------------

ARGUMENTS = [((0,), "*fp32"), ((1,), "*fp32"), ((2,), "i32"), ((3,), "fp32")]
NAME = hashlib.sha256(b"k").hexdigest()


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Any:
    made = FakeCuda([Gpu(), Gpu()])
    made.install(monkeypatch)
    made.widths["k"] = [8, 8, 4, 4]
    yield made
    assert not made.faults


def gpu_kernel(**metadata: Any) -> Any:
    return compiled(ARGUMENTS, hash=NAME, **metadata)


def gpu_frame(xla: Xla, kernel: Any, operand: int = 0x1000, flags: int = ALIGNED) -> Any:
    site = site_words(kernel, (5, 2, 1), [0, 0, -3, 0.5], {0: 0 | flags, 1: 1 | flags})
    assert list(site[1:5]) == [5, 2, 1, 4]
    assert list(site[9::2]) == [IS_WORD, IS_WORD]
    return xla.frame(NAME, site, [operand], [0x2000])


def test_cuda_launches_on_the_stream_of_the_call(kernels: Any, fake: FakeCuda) -> None:
    xla, kernel = Xla(), gpu_kernel(shared=1024)
    kernels.offer(kernel)
    handler = kernels.handler("cuda", (0, 3))
    frame = gpu_frame(xla, kernel)
    for context in (0x101, 0x100, 0x101):
        fake.stack[:] = [context]
        assert call(handler, frame) is None, xla.errors
    assert [launch.context for launch in fake.launches] == [0x101, 0x100, 0x101]
    assert len(fake.images) == 2, "the kernel is loaded once for each device"
    launch = fake.launches[-1]
    assert (launch.grid, launch.block, launch.shared) == ((5, 2, 1), (128, 1, 1), 1024)
    assert launch.stream == STREAM
    number, factor = np.int32(-3).tobytes(), np.float32(0.5).tobytes()
    pointers = [(0x1000).to_bytes(8, "little"), (0x2000).to_bytes(8, "little")]
    assert launch.arguments == [*pointers, number, factor]


def test_cuda_launch_attributes(kernels: Any, fake: FakeCuda) -> None:
    xla, kernel = Xla(), gpu_kernel(num_ctas=2, begins_early=True)
    kernels.offer(kernel)
    fake.stack[:] = [0x100]
    assert call(kernels.handler("cuda", (0, 3)), gpu_frame(xla, kernel)) is None, xla.errors
    (launch,) = fake.launches
    assert launch.grid == (10, 2, 1)
    assert launch.stream == STREAM
    assert launch.attributes == [(4, (2, 1, 1)), (6, (1, 0, 0))]


def test_cuda_scratch_memory_comes_from_xla(kernels: Any, fake: FakeCuda) -> None:
    xla, kernel = Xla(), gpu_kernel(global_scratch_size=256, global_scratch_align=128)
    fake.widths["k"] = [8, 8, 4, 4, 8]
    kernels.offer(kernel)
    fake.stack[:] = [0x100]
    assert call(kernels.handler("cuda", (0, 3)), gpu_frame(xla, kernel)) is None, xla.errors
    assert fake.launches[0].arguments[-1] == (0xDA7A).to_bytes(8, "little")
    assert xla.allocated == [(2560, 128)]
    assert xla.freed == [(2560, 0xDA7A)]


def test_cuda_failures_are_errors_of_xla(kernels: Any, fake: FakeCuda) -> None:
    xla, kernel = Xla(), gpu_kernel()
    kernels.offer(kernel)
    fake.stack[:] = [0x100]
    handler, frame = kernels.handler("cuda", (0, 3)), gpu_frame(xla, kernel)
    fake.fail["cuLaunchKernel"] = 700
    assert call(handler, frame) == 0xE1
    assert "launching k with grid (5, 2, 1): an illegal memory access" in xla.errors[0]
    fake.fail.clear()
    xla.fail_streams = True
    assert call(handler, frame) == 0xBAD
    fake.fail["cuCtxGetCurrent"] = 3
    assert call(handler, frame) == 0xE2


def test_buffers_at_other_addresses_run_another_kernel(kernels: Any, fake: FakeCuda) -> None:
    xla, kernel, made = Xla(), gpu_kernel(), list[Any]()

    def compile_unaligned() -> Any:
        made.append(gpu_kernel(shared=16))
        return made[-1]

    kernels.offer(kernel)
    fake.stack[:] = [0x100]
    handler = kernels.handler("cuda", (0, 3))
    assert call(handler, gpu_frame(xla, kernel, 0x1008)) == 0xE1
    assert "not divisible by 16" in xla.errors[0]
    kernels.offer(kernel, compile_unaligned)
    for operand, flags in ((0x1008, ALIGNED), (0x1000, ALIGNED), (0x1008, 0), (0x1004, ALIGNED)):
        assert call(handler, gpu_frame(xla, kernel, operand, flags)) is None, xla.errors
    assert [launch.shared for launch in fake.launches] == [16, 0, 0, 16]
    assert len(made) == 1


def test_a_kernel_that_does_not_load_is_an_error(kernels: Any, fake: FakeCuda) -> None:
    xla, kernel = Xla(), gpu_kernel()
    kernels.offer(kernel)
    fake.stack[:], fake.load_status = [0x100], 209
    assert call(kernels.handler("cuda", (0, 3)), gpu_frame(xla, kernel)) == 0xE1
    assert "The code is for another GPU" in xla.errors[0]
    assert kernels._loaded == {}
