"""Specialisation by a launch's arguments: specs, keys, alias classes, and invalid calls."""

import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import tilewright
import tilewright.language as tl
from tilewright.frontend.constant_key import constant_key
from tilewright.runtime.specialize import (
    Binder,
    Bound,
    Key,
    make_binder,
)
from tilewright.runtime.tensors import alias_classes, element_type, read


@dataclass
class Param:
    name: str
    is_constexpr: bool = False
    is_const: bool = False
    annotation_type: str = ""
    do_not_specialize: bool = False
    do_not_specialize_on_alignment: bool = False


def _binder(fn: Callable[..., Any], **settings: dict[str, Any]) -> Binder:
    signature = inspect.signature(fn)
    params = [Param(name, **settings.get(name, {})) for name in signature.parameters]
    return make_binder(fn.__name__, signature, params)


def _bound(result: tuple[Any, ...]) -> Bound:
    values, slots, key, options = result
    return Bound(values, slots, Key(*key), options)


def one(x) -> None: ...


def two(x, n: tl.constexpr) -> None: ...


def _spec(value: object, **settings: Any) -> Any:
    return _bound(_binder(one, x=settings)(value)).key.specs[0]


def _aligned(dtype: Any, count: int = 64) -> np.ndarray[Any, Any]:
    """An array whose address is divisible by 64."""
    size = np.dtype(dtype).itemsize
    raw = np.zeros(count * size + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + count * size].view(dtype)


# -- scalars --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "spec"),
    [
        (None, ("constexpr", None)),
        (True, ("u1", None)),
        (False, ("u1", None)),
        (1, ("constexpr", 1)),
        (0, ("i32", "D")),
        (2, ("i32", "")),
        (16, ("i32", "D")),
        (-16, ("i32", "D")),
        (-1, ("i32", "")),
        (2**31 - 1, ("i32", "")),
        (-(2**31), ("i32", "D")),
        (2**31, ("i64", "D")),
        (-(2**31) - 1, ("i64", "")),
        (2**63 - 1, ("i64", "")),
        (-(2**63), ("i64", "D")),
        (2**63, ("u64", "D")),
        (2**64 - 1, ("u64", "")),
        (1.0, ("fp32", None)),
        (math.nan, ("fp32", None)),
        (np.float64(2.5), ("fp32", None)),
        ((), ((), ())),
        ((1, 16, 2.0), (("constexpr", "i32", "fp32"), (1, "D", None))),
        (((3,), None), ((("i32",), "constexpr"), (("",), None))),
    ],
)
def test_spec_of_a_value(value: object, spec: tuple[Any, Any]) -> None:
    found = _spec(value)
    assert found == spec
    assert type(found[1]) is type(spec[1])


@pytest.mark.parametrize("value", [2**64, -(2**63) - 1])
def test_too_large_int_is_an_error(value: int) -> None:
    with pytest.raises(OverflowError, match="integer to be specialized too large to represent"):
        _spec(value)


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (np.int64(3), "int64"),
        (np.float32(3), "float32"),
        ("text", "str"),
        ([1], "list"),
        (1j, "complex"),
        (object(), "object"),
    ],
)
def test_other_types_are_rejected(value: object, name: str) -> None:
    with pytest.raises(TypeError, match=f"failed to specialize argument of type: {name}$"):
        _spec(value)


LAUNCHES = (1, 2, 4, 8, 16, 32)


@pytest.mark.parametrize(
    ("setting", "variants"),
    [
        ({}, 4),  # those for 8 are compiled only where code differs (test_alignment.py)
        ({"do_not_specialize": True}, 1),
        ({"do_not_specialize_on_alignment": True}, 2),
    ],
)
def test_variants_of_an_int(setting: dict[str, Any], variants: int) -> None:
    assert len({_spec(n, **setting) for n in LAUNCHES}) == variants


