"""Queries about the compiler and about argument types that do not compile anything."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from tilewright.base import knobs
from tilewright.compiler.version import compiler_key
from tilewright.runtime import driver
from tilewright.runtime.cache import digest
from tilewright.runtime.specialization_data import serialize
from tilewright.runtime.specialize import Mode, Spec, spec_of

T = TypeVar("T")
"""The kernel's function type, in programs that write ``KernelInterface[T]``."""


class LazyDict:
    """A dict with some lazily computed entries.

        facts = LazyDict({"name": "add"})
        facts.add(lambda n: {"bytes": 12 * n}, (1 << 20,))
        facts.get()  # {"name": "add", "bytes": 12582912}

    Args:
        data: the initial entries.
    """

    def __init__(self, data: dict[str, Any]) -> None:
        self.data = data
        self.extras: list[tuple[Callable[..., Mapping[str, Any]], tuple[Any, ...]]] = []

    def add(self, func: Callable[..., Mapping[str, Any]], args: tuple[Any, ...]) -> None:
        """Add the entries returned by ``func(*args)``, evaluated by `get`."""
        self.extras.append((func, args))

    def get(self) -> dict[str, Any]:
        """All entries."""
        while self.extras:
            func, args = self.extras.pop(0)
            self.data = {**self.data, **func(*args)}
        return self.data


def get_cache_key(src: Any, backend: Any, backend_options: Any, env_vars: Mapping[str, str]) -> str:
    """The cache key of a compilation, in hexadecimal digits.

    Args:
        src: an `ASTSource` or `IRSource`.
        backend: from `make_backend`.
        backend_options: from its `parse_options`.
        env_vars: the settings that affect compiled code, by name.
    """
    settings = str(sorted(env_vars.items()))
    return digest(compiler_key(), src.hash(), backend.hash(), repr(backend_options), settings)


def get_cache_invalidating_env_vars() -> dict[str, str]:
    """The settings that compiled code depends on, by name."""
    return {name: str(value) for name, value in knobs.cache_key_values().items()}


def max_shared_mem(device: int) -> int:
    """The maximum shared memory of a kernel, in bytes, on a device of the active driver."""
    utils: Any = getattr(driver.active, "utils")  # noqa: B009 (of built-in drivers alone)
    return utils.get_device_properties(device)["max_shared_mem"]


def get_jit_fn_file_line(fn: Any) -> tuple[str, int]:
    """The file of a kernel, and the line number of its ``def``.

    Args:
        fn: a kernel, or an `Autotuner` or `Heuristics` of one.
    """
    while not hasattr(fn, "starting_line_number"):
        fn = fn.fn
    return fn.file_name, fn.def_line


def mangle_type(arg: Any, specialize: bool = False) -> str:
    """The type string of an argument in a signature: ``"*fp32"``, ``"i32"``.

    Args:
        arg: a kernel's argument.
        specialize: whether an int of 1 is a compile-time value.
    """
    return spec_of(arg, Mode(by_value=specialize))[0]


def native_specialize_impl(
    backend: Any, arg: Any, is_const: bool, specialize_value: bool, align: bool
) -> Spec:
    """Type string and specialisation key of an argument, as at a launch.

    Args:
        backend: ignored; all targets specialise alike.
        arg: a kernel's argument.
        is_const: whether the pointer is to constant memory.
        specialize_value: whether to specialise ints for 1 and for divisibility by 16.
        align: whether to specialise for divisibility.
    """
    mode = Mode(is_const, specialize_value, specialize_value and align)
    return spec_of(arg, mode)


def serialize_specialization_data(
    name: str,
    signature: Mapping[str, Any],
    constants: Mapping[Any, Any],
    attrs: Mapping[Any, Any],
    options: Any,
    key: str,
) -> str:
    """The text from which `preload` compiles a variant for the active driver's target; "" if a
    value cannot be represented. vLLM replaces this function in `triton.runtime.jit`, which changes
    nothing here: compilation hooks receive "" where Triton's function raises.

    Args:
        name: the qualified name of the kernel.
        signature, constants, attrs: as for `ASTSource`.
        options: options parsed by the target.
        key: the variant's key.
    """
    target = driver.active.get_current_target()
    return serialize(name, signature, constants, attrs, options, str(key), target)
