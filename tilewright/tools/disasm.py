"""Disassembly of GPU code, if `nvdisasm` is installed."""

from __future__ import annotations

import re

from tilewright.targets.protocol import GPUTarget
from tilewright.targets.registry import target

__all__ = ["extract", "get_sass"]

_FUNCTION = re.compile(r"^\.text\.([\w$.]+):", re.MULTILINE)


def get_sass(cubin: bytes, fun: str | None = None) -> str:
    """The SASS of a cubin.

        get_sass(kernel.asm["cubin"])

    Args:
        cubin: the binary.
        fun: the name of a kernel, to return only its code.

    Raises:
        FileNotFoundError: `nvdisasm` is not installed.
        ValueError: the binary does not contain the kernel.
    """
    text = _sass(cubin)
    if fun is None:
        return text
    starts = list(_FUNCTION.finditer(text))
    for found, following in zip(starts, [*starts[1:], None], strict=True):
        if found[1] == fun:
            return text[found.start() : following.start() if following else len(text)]
    has = ", ".join(x[1] for x in starts) or "none"
    raise ValueError(f"no kernel {fun!r} in this cubin; its kernels: {has}")


def extract(file_path: str, fun: str | None = None) -> str:
    """The SASS of a file with a cubin; see `get_sass`."""
    with open(file_path, "rb") as file:
        return get_sass(file.read(), fun)


def _sass(cubin: bytes) -> str:
    try:
        text = target(GPUTarget("cuda")).derive("sass", {"cubin": cubin}, {})
    except KeyError:
        raise FileNotFoundError(
            "nvdisasm is required for SASS and was not found: pip install nvidia-cuda-nvdisasm"
        ) from None
    assert isinstance(text, str)
    return text
