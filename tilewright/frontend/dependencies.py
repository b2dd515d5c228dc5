"""The cache key of a function: a hash of its source and of its transitive dependencies.

One walk over the syntax tree resolves non-local names and attributes of modules. A `@jit` function
contributes its own key. Values of globals, and the functions, classes and modules that names refer
to, are recorded, so that a launch can check that they have not changed. Modules of the language
and their attributes are not recorded. Linear in the size of the source.
"""

from __future__ import annotations

import ast
import builtins
import copy
import types
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

from tilewright.base.codes import coded
from tilewright.base.digest import sha256
from tilewright.base.lazy import cached_property
from tilewright.frontend.captured import Captured
from tilewright.ir.types import DType, Pointer, Tile
from tilewright.language.aggregate import is_aggregate_class, sources
from tilewright.language.values import constexpr, is_builtin

# Modules of the standard library whose functions a kernel may call on compile-time values.
TOLERATED_MODULES = frozenset({"math", "copy"})


def unsupported_function(fn: types.FunctionType) -> RuntimeError:
    """The error for a plain Python function, which kernels cannot call."""
    error = RuntimeError(
        f"Unsupported function referenced: <function {fn.__module__}.{fn.__qualname__}>. Kernels "
        "can call functions decorated with @triton.jit or @triton.constexpr_function, and those of "
        "the language"
    )
    return coded("plain-function", error, function=fn)


ABSENT: Any = object()
"""The value of a name that is not bound."""

_CONSTANTS = bool | int | float | str | DType | Pointer | Tile | constexpr
"""The types of module attributes that kernels read as compile-time values."""

Scope = Mapping[str, Any]
Recorded = dict[tuple[str, int], tuple[Any, Scope]]
"""By name and `id` of a namespace: the value of the name at the time of compilation, and the
namespace."""


_LANGUAGE = ("tilewright.language", "triton.language")
"""Prefixes of `__module__` of the language's objects; the second after `install_as_triton`."""


class Source(Protocol):
    """The interface of functions (`source.JITCallable`) that this module uses."""

    __globals__: dict[str, Any]
    __name__: str

    @property
    def src(self) -> str: ...

    @property
    def starting_line_number(self) -> int: ...

    @cached_property
    def captured(self) -> Captured: ...

    def parse(self) -> ast.Module: ...

    def compile_time_function(self, fn: Any, /) -> Any: ...


class Dependencies(NamedTuple):
    """The dependencies of a function, its own and those of the functions that it calls.

    Attributes:
        cache_key: hash of the source and of the dependencies.
        values: the values of globals and captured variables.
        objects: the functions, classes and modules that names refer to.
    """

    cache_key: str
    values: Recorded
    objects: Recorded


def is_language_object(value: Any) -> bool:
    """Whether the object is defined by the language (`tl`)."""
    module = getattr(value, "__module__", None) or ""
    return module.startswith(_LANGUAGE) or is_builtin(value)


def _is_constant(value: Any) -> bool:
    return is_language_object(value) or isinstance(value, _CONSTANTS)


def _is_of_language(module: types.ModuleType) -> bool:
    return module.__name__.startswith("tilewright")


def _copy(value: Any) -> Any:
    """An equal copy of a value; ABSENT for values that are compared by identity: arrays and tables,
    which compare elementwise, files, locks. The front end rejects them."""
    if getattr(value, "ndim", 0):  # it may be large
        return ABSENT
    try:
        copied = copy.deepcopy(value)
        return copied if copied == value else ABSENT
    except Exception:  # of any class of the user's
        return ABSENT


def _may_change(module: types.ModuleType) -> bool:
    return module.__name__ not in TOLERATED_MODULES


def is_named_tuple_class(value: Any) -> bool:
    return isinstance(value, type) and issubclass(value, tuple) and hasattr(value, "_fields")


def is_keyed(value: Any) -> bool:
    """Whether this is a function with a cache key: a `JITCallable`."""
    return hasattr(type(value), "cache_key") and hasattr(value, "used_global_vals")


