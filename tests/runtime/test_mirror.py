"""Interpreting kernels whose tensors are on a GPU: copies of its memory, and what checks find."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tests.runtime.fake_cuda import FakeCuda, Tensor
from tilewright.base import knobs
from tilewright.base.diagnostics import DeviceError, InterpreterError
from tilewright.runtime.mirror import Mirrors

X, OUT = 0x7F00_0000_0000, 0x7F00_0001_0000


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCuda]:
    fake = FakeCuda()
    fake.install(monkeypatch)
    yield fake
    assert fake.faults == []


def interpreted(function: Any) -> Any:
    with knobs.runtime.scope():
        knobs.runtime.interpret = True
        return tw.jit(function)


def double(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, 2 * tl.load(x + at, mask=at < n), mask=at < n)


def double_unmasked(x, out, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, 2 * tl.load(x + at))


def test_gpu_memory_is_mirrored_and_written_back(fake: FakeCuda) -> None:
    x, out = np.arange(16, dtype=np.float32), np.full(16, -1, np.float32)
    fake.memory = {X: x, OUT: out}
    interpreted(double)[(2,)](Tensor(X, "cuda:0"), Tensor(OUT, "cuda:0"), 13, BLOCK=8)
    assert out.tolist() == [*range(0, 26, 2), -1, -1, -1]
    assert x.tolist() == list(range(16))
    assert fake.calls.index("cuCtxSynchronize") < fake.calls.index("cuMemcpyDtoH_v2")
    assert fake.calls.count("cuMemcpyHtoD_v2") == 1  # x has not changed
    assert fake.stack == []


def test_tensors_that_overlap_share_a_copy(fake: FakeCuda) -> None:
    x = np.arange(24, dtype=np.float32)
    fake.memory = {X: x}
    ends = Tensor(X, "cuda:0", nbytes=64), Tensor(X + 32, "cuda:0", nbytes=64)
    interpreted(double)[(1,)](*ends, 16, BLOCK=16)
    assert x.tolist() == [*range(8), *range(0, 32, 2)]


def test_access_outside_names_the_line_the_program_and_the_argument(fake: FakeCuda) -> None:
    x, out = np.arange(16, dtype=np.float32), np.zeros(16, np.float32)
    fake.memory = {X: x, OUT: out}
    with pytest.raises(InterpreterError) as error:
        interpreted(double_unmasked)[(3,)](Tensor(X, "cuda:0"), Tensor(OUT, "cuda:0"), BLOCK=8)
    text = str(error.value)
    assert "test_mirror.py:" in text
    assert "in program (2, 0, 0) of the grid (3, 1, 1)" in text
    assert "just past the end of argument 0 `x` (64 bytes)" in text
    assert out.tolist() == list(range(0, 32, 2))  # what the programs before it stored


def test_memory_without_elements_is_not_copied(fake: FakeCuda) -> None:
    nothing = Tensor(0, "cuda:0", nbytes=0)
    interpreted(double)[(1,)](nothing, nothing, 0, BLOCK=8)
    assert not any(call.startswith("cuMemcpy") for call in fake.calls)


class Offered:
    """Offers memory of a GPU as CuPy does."""

    def __init__(self, address: int, shape: tuple[int, ...], strides: Any = None) -> None:
        self.__cuda_array_interface__ = {
            "data": (address, False), "typestr": "<f4", "shape": shape, "strides": strides,
            "version": 3,
        }  # fmt: skip


@pytest.mark.parametrize(
    ("address", "shape", "strides", "extent"),
    [
        (X, (4, 4), None, (X, X + 64)),
        (X + 60, (16,), (-4,), (X, X + 64)),
        (X, (2, 3), (32, 8), (X, X + 52)),
        (X, (), None, (X, X + 4)),
        (X, (0, 4), None, (X, X)),
    ],
)
def test_extent_of_an_interface(
    fake: FakeCuda, address: int, shape: Any, strides: Any, extent: tuple[int, int]
) -> None:
    fake.owners = {address: 0}
    fake.memory = {X: np.zeros(16, np.float32)}
    tensor = Offered(address, shape, strides)
    assert Mirrors([tensor]).buffer_of(tensor).extent == extent


def test_tensor_without_a_size_is_rejected(fake: FakeCuda) -> None:
    class Bare:
        dtype, device = "float32", "cuda:0"

        def data_ptr(self) -> int:
            return X

    with pytest.raises(TypeError, match="a Bare does not say how large its memory is"):
        Mirrors([Bare()])


def test_memory_that_cannot_be_read_is_an_error(fake: FakeCuda) -> None:
    with pytest.raises(DeviceError, match=f"reading 64 bytes at {X:#x} of cuda:0.*invalid"):
        Mirrors([Tensor(X, "cuda:0")])


def far_offset(x, row, stride, BLOCK: tl.constexpr):
    at = row * stride + tl.arange(0, BLOCK)
    tl.store(x + at, 0.0, mask=at == 1)


@pytest.mark.parametrize("device", ["cpu", "cuda:0"])
def test_offset_of_32_bits_that_overflows_is_found(fake: FakeCuda, device: str) -> None:
    x = np.zeros(16, np.float32)
    fake.memory = {X: x}
    tensor: Any = x if device == "cpu" else Tensor(X, device)
    kernel = interpreted(far_offset)
    kernel[(1,)](tensor, 46340, 46340, BLOCK=8, debug=True)
    kernel[(1,)](tensor, 46341, 46341, BLOCK=8, debug=True, sanitize_overflow=False)
    with pytest.raises(InterpreterError) as error:
        kernel[(1,)](tensor, 46341, 46341, BLOCK=8, debug=True)
    text = str(error.value)
    assert "test_mirror.py:" in text
    assert "overflow: it gives 2147488281, which i32 does not hold" in text
    assert ".to(tl.int64)" in text
