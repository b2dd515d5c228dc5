"""Split reductions of Inductor on the CPU: only those whose parts occupy otherwise idle threads.

Inductor splits a reduction with few results into hundreds of parts, which the thousands of threads
of a GPU reduce in parallel, and reduces their results by another kernel. A thread of the CPU
reduces parts sequentially: without them, no partial results are stored and loaded, one kernel fewer
is launched, and consumers are fused with the reduction. Inductor's C++ kernels are not split
either.
"""

from __future__ import annotations

from functools import wraps
from inspect import signature
from typing import Any

from tilewright.interop.after_import import after_import, is_defined_in
from tilewright.interop.torch_kernels import LONGEST_REDUCTION
from tilewright.runtime.devices.cpu import thread_count

LEAST_PART = 1 << 15
"""The fewest elements that a part is worth, by the time of another launch."""

COLUMNS = 16
"""How many results one program computes where they are adjacent: a vector of fp32 numbers."""


def split_by_threads() -> None:
    """Have Inductor split reductions on the CPU by the number of threads, once in a process."""
    after_import("torch._inductor.ir", _split_by_threads)


def _split_by_threads(module: Any) -> None:
    reduction = module.Reduction
    split: Any = getattr(reduction, "num_splits", None)
    if split is None or is_defined_in(split, __file__):
        return
    parameters = signature(split)

    @wraps(split)
    def num_splits(*rest: Any, **named: Any) -> tuple[Any, Any]:
        hint, parts = split(*rest, **named)
        arguments = parameters.bind(*rest, **named).arguments
        if parts <= 1 or arguments["device"].type != "cpu":
            return hint, parts
        size = module.V.graph.sizevars.optimization_hint
        reduced = size(arguments["reduction_numel"])
        results = size(module.sympy_product(arguments["ranges"]))
        adjacent = hint is module.ReductionHint.OUTER
        if adjacent and (results < COLUMNS or reduced > LONGEST_REDUCTION):
            return hint, parts  # which fill vectors, or are compiled without a loop
        return hint, min(parts, parts_of(reduced, results, adjacent, thread_count()))

    reduction.num_splits = staticmethod(num_splits)


def parts_of(reduced: int, results: int, adjacent: bool, threads: int) -> int:
    """How many parts a reduction is worth.

    Args:
        reduced: the number of elements that each result is of.
        results: the number of results.
        adjacent: whether neighbouring elements are of different results, as of sums of columns.
        threads: the number of threads.
    """
    programs = -(-results // COLUMNS) if adjacent else results
    return max(1, min(-(-threads // programs), reduced * results // LEAST_PART))
