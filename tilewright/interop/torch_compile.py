"""`enable`: torch.compile generates tile kernels that tilewright compiles.

Inductor, the default back end of torch.compile, imports the package `triton` when it is first used
and writes kernels for it. So tilewright is installed under that name, and Inductor's setting
`cpu_backend` selects such kernels for the CPU, where the default is C++.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import re
import sys
from importlib.util import find_spec
from typing import Any

from tilewright.compat import install_as_triton
from tilewright.interop.torch_compile_threads import compile_in_threads
from tilewright.interop.torch_corrections import correct_inductor
from tilewright.interop.torch_kernels import describe_kernels
from tilewright.interop.torch_launches import omit_streams
from tilewright.interop.torch_reductions import split_by_threads
from tilewright.interop.torch_tilings import tile_by_rows
from tilewright.runtime.devices.cpu import Team, use_team

OLDEST = (2, 9)
"""The first release of torch whose interface to Triton is that of `compat.names.VERSION`."""

TESTED = "2.13"
"""The release of torch that the tests use."""

IMPORTS_TRITON = "torch._inductor.runtime.triton_compat"
"""The module of torch that imports `triton` for the others, once."""

BACKEND = "triton"

_previous: list[Any] = []
"""The value of `cpu_backend` before `enable`; empty if it is not enabled."""


def enable(*, cpu: bool = True) -> None:
    """Have torch.compile generate its kernels with tilewright, on the CPU and on NVIDIA GPUs.

        import tilewright, torch
        tilewright.torch.enable()

        @torch.compile
        def f(x, y):
            return torch.relu(x + y)

    Kernels for GPUs use tilewright from then on, since Inductor always writes them for `triton`.
    For the CPU, the setting ``torch._inductor.config.cpu_backend`` becomes ``"triton"``.

    Call it before the first use of torch.compile in the process. Further calls have no effect.
    `install_as_triton` is part of it, which also reaches the processes that compile kernels.
    Launches on the CPU run on torch's OpenMP threads from then on, and Inductor's compile workers
    start.

    Args:
        cpu: whether functions on CPU tensors use tilewright by default; if false, those do that
            are compiled with ``options={"cpu_backend": "triton"}``.

    Raises:
        ImportError: torch is not installed, or is older than 2.9.
        RuntimeError: another Triton has been imported, torch.compile has already been used
            without tilewright, or this release of torch lacks an interface that is required.
    """
    _require_torch()
    _require_unused()
    install_as_triton()
    config = _settings()
    start_workers()
    correct_inductor()
    describe_kernels()
    omit_streams()
    split_by_threads()
    tile_by_rows()
    compile_in_threads()
    use_team(_openmp())
    if cpu and not _previous:
        _previous.append(config.cpu_backend)
        config.cpu_backend = BACKEND


def disable() -> None:
    """Undo `enable`: functions that are compiled from now on use the C++ back end on the CPU.

    Functions that are already compiled keep their kernels, and tilewright remains installed as
    `triton`, since modules that imported it refer to it. Without a preceding `enable`, it has no
    effect.
    """
    use_team(None)
    if _previous:
        _settings().cpu_backend = _previous.pop()


def start_workers() -> None:
    """Start Inductor's compile workers, as torch does at the beginning of the first compilation.

    They take seconds, in which the program imports more, loads its data and runs a first step. If
    they begin with the compilation, most kernels of a small model are compiled without them.

    A process that multiprocessing has started, such as one that loads data, may import the program
    and compile nothing. There they start as torch does it, and so do workers that are forked from
    this process, which has to start the GPU before.
    """
    from torch._inductor import async_compile, config

    start: Any = getattr(async_compile, "maybe_warm_pool", None)
    are_separate = getattr(config, "worker_start_method", None) == "subprocess"
    if start is not None and are_separate and multiprocessing.parent_process() is None:
        start()


def _openmp() -> Team | None:
    """The threads of the OpenMP runtime that torch uses; None if it uses another kind of threads,
    or a runtime without GNU's interface (which LLVM's and Intel's have as well)."""
    import torch

    if not torch.backends.openmp.is_available():
        return None
    # The library is loaded: this looks the names up in it and in what it is linked with.
    library = ctypes.CDLL(sys.modules["torch._C"].__file__)
    try:
        functions = [library.GOMP_parallel, library.omp_get_thread_num]
    except AttributeError:
        return None
    run, number = (ctypes.cast(function, ctypes.c_void_p).value or 0 for function in functions)
    return Team(run, number)


def _require_torch() -> None:
    if "torch" not in sys.modules and find_spec("torch") is None:
        raise ImportError(
            "torch is not installed, which tilewright.torch.enable() sets up: `pip install torch`",
            name="torch",
        )
    version = _version()
    found = re.match(r"(\d+)\.(\d+)", version)
    if found and tuple(map(int, found.groups())) < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        raise ImportError(
            f"torch {version} is installed; tilewright.torch.enable() needs {oldest} or newer, "
            "whose interface to Triton it implements: `pip install -U torch`",
            name="torch",
        )


def _version() -> str:
    import torch

    return str(torch.__version__)


def _require_unused() -> None:
    """Raise an error if Inductor has found no Triton: its classes are defined without one."""
    module = sys.modules.get(IMPORTS_TRITON)
    if module is not None and not getattr(module, "HAS_TRITON", True):
        raise RuntimeError(
            "torch.compile has already been used, and torch looks for Triton only once. Call "
            "tilewright.torch.enable() at the start of the program, before torch.compile and "
            "before imports of torch._inductor"
        )


def _settings() -> Any:
    """The settings of Inductor, after a check that it has the interfaces that are required: its
    modules are private and change between releases."""
    try:
        from torch._inductor import config
        from torch._inductor.runtime import triton_compat, triton_helpers, triton_heuristics
    except ImportError as error:
        raise _unsuitable(str(error.name)) from error
    used: dict[Any, tuple[str, ...]] = {
        config: ("cpu_backend",),
        triton_compat: ("ASTSource", "CompiledKernel"),
        triton_helpers: ("set_driver_to_cpu",),
        triton_heuristics: ("CachingAutotuner", "TritonCompileResult"),
    }
    for module, names in used.items():
        for name in names:
            if not hasattr(module, name):
                raise _unsuitable(f"{module.__name__}.{name}")
    return config


def _unsuitable(missing: str) -> RuntimeError:
    return RuntimeError(
        f"torch {_version()} has no {missing}, which tilewright.torch.enable() uses; it is tested "
        f"with torch {TESTED}. Install that, or a newer tilewright"
    )
