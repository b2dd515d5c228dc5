"""Operators, comparisons and subscripts: dispatch by operand kinds, and compile-time evaluation.

Methods of aggregates take precedence over tensors, and these over compile-time values.
"""

from __future__ import annotations

import ast
import builtins
import operator
from collections.abc import Callable, Sequence
from inspect import isroutine
from typing import Any

from tilewright.base.codes import coded
from tilewright.frontend.ast_to_ir.call import call
from tilewright.frontend.ast_to_ir.errors import unsupported
from tilewright.frontend.ast_to_ir.expr import kind_text
from tilewright.frontend.ast_to_ir.frame import Frame
from tilewright.frontend.ast_to_ir.scope import lookup
from tilewright.frontend.ast_to_ir.stmt import Pending, assign, statement
from tilewright.frontend.ast_to_ir.visit import expression, visit
from tilewright.ir.types import Tile
from tilewright.language.aggregate import aggregate_value, method
from tilewright.language.operators import BINARY_OPERATORS, COMPARISONS, UNARY_OPERATORS
from tilewright.language.semantic import arith
from tilewright.language.semantic.convert import is_number
from tilewright.language.semantic.subscript import subscript
from tilewright.language.values import (
    as_returned,
    base_value,
    composite,
    constexpr,
    is_constant,
    returned_number,
    tensor,
    tuple,
    unwrap,
    wrap,
)

