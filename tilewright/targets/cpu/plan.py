"""The plan of a kernel: fusion of ops into loop nests, and materialisation of tiles in memory.

Roots over the same shape that don't depend on each other form a *group*, which is one loop nest
(`group_roots`). A lazy value is *kept*, computed once into a buffer, if that is required or cheaper
(`keep_values`). The plan of a region is a list of steps in execution order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tilewright.analysis.affine import AffineForms
from tilewright.analysis.axis_info import AxisMap, axis_info
from tilewright.analysis.steps import StepBounds
from tilewright.base.lazy import cached_property
from tilewright.base.record import field, record
from tilewright.ir.core import Function, Op, Region, Value
from tilewright.ir.types import Tile, shape_of
from tilewright.ops import control, map
from tilewright.ops.arith import Hint
from tilewright.ops.debug import Assert
from tilewright.targets.cpu.lazy import Costs

LEAST_RUN = 8
"""Runs of contiguous elements that are shorter are not accessed by vectors along them."""

STRIDED_LIMIT = 4
"""Elements up to this far apart are read as one wide load and a shuffle."""

HOLDS_STEPS = (control.For, control.While, control.If, map.Map)  # ops with planned regions


@record(eq=False, frozen=False)
class Group:
    """One loop nest over `shape`.

    Attributes:
        roots: the fused ops.
        keep: values that the nest writes to buffers.
        reduce_axis: the axis of its reductions; None if there are none.
        transposed: if it transposes what it keeps, the axis along which the values are computed in
            vectors, and the one that is contiguous in their buffers.
    """

    shape: tuple[int, ...]
    roots: list[Op] = field(default_factory=list)
    keep: list[Value] = field(default_factory=list)
    reduce_axis: int | None = None
    transposed: tuple[int, int] | None = None

    def ops(self) -> list[Op]:
        return self.roots

    def checks_before(self, op: Op, position: Mapping[Op, int]) -> Group | None:
        """Move the assertions to a separate group, if the first of them precedes an op; None if
        none does.

        Args:
            position: the positions of ops in their region.
        """
        checks: list[Op] = [root for root in self.roots if isinstance(root, Assert)]
        if not checks or position[checks[0]] > position[op]:
            return None
        self.roots = [root for root in self.roots if not isinstance(root, Assert)]
        return Group(self.shape, checks)


@record(eq=False, frozen=False)
class Run:
    """An op with its own emitter: a scalar op, a dot, a scan, an atomic, control flow."""

    op: Op

    def ops(self) -> list[Op]:
        return [self.op]


Step = Group | Run


@record
class Prefetches:
    """The memory that a group prefetches.

    Attributes:
        reads: pointers of loads; what the next program loads through them is prefetched.
        writes: pointers of later stores of this program.
    """

    reads: tuple[Value, ...]
    writes: tuple[Value, ...]


@record(frozen=False)
class Plan:
    """The plan of a function.

    Attributes:
        fn: the function.
        steps: the steps of each region, in order.
        kept: the values that have a buffer, which is filled in the region that defines the value.
        prefetches: the groups that prefetch memory.
        streamed: pointers of stores that may be non-temporal.
        bytes_moved: a lower bound of the bytes that a program loads and stores sequentially.
        forms: the affine forms of integers and pointers.
        costs: the cost model.
    """

    fn: Function
    steps: dict[Region, list[Step]] = field(default_factory=dict)
    kept: set[Value] = field(default_factory=lambda: set())
    prefetches: dict[Group, Prefetches] = field(default_factory=dict)
    streamed: frozenset[Value] = frozenset()
    bytes_moved: int = 0
    forms: AffineForms = field(default_factory=AffineForms)

    def __post_init__(self) -> None:
        self.costs = Costs(self.forms)
        self._bounds: dict[int, StepBounds] = {}

    @cached_property
    def facts(self) -> AxisMap:
        """Axis information of the function that is proven, computed on demand.

        Remainders of arguments and of values that are read may be negative here, and hints on tiles
        may be false.
        """
        return axis_info(self.fn, trust_divisors=False, trust_hints=False)

    @cached_property
    def hinted(self) -> AxisMap:
        """Axis information under the assumption that hints on tiles are true: for heuristics, and
        for code that checks it."""
        if not any(
            isinstance(op, Hint) and isinstance(op.result.type, Tile) for op in self.fn.walk()
        ):
            return self.facts
        return axis_info(self.fn, trust_divisors=False)

    def may_be_runs(self, pointer: Value, axis: int, length: int) -> bool:
        """Whether runs of `length` elements may be contiguous along an axis, of which the distance
        of their ends tells when the program runs."""
        bounds = self._bounds.get(length)
        if bounds is None:
            bounds = self._bounds[length] = StepBounds(self.facts, length)
        return bounds.are_mostly_one(pointer, axis)


def lane_axis(
    plan: Plan, shape: tuple[int, ...], pointers: Iterable[Value], written: Iterable[Value]
) -> int:
    """The axis along which most loads and stores are contiguous; the last if there are none.

    Of two axes with equally many, it is that of more stores: loads can be transposed. Loads that
    are the same for all elements along another axis decide only between axes that are equal
    otherwise.

    Args:
        pointers: the pointers of loads and stores.
        written: those of stores.
    """
    votes, stores, repeated = ([0] * len(shape) for _ in range(3))
    for counts, accesses in ((votes, pointers), (stores, written)):
        for pointer in accesses:
            accessed = shape_of(pointer.type)
            if len(accessed) == len(shape):
                voted = counts if accessed == shape else repeated
                for axis, extent in enumerate(accessed):
                    voted[axis] += extent > 1 and is_contiguous(plan, pointer, axis)
    last = len(shape) - 1
    ranks = [(votes[a], stores[a], repeated[a], shape[a] > 1, a) for a in range(len(shape))]
    *_, best = max(ranks)
    return best if any(ranks[best][:3]) or shape[last] == 1 else last


def is_contiguous(plan: Plan, index: Value, axis: int) -> bool:
    """Whether elements along an axis are contiguous in memory, or in runs of a vector's length, as
    those at `i % n` are.

    Args:
        index: their addresses or indices.
    """
    stride = plan.forms.constant_strides(index)[axis]
    if stride is None:
        return plan.hinted[index].contiguity[axis] % LEAST_RUN == 0
    return stride == 1
