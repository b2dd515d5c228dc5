"""Launching of kernels: specialisation of arguments, caches, compilation on a miss, execution."""

from typing import TYPE_CHECKING

from tilewright.base.diagnostics import InterpreterError, OutOfResources
from tilewright.base.lazy_import import lazy_names
from tilewright.runtime import driver
from tilewright.runtime.async_compile import FutureKernel
from tilewright.runtime.jit import JITFunction, KernelInterface
from tilewright.runtime.reachable import reachable
from tilewright.runtime.wrappers import MockTensor, TensorWrapper, reinterpret

if TYPE_CHECKING:
    from tilewright.runtime import autotuner as autotuner
    from tilewright.runtime.autotuner import (
        Autotuner,
        Config,
        Heuristics,
        autotune,
        export_tuning,
        heuristics,
        import_tuning,
    )
else:
    __getattr__ = lazy_names(
        __name__,
        {
            __name__: ("autotuner",),
            "tilewright.runtime.autotuner": (
                "Autotuner", "Config", "Heuristics", "autotune", "export_tuning", "heuristics",
                "import_tuning",
            ),
        },
    )  # fmt: skip

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
