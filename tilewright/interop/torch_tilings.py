"""Elementwise kernels of Inductor for the CPU that are tiled by rows.

Inductor flattens the index of an elementwise kernel, and computes row and column by quotients and
remainders, which is cheap on a GPU. On a CPU, a vector may span two rows if the length of rows is
not a multiple of its length, or unknown: loads are then gathers, and each lane is divided
separately. Such kernels get an axis for the columns instead.

So do kernels that compute further remainders, minima and maxima, as for rolled and padded images:
with an axis for columns, those of rows are computed once for each row rather than for each vector.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import wraps
from typing import Any

from tilewright.interop.after_import import after_import, is_defined_in

VECTOR = 16
"""The elements of a vector of fp32 numbers; also the shortest rows that are worth an axis."""


def tile_by_rows() -> None:
    """Have Inductor tile elementwise kernels for the CPU by rows, once in a process."""
    after_import("torch._inductor.codegen.simd", _tile_by_rows)


def _tile_by_rows(module: Any) -> None:
    scheduling = module.SIMDScheduling
    choose: Any = getattr(scheduling, "get_tiling_and_scores", None)
    if choose is None or is_defined_in(choose, __file__):
        return

    @wraps(choose.__func__)
    def get_tiling_and_scores(
        cls: Any, node_schedule: Any, numel: Any, reduction_numel: Any = 1, *rest: Any, **named: Any
    ) -> tuple[dict[str, Any], Any]:
        tiling, scores = choose.__func__(cls, node_schedule, numel, reduction_numel, *rest, **named)
        if reduction_numel != 1 or not tiling.keys() <= {"x", "r0_"}:
            return tiling, scores
        rows = _rows(module, list(module.EnableReduction.filter(node_schedule)))
        if not rows:
            return tiling, scores
        by_rows = cls.create_tiling(rows, [reduction_numel])
        compatible = cls.tiling_is_compatible(node_schedule, numel, reduction_numel, by_rows)
        return (by_rows, None) if compatible else (tiling, scores)

    scheduling.get_tiling_and_scores = classmethod(get_tiling_and_scores)


def _rows(module: Any, nodes: Iterable[Any]) -> list[Any]:
    """The number of rows and their length, of the node with most axes; empty if the kernel is not
    for the CPU, or is better not tiled."""
    ranges: list[Any] = []
    computed = False
    for node in nodes:
        if node.get_device().type != "cpu":
            return []
        own, _ = node.get_ranges()
        computed = computed or any(_is_computed(read) for read in node.read_writes.reads)
        if len(own) > len(ranges):
            ranges = list(own)
    sizes = module.V.graph.sizevars
    if len(ranges) < 2:
        return []
    if sizes.statically_known_multiple_of(ranges[-1], VECTOR) and not computed:
        return []
    if sizes.optimization_hint(ranges[-1]) < VECTOR:
        return []
    return [module.sympy_product(ranges[:-1]), ranges[-1]]


def _is_computed(read: Any) -> bool:
    """Whether the index of a kernel's loads has remainders, minima or maxima of coordinates."""
    from torch._inductor.dependencies import MemoryDep
    from torch.utils._sympy.functions import Max, Min, Mod, ModularIndexing, PythonMod

    functions: Any = Max, Min, Mod, ModularIndexing, PythonMod
    return isinstance(read, MemoryDep) and bool(read.index.has(*functions))
