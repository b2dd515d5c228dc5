"""Notes of errors: the operands, their origins, and suggested fixes.

`notes` returns them. Each operand of the erroneous expression is shown with a caret; suggestions by
the rules in `advice/` for the error's code follow. Notes are separate lines after the message, so
that programs can still match on the message.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from tilewright.base.codes import Code, Mark
from tilewright.frontend.ast_to_ir.frame import Frame
from tilewright.ir.types import Pointer, Type, element_of, shape_of
from tilewright.language.values import composite, constexpr, tensor

MAX_OPERANDS = 6
MAX_TEXT = 60  # characters of a quoted source line or operand

_ABSENT: Any = object()


class Operand(NamedTuple):
    """A subexpression of the erroneous expression, and its value."""

    node: ast.expr
    value: Any

    @property
    def text(self) -> str:
        """The operand's source text, abbreviated."""
        return _short(ast.unparse(self.node))

    @property
    def bracketed(self) -> str:
        """The operand's text, parenthesised if an attribute or subscript could not follow it."""
        simple = isinstance(self.node, ast.Name | ast.Call | ast.Attribute | ast.Subscript)
        return self.text if simple else f"({self.text})"

    @property
    def is_tensor(self) -> bool:
        return isinstance(self.value, tensor)

    @property
    def is_pointer(self) -> bool:
        return self.is_tensor and isinstance(self.value.dtype, Pointer)

    @property
    def shape(self) -> tuple[int, ...]:
        return shape_of(self.value.type)


class Mistake(NamedTuple):
    """The input of rules, which does not include the message.

    Attributes:
        error: the exception; None for errors detected by the front end itself.
        facts: the data attached to the error's code.
        operands: the evaluated subexpressions of the erroneous expression.
    """

    frame: Frame
    node: ast.AST
    error: BaseException | None
    facts: dict[str, Any]
    operands: list[Operand]

    @property
    def tensors(self) -> list[Operand]:
        return [o for o in self.operands if o.is_tensor]

    @property
    def pointers(self) -> list[Operand]:
        return [o for o in self.operands if o.is_pointer]


Rule = Callable[[Mistake], str | None]
RULES: dict[Code, list[Rule]] = {}


def suggests(*codes: Code) -> Callable[[Rule], Rule]:
    """Register a rule for errors with these codes, which returns a suggestion or None."""

    def register(rule: Rule) -> Rule:
        for code in codes:
            RULES.setdefault(code, []).append(rule)
        return rule

    return register


def notes(frame: Frame, node: ast.AST, error: BaseException | None, mark: Mark | None) -> list[str]:
    """The lines that follow the message of an error at `node`."""
    facts = {} if mark is None else mark.facts
    found = Mistake(frame, node, error, facts, list(operands_of(frame, node)))
    lines = _shown_operands(found)
    helps = (rule(found) for rule in RULES.get(mark.code, ())) if mark is not None else ()
    return lines + [f"help: {text}" for text in helps if text is not None]


def operands_of(frame: Frame, node: ast.AST) -> Iterator[Operand]:
    """The operands or arguments of an expression that have been evaluated."""
    for part in _loop_source(frame, node) or _parts(node):
        inner = part.value if isinstance(part, ast.Starred) else part
        value = frame.values.get(inner, _ABSENT)
        if value is _ABSENT and isinstance(inner, ast.Name):
            value = frame.names.get(inner.id, _ABSENT)
        if value is not _ABSENT:
            yield Operand(inner, value)


def _loop_source(frame: Frame, node: ast.AST) -> list[ast.expr]:
    """The iterable of a loop, if it was evaluated; a range is not."""
    return [node.iter] if isinstance(node, ast.For) and node.iter in frame.values else []


def _parts(node: ast.AST) -> list[ast.expr]:
    match node:
        case ast.BinOp(left=left, right=right):
            return [left, right]
        case ast.AugAssign(target=target, value=value):
            return [target, value]
        case ast.Compare(left=left, comparators=others):
            return [left, *others]
        case ast.BoolOp(values=values):
            return values
        case ast.UnaryOp(operand=operand):
            return [operand]
        case ast.Subscript(value=value, slice=ast.Tuple(elts=entries)):
            return [value, *entries]
        case ast.Subscript(value=value, slice=index):
            return [value, index]
        case ast.Attribute(value=value):
            return [value]
        case ast.Call(func=function, args=args, keywords=keywords):
            owner = [function.value] if isinstance(function, ast.Attribute) else []
            return [*owner, *args, *[k.value for k in keywords]]
        case ast.For(iter=ast.Call(args=args)):
            return args
        case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test):
            return [test]
        case _:
            return []


def in_words(type_: Any) -> str:
    """The type of a tensor in words; the text of other types."""
    if not isinstance(type_, Type):
        return str(type_)
    element, shape = element_of(type_), shape_of(type_)
    return f"{element} tile of shape {list(shape)}" if shape else f"{element} scalar"


def describe(value: Any) -> str:
    """A value in words: kind, element type, shape."""
    if isinstance(value, tensor):
        return in_words(value.type)
    if isinstance(value, constexpr):
        return f"compile-time {_short(repr(value.value))}"
    return _short(str(value.type))


def print_values(values: str) -> str:
    """The suggestion for a string with run-time values."""
    return (
        "strings cannot contain run-time values: pass them to print after the string, "
        f"`print({values + ' ='!r}, {values})`"
    )


def _shown_operands(mistake: Mistake) -> list[str]:
    """Each source line with operands, followed by a caret and a description for each."""
    operands = [o for o in mistake.operands if _worth_showing(o)][:MAX_OPERANDS]
    if not any(o.is_tensor for o in operands):
        return []
    source = mistake.frame.fn.src.split("\n")
    lines: list[str] = []
    last = 0
    for operand in operands:
        line = operand.node.lineno
        if line != last:
            lines.append(source[line - 1])
            last = line
        lines.append(f"{' ' * operand.node.col_offset}^ {_described(mistake.frame, operand)}")
    return lines


def _worth_showing(operand: Operand) -> bool:
    """Whether an operand is not a literal and has a language value."""
    literal = operand.node
    if isinstance(literal, ast.Tuple | ast.List):
        return not all(isinstance(e, ast.Constant) for e in literal.elts)
    if isinstance(literal, ast.Constant):
        return False
    return isinstance(operand.value, tensor | constexpr | composite)


def _described(frame: Frame, operand: Operand) -> str:
    """The description of an operand and of its origin."""
    origin = _origin(frame, operand) if isinstance(operand.value, tensor) else ""
    return f"{operand.text}: {describe(operand.value)}{origin}"


def _origin(frame: Frame, operand: Operand) -> str:
    made_by = operand.value.handle.op
    if made_by is None:
        is_parameter = operand.text in frame.fn.arg_names
        return ", a parameter" if is_parameter else ""
    loc = made_by.loc
    if loc is None or loc.file != frame.fn.file_name or loc.function != frame.fn.__name__:
        return ""
    line = loc.line - frame.first_line
    lines = frame.fn.src.split("\n")
    if line == operand.node.lineno or not 1 <= line <= len(lines):
        return ""
    return f", from line {line}: {_short(lines[line - 1].strip())}"


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= MAX_TEXT else text[: MAX_TEXT - 1] + "…"