class _Finder(ast.NodeVisitor):
    """Visits one function. `visit` of a name or attribute returns the object, or None."""

    def __init__(self, fn: Source) -> None:
        self.fn = fn
        self.locals: set[str] = set()
        self.keys: list[str] = []
        self.used: Recorded = {}
        self.objects: Recorded = {}
        self.aggregates: set[Any] = set()

    def lookup(self, name: str) -> Any:
        """The captured or global value of the name, which is recorded if necessary; or None."""
        if name in self.locals:
            return None
        captured = self.fn.captured
        scope: Scope = captured if name in captured else self.fn.__globals__
        value = scope.get(name, ABSENT)
        if value is ABSENT:
            if hasattr(builtins, name):
                self.record_object(name, value, scope)
            return None
        if self.reference(value) or not self.record(name, value, scope):
            self.record_object(name, value, scope)
        return value

    def record_object(self, name: str, value: Any, scope: Scope) -> None:
        """Record that a name refers to a function, class or module, or is not bound."""
        if not (isinstance(value, types.ModuleType) and _is_of_language(value)):
            self.objects[name, id(scope)] = (value, scope)

    def record(self, name: str, value: Any, scope: Scope) -> bool:
        """Record a global value that the kernel depends on, and the namespace of the name. Returns
        False if the value cannot be compared with a copy.

        Raises:
            RuntimeError: the name had another value before.
        """
        before, _ = self.used.get((name, id(scope)), (ABSENT, scope))
        if before is ABSENT:
            kept = _copy(value)
            if kept is not ABSENT:
                self.used[name, id(scope)] = (kept, scope)
            return kept is not ABSENT
        if before != value:
            raise self._conflict(name, value, "a function that it calls", before)
        return True

    def _conflict(self, name: str, value: Any, other: str, before: Any) -> RuntimeError:
        return RuntimeError(
            f"Global variable {name} has value {value} when compiling {self.fn.__name__}, but "
            f"{other} has conflicting value {before} from when it was first compiled. "
            "This is not allowed."
        )

    def reference(self, value: Any) -> bool:
        """Add the dependencies of a value. Returns whether it is an object that is compared by
        identity, not by value: modules, objects whose source or fields are part of the key, and
        plain functions, which the front end rejects.
        """
        if is_keyed(value):
            self.follow(value)
            return True
        if isinstance(value, constexpr):
            self.reference_within(value.value)
            return self.fn.compile_time_function(value.value) is not None
        if is_aggregate_class(value):
            self.follow_aggregate(value)
            return True
        if is_named_tuple_class(value):
            self.keys.append(f"{value.__qualname__}{value._fields}{value._field_defaults}")
            return True
        if isinstance(value, types.ModuleType):
            return True
        return callable(value) and not is_language_object(value)

    def reference_within(self, value: Any) -> None:
        """Add `@jit` functions in a constexpr, alone or in a tuple, as dependencies."""
        function = self.fn.compile_time_function(value)
        if is_keyed(value) or function is not None:
            self.follow(function or value)
        elif is_aggregate_class(value):
            self.follow_aggregate(value)
        elif isinstance(value, tuple | list):
            for v in value:
                self.reference_within(v)

    def follow(self, other: Any) -> None:
        """Add the key of another function, and the globals that it uses."""
        self.keys.append(f"{other.cache_key}{getattr(other, 'noinline', False)}")
        for key, (value, scope) in other.used_global_vals.items():
            mine = self.used.get(key)
            if mine is not None and mine[0] != value:
                inner = f"inner kernel {other.__name__}"
                raise self._conflict(key[0], mine[0], inner, value)
            self.used[key] = (value, scope)
        self.objects |= other.used_objects
        rule = getattr(other, "vjp", None)
        if rule is not None and rule is not self.fn:
            self.follow(rule)

    def follow_aggregate(self, cls: Any) -> None:
        """Add the fields and methods of an aggregate class, recursively."""
        if cls in self.aggregates:
            return
        self.aggregates.add(cls)
        for part in sources(cls):
            if isinstance(part, str):
                self.keys.append(part)
            elif is_aggregate_class(part):
                self.follow_aggregate(part)
            else:
                self.follow(part)

    def visit_Name(self, node: ast.Name) -> Any:
        if not isinstance(node.ctx, ast.Load):
            self.locals.add(node.id)
            return None
        return self.lookup(node.id)

    def visit_Attribute(self, node: ast.Attribute) -> Any:
        owner = self.visit(node.value)
        while isinstance(owner, constexpr):
            owner = owner.value
        if not isinstance(owner, types.ModuleType) or _is_of_language(owner):
            return None
        value = getattr(owner, node.attr, None)
        if self.reference(value):
            self.record_object(node.attr, value, vars(owner))
        elif _is_constant(value) and _may_change(owner):
            self.record(node.attr, value, vars(owner))
        return value

    def visit_FunctionDef(self, node: ast.FunctionDef) -> Any:
        args = node.args
        every = [*args.posonlyargs, *args.args, *args.kwonlyargs, args.vararg]
        self.locals.update(a.arg for a in every if a is not None)
        for statement in node.body:  # defaults and annotations are not dependencies
            self.visit(statement)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> Any:
        if node.value is not None:
            self.visit(node.value)
        self.visit(node.target)

    def visit_Assign(self, node: ast.Assign) -> Any:
        self.visit(node.value)  # before its targets become local
        for target in node.targets:
            self.visit(target)

    def visit_comprehension(self, node: ast.comprehension) -> Any:
        self.visit(node.iter)
        self.visit(node.target)
        for condition in node.ifs:
            self.visit(condition)

    def visit_ListComp(self, node: ast.ListComp) -> Any:
        for generator in node.generators:
            self.visit(generator)
        self.visit(node.elt)


def dependencies(fn: Source) -> Dependencies:
    """The dependencies of a function.

    Raises:
        RuntimeError: it and a callee were compiled with different values of a global.
    """
    finder = _Finder(fn)
    finder.visit(fn.parse())
    values = dict(sorted(finder.used.items(), key=lambda item: item[0][0]))
    constants = [(name, repr(value)) for (name, _), (value, _) in values.items()]
    parts = [fn.src, *finder.keys, str(fn.starting_line_number), repr(constants)]
    return Dependencies(sha256("\0".join(parts).encode()).hexdigest(), values, finder.objects)
