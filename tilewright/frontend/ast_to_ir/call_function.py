"""Calls of `@jit` functions.

A function is compiled to a function of the module, once for each combination of argument types and
compile-time values, and called. Combine functions are inlined instead.
"""

from __future__ import annotations

import ast
import builtins
import inspect
from collections.abc import Sequence
from typing import Any, NamedTuple

from tilewright.base.codes import coded
from tilewright.base.diagnostics import CompilationError
from tilewright.base.symbols import symbol_of
from tilewright.frontend.ast_to_ir.frame import MAX_CALL_DEPTH, Context, Frame
from tilewright.frontend.ast_to_ir.rules import call_with_rule
from tilewright.frontend.ast_to_ir.stmt import pending, run
from tilewright.frontend.source import SourceFunction
from tilewright.ir.core import Function
from tilewright.ir.types import Tile
from tilewright.language.semantic import convert
from tilewright.language.values import (
    assemble,
    base_value,
    composite,
    constexpr,
    flat_types,
    flatten,
    returned_number,
    tensor,
    tuple,
    type_of,
    unflatten,
    unwrap,
    wrap,
)
from tilewright.ops.control import Call, Return


class Specialization(NamedTuple):
    """A function of the module, and its result type."""

    function: Function
    returns: Any


def bind_arguments(
    fn: SourceFunction, args: Sequence[Any], kwargs: dict[str, Any]
) -> dict[str, Any]:
    """The value of each parameter; defaults are compile-time values. That of a ``**`` parameter is
    a tuple with names, which are its subscripts.

    Raises:
        TypeError: the arguments do not match the parameters.
    """
    try:
        bound = fn.signature.bind(*args, **kwargs)
    except TypeError as error:
        raise coded("arguments", TypeError(f"{fn.__name__}() {error}")) from None
    bound.apply_defaults()
    for name, parameter in fn.signature.parameters.items():
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            named = {k: as_argument(v) for k, v in bound.arguments[name].items()}
            bound.arguments[name] = tuple(list(named.values()), list(named))
    return {name: as_argument(value) for name, value in bound.arguments.items()}


def as_argument(value: Any) -> Any:
    """An argument as a language value; other objects become compile-time values."""
    value = wrap(value)
    return value if isinstance(value, base_value) else constexpr(value)


def specialization_key(value: Any) -> Any:
    """The part of the key of a specialization for one argument: the type of a run-time value, or a
    compile-time value. Floats are compared by `repr`, which distinguishes -0.0 and equates NaN."""
    if isinstance(value, tensor):
        return value.type
    if isinstance(value, composite):
        return (value.type.with_types(()), *[specialization_key(v) for v in value.values])
    plain = unwrap(value)
    if plain is None or isinstance(plain, bool | int | float | str):
        return type(plain), repr(plain), isinstance(value, returned_number)
    try:
        hash(plain)
    except TypeError:
        return type(plain), repr(plain)
    return type(plain), plain


def call_function(
    frame: Frame, node: ast.AST, fn: SourceFunction, args: list[Any], kwargs: dict[str, Any]
) -> Any:
    """Call a `@jit` function, specialized for these arguments."""
    if frame.caller is not None:  # within a combine function, calls are inlined too
        return _inline_nested(frame, node, fn, args, kwargs)
    bound = bind_arguments(fn, args, kwargs)
    if fn.vjp is not None and frame.context.options.derivatives:
        return call_with_rule(frame, node, fn, bound, _call_bound)
    return _call_bound(frame, node, fn, bound)[0]


def _call_bound(
    frame: Frame, node: ast.AST, fn: SourceFunction, bound: dict[str, Any]
) -> builtins.tuple[Any, Function]:
    """Call a function with a value for each parameter; returns its result, and the function."""
    if fn.noinline:
        _check_scalars(fn, bound)
    try:
        specialization = specialize(frame.context, fn, bound)
    except CompilationError as error:
        raise type(error)(frame.fn.src, node, None) from error
    handles = flatten(tuple(list(bound.values())), [])
    types_ = specialization.function.result_types
    op = Call(handles, specialization.function.name, (*types_,))
    frame.builder.insert(op)
    value = as_argument(unflatten(specialization.returns, iter(op.results)))
    return convert.returned(frame.semantic, value), specialization.function


