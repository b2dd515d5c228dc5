"""The errors of the package that have no case, and why: the compiler's own promises, which no
program of a user breaks, and what only a device, a driver or another process brings about.
"""

from __future__ import annotations

from typing import NamedTuple


class Untold(NamedTuple):
    """Which `raise` and `assert` statements: a pattern of files, a part of the statement; why."""

    files: str
    text: str
    reason: str


INSIDE = "a promise between parts of the compiler, which no program breaks"
IR = "tile IR that is not as it must be: tests/ir and tests/passes have a text for each code"
DRIVER = "needs a driver that fails: tests/runtime/test_cuda_device.py has one"

UNTOLD = (
    # The compiler's own.
    Untold("layout/*", "", INSIDE),
    Untold("lowering/*", "", INSIDE),
    Untold("targets/cpu/*", "", INSIDE),
    Untold("targets/*/target.py", "KeyError(stage)", INSIDE),
    Untold("targets/nvidia/cubin.py", "", INSIDE),
    Untold("passes/*layout*", "", INSIDE),
    Untold("analysis/*", "", INSIDE),
    Untold("ir/builder.py", "", INSIDE),
    Untold("ir/core.py", "", INSIDE),
    Untold("ir/define.py", "", INSIDE),
    Untold("ir/passes.py", "", INSIDE),
    Untold("ir/printer.py", "", INSIDE),
    Untold("ir/rewriter.py", "", INSIDE),
    Untold("ir/types.py", "", INSIDE),
    Untold("ir/interpret.py", "its meaning gives", INSIDE),
    Untold("runtime/native/*", "", INSIDE),
    Untold("language/types.py", "raise NotImplementedError", "of a base class"),
    Untold("runtime/interface.py", "raise NotImplementedError", "of a base class"),
    Untold("targets/asked.py", "raise NotImplementedError", "of a base class"),
    Untold("tools/mxfp.py", "raise NotImplementedError", "of a base class"),
    Untold("frontend/build.py", "is given for", "`ASTSource`, which calls it, has checked it"),
    Untold("frontend/source.py", "NO_SOURCE", "the decorator has checked it"),
    Untold("runtime/specialize.py", "do not support **kw", "the decorator has checked it"),
    Untold("language/semantic/context.py", "there is no front end", INSIDE),
    Untold("language/values.py", "can't be a Python bool", "kernels have their own bool"),
    Untold("compiler/artifact.py", "_launcher", INSIDE),
    Untold("compiler/artifact.py", "self._failure", "passes on the error of a compilation"),
    Untold("compiler/source.py", "takes scalars and pointers", "no tile IR text reaches it"),
    # Tile IR from files.
    Untold("ir/verify.py", "", IR),
    Untold("passes/inline.py", "", IR),
    Untold("ir/interpret.py", "there is no function", IR),
    Untold("ir/interpret.py", "not {value!r}", "tests/interpret"),
    Untold("ops/asm.py", "", "the front end refuses assembly for the interpreter"),
    Untold("targets/nvidia/check.py", "", "of ops that no kernel gives: tests/targets/nvidia"),
    # Of processes, devices and what is installed.
    Untold("compiler/build.py", "_internal_error", "a fault of the compiler: tests/compiler"),
    Untold("compiler/job.py", "", "how a worker's process learns of its end"),
    Untold("compiler/workers.py", "", "of processes that end: tests/compiler/test_workers.py"),
    Untold("compat/*", "", "of imports, in processes of their own: tests/compat"),
    Untold("tools/explain/launch.py", "(str(error))", "of Triton loaded before: its tests"),
    Untold("tools/run.py", "options -E", "of the interpreter's options: tests/compat"),
    Untold("runtime/devices/cuda*", "", DRIVER),
    Untold("runtime/devices/elf.py", "", "of object code: tests/runtime/test_elf.py"),
    Untold("runtime/devices/relocations.py", "", "of object code: tests/runtime/test_elf.py"),
    Untold("base/machine_code.py", "OSError", "LLVM's linker is asked then: tests/runtime"),
    Untold("runtime/devices/cpu.py", "MemoryError", "needs a machine without memory"),
    Untold("runtime/driver.py", "is not active", "needs a machine without it: tests/runtime"),
    Untold("runtime/*driver*.py", "import torch", "needs programs without torch"),
    Untold("runtime/launch.py", "", "needs a target or a GPU besides: tests/runtime"),
    Untold("runtime/placement.py", "", "needs GPUs: tests/runtime/test_placement.py plays them"),
    Untold("runtime/tensors.py", "how large its memory", "needs a GPU: tests/runtime"),
    Untold("ir/memory.py", "read-only", "a launch refuses such arrays: tests/interpret"),
    Untold("runtime/tensors.py", "is not a tensor", "its callers have asked before"),
    Untold("runtime/tuning/protect.py", "", "tuning goes on without: tests/runtime"),
    Untold("runtime/cache.py", "a cache key", "keys are the runtime's own"),
    Untold("runtime/cache.py", "Refused", "such an entry is made anew: tests/runtime"),
    Untold("runtime/stored.py", "", "of files that are damaged: tests/tools/test_cache.py"),
    Untold("runtime/recorded.py", "", "of what is recorded: tests/runtime/test_hooks.py"),
    Untold("targets/nvidia/export.py", "global scratch", "no kernel needs any yet"),
    Untold("tools/opt.py", "there is no pass", "it lists what is loaded: tests/tools"),
    Untold("tools/cache.py", "no folder for the cache", "needs a user without a home"),
    Untold("tools/link.py", "", "of headers that kernels were compiled to: tests/ahead"),
    Untold("targets/nvidia/assemble.py", "made.error", "needs ptxas: tests/targets/nvidia"),
    Untold("targets/nvidia/disassemble.py", "", "needs nvdisasm, or none: tests/targets/nvidia"),
    Untold("testing.py", "nvidia-smi", "needs a machine without it: tests/runtime"),
    Untold("testing.py", "is not close", "NumPy's words, which change with its version"),
)
