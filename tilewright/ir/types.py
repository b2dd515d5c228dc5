"""The types of tile IR values: scalars, pointers, and tiles of either.

A type prints as it is written in a kernel's signature: ``fp32``, ``i64``, ``u8``, ``bf16``;
``ptr<fp32>`` points to fp32, ``ptr<const fp32>`` may not be stored through; ``4x8xfp32`` is a tile
of shape (4, 8). Types are compared by value; scalars are singletons.

Integers carry their signedness, because the meaning of ``//``, ``%``, ``>>``, ``<`` and of a cast
depends on it, so that an op alone determines its semantics.
"""

from __future__ import annotations

from enum import Enum
from math import prod
from typing import Any, ClassVar

import ml_dtypes
import numpy as np

from tilewright.base.record import record

# The bit patterns of fp8e4b15, which NumPy lacks: see `ir/numbers.py`.
E4B15 = np.dtype([("e4b15", np.uint8)])


def _no(type: object) -> bool:
    return False


class _Predicates:
    """The predicates of all types. Each is False unless a subclass overrides it."""

    __slots__ = ()

    is_block = is_ptr = is_const = is_void = is_bool = is_int = is_floating = _no
    is_int_signed = is_int_unsigned = is_standard_floating = is_fp8 = _no
    is_int1 = is_int8 = is_int16 = is_int32 = is_int64 = _no
    is_uint8 = is_uint16 = is_uint32 = is_uint64 = _no
    is_fp8e5 = is_fp8e4nv = is_fp8e4b8 = is_fp8e5b16 = is_fp8e4b15 = _no
    is_fp16 = is_bf16 = is_fp32 = is_fp64 = _no


