"""Launches of Inductor's tile kernels: shorter ones on the CPU, static ones on GPUs.

Has no effect on releases of torch that lack the patched functions.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from functools import wraps
from math import prod
from typing import Any, NamedTuple

from tilewright.base import knobs
from tilewright.compat.managers import FileCacheManager, base32
from tilewright.compiler.artifact import CompiledKernel
from tilewright.compiler.source import CONSTEXPR
from tilewright.interop.after_import import after_import, is_defined_in
from tilewright.runtime.native.compiled import Substitute


def adapt_launches(heuristics: Any) -> None:
    """Adapt Inductor's module of kernels, once in a process."""
    _shorten_launches(heuristics)
    _store_cubins(getattr(heuristics, "StaticTritonCompileResult", None))


# -- the CPU ---------------------------------------------------------------------------------------


RUN = """
def run({parameters}, *, stream, benchmark_run=False):
    if (
        benchmark_run
        or profiler._is_profiler_enabled
        or hooks
        or debug_mode()
        or kernel._cached_launcher is not launcher
    ):
        return slow({parameters}, stream=stream, benchmark_run=benchmark_run)
    {grid}
    note((grid_0, grid_1, grid_2){numbers})
    start(grid_0, grid_1, grid_2, None, None, None, None, None, None, {arguments})
"""

CONDITIONS = (
    ("torch.autograd.profiler", "_is_profiler_enabled"),
    ("torch.utils._debug_mode._mode", "_ACTIVE_DEBUG_MODE_COUNT"),
)
"""Names of torch by which a launch is decided to be an ordinary one, as `run` does by functions."""

BRIEF = 1 << 14
"""Up to how many elements of a kernel its launches keep Python's lock, as calls of Inductor's C++
kernels do: releasing it takes about as long as the kernel."""

INTEGERS = ("i32", "i64", "u64", CONSTEXPR)
"""Types of arguments that a grid may depend on. The value of a compile-time one never changes."""

PASSED_BY_NAME = [
    "grid_0", "grid_1", "grid_2", "stream", "function", "metadata",
    "launch_enter_hook", "launch_exit_hook",
]  # fmt: skip
"""What a launcher passes to `CompiledKernel.run` before the arguments of the kernel, but for the
launch metadata, which is an expression."""


class _Parts(NamedTuple):
    """The parts of a launcher's text.

    Attributes:
        parameters: names of its parameters, but for the stream.
        grid: lines that compute ``grid_0``, ``grid_1`` and ``grid_2``.
        arguments: expressions of the arguments of the kernel.
    """

    parameters: Sequence[str]
    grid: Sequence[str]
    arguments: Sequence[str]


def omit_streams() -> None:
    """Have generated modules pass no stream to kernels on the CPU, rather than call a function for
    it, once in a process."""
    after_import("torch._inductor.codegen.wrapper", _omit_streams)


def _omit_streams(module: Any) -> None:
    from torch._inductor import config
    from torch._inductor.virtualized import V

    wrapper = module.PythonWrapperCodegen
    write: Any = getattr(wrapper, "write_get_raw_stream", None)
    if write is None or is_defined_in(write, __file__):
        return

    @wraps(write)
    def write_get_raw_stream(self: Any, device_idx: int | None, graph_name: str) -> str:
        device = V.graph.get_current_device_or_throw()
        if device.type == "cpu" and not config.triton.autotune_at_compile_time:
            return "None"
        return write(self, device_idx, graph_name)

    wrapper.write_get_raw_stream = write_get_raw_stream


def _shorten_launches(heuristics: Any) -> None:
    """Give a CPU kernel that has been launched a method `run` for its parameters.

    The class's own handles any parameters, calls a launcher, and has that describe the launch for
    hooks, even if there are none. This takes longer than the launch.
    """
    autotuner, result = heuristics.CachingAutotuner, heuristics.TritonCompileResult
    build: Any = getattr(autotuner, "_build_fast_launcher", None)
    generate: Any = getattr(result, "_gen_launcher_code", None)
    if build is None or generate is None or is_defined_in(build, __file__):
        return

    @wraps(generate)
    def gen_launcher_code(self: Any, scope: Any, def_args: Any, runner_args: Any) -> Any:
        launcher = generate(self, scope, def_args, runner_args)
        first, arguments = [*runner_args[:6], *runner_args[7:9]], runner_args[9:]
        if self.compile_meta["device_type"] == "cpu" and first == PASSED_BY_NAME:
            grid = heuristics.GridExpr.from_meta(self.inductor_meta, self.config)
            extents = (grid.x_grid, grid.y_grid, grid.z_grid)
            lines = [f"grid_{axis} = {extent}" for axis, extent in enumerate(extents)]
            launcher.parts = _Parts(def_args, [*grid.prefix, *lines], arguments)
        return launcher

    @wraps(build)
    def build_fast_launcher(self: Any, launcher: Any) -> Any:
        built = build(self, launcher) or launcher
        if type(self) is autotuner and hasattr(launcher, "parts"):
            self.run = _run_of(self, built, launcher)
        return built

    result._gen_launcher_code = gen_launcher_code
    autotuner._build_fast_launcher = build_fast_launcher