def test_do_not_specialize_keeps_the_range() -> None:
    assert _spec(1, do_not_specialize=True) == ("i32", "")
    assert _spec(2**40, do_not_specialize=True) == ("i64", "")
    assert _spec(2**40, do_not_specialize_on_alignment=True) == ("i64", "")


@pytest.mark.parametrize(
    ("annotation", "value", "spec"),
    [
        ("i32", 1, ("constexpr", 1)),
        ("i32", 16, ("i32", "D")),
        ("i32", 17, ("i32", "")),
        ("i64", 17, ("i64", "")),
        ("u8", 255, ("u8", "")),
        ("fp32", 1, ("fp32", None)),
        ("fp16", 2.5, ("fp16", None)),
        ("bf16", 16, ("bf16", None)),
        ("u1", 1, ("u1", None)),
        ("i32", True, ("i32", "")),
        ("i32", None, ("constexpr", None)),
        ("*fp16", _aligned(np.uint8), ("*fp16", "D")),
    ],
)
def test_annotation_forces_the_type(annotation: str, value: object, spec: object) -> None:
    assert _spec(value, annotation_type=annotation) == spec


@pytest.mark.parametrize(
    ("annotation", "value", "error"),
    [
        ("u8", 256, OverflowError),
        ("u32", -1, OverflowError),
        ("i32", 2.5, TypeError),
        ("i32", np.zeros(1), TypeError),
        ("*fp32", 3, TypeError),
        ("i32", (1, 2), TypeError),
    ],
)
def test_value_that_its_annotation_cannot_hold(
    annotation: str, value: object, error: type[Exception]
) -> None:
    with pytest.raises(error, match=r"argument 'x' is annotated as \*?\w+"):
        _spec(value, annotation_type=annotation)


# -- tensors --------------------------------------------------------------------------------------

ELEMENTS = [
    (np.bool_, torch.bool, "i1"),
    (np.int8, torch.int8, "i8"),
    (np.int16, torch.int16, "i16"),
    (np.int32, torch.int32, "i32"),
    (np.int64, torch.int64, "i64"),
    (np.uint8, torch.uint8, "u8"),
    (np.uint16, torch.uint16, "u16"),
    (np.uint32, torch.uint32, "u32"),
    (np.uint64, torch.uint64, "u64"),
    (np.float16, torch.float16, "fp16"),
    (np.float32, torch.float32, "fp32"),
    (np.float64, torch.float64, "fp64"),
    (ml_dtypes.bfloat16, torch.bfloat16, "bf16"),
    (ml_dtypes.float8_e5m2, torch.float8_e5m2, "fp8e5"),
    (ml_dtypes.float8_e4m3fn, torch.float8_e4m3fn, "fp8e4nv"),
    (ml_dtypes.float8_e5m2fnuz, torch.float8_e5m2fnuz, "fp8e5b16"),
    (ml_dtypes.float8_e4m3fnuz, torch.float8_e4m3fnuz, "fp8e4b8"),
]


@pytest.mark.parametrize(("numpy_type", "torch_type", "element"), ELEMENTS)
def test_element_types(numpy_type: Any, torch_type: Any, element: str) -> None:
    assert read(np.zeros(3, numpy_type))[1] == element
    assert read(torch.zeros(3, dtype=torch_type))[1] == element
    assert element_type(numpy_type) == element
    assert element_type(element) == element


@pytest.mark.parametrize("dtype", [np.complex64, ">f4", "S4", object])
def test_unsupported_element_types(dtype: Any) -> None:
    with pytest.raises(TypeError, match="no element type"):
        read(np.zeros(2, dtype))


def test_alignment_is_of_the_address() -> None:
    a = _aligned(np.float32)
    assert _spec(a) == ("*fp32", "D")
    assert _spec(a[4:]) == ("*fp32", "D")
    assert _spec(a[1:]) == ("*fp32", "")
    assert _spec(a, do_not_specialize=True) == ("*fp32", "")
    assert _spec(a, do_not_specialize_on_alignment=True) == ("*fp32", "")
    assert _spec(a, is_const=True) == ("*kfp32", "D")


