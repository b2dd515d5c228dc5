"""Parts of a launch: extents of a grid, packing arguments, targets without a launcher."""

import struct
from typing import Any

import numpy as np
import pytest

from tilewright.compiler.artifact import CompiledKernel
from tilewright.runtime.grid import extents_of
from tilewright.runtime.launch import load
from tilewright.runtime.launchers.packing import make_packer
from tilewright.runtime.slots import slot_of
from tilewright.targets.protocol import GPUTarget


@pytest.mark.parametrize(
    ("grid", "extents"),
    [
        ((5,), (5, 1, 1)),
        ((5, 6), (5, 6, 1)),
        ((5, 6, 7), (5, 6, 7)),
        ([5, 6], (5, 6, 1)),
        ((0,), (0, 1, 1)),
        ((np.int32(5), 6), (5, 6, 1)),
        ((True, 2), (1, 2, 1)),
    ],
)
def test_extents(grid: Any, extents: tuple[int, int, int]) -> None:
    found = extents_of(grid)
    assert found == extents
    assert all(type(n) is int for n in found)


def test_slots_begin_with_the_value_and_have_eight_bytes() -> None:
    types = ["*fp32", "i8", "i32", "i64", "u32", "u64", "u1", "fp16", "fp32", "fp64", "bf16"]
    values = (2**47, -3, -(2**31), -(2**63), 2**32 - 1, 2**64 - 1, True, 1.5, 0.1, 0.1, -2.0)
    packed = make_packer([((i,), t) for i, t in enumerate(types)])(values)
    assert len(packed) == 8 * len(types)
    expected = [
        struct.pack("=Q", 2**47),
        struct.pack("=q", -3),
        struct.pack("=q", -(2**31)),
        struct.pack("=q", -(2**63)),
        struct.pack("=Q", 2**32 - 1),
        struct.pack("=Q", 2**64 - 1),
        b"\1",
        np.float16(1.5).tobytes(),
        np.float32(0.1).tobytes(),
        np.float64(0.1).tobytes(),
        b"\x00\xc0",
    ]
    for i, content in enumerate(expected):
        assert packed[8 * i : 8 * i + len(content)] == content, types[i]


def test_packer_follows_paths_and_skips_the_rest() -> None:
    packed = make_packer([((1,), "i32"), ((2, 1, 0), "i32")])(("skip", 7, (0, (8, 9))))
    assert struct.unpack("=2q", packed) == (7, 8)
    assert make_packer([])(()) == b""


def test_numbers_beyond_their_type_are_infinite() -> None:
    pack = make_packer([((0,), "fp16"), ((1,), "fp32"), ((2,), "i32"), ((3,), "bf16")])
    packed = pack((1e6, -1e300, 5, 1e39))
    assert packed[:2] == np.float16(np.inf).tobytes()
    assert packed[8:12] == np.float32(-np.inf).tobytes()
    assert struct.unpack_from("=q", packed, 16) == (5,)
    assert packed[24:26] == b"\x80\x7f"


def test_slots_of_tensors_are_addresses() -> None:
    array = np.zeros(4)
    address = array.__array_interface__["data"][0]
    assert slot_of(array) == address
    assert slot_of((1, (array, None))) == (1, (address, None))


def test_kernel_for_another_device_is_only_compiled() -> None:
    metadata = {"name": "k", "hash": "0", "target": GPUTarget("tpu", "v1", 1)}
    text = r"k is compiled for 'tpu', .* those for cpu, cuda, hip, interp"
    with pytest.raises(RuntimeError, match=text):
        load(CompiledKernel({"binary": b""}, metadata))
