"""Aggregates: classes of which a kernel makes values, of named fields.

    @tilewright.aggregate
    class Range:
        start: tl.tensor
        count: tl.constexpr

        @tilewright.jit
        def offsets(self):
            return self.start + tl.arange(0, self.count)

A field holds a language value of the class that its annotation names. An instance exists while a
kernel is compiled only, and does not change once it is made. It is a composite value, whose parts
are its fields: so it may be loop-carried, joined after an ``if``, given to functions and returned.
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
_PARTS: Any = vars(composite)["values"]  # also reached where a field is called `values`
# What a class has of itself, which is not copied when it is made anew.
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
    """A function of the kernel language in a class: bound to the instance through which it is read,
    which such functions by themselves are not.
    """

    __slots__ = ("fn",)

    def __init__(self, fn: Any) -> None:
        self.fn = fn

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self.fn if instance is None else MethodType(self.fn, instance)


class _AggregateClass(type):
    """The class of aggregate classes: calling one makes an instance with all its fields."""

    def __call__(
        cls, *args: Any, _semantic: Any = None, _generator: Any = None, **kwargs: Any
    ) -> Any:
        made = new_instance(cls, [_UNSET] * len(cls.aggregate_fields))
        init = inspect.getattr_static(cls, "__init__")
        kwargs |= hidden_arguments(init, _semantic=_semantic, _generator=_generator)
        made.__init__(*args, **kwargs)
        for name, value in zip(cls.aggregate_fields, made.parts, strict=True):
            if value is _UNSET:
                raise AttributeError(
                    f"constructor for {cls.__name__} did not initialize attribute '{name}'"
                )
        object.__setattr__(made, "complete", True)
        return made

    aggregate_fields: Mapping[str, type]
    aggregate_defaults: Mapping[str, Any]


class aggregate_value(composite, metaclass=_AggregateClass):
    """Base of all aggregates.

    Class attributes:
        aggregate_fields: name -> class of the field, in order; those of base classes first.
        aggregate_defaults: name -> value.
    """

    __slots__ = ("complete",)
    aggregate_fields: Mapping[str, type] = {}
    aggregate_defaults: Mapping[str, Any] = {}

    @property
    def type(self) -> aggregate_type:
        return aggregate_type(type(self), [type_of(v) for v in self.parts])

    @property
    def parts(self) -> list[Any]:
        """The values of the fields; `values`, whatever the fields are called."""
        return _PARTS.__get__(self)

    def __getattr__(self, name: str) -> Any:
        if name in self.aggregate_fields:
            return self.field(name)
        raise AttributeError(f"{type(self).__name__} has no attribute '{name}'")

    def field(self, name: str) -> Any:
        """The value of a field, also of one that is called like a member of this class."""
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
    """An instance of an aggregate class without a call of its ``__init__``."""
    made = object.__new__(cls)
    object.__setattr__(made, "complete", complete)
    _PARTS.__set__(made, parts)
    return made


@assembles(aggregate_type)
def _aggregate_of(type: aggregate_type, parts: list[Any]) -> Any:
    return new_instance(type.cls, parts, complete=True)


def _checked(owner: Any, name: str, value: Any) -> Any:
    """The value as the field holds it.

    Raises:
        TypeError: it is of another class than the field's annotation says.
    """
    wanted = owner.aggregate_fields[name]
    value = wrap(value)
    if wanted is constexpr and not isinstance(value, base_value):
        value = constexpr(value)  # a dtype or a function
    if not isinstance(value, wanted):
        error = TypeError(f"Expected {wanted} for attribute '{name}', got {type(value)}")
        raise coded("needs-constant", error) if wanted is constexpr else error
    return value


def hidden_arguments(function: Any, **given: Any) -> dict[str, Any]:
    """Those of the arguments that a function has parameters for."""
    while hasattr(function, "fn"):  # of a function of the kernel language, the Python function
        function = function.fn
    accepted = inspect.signature(function).parameters
    return {name: value for name, value in given.items() if name in accepted}


# -- making a class --------------------------------------------------------------------------------


def aggregate(cls: Any) -> Any:
    """Make a class with annotated fields one of whose instances kernels hold.

    Each annotation is a class of the language: `tl.tensor`, `tl.constexpr`, `tl.tuple`,
    `tl.tensor_descriptor` or another aggregate. Without an ``__init__`` one is made that takes the
    fields in order; a value given in the class is a field's default. Methods are functions of the
    kernel language (`jit`, `constexpr_function`, primitives); those with the names of Python's
    operators, such as ``__add__`` and ``__radd__``, are the operators of the instances.

    Raises:
        TypeError: a base class is no aggregate; an annotation is no class.
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
    made = cls if isinstance(cls, _AggregateClass) else _with_base(cls)
    fields = {**_inherited(made, "aggregate_fields"), **own}
    defaults: dict[str, Any] = {}
    for name, member in list(vars(cls).items()):
        if name in fields:
            defaults[name] = _default(member)
            delattr(made, name)
        elif _is_jit(member):
            setattr(made, name, _Method(member))
    made.aggregate_fields = fields
    made.aggregate_defaults = {**_inherited(made, "aggregate_defaults"), **defaults}
    if init is None and (own or defaults or made.__init__ is object.__init__):
        made.__init__ = _generated_init(made)
    return made


