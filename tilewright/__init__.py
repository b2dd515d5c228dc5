"""tilewright: a language and a compiler for tile kernels, for the CPU and the GPU.

import tilewright
import tilewright.language as tl

@tilewright.jit
def scale(x, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + i, tl.load(x + i, i < n) * 2, i < n)

scale[(tilewright.cdiv(n, 128),)](x, n, BLOCK=128)
"""

from typing import TYPE_CHECKING

from tilewright import backends, compiler, errors, language, runtime
from tilewright.base import knobs
from tilewright.base.diagnostics import InternalCompilerError
from tilewright.base.lazy_import import lazy_names
from tilewright.compat import install_as_triton
from tilewright.compiler.driver import compile
from tilewright.compiler.version import VERSION as __version__
from tilewright.errors import (
    CompilationError,
    InterpreterError,
    OutOfResources,
    TilewrightError,
    TritonError,
)
from tilewright.language.aggregate import aggregate
from tilewright.language.core import must_use_result
from tilewright.runtime._allocation import set_allocator
from tilewright.runtime.async_compile import AsyncCompileMode, FutureKernel
from tilewright.runtime.jit import (
    JITFunction,
    KernelInterface,
    cdiv,
    constexpr_function,
    jit,
    next_power_of_2,
)
from tilewright.runtime.wrappers import MockTensor, TensorWrapper, reinterpret

# Most programs use few of these. `jax` and `torch` are not in `__all__`: `from tilewright import *`
# must not replace the program's own.
if TYPE_CHECKING:
    from tilewright import jax as jax
    from tilewright import testing
    from tilewright import torch as torch
    from tilewright.interop.torch_gradients import autograd_function
    from tilewright.runtime.autotuner import Autotuner, Config, Heuristics, autotune, heuristics
    from tilewright.runtime.gradients import grad, jvp, vjp
else:
    __getattr__ = lazy_names(
        __name__,
        {
            __name__: ("jax", "testing", "torch"),
            "tilewright.interop.torch_gradients": ("autograd_function",),
            "tilewright.runtime.autotuner": (
                "Autotuner", "Config", "Heuristics", "autotune", "heuristics",
            ),
            "tilewright.runtime.gradients": ("grad", "jvp", "vjp"),
        },
    )  # fmt: skip

__all__ = [
    "AsyncCompileMode",
    "Autotuner",
    "CompilationError",
    "Config",
    "FutureKernel",
    "Heuristics",
    "InternalCompilerError",
    "InterpreterError",
    "JITFunction",
    "KernelInterface",
    "MockTensor",
    "OutOfResources",
    "TensorWrapper",
    "TilewrightError",
    "TritonError",
    "__version__",
    "aggregate",
    "autograd_function",
    "autotune",
    "backends",
    "cdiv",
    "compile",
    "compiler",
    "constexpr_function",
    "errors",
    "grad",
    "heuristics",
    "install_as_triton",
    "jit",
    "jvp",
    "knobs",
    "language",
    "must_use_result",
    "next_power_of_2",
    "reinterpret",
    "runtime",
    "set_allocator",
    "testing",
    "vjp",
]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
