"""Parse the types of a kernel's arguments from the command line.

    x=*fp32:16, n=i32                 by name; other parameters keep their defaults
    *fp32:16, i32, 1024               in the kernel's order; literals are compile-time values

A hint is a guarantee by all callers: ``:16``, the value is a multiple of 16 (for a pointer, its
address in bytes); ``:1``, the integer is 1 and is compiled in as a constant.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tilewright.compiler.source import CONSTEXPR, ASTSource, runtime_arguments
from tilewright.frontend.source import SourceFunction
from tilewright.ir.types import DType
from tilewright.language.types import str_to_ty

Attrs = dict[tuple[int, ...], list[Any]]


class UsageError(Exception):
    """The command line is invalid."""


@dataclass(frozen=True)
class Typed:
    """A kernel with the types of its arguments.

    Attributes:
        source: the input of the compiler.
        ones: types of the parameters with the hint ``:1``, by their positions.
    """

    source: ASTSource
    ones: Mapping[int, str]


def split_types(text: str) -> list[str]:
    """Split a text at commas that are outside of parentheses and brackets.

    >>> split_types("x=*fp32, t=(i32,fp32), d=tensordesc<fp16[64,64]>")
    ['x=*fp32', 't=(i32,fp32)', 'd=tensordesc<fp16[64,64]>']
    """
    parts, depth = [""], 0
    for c in text:
        depth += (c in "([<") - (c in ")]>")
        if c == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += c
    return [p.strip() for p in parts if p.strip()]


def parse_type(text: str, path: tuple[int, ...], attrs: Attrs) -> Any:
    """Parse the type of a parameter: ``*fp32``, ``i32``, or a tuple of types. A hint ``:16`` is
    added to `attrs`; for a descriptor, it applies to the extents.

    Raises:
        UsageError: invalid hint.
        ValueError: invalid type.
    """
    if text.startswith("(") and text.endswith(")"):
        leaves = split_types(text[1:-1])
        return tuple(parse_type(leaf, (*path, i), attrs) for i, leaf in enumerate(leaves))
    type, colon, hint = text.partition(":")
    if colon and hint.strip() != "16":
        raise UsageError(
            f"{text!r}: Only 1 and 16 are valid hints, got {hint or 'none'}: `:16` means a "
            "multiple of 16, and `:1` an integer that is 1"
        )
    type = type.strip()
    str_to_ty(type)  # raises ValueError with the text as written
    if colon:
        hinted = [(*path, i) for i in _extents_of(type)] or [path]
        attrs.update({leaf: [["tt.divisibility", 16]] for leaf in hinted})
    return type


def _extents_of(type: str) -> range:
    """Positions of the extents among the parts of a descriptor; empty for other types.

    The parts of a descriptor of rank r are the base, r extents and r - 1 strides: 2 r in total.
    """
    count = len(list(runtime_arguments([type])))
    return range(1, 1 + count // 2)


def parse_value(text: str) -> Any:
    """A Python literal; anything else is a string."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def parse_pairs(items: Iterable[str], what: str) -> dict[str, str]:
    """``name=value`` texts as a dict.

    Raises:
        UsageError: a text has no ``=``, or a name occurs twice.
    """
    pairs: dict[str, str] = {}
    for item in items:
        name, equals, value = item.partition("=")
        if not equals:
            raise UsageError(f"{what}: write NAME=…, not {item!r}")
        if name.strip() in pairs:
            raise UsageError(f"{what}: {name.strip()} is given twice")
        pairs[name.strip()] = value.strip()
    return pairs


def source_of(
    fn: SourceFunction, signature: str, constexprs: Mapping[str, Any], *, disjoint: bool = True
) -> ASTSource:
    """The kernel with the types of a text such as ``x=*fp32:16,n=i32``.

    Args:
        constexprs: values of compile-time parameters, by name.
        disjoint: assume that no two tensors overlap.
    """
    return typed_source(fn, signature, constexprs, disjoint=disjoint).source


def typed_source(
    fn: SourceFunction, signature: str, constexprs: Mapping[str, Any], *, disjoint: bool
) -> Typed:
    """The kernel with the types of a text, by name or in order.

    Args:
        constexprs: values of compile-time parameters, by name.
        disjoint: assume that no two tensors overlap.

    Raises:
        UsageError: the text is invalid, or does not match the kernel's parameters.
    """
    names = list(fn.arg_names)
    given = _by_name(fn, split_types(signature))
    constants: dict[str, Any] = {}
    types: dict[str, Any] = {}
    ones: dict[int, str] = {}
    attrs: Attrs = {}
    for name, text in given.items():
        value = parse_value(text)
        type, colon, hint = text.rpartition(":")
        if value != text:
            constants[name] = value
        elif fn.params[names.index(name)].is_constexpr:
            raise UsageError(
                f"{name} of {fn.__name__} is a compile-time parameter: give its value, such as 128 "
                f"or 'text', not {text!r}"
            )
        elif colon and hint.strip() == "1":
            ones[names.index(name)] = _integer_type(name, type.strip())
            constants[name] = 1
        else:
            types[name] = text
    try:
        for name, text in types.items():
            types[name] = _checked_type(fn, name, text, attrs)
        if disjoint:
            _add_alias_classes([types.get(name, CONSTEXPR) for name in names], attrs)
        return Typed(ASTSource(fn, types, {**constants, **constexprs}, attrs), ones)
    except (TypeError, ValueError) as error:
        raise UsageError(
            f"{error}. Signatures give types and values in the kernel's order, or as NAME=…: "
            f"{fn.__name__}({', '.join(names)})"
        ) from error


def _checked_type(fn: SourceFunction, name: str, text: str, attrs: Attrs) -> Any:
    try:
        return parse_type(text, (fn.arg_names.index(name),), attrs)
    except ValueError as error:
        raise UsageError(
            f"the type of {name} of {fn.__name__} is {text!r}: {error}. Types are written as *fp32 "
            "(a pointer), i32, fp32, (i32, fp32), tensordesc<fp16[64, 64]>, with a hint as *fp32:16"
        ) from error


def _by_name(fn: SourceFunction, parts: list[str]) -> dict[str, str]:
    """The texts of a signature by the parameters' names."""
    names = list(fn.arg_names)
    shown = f"{fn.__name__}({', '.join(names)})"
    if any("=" in part for part in parts):
        result = parse_pairs(parts, "--signature")
        for name in result:
            if name not in names:
                raise UsageError(
                    f"{fn.__name__} has no parameter {name!r}; it has {', '.join(names)}"
                )
        return result
    if len(parts) > len(names):
        raise UsageError(f"the signature has {len(parts)} parts for {shown}")
    return dict(zip(names, parts, strict=False))


def _integer_type(name: str, type: str) -> str:
    """The type of an argument with the hint ``:1``, which must be an integer type."""
    found = str_to_ty(type)
    if isinstance(found, DType) and found.is_int() and not found.is_bool():
        return type
    raise UsageError(f"{name} is {type}: only integers can have the hint `:1`")


def _add_alias_classes(types: list[Any], attrs: Attrs) -> None:
    """Put each tensor in its own alias class, which means that no two overlap."""
    tensors = [path for path, type in runtime_arguments(types) if type.startswith("*")]
    for number, path in enumerate(tensors):
        attrs.setdefault(path, []).append(["tw.alias", number])
