"""From a source to a compiled kernel, from the disk cache or newly compiled (`build.py`)."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Protocol

from tilewright.base import knobs
from tilewright.base.lazy_import import lazy_import
from tilewright.compiler.artifact import CompiledKernel, Times
from tilewright.compiler.overrides import dump, stage_overrides
from tilewright.compiler.source import ASTSource, IRSource, Source, digest
from tilewright.compiler.version import compiler_key
from tilewright.targets.protocol import GPUTarget, Target
from tilewright.targets.registry import described, parsed_options
from tilewright.targets.registry import target as find_target

if TYPE_CHECKING:
    from tilewright.compiler import build
else:
    build = lazy_import("tilewright.compiler.build")


class KernelStore(Protocol):
    """The store of compiled kernels shared between processes. Its methods do not raise."""

    def get(self, key: str) -> dict[str, bytes] | None: ...
    def put(self, key: str, files: dict[str, bytes]) -> None: ...
    def path(self, key: str) -> str | None:
        """The file of a key, whether or not it exists; None if nothing is stored."""
        ...

    def compiling(self, key: str) -> AbstractContextManager[Any]:
        """Held during compilation, so that others wait for the result instead of repeating it."""
        ...


class NoStore:
    """A store that stores nothing."""

    def get(self, key: str) -> dict[str, bytes] | None:
        return None

    def put(self, key: str, files: dict[str, bytes]) -> None:
        pass

    def path(self, key: str) -> str | None:
        return None

    def compiling(self, key: str) -> AbstractContextManager[Any]:
        return nullcontext()


class StoreOf(Protocol):
    """Returns the current store, which depends on settings."""

    def __call__(self) -> KernelStore: ...


_store_of: StoreOf = NoStore


def install_store(store_of: StoreOf) -> None:
    """Set the function that returns the store. The runtime calls this once at import."""
    global _store_of
    _store_of = store_of


def compile(
    src: Source | str | os.PathLike[str],
    target: GPUTarget | str | Target | None = None,
    options: Mapping[str, Any] | None = None,
    _env_vars: Mapping[str, str] | None = None,  # Triton's; the cache key has the settings instead
) -> CompiledKernel:
    """Compile a kernel for a target, or load it from the disk cache. No device is needed.

        compile(ASTSource(kernel, {"x": "*fp32", "n": "i32"}), target="cpu")

    Args:
        src: an `ASTSource`, an `IRSource`, or the path of a file that holds tile IR.
        target: a `GPUTarget`, or a text such as "cpu" or "cuda:90"; by default the CPU.
        options: compile options by name, such as ``{"num_warps": 8}``.

    Raises:
        TypeError: `src` is none of these.
        CompilationError: the kernel is wrong.
        KeyError: an option that the target does not know.
        InternalCompilerError: the compiler failed; the message names a reproducer.
    """
    source = IRSource(src) if isinstance(src, str | os.PathLike) else src
    if not isinstance(source, ASTSource | IRSource):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(
            f"compile takes a kernel with its types, ASTSource(kernel, {{'x': '*fp32', 'n': 'i32'}}"
            f"), or the path of a file of tile IR, not {source!r}"
        )
    compiler = find_target(target)
    parsed = parsed_options(compiler, {**source.parse_options(), **(options or {})})
    return compile_source(source, device_of(target, compiler), parsed)


def device_of(target: GPUTarget | str | Target | None, compiler: Target) -> GPUTarget:
    """The description of a target from which `registry.target` restores it."""
    if isinstance(target, str):
        return described(target)
    return target if isinstance(target, GPUTarget) else GPUTarget(compiler.name)


def compile_source(source: Source, device: GPUTarget, options: Any) -> CompiledKernel:
    """Like `compile`, with options that the target has parsed."""
    begin = time.perf_counter()
    kernel, cache_hit = _found_or_built(source, device, options)
    if knobs.compilation.dump:
        dump(kernel, source, device, options)
    listener = knobs.compilation.listener
    if listener is not None:
        listener(
            src=source,
            metadata=dict(kernel.metadata),
            metadata_group=kernel.metadata_group,
            times=kernel.times or Times.of_cache_hit(time.perf_counter() - begin),
            cache_hit=cache_hit,
        )
    return kernel


def _found_or_built(source: Source, device: GPUTarget, options: Any) -> tuple[CompiledKernel, bool]:
    """The kernel, and whether it was a cache hit."""
    key = cache_key(source, device, options)
    replaced = stage_overrides(source, device, options) if knobs.compilation.override else {}
    if replaced or not source.cacheable():
        return build.build(source, device, options, key, replaced), False
    store = _store_of()
    found = None if knobs.compilation.always_compile else _load(store, key, source)
    if found is not None:
        return found, True
    with store.compiling(key):
        # Another thread or process may have compiled it while this one waited.
        found = None if knobs.compilation.always_compile else _load(store, key, source)
        if found is not None:
            return found, True
        found = build.build(source, device, options, key)
        store.put(key, found.files(binary_only=knobs.compilation.store_binary_only))
        found.stored_at = store.path(key)
    return found, False


def cache_key(source: Source, device: GPUTarget, options: Any) -> str:
    """The cache key: a hash of everything that the code depends on. The target's name is a part of
    it, as targets of different packages may have equal keys."""
    settings = sorted((k, str(v)) for k, v in knobs.cache_key_values().items())
    target = f"{device.backend} {find_target(device).key()}"
    return digest(compiler_key(), source.hash(), target, repr(options), str(settings))


def _load(store: KernelStore, key: str, source: Source) -> CompiledKernel | None:
    files = store.get(key)
    if files is None:
        return None
    try:
        result = CompiledKernel.from_files(files, source)
    except (ValueError, KeyError, TypeError):
        return None  # not an entry of this format; it is overwritten later
    result.stored_at = store.path(key)
    return result
