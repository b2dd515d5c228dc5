"""Calls of `@jit` functions with a derivative rule, in a kernel that is differentiated.

    @tilewright.jit
    def f(x): ...

    @f.defvjp
    def rule(inputs, outputs, grads): ...

The call becomes a `control.with_rule`, whose operands are the results of f, with arguments that are
treated as constants, and whose region is the rule.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from tilewright.base.located import place_of
from tilewright.frontend.ast_to_ir.errors import error_at
from tilewright.frontend.ast_to_ir.frame import Frame
from tilewright.frontend.source import SourceFunction
from tilewright.ir.core import Function, Module, Op, Region, Value
from tilewright.ir.types import Type, derivative_type, is_float, shape_of, text_of
from tilewright.language import values as language
from tilewright.language.values import constexpr, tensor
from tilewright.ops.control import Call, NumPrograms, ProgramId, WithRule, Yield
from tilewright.ops.marks import StopGradient


class CallFunction(Protocol):
    """Calls a function with a value for each parameter; returns its result, and the function."""

    def __call__(
        self, frame: Frame, node: ast.AST, fn: SourceFunction, bound: dict[str, Any], /
    ) -> tuple[Any, Function]: ...


class _Site(NamedTuple):
    """A call of a function with a rule."""

    frame: Frame
    node: ast.AST
    fn: SourceFunction

    def error(self, message: str, *help: str) -> Exception:
        return error_at(self.frame, self.node, "\n".join((message, *help)))


def call_with_rule(
    frame: Frame, node: ast.AST, fn: SourceFunction, bound: Mapping[str, Any], call: CallFunction
) -> Any:
    """The result of a function whose derivative is that of its rule."""
    assert fn.vjp is not None
    site = _Site(frame, node, fn)
    builder = frame.builder
    for name, value in bound.items():
        if not isinstance(value, tensor | constexpr):
            raise site.error(
                f"{fn.__name__} has a derivative rule, and {name} is neither a tensor nor a "
                "compile-time value"
            )
    constants = {
        name: tensor(builder.value(StopGradient(value.handle))) if _is_float(value) else value
        for name, value in bound.items()
    }
    value, function = call(frame, node, fn, constants)
    _require_pure(site, function, f"{fn.__name__} has a derivative rule, and")
    results = value.values if isinstance(value, language.tuple) else [value]
    if not all(isinstance(result, tensor) for result in results):
        raise site.error(
            f"{fn.__name__} has a derivative rule, and does not return a tensor or a tuple of them"
        )
    floats = [result.handle for result in results if _is_float(result)]
    if not floats:
        return value
    inputs = [v.handle for v in bound.values() if isinstance(v, tensor)]
    integers = [result.handle for result in results if not _is_float(result)]
    args = [*inputs, *integers]
    kinds = [v.type for v in (*args, *floats)] + [derivative_type(v.type) for v in floats]
    rule = Region(kinds)
    with builder.at_end(rule):
        operands = _rule_arguments(bound.values(), results, rule.args)
        names = fn.vjp.arg_names
        made, function = call(frame, node, fn.vjp, dict(zip(names, operands, strict=True)))
        _require_pure(site, function, f"{fn.vjp.__name__}, the derivative rule of {fn.__name__},")
        of, gradients = _gradients(site, bound, made)
        builder.insert(Yield(gradients))
    op = WithRule(floats, args, function=fn.__name__, of=of, rule=rule)
    found = iter(builder.insert(op).results)
    returned = [tensor(next(found)) if _is_float(result) else result for result in results]
    return language.tuple(returned) if isinstance(value, language.tuple) else returned[0]


def _is_float(value: Any) -> bool:
    return isinstance(value, tensor) and is_float(value.handle.type)


def _rule_arguments(
    inputs: Iterable[Any], results: Sequence[Any], args: Sequence[Value]
) -> list[language.tuple]:
    """The arguments of a rule: inputs, outputs and gradients of these, as arguments of a region."""
    rest = iter(args)
    operands = [tensor(next(rest)) if isinstance(v, tensor) else v for v in inputs]
    integers = {i: tensor(next(rest)) for i, v in enumerate(results) if not _is_float(v)}
    outputs = [integers[i] if i in integers else tensor(next(rest)) for i in range(len(results))]
    grads = [None if i in integers else tensor(next(rest)) for i in range(len(results))]
    return [language.tuple(operands), language.tuple(outputs), language.tuple(grads)]


def _gradients(
    site: _Site, bound: Mapping[str, Any], made: Any
) -> tuple[tuple[int, ...], list[Value]]:
    """The results of a rule: the gradients that are not None, and their tensors."""
    assert site.fn.vjp is not None
    rule, names = site.fn.vjp.__name__, list(bound)
    found = made.values if isinstance(made, language.tuple) else [made]
    if len(found) != len(names):
        raise site.error(
            f"{rule} returns {_count(len(found))} for {len(names)} parameters of "
            f"{site.fn.__name__}: {', '.join(names)}",
            "help: return a tuple of a gradient for each parameter; None where there is none",
        )
    of: list[int] = []
    gradients: list[Value] = []
    position = 0
    for (name, value), gradient in zip(bound.items(), found, strict=True):
        if isinstance(gradient, tensor) and isinstance(value, tensor):
            _require_gradient(site, name, value, gradient.handle.type)
            of.append(position)
            gradients.append(gradient.handle)
        elif isinstance(value, tensor) and not _is_none(gradient):
            raise site.error(
                f"{rule} returns {gradient} for {name}, which is neither a tensor nor None"
            )
        position += isinstance(value, tensor)
    return tuple(of), gradients


def _is_none(value: Any) -> bool:
    return isinstance(value, constexpr) and value.value is None


def _count(number: int) -> str:
    return "one gradient" if number == 1 else f"{number} gradients"


def _require_gradient(site: _Site, name: str, value: Any, type: Type) -> None:
    """Raise unless a gradient has the shape of the value that it is of, and both are floats."""
    assert site.fn.vjp is not None
    rule = site.fn.vjp.__name__
    if not _is_float(value):
        raise site.error(
            f"{rule} returns a gradient for {name}, which is {text_of(value.handle.type)}",
            f"help: return None for {name}",
        )
    expected = value.handle.type
    if not is_float(type):
        raise site.error(f"{rule} returns {text_of(type)} for {name}, not floats")
    if shape_of(type) != shape_of(expected):
        raise site.error(
            f"{rule} returns {text_of(type)} for {name}, which is {text_of(expected)}",
            "help: a gradient has the shape of its input: sum it over the axes along which the "
            "input is broadcast, with tl.sum, or repeat it, with tl.broadcast_to",
        )


# -- effects ---------------------------------------------------------------------------------------


def _require_pure(site: _Site, function: Function, subject: str) -> None:
    """Raise if a function has effects or depends on anything but its arguments."""
    op = _with_effect(site.frame.context.module, function, set())
    if op is not None:
        what = "depends on the program" if isinstance(op, ProgramId | NumPrograms) else "has"
        does = what if what != "has" else f"contains {op.name}"
        raise site.error(
            f"{subject} {does} ({place_of(op.loc, function.loc)}): only its arguments have "
            "gradients",
            "help: load, store and compute indices in the kernel, and pass values",
        )


def _with_effect(module: Module, function: Function, seen: set[str]) -> Op | None:
    seen.add(function.name)
    for op in function.walk():
        if isinstance(op, Call):
            inner = module.functions[op.callee]
            result = None if inner.name in seen else _with_effect(module, inner, seen)
            if result is not None:
                return result
        elif op.reads_memory or op.writes_memory or isinstance(op, ProgramId | NumPrograms):
            return op
    return None
