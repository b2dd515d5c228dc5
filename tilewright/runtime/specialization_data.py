"""Serialised kernel variants, for compilation hooks and `preload`.

`knobs.runtime.jit_cache_hook` and `jit_post_compile_hook` are called with keywords before and after
a variant is compiled. `compile["specialization_data"]` is a text from which another process can
compile the same variant ahead of its first launch: ``kernel.preload(text)``.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from tilewright.compiler.artifact import CompiledKernel
from tilewright.compiler.driver import compile_source
from tilewright.compiler.source import ArgPath, ASTSource
from tilewright.frontend.source import JITCallable
from tilewright.ir.types import DType, scalar_type
from tilewright.language.values import constexpr
from tilewright.targets.protocol import GPUTarget, options_dict
from tilewright.targets.registry import parsed_options
from tilewright.targets.registry import target as find_target

_SHOWN_OPTIONS = (
    "num_warps",
    "num_ctas",
    "num_stages",
    "enable_fp_fusion",
    "launch_cooperative_grid",
)


class JitFunctionInfo(NamedTuple):
    """The kernel, as described to a hook."""

    module: str
    name: str
    jit_function: Any


class Variant(NamedTuple):
    """A variant to be compiled.

    Attributes:
        source: the kernel with types and compile-time values.
        target: the target.
        options: options parsed by the target.
        key: the variant's key in the kernel's cache, `DeviceCache.kernel_cache`.
        device: the name of the device.
        is_warmup: whether this is a compilation without a launch.
    """

    source: ASTSource
    target: GPUTarget
    options: Any
    key: str
    device: str
    is_warmup: bool


def hook_arguments(variant: Variant) -> dict[str, Any]:
    """The keyword arguments of compilation hooks."""
    source, fn = variant.source, variant.source.fn
    options = options_dict(variant.options)
    shown = ", ".join(f"{name}={options.get(name)}" for name in _SHOWN_OPTIONS)
    types = ", ".join(f"{name}: {type}" for name, type in source.signature.items())
    compiled = {
        "key": variant.key,
        "signature": source.signature,
        "device": variant.device,
        "constants": source.constants,
        **{name: options.get(name) for name in _SHOWN_OPTIONS},
        "extern_libs": options.get("extern_libs"),
        "configs": [source.attrs],
        "specialization_data": dump(variant),
        "is_warmup": variant.is_warmup,
    }
    return {
        "key": variant.key,
        "repr": f"{fn.__qualname__}[{shown}]({types})",
        "fn": JitFunctionInfo(fn.__module__, fn.__qualname__, fn),
        "compile": compiled,
        "is_manual_warmup": variant.is_warmup,
        "already_compiled": False,
    }


# -- serialisation --------------------------------------------------------------------------------


def dump(variant: Variant) -> str:
    """Serialise a variant, for `load`; "" if a value cannot be represented."""
    source = variant.source
    name = source.fn.__qualname__
    parts = source.signature, source.constants, source.attrs
    return serialize(name, *parts, variant.options, variant.key, variant.target)


def serialize(
    name: str,
    signature: Mapping[str, Any],
    constants: Mapping[ArgPath, Any],
    attrs: Mapping[ArgPath, Any],
    options: Any,
    key: str,
    target: GPUTarget,
) -> str:
    """The text of a variant, for `load`; "" if a value cannot be represented.

    Args:
        name: the qualified name of the kernel.
        signature, constants, attrs: as for `ASTSource`.
        options: options parsed by the target.
        key: the variant's key.
        target: the target.
    """
    try:
        return json.dumps(
            {
                "name": name,
                "signature": signature,
                "constants": [[list(p), _plain(v)] for p, v in constants.items()],
                "attrs": [[list(p), facts] for p, facts in attrs.items()],
                "options": options_dict(options),
                "target": [target.backend, target.arch, target.warp_size],
                "key": key,
            }
        )
    except TypeError:
        return ""


def load(fn: Any, text: str, target: GPUTarget) -> CompiledKernel:
    """Compile the variant that a text describes.

    Raises:
        RuntimeError: it is for another kernel or target, or refers to a function that does not
            exist in this process.
    """
    data = json.loads(text)
    if data["name"] != fn.__qualname__:
        raise RuntimeError(
            f"Specialization data is for {data['name']} but trying to preload for {fn.__qualname__}"
        )
    recorded = GPUTarget(*data["target"])
    if recorded != target:
        raise RuntimeError(
            f"Specialization data is for {recorded} but trying to preload for {target}"
        )
    constants = {_path(path): _value(value) for path, value in data["constants"]}
    attrs = {_path(path): facts for path, facts in data["attrs"]}
    source = ASTSource(fn, _tuples(data["signature"]), constants, attrs)
    compiler = find_target(target)
    options = {name: _tuples(value) for name, value in data["options"].items()}
    return compile_source(source, target, parsed_options(compiler, options))


def _plain(value: Any) -> Any:
    """A compile-time value in terms of JSON types.

    Raises:
        TypeError: it cannot be represented.
    """
    if isinstance(value, constexpr):
        return {"constexpr": _plain(value.value)}
    if isinstance(value, JITCallable):
        return {"jit_function": f"{value.__module__}:{value.__qualname__}"}
    if isinstance(value, DType):
        return {"dtype": value.short}
    if isinstance(value, tuple):
        return {"tuple": [_plain(item) for item in value]}
    if isinstance(value, float):
        return {"float": value.hex()}
    if value is None or isinstance(value, bool | int | str):
        return value
    raise TypeError(f"{type(value).__name__} has no form in JSON")


def _value(plain: Any) -> Any:
    """The inverse of `_plain`."""
    if not isinstance(plain, dict):
        return plain
    ((kind, inner),) = plain.items()
    convert: Mapping[str, Callable[[Any], Any]] = {
        "constexpr": lambda v: constexpr(_value(v)),
        "jit_function": _resolve,
        "dtype": scalar_type,
        "tuple": lambda items: tuple(map(_value, items)),
        "float": float.fromhex,
    }
    return convert[kind](inner)


def _resolve(name: str) -> Any:
    try:
        # Only from loaded modules: data must not cause an import.
        result: Any = sys.modules[name.partition(":")[0]]
        for part in name.partition(":")[2].split("."):
            result = getattr(result, part)
    except (KeyError, AttributeError):
        raise RuntimeError(f"Unable to resolve JITFunction {name} for preload") from None
    return result


def _path(path: list[int]) -> ArgPath:
    return tuple(path)


def _tuples(value: Any) -> Any:
    """The value with JSON lists replaced by tuples."""
    if isinstance(value, dict):
        return {k: _tuples(v) for k, v in value.items()}
    return tuple(map(_tuples, value)) if isinstance(value, list) else value
