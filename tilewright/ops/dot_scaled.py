"""Matrix products of block-scaled floats: narrow floats with one scale for a group along K.

The formats and scales are those of the OCP Microscaling Formats (MX) specification 1.0; fp8e4nv
scales for groups of 16 are those of NVFP4.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tilewright.ir.core import Value
from tilewright.ir.define import Op, attr, operand, optional, require
from tilewright.ir.index_map import Along, Every, IndexMap, Part, Term, identity
from tilewright.ir.traits import PURE
from tilewright.ir.types import (
    BF16,
    FP8E4NV,
    FP8E5,
    FP16,
    FP32,
    U8,
    DType,
    Type,
    dtype_of,
    is_pointer,
    numpy_of,
    shape_of,
)
from tilewright.ops.numeric import Array, float_to_float


class ShortFloat(NamedTuple):
    """A float format of fewer than 8 bits, stored in the low bits of a byte, without infinities and
    NaN.

    Attributes:
        exponent, mantissa: the number of bits of each, below the sign bit.
        bias: the exponent bias.
    """

    exponent: int
    mantissa: int
    bias: int

    @property
    def bits(self) -> int:
        return 1 + self.exponent + self.mantissa


SHORT = {"e2m1": ShortFloat(2, 1, 1), "e2m3": ShortFloat(2, 3, 1), "e3m2": ShortFloat(3, 2, 3)}
PLAIN = {"e4m3": FP8E4NV, "e5m2": FP8E5, "bf16": BF16, "fp16": FP16}
PACKED = "e2m1"  # two in a byte, the even one low
GROUPS = (16, 32)
UNIT_EXPONENT = 127  # the scale byte of 1
NAN_EXPONENT = 255


def storage_type(format: str) -> DType:
    """The type of elements in this format; a byte holds two of the format `PACKED`."""
    return PLAIN.get(format, U8)


def _may_be_bytes(format: str) -> bool:
    """Whether elements may also be passed as bytes with their bits."""
    return storage_type(format).nbytes_in_memory == 1


def compute_type(*formats: str) -> DType:
    """The type to which scaled elements of these formats are rounded."""
    return FP16 if "fp16" in formats else BF16


class Side(NamedTuple):
    """An operand of a `DotScaled`.

    Attributes:
        name: "lhs" or "rhs".
        value, scale: its elements and scales.
        format: the format of the elements.
        packed_axis: the axis, counted from the end, along which a byte holds two elements; None if
            it holds one.
        k_axis: the axis of K, counted from the end.
    """

    name: str
    value: Value
    scale: Value | None
    format: str
    packed_axis: int | None
    k_axis: int

    @property
    def free_axis(self) -> int:
        """The axis M or N, counted from the end."""
        return -3 - self.k_axis

    @property
    def shape(self) -> tuple[int, ...]:
        """The extents of the unpacked operand."""
        extents = list(shape_of(self.value.type))
        if self.packed_axis is not None:
            extents[self.packed_axis] *= 2
        return tuple(extents)

    @property
    def group(self) -> int | None:
        """The number of elements along K per scale; None without scales."""
        if self.scale is None:
            return None
        return self.shape[self.k_axis] // shape_of(self.scale.type)[-1]


class DotScaled(Op, name="tile.dot_scaled", traits=PURE):
    """acc + (lhs * lhs_scale) @ (rhs * rhs_scale) over the last two axes, for block-scaled floats.

    `lhs` is [.., M, K] and `rhs` [.., K, N] in the formats "e2m1" (two in a byte, the even one
    low), "e2m3", "e3m2" (in the low bits of a byte), "e4m3", "e5m2" (as such, or as bytes), "bf16"
    or "fp16". Without
    `lhs_k_pack`, or `rhs_k_pack`, the two elements in a byte are adjacent along M, or N. The scales
    are [.., M, K / group] and [.., N, K / group] for groups of 16 or 32 elements: bytes v for
    2 ** (v - 127), of which 255 is NaN, or floats that are not negative. With `fast_math`, the
    result for a scale of 255 is unspecified.

    Scaled elements are rounded to bf16 (to fp16 if an operand has that format), or not at all.
    Products are summed in an unspecified order in fp32.

        %5 = tile.dot_scaled %0, %1, %2, %3, %4, lhs_format="e4m3", rhs_format="e2m1",
          lhs_k_pack=True, rhs_k_pack=True, fast_math=False
          : (4x32xfp8e4nv, 4x1xu8, 16x8xu8, 8x1xu8, 4x8xfp32) -> 4x8xfp32
    """

    lhs: Value = operand()
    lhs_scale: Value | None = optional()
    rhs: Value = operand()
    rhs_scale: Value | None = optional()
    acc: Value = operand()
    lhs_format: str = attr()
    rhs_format: str = attr()
    lhs_k_pack: bool = attr(True)
    rhs_k_pack: bool = attr(True)
    fast_math: bool = attr(False)

    @property
    def sides(self) -> tuple[Side, Side]:
        def packed(format: str, along_k: bool, k_axis: int) -> int | None:
            return None if format != PACKED else k_axis if along_k else -3 - k_axis

        left = packed(self.lhs_format, self.lhs_k_pack, -1)
        right = packed(self.rhs_format, self.rhs_k_pack, -2)
        return (
            Side("lhs", self.lhs, self.lhs_scale, self.lhs_format, left, -1),
            Side("rhs", self.rhs, self.rhs_scale, self.rhs_format, right, -2),
        )

    @property
    def k(self) -> int:
        """The number of elements along K."""
        return self.sides[0].shape[-1]

    def result_type(self) -> Type:
        return self.acc.type

    def verify(self) -> None:
        for format in (self.lhs_format, self.rhs_format):
            require(
                format in SHORT or format in PLAIN,
                self,
                "format",
                "there is no format {f!r}",
                f=format,
            )
        for side in self.sides:
            self._verify_side(side)
        require(
            not is_pointer(self.acc.type) and dtype_of(self.acc.type) == FP32,
            self,
            "element-type",
            "the accumulator is fp32, not {t}",
            t=self.acc.type,
        )
        (left, right), acc = self.sides, shape_of(self.acc.type)
        a, b = left.shape, right.shape
        require(
            len(a) == len(b) == len(acc)
            and a[:-2] == b[:-2] == acc[:-2]
            and a[-1] == b[-2]
            and acc[-2:] == (a[-2], b[-1]),
            self,
            "shape",
            "{a} @ {b}, unpacked, does not give {c}",
            a=a,
            b=b,
            c=acc,
        )
        groups = {side.group for side in self.sides} - {None}
        require(len(groups) <= 1, self, "scale", "groups of {g}", g=sorted(map(str, groups)))

    def _verify_side(self, side: Side) -> None:
        require(
            len(shape_of(side.value.type)) >= 2
            and not is_pointer(side.value.type)
            and (
                dtype_of(side.value.type) == storage_type(side.format)
                or (dtype_of(side.value.type) == U8 and _may_be_bytes(side.format))
            ),
            self,
            "element-type",
            "elements of format {f} are tiles of {to}, not {t}",
            f=side.format,
            to=storage_type(side.format),
            t=side.value.type,
        )
        if side.scale is None:
            return
        scale = shape_of(side.scale.type)
        require(
            not is_pointer(side.scale.type)
            and (dtype_of(side.scale.type) == U8 or dtype_of(side.scale.type).is_floating()),
            self,
            "element-type",
            "scales are u8 or floats, not {t}",
            t=side.scale.type,
        )
        extents, k = side.shape, side.shape[side.k_axis]
        require(
            scale[:-1] == (*extents[:-2], extents[side.free_axis])
            and any(scale[-1] * group == k for group in GROUPS),
            self,
            "scale",
            "scales {s} do not fit elements {v}, unpacked, in groups of 16 or 32",
            s=scale,
            v=extents,
        )

    def index_maps(self, result: int = 0) -> tuple[IndexMap | None, ...]:
        target = shape_of(self.acc.type)
        found: list[IndexMap | None] = []
        for side in self.sides:
            free: Term = Along(len(target) + side.free_axis)
            outer = tuple(Along(axis) for axis in range(len(target) - 2))
            extents = shape_of(side.value.type)
            place: Term = free
            if side.packed_axis == side.free_axis:
                place = Part((len(target) + side.free_axis,), 2, extents[side.free_axis])
            inner = (place, Every()) if side.k_axis == -1 else (Every(), place)
            found.append(IndexMap(extents, target, (*outer, *inner)))
            if side.scale is not None:
                found.append(IndexMap(shape_of(side.scale.type), target, (*outer, free, Every())))
        return (*found, identity(target))

    def evaluate(self, *args: Array) -> Array:
        operands = list(args)
        left, right = self.sides
        to = compute_type(left.format, right.format)
        with np.errstate(all="ignore"):
            lhs = _scaled(left, operands.pop(0), operands.pop(0) if left.scale else None, to)
            rhs = _scaled(right, operands.pop(0), operands.pop(0) if right.scale else None, to)
            total = np.matmul(lhs.astype(np.float64), rhs.astype(np.float64))
            return float_to_float(total + operands[0].astype(np.float64), FP32, "rtne")


# -- semantics ------------------------------------------------------------------------------------


def numbers_of(format: str) -> Array:
    """The number that each code of a short format represents, as fp32."""
    kind = SHORT[format]
    codes = np.arange(1 << kind.bits)
    exponent = codes >> kind.mantissa & ((1 << kind.exponent) - 1)
    mantissa = (codes & ((1 << kind.mantissa) - 1)).astype(np.float64) / (1 << kind.mantissa)
    magnitude = np.where(
        exponent > 0,
        np.ldexp(1 + mantissa, exponent - kind.bias),
        np.ldexp(mantissa, 1 - kind.bias),
    )
    return np.where(codes >> (kind.bits - 1), -magnitude, magnitude).astype(np.float32)


def _unpacked(side: Side, value: Array) -> Array:
    """The elements as numbers."""
    if side.format not in SHORT:
        return value.view(numpy_of(PLAIN[side.format])).astype(np.float32)
    codes = value
    if side.packed_axis is not None:
        axis = value.ndim + side.packed_axis
        codes = np.stack([value & 15, value >> 4], axis + 1).reshape(side.shape)
    mask = (1 << SHORT[side.format].bits) - 1
    return numbers_of(side.format)[codes & mask]


def scale_numbers(scale: Array) -> Array:
    """Scales as fp32."""
    if scale.dtype != np.uint8:
        return scale.astype(np.float32)
    exponents = scale.astype(np.int32)
    found = np.ldexp(np.float32(1), exponents - UNIT_EXPONENT).astype(np.float32)
    return np.where(exponents == NAN_EXPONENT, np.float32(np.nan), found)


def _scaled(side: Side, value: Array, scale: Array | None, to: DType) -> Array:
    """The scaled elements, rounded to `to`."""
    numbers = _unpacked(side, value)
    if scale is not None:
        spread = np.repeat(scale_numbers(scale), side.group or 1, axis=-1)
        numbers = numbers * (np.swapaxes(spread, -1, -2) if side.k_axis == -2 else spread)
    return float_to_float(numbers, to, "rtne")
