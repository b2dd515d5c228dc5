"""Calls of primitives, aggregates and methods, and the statements that are calls: `assert`, `with`.

`call_function` has calls of `@jit` functions, `call_python` those of Python's at compile time.
"""

from __future__ import annotations

import ast
import inspect
import re
import types
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import lru_cache
from typing import Any, NamedTuple

import tilewright.language as tl
from tilewright.base.codes import coded
from tilewright.base.diagnostics import CompilationError
from tilewright.base.signals import from_signal_handler
from tilewright.frontend.ast_to_ir.branch import settle
from tilewright.frontend.ast_to_ir.call_function import as_argument, call_function, inline
from tilewright.frontend.ast_to_ir.call_python import call_python
from tilewright.frontend.ast_to_ir.errors import assertion_failed, error_at, unsupported
from tilewright.frontend.ast_to_ir.frame import Frame
from tilewright.frontend.ast_to_ir.stmt import Exit, Pending, assign, pending, run, statement
from tilewright.frontend.ast_to_ir.visit import expression, visit
from tilewright.frontend.source import ConstexprFunction, JITCallable, SourceFunction
from tilewright.language.aggregate import (
    aggregate_value,
    hidden_arguments,
    is_aggregate_class,
    method,
)
from tilewright.language.semantic.context import StaticAssertionError
from tilewright.language.values import (
    NO_SEMANTIC,
    composite,
    constexpr,
    is_builtin,
    tensor,
    tuple,
    type_of,
    unwrap,
    wrap,
)


def arguments(frame: Frame, node: ast.Call) -> Any:
    """The positional and the keyword arguments of a call."""
    args: list[Any] = []
    for a in node.args:
        if isinstance(a, ast.Starred):
            args.extend(visit(frame, a.value))
        else:
            args.append(visit(frame, a))
    kwargs: dict[str, Any] = {}
    for k in node.keywords:
        if k.arg is None:
            kwargs |= _named_values(frame, node, visit(frame, k.value))
        else:
            kwargs[k.arg] = visit(frame, k.value)
    return args, kwargs


def _named_values(frame: Frame, node: ast.Call, value: Any) -> dict[str, Any]:
    """The arguments that ``**value`` passes: of a compile-time dict, or the ``**`` parameter of the
    function."""
    if not frame.context.options.strict_triton:
        if isinstance(value, tuple) and (value.fields or not len(value)):
            return dict(zip(value.fields or (), value.values, strict=True))
        plain = unwrap(value)
        if isinstance(plain, dict) and all(isinstance(name, str) for name in plain):
            return {name: as_argument(v) for name, v in plain.items()}
    message = "`**` takes a compile-time dict, or a parameter with `**`"
    raise unsupported(frame, node, message)


@expression(ast.Call)
def visit_call(frame: Frame, node: ast.Call) -> Any:
    dropped, frame.dropped = frame.dropped is node, None
    fn = visit(frame, node.func)
    if isinstance(fn, constexpr):
        fn = fn.value
        if not is_builtin(fn):
            fn = frame.fn.compile_time_function(fn) or fn
    args, kwargs = arguments(frame, node)
    if dropped:
        _check_result_is_used(frame, node, fn)
    result = call(frame, node, fn, args, kwargs)
    if getattr(fn, "is_hint", False):
        frame.hints.add(node)
        if dropped:
            _apply_hint(frame, node, result)
    return result


def _apply_hint(frame: Frame, node: ast.Call, result: Any) -> None:
    """For a hint that is a statement, rebind its variable to the result, also through nested hints:
    `tl.max_contiguous(tl.multiple_of(x, 16), 16)`."""
    subject: ast.expr = node
    while subject in frame.hints and isinstance(subject, ast.Call) and subject.args:
        subject = subject.args[0]
    if isinstance(subject, ast.Name) and subject.id in frame.names:
        frame.names[subject.id] = result


def _check_result_is_used(frame: Frame, node: ast.Call, fn: Any) -> None:
    message = getattr(fn, "_must_use_result", None)
    if message is not None:
        text = f"The result of {ast.unparse(node.func)} is not being used."
        raise error_at(frame, node, f"{text} {message}" if isinstance(message, str) else text)


