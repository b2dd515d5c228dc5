"""Types of hooks and groups of settings that programs import from `triton.knobs`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeAlias, TypedDict

from tilewright.base import knobs, triton_knobs
from tilewright.compiler.artifact import Times as Times

LaunchHook: TypeAlias = Callable[[Any], None]
"""Called with the metadata of a launch, before or after it."""

InitHandleHook: TypeAlias = Callable[[Any, Callable[..., Any], str, dict[str, Any], str], None]
"""Called with module, function, name, metadata and hash when a kernel is loaded."""

CompilationListener: TypeAlias = Callable[..., None]
"""Called by keyword with src, metadata, metadata_group, times and cache_hit."""


class JITHookCompileInfo(TypedDict):
    """What a hook of compilations receives as `compile`."""

    key: str
    signature: dict[str, str]
    device: int
    constants: Any
    num_warps: int
    num_ctas: int
    num_stages: int
    enable_fp_fusion: bool
    launch_cooperative_grid: bool
    extern_libs: Any
    configs: Any
    specialization_data: str
    is_warmup: bool


class JITHook(Protocol):
    """Called before or after a compilation; a true result of the first cancels it."""

    def __call__(
        self,
        *,
        key: str,
        repr: str,
        fn: Any,
        compile: JITHookCompileInfo,
        is_manual_warmup: bool,
        already_compiled: bool,
    ) -> bool | None: ...


GROUPS: dict[str, type[knobs.Group]] = {
    "base_knobs": knobs.Group,
    **{f"{name}_knobs": type(group) for name, group in knobs.GROUPS.items()},
    **{f"{n}_knobs": type(knobs.triton_group(n)) for n in triton_knobs.GROUPS},
}
"""The classes of the groups of settings by their names in Triton."""
