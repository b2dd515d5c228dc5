"""Makes a process on Linux look like one on macOS or Windows to tilewright.

    python -m tests.cross.other_systems darwin SCRIPT [ARGUMENT ...]

What those systems lack is removed from the modules `os`, `signal` and `time` and from the file
system, and the names of the system are theirs. The standard library and LLVM are loaded before, and
stay Linux's: what runs is tilewright's choice of code paths, not the other system.
"""

from __future__ import annotations

import builtins
import ctypes
import importlib
import io
import os
import platform
import runpy
import signal
import sys
import time
import types
from collections.abc import Sequence
from typing import Any

# Modules that decide by the system when they are imported, or use what is removed.
NEEDED = (
    "llvmlite.binding",
    "numpy.testing",
    "ml_dtypes",
    "sysconfig",
    "unittest",
    "zipfile",
    "shutil",
    "importlib.metadata",
    "inspect",
    "logging",
    "json",
    "hashlib",
    "pickle",
    "multiprocessing.connection",
    "multiprocessing.pool",
    "concurrent.futures.process",
    "http.client",
    "urllib.request",
    "glob",
    "linecache",
    "tokenize",
    "ctypes.util",
    "email.parser",
    "csv",
    "subprocess",
    "tempfile",
    "pathlib",
    "asyncio",
)

OF_LINUX = (
    "memfd_create",
    "MFD_CLOEXEC",
    "sched_getaffinity",
    "sched_setaffinity",
    "pipe2",
    "eventfd",
)
OF_POSIX = (
    "register_at_fork",
    "fork",
    "forkpty",
    "geteuid",
    "getuid",
    "getgid",
    "getegid",
    "uname",
    "sysconf",
    "O_NOFOLLOW",
    "O_NONBLOCK",
    "O_CLOEXEC",
    "set_blocking",
    "get_blocking",
    "killpg",
    "setsid",
    "chown",
    "mkfifo",
    "WNOHANG",
)
SIGNALS = (
    "pthread_sigmask",
    "pthread_kill",
    "SIGALRM",
    "SIGUSR1",
    "SIGCHLD",
    "setitimer",
    "SIG_BLOCK",
    "SIGHUP",
)
CLOCKS = (
    "CLOCK_MONOTONIC",
    "CLOCK_REALTIME",
    "CLOCK_BOOTTIME",
    "clock_gettime",
    "clock_gettime_ns",
)
MODULES = ("fcntl", "resource", "pwd", "grp", "termios")

SYSTEMS = {"darwin": "Darwin", "win32": "Windows"}


def imitate(system: str) -> None:
    """Look like a system, by its name in `sys.platform`, to modules that are imported later."""
    loaded = {name: importlib.import_module(name) for name in NEEDED}
    assert loaded["llvmlite.binding"].llvm_version_info  # loads the library, by its name on Linux
    sys.platform = system
    platform.system = lambda: SYSTEMS[system]
    _hide_files(("/proc", "/sys"))
    modules: dict[str, Any] = sys.modules
    if system == "win32":
        _keep_os_for_the_library()
        _remove(os, OF_POSIX)
        _remove(signal, SIGNALS)
        _remove(time, CLOCKS)
        for name in MODULES:
            modules[name] = None  # an import of it fails
        ctypes.CDLL = _Library
        os.name = "nt"
    _remove(os, OF_LINUX)


def _remove(module: types.ModuleType, names: Sequence[str]) -> None:
    for name in names:
        if hasattr(module, name):
            delattr(module, name)


def _hide_files(roots: tuple[str, ...]) -> None:
    real = builtins.open

    def found(file: Any, *args: Any, **options: Any) -> Any:
        if isinstance(file, str | os.PathLike) and str(file).startswith(roots):
            raise FileNotFoundError(2, "there is no such file", str(file))
        return real(file, *args, **options)

    builtins.open = io.open = found


def _keep_os_for_the_library() -> None:
    """Give the loaded modules a copy of `os`, from which nothing is removed."""
    copy = types.ModuleType("os")
    vars(copy).update(vars(os))
    for module in list(sys.modules.values()):
        for name in ("os", "_os"):
            if getattr(module, name, None) is os and module is not sys.modules[__name__]:
                setattr(module, name, copy)


class _Library(ctypes.CDLL):
    """Windows has no name for all libraries of the process."""

    def __init__(self, name: Any, *args: Any, **options: Any) -> None:
        if name is None:
            raise TypeError("bad argument type for built-in operation")
        super().__init__(name, *args, **options)


if __name__ == "__main__":
    imitate(sys.argv[1])
    sys.argv = sys.argv[2:]
    runpy.run_path(sys.argv[0], run_name="__main__")
