"""What programs ask of the compiler and of a kernel's arguments without compiling anything."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from tilewright.compiler.version import compiler_key
from tilewright.runtime import driver
from tilewright.runtime.cache import digest
from tilewright.runtime.jit import constexpr_key
from tilewright.runtime.specialize import Mode, Spec, spec_of

T = TypeVar("T")
"""The kernel's function, where programs write ``KernelInterface[T]``."""


class LazyDict:
    """A dict, some of whose entries are computed when they are asked for.

        facts = LazyDict({"name": "add"})
        facts.add(lambda n: {"bytes": 12 * n}, (1 << 20,))
        facts.get()  # {"name": "add", "bytes": 12582912}

    Args:
        data: the entries that are known.
    """

    def __init__(self, data: dict[str, Any]) -> None:
        self.data = data
        self.extras: list[tuple[Callable[..., Mapping[str, Any]], tuple[Any, ...]]] = []

    def add(self, func: Callable[..., Mapping[str, Any]], args: tuple[Any, ...]) -> None:
        """Have ``func(*args)`` give more entries."""
        self.extras.append((func, args))

    def get(self) -> dict[str, Any]:
        """All entries."""
        while self.extras:
            func, args = self.extras.pop(0)
            self.data = {**self.data, **func(*args)}
        return self.data


def get_cache_key(src: Any, backend: Any, backend_options: Any, env_vars: Mapping[str, str]) -> str:
    """A text that is the same exactly when the same code comes out: hexadecimal digits.

    Args:
        src: an `ASTSource` or `IRSource`.
        backend: what `make_backend` gives.
        backend_options: what its `parse_options` gives.
        env_vars: settings that change the code, by name.
    """
    settings = str(sorted(env_vars.items()))
    return digest(compiler_key(), src.hash(), backend.hash(), repr(backend_options), settings)


def max_shared_mem(device: int) -> int:
    """Bytes of shared memory that a kernel may use on a device of the active driver."""
    utils: Any = getattr(driver.active, "utils")  # noqa: B009 (of built-in drivers alone)
    return utils.get_device_properties(device)["max_shared_mem"]


def get_jit_fn_file_line(fn: Any) -> tuple[str, int]:
    """The file of a kernel, and the number of its ``def`` line.

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
    return spec_of(arg, Mode(by_value=specialize), constexpr_key)[0]


def native_specialize_impl(
    backend: Any, arg: Any, is_const: bool, specialize_value: bool, align: bool
) -> Spec:
    """Type string and key of an argument, as a launch finds them.

    Args:
        backend: not needed, as all targets specialise alike.
        arg: a kernel's argument.
        is_const: whether the pointer is one to constants.
        specialize_value: whether ints of 1 and divisibility by 16 make a variant.
        align: whether divisibility does.
    """
    mode = Mode(is_const, specialize_value, specialize_value and align)
    return spec_of(arg, mode, constexpr_key)