def _with_base(cls: Any) -> Any:
    """The class made anew, with the base of all aggregates."""
    namespace = {k: v for k, v in vars(cls).items() if k not in _OWN}
    return _AggregateClass(cls.__name__, (aggregate_value,), namespace)


def _default(value: Any) -> Any:
    value = wrap(value)
    return value if isinstance(value, base_value) else constexpr(value)


def _inherited(cls: Any, name: str) -> dict[str, Any]:
    """The fields or defaults of the base classes; the first of them has the last word."""
    return {k: v for base in reversed(cls.__bases__) for k, v in getattr(base, name).items()}


def _is_jit(value: Any) -> bool:
    return hasattr(type(value), "cache_key")


def _annotations(cls: Any, scope: Mapping[str, Any]) -> dict[str, type]:
    """The fields that the class itself declares, with their classes."""
    module = vars(sys.modules[cls.__module__]) if cls.__module__ in sys.modules else {}
    found = inspect.get_annotations(cls, globals=module, locals=dict(scope), eval_str=True)
    for name, annotation in found.items():
        if not isinstance(annotation, type):
            raise TypeError(
                f"field {name} of aggregate {cls.__name__} is annotated {annotation!r}; expected a "
                "class of the language, such as tl.tensor or tl.constexpr"
            )
    return found


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
    """Each field with the value that a call gives it.

    Raises:
        TypeError: the arguments don't fit the fields.
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
        TypeError: it is no aggregate, it has no such field, or a value is of another class.
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


# A primitive that the host may call too: the front end gives it language values as they are.
setattr(aggregate_replace, TRITON_BUILTIN, True)


def is_aggregate_class(value: Any) -> bool:
    """Whether this is a class that `aggregate` made."""
    return isinstance(value, _AggregateClass)


def method(value: Any, name: str) -> Any:
    """The method of this name that an aggregate's class, or a base of it, defines; else None."""
    if isinstance(value, aggregate_value):
        for cls in type(value).__mro__:
            if cls is aggregate_value:
                break
            if name in vars(cls):
                return getattr(value, name)
    return None


def sources(cls: Any) -> Iterator[Any]:
    """What an aggregate class is made of, for a key of what uses it: texts, functions of the kernel
    language, and other aggregate classes.
    """
    yield f"{cls.__module__}.{cls.__qualname__} {cls.aggregate_defaults}"
    for name, wanted in cls.aggregate_fields.items():
        yield f"{name}: {wanted.__module__}.{wanted.__qualname__}"
        if is_aggregate_class(wanted):
            yield wanted
    for base in cls.__mro__[: cls.__mro__.index(aggregate_value)]:
        for name, member in vars(base).items():
            found = _function_of(member)
            if _is_jit(found):
                yield found
            elif inspect.isfunction(found):
                yield _text(name, found)


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