def test_reading_returns_address_and_storage() -> None:
    a = _aligned(np.float32, 100)
    whole = a.base
    assert isinstance(whole, np.ndarray)
    low, high = whole.ctypes.data, whole.ctypes.data + whole.nbytes
    for view in (a, a[3:7], a[::-2], a.reshape(10, 10).T, a[:0]):
        assert read(view) == (view.ctypes.data, "fp32", "cpu", low, high, True)
    t = torch.zeros(100)
    low = t.untyped_storage().data_ptr()
    for part in (t, t[3:7], t.reshape(10, 10).T):
        assert read(part) == (part.data_ptr(), "fp32", "cpu", low, low + 400, True)


def test_storage_behind_foreign_memory_is_the_outermost_array() -> None:
    memory = bytearray(80)
    outer = np.frombuffer(memory, np.float32)
    gaps = np.lib.stride_tricks.as_strided(outer[2:], (3,), (8,))
    low = outer.ctypes.data
    assert read(gaps[::-1]) == (low + 8 + 16, "fp32", "cpu", low, low + 80, True)


def test_read_only_arrays_are_detected() -> None:
    def pair(x, y) -> None: ...

    a, b = np.zeros(4), np.zeros(4)
    bind = _binder(pair)
    assert _bound(bind(a, b)).key.read_only == ()
    b.flags.writeable = False
    assert _bound(bind(a, b)).key.read_only == (1,)
    assert _bound(bind((b, a), b)).key.read_only == (0, 2)


def test_zero_dimensional_array_is_a_tensor_and_subclass_too() -> None:
    class Mine(np.ndarray[Any, Any]): ...

    assert _spec(np.array(3, np.int32))[0] == "*i32"
    assert _spec(np.zeros(4, np.int32).view(Mine))[0] == "*i32"
    assert _spec(torch.tensor(3))[0] == "*i64"
    assert _spec(torch.nn.Parameter(torch.zeros(2)))[0] == "*fp32"


def test_duck_tensors() -> None:
    class Duck:
        dtype = "torch.bfloat16"

        def data_ptr(self) -> int:
            return 4096

    assert read(Duck()) == (4096, "bf16", "cpu", -1, -1, True)

    class Remote(Duck):
        device = SimpleNamespace(type="cuda")

    assert read(Remote())[2] == "cuda"
    base = torch.zeros(8, dtype=torch.uint8)
    wrapper = SimpleNamespace(dtype="fp8e4nv", base=base, data_ptr=base.data_ptr, device="cpu")
    low = base.data_ptr()
    assert read(wrapper) == (low, "fp8e4nv", "cpu", low, low + 8, True)
    # Another object of that class is no tensor.
    with pytest.raises(TypeError, match="SimpleNamespace"):
        _spec(SimpleNamespace())


def test_interfaces_and_dlpack() -> None:
    a = np.arange(6, dtype=np.int16)

    class Interface:
        __array_interface__ = a.__array_interface__

    class Pack:
        def __dlpack__(self, **options: Any) -> Any:
            return a.__dlpack__(**options)

        def __dlpack_device__(self) -> tuple[int, int]:
            return (1, 0)

    class Remote(Pack):
        def __dlpack_device__(self) -> tuple[int, int]:
            return (8, 0)

    class Cuda:
        __cuda_array_interface__ = {"data": (512, True), "typestr": "<f4", "shape": (1,)}  # noqa: RUF012

    address = a.ctypes.data
    assert read(Interface())[:3] == (address, "i16", "cpu")
    assert read(Pack()) == (address, "i16", "cpu", -1, -1, True)
    assert read(Cuda()) == (512, "fp32", "cuda", -1, -1, False)
    with pytest.raises(TypeError, match="DLPack"):
        read(Remote())


