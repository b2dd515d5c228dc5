"""Binds the arguments of a launch and says which variant of the kernel they need.

Each argument gets a *spec*, the pair (type string, key):

    None                             ("constexpr", None)
    bool                             ("u1", None)
    int 1                            ("constexpr", 1)
    other int                        ("i32" | "i64" | "u64", "D" if divisible by 16 else "")
    float                            ("fp32", None)
    tensor                           ("*fp32", "D" if its address is divisible by 16 else "")
    tensor descriptor                ("tensordesc<fp32[16, 32]>", "D" or "" of base and extents)
    tuple                            (the type strings, the keys)
    JIT function, constexpr, dtype   ("constexpr", a key that stands for its value)

`do_not_specialize` keeps an int's value and an address out of the key, and
`do_not_specialize_on_alignment` only what divides it. A parameter that is `constexpr` by its
declaration has no spec: its part of the key stands for its value.

The binder of a kernel is a Python function made for it, with the kernel's own signature, so that
binding costs no loop over parameters and a wrong call raises Python's own TypeError.
"""

from __future__ import annotations

import keyword
from collections.abc import Callable, Sequence
from inspect import Parameter, Signature
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

from tilewright.ir.types import scalar_type
from tilewright.runtime.descriptors import (
    DESCRIPTORS,
    check_descriptor,
    descriptor_type,
    is_descriptor,
    parts_of,
)
from tilewright.runtime.tensors import CPU, READERS, SHORT, alias_classes, find_reader

Spec: TypeAlias = tuple[Any, Any]
"""(type string, key); tuples of them for a tuple. See the module's text."""

NOT_CONSTEXPR: Final = object()
"""What a `ConstexprHook` gives for an object that is no compile-time value."""

ConstexprHook: TypeAlias = Callable[[object], object]
"""Gives a hashable key for a compile-time object (a JIT function, a constexpr, a dtype), else
`NOT_CONSTEXPR`. The front end's classes are above this layer, so it is handed in."""


def no_constexprs(value: object) -> object:
    """The hook that knows no compile-time objects."""
    return NOT_CONSTEXPR


class KernelParam(Protocol):
    """What the binder needs to know of a kernel's parameter.

    `annotation_type` is the type string that an annotation forces, ``""`` for none.
    """

    @property
    def name(self) -> str: ...
    @property
    def is_constexpr(self) -> bool: ...
    @property
    def is_const(self) -> bool: ...
    @property
    def annotation_type(self) -> str: ...
    @property
    def do_not_specialize(self) -> bool: ...
    @property
    def do_not_specialize_on_alignment(self) -> bool: ...


class Key(NamedTuple):
    """What the variant of a kernel depends on. The binder gives a plain tuple with these fields.

    devices: names of the devices that the tensors are on, joined by "+" in the order met; ""
        without tensors.
    aliases: a class for each tensor, in argument order, descriptors and tensors inside tuples
        included; equal for those that may overlap; () when none do.
    read_only: numbers, in the same order, of the tensors that must not be stored to.
    specs: for each parameter its spec, or the key of its value when it is constexpr.
    """

    devices: str
    aliases: tuple[int, ...]
    read_only: tuple[int, ...]
    specs: tuple[Any, ...]


class Bound(NamedTuple):
    """Result of a binder; it is a plain tuple with these fields.

    values: the value of every parameter, defaults included, in order.
    slots: the same with each tensor replaced by its address, and a descriptor by
        (address, *shape, *strides): what a launcher writes into argument slots.
    key: see `Key`; hashable, equal exactly when the same variant will do.
    options: keyword arguments that are no parameters.
    """

    values: tuple[Any, ...]
    slots: tuple[Any, ...]
    key: Key
    options: dict[str, Any]


Binder: TypeAlias = Callable[..., tuple[Any, ...]]

INT32_MIN, INT32_MAX = -(1 << 31), (1 << 31) - 1
INT64_MIN, INT64_MAX = -(1 << 63), (1 << 63) - 1
UINT64_MAX = (1 << 64) - 1

_NONE: Spec = ("constexpr", None)
_ONE: Spec = ("constexpr", 1)
_BOOL: Spec = ("u1", None)
_FLOAT: Spec = ("fp32", None)
_INTS: dict[str, tuple[Spec, Spec]] = {t: ((t, ""), (t, "D")) for t in ("i32", "i64", "u64")}
_POINTERS: dict[str, tuple[Spec, Spec]] = {
    prefix + t: ((prefix + t, ""), (prefix + t, "D")) for prefix in ("*", "*k") for t in SHORT
}


class Mode(NamedTuple):
    """How one parameter is specialised."""

    const: bool = False
    by_value: bool = True
    by_alignment: bool = True


