"""Launching of kernels: specialisation of arguments, caches, compilation on a miss, execution."""

from tilewright.base.diagnostics import InterpreterError, OutOfResources
from tilewright.runtime import driver
from tilewright.runtime.async_compile import FutureKernel
from tilewright.runtime.autotuner import (
    Autotuner,
    Config,
    Heuristics,
    autotune,
    export_tuning,
    heuristics,
    import_tuning,
)
from tilewright.runtime.jit import JITFunction, KernelInterface
from tilewright.runtime.reachable import reachable
from tilewright.runtime.wrappers import MockTensor, TensorWrapper, reinterpret

__all__ = [
    "Autotuner",
    "Config",
    "FutureKernel",
    "Heuristics",
    "InterpreterError",
    "JITFunction",
    "KernelInterface",
    "MockTensor",
    "OutOfResources",
    "TensorWrapper",
    "autotune",
    "driver",
    "export_tuning",
    "heuristics",
    "import_tuning",
    "reachable",
    "reinterpret",
]
