"""Compilation in threads, for GPU kernels that Inductor compiles in the program's own process.

Inductor's compile workers take seconds to start, since they import torch. Until they have, it
compiles the configurations of kernels one after the other. Here threads compile all kernels of a
module, and Inductor waits for their results at its end, as it does for those of the workers. Most
of the time is spent in the assembler, a separate process that does not hold the GIL.

Has no effect on releases of torch that lack the patched functions.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from functools import cache, wraps
from typing import Any

from tilewright.base import knobs
from tilewright.interop.after_import import is_defined_in

_started: dict[int, tuple[Any, Future[Any]]] = {}
"""Compilations that Inductor has not taken, by the id of a configuration, which it keeps alive."""


def compile_in_threads() -> None:
    """Adapt Inductor's functions that compile kernels, once in a process."""
    from torch._inductor import async_compile
    from torch._inductor.runtime import triton_heuristics

    compiler: Any = async_compile.AsyncCompile
    autotuner: Any = triton_heuristics.CachingAutotuner
    compile_kernel: Any = getattr(compiler, "triton", None)
    precompile: Any = getattr(autotuner, "_precompile_config", None)
    names = ("_load_triton_kernel_from_source", "CompiledTritonKernels", "LambdaFuture")
    if precompile is None or not all(hasattr(async_compile, name) for name in names):
        return
    if compile_kernel is None or is_defined_in(compile_kernel, __file__):
        return
    autotuner._precompile_config = _taking_results(precompile)
    compiler.triton = _starting_threads(compile_kernel, precompile, async_compile)


def _taking_results(precompile: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """The method that compiles a configuration, which returns a thread's result."""

    @wraps(precompile)
    def precompile_config(self: Any, config: Any) -> Any:
        started = _started.pop(id(config), None)
        return precompile(self, config) if started is None else started[1].result()

    return precompile_config


def _starting_threads(
    compile_kernel: Callable[..., Any], precompile: Callable[[Any, Any], Any], module: Any
) -> Callable[..., Any]:
    """The method by which generated modules compile a kernel.

    Args:
        module: Inductor's module of `AsyncCompile`.
    """

    @wraps(compile_kernel)
    def triton(
        self: Any, kernel_name: str, source_code: str, device_str: str = "cuda", **named: Any
    ) -> Any:
        threads = module.get_compile_threads()
        if (
            device_str != "cuda"
            or threads <= 1
            or knobs.runtime.interpret
            or module.CompiledTritonKernels.get(source_code) is not None
            or self.use_process_pool()
        ):
            return compile_kernel(self, kernel_name, source_code, device_str, **named)
        kernel = module._load_triton_kernel_from_source(kernel_name, source_code)
        for config in kernel.configs or ():
            context = copy_context()
            future = _threads(threads).submit(context.run, precompile, kernel, config)
            _started[id(config)] = config, future

        def finish() -> Any:
            here = module.AsyncCompile()
            here.use_process_pool = lambda: False
            return compile_kernel(here, kernel_name, source_code, device_str, **named)

        return module.LambdaFuture(finish)

    return triton


@cache
def _threads(count: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(count, "tilewright-compile")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_threads.cache_clear)
