"""Functions of the kernel language: their Python source, syntax tree and cache key.

The source is read, and the tree parsed, lazily on first use.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
import types
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

from tilewright.base.diagnostics import CompilationError
from tilewright.base.lazy import cached_property
from tilewright.base.locks import Lock
from tilewright.frontend.annotations import Scope, annotation_of, scope_of, signature_of
from tilewright.frontend.captured import Captured
from tilewright.frontend.definition import definition_of, is_def, margin_of, parse, source_text
from tilewright.frontend.dependencies import ABSENT, Recorded, dependencies
from tilewright.language.values import constexpr

NO_SOURCE = "@jit functions should be defined in a Python file"
_HASHING = Lock()

_DEEP = 20_000


@contextmanager
def _deep_recursion() -> Generator[None]:
    """Increase Python's recursion limit: hashing takes some 16 calls of Python for each call of the
    kernel's. Compilation reports the location of excessive nesting later."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(max(limit, _DEEP))
    try:
        yield
    finally:
        sys.setrecursionlimit(limit)


class KernelParam:
    """One parameter of a kernel.

    Args:
        scope: evaluates annotations that are text.

    Attributes:
        name, num: its name, and its position from 0.
        annotation: the annotation as text, "" without one.
        annotation_type: the type string fixed by the annotation, such as ``fp32`` or ``*i8``; ""
            if it fixes none.
        int_type: the type of an int that a variant is specialised for; see `Annotation`.
        is_constexpr: whether it is a compile-time parameter.
        is_const: whether it is a pointer to const.
        has_default, default: its default value.
        do_not_specialize: whether variants do not depend on its value.
        do_not_specialize_on_alignment: whether variants do not depend on its alignment.
    """

    __slots__ = (
        "_parameter",
        "annotation",
        "annotation_type",
        "default",
        "do_not_specialize",
        "do_not_specialize_on_alignment",
        "has_default",
        "int_type",
        "is_const",
        "is_constexpr",
        "name",
        "num",
    )

    def __init__(
        self,
        num: int,
        parameter: inspect.Parameter,
        do_not_specialize: bool = False,
        do_not_specialize_on_alignment: bool = False,
        scope: Scope | None = None,
    ) -> None:
        self.num = num
        self.name = parameter.name
        self._parameter = parameter
        self.has_default = parameter.default is not inspect.Parameter.empty
        self.default: Any = parameter.default
        meant = annotation_of(parameter.annotation, scope)
        self.annotation = meant.text
        self.is_constexpr = meant.is_constexpr
        self.is_const = meant.is_const
        self.annotation_type = meant.type_string
        self.int_type = meant.int_type
        self.do_not_specialize = do_not_specialize
        self.do_not_specialize_on_alignment = do_not_specialize_on_alignment

    @property
    def kind(self) -> Any:
        """The `inspect.Parameter.kind`."""
        return self._parameter.kind

    def __repr__(self) -> str:
        return f"KernelParam({self.name})"


Lines = tuple[list[str], int]
"""The lines of a function, and the number of the first one in its file."""


def _checked_source(fn: Callable[..., Any]) -> Lines | None:
    """The lines of the function if it had to be read to see that its source is available, else
    None: a file is read when the function is compiled. Raises ValueError if it is not available."""
    if not isinstance(fn, types.FunctionType):
        raise ValueError(f"{NO_SOURCE}{_instead_of_function(fn)}")
    if fn.__name__ == "<lambda>":
        raise ValueError(f"{NO_SOURCE}, with `def`, not `lambda`")
    if inspect.iscoroutinefunction(fn) or inspect.isasyncgenfunction(fn):
        raise ValueError(f"{NO_SOURCE}, with `def`, not `async def`: {fn.__name__}")
    if not fn.__code__.co_filename.startswith("<"):
        return None
    lines = _known_lines(fn)
    if lines is None:
        raise ValueError(
            f"{NO_SOURCE}: the source of {fn.__name__} is not available, as in an interactive "
            f"session or `exec`"
        )
    return lines


