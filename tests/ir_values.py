"""Random and special inputs for functions of tile IR, and whether two modules do the same."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np

from tilewright.base.diagnostics import InterpreterError
from tilewright.ir.core import Function, Module, Value
from tilewright.ir.interpret import Buffer, evaluate_function
from tilewright.ir.numbers import decode, encode
from tilewright.ir.types import (
    E4B15,
    DType,
    Pointer,
    Tile,
    Type,
    dtype_of,
    element_of,
    numpy_of,
    shape_of,
)

# Elements before and after those that an argument's pointer covers, for offsets of either sign.
MARGIN = 4096


def floats_in(values: Any, element: DType) -> np.ndarray:
    """Numbers as an array of the element type, which NumPy lacks for one of them."""
    values = np.asarray(values)
    with np.errstate(all="ignore"):
        if element.numpy == E4B15:
            return encode(values.astype(np.float16))
        return values.astype(element.numpy)


def numbers(array: np.ndarray) -> np.ndarray:
    """An array in a type that NumPy computes with."""
    return decode(array) if array.dtype == E4B15 else array


def special_values(element: DType) -> list[Any]:
    """What most often breaks an identity: zeros of both signs, infinities, NaN, the extremes."""
    if element.is_bool():
        return [False, True]
    if element.is_int():
        low, high = element.get_int_min_value(), element.get_int_max_value()
        return [0, 1, high, low, high - 1, low + 1, element.primitive_bitwidth]
    tiny = 2.0 ** (1 - element.exponent_bias - element.fp_mantissa_width)
    return [0.0, -0.0, 1.0, -1.0, float("inf"), float("-inf"), float("nan"), tiny, -tiny, 0.5]


def random_array(type: Type, rng: np.random.Generator, *, small: bool = False) -> np.ndarray:
    """An array of the type: a third special values, the rest random.

    With `small`, integers are from 0 to 7, as fits offsets and counts.
    """
    element, shape = dtype_of(type), shape_of(type)
    if element.is_bool():
        return np.asarray(rng.random(shape) < 0.5)
    if element.is_int() and small:
        return np.asarray(rng.integers(0, 8, shape), element.numpy)
    if element.is_int():
        low, high = element.get_int_min_value(), element.get_int_max_value()
        values = rng.integers(low, high, shape, element.numpy, endpoint=True)
        near = rng.integers(-9 if low < 0 else 0, 10, shape, np.int64).astype(element.numpy)
        values = np.where(rng.random(shape) < 0.5, values, near)
    else:
        normal = rng.standard_normal(shape) * 2.0 ** rng.integers(-8, 8, shape)
        values = floats_in(normal, element)
    specials = floats_in(special_values(element), element)
    picked = specials[rng.integers(0, len(specials), shape)]
    return np.asarray(np.where(rng.random(shape) < 0.35, picked, values), element.numpy)


def random_arguments(fn: Function, rng: np.random.Generator) -> list[Any]:
    """Values for each argument. A function with pointers receives small integers; a promised
    divisibility is kept."""
    small = any(isinstance(element_of(a.type), Pointer) for a in fn.args)
    found: list[Any] = []
    for arg, attrs in zip(fn.args, fn.arg_attrs, strict=True):
        if isinstance(arg.type, Pointer):
            found.append(_buffer(arg, rng))
        else:
            array = random_array(arg.type, rng, small=small)
            divisibility = attrs.get("divisibility", 1)
            found.append(array * np.asarray(divisibility, array.dtype) if divisibility > 1
                         else array)  # fmt: skip
    return found


def _buffer(arg: Value, rng: np.random.Generator) -> Buffer:
    assert isinstance(arg.type, Pointer)
    element = arg.type.element_ty
    assert isinstance(element, DType), "no pointers to pointers here"
    content = random_array(Tile((509,), element), rng)
    array = np.resize(content, 2 * MARGIN).astype(numpy_of(element))
    low = array.__array_interface__["data"][0]
    middle = low + MARGIN * array.dtype.itemsize
    return Buffer(middle, (low, low + array.nbytes), owner=array)


def _copied(args: list[Any]) -> list[Any]:
    """The arguments with memory of their own, at the same addresses as far as offsets go."""
    found: list[Any] = []
    for arg in args:
        if isinstance(arg, Buffer):
            array, extent = arg.owner.copy(), arg.extent
            assert extent is not None
            low = array.__array_interface__["data"][0]
            arg = Buffer(low + arg.address - extent[0], (low, low + array.nbytes), owner=array)
        found.append(arg)
    return found


def same_bits(a: np.ndarray, b: np.ndarray, *, close: bool = False) -> bool:
    """Whether two arrays are equal bit for bit, with all NaNs equal.

    With `close`, floats may differ by 1 part in 100.
    """
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    if a.dtype.kind in "biu" or a.dtype == E4B15:
        return bool(np.array_equal(a, b))
    with np.errstate(invalid="ignore"):  # signalling NaN
        a_nan, b_nan = a != a, b != b
    if close:
        x, y = a.astype(np.float64), b.astype(np.float64)
        with np.errstate(all="ignore"):
            return bool(np.allclose(x, y, rtol=1e-2, atol=1e-2, equal_nan=True))
    bits = f"u{a.dtype.itemsize}"
    raw_a, raw_b = (np.ascontiguousarray(np.atleast_1d(x)).view(bits) for x in (a, b))
    equal = (raw_a == raw_b).reshape(np.atleast_1d(a).shape)
    return bool(np.all(equal | np.atleast_1d(a_nan & b_nan)))


def same_meaning(before: Module, after: Module, *, tries: int = 6, close: bool = False) -> str:
    """What differs between the entries of two modules on random inputs; "" if nothing does.

    Inputs that the first module rejects (an access out of bounds, say) are skipped; one at
    least must be accepted.
    """
    rng = np.random.default_rng(zlib.crc32(before.entry.name.encode()))
    rejected = ""
    accepted = 0
    for _ in range(tries):
        args = random_arguments(before.entry, rng)
        mine, theirs = _copied(args), _copied(args)
        try:
            expected = evaluate_function(before.entry, mine, module=before)
        except InterpreterError as error:
            rejected = str(error)
            continue
        accepted += 1
        actual = evaluate_function(after.entry, theirs, module=after)
        for i, (x, y) in enumerate(zip(expected, actual, strict=True)):
            if not _same_result(before.entry.result_types[i], x, y, mine, theirs, close):
                return f"result {i} was {x}, is {y}, for the arguments {args}"
        for i, (x, y) in enumerate(zip(mine, theirs, strict=True)):
            if isinstance(x, Buffer) and not same_bits(x.owner, y.owner, close=close):
                return f"what argument {i} points to differs, for the arguments {args}"
    return "" if accepted else f"no input could be evaluated: {rejected}"


def _same_result(
    type: Type, x: Any, y: Any, mine: list[Any], theirs: list[Any], close: bool
) -> bool:
    if not isinstance(element_of(type), Pointer):
        return same_bits(np.asarray(x), np.asarray(y), close=close)
    # The two ran on copies of the memory: an address counts by its distance from an argument.
    distances = [
        int(b.address) - int(a.address)
        for a, b in zip(mine, theirs, strict=True)
        if isinstance(a, Buffer)
    ]
    moved = [np.asarray(x) + np.array(d % 2**64, np.uint64) for d in distances] or [np.asarray(x)]
    return any(np.array_equal(m, np.asarray(y)) for m in moved)