@pytest.mark.parametrize(
    ("address", "size", "setting", "key"),
    [
        (4096, 64, {}, "DWS"),
        (4096 + 16, 64, {}, "DS"),
        (4096 + 4, 64, {}, "S"),
        (4096, (1 << 31) - 1, {}, "DWS"),
        (4096, 1 << 31, {}, "DW"),
        (4096, None, {}, "DW"),
        (4096, 64, {"do_not_specialize_on_alignment": True}, "S"),
        (4096, 64, {"do_not_specialize": True}, ""),
    ],
)
def test_facts_of_tensors_off_the_cpu(
    address: int, size: int | None, setting: dict[str, Any], key: str
) -> None:
    """Divisibility by 32, and less than 2 GiB of memory, as far as a tensor says what it has."""
    storage = SimpleNamespace(data_ptr=lambda: 4096, nbytes=lambda: size)
    attributes: dict[str, Any] = {
        "dtype": "float32",
        "device": SimpleNamespace(type="npu"),
        "data_ptr": lambda self: address,
    }
    if size is not None:
        attributes["untyped_storage"] = lambda self: storage
    tensor = type("Remote", (), attributes)()
    assert _spec(tensor, **setting) == ("*fp32", key)
    if not setting:
        assert _spec((tensor,)) == (("*fp32",), (key,))  # an item of a tuple, bound in another way


def test_devices_are_in_the_key() -> None:
    def pair(x, y) -> None: ...

    class Remote:
        dtype = "float32"
        device = SimpleNamespace(type="cuda")

        def data_ptr(self) -> int:
            return 1024

    bind = _binder(pair)
    assert _bound(bind(1, 2)).key.devices == ""
    assert _bound(bind(np.zeros(1), torch.zeros(1))).key.devices == "cpu"
    assert _bound(bind(Remote(), 2)).key == ("cuda", (), (), (("*fp32", "DW"), ("i32", "")))
    # It does not report how large its memory is, so tensors of its kind may overlap.
    assert _bound(bind(Remote(), Remote())).key == ("cuda", (0, 0), (), (("*fp32", "DW"),) * 2)
    assert _bound(bind(Remote(), (np.zeros(1), Remote()))).key.devices == "cuda+cpu"


# -- aliases --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("extents", "classes"),
    [
        ([], ()),
        ([(0, 8)], ()),
        ([(-1, -1)], ()),
        ([(0, 8), (8, 16)], ()),
        ([(8, 16), (0, 8), (16, 17)], ()),
        ([(0, 8), (7, 16)], (0, 0)),
        ([(0, 8), (8, 16), (4, 6)], (0, 1, 0)),
        ([(8, 16), (0, 8), (4, 6)], (0, 1, 1)),
        ([(0, 100), (10, 20), (30, 40), (100, 101)], (0, 0, 0, 1)),
        ([(0, 5), (4, 9), (8, 12), (12, 13)], (0, 0, 0, 1)),
        ([(0, 8), (-1, -1), (20, 28)], (0, 0, 0)),
        ([(4, 4), (4, 4)], ()),
        ([(0, 8), (0, 8)], (0, 0)),
    ],
)
def test_alias_classes(extents: list[tuple[int, int]], classes: tuple[int, ...]) -> None:
    assert alias_classes(extents) == classes


_EXTENT = st.tuples(st.integers(0, 30), st.integers(1, 8)).map(lambda p: (p[0], p[0] + p[1]))


@given(st.lists(_EXTENT, max_size=7))
def test_alias_classes_are_the_connected_overlaps(extents: list[tuple[int, int]]) -> None:
    parent = list(range(len(extents)))
    for i, (low, high) in enumerate(extents):
        for j, (low2, high2) in enumerate(extents):
            if low < high2 and low2 < high:
                old, new = parent[j], parent[i]
                parent = [new if p == old else p for p in parent]
    numbers: dict[int, int] = {}
    expected = tuple(numbers.setdefault(p, len(numbers)) for p in parent)
    disjoint = len(set(parent)) == len(parent)
    assert alias_classes(extents) == (() if disjoint else expected)


