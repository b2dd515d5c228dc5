"""Aggregates: classes with named fields whose instances exist in kernels.

    @tilewright.aggregate
    class Range:
        start: tl.tensor
        count: tl.constexpr

        @tilewright.jit
        def offsets(self):
            return self.start + tl.arange(0, self.count)

A field holds a language value of the annotated class. Instances exist only at compile time, and are
immutable after construction. They are composite values whose parts are the fields, so they can be
loop-carried, merged after an ``if``, passed to functions and returned.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MethodType
from typing import Any

from tilewright.base.codes import coded
from tilewright.language.types import composite_type
from tilewright.language.values import (
    TRITON_BUILTIN,
    assembles,
    base_value,
    composite,
    constexpr,
    type_of,
    wrap,
)

_UNSET: Any = object()
_PARTS: Any = vars(composite)["values"]  # accessible even if a field is named `values`
# Members that every class has, which are not copied when it is recreated.
_OWN = frozenset({"__dict__", "__weakref__"})


class aggregate_type(composite_type):
    """The type of an aggregate: its class, and the types of its fields."""

    __slots__ = ("cls",)
    decays = False

    def __init__(self, cls: Any, types: Sequence[Any]) -> None:
        self.cls = cls
        self.types = tuple(types)

    def with_types(self, types: Sequence[Any]) -> aggregate_type:
        return aggregate_type(self.cls, types)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, aggregate_type)
            and self.cls is other.cls
            and self.types == other.types
        )

    def __hash__(self) -> int:
        return hash((self.cls, self.types))

    def __str__(self) -> str:
        pairs = zip(self.cls.aggregate_fields, self.types, strict=True)
        return f"{self.cls.__name__}<{', '.join(f'{name}={t}' for name, t in pairs)}>"

    __repr__ = __str__

    def mangle(self) -> str:
        return f"{self.cls.__name__}_{'_'.join(t.mangle() for t in self.types)}_"


class _Method:
    """A descriptor that binds a function of the kernel language to the instance, as Python does for
    plain functions."""

    __slots__ = ("fn",)

    def __init__(self, fn: Any) -> None:
        self.fn = fn

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self.fn if instance is None else MethodType(self.fn, instance)


class _AggregateClass(type):
    """The metaclass of aggregates: calling a class creates an instance, and requires that its
    ``__init__`` assigns all fields."""

    def __call__(
        cls, *args: Any, _semantic: Any = None, _generator: Any = None, **kwargs: Any
    ) -> Any:
        instance = new_instance(cls, [_UNSET] * len(cls.aggregate_fields))
        init = inspect.getattr_static(cls, "__init__")
        kwargs |= hidden_arguments(init, _semantic=_semantic, _generator=_generator)
        instance.__init__(*args, **kwargs)
        for name, value in zip(cls.aggregate_fields, instance.parts, strict=True):
            if value is _UNSET:
                raise AttributeError(
                    f"constructor for {cls.__name__} did not initialize attribute '{name}'"
                )
        object.__setattr__(instance, "complete", True)
        return instance

    aggregate_fields: Mapping[str, type]
    aggregate_defaults: Mapping[str, Any]


class aggregate_value(composite, metaclass=_AggregateClass):
    """Base class of all aggregates.

    Class attributes:
        aggregate_fields: field name -> class, in order; those of base classes first.
        aggregate_defaults: field name -> default value.
    """

    __slots__ = ("complete",)
    aggregate_fields: Mapping[str, type] = {}
    aggregate_defaults: Mapping[str, Any] = {}

    @property
    def type(self) -> aggregate_type:
        return aggregate_type(type(self), [type_of(v) for v in self.parts])

    @property
    def parts(self) -> list[Any]:
        """The values of the fields, in order; unlike `values`, never shadowed by a field."""
        return _PARTS.__get__(self)

    def __getattr__(self, name: str) -> Any:
        if name in self.aggregate_fields:
            return self.field(name)
        raise AttributeError(f"{type(self).__name__} has no attribute '{name}'")

    def field(self, name: str) -> Any:
        """The value of a field, also of one with the name of a member of this class."""
        value = self.parts[list(self.aggregate_fields).index(name)]
        if value is _UNSET:
            raise AttributeError(f"attribute '{name}' of {type(self).__name__} is not set yet")
        return value

    def __setattr__(self, name: str, value: Any) -> None:
        owner = type(self)
        if name not in owner.aggregate_fields:
            raise AttributeError(f"{owner.__name__} has no attribute '{name}'")
        if self.complete:
            raise AttributeError(
                f"cannot assign to field '{name}' on immutable aggregate {owner.__name__}; use "
                "aggregate_replace() to make a copy with other values"
            )
        self.parts[list(owner.aggregate_fields).index(name)] = _checked(owner, name, value)

    def __repr__(self) -> str:
        pairs = zip(self.aggregate_fields, self.parts, strict=True)
        return f"{type(self).__name__}({', '.join(f'{name}={v!r}' for name, v in pairs)})"


def new_instance(cls: Any, parts: list[Any], complete: bool = False) -> Any:
    """An instance of an aggregate class, created without calling its ``__init__``."""
    instance = object.__new__(cls)
    object.__setattr__(instance, "complete", complete)
    _PARTS.__set__(instance, parts)
    return instance


@assembles(aggregate_type)
def _aggregate_of(type: aggregate_type, parts: list[Any]) -> Any:
    return new_instance(type.cls, parts, complete=True)


def _checked(owner: Any, name: str, value: Any) -> Any:
    """The value, converted to a language value.

    Raises:
        TypeError: it is not an instance of the field's class.
    """
    expected = owner.aggregate_fields[name]
    value = wrap(value)
    if expected is constexpr and not isinstance(value, base_value):
        value = constexpr(value)  # a dtype or a function
    if not isinstance(value, expected):
        error = TypeError(f"Expected {expected} for attribute '{name}', got {type(value)}")
        raise coded("needs-constant", error) if expected is constexpr else error
    return value


def hidden_arguments(function: Any, **arguments: Any) -> dict[str, Any]:
    """The arguments for which the function has parameters."""
    while hasattr(function, "fn"):  # unwrap functions of the kernel language
        function = function.fn
    accepted = inspect.signature(function).parameters
    return {name: value for name, value in arguments.items() if name in accepted}


# -- class creation --------------------------------------------------------------------------------


def aggregate(cls: Any) -> Any:
    """Class decorator: make instances of a class with annotated fields usable in kernels.

    Each annotation is a class of the language: `tl.tensor`, `tl.constexpr`, `tl.tuple`,
    `tl.tensor_descriptor` or another aggregate. A class without an ``__init__`` gets one that takes
    the fields in order; a value assigned in the class body is the default. Methods are functions of
    the kernel language (`jit`, `constexpr_function`, primitives); special methods such as
    ``__add__`` and ``__radd__`` define the operators of instances.

    Raises:
        TypeError: a base class is not an aggregate, or an annotation is not a class.
        ValueError: ``__init__`` is a jit function.
    """
    for base in cls.__bases__:
        if base is not object and not isinstance(base, _AggregateClass):
            raise TypeError(
                "Aggregates can only inherit from other aggregates, but got non-aggregate base: "
                f"{base.__name__}"
            )
    init = vars(cls).get("__init__")
    if hasattr(init, "noinline"):
        raise ValueError(f"{cls.__name__}.__init__ cannot be a @triton.jit function")
    caller = getattr(inspect.currentframe(), "f_back", None)
    own = _annotations(cls, caller.f_locals if caller is not None else {})
    result = cls if isinstance(cls, _AggregateClass) else _with_base(cls)
    fields = {**_inherited(result, "aggregate_fields"), **own}
    defaults: dict[str, Any] = {}
    for name, member in list(vars(cls).items()):
        if name in fields:
            defaults[name] = _default(member)
            delattr(result, name)
        elif _is_jit(member):
            setattr(result, name, _Method(member))
        elif isinstance(member, staticmethod) and inspect.isfunction(member.__func__):
            setattr(member.__func__, "_is_of_aggregate", True)  # noqa: B010
    result.aggregate_fields = fields
    result.aggregate_defaults = {**_inherited(result, "aggregate_defaults"), **defaults}
    if init is None and (own or defaults or result.__init__ is object.__init__):
        result.__init__ = _generated_init(result)
    return result


def _with_base(cls: Any) -> Any:
    """The class recreated with the base class of all aggregates."""
    namespace = {k: v for k, v in vars(cls).items() if k not in _OWN}
    return _AggregateClass(cls.__name__, (aggregate_value,), namespace)


def _default(value: Any) -> Any:
    value = wrap(value)
    return value if isinstance(value, base_value) else constexpr(value)


def _inherited(cls: Any, name: str) -> dict[str, Any]:
    """The merged fields or defaults of the base classes; earlier base classes take precedence."""
    return {k: v for base in reversed(cls.__bases__) for k, v in getattr(base, name).items()}


def _is_jit(value: Any) -> bool:
    return hasattr(type(value), "cache_key")


def _annotations(cls: Any, scope: Mapping[str, Any]) -> dict[str, type]:
    """The fields that the class itself declares, with their classes."""
    module = vars(sys.modules[cls.__module__]) if cls.__module__ in sys.modules else {}
    result = inspect.get_annotations(cls, globals=module, locals=dict(scope), eval_str=True)
    for name, annotation in result.items():
        if not isinstance(annotation, type):
            raise TypeError(
                f"field {name} of aggregate {cls.__name__} is annotated {annotation!r}; expected a "
                "class of the language, such as tl.tensor or tl.constexpr"
            )
    return result


def _generated_init(cls: Any) -> Callable[..., None]:
    """An initializer that takes the fields in order."""

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        for name, value in _bound(cls, args, kwargs):
            setattr(self, name, value)

    __init__.__qualname__ = f"{cls.__qualname__}.__init__"
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    shown = [inspect.Parameter(name, kind) for name in ("self", *cls.aggregate_fields)]
    __init__.__signature__ = inspect.Signature(shown)
    return __init__


def _bound(cls: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Bind the arguments of a call to the fields: each field with its value.

    Raises:
        TypeError: the arguments do not match the fields.
    """
    what, names = f"{cls.__name__}.__init__()", list(cls.aggregate_fields)
    if len(args) > len(names):
        raise coded(
            "arguments",
            TypeError(f"{what} takes {len(names)} positional arguments but {len(args)} were given"),
        )
    for name in kwargs:
        if name not in names:
            raise coded(
                "arguments", TypeError(f"{what} got an unexpected keyword argument '{name}'")
            )
    for i, name in enumerate(names):
        if i < len(args):
            if name in kwargs:
                raise coded(
                    "arguments", TypeError(f"{what} got multiple values for argument '{name}'")
                )
            yield name, args[i]
        elif name in kwargs:
            yield name, kwargs[name]
        elif name in cls.aggregate_defaults:
            yield name, cls.aggregate_defaults[name]
        else:
            raise coded("arguments", TypeError(f"{what} missing required argument: '{name}'"))


