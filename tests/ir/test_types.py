"""Properties of types."""

import inspect
import pickle
from typing import Any

import pytest

from tilewright.ir import types as ir

POINTER = ir.Pointer(ir.FP32)
TILE = ir.Tile((4,), ir.FP32)
PREDICATES = sorted(
    name
    for name, _ in inspect.getmembers(ir.DType, inspect.isfunction)
    if name.startswith("is_") and name != "is_dtype"
)


def _holding(type: ir.Type) -> set[str]:
    return {name for name in PREDICATES if getattr(type, name)()}


def test_pointers_and_tiles_have_every_predicate() -> None:
    assert len(PREDICATES) == 29
    assert _holding(POINTER) == {"is_ptr"}
    assert _holding(ir.Pointer(ir.I1, const=True)) == {"is_ptr", "is_const"}
    assert _holding(TILE) == {"is_block"}


@pytest.mark.parametrize(
    ("type", "expected"),
    [
        (ir.VOID, {"is_void"}),
        (ir.I1, {"is_int1", "is_bool", "is_int", "is_int_unsigned"}),
        (ir.I32, {"is_int32", "is_int", "is_int_signed"}),
        (ir.U8, {"is_uint8", "is_int", "is_int_unsigned"}),
        (ir.FP8E4NV, {"is_fp8e4nv", "is_fp8", "is_floating"}),
        (ir.FP8E4B15, {"is_fp8e4b15", "is_fp8", "is_floating"}),
        (ir.BF16, {"is_bf16", "is_floating", "is_standard_floating"}),
    ],
    ids=lambda case: str(case) if isinstance(case, ir.DType) else "",
)
def test_scalars_have_every_predicate(type: ir.DType, expected: set[str]) -> None:
    assert _holding(type) == expected


# Bits, bytes, mantissa bits, bias, name, name in Python: spec 1.2.1.
FLOATS = [
    (ir.FP8E5, 8, 1, 2, 15, "fp8e5", "float8e5"),
    (ir.FP8E4NV, 8, 1, 3, 7, "fp8e4nv", "float8e4nv"),
    (ir.FP8E4B8, 8, 1, 3, 8, "fp8e4b8", "float8e4b8"),
    (ir.FP8E5B16, 8, 1, 2, 16, "fp8e5b16", "float8e5b16"),
    (ir.FP8E4B15, 8, 1, 3, 15, "fp8e4b15", "float8e4b15"),
    (ir.FP16, 16, 2, 10, 15, "fp16", "float16"),
    (ir.BF16, 16, 2, 7, 127, "bf16", "bfloat16"),
    (ir.FP32, 32, 4, 23, 127, "fp32", "float32"),
    (ir.FP64, 64, 8, 52, 1023, "fp64", "float64"),
]


@pytest.mark.parametrize("row", FLOATS, ids=lambda row: row[5])
def test_members_of_floats(row: tuple[Any, ...]) -> None:
    t, bits, size, mantissa, bias, name, python = row
    assert (t.primitive_bitwidth, t.itemsize, t.fp_mantissa_width) == (bits, size, mantissa)
    assert (t.exponent_bias, t.name, t.cache_key_part, t.mangle()) == (bias, name, name, name)
    assert (str(t), repr(t)) == (name, f"triton.language.{python}")
    assert t.scalar is t
    assert t.kind() is ir.DType.KIND.FLOATING
    assert pickle.loads(pickle.dumps(t)) is t


def test_members_of_integers() -> None:
    assert [t.int_bitwidth for t in (ir.I1, ir.I8, ir.U64)] == [1, 8, 64]
    assert ir.I8.int_signedness is ir.DType.SIGNEDNESS.SIGNED
    assert ir.I1.int_signedness is ir.DType.SIGNEDNESS.UNSIGNED
    assert (ir.I8.get_int_min_value(), ir.I8.get_int_max_value()) == (-128, 127)
    assert (ir.U16.get_int_min_value(), ir.U16.get_int_max_value()) == (0, 65535)
    kinds = [t.kind().value for t in (ir.I1, ir.I8, ir.FP16)]
    assert kinds == sorted(kinds)


def test_members_of_tiles() -> None:
    tile = ir.Tile((16, 32), ir.FP16)
    assert (tile.nbytes, tile.numel, tile.get_block_shapes()) == (1024, 512, (16, 32))
    assert tile.with_element_ty(ir.I8) == ir.Tile((16, 32), ir.I8)
    assert str(tile) == "<['16', '32'], fp16>"


def test_predicates_are_not_stored_in_instances() -> None:
    assert not hasattr(ir.FP32, "__dict__")
    for type in (POINTER, TILE):
        assert tuple(vars(type)) == type.__match_args__


def test_lists_of_names_hold_each_type_once() -> None:
    assert ir.DType.SINT_TYPES == ["int8", "int16", "int32", "int64"]
    assert ir.DType.UINT_TYPES == ["int1", "uint8", "uint16", "uint32", "uint64"]
    assert ir.DType.STANDARD_FP_TYPES == ["fp16", "bf16", "fp32", "fp64"]
    assert set(ir.DType.FP_TYPES) - set(ir.DType.STANDARD_FP_TYPES) == {
        t.name for t in ir.SCALARS if t.is_fp8()
    }
    assert ir.DType.OTHER_TYPES == ["void"]
    lists = (ir.DType.SINT_TYPES, ir.DType.UINT_TYPES, ir.DType.FP_TYPES, ir.DType.OTHER_TYPES)
    names = [name for names in lists for name in names]
    assert sorted(names) == sorted(ir.BY_NAME)
    assert all(ir.DType.is_dtype(name) for name in names)