def test_aliases_enter_the_key_by_storage() -> None:
    def three(x, y, z) -> None: ...

    bind = _binder(three)
    a, b, c = (np.zeros(32, np.float32) for _ in range(3))
    assert _bound(bind(a, b, c)).key.aliases == ()
    assert _bound(bind(a, b, a)).key.aliases == (0, 1, 0)
    assert _bound(bind(a[:4], a[8:], b)).key.aliases == (0, 0, 1)
    assert _bound(bind(a, (b, 3, a), c)).key.aliases == (0, 1, 0, 2)
    t = torch.from_numpy(a)
    assert _bound(bind(t, b, a)).key.aliases == (0, 1, 0)


# -- compile-time values --------------------------------------------------------------------------


class First(NamedTuple):
    a: int
    b: float


@tilewright.jit
def helper(x):
    return x + 1


@tilewright.jit
def other_helper(x):
    return x + 2


def test_compile_time_objects_are_constants() -> None:
    assert _spec(helper) == ("constexpr", ("function", helper.cache_key))
    assert _spec(tl.constexpr(5)) == ("constexpr", 5)
    assert _spec((tl.constexpr(5), 3)) == (("constexpr", "i32"), (5, ""))
    assert _spec(tl.float32) == ("constexpr", constant_key(tl.float32))


# Pairwise different for a kernel, though many are equal for Python.
DIFFERENT: list[Any] = [
    *(1, 1.0, True, 0, 0.0, -0.0, False, None, "1", "", (1,), (1.0,), (True,), [1], (), []),
    *((0.0,), (-0.0,), ((1,),), math.inf, {"a": 1}, {"a": 2}, helper, other_helper, [helper]),
    *(np.float64(0), np.float64(-0.0), np.float32(0), np.float32(-0.0), np.float16(0), np.int8(0)),
    *(tl.float32, tl.int32, "function", ("function", "x"), ml_dtypes.bfloat16(0), First(1, 2.0)),
]


def test_keys_of_constants_differ_where_code_does() -> None:
    keys = [_spec(value, is_constexpr=True) for value in DIFFERENT]
    assert len(set(keys)) == len(set(map(repr, keys))) == len(DIFFERENT)
    assert keys == [_spec(value, is_constexpr=True) for value in DIFFERENT]
    for nan in (math.nan, np.float32("nan"), np.float64("nan")):
        assert _spec(nan, is_constexpr=True) == _spec(type(nan)("nan"), is_constexpr=True)


def test_constexpr_has_the_key_of_its_value() -> None:
    for value in DIFFERENT:
        assert constant_key(tl.constexpr(value)) == constant_key(value)
        assert constant_key((tl.constexpr(value),)) == constant_key((value,))
    kernel = tilewright.jit(two)
    bind = kernel.binder
    x = np.zeros(4, np.float32)
    assert bind(x, 4)[2] == bind(x, tl.constexpr(4))[2] != bind(x, 4.0)[2]


class Second(NamedTuple):
    b: int
    a: float


def test_named_tuples_of_different_classes_differ() -> None:
    specs = [_spec(value) for value in (First(2, 3.0), Second(2, 3.0), (2, 3.0))]
    assert len(set(specs)) == 3
    assert specs[0] == _spec(First(4, 5.0))
    assert specs[0][0].a == "i32"


