"""Expressions."""

from __future__ import annotations

import ast
import operator
import warnings
from collections.abc import Callable
from typing import Any

from tilewright.frontend.ast_to_ir.scope import lookup
from tilewright.frontend.ast_to_ir.visit import Frame, expression, visit
from tilewright.ir.types import Tile
from tilewright.language.operators import BINARY_OPERATORS, COMPARISONS, UNARY_OPERATORS
from tilewright.language.semantic import arith, shape
from tilewright.language.semantic.convert import is_number, to_tensor
from tilewright.language.values import (
    base_value,
    constexpr,
    is_constant,
    slice,
    tensor,
    tuple,
    type_of,
    unwrap,
    wrap,
)

# class of the operator -> (sign, name of the operator, meaning on Python values)
BINARY: dict[type, Any] = {
    ast.Add: ("+", "add", operator.add),
    ast.Sub: ("-", "sub", operator.sub),
    ast.Mult: ("*", "mul", operator.mul),
    ast.Div: ("/", "truediv", operator.truediv),
    ast.FloorDiv: ("//", "floordiv", operator.floordiv),
    ast.Mod: ("%", "mod", operator.mod),
    ast.Pow: ("**", "pow", operator.pow),
    ast.BitAnd: ("&", "and", operator.and_),
    ast.BitOr: ("|", "or", operator.or_),
    ast.BitXor: ("^", "xor", operator.xor),
    ast.LShift: ("<<", "lshift", operator.lshift),
    ast.RShift: (">>", "rshift", operator.rshift),
}
COMPARE: dict[type, Any] = {
    ast.Eq: ("==", "eq", operator.eq),
    ast.NotEq: ("!=", "ne", operator.ne),
    ast.Lt: ("<", "lt", operator.lt),
    ast.LtE: ("<=", "le", operator.le),
    ast.Gt: (">", "gt", operator.gt),
    ast.GtE: (">=", "ge", operator.ge),
}
UNARY: dict[type, Any] = {
    ast.USub: ("neg", operator.neg),
    ast.UAdd: ("pos", operator.pos),
    ast.Invert: ("invert", operator.invert),
    ast.Not: ("not", operator.not_),
}

# Attributes of tensors that a compile-time number has too.
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
            values.extend(visit(frame, element.value))
        else:
            values.append(visit(frame, element))
    return tuple(values)


@expression(ast.Attribute)
def visit_attribute(frame: Frame, node: ast.Attribute) -> Any:
    return attribute(frame, visit(frame, node.value), node.attr)


def attribute(frame: Frame, owner: Any, name: str) -> Any:
    """``owner.name``; of a constexpr, that of the value it holds."""
    if isinstance(owner, tensor) and name in owner.properties:
        return getattr(owner, name)(_semantic=frame.semantic)
    if isinstance(owner, constexpr) and name not in ("value", "type"):
        owner = owner.value
        if is_number(owner) and name in _METHODS_OF_NUMBERS:
            # An argument that is always 1 is compile-time; `n.to(tl.int64)` must still work.
            return attribute(frame, to_tensor(frame.semantic, owner), name)
    return wrap(getattr(owner, name))


@expression(ast.Slice)
def visit_slice(frame: Frame, node: ast.Slice) -> Any:
    parts = [None if p is None else visit(frame, p) for p in (node.lower, node.upper, node.step)]
    return slice(*parts)


@expression(ast.Subscript)
def visit_subscript(frame: Frame, node: ast.Subscript) -> Any:
    owner, index = visit(frame, node.value), visit(frame, node.slice)
    if isinstance(owner, tensor):
        return shape.subscript(frame.semantic, owner, index)
    if isinstance(owner, base_value):
        return wrap(owner[index])  # pyright: ignore[reportIndexIssue]
    return wrap(owner[unwrap(index)])


# -- operators -------------------------------------------------------------------------------------


def kind_text(value: Any) -> str:
    """How messages name the type of an operand."""
    if isinstance(value, tensor):
        return str(value.type)
    if isinstance(value, tuple):
        return "tuple"
    return type(unwrap(value)).__name__


def binary(frame: Frame, node: ast.AST, kind: type, lhs: Any, rhs: Any) -> Any:
    """``lhs op rhs`` where `kind` is the operator's class in `ast`."""
    if kind not in BINARY:
        raise frame.unsupported(
            node, f"AST binary operator '{kind.__name__}' is not (currently) implemented."
        )
    sign, name, python = BINARY[kind]
    if isinstance(lhs, tensor) or isinstance(rhs, tensor):
        apply = BINARY_OPERATORS.get(name)
        mixable = all(isinstance(v, tensor) or is_number(v) for v in (lhs, rhs))
        if apply is None or not mixable:
            raise _unsupported_operands(frame, node, sign, lhs, rhs)
        return apply(frame.semantic, lhs, rhs)
    if isinstance(lhs, tuple) or isinstance(rhs, tuple):
        if name == "add" and isinstance(lhs, tuple) and isinstance(rhs, tuple):
            return lhs + rhs
        if name == "mul" and is_number(lhs if isinstance(rhs, tuple) else rhs):
            return rhs * lhs if isinstance(rhs, tuple) else lhs * rhs
        raise _unsupported_operands(frame, node, sign, lhs, rhs)
    return wrap_constant(python(unwrap(lhs), unwrap(rhs)))


def _unsupported_operands(frame: Frame, node: ast.AST, sign: str, lhs: Any, rhs: Any) -> Exception:
    return frame.unsupported(
        node,
        f"unsupported operand type(s) for {sign}: '{kind_text(lhs)}' and '{kind_text(rhs)}'",
    )