def mode_of(param: KernelParam) -> Mode:
    """How a parameter is specialised."""
    by_value = not param.do_not_specialize
    by_alignment = by_value and not param.do_not_specialize_on_alignment
    return Mode(param.is_const, by_value, by_alignment)


def int_spec(value: int, mode: Mode = Mode()) -> Spec:  # noqa: B008 (an immutable tuple)
    """The spec of an int.

    Raises:
        OverflowError: it fits neither int64 nor uint64.
    """
    if value == 1 and mode.by_value:
        return _ONE
    if INT32_MIN <= value <= INT32_MAX:
        name = "i32"
    elif INT64_MIN <= value <= INT64_MAX:
        name = "i64"
    elif 0 <= value <= UINT64_MAX:
        name = "u64"
    else:
        raise OverflowError("integer to be specialized too large to represent")
    return _INTS[name][mode.by_alignment and value % 16 == 0]


class _Tensors:
    """Collects what a launch's tensors have in common."""

    __slots__ = ("devices", "extents", "read_only")

    def __init__(self) -> None:
        self.devices = ""
        self.extents: list[tuple[int, int]] = []
        self.read_only: tuple[int, ...] = ()


def join_devices(devices: str, device: str) -> str:
    """The devices met so far, and one more; "" is none."""
    if not devices or not device:
        return devices or device
    return devices if device in devices.split("+") else f"{devices}+{device}"


class _Slow:
    """Specialises what the generated code does not know at a glance."""

    def __init__(self, hook: ConstexprHook) -> None:
        self.hook = hook

    def argument(self, value: Any, mode: Mode, tensors: _Tensors) -> tuple[Any, Spec]:
        """(slot, spec) of any argument; the order of the tests is part of the language."""
        if value is None:
            return None, _NONE
        kind = type(value)
        if kind is bool:
            return value, _BOOL
        if kind is int:
            return value, int_spec(value, mode)
        if kind is float:
            return value, _FLOAT
        if kind not in READERS:
            key = self.hook(value)
            if key is not NOT_CONSTEXPR:
                return value, ("constexpr", key if key is value else self.constexpr(key))
            if isinstance(value, tuple):
                return self._tuple(value, mode, tensors)
            if is_descriptor(value):
                return self._descriptor(value, mode, tensors)
        if find_reader(value) is not None:
            return self._tensor(value, mode, tensors)
        if isinstance(value, int):
            return int(value), int_spec(int(value), mode)
        if isinstance(value, float):
            return float(value), _FLOAT
        raise TypeError(f"failed to specialize argument of type: {kind.__name__}")

    def _tensor(self, value: Any, mode: Mode, tensors: _Tensors) -> tuple[int, Spec]:
        reader = find_reader(value)
        assert reader is not None
        address, element, device, low, high, writable = reader(value)
        tensors.devices = join_devices(tensors.devices, device)
        if not writable:
            tensors.read_only += (len(tensors.extents),)
        tensors.extents.append((low, high))
        pair = _POINTERS[("*k" if mode.const else "*") + element]
        return address, pair[mode.by_alignment and address % 16 == 0]

    def _tuple(self, value: Any, mode: Mode, tensors: _Tensors) -> tuple[Any, Spec]:
        leaf = Mode(mode.const)  # leaves are always specialised
        pairs = [self.argument(item, leaf, tensors) for item in value]
        types = tuple(spec[0] for _, spec in pairs)
        keys = tuple(spec[1] for _, spec in pairs)
        fields = getattr(value, "_fields", None)
        if fields is not None:  # the kernel may use the fields' names
            named = type(value)
            types, keys = named(*types), _NamedKeys(named, keys)
        return tuple(slot for slot, _ in pairs), (types, keys)

    def _descriptor(self, value: Any, mode: Mode, tensors: _Tensors) -> tuple[Any, Spec]:
        DESCRIPTORS[type(value)] = None
        address, (pointer, key) = self._tensor(value.base, mode, tensors)
        element = pointer.lstrip("*k")
        check_descriptor(value, address, scalar_type(element).nbytes_in_memory)
        slots = (address, *parts_of(value)[1:])
        extents = slots[1 : 1 + len(value.shape)]
        keys = (key, *("D" if mode.by_alignment and n % 16 == 0 else "" for n in extents))
        return slots, (descriptor_type(value, element), keys)

    def constexpr(self, value: Any) -> object:
        """A hashable key that is equal only for values that compile to the same code.

        ``1 == 1.0 == True`` and ``0.0 == -0.0`` for Python, but not for a kernel.
        """
        kind = type(value)
        if kind is int or kind is str or value is None:
            return value
        if kind is float:
            return kind, value.hex()
        if isinstance(value, (tuple, list)):
            return kind, tuple(self.constexpr(item) for item in value)
        key = self.hook(value)
        if key is value:  # it stands for itself, as element types do
            return "constexpr", value
        if key is not NOT_CONSTEXPR:
            return "constexpr", self.constexpr(key)
        try:
            hash(value)
        except TypeError:
            return kind, repr(value)
        return kind, value

    def forced(self, name: str, annotation: str, spec: Spec, value: Any) -> Spec:
        """The spec of a parameter whose annotation says its type.

        Raises:
            TypeError: a tensor for a scalar or the reverse.
            OverflowError: an int that the annotated type does not hold.
        """
        kind = spec[0]
        if kind == "constexpr" and not isinstance(value, int):
            return spec
        is_pointer = isinstance(kind, str) and kind.startswith("*")
        has_parts = not isinstance(kind, str) or kind.startswith("tensordesc")
        if is_pointer != annotation.startswith("*") or has_parts:
            raise TypeError(
                f"argument '{name}' is annotated as {annotation}, which a "
                f"{type(value).__name__} cannot be"
            )
        if is_pointer:
            return annotation, spec[1]
        if annotation in ("u1", "i1") or annotation.startswith(("fp", "bf")):
            return annotation, None
        if isinstance(value, float):
            raise TypeError(f"argument '{name}' is annotated as {annotation}, not a float")
        bits, signed = int(annotation[1:]), annotation[0] == "i"
        low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
        if not low <= value <= high:
            raise OverflowError(
                f"argument '{name}' is annotated as {annotation}, which does not hold {value}"
            )
        if kind == "constexpr":
            return spec
        return annotation, spec[1] or ""