def aggregate_replace(instance: Any, *, _semantic: Any = None, **changes: Any) -> Any:
    """A copy of an aggregate in which some fields have other values.

        wider = tl.aggregate_replace(tile, start=tile.start + 128)

    Raises:
        TypeError: `instance` is not an aggregate, it has no such field, or a value has the wrong
            class.
    """
    if not isinstance(instance, aggregate_value):
        raise TypeError(
            f"aggregate_replace() expects an aggregate instance, got {type(instance).__name__}"
        )
    owner, parts = type(instance), list(instance.parts)
    names = list(owner.aggregate_fields)
    for name, value in changes.items():
        if name not in names:
            raise TypeError(f"{owner.__name__} has no field '{name}'")
        parts[names.index(name)] = _checked(owner, name, value)
    return new_instance(owner, parts, complete=True)


# A primitive that can also be called on the host: unlike `builtin`, it does not need `_semantic`.
setattr(aggregate_replace, TRITON_BUILTIN, True)


def is_aggregate_class(value: Any) -> bool:
    """Whether this is a class created by `aggregate`."""
    return isinstance(value, _AggregateClass)


def method(value: Any, name: str) -> Any:
    """The method of this name of an aggregate, if its class or a base class defines it; else
    None."""
    if isinstance(value, aggregate_value):
        for cls in type(value).__mro__:
            if cls is aggregate_value:
                break
            if name in vars(cls):
                return getattr(value, name)
    return None