def wrap_constant(value: Any) -> Any:
    """The result of a Python operator on compile-time values."""
    return value if isinstance(value, base_value) else constexpr(value)


@expression(ast.BinOp)
def visit_binop(frame: Frame, node: ast.BinOp) -> Any:
    lhs, rhs = visit(frame, node.left), visit(frame, node.right)
    return binary(frame, node, type(node.op), lhs, rhs)


@expression(ast.UnaryOp)
def visit_unaryop(frame: Frame, node: ast.UnaryOp) -> Any:
    value = visit(frame, node.operand)
    name, python = UNARY[type(node.op)]
    if isinstance(value, tensor):
        apply: Callable[..., Any] | None = UNARY_OPERATORS.get(name)
        if apply is not None:
            return apply(frame.semantic, value)
    elif name == "not" or not isinstance(value, tuple):
        return constexpr(python(unwrap(value)))
    raise frame.unsupported(
        node,
        f"AST unary operator '__{name}__' is not (currently) implemented on type "
        f"{type(value).__name__}",
    )


def _compare_one(frame: Frame, node: ast.AST, op: ast.cmpop, lhs: Any, rhs: Any) -> Any:
    if isinstance(op, ast.Is | ast.IsNot):
        same = lhs is rhs or unwrap(lhs) is unwrap(rhs)
        return constexpr(same == isinstance(op, ast.Is))
    kind = type(op)
    if kind not in COMPARE:
        raise frame.unsupported(
            node, f"AST comparison operator '{kind.__name__}' is not (currently) implemented."
        )
    sign, name, python = COMPARE[kind]
    if isinstance(lhs, tensor) or isinstance(rhs, tensor):
        if not all(isinstance(v, tensor) or is_number(v) for v in (lhs, rhs)):
            raise _unsupported_operands(frame, node, sign, lhs, rhs)
        return COMPARISONS[name](frame.semantic, lhs, rhs)
    if isinstance(lhs, tuple) and name in ("eq", "ne"):
        return lhs == rhs if name == "eq" else lhs != rhs
    return wrap_constant(python(unwrap(lhs), unwrap(rhs)))


@expression(ast.Compare)
def visit_compare(frame: Frame, node: ast.Compare) -> Any:
    lhs = visit(frame, node.left)
    results: list[Any] = []
    for op, comparator in zip(node.ops, node.comparators, strict=True):
        rhs = visit(frame, comparator)
        result = _compare_one(frame, node, op, lhs, rhs)
        if is_constant(result) and not unwrap(result):
            return result
        results.append(result)
        lhs = rhs
    return _conjunction(frame, results, True)


@expression(ast.BoolOp)
def visit_boolop(frame: Frame, node: ast.BoolOp) -> Any:
    """The first compile-time operand that decides is the result; the others are combined."""
    is_and = isinstance(node.op, ast.And)
    values: list[Any] = []
    for operand in node.values:
        value = visit(frame, operand)
        if is_constant(value) and bool(unwrap(value)) != is_and:
            return value
        values.append(value)
    return _conjunction(frame, values, is_and)


def _conjunction(frame: Frame, values: list[Any], is_and: bool) -> Any:
    """The run-time values joined by ``and`` or ``or``; the last value if there are none."""
    dynamic = [v for v in values if not is_constant(v)]
    if not dynamic:
        return values[-1]
    result = dynamic[0]
    for value in dynamic[1:]:
        if isinstance(result.type, Tile) or isinstance(value.type, Tile):
            warnings.warn(
                "Logical operators 'and' and 'or' are deprecated for non-scalar tensors; please "
                "use '&' or '|' instead",
                stacklevel=2,
            )
        join = arith.logical_and if is_and else arith.logical_or
        result = join(frame.semantic, result, value)
    return result


# -- others ----------------------------------------------------------------------------------------


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
        raise NotImplementedError(
            "Cannot evaluate f-string containing non-constexpr conversion values, found "
            f"conversion of type {type_of(value)}"
        )
    plain = unwrap(value)
    if node.conversion >= 0:
        plain = {"s": str, "r": repr, "a": ascii}[chr(node.conversion)](plain)
    spec = "" if node.format_spec is None else unwrap(visit(frame, node.format_spec))
    return format(plain, spec)


@expression(ast.ListComp)
def visit_listcomp(frame: Frame, node: ast.ListComp) -> Any:
    if len(node.generators) != 1:
        raise frame.unsupported(node, "nested comprehensions are not supported")
    generator = node.generators[0]
    source = visit(frame, generator.iter)
    if not isinstance(source, tuple):
        raise NotImplementedError("only tuple comprehensions are supported")
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
        raise NotImplementedError("the condition of a comprehension must be known at compile time")
    return bool(unwrap(value))


def bind(frame: Frame, target: ast.expr, value: Any) -> None:
    """Bind a name, or the names of a tuple, to a value as it is."""
    if isinstance(target, ast.Name):
        frame.names[target.id] = value
        return
    assert isinstance(target, ast.Tuple | ast.List)
    values = unpack(value, len(target.elts))
    for element, one in zip(target.elts, values, strict=True):
        bind(frame, element, one)


def unpack(value: Any, count: int) -> list[Any]:
    """The elements of a tuple that is assigned to `count` targets.

    Raises:
        TypeError: it is no tuple.
        ValueError: their number differs.
    """
    value = wrap(unwrap(value)) if isinstance(value, constexpr) else value
    if not isinstance(value, tuple):
        raise TypeError(f"cannot unpack non-iterable value of type {kind_text(value)}")
    if len(value) < count:
        raise ValueError(f"not enough values to unpack (expected {count}, got {len(value)})")
    if len(value) > count:
        raise ValueError(f"too many values to unpack (expected {count})")
    return value.values