def spec_of(value: Any, mode: Mode, hook: ConstexprHook) -> Spec:
    """The spec of an argument of any kind; see the module's text.

    Raises:
        TypeError: kernels do not take such an argument.
    """
    return _Slow(hook).argument(value, mode, _Tensors())[1]


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


# --------------------------------------------------------------------------------------------
# The generated function
# --------------------------------------------------------------------------------------------

# In the templates, {v} is the parameter and {i} its number. All other names begin with _tw, which
# keeps them apart from a kernel's parameters.
_TENSOR = """\
    _twr = _tw_readers(_tw_type({v}))
    if _twr is not None:
        _tws{i}, _twe, _twd, _twl, _twh, _tww = _twr({v})
        _twk{i} = {pointer}
        if _twd is not _tw_devices:
            _tw_devices = _tw_join(_tw_devices, _twd)
        if not _tww:
            _tw_read_only += (_tw_len(_tw_extents),)
        _tw_extents.append((_twl, _twh))
"""
_SCALAR = """\
    elif _tw_type({v}) is _tw_int:
        _tws{i} = {v}
        {int_key}
    elif _tw_type({v}) is _tw_float:
        _tws{i} = {v}
        _twk{i} = _tw_FLOAT
"""
_OTHER = """\
    else:
        _tws{i}, _twk{i}, _tw_devices, _tw_read_only = _tw_other(
            {v}, _twm{i}, _tw_devices, _tw_extents, _tw_read_only)
"""
_CONSTEXPR = """\
    _tws{i} = {v}
    _twk{i} = {v} if _tw_type({v}) is _tw_int else _tw_constexpr({v})
"""
_ALIGNED_POINTER = "_twp{i}[_twe][not _tws{i} & 15]"
_PLAIN_POINTER = "_twp{i}[_twe][0]"


def _int_key(mode: Mode) -> str:
    """The source that sets an int's spec."""
    small = "_tw_I32[not {v} & 15]" if mode.by_alignment else "_tw_I32[0]"
    key = f"{small} if -2147483648 <= {{v}} <= 2147483647 else _tw_int_spec({{v}}, _twm{{i}})"
    if mode.by_value:
        key = f"_tw_ONE if {{v}} == 1 else ({key})"
    return f"_twk{{i}} = {key}"


def _statements(index: int, param: KernelParam) -> str:
    if param.is_constexpr:
        return _CONSTEXPR.format(v=param.name, i=index)
    mode = mode_of(param)
    pointer = _ALIGNED_POINTER if mode.by_alignment else _PLAIN_POINTER
    fill = {"v": param.name, "i": index}
    text = _TENSOR.format(**fill, pointer=pointer.format(**fill))
    text += _SCALAR.format(**fill, int_key=_int_key(mode).format(**fill))
    text += _OTHER.format(**fill)
    if param.annotation_type:
        forced = "_tw_forced({v!r}, {a!r}, _twk{i}, {v})".format(a=param.annotation_type, **fill)
        text += f"    _twk{index} = {forced}\n"
    return text


_MARKS = {Parameter.VAR_POSITIONAL: "*"}


