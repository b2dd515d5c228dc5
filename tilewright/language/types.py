"""The types of the language: public names of the IR's scalar, pointer and tile types, and the types
of compile-time values, tuples, block pointers and tensor descriptors."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from tilewright.base.codes import coded
from tilewright.base.spelling import similar
from tilewright.ir.types import (
    BF16,
    BY_NAME,
    BY_SHORT,
    FP8E4B8,
    FP8E4B15,
    FP8E4NV,
    FP8E5,
    FP8E5B16,
    FP16,
    FP32,
    FP64,
    I1,
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
    VOID,
    DType,
    Pointer,
    Scalar,
    Tile,
    Type,
    int_type,
)

__all__ = [
    "TRITON_MAX_TENSOR_NUMEL", "bfloat16", "block_type", "constexpr_type", "dtype", "float8e4b8",
    "float8e4b15", "float8e4nv", "float8e5", "float8e5b16", "float16", "float32", "float64", "int1",
    "int8", "int16", "int32", "int64", "pi32_t", "pointer_type", "str_to_ty",
    "tensor_descriptor_type", "tuple_type", "uint8", "uint16", "uint32", "uint64", "void",
]  # fmt: skip

TRITON_MAX_TENSOR_NUMEL = 1048576


class _AnyType(type):
    """The metaclass of `dtype`, for compatibility with Triton: all element, pointer and tile types
    are instances of `dtype`, it has the attributes of element types, and a call with a name
    returns the element type.
    """

    def __call__(cls, name: str) -> DType:
        if name not in BY_NAME:
            raise ValueError(f"{name!r} is not an element type; they are {', '.join(BY_NAME)}")
        return BY_NAME[name]

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, DType | Pointer | Tile)

    def __getattr__(cls, name: str) -> Any:
        return getattr(DType, name)


class dtype(metaclass=_AnyType):
    """An element type, or the type of a pointer or tile: ``isinstance(x.dtype, tl.dtype)``.

    ``tl.dtype("uint8")`` is `tl.uint8`.
    """


void = VOID
int1, int8, int16, int32, int64 = I1, I8, I16, I32, I64
uint8, uint16, uint32, uint64 = U8, U16, U32, U64
float8e5, float8e5b16 = FP8E5, FP8E5B16
float8e4nv, float8e4b8, float8e4b15 = FP8E4NV, FP8E4B8, FP8E4B15
float16, bfloat16, float32, float64 = FP16, BF16, FP32, FP64
pi32_t = Pointer(I32)

# Names of element types in array libraries -> short names in signatures.
CANONICAL_NAMES = {
    "bool": "u1",
    "int1": "u1",
    "i1": "u1",
    "B": "u1",
    "float8_e4m3fn": "fp8e4nv",
    "float8_e4m3fnuz": "fp8e4b8",
    "float8_e5m2": "fp8e5",
    "float8_e5m2fnuz": "fp8e5b16",
    "float8e4nv": "fp8e4nv",
    "float8e4b8": "fp8e4b8",
    "float8e4b15": "fp8e4b15",
    "float8e5": "fp8e5",
    "float8e5b16": "fp8e5b16",
    "half": "fp16",
    "float16": "fp16",
    "bfloat16": "bf16",
    "float": "fp32",
    "float32": "fp32",
    "double": "fp64",
    "float64": "fp64",
    **{f"int{n}": f"i{n}" for n in (8, 16, 32, 64)},
    **{f"uint{n}": f"u{n}" for n in (8, 16, 32, 64)},
}


class _PointerTypeMeta(type):
    def __call__(
        cls, element_ty: Any, address_space: str | int = "global", const: bool = False
    ) -> Any:
        element = getattr(element_ty, "value", element_ty)  # unwrap a constexpr
        if not isinstance(element, DType | Pointer):
            raise TypeError(f"element_ty has type `{type(element).__name__}`; expected `dtype`.")
        space = "global" if address_space == 1 else str(address_space)
        return Pointer(element, bool(getattr(const, "value", const)), space)

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, Pointer)


class pointer_type(metaclass=_PointerTypeMeta):
    """``pointer_type(element_ty, address_space="global", const=False)``: the type of a pointer.

    Stores through a `const` pointer are errors. Instances are the IR's `Pointer`.
    """


class _BlockTypeMeta(type):
    def __call__(cls, element_ty: Scalar, shape: Sequence[Any]) -> Any:
        sizes = tuple(getattr(d, "value", d) for d in shape)
        if not sizes:
            raise TypeError("0d block_type is forbidden")
        validate_block_shape(sizes)
        return Tile(sizes, element_ty)

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, Tile)


class block_type(metaclass=_BlockTypeMeta):
    """``block_type(element_ty, shape)``: the type of a tile. Instances are the IR's `Tile`."""