class DType(_Predicates):
    """A scalar element type.

    Attributes:
        short: name in signatures and in IR text, such as ``i32`` or ``fp16``.
        name: name in the language, such as ``int32`` or ``fp16``.
        primitive_bitwidth: size in bits (1 for a bool, which takes a byte in memory).
        fp_mantissa_width: explicit mantissa bits; 0 for integers.
        exponent_bias: 0 for integers.
        numpy: the NumPy type of arrays of such elements; None for void. For fp8e4b15 it holds the
            bit pattern.

    `SINT_TYPES`, `UINT_TYPES`, `FP_TYPES`, `STANDARD_FP_TYPES` (all but the 8-bit ones) and
    `OTHER_TYPES` list the names of the scalar types; a bool counts as unsigned.
    """

    SINT_TYPES: ClassVar[list[str]]
    UINT_TYPES: ClassVar[list[str]]
    FP_TYPES: ClassVar[list[str]]
    STANDARD_FP_TYPES: ClassVar[list[str]]
    OTHER_TYPES: ClassVar[list[str]]

    class SIGNEDNESS(Enum):
        SIGNED = 0
        UNSIGNED = 1

    class KIND(Enum):
        BOOLEAN = 0
        INTEGRAL = 1
        FLOATING = 2

    __slots__ = (
        "exponent_bias",
        "fp_mantissa_width",
        "int_bounds",
        "int_signedness",
        "name",
        "numpy",
        "primitive_bitwidth",
        "python_name",
        "short",
    )

    def __init__(
        self,
        short: str,
        name: str,
        python_name: str,
        bits: int,
        numpy: Any,
        mantissa: int,
        bias: int,
    ) -> None:
        self.short = short
        self.name = name
        self.python_name = python_name
        self.primitive_bitwidth = bits
        self.numpy: Any = np.dtype(numpy) if numpy is not None else None
        self.fp_mantissa_width = mantissa
        self.exponent_bias = bias
        signed = short[0] == "i" and bits > 1
        self.int_signedness = self.SIGNEDNESS.SIGNED if signed else self.SIGNEDNESS.UNSIGNED
        self.int_bounds = (
            (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)
        )

    @property
    def int_bitwidth(self) -> int:
        return self.primitive_bitwidth

    @property
    def itemsize(self) -> int:
        return self.primitive_bitwidth // 8

    @property
    def nbytes_in_memory(self) -> int:
        """Bytes of one element in memory; a bool takes one."""
        return max(1, self.primitive_bitwidth // 8)

    @property
    def scalar(self) -> DType:
        return self

    @property
    def shape(self) -> tuple[int, ...]:
        return ()

    @property
    def cache_key_part(self) -> str:
        return self.short

    def codegen_name(self) -> str:
        """The name of the type as an attribute of the language."""
        return self.python_name

    def with_element_ty(self, element_ty: DType) -> DType:
        """The other element type: a scalar is its own element."""
        return element_ty

    def mangle(self) -> str:
        return self.short if self.is_int() else self.name

    def kind(self) -> KIND:
        if self.is_floating():
            return DType.KIND.FLOATING
        return DType.KIND.BOOLEAN if self.is_bool() else DType.KIND.INTEGRAL

    def is_floating(self) -> bool:
        return self.fp_mantissa_width > 0

    def is_standard_floating(self) -> bool:
        return self.fp_mantissa_width > 0 and self.primitive_bitwidth > 8

    def is_fp8(self) -> bool:
        return self.fp_mantissa_width > 0 and self.primitive_bitwidth == 8

    def is_int(self) -> bool:
        return self.fp_mantissa_width == 0 and self.primitive_bitwidth > 0

    def is_int_signed(self) -> bool:
        return self.is_int() and self.int_signedness is DType.SIGNEDNESS.SIGNED

    def is_int_unsigned(self) -> bool:
        return self.is_int() and self.int_signedness is DType.SIGNEDNESS.UNSIGNED

    def is_bool(self) -> bool:
        return self.short == "i1"

    def is_void(self) -> bool:
        return self.primitive_bitwidth == 0

    def get_int_max_value(self) -> int:
        return self.int_bounds[1]

    def get_int_min_value(self) -> int:
        return self.int_bounds[0]

    @staticmethod
    def is_dtype(type_str: str) -> bool:
        return type_str in BY_NAME

    def __repr__(self) -> str:
        return f"triton.language.{self.python_name}"

    def __str__(self) -> str:
        return self.name

    def __reduce__(self) -> tuple[Any, ...]:
        return scalar_type, (self.short,)


def _predicate(short: str) -> Any:
    def is_this(self: DType) -> bool:
        return self.short == short

    is_this.__doc__ = f"Whether this is `{short}`."
    return is_this


VOID = DType("void", "void", "void", 0, None, 0, 0)
I1 = DType("i1", "int1", "int1", 1, np.bool_, 0, 0)
I8 = DType("i8", "int8", "int8", 8, np.int8, 0, 0)
I16 = DType("i16", "int16", "int16", 16, np.int16, 0, 0)
I32 = DType("i32", "int32", "int32", 32, np.int32, 0, 0)
I64 = DType("i64", "int64", "int64", 64, np.int64, 0, 0)
U8 = DType("u8", "uint8", "uint8", 8, np.uint8, 0, 0)
U16 = DType("u16", "uint16", "uint16", 16, np.uint16, 0, 0)
U32 = DType("u32", "uint32", "uint32", 32, np.uint32, 0, 0)
U64 = DType("u64", "uint64", "uint64", 64, np.uint64, 0, 0)
FP8E5 = DType("fp8e5", "fp8e5", "float8e5", 8, ml_dtypes.float8_e5m2, 2, 15)
FP8E4NV = DType("fp8e4nv", "fp8e4nv", "float8e4nv", 8, ml_dtypes.float8_e4m3fn, 3, 7)
FP8E4B8 = DType("fp8e4b8", "fp8e4b8", "float8e4b8", 8, ml_dtypes.float8_e4m3fnuz, 3, 8)
FP8E5B16 = DType("fp8e5b16", "fp8e5b16", "float8e5b16", 8, ml_dtypes.float8_e5m2fnuz, 2, 16)
FP8E4B15 = DType("fp8e4b15", "fp8e4b15", "float8e4b15", 8, E4B15, 3, 15)
FP16 = DType("fp16", "fp16", "float16", 16, np.float16, 10, 15)
BF16 = DType("bf16", "bf16", "bfloat16", 16, ml_dtypes.bfloat16, 7, 127)
FP32 = DType("fp32", "fp32", "float32", 32, np.float32, 23, 127)
FP64 = DType("fp64", "fp64", "float64", 64, np.float64, 52, 1023)

SCALARS = (
    I1, I8, I16, I32, I64, U8, U16, U32, U64,
    FP8E5, FP8E4NV, FP8E4B8, FP8E5B16, FP8E4B15, FP16, BF16, FP32, FP64,
)  # fmt: skip
BY_SHORT = {t.short: t for t in (*SCALARS, VOID)} | {"u1": I1}
BY_NAME = {t.name: t for t in (*SCALARS, VOID)}

for _t in SCALARS:
    setattr(DType, f"is_{_t.name}", _predicate(_t.short))

DType.SINT_TYPES = [t.name for t in SCALARS if t.is_int_signed()]
DType.UINT_TYPES = [t.name for t in SCALARS if t.is_int_unsigned()]
DType.FP_TYPES = [t.name for t in SCALARS if t.is_floating()]
DType.STANDARD_FP_TYPES = [t.name for t in SCALARS if t.is_standard_floating()]
DType.OTHER_TYPES = [VOID.name]


def scalar_type(short: str) -> DType:
    """The scalar type with this signature name. Raises KeyError if there is none."""
    return BY_SHORT[short]


def int_type(bits: int, signed: bool) -> DType:
    """The integer type of this width. Width 1 is the bool, signed or not.

    Raises:
        ValueError: there is no type of this width.
    """
    if bits == 1:
        return I1
    result = BY_SHORT.get(f"{'i' if signed else 'u'}{bits}")
    if result is None:
        raise ValueError(f"there is no integer type of {bits} bits")
    return result


@record
class Pointer(_Predicates):
    """A pointer to elements of type `element_ty` in an address space. Stores through a `const`
    pointer are invalid."""

    element_ty: DType | Pointer
    const: bool = False
    address_space: str = "global"

    @property
    def scalar(self) -> Pointer:
        return self

    @property
    def shape(self) -> tuple[int, ...]:
        return ()

    @property
    def primitive_bitwidth(self) -> int:
        return 64

    @property
    def nbytes_in_memory(self) -> int:
        return 8

    @property
    def name(self) -> str:
        return str(self)

    @property
    def cache_key_part(self) -> str:
        return f"*{'k' if self.const else ''}{self.element_ty.cache_key_part}"

    def mangle(self) -> str:
        return f"P{self.element_ty.mangle()}"

    def is_ptr(self) -> bool:
        return True

    def is_const(self) -> bool:
        return self.const

    def __str__(self) -> str:
        return f"{'const_' if self.const else ''}pointer<{self.element_ty}>"


Scalar = DType | Pointer


@record
class Tile(_Predicates):
    """A tensor of `element` values with a static shape of rank 1 or more.

    Extents may be any positive integers. That they be powers of two is required by some targets
    only.
    """

    shape: tuple[int, ...]
    element: Scalar

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def numel(self) -> int:
        return prod(self.shape)

    @property
    def scalar(self) -> Scalar:
        return self.element

    @property
    def element_ty(self) -> Scalar:
        return self.element

    @property
    def name(self) -> str:
        return str(self)

    @property
    def nbytes(self) -> int:
        return self.numel * self.element.nbytes_in_memory

    @property
    def cache_key_part(self) -> str:
        return f"{'x'.join(map(str, self.shape))}x{self.element.cache_key_part}"

    def get_block_shapes(self) -> tuple[int, ...]:
        return self.shape

    def with_element(self, element: Scalar) -> Tile:
        return Tile(self.shape, element)

    def with_element_ty(self, element_ty: Scalar) -> Tile:
        """`with_element` under its public name."""
        return Tile(self.shape, element_ty)

    def with_shape(self, shape: tuple[int, ...]) -> Tile:
        return Tile(shape, self.element)

    def mangle(self) -> str:
        return f"{self.element.mangle()}S{'_'.join(map(str, self.shape))}S"

    def is_block(self) -> bool:
        return True

    def __str__(self) -> str:
        dims = ", ".join(f"'{d}'" for d in self.shape)
        return f"<[{dims}], {self.element}>"


@record
class Shared(_Predicates):
    """A buffer of `element` values in shared memory.

    Only GPU targets use it. The layout of the value maps elements to offsets in the buffer.
    """

    shape: tuple[int, ...]
    element: DType

    @property
    def scalar(self) -> Scalar:
        return self.element

    @property
    def numel(self) -> int:
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.numel * self.element.nbytes_in_memory

    def __str__(self) -> str:
        return f"shared<{list(self.shape)}, {self.element}>"


@record
class TensorMemory(_Predicates):
    """The content of a part of the memory in which matrix instructions keep their results.

    Only targets with such a memory use it. Its layout follows from the shape.
    """

    shape: tuple[int, ...]
    element: DType

    @property
    def scalar(self) -> Scalar:
        return self.element

    def __str__(self) -> str:
        return f"tensor<{list(self.shape)}, {self.element}>"


Type = DType | Pointer | Tile | Shared | TensorMemory

# A tuple, since constructing a union is slower than testing it, and these are tested most often.
_SHAPED = Tile, Shared, TensorMemory


def element_of(type: Type) -> Scalar:
    """The element type of a tile or a buffer, or the type itself."""
    return type.element if isinstance(type, _SHAPED) else type


def dtype_of(type: Type) -> DType:
    """The element type. Asserts that it is not a pointer."""
    element = element_of(type)
    assert isinstance(element, DType), f"{element} is not a plain element type"
    return element


def shape_of(type: Type) -> tuple[int, ...]:
    """The shape of a tile or a buffer; () for a scalar."""
    return type.shape if isinstance(type, _SHAPED) else ()


def with_shape(type: Type, shape: tuple[int, ...]) -> Type:
    """The type with the same element and this shape; () gives the scalar."""
    element = element_of(type)
    return Tile(shape, element) if shape else element


def with_element(type: Type, element: Scalar) -> Type:
    """The type with the same shape and this element."""
    return Tile(type.shape, element) if isinstance(type, Tile) else element


def derivative_type(type: Type) -> Type:
    """The type of the tangent or adjoint of a float: fp32 for narrower ones, else its own."""
    return with_element(type, FP32) if element_of(type).primitive_bitwidth < 32 else type


def is_pointer(type: Type) -> bool:
    """Whether the type is a pointer or a tile of pointers."""
    return isinstance(element_of(type), Pointer)


def is_float(type: Type) -> bool:
    return element_of(type).is_floating()


def is_int(type: Type) -> bool:
    return element_of(type).is_int()


def numpy_of(type: Type) -> np.dtype[Any]:
    """The NumPy type of one element; uint64 for pointers."""
    element = element_of(type)
    return np.dtype(np.uint64) if isinstance(element, Pointer) else element.numpy


def text_of(type: Type) -> str:
    """The type in the text form of the IR."""
    if isinstance(type, DType):
        return type.short
    if isinstance(type, Pointer):
        return f"ptr<{'const ' if type.const else ''}{text_of(type.element_ty)}>"
    if isinstance(type, Shared | TensorMemory):
        name = "shared" if isinstance(type, Shared) else "tensor"
        return f"{name}<{'x'.join(map(str, type.shape))}x{text_of(type.element)}>"
    return f"{'x'.join(map(str, type.shape))}x{text_of(type.element)}"
