"""Calls of primitives, of `@jit` functions, and of Python functions at compile time.

A `@jit` function is compiled to a function of the module, once for each combination of argument
types and compile-time values, and called. Combine functions are inlined instead.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import re
import types
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import lru_cache
from typing import Any, NamedTuple

import tilewright.language as tl
from tilewright.base.codes import coded
from tilewright.base.diagnostics import CompilationError, CompileTimeAssertionFailure
from tilewright.base.signals import from_signal_handler
from tilewright.frontend.ast_to_ir.branch import settle
from tilewright.frontend.ast_to_ir.errors import error_at, unsupported
from tilewright.frontend.ast_to_ir.expr import attribute
from tilewright.frontend.ast_to_ir.frame import MAX_CALL_DEPTH, Context, Frame
from tilewright.frontend.ast_to_ir.rules import call_with_rule
from tilewright.frontend.ast_to_ir.stmt import Exit, Pending, assign, pending, run, statement
from tilewright.frontend.ast_to_ir.visit import expression, visit
from tilewright.frontend.dependencies import (
    TOLERATED_MODULES,
    is_language_object,
    unsupported_function,
)
from tilewright.frontend.source import ConstexprFunction, JITCallable, SourceFunction
from tilewright.ir.core import Function
from tilewright.ir.types import Tile
from tilewright.language.aggregate import (
    aggregate_value,
    hidden_arguments,
    is_aggregate_class,
    is_static_method,
    method,
)
from tilewright.language.semantic import arith, convert
from tilewright.language.semantic.context import StaticAssertionError
from tilewright.language.types import constexpr_type, dtype
from tilewright.language.values import (
    NO_SEMANTIC,
    assemble,
    base_value,
    composite,
    constexpr,
    flat_types,
    flatten,
    is_builtin,
    is_constant,
    returned_number,
    tensor,
    tuple,
    type_of,
    unflatten,
    unwrap,
    wrap,
)
from tilewright.ops.control import Call, Return


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
        raise CompileTimeAssertionFailure(frame.fn.src, node, str(error) or None) from None
    except CompilationError as error:
        raise type(error)(frame.fn.src, node, None) from error
    except Exception as error:
        if frame.context.debugging or from_signal_handler(error):
            raise
        error = _in_words(fn, args, kwargs, error)
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


def _in_words(
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


# -- Python ----------------------------------------------------------------------------------------


def call_python(frame: Frame, fn: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """Call a builtin of Python, a class, or a method of a compile-time value."""
    if fn is isinstance:
        return constexpr(_is_instance(*args))
    if fn is getattr or fn is hasattr:
        return _attribute_builtin(frame, fn, *args)
    if fn is min or fn is max:
        return _extremum(frame, fn, args)
    if fn is tensor and any(isinstance(a, base_value) for a in args):
        raise coded("tensor-class", TypeError("tl.tensor is the class of tiles, and makes none"))
    plain = [unwrap(a) for a in args]
    named = {k: unwrap(v) for k, v in kwargs.items()}
    if is_language_object(fn) and (isinstance(fn, types.FunctionType) or fn in _TAKE_PYTHON_VALUES):
        return wrap(fn(*plain, **named))
    if is_language_object(fn) or (isinstance(fn, type) and hasattr(fn, "_fields")):
        return wrap(fn(*args, **kwargs))
    if fn is list:
        return tuple(list(args[0]) if args else [])
    if fn is len:
        if isinstance(args[0], tensor):
            message = "a tensor has no len(); see its attributes `shape` and `numel`"
            raise coded("length-of-tensor", TypeError(message))
        return constexpr(len(args[0]))
    _check_callable(fn)
    if not all(is_constant(a) for a in [*args, *kwargs.values()]):
        message = (
            f"{getattr(fn, '__name__', fn)} is a Python function: it takes compile-time values, "
            f"not ({', '.join(str(type_of(a)) for a in args)})"
        )
        raise coded("compile-time-function", TypeError(message), function=fn)
    result = wrap(fn(*plain, **named))
    return result if isinstance(result, base_value) else constexpr(result)


_TAKE_PYTHON_VALUES = (constexpr_type, dtype)


def _check_callable(fn: Any) -> None:
    if not callable(fn):
        raise coded("not-callable", TypeError(f"{fn!r} is not callable"), value=fn)
    module = getattr(fn, "__module__", None)
    if is_static_method(fn):
        return
    if isinstance(fn, types.FunctionType) and module not in TOLERATED_MODULES:
        raise unsupported_function(fn)


def _is_instance(value: Any, classes: Any) -> bool:
    """As in Triton, a compile-time value is of its Python class only: a number is an int, not a
    constexpr."""
    plain = unwrap(classes)
    if isinstance(value, constexpr):
        value = value.value
    return isinstance(value, plain) or isinstance(unwrap(value), plain)


def _attribute_builtin(frame: Frame, fn: Any, owner: Any, name: Any, *default: Any) -> Any:
    """Python's `hasattr` and `getattr`; a compile-time value has the attributes of its class."""
    name = unwrap(name)
    try:
        of_python = isinstance(owner, constexpr)
        found = wrap(getattr(owner.value, name)) if of_python else attribute(frame, owner, name)
    except AttributeError:
        if fn is hasattr:
            return constexpr(False)
        if default:
            return default[0]
        raise
    return constexpr(True) if fn is hasattr else found


def _extremum(frame: Frame, fn: Any, args: list[Any]) -> Any:
    """Python's min and max: evaluated for compile-time values, otherwise a chain of ops."""
    values = list(args[0]) if len(args) == 1 and isinstance(args[0], tuple) else args
    if len(args) == 1 and isinstance(args[0], tensor):
        message = f"Python's `{fn.__name__}` takes several values, or a tuple of them"
        raise coded("one-value", TypeError(message), function=fn)
    if all(is_constant(v) for v in values):
        plain = [unwrap(v) for v in values]
        for v in plain:
            assert v == v, "min and max of compile-time values don't take NaN"
            assert not (v == 0 and str(v) == "-0.0"), "min and max don't take -0.0"
        return constexpr(fn(*plain) if len(plain) > 1 else plain[0])
    if any(isinstance(v, tensor) and isinstance(v.type, Tile) for v in values):
        name = fn.__name__
        frame.semantic.warn(
            f"Python's `{name}` is deprecated for tiles; use `tl.{name}imum`, or `tl.{name}` to "
            "reduce one",
        )
    apply = arith.minimum if fn is min else arith.maximum
    result = values[0]
    for value in values[1:]:
        result = apply(frame.semantic, result, value)
    return result


# -- @jit functions --------------------------------------------------------------------------------


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
        made = specialize(frame.context, fn, bound)
    except CompilationError as error:
        raise type(error)(frame.fn.src, node, None) from error
    handles = flatten(tuple(list(bound.values())), [])
    types_ = made.function.result_types
    op = Call(handles, made.function.name, (*types_,))
    frame.builder.insert(op)
    value = as_argument(unflatten(made.returns, iter(op.results)))
    return convert.returned(frame.semantic, value), made.function


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
    made = context.specializations.get(key)
    if made is None:
        made = _compile(context, fn, bound, key)
        context.specializations[key] = made
    return made


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
    return f"{name}.{number}"


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
