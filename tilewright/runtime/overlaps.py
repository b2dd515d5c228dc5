"""Arrays of a launch that share memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilewright.runtime.derived_launch import Plan
from tilewright.runtime.tensors import read


def require_disjoint(
    plan: Plan, named: Mapping[str, Any], of_wrt: Mapping[str, Any],
    of_outputs: Mapping[str, Any], mode: str,
) -> None:  # fmt: skip
    """Raise ValueError if an array that the kernel or its derivative writes shares bytes with
    another one."""
    own = {name: value for name, value in named.items() if hasattr(value, "shape")}
    of_wrt = {f"the derivative of {n}": a for n, a in of_wrt.items()}
    of_outputs = {f"the derivative of {n}": a for n, a in of_outputs.items()}
    given, found = (of_wrt, of_outputs) if mode == "forward" else (of_outputs, of_wrt)
    for name, array in found.items():
        rest = [(other, value) for other, value in found.items() if other != name]
        for other, value in (*own.items(), *given.items(), *rest):
            if _share(array, value):
                raise ValueError(f"{name} shares memory with {other}")
    for name in plan.stored:
        for other, value in own.items():
            if other != name and name in own and _share(own[name], value):
                raise ValueError(
                    f"{name}, which the kernel stores, shares memory with {other}: the derivative "
                    "uses the values from before the launch"
                )


def _share(a: Any, b: Any) -> bool:
    (low, high), (other_low, other_high) = _range(a), _range(b)
    return low < other_high and other_low < high


def _range(array: Any) -> tuple[int, int]:
    """The bytes between an array's first and last element."""
    address = read(array)[0]
    strides = array.stride() if callable(getattr(array, "stride", None)) else None
    size: int = array.element_size() if strides is not None else array.itemsize
    steps = [s * size for s in strides] if strides is not None else list(array.strides)
    if 0 in array.shape:
        return address, address
    reaches = [(n - 1) * step for n, step in zip(array.shape, steps, strict=True)]
    low = address + sum(min(0, reach) for reach in reaches)
    return low, address + sum(max(0, reach) for reach in reaches) + size
