"""The parameters of a kernel as native code reads them: the structures Param."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from inspect import Parameter, Signature
from typing import NamedTuple, TypeAlias

from tilewright.runtime.kinds import category, int_range
from tilewright.runtime.native import layout
from tilewright.runtime.native.layout import INT64_MAX, INT64_MIN
from tilewright.runtime.native.structure import Structure
from tilewright.runtime.specialize import KernelParam, mode_of

RUN_KEYWORDS = ("self", "grid", "warmup")
"""Parameters of `run` rather than of the kernel."""


class InKey(NamedTuple):
    """The parts of a key that describe arguments beyond the specialisation of variants.

    Attributes:
        values: the parameters whose whole value it has.
        integers: those whose value it has if that is an int or a bool.
        layouts: the parameters of tensors whose shape and strides it has.
    """

    values: frozenset[str] = frozenset()
    integers: frozenset[str] = frozenset()
    layouts: frozenset[str] = frozenset()


PLAIN = InKey()
"""Nothing more."""

Mappings: TypeAlias = Mapping[str, Mapping[str, str]]
"""By parameter that takes a dict, the last ones of a kernel: by key of the dict the parameter that
its value is the argument of. These are consecutive, in this order."""


def _flags(param: KernelParam, in_key: InKey) -> int:
    """The field Param.flags of a parameter."""
    if param.is_constexpr:
        return layout.IS_CONSTEXPR
    mode, annotation = mode_of(param), param.annotation_type
    flags = sum(flag for field, flag in layout.BY.items() if getattr(mode, field))
    flags |= layout.TAKES_WIDE * (annotation in ("", "u64"))
    flags |= layout.BY_EVERY_VALUE * (param.name in in_key.values)
    flags |= layout.BY_INTEGER * (param.name in in_key.integers)
    flags |= layout.BY_LAYOUT * (param.name in in_key.layouts)
    return flags | layout.kind_flags(annotation)


def int_limits(annotation: str) -> tuple[int, int]:
    """The range of ints that a parameter accepts, clipped to int64."""
    if not annotation or category(annotation) != "int":
        return INT64_MIN, INT64_MAX
    low, high = int_range(annotation)
    return low, min(high, INT64_MAX)


def param_structures(
    declared: Sequence[KernelParam], signature: Signature, in_key: InKey, mappings: Mappings
) -> Structure:
    """The structures Param of a kernel's parameters."""
    params, by_keyword = Structure("Param", len(declared)), keywords_of(signature)
    for i, (param, parameter) in enumerate(
        zip(declared, signature.parameters.values(), strict=True)
    ):
        if param.name in by_keyword:
            params.put_object("keyword", param.name, i)
        params.put_object("name", param.name, i)
        if parameter.default is not Parameter.empty:
            params.put_object("default", parameter.default, i)
        params.put("flags", _flags(param, in_key), i)
        low, high = int_limits(param.annotation_type)
        params.put("low", low, i)
        params.put("high", high, i)
    _put_mappings(params, declared, mappings)
    return params


def _put_mappings(params: Structure, declared: Sequence[KernelParam], mappings: Mappings) -> None:
    """Fill in the parameters that are mappings, and those that are their items."""
    numbers = {param.name: i for i, param in enumerate(declared)}
    for name, items in mappings.items():
        i = numbers[name]
        params.put("flags", layout.kind_flags(""), i)
        params.put("low", min((numbers[item] for item in items.values()), default=0), i)
        params.put("high", len(items), i)
        for key, item in items.items():
            params.put_object("key", key, numbers[item])


def keywords_of(signature: Signature) -> dict[str, int]:
    """The indices of parameters that may be passed by keyword."""
    return {
        name: i
        for i, (name, parameter) in enumerate(signature.parameters.items())
        if parameter.kind is not Parameter.POSITIONAL_ONLY and name not in RUN_KEYWORDS
    }
