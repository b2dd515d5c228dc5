"""Compilation on a cache miss: front end, tile passes, target.

A separate module, so that a process whose kernels are all cached never imports the passes.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilewright.analysis.accessed_arguments import argument_accesses, first_stores
from tilewright.base import knobs
from tilewright.base.diagnostics import InternalCompilerError, IRError, TritonError
from tilewright.base.garbage import collector_paused
from tilewright.base.lazy_import import lazy_import
from tilewright.base.signals import from_signal_handler
from tilewright.compiler.artifact import CompiledKernel, Times
from tilewright.compiler.disabled_passes import disabled_passes
from tilewright.compiler.overrides import StageOverrideError
from tilewright.compiler.pipeline import pipeline
from tilewright.compiler.source import MAX_NAME, Source, runtime_arguments
from tilewright.compiler.version import VERSION
from tilewright.ir.core import Module
from tilewright.ir.passes import Observer, PassContext, Step, Verifier, run
from tilewright.ir.stages import tile_ir_stages
from tilewright.ir.verify import verify_module
from tilewright.targets.protocol import (
    TILE_IR,
    GPUTarget,
    HasGpuMachine,
    Lowered,
    Target,
    checked,
    options_dict,
)
from tilewright.targets.registry import derived, provider_of
from tilewright.targets.registry import target as find_target

if TYPE_CHECKING:
    from tilewright.compiler import reproducer
    from tilewright.passes import verify_layouts
else:
    reproducer = lazy_import("tilewright.compiler.reproducer")
    verify_layouts = lazy_import("tilewright.passes.verify_layouts")


class Elsewhere(threading.local):
    """The substitute for `lower` in the current thread, if any (`compiler/workers.py`).

    Attributes:
        lower: returns what `lower` would, or None if the module must be compiled in this process.
    """

    lower: Callable[[Module, GPUTarget, Any], Lowered | None] | None = None


elsewhere = Elsewhere()


def build(
    source: Source,
    device: GPUTarget,
    options: Any,
    key: str,
    replaced: Mapping[str, bytes] | None = None,
) -> CompiledKernel:
    """Compile a source. The key names the kernel; `replaced` has the overridden stages."""
    with collector_paused():  # not as a decorator, whose frame errors of kernels would show
        return _build(source, device, options, key, replaced)


def _build(
    source: Source,
    device: GPUTarget,
    options: Any,
    key: str,
    replaced: Mapping[str, bytes] | None,
) -> CompiledKernel:
    target = find_target(device)
    begin = time.perf_counter()
    module = source.module(target.frontend_options(options))
    parsed = time.perf_counter()
    if knobs.compilation.verify:
        verify_module(module)
    progress = _Progress()
    try:
        if replaced:
            lowered = _with_replaced(module, target, options, replaced)
        else:
            lowered = elsewhere.lower and elsewhere.lower(module, device, options)
        if not lowered:
            lowered = lower(module, target, options, pipeline(target), [progress])
    except Exception as error:
        if _is_users(error):
            raise
        raise _internal_error(source, device, options, progress, error) from error
    metadata = _metadata(source, device, options, lowered, key)
    built = time.perf_counter()
    kernel = CompiledKernel({"source": source.text, **lowered.stages}, metadata, source)
    stage = list(lowered.stages)[-1]
    kernel.times = Times(int(1e6 * (parsed - begin)), [(stage, int(1e6 * (built - parsed)))])
    return kernel


def _with_replaced(
    module: Module, target: Target, options: Any, replaced: Mapping[str, bytes]
) -> Lowered:
    """Compile with overridden stages, and attribute failures to the overriding files.

    Raises:
        StageOverrideError: a stage does not compile, or does not exist.
    """
    ctx = context_for(target, options)
    ctx.replaced = replaced
    name, given = module.entry.name, ", ".join(sorted(replaced))
    try:
        lowered = lower(module, target, options, pipeline(target), ctx=ctx)
    except Exception as error:
        if from_signal_handler(error):
            raise
        raise StageOverrideError(
            f"{name} does not compile with the stages that compilation.override replaces ({given}):"
            f" {type(error).__name__}: {error}"
        ) from error
    # Derived stages, made for readers only, may have been copied to the folder with the rest.
    for stage in replaced.keys() - ctx.taken:
        try:
            derived(target, stage, lowered.stages, lowered.metadata)
        except KeyError:
            raise StageOverrideError(
                f"compilation.override replaces the stage {stage!r} of {name}, which "
                f"{target.name} does not produce; its stages are {', '.join(lowered.stages)}"
            ) from None
    return lowered


def lower(
    module: Module,
    target: Target,
    options: Any,
    steps: Iterable[Step],
    observers: Sequence[Observer] = (),
    ctx: PassContext | None = None,
) -> Lowered:
    """Run the tile passes, then the target, on a module.

    Args:
        ctx: collects remarks; a new one by default.

    The IR is verified after each pass if the setting `compilation.verify` is on.
    """
    ctx = ctx or context_for(target, options)
    checks: list[Observer] = []
    if knobs.compilation.verify:
        checks = [Verifier(), verify_layouts.LayoutVerifier(ctx)]
    run(module, steps, ctx, [*observers, *checks])
    module, stages = tile_ir_stages(module, ctx, getattr(target, "tile_ir", TILE_IR))
    facts = {
        "arg_names": module.entry.arg_names,
        "written": sorted(first_stores(module.entry)),
        "may_write": argument_accesses(module).written,
    }
    lowered = checked(target.compile(module, ctx, options), target)
    return Lowered({**stages, **lowered.stages}, facts | lowered.metadata)


def context_for(target: Target, options: Any, *, explain: bool = False) -> PassContext:
    """The pass context of a compilation."""
    machine = target.gpu_machine(options) if isinstance(target, HasGpuMachine) else None
    return PassContext(
        target.features(),
        options_dict(options),
        machine=machine,
        explain=explain,
        disabled=disabled_passes(target),
    )


def _metadata(
    source: Source, device: GPUTarget, options: Any, lowered: Lowered, key: str
) -> dict[str, Any]:
    values = {
        **options_dict(options),
        "signature": source.signature,
        "arguments": list(runtime_arguments(list(source.signature.values()))),
        "triton_version": VERSION,
        **lowered.metadata,
        "source_name": source.name[:MAX_NAME],
        "hash": key,
    }
    # Through JSON, so that a compiled kernel equals a cached one.
    plain = json.loads(json.dumps(values, default=_plain))
    return {**plain, "target": device}


def _plain(value: Any) -> Any:
    return sorted(value) if isinstance(value, set | frozenset) else repr(value)


# -- failures -----------------------------------------------------------------------------------


class _Progress:
    """A pass observer that counts completed steps."""

    def __init__(self) -> None:
        self.complete = 0

    def before(self, step: Step, module: Module) -> None:
        pass

    def after(self, step: Step, module: Module, changed: bool) -> None:
        self.complete += 1


def _is_users(error: Exception) -> bool:
    """Whether the error is in the kernel or the program. Invalid IR is a compiler bug."""
    is_kernels = isinstance(error, TritonError) and not isinstance(error, IRError)
    return is_kernels or from_signal_handler(error)


def _internal_error(
    source: Source, device: GPUTarget, options: Any, progress: _Progress, error: Exception
) -> InternalCompilerError:
    target = find_target(device)
    steps = [s for s in pipeline(target) if not s.when or s.when in target.features()]
    rest = steps[progress.complete :]
    failing, provider = (
        (rest[0].name, "") if rest else (device.backend, provider_of(device.backend))
    )
    problem = f"{type(error).__name__}: {error}"
    try:
        made = reproducer.Reproducer(
            source.name,
            device,
            options_dict(options),
            [step.name for step in rest],
            _module_before(source, target, options, steps[: progress.complete]),
            problem,
            {"tilewright": VERSION, "target": target.key()},
        )
        folder = knobs.compilation.reproducer_dir
        path = made.write(Path(folder or Path(knobs.cache.folder(), "reproducers")))
    except Exception as second:  # the first error matters more than why it cannot be saved
        return InternalCompilerError(source.name, failing, problem, None, repr(second), provider)
    return InternalCompilerError(source.name, failing, problem, path, provider=provider)


def _module_before(source: Source, target: Target, options: Any, steps: list[Step]) -> Module:
    """The module before the failing step, recomputed, as no intermediate IR is kept."""
    module = source.module(target.frontend_options(options))
    run(module, steps, context_for(target, options))
    return module
