"""Kernels of one `tile.dot`, of any extents, as tile IR; and arguments for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.ir.builder import Builder
from tilewright.ir.core import Function, Module, Op, Value
from tilewright.ir.types import Pointer, Tile, scalar_type
from tilewright.ir.verify import verify_module
from tilewright.ops.arith import Add, And, Cmp, Constant, Mul
from tilewright.ops.control import Return
from tilewright.ops.dot import Dot
from tilewright.ops.memory import AddPtr, Load, Store
from tilewright.ops.shape import Arange, Broadcast, ExpandDims, Splat

Extents = tuple[int, int, int]  # M, N, K

LAYOUTS = ["NN", "NT", "TN", "TT"]
"""The order of each operand in memory: N row-major, T column-major."""

KINDS = {
    "i8": "i8 i8 i32", "u8": "u8 u8 i32", "fp8": "fp8e5 fp8e4nv fp32", "bf16": "bf16 bf16 fp32",
    "fp16": "fp16 fp16 fp32", "half": "fp16 fp16 fp16", "fp32": "fp32 fp32 fp32",
    "fp64": "fp64 fp64 fp64",
}  # fmt: skip
"""Element types of both operands and of the sums."""


class _Maker:
    def __init__(self) -> None:
        self.build = Builder()

    def new(self, op: Op) -> Value:
        self.build.insert(op)
        return op.results[0]

    def along(self, axis: int, vector: Value, shape: tuple[int, ...]) -> Value:
        """A vector along one axis, the same along the others."""
        for other in range(len(shape)):
            if other != axis:
                vector = self.new(ExpandDims(vector, other))
        return self.new(Broadcast(vector, shape))

    def pointers(self, base: Value, shape: tuple[int, ...], strides: Sequence[int]) -> Value:
        offsets: Value | None = None
        for axis, (extent, stride) in enumerate(zip(shape, strides, strict=True)):
            index = self.new(Arange(0, extent))
            scaled = self.new(Mul(index, self.new(Constant(stride, index.type))))
            part = self.along(axis, scaled, shape)
            offsets = part if offsets is None else self.new(Add(offsets, part))
        assert offsets is not None
        return self.new(AddPtr(self.new(Splat(base, shape)), offsets))

    def below(self, shape: tuple[int, ...], limits: Sequence[int]) -> Value:
        """The mask of the elements whose coordinates are below the limits."""
        mask: Value | None = None
        for axis, (extent, limit) in enumerate(zip(shape, limits, strict=True)):
            index = self.new(Arange(0, extent))
            test = self.new(Cmp(index, self.new(Constant(limit, index.type)), "lt"))
            part = self.along(axis, test, shape)
            mask = part if mask is None else self.new(And(mask, part))
        assert mask is not None
        return mask


def dot_module(
    kind: str, layout: str, extents: Extents, batch: int = 0, cut: int | None = None
) -> Module:
    """c += a @ b, of matrices or of a batch of them, as tile IR.

    Args:
        cut: the number of masked rows and columns at the end of both operands.
    """
    m, n, k = extents
    outer = [batch] if batch else []
    types = [scalar_type(t) for t in KINDS[kind].split()]
    fn = Function("k", [Pointer(t) for t in types], (), [{"alias": i} for i in range(3)])
    make = _Maker()
    with make.build.at_end(fn.body):
        pointers: list[Value] = []
        for base, (rows, columns), order in zip(
            fn.args, [(m, k), (k, n), (m, n)], f"{layout}N", strict=True
        ):
            strides = (columns, 1) if order == "N" else (1, rows)
            shape = (*outer, rows, columns)
            pointers.append(make.pointers(base, shape, (*[rows * columns] * len(outer), *strides)))
        values: list[Value] = []
        for p in pointers:
            assert isinstance(p.type, Tile)
            shape = p.type.shape
            masked = cut is not None and p is not pointers[2]
            mask = make.below(shape, [max(1, e - (cut or 0)) for e in shape]) if masked else None
            values.append(make.new(Load(p, mask, None, "", "", False)))
        total = make.new(Dot(values[0], values[1], values[2], "ieee", 0))
        make.build.insert(Store(pointers[2], total, None, "", ""))
        make.build.insert(Return([]))
    module = Module([fn])
    verify_module(module)
    return module


def dot_of(module: Module) -> Dot:
    return next(op for op in module.walk() if isinstance(op, Dot))


def arrays(kind: str, extents: Extents, batch: int = 1) -> list[Any]:
    """a, b and c: integers of all sizes, or floats of which every sum is exact in any order."""
    m, n, k = extents
    rng = np.random.default_rng(m + n + k)
    found: list[Any] = []
    for type, size in zip(KINDS[kind].split(), (m * k, k * n, m * n), strict=True):
        low, high = {"i8": (-128, 128), "u8": (0, 256)}.get(type, (-3, 4))
        numbers = rng.integers(low, high, size * batch)
        found.append(numbers.astype(scalar_type(type).numpy))
    return found
