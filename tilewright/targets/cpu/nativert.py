"""Shared objects of a kernel for C++ programs that Inductor generates (AOTInductor, cpp_wrapper).

`so` has the kernel under its name. `launcher.so` has a function that launches it on the calling
thread:

    void run_from_nativert(
        uint32_t x, uint32_t y, uint32_t z, int threads, void **args, void *kernel);

`args` has an entry for each parameter of the kernel: a tensor's address, the address of a number
(int64_t, bool or float), null for a compile-time value. A failed assertion raises an exception
after all programs have run.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

KERNEL, LAUNCHER = "so", "launcher.so"

STAGES = (KERNEL, LAUNCHER)

_LINE = 64  # bytes that a kernel's workspace is aligned to

_BYTES = {
    "i1": 1, "u1": 1, "i8": 1, "u8": 1, "i16": 2, "u16": 2, "i32": 4, "u32": 4, "i64": 8, "u64": 8,
    "fp32": 4,
}  # fmt: skip

# A kernel passes a description of a failed assertion, in JSON, and the program's indices.
_FAILURE = """
static thread_local const char *failure;

extern "C" void tilewright_fail(const char *text, int x, int y, int z) {
  if (!failure) failure = text;
}

extern "C" const char *tilewright_take_failure() {
  const char *first = failure;
  failure = nullptr;
  return first;
}
"""

_LAUNCHER = """
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <new>
#include <stdexcept>
#include <string>

using Kernel = void (*)(void *, void *, int64_t, int64_t, const int32_t *);

static void store_double(uint64_t *slot, const void *number) {
  double value = *(const float *)number;
  std::memcpy(slot, &value, sizeof value);
}

static void raise_failure(void *kernel) {
  Dl_info info;
  if (!dladdr(kernel, &info)) return;
  void *library = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
  auto take = (const char *(*)())dlsym(library, "tilewright_take_failure");
  const char *text = take ? take() : nullptr;
  dlclose(library);
  if (text) throw std::runtime_error("a device_assert failed: " + std::string(text));
}

extern "C" void run_from_nativert(
    uint32_t x, uint32_t y, uint32_t z, int threads, void **args, void *kernel) {
  uint64_t slots[@COUNT@ + 1] = {};
@COPIES@
  const int32_t grid[3] = {(int32_t)x, (int32_t)y, (int32_t)z};
  void *scratch = nullptr;
  if (@SCRATCH@ && !(scratch = std::aligned_alloc(@LINE@, @SCRATCH@))) throw std::bad_alloc();
  ((Kernel)kernel)(slots, scratch, 0, (int64_t)x * y * z, grid);
  std::free(scratch);
  if (@ASSERTS@) raise_failure(kernel);
}
"""


def shared_object(stage: str, code: bytes, metadata: Mapping[str, Any]) -> bytes:
    """A stage of `STAGES`.

    Args:
        code: the object code of the kernel.

    Raises:
        KeyError: the kernel prints, or takes numbers that C++ does not have.
        RuntimeError: there is no C++ compiler.
    """
    calls: Sequence[str] = metadata["host_calls"]
    if "tilewright_print" in calls:
        raise KeyError(stage)
    if stage == LAUNCHER:
        return _link({"launcher.cpp": _launcher(metadata, asserts=bool(calls)).encode()})
    sources = {"kernel.o": code}
    return _link({**sources, "failure.cpp": _FAILURE.encode()} if calls else sources)


def _launcher(metadata: Mapping[str, Any], *, asserts: bool) -> str:
    arguments: Sequence[tuple[Sequence[int], str]] = metadata["arguments"]
    copies = [_copy(slot, path[0], type) for slot, (path, type) in enumerate(arguments)]
    scratch = -(-metadata["scratch_bytes"] // _LINE) * _LINE
    values = {
        "COUNT": len(copies), "COPIES": "\n".join(copies), "SCRATCH": scratch, "LINE": _LINE,
        "ASSERTS": int(asserts),
    }  # fmt: skip
    text = _LAUNCHER
    for name, value in values.items():
        text = text.replace(f"@{name}@", str(value))
    return text


def _copy(slot: int, parameter: int, type: str) -> str:
    """A C++ statement that stores an argument in its slot."""
    if type.startswith("*"):
        return f"  slots[{slot}] = (uint64_t)args[{parameter}];"
    if type == "fp64":
        return f"  store_double(&slots[{slot}], args[{parameter}]);"
    return f"  std::memcpy(&slots[{slot}], args[{parameter}], {_BYTES[type]});"


def _link(files: Mapping[str, bytes]) -> bytes:
    compiler = shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        raise RuntimeError(
            "AOTInductor and cpp_wrapper generate C++: install a C++ compiler, such as g++"
        )
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / name for name in files]
        for path, content in zip(paths, files.values(), strict=True):
            path.write_bytes(content)
        result = Path(folder) / "result.so"
        options = ("-O2", "-shared", "-fPIC", "-o", str(result))
        subprocess.run([compiler, *options, *map(str, paths), "-ldl", "-lm"], check=True)
        return result.read_bytes()
