"""Errors of the package without a golden case, and why: internal invariants that no user program
violates, and failures that need a device, a driver or another process.
"""

from __future__ import annotations

from typing import NamedTuple


class Uncovered(NamedTuple):
    """Matches `raise` and `assert` statements by a file pattern and a part of their source text."""

    files: str
    text: str
    reason: str


INTERNAL = "an internal invariant of the compiler, which no program violates"
IR = "invalid tile IR: tests/ir and tests/passes have a case for each code"
DRIVER = "needs a failing driver: tests/runtime/test_cuda_device.py has a fake one"

UNCOVERED = (
    # Internal invariants.
    Uncovered("layout/*", "", INTERNAL),
    Uncovered("lowering/*", "", INTERNAL),
    Uncovered("targets/cpu/*", "", INTERNAL),
    Uncovered("targets/*/target.py", "KeyError(stage)", INTERNAL),
    Uncovered("targets/amd/code_object.py", "", "of damaged files: tests/targets/amd"),
    Uncovered("targets/amd/elf.py", "", "of damaged files: tests/targets/amd"),
    Uncovered("targets/amd/kernel_note.py", "", "of damaged files: tests/targets/amd"),
    Uncovered("targets/amd/hardware.py", "", INTERNAL),
    Uncovered("targets/nvidia/cubin.py", "", INTERNAL),
    Uncovered("targets/nvidia/copied_*.py", "", "a remark: tests/targets/nvidia"),
    Uncovered("targets/nvidia/copy_costs.py", "", "a remark: tests/targets/nvidia"),
    Uncovered("targets/nvidia/tensor_copies.py", "", "a remark: tests/targets/nvidia"),
    Uncovered("targets/nvidia/choose_tensor_mma.py", "", "a remark: tests/targets/nvidia"),
    Uncovered("passes/narrow_loads.py", "_Unknown", "ends a search: tests/passes"),
    Uncovered("targets/nvidia/tma.py", "", INTERNAL),
    Uncovered("targets/nvidia/add_blocks.py", "", "a remark: tests/targets/nvidia"),
    Uncovered("targets/nvidia/export.py", "tensor", "of a caller that requests tensor copies"),
    Uncovered("runtime/launchers/cuda.py", "tensor_copies", "tests/runtime/test_native_cuda.py"),
    Uncovered("ops/nvidia.py", "IndexError", "of interpreted GPU code: tests/targets/nvidia"),
    Uncovered("ops/roles.py", "", "of interpreted GPU code: test_specialize_warps.py"),
    Uncovered("ir/turns.py", "", "of interpreted GPU code: test_specialize_warps.py"),
    Uncovered("ir/op_table.py", "", "at registration: tests/ir/test_op_table.py"),
    Uncovered("ir/index_map.py", "assert", INTERNAL),
    Uncovered("base/target_names.py", "", "at registration: tests/ir/test_op_table.py"),
    Uncovered("base/record.py", "", "of code of the compiler: tests/base/test_record.py"),
    Uncovered("passes/*layout*", "", INTERNAL),
    Uncovered("language/extra/__init__.py", "", "as of any module: tests/runtime/test_plug_ins.py"),
    Uncovered("analysis/*", "", INTERNAL),
    Uncovered("ir/builder.py", "", INTERNAL),
    Uncovered("ir/core.py", "", INTERNAL),
    Uncovered("ir/define.py", "", INTERNAL),
    Uncovered("ir/passes.py", "", INTERNAL),
    Uncovered("ir/printer.py", "", INTERNAL),
    Uncovered("ir/rewriter.py", "", INTERNAL),
    Uncovered("ir/types.py", "", INTERNAL),
    Uncovered("ir/interpret.py", "`evaluate` returned", INTERNAL),
    Uncovered("runtime/native/*", "", INTERNAL),
    Uncovered("language/types.py", "raise NotImplementedError", "of a base class"),
    Uncovered("runtime/kinds.py", "no room for", "of a plug-in: tests/runtime/test_kinds.py"),
    Uncovered("base/plug_ins.py", "", "of a plug-in: tests/runtime/test_plug_ins.py"),
    Uncovered("backends/__init__.py", "KeyError(name)", "tests/runtime/test_plug_ins.py"),
    Uncovered("targets/registry.py", "PlugInError", "tests/conformance/test_faulty_plug_ins.py"),
    Uncovered("targets/protocol.py", "`compile` of the target", "test_faulty_plug_ins.py"),
    Uncovered("targets/interpreter/target.py", "can't be interpreted", INTERNAL),
    Uncovered("tools/conformance.py", "", "tests/conformance"),
    Uncovered("conformance/*", "", "outcomes of the suite: tests/conformance"),
    Uncovered("runtime/driver.py", "no driver for devices", "tests/runtime/test_plug_ins.py"),
    Uncovered("runtime/driver.py", "not a driver", "tests/conformance/test_faulty_plug_ins.py"),
    Uncovered("runtime/interface.py", "raise NotImplementedError", "of a base class"),
    Uncovered("targets/base_backend.py", "raise NotImplementedError", "of a base class"),
    Uncovered("targets/gpu/target.py", "raise NotImplementedError", "of a base class"),
    Uncovered("targets/gpu/codegen.py", "are emitted", INTERNAL),
    Uncovered("tools/mxfp.py", "raise NotImplementedError", "of a base class"),
    Uncovered("frontend/build.py", "is given for", "`ASTSource`, which calls it, has checked it"),
    Uncovered("frontend/source.py", "NO_SOURCE", "the decorator has checked it"),
    Uncovered("language/semantic/context.py", "there is no front end", INTERNAL),
    Uncovered("language/values.py", "can't be a Python bool", "kernels have their own bool"),
    Uncovered("compiler/artifact.py", "_launcher", INTERNAL),
    Uncovered("compiler/artifact.py", "self._failure", "re-raises a compilation error"),
    Uncovered("compiler/python_source.py", "", "tests/compiler/test_python_source.py"),
    Uncovered("compiler/source.py", "takes scalars and pointers", "unreachable from tile IR text"),
    # Derivatives.
    Uncovered("autodiff/*", "", "tests/autodiff: test_rejections, test_forward, test_mutations"),
    Uncovered("interop/*", "", "needs torch or JAX: tests/interop"),
    Uncovered("runtime/tensors.py", "has no memory", "tests/interop/test_torch_operators.py"),
    Uncovered("runtime/tensors.py", "has no storage", "tests/runtime/test_tensor_layouts.py"),
    Uncovered("jax.py", "", "needs JAX to be absent: tests/interop/test_jax_errors.py"),
    Uncovered("runtime/derivation.py", "", "tests/runtime/test_gradients.py"),
    Uncovered("runtime/second_derivation.py", "", "tests/runtime/test_second_gradients.py"),
    Uncovered("runtime/derived_launch.py", "", "tests/runtime/test_gradients.py"),
    Uncovered("runtime/derivatives.py", "", "tests/runtime/test_gradients.py"),
    Uncovered("runtime/gradients.py", "", "tests/runtime/test_gradients.py"),
    Uncovered("runtime/overlaps.py", "", "tests/runtime/test_gradients.py"),
    Uncovered("runtime/proofs.py", "", "tests/runtime/test_gradients.py"),
    Uncovered("frontend/captured.py", "KeyError(name)", "of a mapping: Python's protocol"),
    # Tile IR from files.
    Uncovered("ir/verify.py", "", IR),
    Uncovered("passes/inline.py", "", IR),
    Uncovered("ir/interpret.py", "there is no function", IR),
    Uncovered("ir/interpret.py", "not {value!r}", "tests/interpret"),
    Uncovered("ops/asm.py", "", "the front end rejects inline assembly for the interpreter"),
    Uncovered("targets/gpu/check.py", "", "ops that no kernel produces: tests/targets/gpu"),
    # Processes, devices and installed packages.
    Uncovered("compiler/build.py", "_internal_error", "internal compiler error: tests/compiler"),
    Uncovered("compiler/job.py", "", "cancels a worker process"),
    Uncovered("compiler/workers.py", "", "worker exits: tests/compiler/test_workers.py"),
    Uncovered("compat/*", "", "import errors, tested in subprocesses: tests/compat"),
    Uncovered("profiler/*", "", "of a program's calls, not of a kernel: tests/profiler"),
    Uncovered("tools/profile.py", "str(error)", "tests/profiler"),
    Uncovered("tools/explain/launch.py", "(str(error))", "Triton imported first: its tests"),
    Uncovered("tools/run.py", "options -E", "Python's command-line options: tests/compat"),
    Uncovered("runtime/devices/cuda*", "", DRIVER),
    Uncovered("runtime/devices/*_api.py", "", DRIVER),
    Uncovered("runtime/devices/gpu.py", "", DRIVER),
    Uncovered("runtime/drivers/gpu.py", "NotImplementedError", INTERNAL),
    Uncovered("runtime/drivers/hip.py", "", "needs a GPU: tests/runtime/test_hip_device.py"),
    Uncovered("runtime/devices/elf.py", "", "of object code: tests/runtime/test_elf.py"),
    Uncovered("runtime/devices/relocations.py", "", "of object code: tests/runtime/test_elf.py"),
    Uncovered("base/machine_code.py", "OSError", "falls back to LLVM's linker: tests/runtime"),
    Uncovered("runtime/devices/cpu.py", "MemoryError", "needs a machine without memory"),
    Uncovered("runtime/devices/cooperative.py", "interrupts", "of Ctrl-C: tests/runtime"),
    Uncovered("runtime/devices/cooperative.py", "why)", "needs a system without threads: ditto"),
    Uncovered("targets/nvidia/compilation.py", "PTXASError", "needs ptxas: tests/targets/nvidia"),
    Uncovered("runtime/driver.py", "is not active", "needs a missing driver: tests/runtime"),
    Uncovered("runtime/*driver*.py", "import torch", "needs programs without torch"),
    Uncovered("runtime/launch.py", "", "needs a target or a GPU besides: tests/runtime"),
    Uncovered("runtime/placement.py", "", "needs GPUs: tests/runtime/test_placement.py fakes them"),
    Uncovered("runtime/tensors.py", "how large its memory", "needs a GPU: tests/runtime"),
    Uncovered("ir/memory.py", "read-only", "a launch rejects such arrays: tests/interpret"),
    Uncovered("runtime/tensors.py", "is not a tensor", "its callers have checked it"),
    Uncovered("runtime/tuning/protect.py", "", "tuning continues without it: tests/runtime"),
    Uncovered("runtime/cache.py", "a cache key", "keys are the runtime's own"),
    Uncovered("runtime/cache_entries.py", "", "an invalid entry is a miss: tests/runtime"),
    Uncovered(
        "runtime/cache_maintenance.py", "", "of files that are damaged: tests/tools/test_cache.py"
    ),
    Uncovered(
        "runtime/specialization_data.py", "", "of what is recorded: tests/runtime/test_hooks.py"
    ),
    Uncovered("targets/nvidia/export.py", "global scratch", "no kernel needs any yet"),
    Uncovered("tools/opt.py", "str(error)", "lists the loaded passes: tests/tools"),
    Uncovered(
        "tools/cache.py", "the disk cache has no folder", "needs a user without a home directory"
    ),
    Uncovered("tools/link.py", "", "headers of compiled kernels: tests/ahead"),
    Uncovered("targets/nvidia/assemble.py", "made.error", "needs ptxas: tests/targets/nvidia"),
    Uncovered("targets/nvidia/disassemble.py", "", "needs nvdisasm, or none: tests/targets/nvidia"),
    Uncovered("testing.py", "nvidia-smi", "needs a machine without it: tests/runtime"),
    Uncovered("testing.py", "is not close", "NumPy's message, which depends on its version"),
)
