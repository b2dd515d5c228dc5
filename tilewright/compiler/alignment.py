"""Whether variants for arguments that are divisible by 8, but not by 16, are worth compiling.

Kernels are specialised for divisibility by 16, as Triton's are. Rows of 1000 elements of 16 bits
are aligned to 16 bytes too: a variant that knows their length to be divisible by 8 reads them in
vectors, or through tensor maps. Most integers make no such difference, and for them another variant
would only be another compilation.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tilewright.base.fact_cache import cached_fact
from tilewright.base.lazy_import import lazy_import
from tilewright.compiler.driver import cache_key
from tilewright.compiler.source import Source, runtime_arguments
from tilewright.targets.protocol import GPUTarget, Target

if TYPE_CHECKING:
    from tilewright.analysis import access_widths
    from tilewright.compiler import build, pipeline
    from tilewright.ir import passes
    from tilewright.ir.core import Function
else:
    access_widths = lazy_import("tilewright.analysis.access_widths")
    build = lazy_import("tilewright.compiler.build")
    passes = lazy_import("tilewright.ir.passes")
    pipeline = lazy_import("tilewright.compiler.pipeline")

WIDEST = 16  # bytes that one instruction of a thread moves


def parameters_that_widen(
    source: Source, device: GPUTarget, target: Target, options: object, divisor: int
) -> frozenset[int]:
    """The parameters, by position, whose divisibility makes some access of memory wider.

    Runs the front end and the first passes, once for all processes that share a cache.

    Args:
        source: the kernel; `divisor` is the divisibility of some of its arguments.
        device, target, options: what it is compiled for.
        divisor: the divisibility in question.

    Raises:
        CompilationError: the kernel is invalid.
    """

    def compute() -> str:
        module = source.module(target.frontend_options(options))
        passes.run(module, pipeline.STEPS, build.context_for(target, options))
        parameters = [path[0] for path, _ in runtime_arguments(list(source.signature.values()))]
        return json.dumps(_that_widen(module.entry, parameters, divisor))

    key = cache_key(source, device, options)
    return frozenset(json.loads(cached_fact("alignment", (key, divisor), compute)))


def _that_widen(fn: Function, parameters: list[int], divisor: int) -> list[int]:
    """Takes the fact from one parameter after the other, unless an access becomes narrower; returns
    those that keep it."""
    has = [facts.get("divisibility") == divisor for facts in fn.arg_attrs]
    widths = access_widths.access_widths(fn, WIDEST)
    keep: list[int] = []
    for parameter in sorted({p for p, known in zip(parameters, has, strict=True) if known}):
        arguments = [i for i, p in enumerate(parameters) if p == parameter and has[i]]
        for i in arguments:
            del fn.arg_attrs[i]["divisibility"]
        if access_widths.access_widths(fn, WIDEST) != widths:
            keep.append(parameter)
            for i in arguments:
                fn.arg_attrs[i]["divisibility"] = divisor
    return keep
