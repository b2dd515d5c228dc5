"""The table of multiplication schemes: instructions, and the operand format of each.

An instruction works on *groups*: `group` adjacent elements along K, in one lane. It adds to each
sum the products of a group of the left operand with one of the right:

    sum[i, n] += lhs[i, k] * rhs[k, n] + … + lhs[i, k + group - 1] * rhs[k + group - 1, n]

A group of fp32 or fp64 is one element, multiplied by a fused multiply-add; a group of bf16 is two
elements, of int8 four. `scheme_of` selects the first applicable entry of `SCHEMES`.

The matrix instructions of AArch64 (`mmla`) multiply two rows by two columns, in groups of 8 bytes:
a vector of sums is a matrix of 2 x 2.

Integer sums are exact in every scheme (modulo 2^32). The order of floating-point sums differs, and
bf16 instructions have their own rounding, and flush subnormal operands and sums to zero. On x86,
each product of a group is added in fp32, rounding to nearest even as a fused multiply-add does. On
AArch64, the sum of two products and its addition are each rounded to odd in fp32: with an error of
less than one unit in the last place, where rounding to nearest has half a unit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tilewright.base.record import record
from tilewright.ir import types as ir
from tilewright.lowering.emit import BF16, I8, I16, Builder, LType, V, int_type, vector
from tilewright.lowering.types import memory_type
from tilewright.ops import dot
from tilewright.targets.cpu.machine import Machine

TILE_SIDE = 16
"""Rows of an AMX tile, and sums of a row."""

Multiply = Callable[[Builder, V, V, V], V]
"""(builder, sums, groups of the left, groups of the right) → sums; vectors of equal lanes."""


@record(kw_only=True)
class Scheme:
    """A multiplication scheme.

    Attributes:
        name: a name for diagnostics.
        elements: the supported operand types.
        needs: the required LLVM features of the machine.
        packed: element type of packed operands, to which operands are converted exactly.
        group: elements of a group.
        total: type of the sums.
        side: M and N must be multiples of it.
        sign_flipped: whether the left operand is packed with inverted sign bits, which turns signed
            into unsigned numbers, 128 larger, and vice versa, for an instruction that multiplies
            unsigned by signed numbers; `product` corrects the sums.
    """

    name: str
    elements: frozenset[ir.DType]
    needs: frozenset[str] = frozenset()
    packed: ir.DType
    group: int = 1
    total: ir.DType
    side: int = 1
    sign_flipped: bool = False

    @property
    def group_type(self) -> LType:
        """A group as one LLVM value: the element itself, or an integer that holds them all."""
        element = memory_type(self.packed)
        return element if self.group == 1 else int_type(element.bits * self.group)

    @property
    def total_type(self) -> LType:
        return memory_type(self.total)

    def fits(self, elements: Iterable[ir.DType], m: int, n: int, machine: Machine) -> bool:
        """Whether it is applicable to operands of these types, with M x N sums, on a machine."""
        return (
            self.elements.issuperset(elements)
            and self.needs <= machine.features
            and m % self.side == n % self.side == 0
        )


@record(kw_only=True)
class VectorScheme(Scheme):
    """An instruction on vectors, with a sum in each lane.

    Attributes:
        multiply: emits the instruction.
        lanes: its lanes; 0 if it is available in any width.
        height: rows of the matrix that a vector of sums is, which has lanes / height columns. The
            vectors of groups are of `height` rows and of that many columns.
    """

    multiply: Multiply
    lanes: int = 0
    height: int = 1


@record(kw_only=True)
class TileScheme(Scheme):
    """An AMX instruction: 16 rows of 64 bytes, times 16 groups of 16 columns, into 16 x 16 sums.

    Attributes:
        instruction: the name of LLVM's intrinsic.
    """

    instruction: str


def _fused(b: Builder, sums: V, lhs: V, rhs: V) -> V:
    return b.mul_add(lhs, rhs, sums)


def _separate(b: Builder, sums: V, lhs: V, rhs: V) -> V:
    return b.add(sums, b.mul(lhs, rhs))


def _parts(b: Builder, groups: V, element: LType) -> V:
    """A vector of groups as a vector of their elements."""
    return b.bitcast(groups, vector(element, groups.type.lanes * groups.type.bits // element.bits))


def _dot_add(name: str, element: LType) -> Multiply:
    """An intrinsic that takes (sums, left, right)."""

    def multiply(b: Builder, sums: V, lhs: V, rhs: V) -> V:
        args = [sums, _parts(b, lhs, element), _parts(b, rhs, element)]
        return b.intrinsic(name, sums.type, args)

    return multiply


def _dot_add_swapped(name: str, element: LType) -> Multiply:
    """An intrinsic that takes (sums, right, left)."""
    multiply = _dot_add(name, element)
    return lambda b, sums, lhs, rhs: multiply(b, sums, rhs, lhs)


def _dot_then_add(name: str, element: LType) -> Multiply:
    """An intrinsic of (left, right) that sums the products within groups only."""

    def multiply(b: Builder, sums: V, lhs: V, rhs: V) -> V:
        products = b.intrinsic(name, sums.type, [_parts(b, lhs, element), _parts(b, rhs, element)])
        return b.add(sums, products)

    return multiply


def _widening(b: Builder, sums: V, lhs: V, rhs: V) -> V:
    """fmlal and fmlal2: a fused multiply-add in fp32 of the low and of the high 4 lanes of fp16."""

    def half(name: str, lanes: list[int]) -> V:
        part = b.shuffle(sums, None, lanes)
        return b.intrinsic(f"llvm.aarch64.neon.{name}.v4f32.v8f16", part.type, [part, lhs, rhs])

    low, high = half("fmlal", [0, 1, 2, 3]), half("fmlal2", [4, 5, 6, 7])
    return b.shuffle(low, high, list(range(8)))


_FP8 = frozenset(t for t in ir.SCALARS if t.is_fp8())
_INTO_BF16 = frozenset({ir.BF16}) | _FP8  # every fp8 number is exact in bf16
_INTO_FP16 = frozenset({ir.FP16}) | _FP8  # and in fp16
_BYTES = frozenset({ir.I8, ir.U8})
_VNNI = frozenset({"avx512vnni"})
_AMX_INT8 = frozenset({"amx-tile", "amx-int8"})

SCHEMES: tuple[VectorScheme | TileScheme, ...] = (
    TileScheme(
        name="amx-bf16", elements=_INTO_BF16, needs=frozenset({"amx-tile", "amx-bf16"}),
        packed=ir.BF16, group=2, total=ir.FP32, side=TILE_SIDE,
        instruction="llvm.x86.tdpbf16ps.internal",
    ),
    TileScheme(
        name="amx-int8", elements=frozenset({ir.I8}), needs=_AMX_INT8,
        packed=ir.I8, group=4, total=ir.I32, side=TILE_SIDE,
        instruction="llvm.x86.tdpbssd.internal",
    ),
    TileScheme(
        name="amx-uint8", elements=frozenset({ir.U8}), needs=_AMX_INT8,
        packed=ir.U8, group=4, total=ir.I32, side=TILE_SIDE,
        instruction="llvm.x86.tdpbuud.internal",
    ),
    VectorScheme(
        name="pair-bf16", elements=_INTO_BF16, needs=frozenset({"avx512bf16"}),
        packed=ir.BF16, group=2, total=ir.FP32, lanes=16,
        multiply=_dot_add("llvm.x86.avx512bf16.dpbf16ps.512", BF16),
    ),
    # vpdpbusd multiplies unsigned by signed bytes.
    VectorScheme(
        name="quad-int8", elements=frozenset({ir.I8}), needs=_VNNI,
        packed=ir.I8, group=4, total=ir.I32, lanes=16, sign_flipped=True,
        multiply=_dot_add("llvm.x86.avx512.vpdpbusd.512", I8),
    ),
    VectorScheme(
        name="quad-uint8", elements=frozenset({ir.U8}), needs=_VNNI,
        packed=ir.U8, group=4, total=ir.I32, lanes=16, sign_flipped=True,
        multiply=_dot_add_swapped("llvm.x86.avx512.vpdpbusd.512", I8),
    ),
    VectorScheme(
        name="pair-int8-512", elements=_BYTES, needs=frozenset({"avx512bw"}),
        packed=ir.I16, group=2, total=ir.I32, lanes=16,
        multiply=_dot_then_add("llvm.x86.avx512.pmaddw.d.512", I16),
    ),
    VectorScheme(
        name="pair-int8-256", elements=_BYTES, needs=frozenset({"avx2"}),
        packed=ir.I16, group=2, total=ir.I32, lanes=8,
        multiply=_dot_then_add("llvm.x86.avx2.pmadd.wd", I16),
    ),
    # Of AArch64.
    VectorScheme(
        name="mmla-bf16", elements=_INTO_BF16, needs=frozenset({"bf16"}),
        packed=ir.BF16, group=4, total=ir.FP32, lanes=4, height=2, side=2,
        multiply=_dot_add("llvm.aarch64.neon.bfmmla", BF16),
    ),
    VectorScheme(
        name="dot-bf16", elements=_INTO_BF16, needs=frozenset({"bf16"}),
        packed=ir.BF16, group=2, total=ir.FP32, lanes=4,
        multiply=_dot_add("llvm.aarch64.neon.bfdot.v4f32.v8bf16", BF16),
    ),
    VectorScheme(
        name="widening-fp16", elements=_INTO_FP16, needs=frozenset({"fp16fml"}),
        packed=ir.FP16, total=ir.FP32, lanes=8, multiply=_widening,
    ),
    VectorScheme(
        name="mmla-int8", elements=frozenset({ir.I8}), needs=frozenset({"i8mm"}),
        packed=ir.I8, group=8, total=ir.I32, lanes=4, height=2, side=2,
        multiply=_dot_add("llvm.aarch64.neon.smmla.v4i32.v16i8", I8),
    ),
    VectorScheme(
        name="mmla-uint8", elements=frozenset({ir.U8}), needs=frozenset({"i8mm"}),
        packed=ir.U8, group=8, total=ir.I32, lanes=4, height=2, side=2,
        multiply=_dot_add("llvm.aarch64.neon.ummla.v4i32.v16i8", I8),
    ),
    VectorScheme(
        name="dot-int8", elements=frozenset({ir.I8}), needs=frozenset({"dotprod"}),
        packed=ir.I8, group=4, total=ir.I32, lanes=4,
        multiply=_dot_add("llvm.aarch64.neon.sdot.v4i32.v16i8", I8),
    ),
    VectorScheme(
        name="dot-uint8", elements=frozenset({ir.U8}), needs=frozenset({"dotprod"}),
        packed=ir.U8, group=4, total=ir.I32, lanes=4,
        multiply=_dot_add("llvm.aarch64.neon.udot.v4i32.v16i8", I8),
    ),
    # Of any processor.
    VectorScheme(
        name="multiply-int8", elements=_BYTES, packed=ir.I32, total=ir.I32, multiply=_separate
    ),
    VectorScheme(
        name="fma-fp64", elements=frozenset({ir.FP64}), packed=ir.FP64, total=ir.FP64,
        multiply=_fused,
    ),
    VectorScheme(
        name="fma-fp32", elements=_INTO_BF16 | {ir.FP16, ir.FP32}, packed=ir.FP32, total=ir.FP32,
        multiply=_fused,
    ),
)  # fmt: skip
"""For each architecture, fastest first. The last entries have no requirements, so that one is
always applicable."""


def scheme_of(op: dot.Dot, machine: Machine) -> VectorScheme | TileScheme:
    """The scheme for a product on a machine."""
    *_, m, n = ir.shape_of(op.acc.type)
    elements = (ir.dtype_of(op.lhs.type), ir.dtype_of(op.rhs.type))
    return next(s for s in SCHEMES if s.fits(elements, m, n, machine))
