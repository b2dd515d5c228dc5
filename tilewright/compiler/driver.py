"""From a source to a compiled kernel: the store, else front end, tile passes, target."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import fields
from pathlib import Path
from typing import Any, Protocol

from tilewright.base import knobs
from tilewright.base.diagnostics import IRError, TritonError
from tilewright.compiler.artifact import CompiledKernel
from tilewright.compiler.pipeline import pipeline
from tilewright.compiler.reproducer import InternalCompilerError, Reproducer
from tilewright.compiler.source import MAX_NAME, IRSource, Source, digest, runtime_arguments
from tilewright.compiler.version import VERSION, compiler_key
from tilewright.ir.analysis.pointers import base_of
from tilewright.ir.core import Function, Module
from tilewright.ir.passes import Observer, PassContext, Step, Verifier, run
from tilewright.ir.printer import print_module
from tilewright.ir.verify import verify_module
from tilewright.ops.atomic import AtomicCAS, AtomicRMW
from tilewright.ops.memory import Store
from tilewright.targets.protocol import GPUTarget, Lowered, Stage, Target
from tilewright.targets.registry import target as find_target


class KernelStore(Protocol):
    """Where compiled kernels are kept between processes. None of this raises."""

    def get(self, key: str) -> dict[str, bytes] | None: ...
    def put(self, key: str, files: dict[str, bytes]) -> None: ...
    def compiling(self, key: str) -> AbstractContextManager[Any]:
        """Held while a kernel is made, so that others wait for it instead of making it too."""
        ...


class NoStore:
    """Keeps nothing."""

    def get(self, key: str) -> dict[str, bytes] | None:
        return None

    def put(self, key: str, files: dict[str, bytes]) -> None:
        pass

    def compiling(self, key: str) -> AbstractContextManager[Any]:
        return nullcontext()


class StoreOf(Protocol):
    """Gives the store to use now; settings may change it."""

    def __call__(self) -> KernelStore: ...


_store_of: StoreOf = NoStore


def install_store(store_of: StoreOf) -> None:
    """Say where compiled kernels are kept; called once, by the runtime."""
    global _store_of
    _store_of = store_of


def compile(
    src: Source | str | Path,
    target: GPUTarget | str | Target | None = None,
    options: Mapping[str, Any] | None = None,
) -> CompiledKernel:
    """Compile a kernel for a target, or take it from the disk cache. No device is needed.

        compile(ASTSource(kernel, {"x": "*fp32", "n": "i32"}), target="cpu")

    Args:
        src: an `ASTSource`, an `IRSource`, or the path of a file that holds tile IR.
        target: a `GPUTarget` or the name of one; by default the CPU.
        options: compile options by name, such as ``{"num_warps": 8}``.

    Raises:
        CompilationError: the kernel is wrong.
        KeyError: an option that the target does not know.
        InternalCompilerError: the compiler failed; the message names a reproducer.
    """
    source = IRSource(src) if isinstance(src, str | Path) else src
    compiler = find_target(target)
    parsed = compiler.parse_options({**source.parse_options(), **(options or {})})
    return compile_source(source, device_of(target, compiler), parsed)


def device_of(target: GPUTarget | str | Target | None, compiler: Target) -> GPUTarget:
    """The plain description of a target, from which `registry.target` finds it again."""
    return target if isinstance(target, GPUTarget) else GPUTarget(compiler.name)


def compile_source(source: Source, device: GPUTarget, options: Any) -> CompiledKernel:
    """Like `compile`, with options that the target has parsed."""
    key = cache_key(source, device, options)
    if not source.cacheable():
        return _build(source, device, options, key)
    store = _store_of()
    found = None if knobs.compilation.always_compile else _load(store, key, source)
    if found is not None:
        return found
    with store.compiling(key):
        # Another thread or process may have made it while this one waited.
        found = None if knobs.compilation.always_compile else _load(store, key, source)
        if found is None:
            found = _build(source, device, options, key)
            store.put(key, found.files(binary_only=knobs.compilation.store_binary_only))
    return found


def cache_key(source: Source, device: GPUTarget, options: Any) -> str:
    """What names the compiled kernel: a hash of all that its code depends on."""
    settings = sorted((k, str(v)) for k, v in knobs.cache_key_values().items())
    return digest(
        compiler_key(), source.hash(), find_target(device).key(), repr(options), str(settings)
    )


def _load(store: KernelStore, key: str, source: Source) -> CompiledKernel | None:
    files = store.get(key)
    if files is None:
        return None
    try:
        return CompiledKernel.from_files(files, source)
    except (ValueError, KeyError, TypeError):
        return None  # written by something else; it will be replaced


# -- making it ----------------------------------------------------------------------------------


def _build(source: Source, device: GPUTarget, options: Any, key: str) -> CompiledKernel:
    target = find_target(device)
    module = source.make_ir(target.frontend_options(options))
    if knobs.compilation.verify:
        verify_module(module)
    progress = _Progress()
    try:
        lowered = lower(module, target, options, pipeline(target), [progress])
    except Exception as error:
        if _is_users(error):
            raise
        raise _internal_error(source, device, options, progress, error) from error
    metadata = _metadata(source, device, options, lowered, key)
    kernel = CompiledKernel({"source": source.text, **lowered.stages}, metadata, source)
    if knobs.compilation.dump:
        dump(kernel)
    return kernel


def lower(
    module: Module,
    target: Target,
    options: Any,
    steps: Iterable[Step],
    observers: Sequence[Observer] = (),
) -> Lowered:
    """Run tile passes, then the target, on a module.

    Between passes the IR is verified when the knob `compilation.verify` says so.
    """
    ctx = PassContext(features=target.features(), options=options_dict(options))
    checks: list[Observer] = [Verifier()] if knobs.compilation.verify else []
    run(module, steps, ctx, [*observers, *checks])
    stages: dict[str, Stage] = {"ttir": print_module(module)}
    facts = {"arg_names": module.entry.arg_names, "written": written_arguments(module.entry)}
    lowered = target.compile(module, ctx, options)
    return Lowered(stages | lowered.stages, facts | lowered.metadata)


def written_arguments(fn: Function) -> list[int]:
    """Indices of the pointer arguments that the function is known to write through."""
    written: set[int] = set()
    for op in fn.walk():
        if isinstance(op, Store | AtomicRMW | AtomicCAS):
            base = base_of(op.ptr)
            if base.owner is fn.body:
                written.add(base.index)
    return sorted(written)


def dump(kernel: CompiledKernel) -> Path:
    """Write the stages of a kernel to a folder of its own below the knob `cache.dump_dir`."""
    root = knobs.cache.dump_dir
    folder = (Path(root) if root else knobs.cache.folder() / "dump") / kernel.hash
    folder.mkdir(parents=True, exist_ok=True)
    for stage, content in kernel.asm.items():
        path = folder / f"{kernel.metadata.source_name}.{stage}"
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return folder


def options_dict(options: Any) -> dict[str, Any]:
    """The fields of an options dataclass."""
    return {f.name: getattr(options, f.name) for f in fields(options)}


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
    """Whether the kernel is to blame. Invalid IR is the compiler's fault."""
    return isinstance(error, TritonError) and not isinstance(error, IRError)


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
    run(module, steps, PassContext(target.features(), options_dict(options)))
    return module