def test_descriptor() -> None:
    base = _aligned(ml_dtypes.bfloat16)
    descriptor = SimpleNamespace(base=base, shape=[8, 8], strides=[8, 1], block_shape=[4, 2])
    bound = _bound(_binder(one)(descriptor))
    assert bound.key.specs == (("tensordesc<bf16[4, 2]>", ("D", "", "")),)
    assert bound.slots == ((base.ctypes.data, 8, 8, 8, 1),)
    assert bound.key.devices == "cpu"
    descriptor.shape, descriptor.padding = [8, 16], "nan"
    bound = _bound(_binder(one)(descriptor))
    assert bound.key.specs == (("tensordesc<bf16[4, 2],padding=nan>", ("D", "", "D")),)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"strides": [12, 1]}, "strides must be multiples of 16 bytes"),
        ({"strides": [8, 8]}, "the last one 1"),
        ({"strides": [8]}, "the same length, not 2, 1 and 2"),
        ({"shape": [8, 1 << 31]}, "extents must fit into int32"),
        ({"shift": 1}, "base must be 16-byte aligned"),
    ],
)
def test_descriptor_of_an_unsupported_form(changes: dict[str, Any], message: str) -> None:
    base = _aligned(ml_dtypes.bfloat16)[changes.pop("shift", 0) :]
    fields: dict[str, Any] = {"shape": [8, 8], "strides": [8, 1], "block_shape": [4, 2], **changes}
    with pytest.raises(ValueError, match=message):
        _binder(one)(SimpleNamespace(base=base, **fields))


# -- calls ----------------------------------------------------------------------------------------


def kernel(x, n, /, y=2.5, *rest, BLOCK, type=None, **_: Any) -> None: ...


def _kernel_binder() -> Binder:
    signature = inspect.signature(kernel)
    kept = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
    signature = signature.replace(parameters=kept)
    constexpr = {"BLOCK", "type"}
    params = [Param(p.name, is_constexpr=p.name in constexpr) for p in kept]
    return make_binder("kernel", signature, params)


def test_binding_fills_defaults_and_separates_options() -> None:
    a = _aligned(np.float32)
    values, slots, key, options = _kernel_binder()(a, 32, num_warps=8, BLOCK=64)
    assert values == (a, 32, 2.5, (), 64, None)
    assert slots == (a.ctypes.data, 32, 2.5, (), 64, None)
    specs = (("*fp32", "D"), ("i32", "D"), ("fp32", None), ((), ()), 64, None)
    assert key == ("cpu", (), (), specs)
    assert options == {"num_warps": 8}
    more = _bound(_kernel_binder()(a, 32, 1.5, 7, a, BLOCK=64, type="sum"))
    assert more.values[3] == (7, a)
    assert more.slots[3] == (7, a.ctypes.data)
    assert more.key.aliases == (0, 0)
    assert more.key.specs[3] == (("i32", "*fp32"), ("", "D"))
    assert hash(more.key)


def test_default_objects_are_not_copied() -> None:
    default = np.zeros(4)

    def defaulted(x=default) -> None: ...

    assert _bound(_binder(defaulted)()).values[0] is default


@pytest.mark.parametrize(
    ("args", "kwargs", "message"),
    [
        ((), {"BLOCK": 1}, r"kernel\(\) missing 2 required positional arguments: 'x' and 'n'"),
        ((1, 2), {}, r"kernel\(\) missing 1 required keyword-only argument: 'BLOCK'"),
        ((1, 2, 3), {"y": 1, "BLOCK": 1}, r"kernel\(\) got multiple values for argument 'y'"),
    ],
)
def test_wrong_calls_raise_pythons_own_error(args: Any, kwargs: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        _kernel_binder()(*args, **kwargs)
    with pytest.raises(TypeError, match=message):
        kernel(*args, **kwargs)


def test_keyword_parameters_are_rejected() -> None:
    with pytest.raises(TypeError, match=r"cannot be launched, only called by kernels"):
        _binder(kernel)


def test_parameters_may_be_named_like_builtins() -> None:
    def odd(type, int, len, float) -> None: ...

    assert _bound(_binder(odd)(2, 3.0, np.zeros(2), True)).values[0] == 2


@given(st.integers(-(2**63), 2**64 - 1))
def test_an_int_has_the_same_spec_by_either_path(value: int) -> None:
    class Int(int): ...

    assert _spec(value) == _spec(Int(value))