def call(frame: Frame, node: ast.AST, fn: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """The result of ``fn(*args, **kwargs)``, as a language value."""
    if isinstance(fn, types.MethodType) and isinstance(fn.__func__, JITCallable):
        fn, args = fn.__func__, [fn.__self__, *args]
    if isinstance(fn, SourceFunction):
        return call_function(frame, node, fn, args, kwargs)
    frame.semantic.inline = lambda callee, values: inline(frame, node, callee, values)
    if is_builtin(fn) or is_aggregate_class(fn):
        kwargs["_semantic"] = frame.semantic
        if takes_generator(getattr(fn, "__func__", fn)):
            kwargs["_generator"] = Generator(frame, node)
    elif isinstance(fn, ConstexprFunction):
        kwargs = {k: unwrap(v) for k, v in kwargs.items()}
        found = _guarded(frame, node, fn.fn, [unwrap(a) for a in args], kwargs)
        return found if isinstance(found, composite) else constexpr(found)
    elif isinstance(fn, aggregate_value):
        return call_instance(frame, node, fn, args, kwargs)
    elif isinstance(getattr(fn, "__self__", None), aggregate_value):
        hidden = {"_semantic": frame.semantic, "_generator": Generator(frame, node)}
        kwargs |= hidden_arguments(fn, **hidden)
    else:
        return call_python(frame, fn, args, kwargs)
    return wrap(_guarded(frame, node, fn, args, kwargs))


class Generator(NamedTuple):
    """The ``_generator`` argument of primitives that have this parameter: it calls `@jit` functions
    at the location of the primitive's call.
    """

    frame: Frame
    node: ast.AST

    def call_JitFunction(
        self, fn: SourceFunction, args: Sequence[Any], kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """The result of a `@jit` function, as a language value."""
        return call_function(self.frame, self.node, fn, list(args), dict(kwargs or {}))


@lru_cache
def takes_generator(fn: Any) -> bool:
    """Whether a primitive or the constructor of an aggregate has a `_generator` parameter."""
    return is_aggregate_class(fn) or bool(hidden_arguments(fn, _generator=None))


def call_instance(
    frame: Frame, node: ast.AST, owner: Any, args: list[Any], kwargs: dict[str, Any]
) -> Any:
    """Call an aggregate by its method ``__call__``."""
    found = method(owner, "__call__")
    if found is None:
        raise TypeError(f"'{type(owner).__name__}' object is not callable")
    return call(frame, node, found, args, kwargs)


def _guarded(frame: Frame, node: ast.AST, fn: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """Call a primitive; an exception becomes the cause of a CompilationError at the call."""
    try:
        return fn(*args, **kwargs)
    except StaticAssertionError as error:
        raise assertion_failed(frame, node, error) from None
    except CompilationError as error:
        raise type(error)(frame.fn.src, node, None) from error
    except Exception as error:
        if frame.context.debugging or from_signal_handler(error):
            raise
        error = _naming_argument(fn, args, kwargs, error)
        text = str(error)
        if isinstance(error, TypeError) and not _takes(fn, args, kwargs):
            coded("arguments", error)
            # Python counts the hidden `_semantic`, too.
            text = re.sub(r" positional arguments? \(and .*\) (was|were) given", r" \1 given", text)
        raise error_at(frame, node, text, error) from error


def _takes(fn: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether the arguments match the function's signature; True if it has none."""
    try:
        signature = inspect.signature(fn)
    except (TypeError, ValueError):
        return True
    try:
        signature.bind(*args, **kwargs)
    except TypeError:
        return False
    return True


def _naming_argument(
    fn: Any, args: Sequence[Any], kwargs: Mapping[str, Any], error: Exception
) -> Exception:
    """The exception of a primitive. An exception of Python caused by an argument of the wrong kind
    is replaced by one that names the argument.
    """
    from_python = isinstance(error, AttributeError) and error.obj is not None
    if not is_builtin(fn) or not (from_python or str(error) == NO_SEMANTIC):
        return error
    signature = inspect.signature(fn)
    bound = signature.bind(*args, **kwargs).arguments
    for name, value in bound.items():
        annotation = str(signature.parameters[name].annotation)
        if annotation == "tensor" and not isinstance(value, tensor):
            message = f"{fn.__name__} takes a tensor as `{name}`, not {type_of(value)}"
            return coded("not-a-tensor", TypeError(message), value=unwrap(value))
    for name, value in reversed(bound.items()):
        annotation = str(signature.parameters[name].annotation)
        if annotation != "tensor" and isinstance(value, tensor):
            message = f"{fn.__name__} takes a compile-time value as `{name}`, not {value.type}"
            return coded("needs-constant", TypeError(message))
    return error


# -- statements with calls -------------------------------------------------------------------------


@statement(ast.Assert)
def visit_assert(frame: Frame, node: ast.Assert, todo: Pending, live: bool) -> None:
    """`assert` is `tl.device_assert`, also for a compile-time condition."""
    test = visit(frame, node.test)
    message = constexpr("") if node.msg is None else visit(frame, node.msg)
    call(frame, node, tl.device_assert, [test, message], {})


@statement(ast.With)
def visit_with(frame: Frame, node: ast.With, todo: Pending, live: bool) -> Exit | None:
    """Enter the context managers, which are called with ``_semantic=``, run the body, and exit."""
    frame.withs += 1
    with ExitStack() as stack:
        for item in node.items:
            entered = wrap(stack.enter_context(_context_manager(frame, item.context_expr)))
            if item.optional_vars is not None:
                assign(frame, item.optional_vars, entered)
        exit = run(frame, pending(node.body), True)
    frame.withs -= 1
    return settle(frame, node, exit, todo, live)


def _context_manager(frame: Frame, node: ast.expr) -> Any:
    if not isinstance(node, ast.Call):
        return visit(frame, node)
    factory = unwrap(visit(frame, node.func))
    args, kwargs = arguments(frame, node)
    if _takes(factory, args, kwargs) and not _takes(factory, args, kwargs | {"_semantic": None}):
        message = f"{ast.unparse(node.func)} is not a context manager of kernels"
        raise error_at(frame, node, message, coded("context-manager", TypeError(message)))
    return _guarded(frame, node, factory, args, kwargs | {"_semantic": frame.semantic})