def _instead_of_function(fn: Any) -> str:
    """A description of a decorated object that is not a function, with the fix."""
    if isinstance(fn, JITCallable):
        return f": {fn.__name__} is decorated already; remove one of the decorators"
    if isinstance(fn, type):
        return f", with `def`, not `class`: {fn.__name__}"
    wrapped = getattr(fn, "__wrapped__", None)
    if isinstance(wrapped, types.FunctionType):
        return f": put @jit next to the `def` of {wrapped.__name__}, below {type(fn).__name__}"
    return f", with `def`, not {fn!r}"


def _known_lines(fn: Callable[..., Any]) -> Lines | None:
    """The lines of a function that is not in a file: from `linecache`, or from a replacement of
    `linecache.getlines`, which programs that generate functions install; None if there are none. A
    file name such as ``<string>`` may refer to another text (Python 3.13 stores that of ``python
    -c`` under it), so the lines are checked to define the function."""
    try:
        lines = inspect.getsourcelines(fn)
    except (OSError, TypeError):
        return None
    text = "".join(lines[0])
    return lines if re.search(rf"\bdef\s+{re.escape(fn.__name__)}\b", text) else None


OF_THIS_PROCESS = ("captured", "_ast", "used_objects")
"""Attributes of a `JITCallable` that are not pickled."""


def _changed(name: str, before: Any, now: Any) -> str:
    was, is_ = ("nothing" if value is ABSENT else str(value) for value in (before, now))
    values = f"from {was} to {is_}" if was != is_ else f"to another {is_}"
    return f"Global variable {name} has changed since we compiled this kernel, {values}"


def _are_same(a: Any, b: Any) -> bool:
    """Whether both are functions of the kernel language with the same source and dependencies."""
    return isinstance(a, JITCallable) and isinstance(b, JITCallable) and a.cache_key == b.cache_key