def validate_block_shape(shape: Sequence[Any], powers_of_two: bool = False) -> int:
    """Validate a tile's shape, and return its number of elements, at most 2^20.

    Args:
        shape: the extents.
        powers_of_two: whether every extent must be a power of two, as in Triton.

    Raises:
        TypeError: an extent is not an int.
        ValueError: an extent is 0 or less, or not a power of two if required; or there are too many
            elements.
    """
    numel = 1
    for i, d in enumerate(shape):
        if not isinstance(d, int):
            raise coded(
                "needs-constant",
                TypeError(
                    f"Shape element {i} must have type `constexpr[int]`, got `{_type_text(d)}`"
                ),
                value=d,
            )
        if powers_of_two and (d <= 0 or d & (d - 1)):
            error = ValueError(f"Shape element {i} must be a power of 2")
            raise coded("power-of-two" if d > 0 else "extent", error, shape=shape)
        if d <= 0:
            error = ValueError(f"Shape element {i} must be 1 or more, not {d}")
            raise coded("extent", error, shape=shape)
        numel *= d
    if numel > TRITON_MAX_TENSOR_NUMEL:
        raise coded(
            "too-many-elements",
            ValueError(
                f"numel ({numel}) exceeds triton maximum tensor numel ({TRITON_MAX_TENSOR_NUMEL})"
            ),
        )
    return numel


def _type_text(value: Any) -> str:
    return str(getattr(value, "type", type(value).__name__))


