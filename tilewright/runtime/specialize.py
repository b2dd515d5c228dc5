"""Binds the arguments of a launch, and determines the variant of the kernel for them.

Each argument has a *spec*, the pair (type string, key):

    None                             ("constexpr", None)
    bool                             ("u1", None)
    int 1                            ("constexpr", 1)
    other int                        ("i32" | "i64" | "u64", "D" if divisible by 16, "8" if by 8
                                     only, else "")
    float                            ("fp32", None)
    tensor                           ("*fp32", "D" if its address is divisible by 16, and, off the
                                     CPU, "W" if by 32, "S" if its memory has less than 2 GiB)
    tensor descriptor                ("tensordesc<fp32[16, 32]>", keys of base and extents)
    tuple                            (the type strings, the keys)
    JIT function, constexpr, dtype   ("constexpr", a key that identifies its value)

With `do_not_specialize` neither the value 1 nor divisibility enter the key, and with
`do_not_specialize_on_alignment` divisibility does not. A parameter declared as `constexpr` has no
spec: its part of the key identifies its value.

The binder of a kernel is a generated Python function with the kernel's own signature, so that
binding takes no loop over parameters, and an invalid call raises Python's own TypeError.
"""

from __future__ import annotations

import keyword
from collections.abc import Callable, Sequence
from inspect import Parameter, Signature
from typing import Any, NamedTuple, Protocol, TypeAlias

from tilewright.frontend.constant_key import constant_key
from tilewright.runtime.kinds import (
    DIVISIBLE,
    HALF_DIVISIBLE,
    INT_TYPES,
    ONE,
    POINTERS,
    Arguments,
    Mode,
    Spec,
    category,
    int_range,
    int_spec,
    join_devices,
    pointer_facts,
)
from tilewright.runtime.tensors import CPU, READERS, SHORT, alias_classes


class KernelParam(Protocol):
    """The properties of a kernel's parameter that the binder depends on.

    `annotation_type` is the type string of its annotation, ``""`` for none.
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
    """The key of a variant. The binder returns a plain tuple with these fields.

    devices: names of the tensors' devices, joined by "+" in order of first occurrence; "" without
        tensors.
    aliases: an alias class for each tensor, in argument order, including tensors in descriptors and
        tuples; equal for tensors that may overlap; () if none do.
    read_only: indices, in the same order, of the tensors that must not be stored to.
    specs: for each parameter its spec, or the key of its value if it is constexpr.
    """

    devices: str
    aliases: tuple[int, ...]
    read_only: tuple[int, ...]
    specs: tuple[Any, ...]


class Bound(NamedTuple):
    """The result of a binder, a plain tuple with these fields.

    values: the value of every parameter, defaults included, in order.
    slots: the values to write to argument slots: tensors are replaced by their addresses, and
        descriptors by (address, *shape, *strides).
    key: see `Key`; hashable, equal if and only if the variant is the same.
    options: keyword arguments that are not parameters.
    """

    values: tuple[Any, ...]
    slots: tuple[Any, ...]
    key: Key
    options: dict[str, Any]


Binder: TypeAlias = Callable[..., tuple[Any, ...]]


def mode_of(param: KernelParam) -> Mode:
    """The facts for which a parameter is specialised."""
    by_value = not param.do_not_specialize
    by_alignment = by_value and not param.do_not_specialize_on_alignment
    return Mode(param.is_const, by_value, by_alignment)


def forced(name: str, annotation: str, spec: Spec, value: Any, slot: Any) -> Spec:
    """The spec of an argument for a parameter with an annotated type.

    Args:
        spec, slot: the spec and slot of the argument, `value`, regardless of the annotation.

    Raises:
        TypeError: a tensor is passed for a scalar, or vice versa.
        OverflowError: an int is out of the range of the annotated type.
    """
    kind = spec[0]
    if kind == "constexpr" and not isinstance(value, int):
        return spec
    is_pointer = isinstance(kind, str) and kind.startswith("*")
    has_parts = not isinstance(kind, str) or kind.startswith("tensordesc")
    annotated = category(annotation)
    if is_pointer != (annotated == "pointer") or has_parts:
        raise TypeError(
            f"argument '{name}' is annotated as {annotation}, which a "
            f"{type(value).__name__} cannot be"
        )
    if is_pointer:
        return annotation, spec[1]
    if annotated != "int":
        return annotation, None
    if isinstance(slot, float):
        raise TypeError(f"argument '{name}' is annotated as {annotation}, not a float")
    low, high = int_range(annotation)
    if not low <= slot <= high:
        raise OverflowError(
            f"argument '{name}' is annotated as {annotation}, which does not hold {value}"
        )
    if kind == "constexpr":
        return spec
    return annotation, spec[1] or ""


def spec_of(value: Any, mode: Mode) -> Spec:
    """The spec of an argument of any kind; see the module's docstring.

    Raises:
        TypeError: kernels do not accept such an argument.
    """
    return Arguments().bind(value, mode)[1]


# --------------------------------------------------------------------------------------------
# The generated function
# --------------------------------------------------------------------------------------------

# In the templates, {v} is the parameter and {i} its index. All other names begin with _tw, to avoid
# conflicts with the kernel's parameters.
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
_POINTER = (
    "_twp{i}[_twe][{cpu} if _twd is _tw_CPU else "
    "_tw_pointer_facts(_twm{i}, _twd, _tws{i}, _twl, _twh)]"
)


def _int_key(mode: Mode) -> str:
    """The source of the statement that sets an int's spec."""
    _, low, high = INT_TYPES[0]
    small = "_tw_small[{}]".format("{v} & 15" if mode.by_alignment else 1)
    key = f"{small} if {low} <= {{v}} <= {high} else _tw_int_spec({{v}}, _twm{{i}})"
    if mode.by_value:
        key = f"_tw_ONE if {ONE.source('{v}')} else ({key})"
    return f"_twk{{i}} = {key}"


