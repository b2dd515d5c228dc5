"""Reductions and scans along an axis with a combine function.

With N operands, the `combine` region takes 2N scalars, N for the left elements and N for the right
ones, and yields N. It must be associative and pure; a reduction also assumes that it is
commutative.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.ir.core import Op as CoreOp
from tilewright.ir.core import Region, Value
from tilewright.ir.define import Op, attr, region, require, variadic
from tilewright.ir.index_map import Every, IndexMap, replaced, without_axis
from tilewright.ir.traits import PURE
from tilewright.ir.types import Type, element_of, shape_of, with_shape
from tilewright.ops.numeric import Array
from tilewright.ops.verifiers import verify_axis


class _Combining(Op):
    """Base class of ops with a combine region."""

    srcs: list[Value] = variadic()
    axis: int = attr()

    @property
    def combine_region(self) -> Region:
        return self.regions[0]

    def verify(self) -> None:
        require(len(self.srcs) > 0, self, "operand-types", "takes at least one tile")
        shapes = {shape_of(s.type) for s in self.srcs}
        require(len(shapes) == 1, self, "shape", "operands differ in shape")
        rank = len(shape_of(self.srcs[0].type))
        verify_axis(self, self.axis, rank)
        elements = [element_of(s.type) for s in self.srcs]
        args = [a.type for a in self.combine_region.args]
        require(
            args == elements * 2,
            self,
            "combine",
            "the types of the combine region's arguments do not match the operands",
        )
        end = self.combine_region.terminator
        require(
            [v.type for v in end.operands] == elements,
            self,
            "combine",
            "the types that the combine region yields do not match its arguments",
        )
        require(
            all(op.pure for op in self.combine_region),
            self,
            "combine",
            "the combine region has effects",
        )

    def apply(self, state: Any, left: list[Array], right: list[Array]) -> list[Array]:
        """Run the combine region on whole arrays, element by element."""
        return state.run_vectorised(self.combine_region, [*left, *right], left[0].shape)


class Reduce(_Combining, name="tile.reduce", traits=PURE):
    """Reduction along `axis`, which the result lacks; that of a one-dimensional tile is a scalar.

    Adjacent elements are combined in a balanced tree.

        %1 = tile.reduce [%0], axis=1 : 4x8xfp32 -> 4xfp32 {
          (%a: fp32, %b: fp32)
          %c = arith.add %a, %b : (fp32, fp32) -> fp32
          control.yield [%c] : fp32 -> ()
        }
    """

    combine: Region = region()

    def result_types(self) -> tuple[Type, ...]:
        result: list[Type] = []
        for s in self.srcs:
            shape = shape_of(s.type)
            result.append(with_shape(s.type, shape[: self.axis] + shape[self.axis + 1 :]))
        return tuple(result)

    def index_maps(self, result: int = 0) -> tuple[IndexMap | None, ...]:
        source = shape_of(self.srcs[0].type)
        return (without_axis(source, self.axis, Every()),) * len(self.srcs)

    no_evaluate = "it runs a nested region; see execute"

    def execute(self, state: Any, *args: Array) -> tuple[Array, ...]:
        current = [np.moveaxis(a, self.axis, 0) for a in args]
        while (n := len(current[0])) > 1:
            pairs = n // 2
            left = [c[0 : 2 * pairs : 2] for c in current]
            right = [c[1 : 2 * pairs : 2] for c in current]
            combined = self.apply(state, left, right)
            if n % 2:
                combined = [
                    np.concatenate([c, rest[-1:]])
                    for c, rest in zip(combined, current, strict=True)
                ]
            current = combined
        return tuple(np.asarray(c[0]) for c in current)


class Scan(_Combining, name="tile.scan", traits=PURE):
    """Inclusive scan along `axis`; from the last element to the first with `reverse`.

    %1 = tile.scan [%0], axis=0, reverse=False : 8xi32 -> 8xi32 {
      (%a: i32, %b: i32)
      %c = arith.add %a, %b : (i32, i32) -> i32
      control.yield [%c] : i32 -> ()
    }
    """

    reverse: bool = attr(False)
    combine: Region = region()

    def result_types(self) -> tuple[Type, ...]:
        return tuple(s.type for s in self.srcs)

    def index_maps(self, result: int = 0) -> tuple[IndexMap | None, ...]:
        source = shape_of(self.srcs[0].type)
        return (replaced(source, self.axis, Every()),) * len(self.srcs)

    no_evaluate = "it runs a nested region; see execute"

    def execute(self, state: Any, *args: Array) -> tuple[Array, ...]:
        moved = [np.moveaxis(a, self.axis, 0) for a in args]
        if self.reverse:
            moved = [m[::-1] for m in moved]
        outs = [m.copy() for m in moved]
        running = [m[0] for m in moved]
        for i in range(1, len(moved[0])):
            running = self.apply(state, running, [m[i] for m in moved])
            for out, value in zip(outs, running, strict=True):
                out[i] = value
        if self.reverse:
            outs = [o[::-1] for o in outs]
        return tuple(np.moveaxis(o, 0, self.axis) for o in outs)


def simple_combine(op: CoreOp) -> CoreOp | None:
    """The op of a combine region that consists of a single op on its two arguments, such as an add
    or a max. None for any other region."""
    body = op.regions[0]
    inner = body.first
    if inner is None or inner.next is not body.last or len(body.args) != 2:
        return None
    yielded = body.terminator.operands
    same_operands = inner.operands == body.args or (
        inner.commutative and inner.operands == body.args[::-1]
    )
    return inner if same_operands and yielded == inner.results else None
