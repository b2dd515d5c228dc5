"""Names that programs import from `triton._C.libtriton`, Triton's compiler in C++."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilewright.base.lazy_import import lazy_import
from tilewright.compat.compiling import (
    get_cache_invalidating_env_vars as get_cache_invalidating_env_vars,
)
from tilewright.compat.compiling import native_specialize_impl as native_specialize_impl
from tilewright.compat.missing import missing_names

if TYPE_CHECKING:
    from tilewright.compat.native_compiler import ir as ir
else:
    ir = lazy_import("tilewright.compat.native_compiler.ir")

__getattr__ = missing_names(
    __name__,
    "triton._C.libtriton",
    "amd getenv getenv_bool gluon_ir interpreter linear_layout llvm nvidia passes proton",
    "it is Triton's compiler in C++. `tilewright.compile` compiles kernels, and "
    "`python -m tilewright opt` runs passes",
)
