"""Application of a scalar function to the elements of tiles."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from tilewright.ir.core import Region, Value
from tilewright.ir.define import Op, attr, region, require, variadic
from tilewright.ir.index_map import IndexMap, packed
from tilewright.ir.traits import PURE
from tilewright.ir.types import Tile, Type, numpy_of, shape_of, with_shape
from tilewright.ops.numeric import Array


class Map(Op, name="tile.map", traits=PURE):
    """Applies `body` to the elements of tiles of the same shape. It may contain control flow.

    The body takes `pack` consecutive elements, in row-major order, of the first tile, then of the
    second, and so on, and yields `pack` elements of each result in the same order. It has scalar
    values only, and must not write memory, because it may run more than once per element.

        %1 = tile.map [%0], pack=1 : 4xi32 -> 4xfp32 {
          (%x: i32)
          %y = arith.cast %x, to=fp32 : i32 -> fp32
          control.yield [%y] : fp32 -> ()
        }
    """

    srcs: list[Value] = variadic()
    pack: int = attr(1)
    body: Region = region()

    def result_types(self) -> tuple[Type, ...]:
        require(self.srcs, self, "operand-types", "takes at least one tile")
        require(
            self.pack > 0 and self.pack & (self.pack - 1) == 0,
            self,
            "pack",
            "pack must be a power of two, not {n}",
            n=self.pack,
        )
        shape = shape_of(self.srcs[0].type)
        yielded = self.body.terminator.operands[:: self.pack]
        return tuple(with_shape(v.type, shape) for v in yielded)

    def verify(self) -> None:
        shapes = {shape_of(s.type) for s in self.srcs}
        require(len(shapes) == 1 and () not in shapes, self, "shape", "operands differ in shape")
        count = prod(shapes.pop())
        require(
            count % self.pack == 0,
            self,
            "pack",
            "the number of elements, {count}, is not a multiple of pack, {pack}",
            count=count,
            pack=self.pack,
        )
        expected = [t for s in self.srcs for t in [with_shape(s.type, ())] * self.pack]
        require(
            [a.type for a in self.body.args] == expected,
            self,
            "body",
            "the types of the body's arguments do not match the operands",
        )
        yielded = [v.type for v in self.body.terminator.operands]
        require(
            yielded == [t for t in yielded[:: self.pack] for _ in range(self.pack)],
            self,
            "body",
            "the body must yield `pack` values of each result",
        )
        require(
            not any(isinstance(v.type, Tile) for op in self.body.walk() for v in op.results),
            self,
            "scalars",
            "the body must only contain scalars",
        )
        require(not self.writes(), self, "effects", "the body has effects")

    def index_maps(self, result: int = 0) -> tuple[IndexMap | None, ...]:
        return (packed(shape_of(self.srcs[0].type), self.pack),) * len(self.srcs)

    no_evaluate = "it runs a nested region; see execute"

    def execute(self, state: Any, *args: Array) -> tuple[Array, ...]:
        shape = args[0].shape
        parts = [a.reshape(-1, self.pack)[:, i] for a in args for i in range(self.pack)]
        rows = len(parts[0])
        found = state.run_vectorised(self.body, parts, (rows,))
        results: list[Array] = []
        for i, result in enumerate(self.results):
            packed = found[i * self.pack : (i + 1) * self.pack]
            whole = np.stack(packed, axis=-1).astype(numpy_of(result.type), copy=False)
            results.append(whole.reshape(shape))
        return tuple(results)
