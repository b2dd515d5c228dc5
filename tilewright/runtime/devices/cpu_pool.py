"""Builds and loads the native code of the CPU's thread pool, `cpu_pool.ll`.

The file is LLVM IR with placeholders ``@NAME@``, which are replaced by the constants below. The
object code is cached on disk, keyed by the text, the platform and LLVM's version.
"""

from __future__ import annotations

import ctypes
import os
import platform
import signal
import sys
import time
from typing import TYPE_CHECKING, Any

from tilewright.base.fact_cache import cached_bytes
from tilewright.base.lazy_import import lazy_import
from tilewright.base.llvm_version import library_state
from tilewright.base.machine_code import symbol_of_process
from tilewright.runtime.devices import faults
from tilewright.runtime.devices.code import LoadedCode

if TYPE_CHECKING:
    from tilewright.runtime.devices import llvm
else:
    llvm = lazy_import("tilewright.runtime.devices.llvm")


_WORKER_STACK_BYTES = 8 << 20

_PTHREAD_SYMBOLS = (
    "pthread_create",
    "pthread_attr_init",
    "pthread_attr_setdetachstate",
    "pthread_attr_setstacksize",
    "pthread_mutex_init",
    "pthread_mutex_lock",
    "pthread_mutex_unlock",
    "pthread_cond_init",
    "pthread_cond_wait",
    "pthread_cond_timedwait",
    "pthread_cond_signal",
    "posix_memalign",
    "clock_gettime",
    "sigaction",
    "raise",
    "write",
)

_MOST_RANGES = 64
"""The most ranges that a launch is divided into; with more threads, several share a range."""

MOST_MEMBERS = 1024
"""The most threads of a parallel region (`cpu.Team`) that run programs."""

# Offsets into the pool's memory, in bytes. Fields that different threads write are 128 bytes apart
# against false sharing: two cache lines, as some processors prefetch lines in pairs. The space for
# pthread objects is larger than on any known platform.
LAYOUT = {
    "MUTEX": 0,
    "WORK": 128,
    "DONE": 256,
    "ATTR": 384,
    "STATE": 512,
    "SLEEPERS": 768,
    "WAITING": 772,
    "WORKERS": 776,
    "OWNER": 896,
    "FN": 1024,
    "ARGS": 1032,
    "GRID": 1040,
    "SCRATCH": 1064,
    "RANGE_COUNT": 1072,
    "GRAIN": 1080,
    "BRIEF": 1088,
    "LAST": 1152,
    "STREAK": 1160,
    "RUNNING": 1168,
    "ENTRIES": 1176,
    "REGION_END": 1184,
    "REGION": 1280,
    "MEMBER_NUMBER": 1288,
    "TEAM": 1296,
    "PAUSE_AT": 1304,
    "RANGES": 1408,
    "COSTS": 1408 + _MOST_RANGES * 128,
    "MEMBERS": 1408 + _MOST_RANGES * 128 + 512 * 16,
    "SIZE": 1408 + _MOST_RANGES * 128 + 512 * 16 + MOST_MEMBERS * 16,
}


_PAUSES = {
    "x86_64": ("declare void @llvm.x86.sse2.pause()", "call void @llvm.x86.sse2.pause()"),
    "aarch64": ("declare void @llvm.aarch64.hint(i32)", "call void @llvm.aarch64.hint(i32 1)"),
}
_MACHINE_NAMES = {"amd64": "x86_64", "arm64": "aarch64"}

# About 20 to 60 µs, by the processor's pause: longer than the gap between launches in a loop,
# short enough that an idle pool costs nothing.
_SPINS = 1500


# Thresholds for using workers, as the estimated duration of a launch on one thread, in nanoseconds.
# Measured in a virtual machine on Zen 4: giving work to a spinning thread costs the caller 0.1 µs,
# waking a sleeping one 8 µs, and more passes until it runs.
_SHARING = {
    "AWAKE_NS": 4000,  # launches from here on use workers that are spinning
    "ASLEEP_NS": 20_000,  # launches from here on also wake sleeping workers
    "SOON_NS": 40_000,  # a launch estimated below ASLEEP_NS is shared once it has run this long
    "SERIES": 4,  # after this many launches, each at most SERIES_NS after the one before,
    "SERIES_NS": 20_000,  # workers are woken, too: they spin between the launches of a series
    "SHARE_NS": 2000,  # the least work per worker, which limits their number
    "BRIEF_NS": 50_000,  # up to here each thread takes its whole range at once
    "CHUNK": 25_000 << 10,  # the size of a chunk otherwise, in the unit of costs: ns/1024
    "REGION_SPIN_NS": 1_000_000,  # threads of another runtime spin this long after a region
}


def _pool_ir() -> str:
    """The pool's LLVM IR for this platform."""
    machine = platform.machine().lower()
    declaration, pause = _PAUSES.get(_MACHINE_NAMES.get(machine, machine), ("", ""))
    values: dict[str, object] = {
        **LAYOUT,
        **faults.LAYOUT,
        "SEGV_NUMBER": int(signal.SIGSEGV),
        "PAUSE_DECLARATION": declaration,
        "PAUSE": pause,
        "SPINS": _SPINS,
        **_SHARING,
        "MOST_RANGES": _MOST_RANGES,
        "MOST_MEMBERS": MOST_MEMBERS,
        "STACK": _WORKER_STACK_BYTES,
        # PTHREAD_CREATE_DETACHED and the clock ids differ on Darwin.
        "DETACHED": 2 if sys.platform == "darwin" else 1,
        "MONOTONIC": time.CLOCK_MONOTONIC,
        "REALTIME": time.CLOCK_REALTIME,
    }
    with open(os.path.join(os.path.dirname(__file__), "cpu_pool.ll"), encoding="utf-8") as file:
        text = file.read()
    for name, value in values.items():
        text = text.replace(f"@{name}@", str(value))
    return text


def _compile_pool() -> LoadedCode:
    text = _pool_ir()
    depends_on = text, sys.platform, platform.machine(), library_state()
    code = cached_bytes("thread pool", depends_on, lambda: llvm.assemble(text, 0))
    names = ["new", "grow", "launch", "help", "cancel", "forget", "fault"]
    imports = {"tilewright_faults": faults.memory()}
    return LoadedCode(code, [f"pool_{name}" for name in names], imports)


def has_threads() -> bool:
    """Whether this process exports the pthread functions that the pool calls."""
    return all(map(symbol_of_process, _PTHREAD_SYMBOLS))


class PoolCode:
    """The pool's native functions as ctypes callables, which release the GIL."""

    def __init__(self) -> None:
        self._code = _compile_pool()
        word, address = ctypes.c_int64, ctypes.c_void_p
        self.new = self._function("pool_new", address)
        self.grow = self._function("pool_grow", ctypes.c_int32, address)
        self.help = self._function("pool_help", word, address, word, address, word)
        self.cancel = self._function("pool_cancel", None, address, word)
        self.forget = self._function("pool_forget", None, address, address)
        self.launch = self._function(
            "pool_launch", word, *[address] * 3, *[word] * 4, address, *[word] * 4
        )

    def address_of(self, name: str) -> int:
        """Address of a function by its name in cpu_pool.ll."""
        return self._code[name]

    def _function(self, name: str, result: Any, *arguments: Any) -> Any:
        return ctypes.CFUNCTYPE(result, *arguments)(self._code[name])
