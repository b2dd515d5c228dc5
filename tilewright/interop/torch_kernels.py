"""Inductor's tile kernels on the CPU: options that Inductor does not set, and shorter launches.

A kernel's description is written where it is generated, and read where it is compiled, which may be
a compile worker. Generated modules therefore call `adapt_autotuner` there. Nothing has an effect on
releases of torch that lack the functions.
"""

from __future__ import annotations

from typing import Any

from tilewright.runtime.devices.cpu import thread_count

OPTION = "single_threaded"

CODE = f"""
from {__name__} import adapt_autotuner
adapt_autotuner()
"""
"""What generated modules begin with."""

TAG = "tilewright 1"
"""Part of the keys of torch's caches: changes whenever generated modules of earlier releases cannot
be used any more."""


def describe_kernels() -> None:
    """Have descriptions of generated kernels state whether launches on the CPU use one thread.

    Inductor's C++ kernels are generated for a number of threads, too: for one thread, they have
    ordinary additions in place of atomic ones.
    """
    from torch._inductor.codegen.triton import TritonKernel

    kernel: Any = TritonKernel
    describe: Any = getattr(kernel, "inductor_meta_common", None)
    imports: Any = getattr(kernel, "gen_common_triton_imports", None)
    if describe is None or imports is None or _is_ours(describe):
        return

    def inductor_meta_common(cls: Any) -> dict[str, Any]:
        return {**describe.__func__(cls), OPTION: thread_count() == 1}

    def gen_common_triton_imports(cls: Any) -> str:
        return imports.__func__(cls) + CODE

    kernel.inductor_meta_common = classmethod(inductor_meta_common)
    kernel.gen_common_triton_imports = classmethod(gen_common_triton_imports)
    _tag_caches()


def _tag_caches() -> None:
    from torch.compiler import config

    settings: Any = config
    tag: str | None = getattr(settings, "cache_key_tag", None)
    if tag is not None:
        settings.cache_key_tag = f"{tag} {TAG}".strip()


def adapt_autotuner() -> None:
    """Adapt Inductor's class of kernels, once in a process."""
    from torch._inductor.runtime.triton_heuristics import CachingAutotuner

    _set_options(CachingAutotuner)
    _shorten_launches(CachingAutotuner)


def _set_options(autotuner: Any) -> None:
    """Compile Inductor's kernels with atomic additions for one thread, where they are described so.

    Other kernels, and those of the program itself, can run on any number of threads.
    """
    create: Any = getattr(autotuner, "_create_compile_options", None)
    if create is None or _is_ours(create):
        return

    def create_compile_options(self: Any, *rest: Any, **named: Any) -> dict[str, Any]:
        options = create(self, *rest, **named)
        meta = self.inductor_meta
        if self.device_props.type == "cpu" and meta.get("atomic_add_found") and meta.get(OPTION):
            options[OPTION] = True
        return options

    autotuner._create_compile_options = create_compile_options


LAUNCH = """
def run({parameters}, *, stream, benchmark_run=False):
    if (
        benchmark_run
        or profiler._is_profiler_enabled
        or debug_mode()
        or kernel._cached_launcher is not launcher
    ):
        return slow({parameters}, stream=stream, benchmark_run=benchmark_run)
    launcher({parameters}, stream)
"""


def _shorten_launches(autotuner: Any) -> None:
    """Give a kernel that has been launched a method `run` for its parameters.

    The class's own handles any parameters, which takes as long as the launch on the CPU.
    """
    build: Any = getattr(autotuner, "_build_fast_launcher", None)
    if build is None or _is_ours(build):
        return

    def build_fast_launcher(self: Any, launcher: Any) -> Any:
        built = build(self, launcher) or launcher
        if self.device_props.type == "cpu" and type(self) is autotuner:
            self.run = _run_of(self, built)
        return built

    autotuner._build_fast_launcher = build_fast_launcher


def _run_of(kernel: Any, launcher: Any) -> Any:
    from torch.autograd import profiler
    from torch.utils._debug_mode import get_active_debug_mode

    code = launcher.__code__
    *names, _ = code.co_varnames[: code.co_argcount]  # the last is the stream
    scope: dict[str, Any] = {
        "kernel": kernel,
        "launcher": launcher,
        "profiler": profiler,
        "debug_mode": get_active_debug_mode,
        "slow": type(kernel).run.__get__(kernel),
    }
    exec(LAUNCH.format(parameters=", ".join(names)), scope)
    return scope["run"]


def _is_ours(function: Any) -> bool:
    return function.__module__ == __name__
