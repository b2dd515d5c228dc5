"""Names that libraries import from modules of `triton` and that tilewright itself does not use.

They are added to tilewright's modules when these are installed as `triton`, and each is imported
on first access. Names that are missing here too raise AttributeError.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

from tilewright.base.late import late

_LANGUAGE = "language"

EXTRAS: Mapping[str, Mapping[str, late]] = {
    "compiler": {
        "GPUTarget": late("tilewright.targets.protocol:GPUTarget"),
        "LazyDict": late("tilewright.compat.compiling:LazyDict"),
        "get_cache_key": late("tilewright.compat.compiling:get_cache_key"),
        "max_shared_mem": late("tilewright.compat.compiling:max_shared_mem"),
    },
    "language.core": {
        "_unwrap_if_constexpr": late("tilewright.language.values:unwrap"),
        "constexpr_function": late("tilewright.runtime.jit:constexpr_function"),
        "semantic": late("tilewright.language:semantic"),
        "tensor_descriptor_base": late("tilewright.language.tensor_descriptor:tensor_descriptor"),
    },
    "language.standard": {
        "_is_power_of_two": late("tilewright.compat.functions:is_power_of_two"),
        "_log2": late("tilewright.compat.functions:log2"),
    },
    "runtime.cache": {
        "CacheManager": late("tilewright.compat.managers:CacheManager"),
        "FileCacheManager": late("tilewright.compat.managers:FileCacheManager"),
        "_base32": late("tilewright.compat.managers:base32"),
        "get_cache_key": late("tilewright.compat.compiling:get_cache_key"),
        "get_cache_manager": late("tilewright.compat.managers:get_cache_manager"),
        "get_dump_manager": late("tilewright.compat.managers:get_dump_manager"),
        "get_override_manager": late("tilewright.compat.managers:get_override_manager"),
        "make_so_cache_key": late("tilewright.compat.managers:make_so_cache_key"),
        "triton_key": late("tilewright.compiler.version:compiler_key"),
    },
    "runtime.jit": {
        "KernelParam": late("tilewright.frontend.source:KernelParam"),
        "T": late("tilewright.compat.compiling:T"),
        "get_jit_fn_file_line": late("tilewright.compat.compiling:get_jit_fn_file_line"),
        "mangle_type": late("tilewright.compat.compiling:mangle_type"),
        "native_specialize_impl": late("tilewright.compat.compiling:native_specialize_impl"),
    },
}
"""The objects by module and name."""

OF_THE_LANGUAGE = ("language.core", "language.standard")
"""Modules in which every name of `triton.language` is also available."""


def add_extras(package: str) -> None:
    """Add the extra names to the modules of a package, which are already loaded."""
    for name, extras in EXTRAS.items():
        more = sys.modules[f"{package}.{_LANGUAGE}"] if name in OF_THE_LANGUAGE else None
        module = sys.modules[f"{package}.{name}"]
        before = vars(module).get("__getattr__")
        if not isinstance(before, _Extras):
            vars(module)["__getattr__"] = _Extras(module, extras, more, before)


class _Extras:
    """The `__getattr__` of a module, called for missing attributes.

    Args:
        module: the name of the module.
        extras: its extra names.
        more: another module whose public names are also available.
        before: the previous `__getattr__` of the module.
    """

    def __init__(
        self,
        module: ModuleType,
        extras: Mapping[str, late],
        more: ModuleType | None,
        before: Callable[[str], Any] | None,
    ) -> None:
        self.module, self.extras, self.more, self.before = module, extras, more, before

    def __call__(self, name: str) -> Any:
        if name in self.extras:
            found = self.extras[name].load()
        elif self.more is not None and name in self.more.__all__:
            found = getattr(self.more, name)
        elif self.before is not None:
            return self.before(name)
        else:
            module = self.module.__name__
            raise AttributeError(f"module {module!r} has no attribute {name!r}", name=name)
        vars(self.module)[name] = found
        return found
