"""Who may use which bytes of shared memory, and where a barrier must keep them apart.

Ops that exchange data between warps write it to shared memory, wait, and read it. The *scratch*
that an op needs is registered with `scratch` beside its emitter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from tilewright.ir.core import Function, Op, Region
from tilewright.lowering.emit import I8, Builder, Module, V, array
from tilewright.ops.control import Barrier, For, While

ALIGN = 128
SMALL = 1024  # scratch up to so many bytes is not shared with other ops, which saves barriers

Scratch = Callable[[Any], int]
SCRATCH: dict[type[Op], Scratch] = {}


def scratch(cls: type[Op]) -> Callable[[Scratch], Scratch]:
    """Register how many bytes an op of this class exchanges through shared memory."""

    def register(fn: Scratch) -> Scratch:
        SCRATCH[cls] = fn
        return fn

    return register


class Span(NamedTuple):
    """Bytes from `start` up to `end`."""

    start: int
    end: int

    def overlaps(self, other: Span) -> bool:
        return self.start < other.end and other.start < self.end


class SharedMemory:
    """The plan of a function's shared memory.

    Attributes:
        spans: where each op with scratch has it.
        barriers: ops before which all threads must wait.
        bytes: how much memory the program needs.
    """

    def __init__(self, fn: Function) -> None:
        self.spans = _allocate(fn)
        self.bytes = max((span.end for span in self.spans.values()), default=0)
        self.barriers: set[Op] = set()
        self._walk(fn.body, frozenset())

    def declare(self, module: Module) -> None:
        """Declare the memory, whose size the launch gives."""
        if self.bytes:
            self._base = module.global_variable(
                "shared", array(I8, 0), "", ALIGN, space=3, linkage="external"
            )

    def address(self, b: Builder, op: Op) -> V:
        """Address of the op's scratch."""
        return b.gep(I8, self._base, self.spans[op].start)

    def _walk(self, region: Region, pending: frozenset[Span]) -> frozenset[Span]:
        """Find barriers, given what may still be read; what may be read at the end."""
        for op in region:
            if isinstance(op, For | While):
                # Once more with what the end of the body leaves for its beginning.
                ends = self._walk_regions(op.regions, pending)
                pending |= self._walk_regions(op.regions, pending | ends)
            elif isinstance(op, Barrier):
                pending = frozenset()
            elif op in self.spans:
                if any(self.spans[op].overlaps(span) for span in pending):
                    self.barriers.add(op)
                pending = frozenset([self.spans[op]])
            elif op.regions:
                pending = frozenset[Span]().union(*(self._walk(r, pending) for r in op.regions))
        return pending

    def _walk_regions(self, regions: Iterable[Region], pending: frozenset[Span]) -> frozenset[Span]:
        for region in regions:
            pending = self._walk(region, pending)
        return pending


def _allocate(fn: Function) -> dict[Op, Span]:
    """Small scratch side by side, large scratch above it, all at one place."""
    sizes: dict[Op, int] = {}
    for op in fn.walk():
        need = SCRATCH.get(type(op))
        if need is not None and (size := need(op)):
            sizes[op] = size
    spans: dict[Op, Span] = {}
    top = 0
    for op, size in sizes.items():
        if size <= SMALL:
            spans[op] = Span(top, top + size)
            top += (size + ALIGN - 1) // ALIGN * ALIGN
    for op, size in sizes.items():
        if size > SMALL:
            spans[op] = Span(top, top + size)
    return spans