def _statements(index: int, param: KernelParam) -> str:
    if param.is_constexpr:
        return _CONSTEXPR.format(v=param.name, i=index)
    mode = mode_of(param)
    cpu = DIVISIBLE.source(f"_tws{index}") if mode.by_alignment else 0
    fill = {"v": param.name, "i": index}
    text = _TENSOR.format(**fill, pointer=_POINTER.format(**fill, cpu=cpu))
    text += _SCALAR.format(**fill, int_key=_int_key(mode).format(**fill))
    text += _OTHER.format(**fill)
    if param.annotation_type:
        forced = "_tw_forced({v!r}, {a!r}, _twk{i}, {v}, _tws{i})".format(
            a=param.annotation_type, **fill
        )
        text += f"    _twk{index} = {forced}\n"
    return text


_SMALL = [
    (INT_TYPES[0].name, "".join(fact.key for fact in (DIVISIBLE, HALF_DIVISIBLE) if fact.holds(n)))
    for n in range(16)
]
"""Specs of ints of the smallest type, by the remainder of the division by 16."""
_MARKS = {Parameter.VAR_POSITIONAL: "*"}


def _parameter_list(signature: Signature) -> str:
    """The source of the kernel's parameter list, with defaults by reference and ``**options``."""
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
    """The source of a kernel's binder, which `make_binder` compiles.

    Raises:
        TypeError: the kernel takes further named arguments (``**kwargs``).
    """
    for parameter in signature.parameters.values():
        if parameter.kind is Parameter.VAR_KEYWORD:
            raise TypeError(
                f"{name} cannot be launched, only called by kernels: further named arguments of a "
                f"launch are options, not **{parameter.name}"
            )
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
    # Mock tensors have no memory; they are assumed not to overlap.
    return alias_classes(extents) if devices else ()


def _bind_other(
    value: Any, mode: Mode, devices: str, extents: list[Any], read_only: tuple[int, ...]
) -> tuple[Any, Spec, str, tuple[int, ...]]:
    arguments = Arguments()
    arguments.devices, arguments.extents, arguments.read_only = devices, extents, read_only
    slot, spec = arguments.bind(value, mode)
    return slot, spec, arguments.devices, arguments.read_only


def _binder_names(signature: Signature, params: Sequence[KernelParam]) -> dict[str, Any]:
    """The global names of a binder."""
    names: dict[str, Any] = {
        "_tw_type": type,
        "_tw_int": int,
        "_tw_float": float,
        "_tw_len": len,
        "_tw_readers": READERS.get,
        "_tw_join": join_devices,
        "_tw_alias": _aliases,
        "_tw_CPU": CPU,
        "_tw_pointer_facts": pointer_facts,
        "_tw_other": _bind_other,
        "_tw_constexpr": constant_key,
        "_tw_forced": forced,
        "_tw_int_spec": int_spec,
        "_tw_small": _SMALL,
        "_tw_ONE": ("constexpr", 1),
        "_tw_FLOAT": ("fp32", None),
    }
    for i, parameter in enumerate(signature.parameters.values()):
        names[f"_tw_default{i}"] = parameter.default
    for i, param in enumerate(params):
        names[f"_twm{i}"] = mode_of(param)
        prefix = "*k" if param.is_const else "*"
        names[f"_twp{i}"] = {short: POINTERS[prefix + short] for short in SHORT}
    return names


def make_binder(
    name: str,
    signature: Signature,
    params: Sequence[KernelParam],
) -> Binder:
    """Generate a function with the kernel's own signature, plus ``**options``, that returns the
    fields of `Bound`.

    Args:
        name: the kernel's name, for Python's messages about invalid calls.
        signature: the kernel's signature.
        params: one for each parameter of the signature, in order.

    Raises:
        TypeError: the signature has ``**kwargs``. By the binder: a missing or duplicate argument,
            or one of an unsupported type.
        OverflowError: by the binder: an int exceeds 64 bits.

    Example:
        bind = make_binder("add", inspect.signature(add), params)
        values, slots, key, options = bind(x, y, n, BLOCK=128, num_warps=8)
    """
    if not name.isidentifier() or keyword.iskeyword(name):
        name = "kernel"

    names = _binder_names(signature, params)
    exec(compile(binder_source(name, signature, params), f"<binder of {name}>", "exec"), names)
    return names[name]
