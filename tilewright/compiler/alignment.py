"""Whether variants for arguments that are divisible by 8 only, or by 32, are worth compiling.

Kernels are specialised for divisibility by 16, as Triton's are. Rows of 1000 elements of 16 bits
are aligned to 16 bytes too: a variant that knows their length to be divisible by 8 reads them in
vectors, or through tensor maps. Where one instruction moves 32 bytes, a variant for addresses that
are divisible by 32 has half the accesses. For most arguments this makes no difference, and another
variant would only cost another compilation.
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

OTHERWISE = {8: 1, 32: 16}
"""The divisibilities that are in question, and what is known otherwise."""


def parameters_that_widen(
    source: Source, device: GPUTarget, target: Target, options: object
) -> frozenset[int]:
    """The parameters, by position, whose divisibility makes some access of memory wider.

    Runs the front end and the first passes, once for all processes that share a cache.

    Args:
        source: the kernel, with a divisibility of some arguments that is in question.
        device, target, options: the GPU that it is compiled for.

    Raises:
        CompilationError: the kernel is invalid.
    """

    def compute() -> str:
        module = source.module(target.frontend_options(options))
        ctx = build.context_for(target, options)
        passes.run(module, pipeline.STEPS, ctx)
        parameters = [path[0] for path, _ in runtime_arguments(list(source.signature.values()))]
        return json.dumps(_that_widen(module.entry, parameters, ctx.gpu.access_bytes))

    key = cache_key(source, device, options)
    return frozenset(json.loads(cached_fact("alignment", (key,), compute)))


def _that_widen(fn: Function, parameters: list[int], limit: int) -> list[int]:
    """Takes the fact from one parameter after the other, unless an access becomes narrower; returns
    those that keep it."""
    known: list[int] = [facts.get("divisibility", 1) for facts in fn.arg_attrs]
    widths = access_widths.access_widths(fn, limit)
    doubtful: dict[int, list[int]] = {}  # the arguments of a parameter
    for i, (parameter, divisor) in enumerate(zip(parameters, known, strict=True)):
        if divisor in OTHERWISE:
            doubtful.setdefault(parameter, []).append(i)
    keep: list[int] = []
    for parameter, arguments in sorted(doubtful.items()):
        for i in arguments:
            fn.arg_attrs[i]["divisibility"] = OTHERWISE[known[i]]
        if access_widths.access_widths(fn, limit) != widths:
            keep.append(parameter)
            for i in arguments:
                fn.arg_attrs[i]["divisibility"] = known[i]
    return keep
