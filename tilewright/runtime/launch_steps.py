"""A launch up to its compilation, in steps.

Programs that compile ahead of a launch, in a process of their own for example, take the steps of
Triton's `JITFunction.run` one by one:

    kernels, keys, target, backend, bind = kernel.device_caches[device]
    arguments, specialization, given = bind(x, n, BLOCK=128, num_warps=4)
    key = compute_cache_key(keys, specialization, given)
    if key not in kernels:
        packed = kernel._pack_args(backend, given, arguments, specialization, given)
        parsed, signature, constants, attrs = packed
        source = kernel.ASTSource(kernel, signature, constants, attrs)
        kernels[key] = kernel.compile(source, target=target, options=parsed.__dict__)

The launch that follows finds the kernel in the disk cache. It does not look for `key`, since a
variant here depends on more than the arguments' types: on which of them overlap, for example.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

from tilewright.compiler.source import ASTSource
from tilewright.runtime.kinds import Spec


class Specialization(list[Spec]):
    """For each argument, its type and the facts known of it.

    Attributes:
        source: the kernel with these types.
    """

    def __init__(self, specs: Iterable[Spec], source: ASTSource) -> None:
        super().__init__(specs)
        self.source = source


StepBinder: TypeAlias = Callable[..., tuple[dict[str, Any], Specialization, dict[str, Any]]]
"""Returns the arguments by name, their types, and the compile options among the keywords."""


def compute_cache_key(
    keys: dict[Any, str], specialization: Specialization, options: dict[str, Any]
) -> str:
    """A key in `DeviceCache.kernel_cache` for arguments and compile options."""
    return f"{specialization.source.hash()} {options}"
