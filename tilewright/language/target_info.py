"""Queries about the target, as compile-time values.

    if tl.target_info.is_cuda():
        ...

In a kernel they refer to the target of the compilation, on the host to that of the active device.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import wraps
from typing import Any, NamedTuple

from tilewright.language.values import TRITON_BUILTIN, constexpr

__all__ = [
    "cuda_capability_geq",
    "current_target",
    "is_cuda",
    "is_hip",
    "is_hip_cdna3",
    "is_hip_cdna4",
    "is_hip_gfx1250",
]


class TargetInfo(NamedTuple):
    """A target.

    Attributes:
        backend: its name: ``cpu``, ``cuda``, ``hip``, ``interpreter``.
        arch: for CUDA, ten times the compute capability, such as 90; otherwise the target's name of
            the architecture, "" if there is none.
    """

    backend: str
    arch: int | str

    @classmethod
    def of(cls, backend: str, arch: int | str) -> TargetInfo:
        """The target of this name and architecture; for CUDA, also as ``sm90``."""
        number = re.fullmatch(r"sm_?(\d+)\w?", str(arch)) if backend == "cuda" else None
        return cls(backend, int(number[1]) if number else arch)


_host_target: Callable[[], Any] | None = None


def install_host_target(find: Callable[[], Any]) -> None:
    """Install the function that returns the current target outside of kernels."""
    global _host_target
    _host_target = find


def _query(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Make `fn`, which takes the target first, callable in kernels and on the host. In a kernel,
    the result is a constexpr."""

    @wraps(fn)
    def query(*args: Any, _semantic: Any = None, **kwargs: Any) -> Any:
        plain = [a.value if isinstance(a, constexpr) else a for a in args]
        named = {k: v.value if isinstance(v, constexpr) else v for k, v in kwargs.items()}
        if _semantic is None:
            found = _host_target() if _host_target is not None else None
            return fn(found and TargetInfo.of(found.backend, found.arch), *plain, **named)
        options = _semantic.options
        return constexpr(fn(TargetInfo.of(options.backend_name, options.arch), *plain, **named))

    setattr(query, TRITON_BUILTIN, True)
    return query


@_query
def current_target(target: TargetInfo | None) -> TargetInfo | None:
    """The target; its `backend` and `arch` can be read."""
    return target


@_query
def is_cuda(target: TargetInfo | None) -> bool:
    """Whether the target is an NVIDIA GPU."""
    return target is not None and target.backend == "cuda"


@_query
def cuda_capability_geq(target: TargetInfo | None, major: int, minor: int = 0) -> bool:
    """Whether the target is an NVIDIA GPU of at least this compute capability."""
    if target is None or target.backend != "cuda" or not isinstance(target.arch, int):
        return False
    return target.arch >= major * 10 + minor


def _is_hip_arch(target: TargetInfo | None, arch: str) -> bool:
    return target is not None and target.backend == "hip" and target.arch == arch


@_query
def is_hip(target: TargetInfo | None) -> bool:
    """Whether the target is an AMD GPU."""
    return target is not None and target.backend == "hip"


@_query
def is_hip_cdna3(target: TargetInfo | None) -> bool:
    """Whether the target is an AMD GPU of the third CDNA generation."""
    return _is_hip_arch(target, "gfx942")


@_query
def is_hip_cdna4(target: TargetInfo | None) -> bool:
    """Whether the target is an AMD GPU of the fourth CDNA generation."""
    return _is_hip_arch(target, "gfx950")


@_query
def is_hip_gfx1250(target: TargetInfo | None) -> bool:
    """Whether the target is an AMD GPU of this architecture."""
    return _is_hip_arch(target, "gfx1250")
