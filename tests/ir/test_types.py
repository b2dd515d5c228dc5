"""What types answer about themselves."""

import inspect

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


def test_pointers_and_tiles_answer_every_predicate() -> None:
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
        (ir.BF16, {"is_bf16", "is_floating", "is_standard_floating"}),
    ],
    ids=lambda case: str(case) if isinstance(case, ir.DType) else "",
)
def test_scalars_answer_every_predicate(type: ir.DType, expected: set[str]) -> None:
    assert _holding(type) == expected


def test_predicates_take_no_room_in_an_instance() -> None:
    for type in (ir.FP32, POINTER, TILE):
        assert not hasattr(type, "__dict__")


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