class JITCallable:
    """A Python function that kernels may call, with its source and cache key.

    Attributes:
        used_global_vals: the globals and captured variables whose values it was compiled for,
            including those of the functions it calls.
        used_objects: likewise, the names that refer to functions, classes and modules.
    """

    _is_being_hashed = False

    def __init__(self, fn: Callable[..., Any]) -> None:
        self._read = _checked_source(fn)
        self.fn: Any = fn
        self.__name__ = fn.__name__
        self.__qualname__ = fn.__qualname__
        self.__module__ = fn.__module__
        self.__doc__ = fn.__doc__
        self.__globals__: dict[str, Any] = fn.__globals__
        self._must_use_result: Any = getattr(fn, "_must_use_result", None)
        self.file_name = fn.__code__.co_filename
        self.used_global_vals: Recorded = {}
        self.used_objects: Recorded = {}
        self._src: str | None = None
        self._ast: ast.Module | None = None
        self._hash: str | None = None

    @staticmethod
    def compile_time_function(fn: Any) -> ConstexprFunction | None:
        """The `ConstexprFunction` for a plain function that is wrapped in, or decorated with,
        `tl.constexpr`; None for other objects."""
        return _of_constexpr(fn) if isinstance(fn, types.FunctionType) else None

    # -- source ---------------------------------------------------------------------------------

    @cached_property
    def _lines(self) -> Lines:
        if self._read is not None:
            return self._read
        try:
            found = definition_of(self.fn)
        except (OSError, TypeError) as error:
            raise ValueError(NO_SOURCE) from error
        if self._src is None:
            self._ast = found.tree
        return found.lines, found.first

    @property
    def raw_src(self) -> list[str]:
        """The lines of the source, including decorators."""
        return self._lines[0]

    @property
    def starting_line_number(self) -> int:
        """The line of the file at which `raw_src` begins."""
        return self._lines[1]

    @property
    def src(self) -> str:
        """The source from ``def`` on, without indentation."""
        if self._src is None:
            text = source_text(self.raw_src)
            if text is None:
                raise ValueError(NO_SOURCE)
            self._src = text
        return self._src

    @cached_property
    def def_line(self) -> int:
        """The line of ``def`` in the file."""
        before = [i for i, line in enumerate(self.raw_src) if is_def(line)]
        return self.starting_line_number + (before[0] if before else 0)

    @cached_property
    def indent(self) -> int:
        """The number of columns of indentation that `src` omits."""
        return len(margin_of(self.raw_src))

    def parse(self) -> ast.Module:
        """The syntax tree of `src`, a module with one function; cached."""
        text = self.src  # finding its end may parse it
        if self._ast is None:
            tree = parse(text)
            assert len(tree.body) == 1
            assert isinstance(tree.body[0], ast.FunctionDef)
            self._ast = tree
        return self._ast

    def _unsafe_update_src(self, new_src: str) -> None:
        """Replace the source: for tests."""
        self._src = new_src
        self._ast = None
        self._hash = None

    # -- identity -------------------------------------------------------------------------------

    def get_capture_scope(self) -> dict[str, Any]:
        """The globals and captured variables that are visible to the function."""
        return {**self.__globals__, **self.captured}

    @cached_property
    def captured(self) -> Captured:
        """The variables of enclosing functions that the function uses."""
        return Captured(self.fn)

    @property
    def cache_key(self) -> str:
        """SHA-256 of the source and of its dependencies: functions and constexpr globals."""
        found = self._hash
        return self._hashed() if found is None else found

    def _hashed(self) -> str:
        with _HASHING:
            if self._is_being_hashed:
                # In a recursive function, this replaces its own key. The lock is reentrant, so that
                # only the thread that computes the key gets here.
                return f"recursion:{self.__module__}.{self.__qualname__}"
            if self._hash is None:
                self._is_being_hashed = True
                try:
                    with _deep_recursion():
                        found = dependencies(self)
                    self.used_global_vals = found.values
                    self.used_objects = found.objects
                    self._hash = found.cache_key
                finally:
                    self._is_being_hashed = False
            return self._hash

    @property
    def hash(self) -> str:
        return self.cache_key

    def check_globals(self) -> None:
        """Raise RuntimeError if a global or captured variable has changed since the function, or
        one that it calls, was compiled. Functions of the same source are the same."""
        for (name, _), (before, scope) in self.used_global_vals.items():
            now = scope.get(name, ABSENT)
            if now is not before and now != before:
                raise RuntimeError(_changed(name, before, now))
        for (name, _), (before, scope) in self.used_objects.items():
            now = scope.get(name, ABSENT)
            if now is not before and not _are_same(before, now):
                raise RuntimeError(
                    f"{_changed(name, before, now)}. Redefine the kernel, and the functions "
                    f"through which it uses {name}"
                )

    def __hash__(self) -> int:
        return id(self)

    def __eq__(self, other: object) -> bool:
        return self is other

    def __deepcopy__(self, memo: dict[int, Any]) -> JITCallable:
        # Without `fn`, torch is about to store the copy, and sets `fn` of the original again.
        return self if self.fn is not None else _restored(type(self), self._plain_state())

    # -- pickling -------------------------------------------------------------------------------

    def __reduce__(self) -> str | tuple[Any, ...]:
        """Pickle by module and qualified name, like Python's functions.

        If `fn` is None, to which torch sets it before it sends a kernel to another process, pickle
        by value, including the source.
        """
        if self.fn is not None:
            return self.__qualname__
        return _restored, (type(self), self._plain_state())

    def _plain_state(self) -> dict[str, Any]:
        """The attributes that can be pickled."""
        return {k: v for k, v in vars(self).items() if k not in OF_THIS_PROCESS}

    def restore(self, state: dict[str, Any]) -> None:
        """Set the attributes from the result of `_plain_state`."""
        vars(self).update(state, _ast=None, used_objects={})


def _restored(cls: type[JITCallable], state: dict[str, Any]) -> JITCallable:
    function = cls.__new__(cls)
    function.restore(state)
    return function


