"""The table of the kinds of arguments that launches accept.

A row defines how an argument is recognised, which annotated parameters accept it, and the facts by
which variants of the kernel are specialised. Both launch paths are derived from the
table: the binder in Python (`specialize.py`) looks arguments up in it, and native code (`native/`)
is generated from it. A kind that differs from another only in where its number is stored is that
row with a few fields replaced:

    register(INT._replace(name="ticks", types=(Ticks,), attribute="count", facts=(DIVISIBLE,)))

Launches then accept objects of class `Ticks`, and pass their `count`, on both paths.

Each argument has a *spec*, the pair (type string, key); see `specialize.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np

from tilewright.frontend.constant_key import COMPILE_TIME, constant_key
from tilewright.ir.types import scalar_type
from tilewright.runtime.descriptors import (
    DESCRIPTORS,
    check_descriptor,
    descriptor_type,
    is_descriptor,
    parts_of,
)
from tilewright.runtime.tensors import CPU, READERS, SHORT, UNKNOWN, find_reader

Spec: TypeAlias = tuple[Any, Any]
"""(type string, key); tuples of them for a tuple."""


class Mode(NamedTuple):
    """The facts that a parameter is specialised for: const pointers, the value 1, alignment."""

    const: bool = False
    by_value: bool = True
    by_alignment: bool = True


# -- facts that variants are specialised for ------------------------------------------------------


class Fact(NamedTuple):
    """A property of a number that variants are specialised for: ``number & mask == value``.

    by: the field of `Mode` that enables specialisation for it.
    bit: represents it in a word of a native key.
    key: represents it in a spec, a letter; "" if the number becomes a constant of the kernel.
    attribute: the attribute of the argument that states it in tile IR, and its value.
    feature: only code for targets with this feature depends on it; "" for no such condition.
    """

    by: str
    mask: int
    value: int
    bit: int
    key: str
    attribute: tuple[str, int] = ("", 0)
    feature: str = ""

    def holds(self, number: int) -> bool:
        """Whether it is true for a number."""
        return number & self.mask == self.value

    def source(self, number: str) -> str:
        """`holds` as a Python expression."""
        masked = number if self.mask == -1 else f"{number} & {self.mask}"
        return f"{masked} == {self.value}" if self.value else f"not {masked}"


DIVISIBLE: Final = Fact("by_alignment", 15, 0, 1 << 16, "D", ("tt.divisibility", 16))
"""The number, or address, is divisible by 16."""

HALF_DIVISIBLE: Final = Fact("by_alignment", 15, 8, 1 << 21, "8", ("tt.divisibility", 8))
"""The number is divisible by 8, but not by 16. GPU kernels are specialised for it where it makes an
access wider (`compiler/alignment.py`), and no others."""

TWICE_DIVISIBLE: Final = Fact(
    "by_alignment", 31, 0, 1 << 22, "W", ("tt.divisibility", 32), "wide_access"
)
"""The address, which is not the CPU's, is divisible by 32. Kernels are specialised for it where it
makes an access wider, and no others."""

IN_RANGE: Final = Fact("by_value", -(1 << 31), 0, 1 << 23, "S", ("tt.pointer_range", 32), "buffers")
"""The memory that the tensor shares with others, which is not the CPU's, has less than 2 GiB."""

POINTER_FACTS: Final = (DIVISIBLE, TWICE_DIVISIBLE, IN_RANGE)
"""What tensors are specialised for, in the order of their keys."""

ONE: Final = Fact("by_value", -1, 1, 1 << 20, "")
"""The number is 1, as strides often are, and becomes a constant of the kernel."""

INT_FACTS: Final = (ONE, DIVISIBLE, HALF_DIVISIBLE)
"""What ints are specialised for."""


class IntType(NamedTuple):
    """An integer type and its range."""

    name: str
    low: int
    high: int


INT_TYPES: Final = (
    IntType("i32", -(1 << 31), (1 << 31) - 1),
    IntType("i64", -(1 << 63), (1 << 63) - 1),
    IntType("u64", 0, (1 << 64) - 1),
)
"""An int has the first of these types that can represent it."""


