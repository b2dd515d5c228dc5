"""Variants of a kernel: the source to compile for the arguments of a launch.

A `Key` has the type of each argument and facts about it, such as divisibility by 16, which become
attributes of the parameters of the compiled source.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from tilewright.compiler.source import CONSTEXPR, ArgPath
from tilewright.frontend.source import KernelParam
from tilewright.runtime.kinds import (
    HALF_DIVISIBLE,
    IN_RANGE,
    TWICE_DIVISIBLE,
    Fact,
    Spec,
    attributes_of,
    without,
)
from tilewright.runtime.slots import at_path
from tilewright.runtime.specialize import Key
from tilewright.targets.protocol import HasGpuMachine, Target

Params = Sequence[KernelParam]


def types_of(
    params: Params, key: Key, values: tuple[Any, ...]
) -> tuple[dict[str, Any], dict[ArgPath, Any], dict[ArgPath, list[Any]]]:
    """Signature, compile-time values and attributes of a variant, as for `ASTSource`."""
    signature: dict[str, Any] = {}
    leaves: list[tuple[ArgPath, Any, Any]] = []
    for i, (param, spec) in enumerate(zip(params, key.specs, strict=True)):
        type, facts = (CONSTEXPR, None) if param.is_constexpr else spec
        signature[param.name] = type
        leaves += _leaves((i,), type, facts)
    constants = {p: at_path(values, p) for p, type, _ in leaves if type == CONSTEXPR}
    parts = [part for leaf in leaves for part in _parts(*leaf)]
    known = {p: attributes_of(fact) for p, _, fact in parts}
    attrs: dict[ArgPath, list[Any]] = {p: found for p, found in known.items() if found}
    tensors = [p for p, is_tensor, _ in parts if is_tensor]
    for number, path in enumerate(tensors):
        # Without overlap, each tensor has its own alias class.
        alias = key.aliases[number] if key.aliases else number
        attrs.setdefault(path, []).append(["tw.alias", alias])
    return signature, constants, attrs


def known_of(params: Params, key: Key, values: tuple[Any, ...]) -> list[Spec]:
    """Type and facts of each argument, or its value if it is a compile-time value."""
    parameters = zip(params, key.specs, values, strict=True)
    return [(CONSTEXPR, v) if p.is_constexpr else spec for p, spec, v in parameters]


def without_facts(params: Params, facts: Iterable[Fact], key: Key) -> Key:
    """A key with fewer facts about the arguments."""
    specs = list(key.specs)
    for fact in facts:
        specs = [
            spec if param.is_constexpr else without(fact, spec)
            for param, spec in zip(params, specs, strict=True)
        ]
    return key._replace(specs=tuple(specs))


def irrelevant_facts(target: Target | None) -> list[Fact]:
    """The facts of arguments on which no code for a target depends; None: an unknown target, which
    needs all that holds wherever the kernel runs."""
    features = target.features() if target is not None else frozenset[str]()
    found = [fact for fact in (TWICE_DIVISIBLE, IN_RANGE) if fact.feature not in features]
    is_gpu = target is None or isinstance(target, HasGpuMachine)
    return found if is_gpu else [HALF_DIVISIBLE, *found]


def is_tensor_type(type: Any) -> bool:
    """Whether a type string denotes an address."""
    return isinstance(type, str) and type.startswith("*")


def _parts(path: ArgPath, type: Any, facts: Any) -> Iterator[tuple[ArgPath, bool, Any]]:
    """(path, whether it is an address, key) of an argument, or of the base and extents of a
    descriptor."""
    if str(type).startswith("tensordesc"):
        yield from (((*path, i), i == 0, fact) for i, fact in enumerate(facts))
    else:
        yield path, is_tensor_type(type), facts


def _leaves(path: ArgPath, type: Any, facts: Any) -> Iterator[tuple[ArgPath, Any, Any]]:
    """(path, type, key) of an argument, or of each leaf of a tuple."""
    if isinstance(type, tuple):
        for i, (inner, fact) in enumerate(zip(type, facts, strict=True)):
            yield from _leaves((*path, i), inner, fact)
    else:
        yield path, type, facts