class constexpr_type:
    """The type of a compile-time value. It contains the value, so that equal types imply equal
    values."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, constexpr_type) or type(self.value) is not type(other.value):
            return False
        return self.value is other.value or bool(self.value == other.value)

    def __hash__(self) -> int:
        return hash((type(self.value), repr(self.value)))

    def __str__(self) -> str:
        return f"constexpr_type[{self.value}]"

    __repr__ = __str__

    def mangle(self) -> str:
        return f"c{self.value}"


class composite_type:
    """Base class of the types of composite values, such as tuples.

    Besides equality and hashing, a subclass must define `with_types`, and register a constructor of
    its values (`values.assembles`). Its values can then be loop-carried, merged after an ``if``,
    passed to functions and returned.

    Attributes:
        types: the types of the parts, in order. Compile-time parts have a `constexpr_type`.
        decays: whether compile-time numbers that differ between merged values become tensors.
    """

    __slots__ = ("types",)
    decays = True
    types: tuple[Any, ...]

    def with_types(self, types: Sequence[Any]) -> Any:
        """This type with the types of the parts replaced, by the same number of types; or with
        none, as a key for types that differ in these only."""
        raise NotImplementedError

    def like(self, other: Any) -> bool:
        """Whether the other type has the same number of parts, and differs at most in their
        types."""
        return (
            type(self) is type(other)
            and len(self.types) == len(other.types)
            and self.with_types(other.types) == other
        )


class tuple_type(composite_type):
    """The type of a tuple: the types of its elements, and the field names of a named tuple."""

    __slots__ = ("fields", "make")

    def __init__(
        self, types: Sequence[Any], fields: Sequence[str] | None = None, make: Any = None
    ) -> None:
        self.types = tuple(types)
        self.fields = tuple(fields) if fields else None
        self.make = make  # the NamedTuple class, if any

    def with_types(self, types: Sequence[Any]) -> tuple_type:
        return tuple_type(types, self.fields, self.make)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, tuple_type)
            and self.types == other.types
            and self.fields == other.fields
        )

    def __hash__(self) -> int:
        return hash((self.types, self.fields))

    def __str__(self) -> str:
        if self.fields:
            return f"[{','.join(f'{n}:{t}' for n, t in zip(self.fields, self.types, strict=True))}]"
        return f"[{','.join(str(t) for t in self.types)}]"

    __repr__ = __str__

    def __iter__(self) -> Any:
        return iter(self.types)

    def __getitem__(self, index: int) -> Any:
        return self.types[index]

    def mangle(self) -> str:
        return "T" + "_".join(t.mangle() for t in self.types) + "T"


class block_pointer_type(composite_type):
    """The type of a block pointer, which points to a block of an array in memory.

    The parts are the base, a scalar pointer, and for each axis of the array the extent (i64), the
    stride in elements (i64), and the index of the block's first element (i32).

    Attributes:
        element_ty: the tile type of the block.
        order: the axes, fastest in memory first.
    """

    __slots__ = ("element_ty", "order")

    def __init__(self, base: Pointer, block_shape: Sequence[int], order: Sequence[int]) -> None:
        rank = len(block_shape)
        self.types = (base, *[int64] * (2 * rank), *[int32] * rank)
        self.element_ty = Tile(tuple(block_shape), base.element_ty)
        self.order = tuple(order)

    @property
    def rank(self) -> int:
        return self.element_ty.rank

    @property
    def scalar(self) -> block_pointer_type:
        return self

    def is_ptr(self) -> bool:
        return True

    def is_block(self) -> bool:
        return False

    def is_const(self) -> bool:
        return self.types[0].const

    def with_types(self, types: Sequence[Any]) -> block_pointer_type:
        """Only the type of the base may differ."""
        base = types[0] if types else Pointer(self.element_ty.element)
        return block_pointer_type(base, self.element_ty.shape, self.order)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, block_pointer_type)
            and self.types == other.types
            and self.element_ty == other.element_ty
            and self.order == other.order
        )

    def __hash__(self) -> int:
        return hash((self.types, self.element_ty, self.order))

    def __str__(self) -> str:
        return f"{'const_' if self.is_const() else ''}pointer<{self.element_ty}>"

    __repr__ = __str__

    def mangle(self) -> str:
        return f"P{self.element_ty.mangle()}"


class DescriptorLeaf(NamedTuple):
    """A run-time part of a descriptor that is passed to a kernel.

    Attributes:
        place: its index in (base, *shape, *strides).
        name: such as "shape.0"; "" for the base.
        type: its element type.
        divisibility: its divisor according to the rules for descriptors; for the base, in bytes.
    """

    place: int
    name: str
    type: DType | Pointer
    divisibility: int = 1


DESCRIPTOR_ALIGNMENT = 16  # the alignment of a descriptor's base and strides, in bytes


class tensor_descriptor_type(composite_type):
    """The type of a tensor descriptor: an array in memory that is accessed by blocks.

    The parts are the base, a scalar pointer, and a tuple each of the extents (i32) and strides
    (i64, the last one a compile-time 1).

    Args:
        block_type: the tile type of the blocks.
        shape_type, strides_type: the types of the extents and the strides.
        padding: the value of out-of-bounds elements, "zero" or "nan".
        round_to_tf32: whether loads round fp32 to tf32.
    """

    __slots__ = ("block_type", "padding", "round_to_tf32")

    def __init__(
        self,
        block_type: Tile,
        shape_type: Any,
        strides_type: Any,
        padding: str = "zero",
        round_to_tf32: bool = False,
    ) -> None:
        self.types = (Pointer(block_type.element), shape_type, strides_type)
        self.block_type = block_type
        self.padding = padding
        self.round_to_tf32 = round_to_tf32

    @staticmethod
    def of(
        block_type: Tile, padding: str = "zero", round_to_tf32: bool = False
    ) -> tensor_descriptor_type:
        """The type of descriptors with such blocks, with run-time extents and strides."""
        rank = block_type.rank
        extents = tuple_type([int32] * rank)
        strides = tuple_type([*[int64] * (rank - 1), constexpr_type(1)])
        return tensor_descriptor_type(block_type, extents, strides, padding, round_to_tf32)

    def leaves(self) -> list[DescriptorLeaf]:
        """The run-time parts that are passed to a kernel."""
        rank, element = self.block_type.rank, self.block_type.element
        unit = max(1, DESCRIPTOR_ALIGNMENT // element.nbytes_in_memory)
        return [
            DescriptorLeaf(0, "", self.types[0], DESCRIPTOR_ALIGNMENT),
            *(DescriptorLeaf(1 + i, f"shape.{i}", int32) for i in range(rank)),
            *(DescriptorLeaf(1 + rank + i, f"strides.{i}", int64, unit) for i in range(rank - 1)),
        ]

    def with_types(self, types: Sequence[Any]) -> tensor_descriptor_type:
        _, shape, strides = types or (None, None, None)
        return tensor_descriptor_type(
            self.block_type, shape, strides, self.padding, self.round_to_tf32
        )

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, tensor_descriptor_type)
            and self.types == other.types
            and self.block_type == other.block_type
            and self.padding == other.padding
            and self.round_to_tf32 == other.round_to_tf32
        )

    def __hash__(self) -> int:
        return hash((self.types, self.block_type, self.padding, self.round_to_tf32))

    def __str__(self) -> str:
        padding = "" if self.padding == "zero" else f", padding={self.padding}"
        rounding = ", round_f32_to_tf32" if self.round_to_tf32 else ""
        return f"tensor_descriptor<{self.block_type}{padding}{rounding}>"

    __repr__ = __str__

    def mangle(self) -> str:
        return f"TD{self.block_type.mangle()}"


LanguageType = Type | constexpr_type | composite_type


def canonical_name(name: str) -> str:
    """The short name of an element type, such as ``fp32``, from any of its spellings.

    Unknown names are returned unchanged.
    """
    name = name.removeprefix("torch.").removeprefix("tl.").removesuffix("_t")
    return CANONICAL_NAMES.get(name, name)


# The element type, the shape, and further properties, such as the padding.
_DESCRIPTOR = r"tensordesc<(\w+)\[(\d+(?:, *\d+)*)\](.*)>$"


def _descriptor_type(name: str) -> tensor_descriptor_type:
    found = re.match(_DESCRIPTOR, name)
    if found is None:
        raise ValueError(f"there is no type {name!r}; descriptors are tensordesc<fp16[64, 64]>")
    element, shape, rest = found.groups()
    sizes = tuple(map(int, shape.split(",")))
    validate_block_shape(sizes)
    block = Tile(sizes, _element_type(element))
    padding = "nan" if "padding=nan" in rest.replace(" ", "") else "zero"
    return tensor_descriptor_type.of(block, padding, "round_f32_to_tf32" in rest)


def _element_type(name: str) -> DType:
    result = BY_SHORT.get(canonical_name(name))
    if result is None:
        known = ", ".join(short for short in BY_SHORT if short[-1].isdigit() or "fp8" in short)
        near = [f"did you mean {n}?" for n in similar(name.rstrip("*"), known.split(", "))]
        hint = [f"a pointer is written '*fp32', not {name!r}"] if name.endswith("*") else near
        raise ValueError("; ".join([f"there is no element type {name!r}; they are {known}", *hint]))
    return result


def str_to_ty(name: str, c: Any = None) -> LanguageType:
    """The type that a signature string names.

        "*fp32"  "*ki8"  "u1"  "constexpr"  "tensordesc<fp16[64, 64]>"

    Args:
        name: the signature string.
        c: the value of a ``"constexpr"``.

    Raises:
        ValueError: there is no such type.
    """
    if name == "constexpr":
        return constexpr_type(c)
    if name.startswith("*"):
        const = name[1:2] == "k"
        element = str_to_ty(name[2:] if const else name[1:])
        assert isinstance(element, DType | Pointer)
        return Pointer(element, const)
    if name.startswith("tensordesc<"):
        return _descriptor_type(name)
    return _element_type(name)


def get_int_dtype(bitwidth: int, signed: bool) -> DType:
    """The integer type of this width. Width 1 is `int1`, signed or not.

    Raises:
        ValueError: there is no integer type of this width.
    """
    return int_type(bitwidth, signed)
