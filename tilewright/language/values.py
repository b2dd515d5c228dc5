"""The values of expressions in kernels: tensors, compile-time values, tuples.

A `tensor` wraps a value of the IR. A `constexpr` wraps a Python value that is known at compile
time. A `tuple` contains any of these. Other values of names in a kernel (functions, modules,
dtypes) are not wrapped.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterator, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar, cast

from tilewright.base.codes import coded
from tilewright.ir.types import Scalar, Type, element_of, shape_of
from tilewright.language.types import composite_type, constexpr_type, tuple_type

if TYPE_CHECKING:
    from tilewright.ir.core import Value

Function = TypeVar("Function", bound=Callable[..., Any])

TRITON_BUILTIN = "__triton_builtin__"
NO_SEMANTIC = (
    "Did you forget to add @triton.jit ? (`_semantic` argument must be provided outside of JIT "
    "functions.)"
)


def builtin(fn: Function) -> Function:
    """Mark a primitive of the language, which is called with the build context ``_semantic=``.

    Without it, as on the host, a call raises ValueError.
    """

    @wraps(fn)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if kwargs.get("_semantic") is None:
            raise ValueError(NO_SEMANTIC)
        return fn(*args, **kwargs)

    setattr(wrapper, TRITON_BUILTIN, True)
    return cast("Function", wrapper)


def is_builtin(fn: Any) -> bool:
    """Whether this is a primitive of the language."""
    return getattr(fn, TRITON_BUILTIN, False)


def must_use_result(x: Any, s: Any = True) -> Any:
    """Make discarding the function's result a compile error: `x` is the function, or a string that
    the error appends, with which this is a decorator."""
    if not callable(x):
        return lambda fn: must_use_result(fn, x)
    setattr(x, "_must_use_result", s)  # noqa: B010
    return x


class base_value:
    """Base class of the values that exist only at compile time."""

    __slots__ = ()
    type: Any


class const:
    """Annotation of a pointer parameter through which the kernel must not store."""


def _plain(value: Any) -> Any:
    return value.value if isinstance(value, constexpr) else value


class constexpr(base_value):
    """A value known at compile time; also the annotation of a compile-time parameter.

    Operators follow Python and return constexprs. Nested constexprs are flattened.

        BLOCK = tl.constexpr(128)
    """

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value: Any = _plain(value)

    @property
    def type(self) -> constexpr_type:
        return constexpr_type(self.value)

    def __repr__(self) -> str:
        return f"constexpr[{self.value}]"

    def __hash__(self) -> int:
        return hash(self.value)

    def __index__(self) -> int:
        return self.value

    def __float__(self) -> float:
        return float(self.value)

    def __bool__(self) -> bool:
        return bool(self.value)

    def __len__(self) -> int:
        return len(self.value)

    def __iter__(self) -> Iterator[constexpr]:
        return iter([constexpr(v) for v in self.value])

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.value(*args, **kwargs)

    def __getitem__(self, index: Any) -> constexpr:
        if isinstance(index, slice):
            return constexpr(self.value[index.start : index.stop : index.step])
        return constexpr(self.value[_plain(index)])

    def __add__(self, other: Any) -> constexpr:
        return constexpr(self.value + _plain(other))

    def __radd__(self, other: Any) -> constexpr:
        return constexpr(_plain(other) + self.value)

    def __sub__(self, other: Any) -> constexpr:
        return constexpr(self.value - _plain(other))

    def __rsub__(self, other: Any) -> constexpr:
        return constexpr(_plain(other) - self.value)

    def __mul__(self, other: Any) -> constexpr:
        return constexpr(self.value * _plain(other))

    def __rmul__(self, other: Any) -> constexpr:
        return constexpr(_plain(other) * self.value)

    def __truediv__(self, other: Any) -> constexpr:
        return constexpr(self.value / _plain(other))

    def __rtruediv__(self, other: Any) -> constexpr:
        return constexpr(_plain(other) / self.value)

    def __floordiv__(self, other: Any) -> constexpr:
        return constexpr(self.value // _plain(other))

    def __rfloordiv__(self, other: Any) -> constexpr:
        return constexpr(_plain(other) // self.value)

    def __mod__(self, other: Any) -> constexpr:
        return constexpr(self.value % _plain(other))

    def __rmod__(self, other: Any) -> constexpr:
        return constexpr(_plain(other) % self.value)

    def __pow__(self, other: Any) -> constexpr:
        return constexpr(self.value ** _plain(other))

    def __rpow__(self, other: Any) -> constexpr:
        return constexpr(_plain(other) ** self.value)

    def __and__(self, other: Any) -> constexpr:
        return constexpr(self.value & _plain(other))

    def __or__(self, other: Any) -> constexpr:
        return constexpr(self.value | _plain(other))

    def __xor__(self, other: Any) -> constexpr:
        return constexpr(self.value ^ _plain(other))

    def __lshift__(self, other: Any) -> constexpr:
        return constexpr(self.value << _plain(other))

    def __rshift__(self, other: Any) -> constexpr:
        return constexpr(self.value >> _plain(other))

    def __rand__(self, other: Any) -> constexpr:
        return constexpr(_plain(other) & self.value)

    def __ror__(self, other: Any) -> constexpr:
        return constexpr(_plain(other) | self.value)

    def __rxor__(self, other: Any) -> constexpr:
        return constexpr(_plain(other) ^ self.value)

    def __rlshift__(self, other: Any) -> constexpr:
        return constexpr(_plain(other) << self.value)

    def __rrshift__(self, other: Any) -> constexpr:
        return constexpr(_plain(other) >> self.value)

    def __lt__(self, other: Any) -> constexpr:
        return constexpr(self.value < _plain(other))

    def __le__(self, other: Any) -> constexpr:
        return constexpr(self.value <= _plain(other))

    def __gt__(self, other: Any) -> constexpr:
        return constexpr(self.value > _plain(other))

    def __ge__(self, other: Any) -> constexpr:
        return constexpr(self.value >= _plain(other))

    def __eq__(self, other: object) -> constexpr:  # pyright: ignore[reportIncompatibleMethodOverride]
        return constexpr(self.value == _plain(other))

    def __ne__(self, other: object) -> constexpr:  # pyright: ignore[reportIncompatibleMethodOverride]
        return constexpr(self.value != _plain(other))

    def __neg__(self) -> constexpr:
        return constexpr(-self.value)

    def __pos__(self) -> constexpr:
        return constexpr(+self.value)

    def __invert__(self) -> constexpr:
        return constexpr(~self.value)

    def __not__(self) -> constexpr:
        return constexpr(not self.value)

    def logical_and(self, other: Any) -> constexpr:
        return constexpr(self.value and _plain(other))

    def logical_or(self, other: Any) -> constexpr:
        return constexpr(self.value or _plain(other))


class returned_number(constexpr):
    """A number that a function of a kernel has returned. It is a compile-time value wherever one is
    required; as an operand it has its own type, as the tensor in Triton does: an fp16 value plus a
    returned 0.5 is fp32, plus a 0.5 in the same function fp16."""

    __slots__ = ()


def as_returned(value: Any, make: Callable[[Any], Any] = returned_number) -> Any:
    """The result of a function, or of an operator on such results.

    Args:
        make: what a number becomes.
    """
    if isinstance(value, tuple):
        return tuple([as_returned(v, make) for v in value.values], value.fields, value.make)
    if isinstance(value, constexpr) and isinstance(value.value, bool | int | float):
        return make(value)
    return value


class composite(base_value):
    """Base class of values with parts, each of which is a language value.

    Attributes:
        type: a `composite_type`.
        values: the parts, in the order of `type.types`.
    """

    __slots__ = ("values",)
    values: list[Any]


Assembler = Callable[[Any, list[Any]], composite]
_ASSEMBLERS: dict[Any, Assembler] = {}


def assembles(type_: Any) -> Callable[[Assembler], Assembler]:
    """Register the function that constructs values of a class of composite types from their
    parts."""

    def register(make: Assembler) -> Assembler:
        _ASSEMBLERS[type_] = make
        return make

    return register


def assemble(type_: composite_type, parts: list[Any]) -> composite:
    """Construct a value of a composite type from its parts."""
    return _ASSEMBLERS[type(type_)](type_, parts)


class tuple(composite):
    """An immutable sequence of language values; a NamedTuple in a kernel keeps its field names."""

    __slots__ = ("fields", "make")

    def __init__(
        self, values: Sequence[Any], fields: Sequence[str] | None = None, make: Any = None
    ) -> None:
        self.values = [wrap(v) for v in values]
        self.fields = builtins.tuple(fields) if fields else None
        self.make = make

    @property
    def type(self) -> tuple_type:
        return tuple_type([type_of(v) for v in self.values], self.fields, self.make)

    def __getattr__(self, name: str) -> Any:
        if self.fields and name in self.fields:
            return self.values[self.fields.index(name)]
        raise AttributeError(f"'tuple' object has no attribute '{name}'")

    def __getitem__(self, index: Any) -> Any:
        index = _plain(index)
        if isinstance(index, slice):
            return tuple(self.values[index.start : index.stop : index.step])
        if isinstance(index, str) and self.fields and index in self.fields:
            return self.values[self.fields.index(index)]
        if not isinstance(index, int):
            raise coded(
                "needs-constant",
                TypeError(f"a tuple is indexed by a compile-time integer, not by {type_of(index)}"),
            )
        if not -len(self.values) <= index < len(self.values):
            message = f"the index {index} is out of range of a tuple of length {len(self.values)}"
            raise coded("tuple-index", IndexError(message))
        return self.values[index]

    def __len__(self) -> int:
        return len(self.values)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.values)

    def __add__(self, other: Any) -> tuple:
        return tuple([*self.values, *other])

    def __mul__(self, other: Any) -> tuple:
        return tuple(self.values * _plain(other))

    def __eq__(self, other: object) -> constexpr:  # pyright: ignore[reportIncompatibleMethodOverride]
        other = _plain(other)
        if not isinstance(other, tuple | builtins.tuple | list) or len(self) != len(other):
            return constexpr(False)
        pairs = zip(self.values, other, strict=True)
        return constexpr(all(a is b or _same(a, b) for a, b in pairs))

    def __ne__(self, other: object) -> constexpr:  # pyright: ignore[reportIncompatibleMethodOverride]
        return constexpr(not (self == other))

    def __hash__(self) -> int:
        return hash(builtins.tuple(self.values))

    def __repr__(self) -> str:
        return f"({', '.join(map(repr, self.values))})"


@assembles(tuple_type)
def _tuple_of(type: tuple_type, parts: list[Any]) -> tuple:
    return tuple(parts, type.fields, type.make)


def _same(a: Any, b: Any) -> bool:
    """Whether two elements are known to be equal; tensors are equal only if identical."""
    if isinstance(a, tensor) or isinstance(b, tensor):
        return isinstance(a, tensor) and isinstance(b, tensor) and a.handle is b.handle
    return bool(a == b)


class slice:
    """``lower:upper:step`` in a subscript; only the bare ``:`` may index a tensor."""

    __slots__ = ("start", "step", "stop")

    def __init__(self, start: Any = None, stop: Any = None, step: Any = None) -> None:
        self.start = _plain(start)
        self.stop = _plain(stop)
        self.step = _plain(step)

    @property
    def bare(self) -> bool:
        return self.start is None and self.stop is None and self.step is None

    def __repr__(self) -> str:
        if self.bare:
            return ":"
        return f"slice({self.start}, {self.stop}, {self.step})"


class tensor(base_value):
    """A run-time value: a scalar or a tile.

    Attributes:
        handle: the value in the IR.
        type: its full type: an element type, a pointer, or a tile of them.
        dtype: its element type.
        shape: its extents as a tuple of constexprs; empty for a scalar.
        numel: the number of elements, a constexpr.

    Operators and methods work inside kernels only.
    """

    __slots__ = ("handle", "type")
    # methods that are accessed as attributes, without a call
    properties = frozenset({"T"})

    def __init__(self, handle: Value, type: Type | None = None) -> None:
        self.handle = handle
        self.type: Type = handle.type if type is None else type

    @property
    def dtype(self) -> Scalar:
        return element_of(self.type)

    @property
    def shape(self) -> tuple:
        return tuple([constexpr(d) for d in shape_of(self.type)])

    @property
    def numel(self) -> constexpr:
        numel = 1
        for d in shape_of(self.type):
            numel *= d
        return constexpr(numel)

    if TYPE_CHECKING:
        # Installed by `core`, as primitives; declared here for type checkers.
        # fmt: off
        def __add__(self, other: Any) -> tensor: ...
        def __radd__(self, other: Any) -> tensor: ...
        def __sub__(self, other: Any) -> tensor: ...
        def __rsub__(self, other: Any) -> tensor: ...
        def __mul__(self, other: Any) -> tensor: ...
        def __rmul__(self, other: Any) -> tensor: ...
        def __truediv__(self, other: Any) -> tensor: ...
        def __rtruediv__(self, other: Any) -> tensor: ...
        def __floordiv__(self, other: Any) -> tensor: ...
        def __rfloordiv__(self, other: Any) -> tensor: ...
        def __mod__(self, other: Any) -> tensor: ...
        def __rmod__(self, other: Any) -> tensor: ...
        def __and__(self, other: Any) -> tensor: ...
        def __rand__(self, other: Any) -> tensor: ...
        def __or__(self, other: Any) -> tensor: ...
        def __ror__(self, other: Any) -> tensor: ...
        def __xor__(self, other: Any) -> tensor: ...
        def __rxor__(self, other: Any) -> tensor: ...
        def __lshift__(self, other: Any) -> tensor: ...
        def __rlshift__(self, other: Any) -> tensor: ...
        def __rshift__(self, other: Any) -> tensor: ...
        def __rrshift__(self, other: Any) -> tensor: ...
        def __lt__(self, other: Any) -> tensor: ...
        def __le__(self, other: Any) -> tensor: ...
        def __gt__(self, other: Any) -> tensor: ...
        def __ge__(self, other: Any) -> tensor: ...
        def __eq__(self, other: object) -> tensor: ...  # pyright: ignore[reportIncompatibleMethodOverride]
        def __ne__(self, other: object) -> tensor: ...  # pyright: ignore[reportIncompatibleMethodOverride]
        def __neg__(self) -> tensor: ...
        def __invert__(self) -> tensor: ...
        def __getitem__(self, index: Any) -> tensor: ...
        def __getattr__(self, name: str) -> Any: ...
        # fmt: on

    def __hash__(self) -> int:
        return id(self)

    def __bool__(self) -> bool:
        raise TypeError(
            "the value of a tensor is not known at compile time, so it can't be a Python bool"
        )

    def __iter__(self) -> Iterator[Any]:
        raise coded("iterated-tensor", TypeError("a tensor can't be iterated over"))

    def __str__(self) -> str:
        if not shape_of(self.type):
            return f"{self.dtype}[]"
        return f"{self.dtype}[{', '.join(map(str, shape_of(self.type)))}]"

    __repr__ = __str__


def tensor_method(fn: Function, name: str | None = None) -> Function:
    """Also install a primitive as a method of `tensor`."""
    setattr(tensor, name or fn.__name__, fn)
    return fn


def unwrap(value: Any) -> Any:
    """The Python value of a constexpr; tuples become Python tuples; other values are unchanged."""
    if isinstance(value, constexpr):
        return value.value
    if isinstance(value, tuple):
        values = [unwrap(v) for v in value.values]
        return value.make(*values) if value.make is not None else builtins.tuple(values)
    return value


def unwrap_shape(shape: Any) -> builtins.tuple[Any, ...]:
    """A shape, given as a list, a tuple or a constexpr of one, as a tuple of Python values."""
    shape = _plain(shape)
    if isinstance(shape, int):
        shape = (shape,)
    if not isinstance(shape, tuple | builtins.tuple | list):
        shown = type_of(shape) if isinstance(shape, base_value) else repr(shape)
        raise coded(
            "needs-constant",
            TypeError(f"expected a compile-time integer or a tuple of them, got {shown}"),
        )
    sizes = [_plain(d) for d in shape]
    return builtins.tuple(int(d) if isinstance(d, bool) else d for d in sizes)


def wrap(value: Any) -> Any:
    """The language value of a Python value: numbers, strings and None become constexprs."""
    if isinstance(value, base_value):
        return value
    if value is None or isinstance(value, bool | int | float | str):
        return constexpr(value)
    if isinstance(value, builtins.tuple):
        fields = getattr(value, "_fields", None)
        return tuple(value, fields, type(value) if fields else None)
    if isinstance(value, list):
        return tuple(value)
    return value


def is_constant(value: Any) -> bool:
    """Whether the value, with all parts, is known at compile time."""
    if isinstance(value, composite):
        return all(is_constant(v) for v in value.values)
    return not isinstance(value, tensor)


def type_of(value: Any) -> Any:
    """The type of a language value; a `constexpr_type` for values without a type of their own."""
    if isinstance(value, tensor | composite):
        return value.type
    return constexpr_type(_plain(value))


def flatten(value: Any, into: list[Value]) -> list[Value]:
    """Append the IR values of a language value, in order, to `into`."""
    if isinstance(value, tensor):
        into.append(value.handle)
    elif isinstance(value, composite):
        for v in value.values:
            flatten(v, into)
    return into


def flat_types(type: Any) -> list[Type]:
    """The types of the IR values of a value of this type, in the order of `flatten`."""
    if isinstance(type, constexpr_type):
        return []
    if isinstance(type, composite_type):
        return [t for nested in type.types for t in flat_types(nested)]
    return [type]


def unflatten(type: Any, handles: Iterator[Value]) -> Any:
    """Reconstruct a language value of this type from the next IR values: the inverse of
    `flatten`."""
    if isinstance(type, constexpr_type):
        return wrap(type.value)
    if isinstance(type, composite_type):
        return assemble(type, [unflatten(t, handles) for t in type.types])
    return tensor(next(handles), type)
