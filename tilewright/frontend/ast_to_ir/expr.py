"""Expressions: constants, names, tuples, attributes, slices, f-strings, comprehensions."""

from __future__ import annotations

import ast
from typing import Any

from tilewright.base.codes import coded
from tilewright.frontend.ast_to_ir.errors import unknown_syntax, unsupported
from tilewright.frontend.ast_to_ir.frame import Frame
from tilewright.frontend.ast_to_ir.scope import lookup
from tilewright.frontend.ast_to_ir.visit import expression, visit
from tilewright.language.aggregate import aggregate_value
from tilewright.language.semantic.convert import is_number, to_tensor
from tilewright.language.values import (
    composite,
    constexpr,
    is_constant,
    slice,
    tensor,
    tuple,
    type_of,
    unwrap,
    wrap,
)

# Attributes of tensors that compile-time numbers support too.
_METHODS_OF_NUMBERS = frozenset(n for n in vars(tensor) if not n.startswith("_")) - set(dir(int))


@expression(ast.Constant)
def visit_constant(frame: Frame, node: ast.Constant) -> Any:
    return constexpr(node.value)


@expression(ast.Name)
def visit_name(frame: Frame, node: ast.Name) -> Any:
    return lookup(frame, node.id)


@expression(ast.Tuple, ast.List)
def visit_tuple(frame: Frame, node: ast.Tuple | ast.List) -> Any:
    values: list[Any] = []
    for element in node.elts:
        if isinstance(element, ast.Starred):
            if frame.context.options.strict_triton:
                raise unknown_syntax(frame, element)
            values.extend(visit(frame, element.value))
        else:
            values.append(visit(frame, element))
    return tuple(values)


@expression(ast.Attribute)
def visit_attribute(frame: Frame, node: ast.Attribute) -> Any:
    return attribute(frame, visit(frame, node.value), node.attr)


def attribute(frame: Frame, owner: Any, name: str) -> Any:
    """``owner.name``; for a constexpr, the attribute of its value."""
    if isinstance(owner, tensor) and name in owner.properties:
        return getattr(owner, name)(_semantic=frame.semantic)
    if isinstance(owner, aggregate_value) and name in owner.aggregate_fields:
        return owner.field(name)
    if isinstance(owner, constexpr) and name not in ("value", "type"):
        owner = owner.value
        if is_number(owner) and name in _METHODS_OF_NUMBERS:
            # An argument specialised for 1 is a constexpr; `n.to(tl.int64)` must still work.
            return attribute(frame, to_tensor(frame.semantic, owner), name)
    return wrap(getattr(owner, name))


@expression(ast.Slice)
def visit_slice(frame: Frame, node: ast.Slice) -> Any:
    parts = [None if p is None else visit(frame, p) for p in (node.lower, node.upper, node.step)]
    return slice(*parts)


@expression(ast.JoinedStr)
def visit_joinedstr(frame: Frame, node: ast.JoinedStr) -> Any:
    parts: list[str] = []
    for part in node.values:
        if isinstance(part, ast.FormattedValue):
            parts.append(_formatted(frame, part))
        else:
            parts.append(str(unwrap(visit(frame, part))))
    return constexpr("".join(parts))


def _formatted(frame: Frame, node: ast.FormattedValue) -> str:
    value = visit(frame, node.value)
    if not is_constant(value):
        raise coded(
            "run-time-text",
            NotImplementedError(
                "Cannot evaluate f-string containing non-constexpr conversion values, found "
                f"conversion of type {type_of(value)}"
            ),
        )
    plain = unwrap(value)
    if node.conversion >= 0:
        plain = {"s": str, "r": repr, "a": ascii}[chr(node.conversion)](plain)
    spec = "" if node.format_spec is None else unwrap(visit(frame, node.format_spec))
    return format(plain, spec)


@expression(ast.ListComp)
def visit_listcomp(frame: Frame, node: ast.ListComp) -> Any:
    if len(node.generators) != 1:
        raise unsupported(
            frame, node, "nested comprehensions are not supported", "nested-comprehension"
        )
    generator = node.generators[0]
    source = visit(frame, generator.iter)
    if not isinstance(source, tuple):
        error = NotImplementedError("only tuple comprehensions are supported")
        raise coded("comprehension-source", error, source=source)
    outer = frame.names
    values: list[Any] = []
    for value in source:
        frame.names = dict(outer)
        bind(frame, generator.target, value)
        if all(_filter(frame, condition) for condition in generator.ifs):
            values.append(visit(frame, node.elt))
    frame.names = outer
    return tuple(values)


def _filter(frame: Frame, condition: ast.expr) -> bool:
    value = visit(frame, condition)
    if not is_constant(value):
        raise coded(
            "needs-constant",
            NotImplementedError("the condition of a comprehension must be known at compile time"),
        )
    return bool(unwrap(value))


def kind_text(value: Any) -> str:
    """The name of an operand's type in messages."""
    if isinstance(value, tensor):
        return str(value.type)
    if isinstance(value, composite):
        return type(value).__name__
    return type(unwrap(value)).__name__


def bind(frame: Frame, target: ast.expr, value: Any) -> None:
    """Bind a name, or the names of a tuple, to a value without conversion."""
    if isinstance(target, ast.Name):
        frame.names[target.id] = value
        return
    if not isinstance(target, ast.Tuple | ast.List):
        raise unsupported(frame, target, "the target of a comprehension must be names")
    values = unpack(frame, value, len(target.elts))
    for element, one in zip(target.elts, values, strict=True):
        bind(frame, element, one)


def unpack(frame: Frame, value: Any, count: int) -> list[Any]:
    """The elements of a tuple that is assigned to `count` targets. More elements than targets are
    dropped with a warning; Triton drops them silently.

    Raises:
        TypeError: not a tuple.
        ValueError: there are fewer elements than targets.
    """
    value = wrap(unwrap(value)) if isinstance(value, constexpr) else value
    if not isinstance(value, tuple):
        error = TypeError(f"cannot unpack non-iterable value of type {kind_text(value)}")
        raise coded("unpacked-value", error, value=value)
    if len(value) < count:
        error = ValueError(f"not enough values to unpack (expected {count}, got {len(value)})")
        raise coded("unpacked-value", error, value=value)
    if len(value) > count:
        frame.semantic.warn(f"{len(value)} values are unpacked into {count}; the rest is dropped")
    return value.values[:count]