def category(annotation: str) -> str:
    """The category of an annotated type, for `Kind.annotated`: ``"pointer"``, ``"bool"``,
    ``"float"``, ``"narrow"`` for floats below fp32, or ``"int"``."""
    if annotation.startswith("*"):
        return "pointer"
    if annotation in ("u1", "i1"):
        return "bool"
    if annotation.startswith(("fp", "bf")):
        return "float" if annotation in ("fp32", "fp64") else "narrow"
    return "int"


def int_range(annotation: str) -> tuple[int, int]:
    """The minimum and maximum of an annotated integer type, such as ``"u8"``."""
    bits, signed = int(annotation[1:]), annotation[0] == "i"
    return (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)


# -- binding in Python ----------------------------------------------------------------------------


class Arguments:
    """Binds arguments of a call, and collects devices, extents and read-only flags of its tensors.

    Attributes:
        devices, extents, read_only: as in `specialize.Key`, extents in place of aliases.
    """

    __slots__ = ("devices", "extents", "read_only")

    def __init__(self) -> None:
        self.devices = ""
        self.extents: list[tuple[int, int]] = []
        self.read_only: tuple[int, ...] = ()

    def bind(self, value: Any, mode: Mode) -> tuple[Any, Spec]:
        """The slot and spec of any argument.

        The order is part of the language: exact types first, then compile-time objects, then the
        protocols in the order of the table.

        Raises:
            TypeError: kernels do not accept such an argument.
        """
        kind = BY_TYPE.get(type(value)) or (FOREIGN if type(value) in READERS else None)
        if kind is None and isinstance(value, COMPILE_TIME):
            return value, ("constexpr", constant_key(value))
        kind = kind or next((k for k in KINDS if k.matches and k.matches(value)), None)
        if kind is None:
            raise TypeError(f"failed to specialize argument of type: {type(value).__name__}")
        return kind.bind(self, kind, value, mode)

    def bind_tensor(self, value: Any, mode: Mode) -> tuple[int, Spec]:
        """The address and spec of a tensor."""
        reader = find_reader(value)
        assert reader is not None
        address, element, device, low, high, writable = reader(value)
        self.devices = join_devices(self.devices, device)
        if not writable:
            self.read_only += (len(self.extents),)
        self.extents.append((low, high))
        specs = POINTERS[("*k" if mode.const else "*") + element]
        return address, specs[pointer_facts(mode, device, address, low, high)]


def pointer_facts(mode: Mode, device: str, address: int, low: int, high: int) -> int:
    """The facts of a tensor, by a bit for each of `POINTER_FACTS`.

    Only few arrays of the CPU would have the same facts in all launches, and its kernels do not
    gain from any but the first.
    """
    found = mode.by_alignment and DIVISIBLE.holds(address)
    if device == CPU:
        return int(found)
    wider = mode.by_alignment and TWICE_DIVISIBLE.holds(address)
    in_range = mode.by_value and low != UNKNOWN and IN_RANGE.holds(high - low)
    return found | wider << 1 | in_range << 2


def join_devices(devices: str, device: str) -> str:
    """Add a device to the devices so far; "" for none."""
    if not devices or not device:
        return devices or device
    return devices if device in devices.split("+") else f"{devices}+{device}"


_POINTER_KEYS = [
    "".join(fact.key for i, fact in enumerate(POINTER_FACTS) if facts >> i & 1)
    for facts in range(1 << len(POINTER_FACTS))
]

POINTERS: Final[dict[str, tuple[Spec, ...]]] = {
    prefix + t: tuple((prefix + t, key) for key in _POINTER_KEYS)
    for prefix in ("*", "*k")
    for t in SHORT
}
"""Specs of tensors by type string, then by the number that `pointer_facts` returns."""


