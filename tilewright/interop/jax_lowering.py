"""Lowering of calls of kernels to custom calls of XLA."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.ffi
import numpy as np

from tilewright.interop.xla_kernels import ATTRIBUTES, UnsupportedXla, handler

TARGET = "tilewright_kernel"
"""The name of the custom call."""

PLATFORMS = {"cpu": "cpu", "cuda": "CUDA"}
"""The platforms of JAX whose programs may call kernels, with XLA's names of them."""


class Attributes(NamedTuple):
    """The attributes of the custom call; see `xla_handlers`."""

    kernel: str
    site: np.ndarray[Any, Any]


def device_of(platform: str) -> str:
    """The device for which kernels are compiled."""
    return "cpu" if platform == "cpu" else "cuda:0"


def lower_call(
    platform: str,
    ctx: Any,
    operands: Sequence[Any],
    attributes: Attributes,
    aliases: Mapping[int, int],
) -> Any:
    """The custom call.

    Args:
        ctx: JAX's context of the lowering.
        aliases: operands that are updated in place, with the index of the result.
    """
    register(platform)
    rule = jax.ffi.ffi_lowering(TARGET, operand_output_aliases=dict(aliases))
    return rule(ctx, *operands, **dict(zip(ATTRIBUTES, attributes, strict=True)))


def unsupported_platform(ctx: Any, name: str) -> NotImplementedError:
    """The error for a program for another platform."""
    platforms = ", ".join(ctx.module_context.platforms)
    return NotImplementedError(
        f"kernels of tilewright run on {' and '.join(PLATFORMS)}, not on {platforms}: "
        f"{name} is called in a program for it"
    )


@cache
def register(platform: str) -> None:
    """Register the handler with XLA."""
    address = handler(platform, _xla_version())
    capsule = jax.ffi.pycapsule(ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(address))
    jax.ffi.register_ffi_target(TARGET, capsule, platform=PLATFORMS[platform])


def _xla_version() -> tuple[int, int]:
    """The version of XLA's foreign function interface, from the header in jaxlib."""
    header = Path(jax.ffi.include_dir(), "xla", "ffi", "api", "c_api.h")
    try:
        text = header.read_text("utf-8")
    except OSError as error:
        raise UnsupportedXla(f"jaxlib has no header of XLA's interface: {error}") from None
    found = [re.search(rf"#define XLA_FFI_API_{part} (\d+)", text) for part in ("MAJOR", "MINOR")]
    if None in found:
        raise UnsupportedXla(f"{header} defines no version of XLA's foreign function interface")
    major, minor = (int(match[1]) for match in found if match)
    return major, minor
