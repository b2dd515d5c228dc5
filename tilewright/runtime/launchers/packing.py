"""Packing of launch arguments into the array of 8-byte slots that compiled code reads."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tilewright.ir.types import numpy_of, scalar_type

# `struct` formats that fill an 8-byte slot. Integers are sign- or zero-extended.
_FORMATS = {
    **{f"i{bits}": "q" for bits in (8, 16, 32, 64)},
    **{f"u{bits}": "Q" for bits in (8, 16, 32, 64)},
    "i1": "?7x",
    "u1": "?7x",
    "fp16": "e6x",
    "fp32": "f4x",
    "fp64": "d",
}


def _bits_of(short: str) -> Callable[[Any], int]:
    """A function from a number to its bit pattern in a floating-point type."""
    dtype = numpy_of(scalar_type(short))
    unsigned = np.dtype(f"u{dtype.itemsize}")

    def bits(value: Any) -> int:
        with np.errstate(over="ignore"):
            return int(np.asarray(value, np.float64).astype(dtype).view(unsigned))

    return bits


def make_packer(arguments: Sequence[tuple[Sequence[int], str]]) -> Callable[[Any], bytes]:
    """Generate a function from argument values to the packed slots of a compiled kernel.

    Args:
        arguments: path and type string of each argument passed at run time.

    The function returns a new bytes object on each call, which is faster than filling a buffer
    (five arguments: 0.16 µs; a ctypes array takes 0.67, a NumPy record 0.66) and thread-safe.
    """
    names: dict[str, Any] = {}
    direct: list[tuple[str, str]] = []  # format and expression of each slot
    by_bits: list[tuple[str, str]] = []  # the same, with all floats rounded by NumPy
    for path, type in arguments:
        item = "slots" + "".join(f"[{index}]" for index in path)
        bits = item
        if type.startswith(("fp", "bf")):
            names[f"bits_{type}"] = _bits_of(type)
            bits = f"bits_{type}({item})"
        format = "Q" if type.startswith("*") else _FORMATS.get(type)
        direct.append((format, item) if format else ("Q", bits))
        by_bits.append(("Q", bits) if bits is not item else direct[-1])
    names["pack"] = struct.Struct("=" + "".join(f for f, _ in direct)).pack
    names["pack_bits"] = struct.Struct("=" + "".join(f for f, _ in by_bits)).pack
    # struct raises OverflowError for a float out of range, where a kernel must see an infinity,
    # and struct.error for an int that is too large for a float format.
    names["out_of_range"] = (OverflowError, struct.error)
    source = (
        "def packer(slots):\n"
        "    try:\n"
        f"        return pack({', '.join(e for _, e in direct)})\n"
        "    except out_of_range:\n"
        f"        return pack_bits({', '.join(e for _, e in by_bits)})\n"
    )
    exec(compile(source, "<packer>", "exec"), names)
    return names["packer"]