def int_spec(value: int, mode: Mode, facts: tuple[Fact, ...] = INT_FACTS) -> Spec:
    """The spec of an int.

    Raises:
        OverflowError: no type can represent it.
    """
    key = ""
    for fact in facts:
        if getattr(mode, fact.by) and fact.holds(value):
            if not fact.key:
                return "constexpr", value
            key += fact.key
    for name, low, high in INT_TYPES:
        if low <= value <= high:
            return name, key
    raise OverflowError("integer to be specialized too large to represent")


def _bind_int(arguments: Arguments, kind: Kind, value: Any, mode: Mode) -> tuple[Any, Spec]:
    number = int(getattr(value, kind.attribute) if kind.attribute else value)
    return number, int_spec(number, mode, kind.facts)


def _bind_float(arguments: Arguments, kind: Kind, value: Any, mode: Mode) -> tuple[Any, Spec]:
    return float(getattr(value, kind.attribute) if kind.attribute else value), ("fp32", None)


def _bind_bool(arguments: Arguments, kind: Kind, value: Any, mode: Mode) -> tuple[Any, Spec]:
    return value, ("u1", None)


def _bind_none(arguments: Arguments, kind: Kind, value: Any, mode: Mode) -> tuple[Any, Spec]:
    return None, ("constexpr", None)


def _bind_tensor(arguments: Arguments, kind: Kind, value: Any, mode: Mode) -> tuple[Any, Spec]:
    return arguments.bind_tensor(value, mode)


def _bind_tuple(arguments: Arguments, kind: Kind, value: Any, mode: Mode) -> tuple[Any, Spec]:
    leaf = Mode(mode.const)  # leaves are always specialised
    pairs = [arguments.bind(item, leaf) for item in value]
    types = tuple(spec[0] for _, spec in pairs)
    keys = tuple(spec[1] for _, spec in pairs)
    fields = getattr(value, "_fields", None)
    if fields is not None:  # the kernel may use the fields' names
        named = type(value)
        types, keys = named(*types), _NamedKeys(named, keys)
    return tuple(slot for slot, _ in pairs), (types, keys)


def _bind_descriptor(arguments: Arguments, kind: Kind, value: Any, mode: Mode) -> tuple[Any, Spec]:
    DESCRIPTORS[type(value)] = None
    address, (pointer, key) = arguments.bind_tensor(value.base, mode)
    element = pointer.lstrip("*k")
    check_descriptor(value, address, scalar_type(element).nbytes_in_memory)
    slots = (address, *parts_of(value)[1:])
    extents = slots[1 : 1 + len(value.shape)]
    facts = [mode.by_alignment and DIVISIBLE.holds(n) for n in extents]
    keys = (key, *(DIVISIBLE.key if fact else "" for fact in facts))
    return slots, (descriptor_type(value, element), keys)


class _NamedKeys(tuple[Any, ...]):
    """Keys of a NamedTuple's fields: equal only for the same NamedTuple class."""

    named: type

    def __new__(cls, named: type, keys: tuple[Any, ...]) -> _NamedKeys:
        self = super().__new__(cls, keys)
        self.named = named
        return self

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, _NamedKeys)
            and self.named is other.named
            and tuple.__eq__(self, other)
        )

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash((self.named, tuple(self)))


def without(fact: Fact, spec: Spec) -> Spec:
    """The spec of an argument of which a fact is not known."""
    type, key = spec
    if isinstance(type, tuple):
        types: tuple[Any, ...] = type
        pairs = [without(fact, pair) for pair in zip(types, key, strict=True)]
        keys = tuple(pair[1] for pair in pairs)
        return type, _NamedKeys(key.named, keys) if isinstance(key, _NamedKeys) else keys
    is_key = type != "constexpr" and isinstance(key, str)
    return type, key.replace(fact.key, "") if is_key else key


def attributes_of(key: Any) -> list[list[Any]]:
    """The attributes of an argument whose spec has this key, as [name, value] pairs; the strictest
    value of each."""
    facts = (*POINTER_FACTS, HALF_DIVISIBLE)
    known = dict(f.attribute for f in facts if isinstance(key, str) and f.key in key)
    return [list(pair) for pair in known.items()]


