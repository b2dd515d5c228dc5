"""Tensor descriptors made on the host: what they check, and how kernels take them."""

from typing import Any

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tests.arrays import aligned
from tilewright.base import knobs
from tilewright.compiler import ASTSource
from tilewright.runtime import _allocation
from tilewright.tools.tensor_descriptor import TensorDescriptor


class Strided:
    """An array with the interface of torch's tensors."""

    def __init__(self, array: Any) -> None:
        self.array = array
        self.shape = array.shape
        self.dtype = array.dtype
        self.device = "cpu"

    def data_ptr(self) -> int:
        return self.array.ctypes.data

    def stride(self) -> tuple[int, ...]:
        return tuple(n // self.array.itemsize for n in self.array.strides)


def counted(shape: tuple[int, ...], dtype: Any = np.float32) -> Any:
    """0, 1, 2, … at a multiple of 64 bytes."""
    return aligned(np.arange(np.prod(shape), dtype=dtype).reshape(shape))


REJECTED: list[tuple[Any, str]] = [
    (lambda x: TensorDescriptor(x, [4, 8], [8], [4, 8]), "rank mismatch"),
    (lambda x: TensorDescriptor(x, [4, 8], [8, 1], [8]), "rank mismatch"),
    (lambda x: TensorDescriptor(x, [], [], []), "rank must not be zero"),
    (lambda x: TensorDescriptor(x, [1] * 6, [1] * 6, [1] * 6), "rank cannot be more than 5"),
    (lambda x: TensorDescriptor(x[0, 1:], [7], [1], [4]), "base must be 16-byte aligned"),
    (lambda x: TensorDescriptor(x, [4, 8], [6, 1], [4, 8]), "strides must be 16-byte aligned"),
    (
        lambda x: TensorDescriptor.from_tensor(x.astype(np.float16), [2, 8], "zero", True),
        "round_f32_to_tf32 is for fp32 tensors, not fp16",
    ),
    (lambda x: TensorDescriptor(x, [4, 4], [8, 2], [4, 4]), "Last dimension must be contiguous"),
    (lambda x: TensorDescriptor.from_tensor(x, [4, 8], "one"), "Illegal value for padding"),
    (lambda x: TensorDescriptor.from_tensor(x.view(np.int32), [4, 8], "nan"),
     "Padding option `nan` is only supported for floating point tensors"),
]  # fmt: skip


@pytest.mark.parametrize(("make", "message"), REJECTED)
def test_host_checks(make: Any, message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        make(counted((4, 8)))


def test_descriptor_of_a_tensor() -> None:
    x = counted((4, 8), np.float16)
    for base in (x, Strided(x)):
        made = TensorDescriptor.from_tensor(base, [2, 8], padding="nan")
        assert made.base is base
        assert (tuple(made.shape), tuple(made.strides)) == ((4, 8), (8, 1))
        assert (made.block_shape, made.padding) == ([2, 8], "nan")
    assert TensorDescriptor(x, [3, 8], [8, 1], [2, 8]).padding == "zero"
    with pytest.raises(TypeError, match="is not a tensor"):
        TensorDescriptor(3, [4], [1], [4])


@tw.jit
def shifted(source, both, COLUMN: tl.constexpr):
    row = tl.program_id(0) * source.block_shape[0]
    tile = source.load([row, COLUMN])
    both[1].store([row, 0], tile * both[0])


def test_kernels_take_descriptors() -> None:
    """Compiled and interpreted; with other extents, paddings and blocks: each a variant."""
    x = counted((10, 16))
    for block in ([4, 8], [2, 4]):
        for padding in ("zero", "nan"):
            y = counted((10, 8))
            source = TensorDescriptor.from_tensor(x, [1, 1], padding)
            source.block_shape = block
            target = TensorDescriptor(y, [9, 8], [8, 1], block)
            before = y.copy()
            for _ in range(2):
                shifted[(5,)](source, (2.0, target), 12)
            fill = np.nan if padding == "nan" else 0
            want = before
            rows = min(9, 5 * block[0])
            want[:rows, : block[1]] = fill
            want[:rows, :4] = x[:rows, 12:] * 2
            np.testing.assert_array_equal(y, want)
    assert len(shifted.device_caches["cpu"].kernel_cache) == 4


@tw.jit
def copied(source, result):
    tl.store(result + tl.arange(0, 16), source.load([0]))


@pytest.mark.parametrize("mode", ["compiled", "interpreted"])
def test_loads_round_to_tf32(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """To 10 mantissa bits, to nearest even; NaNs and infinities are unchanged."""
    monkeypatch.setattr(knobs.runtime, "interpret", mode == "interpreted")
    unit = 2.0**-11
    x = aligned(np.array(
        [1, 1 + unit, 1 + 3 * unit, 1 + unit + 2**-23, -1 - unit * 0.99, 2 - 2**-23, 3.4028235e38,
         -np.inf, np.inf, np.nan, 0.0, -0.0, 1e-45, 2.0**-137, 1e-39, 7.5], np.float32
    ))  # fmt: skip
    x.view(np.uint32)[9] = 0x7FFFFFFF  # rounding would carry into the sign
    wide = x.astype(np.float64)
    with np.errstate(all="ignore"):
        step = 2.0 ** (np.maximum(np.frexp(wide)[1] - 1, -126) - 10)
        want = (np.rint(wide / step) * step).astype(np.float32)
    result = np.zeros(16, np.float32)
    for _ in range(3):  # also by the native launch
        copied[(1,)](TensorDescriptor.from_tensor(x, [16], round_f32_to_tf32=True), result)
        np.testing.assert_array_equal(result, want)
        assert result.view(np.uint32)[9] == 0x7FFFFFFF
        assert (result[1], result[2]) == (1, 1 + 4 * unit)
        copied[(1,)](TensorDescriptor.from_tensor(x, [16]), result)
        np.testing.assert_array_equal(result.view(np.uint32), x.view(np.uint32))


def test_compiled_kernel_takes_descriptors() -> None:
    x, y = counted((4, 16)), counted((4, 16))
    types = {"source": "tensordesc<fp32[4, 16]>", "both": ("fp32", "tensordesc<fp32[4, 16]>")}
    for target in ("cpu", "interpreter"):
        y[...] = 0
        kernel = tw.compile(ASTSource(shifted, types, {"COLUMN": 0}), target=target)
        whole = [TensorDescriptor.from_tensor(a, [4, 16]) for a in (x, y)]
        kernel[(1, 1, 1)](whole[0], (3.0, whole[1]), 0)
        np.testing.assert_array_equal(y, x * 3)
    arguments = [(tuple(path), kind) for path, kind in kernel.metadata.arguments]
    assert arguments[:5] == [
        ((0, 0), "*fp32"), ((0, 1), "i32"), ((0, 2), "i32"), ((0, 3), "i64"), ((1, 0), "fp32"),
    ]  # fmt: skip


def test_read_only_base_is_not_stored_to() -> None:
    x = counted((4, 16))
    y = x.view()
    y.flags.writeable = False
    whole = [TensorDescriptor.from_tensor(a, [4, 16]) for a in (x, y)]
    with pytest.raises(ValueError, match=r"argument `both\.1` of shifted is a read-only array"):
        shifted[(1,)](whole[0], (3.0, whole[1]), 0)
    shifted[(1,)](whole[1], (3.0, whole[0]), 0)


def test_overlapping_descriptors_are_a_separate_variant() -> None:
    """What is read through one is written through the other."""
    x = counted((8, 16))
    want = x.copy()
    want[:, 8:] *= 2
    half = x[:, 8:]
    read = TensorDescriptor(half, [8, 8], [16, 1], [8, 8])
    shifted[(1,)](read, (2.0, TensorDescriptor(half, [8, 8], [16, 1], [8, 8])), 0)
    np.testing.assert_array_equal(x, want)


def test_allocator_is_local_to_the_context() -> None:
    with pytest.raises(RuntimeError, match="no allocator was set"):
        _allocation._allocator.get()(16, 16, None)

    def allocate(size: int, alignment: int, stream: int | None) -> Any:
        raise NotImplementedError

    token = _allocation._allocator.set(None)
    tw.set_allocator(allocate)
    assert _allocation._allocator.get() is allocate
    _allocation._allocator.reset(token)