# class of the operator -> (sign, name, function on Python values)
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
MAX_SIZE = 1 << 16  # bits or elements of a compile-time value
# comparison -> the same with its operands swapped
REFLECTED = {"eq": "eq", "ne": "ne", "lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}


@expression(ast.Subscript)
def visit_subscript(frame: Frame, node: ast.Subscript) -> Any:
    owner, index = visit(frame, node.value), visit(frame, node.slice)
    if isinstance(owner, tensor):
        return subscript(frame.semantic, owner, index)
    if isinstance(owner, aggregate_value):
        found = method(owner, "__getitem__")
        if found is None:
            raise TypeError(f"'{kind_text(owner)}' object is not subscriptable")
        return call(frame, node, found, [index], {})
    if isinstance(owner, base_value):
        return wrap(owner[index])  # pyright: ignore[reportIndexIssue]
    if isroutine(owner):
        kind = type(owner).__name__
        message = f"'{kind}' object is not subscriptable"
        raise coded("subscripted-function", TypeError(message))
    return wrap(owner[unwrap(index)])


def binary(frame: Frame, node: ast.AST, kind: type, lhs: Any, rhs: Any) -> Any:
    """``lhs op rhs`` where `kind` is the operator's class in `ast`."""
    if kind not in BINARY:
        raise unsupported(
            frame,
            node,
            f"AST binary operator '{kind.__name__}' is not (currently) implemented.",
            "matmul-operator",
        )
    sign, name, python = BINARY[kind]
    if isinstance(lhs, aggregate_value) or isinstance(rhs, aggregate_value):
        return _by_method(frame, node, sign, (f"__{name}__", f"__r{name}__"), lhs, rhs)
    if isinstance(lhs, tensor) or isinstance(rhs, tensor):
        apply = BINARY_OPERATORS.get(name)
        mixable = all(isinstance(v, tensor) or is_number(v) for v in (lhs, rhs))
        if apply is None or not mixable:
            raise _unsupported_operands(frame, node, sign, lhs, rhs)
        return apply()(frame.semantic, lhs, rhs)
    if isinstance(lhs, tuple) or isinstance(rhs, tuple):
        if name == "add" and isinstance(lhs, tuple) and isinstance(rhs, tuple):
            return lhs + rhs
        if name == "mul" and is_number(lhs if isinstance(rhs, tuple) else rhs):
            return rhs * lhs if isinstance(rhs, tuple) else lhs * rhs
        raise _unsupported_operands(frame, node, sign, lhs, rhs)
    return _of_constants(frame, node, sign, python, lhs, rhs)


def _by_method(
    frame: Frame, node: ast.AST, sign: str, names: Sequence[str], lhs: Any, rhs: Any
) -> Any:
    """An operator with an aggregate: the left operand's method, or the right one's reflected
    method."""
    for owner, name, other in ((lhs, names[0], rhs), (rhs, names[1], lhs)):
        found = method(owner, name)
        if found is not None:
            result = call(frame, node, found, [other], {})
            if unwrap(result) is not NotImplemented:
                return result
    raise _unsupported_operands(frame, node, sign, lhs, rhs)


def _unsupported_operands(frame: Frame, node: ast.AST, sign: str, lhs: Any, rhs: Any) -> Exception:
    return unsupported(
        frame,
        node,
        f"unsupported operand type(s) for {sign}: '{kind_text(lhs)}' and '{kind_text(rhs)}'",
        "operator",
        sign=sign,
        rhs=unwrap(rhs),
    )


def _of_constants(
    frame: Frame, node: ast.AST, sign: str, python: Callable[..., Any], lhs: Any, rhs: Any
) -> Any:
    """Evaluate an operator on two compile-time values with Python's semantics."""
    a, b = unwrap(lhs), unwrap(rhs)
    if _size(sign, a, b) > MAX_SIZE:
        raise ValueError(f"the value of `{sign}` is too large for a compile-time value")
    try:
        result = wrap_constant(python(a, b))
    except TypeError:
        raise _unsupported_operands(frame, node, sign, lhs, rhs) from None
    is_returned = isinstance(lhs, returned_number) or isinstance(rhs, returned_number)
    return as_returned(result) if is_returned else result


def _size(sign: str, a: Any, b: Any) -> int:
    """The number of bits of an integer result, about, or of elements of a sequence; 0 for others.
    Python would compute those of any size, for hours."""
    match sign, a, b:
        case "**", int(), int():
            return a.bit_length() * b
        case "<<", int(), int():
            return a.bit_length() + b
        case "*", str(), int():
            return len(a) * b
        case "*", int(), str():
            return a * len(b)
        case _:
            return 0


def wrap_constant(value: Any) -> Any:
    """The result of a Python operator on compile-time values."""
    return value if isinstance(value, base_value) else constexpr(value)


@expression(ast.BinOp)
def visit_binop(frame: Frame, node: ast.BinOp) -> Any:
    lhs, rhs = visit(frame, node.left), visit(frame, node.right)
    return binary(frame, node, type(node.op), lhs, rhs)


@expression(ast.UnaryOp)
def visit_unaryop(frame: Frame, node: ast.UnaryOp) -> Any:
    return unary(frame, node, type(node.op), visit(frame, node.operand))


def unary(frame: Frame, node: ast.AST, kind: type, value: Any) -> Any:
    """``op value`` where `kind` is the operator's class in `ast`."""
    name, python = UNARY[kind]
    found = method(value, f"__{name}__")
    if found is not None:
        return call(frame, node, found, [], {})
    if isinstance(value, tensor):
        apply = UNARY_OPERATORS.get(name)
        if apply is not None:
            return apply()(frame.semantic, value)
    elif not isinstance(value, composite) or (name == "not" and isinstance(value, tuple)):
        result = constexpr(python(unwrap(value)))
        return as_returned(result) if isinstance(value, returned_number) else result
    raise unsupported(
        frame,
        node,
        f"AST unary operator '__{name}__' is not (currently) implemented on type "
        f"{type(value).__name__}",
    )


def _compare_one(frame: Frame, node: ast.AST, op: ast.cmpop, lhs: Any, rhs: Any) -> Any:
    if isinstance(op, ast.Is | ast.IsNot):
        same = lhs is rhs or unwrap(lhs) is unwrap(rhs)
        return constexpr(same == isinstance(op, ast.Is))
    if isinstance(op, ast.In | ast.NotIn):
        found = _contains(frame, node, op, lhs, rhs)
        return found if isinstance(op, ast.In) else unary(frame, node, ast.Not, found)
    sign, name, python = COMPARE[type(op)]
    if isinstance(lhs, aggregate_value) or isinstance(rhs, aggregate_value):
        names = (f"__{name}__", f"__{REFLECTED[name]}__")
        return _by_method(frame, node, sign, names, lhs, rhs)
    if isinstance(lhs, tensor) or isinstance(rhs, tensor):
        if not all(isinstance(v, tensor) or is_number(v) for v in (lhs, rhs)):
            raise _unsupported_operands(frame, node, sign, lhs, rhs)
        return COMPARISONS[name]()(frame.semantic, lhs, rhs)
    if isinstance(lhs, tuple) and name in ("eq", "ne"):
        return lhs == rhs if name == "eq" else lhs != rhs
    return _of_constants(frame, node, sign, python, lhs, rhs)


def _contains(frame: Frame, node: ast.AST, op: ast.In | ast.NotIn, item: Any, items: Any) -> Any:
    """Whether `items` contains `item`: as in Python if both are known at compile time, else whether
    a scalar equals one of the elements of a tuple."""
    parts = items.values if isinstance(items, tuple) else unwrap(items)
    constant = is_constant(item) and is_constant(items)
    scalars = isinstance(parts, builtins.tuple | list) and not any(
        isinstance(v, tensor) and isinstance(v.type, Tile) for v in (item, *parts)
    )
    if frame.context.options.strict_triton or not (constant or scalars):
        kind = type(op).__name__
        message = f"AST comparison operator '{kind}' is not (currently) implemented."
        raise unsupported(frame, node, message, "membership")
    if constant:
        return _of_constants(frame, node, "in", lambda a, b: a in b, item, items)
    equal = []
    for part in parts:
        result = _compare_one(frame, node, ast.Eq(), item, part)
        if not is_constant(result):
            equal.append(result)
        elif unwrap(result):
            return result
    return _conjunction(frame, equal, False) if equal else constexpr(False)


@expression(ast.Compare)
def visit_compare(frame: Frame, node: ast.Compare) -> Any:
    if len(node.ops) > 1 and frame.context.options.strict_triton:
        raise unsupported(frame, node, "simultaneous multiple comparison is not supported")
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
    """A compile-time operand that short-circuits is the result; run-time operands are combined."""
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
            frame.semantic.warn(
                "Logical operators 'and' and 'or' are deprecated for non-scalar tensors; please "
                "use '&' or '|' instead",
            )
        join = arith.logical_and if is_and else arith.logical_or
        result = join(frame.semantic, result, value)
    return result


@statement(ast.AugAssign)
def visit_augassign(frame: Frame, node: ast.AugAssign, todo: Pending, live: bool) -> None:
    if not isinstance(node.target, ast.Name):
        assign(frame, node.target, None)
        return
    old = lookup(frame, node.target.id)
    value = binary(frame, node, type(node.op), old, visit(frame, node.value))
    assign(frame, node.target, value)