# -- the table ------------------------------------------------------------------------------------


class Kind(NamedTuple):
    """A row of the table.

    name: its name, for comments in the generated code.
    bind: returns the slot and spec of a value, in Python.
    read: the name under which the native equivalent is registered (`native/read.py: reads`).
    types: exact types of its values; ``"torch:Tensor"`` for a class of a module that this package
        does not import.
    base: a class whose subclasses are recognised as well; only `tuple` is supported.
    met: a dictionary whose keys are the types that `matches` has recognised so far, which native
        code may accept from then on.
    matches: whether a value of a type that is in no row is of this kind.
    annotated: the categories of annotated parameters that native code accepts its values for, in
        addition to parameters without annotation. Other cases are left to Python.
    attribute: the attribute that contains the number of an int or float kind; "" for the value
        itself.
    facts: what an int is specialised for.
    """

    name: str
    bind: Callable[[Arguments, Kind, Any, Mode], tuple[Any, Spec]]
    read: str
    types: tuple[type | str, ...] = ()
    base: type | None = None
    met: Mapping[type, Any] | None = None
    matches: Callable[[Any], bool] | None = None
    annotated: frozenset[str] = frozenset()
    attribute: str = ""
    facts: tuple[Fact, ...] = ()


_POINTER = frozenset(["pointer"])

TUPLE = Kind(
    "tuple",
    _bind_tuple,
    "tuple",
    base=tuple,
    matches=lambda value: isinstance(value, tuple),
)
DESCRIPTOR = Kind(
    "descriptor",
    _bind_descriptor,
    "descriptor",
    met=DESCRIPTORS,
    matches=is_descriptor,
)
ARRAY = Kind(
    "array",
    _bind_tensor,
    "array",
    types=(np.ndarray,),
    annotated=_POINTER,
)
TORCH = Kind(
    "torch",
    _bind_tensor,
    "torch",
    types=("torch:Tensor", "torch.nn:Parameter"),
    annotated=_POINTER,
)
FOREIGN = Kind(
    "foreign tensor",
    _bind_tensor,
    "foreign",
    met=READERS,
    matches=lambda value: find_reader(value) is not None,
    annotated=_POINTER,
)
INT = Kind(
    "int",
    _bind_int,
    "int",
    types=(int,),
    matches=lambda value: isinstance(value, int),
    annotated=frozenset(["int"]),
    facts=INT_FACTS,
)
FLOAT = Kind(
    "float",
    _bind_float,
    "float",
    types=(float, np.float64),
    matches=lambda value: isinstance(value, float),
    annotated=frozenset(["float"]),
)
BOOL = Kind("bool", _bind_bool, "bool", types=(bool,), annotated=frozenset(["bool"]))
NONE = Kind(
    "None",
    _bind_none,
    "None",
    types=(type(None),),
    annotated=frozenset(["pointer", "bool", "float", "narrow", "int"]),
)

BUILT_IN: Final = (TUPLE, DESCRIPTOR, ARRAY, TORCH, FOREIGN, INT, FLOAT, BOOL, NONE)
KINDS: list[Kind] = [*BUILT_IN]
"""The table, in the order in which protocols are tested."""

BY_TYPE: dict[type, Kind] = {}
"""Rows by the exact types of their values."""


MAX_KINDS: Final = 24
"""The capacity of the native tables, for rows and for exact types."""


def register(kind: Kind) -> None:
    """Add a row. After the first launch in the process, only the Python path uses it.

    Raises:
        ValueError: the table is full.
    """
    types = sum(len(k.types) for k in (*KINDS, kind))
    if len(KINDS) >= MAX_KINDS or types > MAX_KINDS:
        raise ValueError(f"no room for {kind.name}: there are {MAX_KINDS} kinds or types")
    KINDS.append(kind)
    BY_TYPE.update({type: kind for type in kind.types if not isinstance(type, str)})


for _kind in KINDS:
    BY_TYPE.update({_type: _kind for _type in _kind.types if not isinstance(_type, str)})