def _check_scalars(fn: SourceFunction, bound: dict[str, Any]) -> None:
    for name, value in bound.items():
        if any(isinstance(t, Tile) for t in flat_types(type_of(value))):
            raise TypeError(
                f"Function {fn.__name__} is marked noinline, but was called with non-scalar "
                f"argument {name}:{value.type}"
            )


def specialize(context: Context, fn: SourceFunction, bound: dict[str, Any]) -> Specialization:
    """The specialization of a function for these argument types and compile-time values, which is
    compiled on first use."""
    key = (fn, *[specialization_key(v) for v in bound.values()])
    result = context.specializations.get(key)
    if result is None:
        result = _compile(context, fn, bound, key)
        context.specializations[key] = result
    return result


def _compile(context: Context, fn: SourceFunction, bound: dict[str, Any], key: Any) -> Any:
    enter(context, fn, key)
    arg_types = flat_types(type_of(tuple(list(bound.values()))))
    function = Function(_fresh_name(context, fn.__name__), arg_types)
    context.module.add(function)
    if fn.noinline:
        function.attrs["noinline"] = True
    frame = Frame(context, fn)
    function.loc = frame.loc(frame.definition)
    handles = iter(function.args)
    for name, value in bound.items():
        frame.names[name] = _parameter(value, handles)
    builder = context.builder
    saved = builder.loc
    with builder.at_end(function.body):
        value = run_body(frame)
        results = flatten(value, [])
        builder.insert(Return(results))
    function.result_types = [v.type for v in results]
    builder.loc = saved
    leave(context, key)
    return Specialization(function, type_of(value))


def _parameter(value: Any, handles: Any) -> Any:
    """The callee's value for an argument of the caller: tensors are rebound to function
    arguments."""
    if isinstance(value, composite):
        return assemble(value.type, [_parameter(v, handles) for v in value.values])
    if isinstance(value, tensor):
        return tensor(next(handles), value.type)
    return value


def _fresh_name(context: Context, name: str) -> str:
    number = len(context.module.functions)
    return f"{symbol_of(name)}.{number}"


def enter(context: Context, fn: SourceFunction, key: Any) -> None:
    """Enter the compilation of a callee.

    Raises:
        CompilationError: the recursion is infinite, or calls are nested too deeply.
    """
    definition = fn.parse().body[0]
    if key in context.in_progress:
        raise CompilationError(
            fn.src, definition, f"{fn.__name__} calls itself with the same compile-time values and "
            "types, so it would never end; recursion must change a constexpr argument and stop",
        )  # fmt: skip
    if context.depth >= MAX_CALL_DEPTH:
        raise CompilationError(
            fn.src, definition, f"calls are nested more than {MAX_CALL_DEPTH} deep; is there a "
            "recursion that does not end?",
        )  # fmt: skip
    context.in_progress.add(key)
    context.depth += 1


def leave(context: Context, key: Any) -> None:
    context.in_progress.discard(key)
    context.depth -= 1


def run_body(frame: Frame) -> Any:
    """Translate the body of the frame's function; its result as a language value."""
    exit = run(frame, pending(frame.definition.body), False)
    return as_argument(None if exit is None else exit.value)


def inline(
    frame: Frame,
    node: ast.AST,
    fn: Any,
    args: Sequence[Any],
    kwargs: dict[str, Any] | None = None,
) -> Any:
    """Translate the body of a `@jit` function at the insertion point; its result."""
    if not isinstance(fn, SourceFunction):
        message = f"a combine function must be decorated with @triton.jit, {fn} is not"
        raise coded("combine-function", TypeError(message), function=fn)
    if fn.vjp is not None and frame.context.options.derivatives:
        raise TypeError(
            f"{fn.__name__} has a derivative rule, which does not apply in a combine function: "
            "gradients of scans and reductions follow from the ops of the function"
        )
    context = frame.context
    builder = context.builder
    inner = Frame(context, fn, caller=builder.loc)
    bound = bind_arguments(fn, args, kwargs or {})
    inner.names.update(bound)
    key = (fn, node, *[specialization_key(v) for v in bound.values()])
    enter(context, fn, key)
    saved = builder.loc
    value = run_body(inner)
    builder.loc = saved
    leave(context, key)
    return value


def _inline_nested(
    frame: Frame, node: ast.AST, fn: SourceFunction, args: list[Any], kwargs: dict[str, Any]
) -> Any:
    """Like `inline`; errors are located at the call."""
    try:
        return inline(frame, node, fn, args, kwargs)
    except CompilationError as error:
        raise type(error)(frame.fn.src, node, None) from error
