"""Tiles as NumPy arrays, with Triton's types: element types, promotion, conversions, operators.

An interpretation of the language that shares no code with tilewright. An operator of two tiles
promotes them as Triton documents it; a Python number takes the type of the tile if its kind allows
it. Arithmetic is total, as in `docs/decisions/0003-total-arithmetic.md`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class DType:
    """An element type.

    Attributes:
        kind: 0 for booleans, 1 for integers, 2 for floats.
        mantissa: the stored bits of a float's mantissa.
        least: the exponent of a float's smallest normal number.
    """

    name: str
    numpy: np.dtype[Any]
    kind: int
    bits: int
    signed: bool = True
    mantissa: int = 0
    least: int = 0

    @property
    def is_float(self) -> bool:
        return self.kind == 2


def _integer(name: str) -> DType:
    dtype = np.dtype(name)
    return DType(name, dtype, 1, dtype.itemsize * 8, dtype.kind == "i")


int1 = DType("int1", np.dtype(np.bool_), 0, 1, signed=False)
int8, int16, int32, int64 = map(_integer, ("int8", "int16", "int32", "int64"))
uint8, uint16, uint32, uint64 = map(_integer, ("uint8", "uint16", "uint32", "uint64"))
float8e5 = DType("float8e5", np.dtype(ml_dtypes.float8_e5m2), 2, 8, True, 2, -14)
float8e4nv = DType("float8e4nv", np.dtype(ml_dtypes.float8_e4m3fn), 2, 8, True, 3, -6)
float16 = DType("float16", np.dtype(np.float16), 2, 16, True, 10, -14)
bfloat16 = DType("bfloat16", np.dtype(ml_dtypes.bfloat16), 2, 16, True, 7, -126)
float32 = DType("float32", np.dtype(np.float32), 2, 32, True, 23, -126)
float64 = DType("float64", np.dtype(np.float64), 2, 64, True, 52, -1022)

DTYPES = {
    t.name: t
    for t in (
        int1, int8, int16, int32, int64, uint8, uint16, uint32, uint64,
        float8e5, float8e4nv, float16, bfloat16, float32, float64,
    )
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Tile:
    """Values of a type: an array of them, which has no axes if it is one."""

    data: Array
    dtype: DType

    @property
    def shape(self) -> tuple[int, ...]:
        return self.data.shape

    @property
    def T(self) -> Tile:
        return Tile(self.data.T, self.dtype)

    def __getitem__(self, index: Any) -> Tile:
        return Tile(self.data[index], self.dtype)

    def __bool__(self) -> bool:
        return bool(self.data)

    def __index__(self) -> int:
        return int(self.data)

    def to(self, dtype: DType, bitcast: bool = False) -> Tile:
        return _bitcast(self, dtype) if bitcast else convert(self, dtype)

    def __add__(self, other: Any) -> Any:
        return add(self, other)

    def __radd__(self, other: Any) -> Any:
        return add(other, self)

    def __sub__(self, other: Any) -> Any:
        return arithmetic(np.subtract, self, other)

    def __rsub__(self, other: Any) -> Any:
        return arithmetic(np.subtract, other, self)

    def __mul__(self, other: Any) -> Any:
        return arithmetic(np.multiply, self, other)

    def __rmul__(self, other: Any) -> Any:
        return arithmetic(np.multiply, other, self)

    def __and__(self, other: Any) -> Any:
        return arithmetic(np.bitwise_and, self, other)

    def __or__(self, other: Any) -> Any:
        return arithmetic(np.bitwise_or, self, other)

    def __xor__(self, other: Any) -> Any:
        return arithmetic(np.bitwise_xor, self, other)

    def __floordiv__(self, other: Any) -> Any:
        return arithmetic(_quotient, self, other, dividing=True)

    def __mod__(self, other: Any) -> Any:
        return arithmetic(_remainder, self, other, dividing=True)

    def __lshift__(self, other: Any) -> Any:
        return arithmetic(_shift(np.left_shift), self, other)

    def __rshift__(self, other: Any) -> Any:
        return arithmetic(_shift(np.right_shift), self, other)

    def __neg__(self) -> Tile:
        return Tile(np.negative(self.data), self.dtype)

    def __invert__(self) -> Tile:
        return Tile(np.invert(self.data), self.dtype)

    def __lt__(self, other: Any) -> Tile:
        return compare(np.less, self, other)

    def __le__(self, other: Any) -> Tile:
        return compare(np.less_equal, self, other)

    def __gt__(self, other: Any) -> Tile:
        return compare(np.greater, self, other)

    def __ge__(self, other: Any) -> Tile:
        return compare(np.greater_equal, self, other)

    def __eq__(self, other: object) -> Any:
        return compare(np.equal, self, other)

    def __ne__(self, other: object) -> Any:
        return compare(np.not_equal, self, other)


@dataclass(frozen=True, eq=False)
class Pointer:
    """Addresses of elements of an array: their indices."""

    memory: Array
    dtype: DType
    offsets: Array

    def __add__(self, other: Any) -> Pointer:
        moved = self.offsets + np.asarray(strong(other).data, np.int64)
        return Pointer(self.memory, self.dtype, moved)


# -- promotion ------------------------------------------------------------------------------------


def strong(value: Any) -> Any:
    """A Python number as a value of the type that it has on its own; other values as they are."""
    if isinstance(value, bool | np.bool_):
        return Tile(np.asarray(value, np.bool_), int1)
    if isinstance(value, int):
        ranges = (int32, uint32, int64, uint64)
        dtype = next(t for t in ranges if np.iinfo(t.numpy).min <= value <= np.iinfo(t.numpy).max)
        return Tile(np.asarray(value, dtype.numpy), dtype)
    if isinstance(value, float):
        return Tile(np.asarray(value, np.float32), float32)
    return value


def typed(value: Any, dtype: DType) -> Tile:
    """A value of the type; a Python number is rounded once."""
    if isinstance(value, float):
        value = Tile(np.asarray(value), float64)
    return convert(strong(value), dtype)


def common(a: DType, b: DType, dividing: bool = False) -> DType:
    """The type to which two tiles are promoted."""
    if float64 in (a, b):
        return float64
    if dividing and (a.is_float or b.is_float):
        return float32
    if float32 in (a, b):
        return float32
    if float16 in (a, b):
        return float16
    if bfloat16 in (a, b):
        return bfloat16 if a == b else float32
    assert not a.is_float
    assert not b.is_float
    if a.signed == b.signed:
        return a if a.bits > b.bits else b
    unsigned, signed = (b, a) if a.signed else (a, b)
    return unsigned if unsigned.bits >= signed.bits else signed


def promoted(a: Any, b: Any, dividing: bool = False) -> tuple[Tile, Tile]:
    """Both operands in one type, with a Python number in that of the tile if its kind allows."""
    x, y = strong(a), strong(b)
    if not isinstance(a, Tile) and isinstance(b, Tile) and x.dtype.kind <= y.dtype.kind:
        a, b = typed(a, y.dtype), y
    elif not isinstance(b, Tile) and isinstance(a, Tile) and y.dtype.kind <= x.dtype.kind:
        a, b = x, typed(b, x.dtype)
    else:
        a, b = x, y
    dtype = common(a.dtype, b.dtype, dividing)
    return convert(a, dtype), convert(b, dtype)


def arithmetic(function: Callable[..., Array], a: Any, b: Any, dividing: bool = False) -> Tile:
    x, y = promoted(a, b, dividing)
    return Tile(np.asarray(function(x.data, y.data), x.dtype.numpy), x.dtype)


def add(a: Any, b: Any) -> Any:
    return b + a if isinstance(b, Pointer) else arithmetic(np.add, a, b)


def compare(function: Callable[..., Array], a: Any, b: Any) -> Tile:
    """A comparison, in which a Python number has the type that it has on its own."""
    x, y = promoted(strong(a), strong(b))
    return Tile(np.asarray(function(x.data, y.data)), int1)


def _quotient(x: Array, y: Array) -> Array:
    """Rounded towards zero; 0 if the divisor is."""
    divisor = np.where(y == 0, np.ones_like(y), y)
    floor = x // divisor
    rest = x - floor * divisor
    floor = floor + ((rest != 0) & ((x < 0) != (divisor < 0))).astype(x.dtype)
    return np.where(y == 0, np.zeros_like(x), floor)


def _remainder(x: Array, y: Array) -> Array:
    """With the sign of the dividend; of integers 0 if the divisor is."""
    if x.dtype.kind not in "iu":
        return np.fmod(x, y)
    return np.where(y == 0, np.zeros_like(x), x - _quotient(x, y) * y)


def _shift(function: Callable[..., Array]) -> Callable[[Array, Array], Array]:
    """A shift that moves all bits out if its count is not less than the width."""

    def shifted(x: Array, count: Array) -> Array:
        width = x.dtype.itemsize * 8
        unsigned = count.astype(f"u{x.dtype.itemsize}")
        large = unsigned >= width
        within = np.where(large, 0, unsigned).astype(x.dtype)
        gone = np.zeros_like(x)
        if function is np.right_shift and x.dtype.kind == "i":
            gone = np.where(x < 0, -1, 0).astype(x.dtype)
        return np.where(large, gone, function(x, within))

    return shifted


# -- conversions ----------------------------------------------------------------------------------


def convert(x: Tile, dtype: DType) -> Tile:
    """The values in another type: integers wrap; floats are rounded to nearest even; a float
    becomes an integer without its fraction, or the closest that there is, and NaN 0."""
    if x.dtype == dtype:
        return x
    if dtype is int1:
        return Tile(np.asarray(x.data != 0), int1)
    if dtype.is_float:
        return Tile(_rounded(x.data, dtype), dtype)
    if x.dtype.is_float:
        return Tile(_truncated(x.data, dtype), dtype)
    return Tile(x.data.astype(dtype.numpy), dtype)


def _truncated(x: Array, dtype: DType) -> Array:
    wide = np.trunc(x.astype(np.float64))
    info = np.iinfo(dtype.numpy)
    low, high = wide <= float(info.min), wide >= float(info.max)
    inside = np.where(low | high | np.isnan(wide), 0.0, wide).astype(dtype.numpy)
    limits = np.where(low, np.array(info.min, dtype.numpy), np.array(info.max, dtype.numpy))
    return np.where(low | high, limits, inside)


def _rounded(x: Array, dtype: DType) -> Array:
    """Rounded once, but integers that become bfloat16 are fp32 in between, as in Triton."""
    if dtype.bits >= 32:
        return x.astype(dtype.numpy)
    if dtype is bfloat16 and x.dtype.kind in "iu":
        x = x.astype(np.float32)
    wide = x.astype(np.float64)
    _, exponent = np.frexp(wide)
    unit = np.ldexp(1.0, np.maximum(exponent - 1, dtype.least) - dtype.mantissa)
    finite = np.isfinite(wide)
    near = np.where(finite, np.rint(np.where(finite, wide, 0.0) / unit) * unit, wide)
    return np.copysign(near, wide).astype(np.float32).astype(dtype.numpy)


def _bitcast(x: Tile, dtype: DType) -> Tile:
    assert x.dtype.bits == dtype.bits
    return Tile(np.ascontiguousarray(x.data).view(dtype.numpy).reshape(x.shape), dtype)
