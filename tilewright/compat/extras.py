"""Names that libraries import from modules of `triton` and that tilewright itself does not use.

They are added to tilewright's modules when these are installed as `triton`, and each is imported
on first access. Names that are missing here too raise AttributeError.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any

from tilewright import language
from tilewright.base import triton_knobs
from tilewright.base.lazy_import import lazy_import
from tilewright.compiler import version
from tilewright.frontend import source
from tilewright.language import values
from tilewright.language.tensor_descriptor import tensor_descriptor
from tilewright.runtime import jit
from tilewright.targets import protocol

if TYPE_CHECKING:
    from tilewright.compat import compiling, functions, knob_types, managers, missing, tools
    from tilewright.runtime import launch_steps
else:
    compiling = lazy_import("tilewright.compat.compiling")
    functions = lazy_import("tilewright.compat.functions")
    launch_steps = lazy_import("tilewright.runtime.launch_steps")
    knob_types = lazy_import("tilewright.compat.knob_types")
    managers = lazy_import("tilewright.compat.managers")
    missing = lazy_import("tilewright.compat.missing")
    tools = lazy_import("tilewright.compat.tools")

_LANGUAGE = "language"

KNOB_GROUPS = (
    "amd", "autotuning", "build", "cache", "compilation", "language", "nvidia", "proton", "redis",
    "runtime",
)  # fmt: skip


COMBINE_FUNCTIONS = (
    "elementwise_max",
    "elementwise_min",
    "or_combine",
    "sum_combine",
    "xor_combine",
)


def _combine(name: str) -> Callable[[], object]:
    return lambda: getattr(functions, name)


def _knob_group(name: str) -> Callable[[], object]:
    return lambda: knob_types.GROUPS[name]


def _remote(name: str) -> Callable[[], object]:
    why = "the cache is a folder, which machines may share; see docs/cache.md"
    return lambda: missing.Missing(f"triton.runtime.cache.{name}", why)


EXTRAS: Mapping[str, Mapping[str, Callable[[], object]]] = {
    "base.knobs": {
        "CompilationListener": lambda: knob_types.CompilationListener,
        "CompileTimes": lambda: knob_types.Times,
        "InitHandleHook": lambda: knob_types.InitHandleHook,
        "JITHook": lambda: knob_types.JITHook,
        "JITHookCompileInfo": lambda: knob_types.JITHookCompileInfo,
        "LaunchHook": lambda: knob_types.LaunchHook,
        "NvidiaTool": lambda: tools.NvidiaTool,
        "base_knobs": _knob_group("base_knobs"),
        **{f"{name}_knobs": _knob_group(f"{name}_knobs") for name in KNOB_GROUPS},
    },
    "compiler": {
        "get_cache_invalidating_env_vars": lambda: compiling.get_cache_invalidating_env_vars,
        "get_cache_manager": lambda: managers.get_cache_manager,
        "get_dump_manager": lambda: managers.get_dump_manager,
        "get_override_manager": lambda: managers.get_override_manager,
        "GPUTarget": lambda: protocol.GPUTarget,
        "LazyDict": lambda: compiling.LazyDict,
        "get_cache_key": lambda: compiling.get_cache_key,
        "max_shared_mem": lambda: compiling.max_shared_mem,
    },
    "language.core": {
        "CONSTEXPR_0": lambda: values.constexpr(0),
        "_constexpr_to_value": lambda: values.unwrap,
        "_tensor_member_fn": lambda: values.tensor_method,
        "_unwrap_if_constexpr": lambda: values.unwrap,
        "_unwrap_shape": lambda: values.unwrap_shape,
        "constexpr_function": lambda: jit.constexpr_function,
        "semantic": lambda: language.semantic,
        "tensor_descriptor_base": lambda: tensor_descriptor,
    },
    "language.standard": {
        "_is_power_of_two": lambda: functions.is_power_of_two,
        "_log2": lambda: functions.log2,
        **{f"_{name}": _combine(name) for name in COMBINE_FUNCTIONS},
    },
    "runtime.cache": {
        "CacheManager": lambda: managers.CacheManager,
        "FileCacheManager": lambda: managers.FileCacheManager,
        "RedisRemoteCacheBackend": _remote("RedisRemoteCacheBackend"),
        "RemoteCacheBackend": _remote("RemoteCacheBackend"),
        "RemoteCacheManager": _remote("RemoteCacheManager"),
        "_base32": lambda: managers.base32,
        "get_cache_invalidating_env_vars": lambda: compiling.get_cache_invalidating_env_vars,
        "get_cache_key": lambda: compiling.get_cache_key,
        "get_cache_manager": lambda: managers.get_cache_manager,
        "get_dump_manager": lambda: managers.get_dump_manager,
        "get_override_manager": lambda: managers.get_override_manager,
        "make_so_cache_key": lambda: managers.make_so_cache_key,
        "triton_key": lambda: version.compiler_key,
    },
    "runtime.jit": {
        "KernelParam": lambda: source.KernelParam,
        "T": lambda: compiling.T,
        "compute_cache_key": lambda: launch_steps.compute_cache_key,
        "get_jit_fn_file_line": lambda: compiling.get_jit_fn_file_line,
        "mangle_type": lambda: compiling.mangle_type,
        "native_specialize_impl": lambda: compiling.native_specialize_impl,
        "serialize_specialization_data": lambda: compiling.serialize_specialization_data,
    },
}
"""By module and name, functions that return the object."""

TOOLS: Mapping[tuple[str, str], Callable[[], object]] = {
    ("nvidia", "cuobjdump"): lambda: tools.tool("cuobjdump"),
    ("nvidia", "nvdisasm"): lambda: tools.tool("nvdisasm"),
    ("nvidia", "ptxas"): lambda: tools.tool("ptxas"),
}
"""Settings whose value is a program with its path and version."""

OF_THE_LANGUAGE = ("language.core", "language.standard")
"""Modules in which every name of `triton.language` is also available."""


def add_extras(package: str) -> None:
    """Add the extra names to the modules of a package, which are already loaded."""
    triton_knobs.TOOLS.update(TOOLS)
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
        extras: Mapping[str, Callable[[], object]],
        more: ModuleType | None,
        before: Callable[[str], Any] | None,
    ) -> None:
        self.module, self.extras, self.more, self.before = module, extras, more, before

    def __call__(self, name: str) -> Any:
        if name in self.extras:
            result = self.extras[name]()
        elif self.more is not None and name in self.more.__all__:
            result = getattr(self.more, name)
        elif self.before is not None:
            return self.before(name)
        else:
            module = self.module.__name__
            raise AttributeError(f"module {module!r} has no attribute {name!r}", name=name)
        vars(self.module)[name] = result
        return result
