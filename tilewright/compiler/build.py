"""Making a compiled kernel: front end, tile passes, target.

Loaded by the driver when a kernel is not in the store, so that a process whose kernels all are
never loads the passes.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tilewright.analysis.pointers import base_of
from tilewright.base import knobs
from tilewright.base.diagnostics import InternalCompilerError, IRError, TritonError
from tilewright.base.garbage import collector_paused
from tilewright.base.signals import from_signal_handler
from tilewright.compiler.artifact import CompiledKernel, Times
from tilewright.compiler.overrides import StageOverrideError
from tilewright.compiler.pipeline import pipeline
from tilewright.compiler.reproducer import Reproducer
from tilewright.compiler.source import MAX_NAME, Source, runtime_arguments
from tilewright.compiler.version import VERSION
from tilewright.ir.core import Function, Module
from tilewright.ir.parser import parse_module
from tilewright.ir.passes import Observer, PassContext, Step, Verifier, run
from tilewright.ir.printer import print_module
from tilewright.ir.types import Pointer, Tile, Type
from tilewright.ir.verify import verify_module
from tilewright.ops.atomic import Writing
from tilewright.ops.memory import Store
from tilewright.passes.verify_layouts import LayoutVerifier
from tilewright.targets.protocol import (
    GPUTarget,
    HasMachine,
    Lowered,
    Stage,
    Target,
    options_dict,
)
from tilewright.targets.registry import target as find_target


class Elsewhere(threading.local):
    """Where the present thread has its modules compiled, if not here (`compiler/workers.py`).

    Attributes:
        lower: gives what `lower` would, or None for a module that has to be compiled here.
    """

    lower: Callable[[Module, GPUTarget, Any], Lowered | None] | None = None


elsewhere = Elsewhere()


@collector_paused()
def build(
    source: Source,
    device: GPUTarget,
    options: Any,
    key: str,
    replaced: Mapping[str, bytes] | None = None,
) -> CompiledKernel:
    """Compile a source. The key names the kernel; `replaced` is what takes the place of stages."""
    target = find_target(device)
    begin = time.perf_counter()
    module = source.make_ir(target.frontend_options(options))
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
    made = time.perf_counter()
    kernel = CompiledKernel({"source": source.text, **lowered.stages}, metadata, source)
    stage = list(lowered.stages)[-1]
    kernel.times = Times(int(1e6 * (parsed - begin)), [(stage, int(1e6 * (made - parsed)))])
    return kernel


def _with_replaced(
    module: Module, target: Target, options: Any, replaced: Mapping[str, bytes]
) -> Lowered:
    """The same with what a user puts in the place of stages: what goes wrong is told to him.

    Raises:
        StageOverrideError: it does not compile, or is in the place of nothing.
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
    # Stages that are made of others for readers only may lie beside them, copied with the rest.
    for stage in replaced.keys() - ctx.taken:
        try:
            target.derive(stage, lowered.stages, lowered.metadata)
        except KeyError:
            raise StageOverrideError(
                f"compilation.override replaces the stage {stage!r} of {name}, which "
                f"{target.name} does not make; its stages are {', '.join(lowered.stages)}"
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
    """Run tile passes, then the target, on a module.

    Args:
        ctx: collects remarks; by default a new one, which nobody reads.

    Between passes the IR is verified when the knob `compilation.verify` says so.
    """
    ctx = ctx or context_for(target, options)
    checks: list[Observer] = []
    if knobs.compilation.verify:
        checks = [Verifier(), LayoutVerifier(ctx)]
    run(module, steps, ctx, [*observers, *checks])
    text = ctx.replaced_text("ttir")
    if text is not None:
        module = replaced_module(text, module, "ttir")
    stages: dict[str, Stage] = {"ttir": text or print_module(module)}
    entry = module.entry
    facts = {
        "arg_names": entry.arg_names,
        "written": written_arguments(entry),
        "may_write": maybe_written_arguments(entry),
    }
    lowered = target.compile(module, ctx, options)
    return Lowered(stages | lowered.stages, facts | lowered.metadata)


def replaced_module(text: str, module: Module, stage: str) -> Module:
    """The module of a text that replaces one.

    Raises:
        IRError: it is no valid tile IR.
    """
    found = parse_module(text, stage)
    verify_module(found)
    found.entry.arg_names = module.entry.arg_names
    return found


def context_for(target: Target, options: Any, *, explain: bool = False) -> PassContext:
    """What passes are told of a compilation."""
    machine = target.machine(options) if isinstance(target, HasMachine) else None
    return PassContext(target.features(), options_dict(options), machine=machine, explain=explain)


def written_arguments(fn: Function) -> list[int]:
    """Indices of the pointer arguments that the function is known to write through."""
    written: set[int] = set()
    for op in fn.walk():
        if isinstance(op, Store | Writing):
            base = base_of(op.ptr)
            if base.owner is fn.body:
                written.add(base.index)
    return sorted(written)


def maybe_written_arguments(fn: Function) -> list[int]:
    """Indices of the pointer arguments that the function may write through: all of them where it
    writes through a pointer of unknown origin."""
    written: set[int] = set()
    for op in fn.walk():
        if op.regions or not op.writes():
            continue
        for base in [base_of(operand) for operand in op.operands if _points(operand.type)]:
            if base.owner is not fn.body:
                return [arg.index for arg in fn.args if _points(arg.type)]
            written.add(base.index)
    return sorted(written)


def _points(type: Type) -> bool:
    return isinstance(type.element if isinstance(type, Tile) else type, Pointer)


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
    # Through JSON, so that a kernel is the same whether it was just made or comes from the store.
    plain = json.loads(json.dumps(values, default=_plain))
    return {**plain, "target": device}


def _plain(value: Any) -> Any:
    return sorted(value) if isinstance(value, set | frozenset) else repr(value)


# -- failures -----------------------------------------------------------------------------------


class _Progress:
    """An observer that knows how many steps are complete."""

    def __init__(self) -> None:
        self.complete = 0

    def before(self, step: Step, module: Module) -> None:
        pass

    def after(self, step: Step, module: Module, changed: bool) -> None:
        self.complete += 1


def _is_users(error: Exception) -> bool:
    """Whether the kernel, or the program, is to blame. Invalid IR is the compiler's fault."""
    is_kernels = isinstance(error, TritonError) and not isinstance(error, IRError)
    return is_kernels or from_signal_handler(error)


def _internal_error(
    source: Source, device: GPUTarget, options: Any, progress: _Progress, error: Exception
) -> InternalCompilerError:
    target = find_target(device)
    steps = [s for s in pipeline(target) if not s.when or s.when in target.features()]
    rest = steps[progress.complete :]
    failing = rest[0].name if rest else device.backend
    problem = f"{type(error).__name__}: {error}"
    try:
        reproducer = Reproducer(
            source.name,
            device,
            options_dict(options),
            [step.name for step in rest],
            _module_before(source, target, options, steps[: progress.complete]),
            problem,
            {"tilewright": VERSION, "target": target.key()},
        )
        folder = knobs.compilation.reproducer_dir
        path = reproducer.write(Path(folder) if folder else knobs.cache.folder() / "reproducers")
    except Exception as second:  # the first error matters more than why it can't be saved
        return InternalCompilerError(source.name, failing, problem, None, repr(second))
    return InternalCompilerError(source.name, failing, problem, path)


def _module_before(source: Source, target: Target, options: Any, steps: list[Step]) -> Module:
    """The module after the first steps, made anew: nothing is kept while all goes well."""
    module = source.make_ir(target.frontend_options(options))
    run(module, steps, context_for(target, options))
    return module