class SourceFunction(JITCallable):
    """A function of the kernel language.

    Args:
        fn: the Python function.
        repr: a function that returns the name of the compiled kernel for an object with
            `constants` and `signature`; default: the name of the function.
        do_not_specialize: names or positions of parameters whose values variants do not depend on.
        do_not_specialize_on_alignment: likewise for alignment.
        noinline: whether calls of the function are not inlined.
        debug: whether its assertions are checked.

    Raises:
        ValueError: the function has no source.
        TypeError: it has a ``**`` parameter.
    """

    def __init__(
        self,
        fn: Callable[..., Any],
        *,
        repr: Callable[[Any], str] | None = None,
        do_not_specialize: Any = None,
        do_not_specialize_on_alignment: Any = None,
        noinline: bool | None = None,
        debug: bool | None = None,
    ) -> None:
        super().__init__(fn)
        self._repr = repr
        self.do_not_specialize = list(do_not_specialize or [])
        self.do_not_specialize_on_alignment = list(do_not_specialize_on_alignment or [])
        self.noinline = bool(noinline)
        self.debug = debug
        self.signature = signature_of(fn)
        self.params = [self._param(i, p) for i, p in enumerate(self.signature.parameters.values())]
        self.arg_names = [p.name for p in self.params]
        self.constexprs = [p.num for p in self.params if p.is_constexpr]
        self.vjp: SourceFunction | None = None

    def defvjp(self, rule: Callable[..., Any]) -> SourceFunction:
        """Decorator: define the derivative of the function, a rule that is used instead of the
        function's ops where a kernel that calls it is differentiated in reverse mode.

            @tilewright.jit
            def relu(x):
                return tl.maximum(x, 0.0)

            @relu.defvjp
            def relu_rule(inputs, outputs, grads):
                (x,) = inputs
                return tl.where(x > 0, grads[0], 0.0)

        Args:
            rule: a function of the kernel language of three tuples: the function's arguments, its
                results, and the gradients of a loss with respect to these (fp32 for narrower
                floats, None for integers). It returns a tuple with the gradient with respect to
                each parameter, of the same shape, or None for zero; with one parameter, it may
                return its gradient alone. Gradients of compile-time numbers are dropped. It only
                computes: neither the function nor the rule loads, stores or depends on the program.

        Raises:
            TypeError: the rule does not have three parameters.
            ValueError: the function has a rule already.
        """
        if self.vjp is not None:
            raise ValueError(f"{self.__name__} has a derivative rule already: {self.vjp.__name__}")
        made = rule if isinstance(rule, SourceFunction) else type(self)(rule)
        if len(made.params) != 3:
            raise TypeError(
                f"a derivative rule has the parameters (inputs, outputs, grads), and "
                f"{made.__name__} has ({', '.join(made.arg_names)})"
            )
        self.vjp = made
        self._hash = None  # it includes that of the rule
        return made

    def _param(self, num: int, parameter: inspect.Parameter) -> KernelParam:
        listed = (num, parameter.name)
        return KernelParam(
            num,
            parameter,
            any(x in self.do_not_specialize for x in listed),
            any(x in self.do_not_specialize_on_alignment for x in listed),
            scope_of(self.fn),
        )

    def check_params(self) -> None:
        """Raise CompilationError if a compile-time parameter is listed in `do_not_specialize`."""
        for p in self.params:
            if p.is_constexpr and (p.do_not_specialize or p.do_not_specialize_on_alignment):
                raise CompilationError(
                    self.src,
                    self.parse().body[0],
                    f"{p.name} marked as constexpr and listed in do_not_specialize/"
                    "do_not_specialize_on_alignment. Remove constexpr designation to skip "
                    "specialization.",
                )

    def repr(self, specialization: Any) -> str:
        """The name of the kernel for `specialization`, an object with `constants` and
        `signature`."""
        return self.__name__ if self._repr is None else self._repr(specialization)

    def __repr__(self) -> str:
        return f"JITFunction({self.__module__}:{self.__qualname__})"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError(
            "Cannot call @triton.jit'd outside of the scope of a kernel; with a grid, "
            f"{self.__name__}[(programs,)](…), it is launched"
        )


class ConstexprFunction(JITCallable):
    """A plain Python function that kernels call at compile time, with compile-time values.

    In a kernel, the result is a constexpr; on the host, it is the plain value. A method of a
    compile-time value, such as a dataclass, may be one.
    """

    def __get__(self, owner: Any, of_class: Any = None) -> Any:
        return self if owner is None else types.MethodType(self, owner)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        kwargs.pop("_semantic", None)
        plain = {k: _host_value(v) for k, v in kwargs.items()}
        return self.fn(*[_host_value(a) for a in args], **plain)

    def __repr__(self) -> str:
        return f"ConstexprFunction({self.__module__}:{self.__qualname__})"


@lru_cache
def _of_constexpr(fn: types.FunctionType) -> ConstexprFunction:
    return ConstexprFunction(fn)


def _host_value(value: Any) -> Any:
    return value.value if isinstance(value, constexpr) else value
