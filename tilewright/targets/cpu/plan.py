"""The plan of a kernel: which tiles are kept in memory, and which ops share a loop.

Roots over the same shape that don't depend on each other form a *group*, which is one loop nest
(`group_roots`). A lazy value becomes *kept*, computed once into a buffer, when that is needed or
cheaper (`keep_values`). The plan of a region is a list of steps in the order in which they run.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tilewright.analysis.affine import AffineForms
from tilewright.ir.core import Op, Region, Value
from tilewright.ops import control, map
from tilewright.targets.cpu.lazy import Costs

HOLDS_STEPS = (control.For, control.While, control.If, map.Map)  # in its regions


@dataclass(eq=False)
class Group:
    """Roots that run in one loop nest over `shape`.

    Attributes:
        keep: values that are written to buffers in the same nest.
        reduce_axis: the axis that its reductions reduce; None where it has none.
    """

    shape: tuple[int, ...]
    roots: list[Op] = field(default_factory=list)
    keep: list[Value] = field(default_factory=list)
    reduce_axis: int | None = None

    def ops(self) -> list[Op]:
        return self.roots


@dataclass(eq=False)
class Run:
    """One op that runs by itself: a scalar op, a dot, a scan, an atomic, control flow."""

    op: Op

    def ops(self) -> list[Op]:
        return [self.op]


Step = Group | Run


@dataclass(frozen=True)
class Ahead:
    """What a group prefetches.

    Attributes:
        reads: pointers of loads, of which those of the next program are prefetched.
        writes: pointers of stores that come later in this program.
    """

    reads: tuple[Value, ...]
    writes: tuple[Value, ...]


@dataclass
class Plan:
    """The plan of a function.

    Attributes:
        steps: by region, in order.
        kept: the values that have a buffer.
        ahead: the group that prefetches memory, and which.
        streamed: pointers of stores that may go past the caches.
        bytes_moved: bytes that a program loads and stores in order, at least.
        forms: the affine forms of integers and pointers.
        costs: what computing a value costs.
    """

    steps: dict[Region, list[Step]] = field(default_factory=dict)
    kept: set[Value] = field(default_factory=lambda: set())
    ahead: dict[Group, Ahead] = field(default_factory=dict)
    streamed: frozenset[Value] = frozenset()
    bytes_moved: int = 0
    forms: AffineForms = field(default_factory=AffineForms)

    def __post_init__(self) -> None:
        self.costs = Costs(self.forms)