def _run_of(kernel: Any, launcher: Any, original: Any) -> Any:
    """The method `run` of a kernel. Its first call replaces it by native code, if possible.

    Args:
        launcher: what the kernel launches by.
        original: the launcher that has the text's parts and the names in it.
    """
    from torch.autograd import profiler
    from torch.utils._debug_mode import get_active_debug_mode

    parts: _Parts = original.parts
    scope: dict[str, Any] = {
        **original.__globals__,
        "start": original.__globals__["runner"],
        "kernel": kernel,
        "launcher": launcher,
        "profiler": profiler,
        "hooks": knobs.launch_hooks,
        "debug_mode": get_active_debug_mode,
        "slow": type(kernel).run.__get__(kernel),
    }
    text = RUN.format(
        parameters=", ".join(parts.parameters),
        grid="\n    ".join(parts.grid),
        numbers="".join(f", {name}={name}" for name in _names_read(parts)),
        arguments=", ".join(parts.arguments),
    )

    def note(grid: tuple[int, int, int], **numbers: int) -> None:
        made = _substitute(kernel, scope["bin"], parts, scope["run"])
        scope["note"] = made.note if made else lambda *_, **__: None
        if made and made.run:
            kernel.run = made.run
            made.note(grid, **numbers)

    scope["note"] = note
    exec(text, scope)
    return scope["run"]


def _names_read(parts: _Parts) -> list[str]:
    """The parameters that the grid depends on."""
    read = compile("\n".join(parts.grid), "grid", "exec").co_names
    return [name for name in parts.parameters if name in read]


def _substitute(
    kernel: Any, compiled: CompiledKernel, parts: _Parts, run: Any
) -> Substitute | None:
    """Native code in place of a kernel's method; None if it passes arguments other than its own, or
    its grid depends on arguments other than integers."""
    types = compiled.metadata.signature
    passed = zip(types.items(), parts.arguments, strict=True)
    if any(given != name for (name, type), given in passed if type != CONSTEXPR):
        return None
    if not types.keys() >= set(parts.parameters):
        return None
    if not all(types[name] in INTEGERS for name in _names_read(parts)):
        return None
    watched: list[tuple[Any, str]] = [(vars(kernel), "_cached_launcher")]
    for module, name in CONDITIONS:
        watched.append((vars(sys.modules[module]) if module in sys.modules else {}, name))
    if not all(name in scope for scope, name in watched):
        return None
    sizes = kernel.size_hints
    is_brief = bool(sizes) and prod(sizes.values()) <= BRIEF
    return Substitute(compiled, run, parts.parameters, "stream", watched, is_brief)


# -- GPUs ------------------------------------------------------------------------------------------


def _store_cubins(result: Any) -> None:
    """Store the binaries of kernels for GPUs where torch's launcher reads them: in a folder of the
    cache that is named by the kernel's hash. TritonBundler copies that folder into torch's caches.

    Args:
        result: Inductor's class of kernels that are launched without a function for each.
    """
    decide: Any = getattr(result, "can_statically_launch", None)
    if decide is None or is_defined_in(decide, __file__):
        return

    @wraps(decide)
    def can_statically_launch(
        kernel: CompiledKernel, inductor_meta: Any, triton_meta: Any, *rest: Any
    ) -> Any:
        if "cubin" not in kernel.asm or not _is_plain(kernel.metadata):
            return None
        folder = _Folder(triton_meta.get("device", 0), kernel.hash)
        folder.put(kernel.asm["cubin"], f"{kernel.src.fn.__name__}.cubin")
        return decide(kernel, inductor_meta, triton_meta, *rest)

    result.can_statically_launch = staticmethod(can_statically_launch)


def _is_plain(facts: Mapping[str, Any]) -> bool:
    """Whether torch's launcher can launch a kernel: it passes no tensor maps, and starts no warps
    beside `num_warps`."""
    warps = facts["num_warps"]
    return not facts.get("tensor_maps") and facts.get("launch_warps", warps) == warps


class _Folder(FileCacheManager):
    """The files of a kernel in torch's cache, which `TILEWRIGHT_CACHE_DIR` does not move."""

    def __init__(self, device: int, key: str) -> None:
        from torch._inductor.runtime.cache_dir_utils import triton_cache_dir

        self.root = triton_cache_dir(device)
        super().__init__(base32(key))

    def _root(self, override: bool, dump: bool) -> str:
        return self.root