def _parameter_list(signature: Signature) -> str:
    """The kernel's own parameters as source; defaults by reference, options last."""
    parts: list[str] = []
    starred = False
    parameters = list(signature.parameters.values())
    for number, parameter in enumerate(parameters):
        if parameter.kind is Parameter.KEYWORD_ONLY and not starred:
            parts.append("*")
            starred = True
        starred |= parameter.kind is Parameter.VAR_POSITIONAL
        text = _MARKS.get(parameter.kind, "") + parameter.name
        if parameter.default is not Parameter.empty:
            text += f"=_tw_default{number}"
        parts.append(text)
        following = parameters[number + 1] if number + 1 < len(parameters) else None
        if parameter.kind is Parameter.POSITIONAL_ONLY and (
            following is None or following.kind is not Parameter.POSITIONAL_ONLY
        ):
            parts.append("/")
    return ", ".join([*parts, "**_tw_options"])


def binder_source(name: str, signature: Signature, params: Sequence[KernelParam]) -> str:
    """The source of a kernel's binder, for whoever wants to read it."""
    if any(p.kind is Parameter.VAR_KEYWORD for p in signature.parameters.values()):
        raise TypeError("JIT functions do not support **kw parameters")
    every = range(len(params))
    runtime = [i for i in every if not params[i].is_constexpr]
    lines = [f"def {name}({_parameter_list(signature)}):\n"]
    if runtime:
        lines.append("    _tw_devices = ''; _tw_extents = []; _tw_read_only = ()\n")
    lines += [_statements(i, param) for i, param in enumerate(params)]
    specs = "".join(f"_twk{i}, " for i in every)
    slots = "".join(f"_tws{i}, " for i in every)
    values = "".join(f"{param.name}, " for param in params)
    common = "'', (), ()"
    if runtime:
        lines.append("    _twa = _tw_alias(_tw_extents, _tw_devices) if _tw_extents else ()\n")
        common = "_tw_devices, _twa, _tw_read_only"
    lines.append(f"    return ({values}), ({slots}), ({common}, ({specs})), _tw_options\n")
    return "".join(lines)


def _aliases(extents: list[tuple[int, int]], devices: str) -> tuple[int, ...]:
    # Elsewhere extents are not read: that would cost more than the rest of the launch.
    return alias_classes(extents) if devices == CPU else (0,) * len(extents)


def make_binder(
    name: str,
    signature: Signature,
    params: Sequence[KernelParam],
    constexpr_hook: ConstexprHook = no_constexprs,
) -> Binder:
    """A function with the kernel's own signature, plus ``**options``, that gives a `Bound`.

    Args:
        name: the kernel's, as it is to appear in Python's messages about a wrong call.
        signature: of the kernel.
        params: one for each parameter of the signature, in its order.
        constexpr_hook: recognises the front end's compile-time objects.

    Raises:
        TypeError: the signature has ``**kwargs``; from the binder: a missing or duplicate
            argument, or one of a type that kernels do not take.
        OverflowError: from the binder: an int beyond 64 bits.

    Example:
        bind = make_binder("add", inspect.signature(add), params)
        values, slots, key, options = bind(x, y, n, BLOCK=128, num_warps=8)
    """
    if not name.isidentifier() or keyword.iskeyword(name):
        name = "kernel"
    slow = _Slow(constexpr_hook)

    def other(
        value: Any, mode: Mode, devices: str, extents: list[Any], read_only: tuple[int, ...]
    ) -> tuple[Any, Spec, str, tuple[int, ...]]:
        tensors = _Tensors()
        tensors.devices, tensors.extents, tensors.read_only = devices, extents, read_only
        slot, spec = slow.argument(value, mode, tensors)
        return slot, spec, tensors.devices, tensors.read_only

    names: dict[str, Any] = {
        "_tw_type": type,
        "_tw_int": int,
        "_tw_float": float,
        "_tw_len": len,
        "_tw_readers": READERS.get,
        "_tw_join": join_devices,
        "_tw_alias": _aliases,
        "_tw_other": other,
        "_tw_constexpr": slow.constexpr,
        "_tw_forced": slow.forced,
        "_tw_int_spec": int_spec,
        "_tw_I32": _INTS["i32"],
        "_tw_ONE": _ONE,
        "_tw_FLOAT": _FLOAT,
    }
    for i, parameter in enumerate(signature.parameters.values()):
        names[f"_tw_default{i}"] = parameter.default
    for i, param in enumerate(params):
        names[f"_twm{i}"] = mode_of(param)
        prefix = "*k" if param.is_const else "*"
        names[f"_twp{i}"] = {short: _POINTERS[prefix + short] for short in SHORT}
    exec(compile(binder_source(name, signature, params), f"<binder of {name}>", "exec"), names)
    return names[name]


__all__ = [
    "NOT_CONSTEXPR",
    "Binder",
    "Bound",
    "ConstexprHook",
    "KernelParam",
    "Key",
    "Mode",
    "Spec",
    "binder_source",
    "int_spec",
    "join_devices",
    "make_binder",
    "mode_of",
    "no_constexprs",
]