def sources(cls: Any) -> Iterator[Any]:
    """The dependencies of an aggregate class, for the cache key of its users: source texts,
    functions of the kernel language, and other aggregate classes."""
    yield f"{cls.__module__}.{cls.__qualname__} {cls.aggregate_defaults}"
    for name, field in cls.aggregate_fields.items():
        yield f"{name}: {field.__module__}.{field.__qualname__}"
        if is_aggregate_class(field):
            yield field
    for base in cls.__mro__[: cls.__mro__.index(aggregate_value)]:
        for name, member in vars(base).items():
            found = _function_of(member)
            if _is_jit(found):
                yield found
            elif inspect.isfunction(found):
                yield _text(name, found)


def is_static_method(fn: Any) -> bool:
    """Whether this is a plain static method of an aggregate, which kernels call on compile-time
    values."""
    return getattr(fn, "_is_of_aggregate", False)


def _function_of(member: Any) -> Any:
    if isinstance(member, _Method):
        return member.fn
    if isinstance(member, property):
        return member.fget
    return getattr(member, "__func__", member)  # of a static or class method


def _text(name: str, function: Any) -> str:
    try:
        return inspect.getsource(function)
    except (OSError, TypeError):
        return f"{name} {function.__code__.co_code!r} {function.__code__.co_consts!r}"
