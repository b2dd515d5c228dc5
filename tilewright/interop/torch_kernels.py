"""Inductor's tile kernels on the CPU: options that Inductor does not set, blocks of reductions, and
shorter launches.

A kernel's description is written where it is generated, and read where it is compiled, which may be
a compile worker. Generated modules therefore call `adapt_autotuner` there. Nothing has an effect on
releases of torch that lack the functions.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
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
    from torch._inductor.runtime import triton_heuristics

    _set_options(triton_heuristics.CachingAutotuner)
    _shorten_launches(triton_heuristics.CachingAutotuner)
    _choose_blocks(triton_heuristics)


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


LONGEST_REDUCTION = 1024
"""The longest reduction that is compiled without a loop."""

LEAST_BLOCK = 16
"""The least length of its block along another axis: a vector of fp32 numbers."""


def _choose_blocks(heuristics: Any) -> None:
    """Have short reductions that are not along contiguous elements compiled without a loop.

    Inductor's configurations are those of GPUs, on which a block must fit into the registers of a
    program, and accesses of neighbouring programs coalesce. It has no loops for reductions of up to
    1,024 contiguous elements itself.
    """
    tune: Any = getattr(heuristics, "cached_autotune", None)
    if tune is None or _is_ours(tune):
        return

    def cached_autotune(
        size_hints: Any, configs: Any, triton_meta: Any, *rest: Any, **named: Any
    ) -> Any:
        if configs and size_hints and triton_meta["device"].type == "cpu":
            blocks = blocks_without_loop(configs[0].kwargs, size_hints)
            if blocks:
                configs = [deepcopy(configs[0])]
                configs[0].kwargs.update(blocks)
        return tune(size_hints, configs, triton_meta, *rest, **named)

    heuristics.cached_autotune = cached_autotune


def blocks_without_loop(blocks: Mapping[str, int], sizes: Mapping[str, int]) -> dict[str, int]:
    """The blocks of a short reduction without a loop.

    Args:
        blocks: those of a configuration: ``{"XBLOCK": 1, "R0_BLOCK": 64}``.
        sizes: the extents of the axes, rounded up to powers of two: ``{"x": 256, "r0_": 512}``.

    Returns:
        the blocks; empty if the configuration is to be used: of a reduction that is long, or whose
        blocks are vectors along the other axis.
    """
    if "R0_BLOCK" not in blocks or not blocks.keys() <= {"XBLOCK", "YBLOCK", "R0_BLOCK"}:
        return {}
    if sizes["r0_"] > LONGEST_REDUCTION or blocks["XBLOCK"] >= LEAST_BLOCK:
        return {}
    found = {**blocks, "R0_BLOCK": sizes["r0_"]}
    if "YBLOCK" not in blocks:
        found["XBLOCK"] = min(LEAST_BLOCK, sizes["x"])
    return found


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
