"""The native launcher of one kernel: its structure State and its cache of compiled variants.

    launcher = make_launcher(kernel, fallback)      # None if native launches are not supported
    launcher.bind(grid)(*args, **kwargs)

The first launch of a variant takes the slow path, which compiles it. Afterwards the native code
calls `_adopt` with the key (a bytes object of words), which stores the variant's `Record`. Later
launches with the same key run in native code only.

The launched object may be a kernel in one or more wrappers. Each wrapper is a `Stage`: an autotuner
adds the keywords of a configuration, cached by the key up to that point; heuristics add results of
functions, which are called on each launch.

Invariant: native code reads structures without locks, in any thread that holds the GIL. Whatever
an address in a structure refers to is kept alive until the address has been replaced.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial
from inspect import Parameter, Signature
from itertools import count
from types import CodeType
from typing import Any, NamedTuple, Protocol, TypeAlias

from tilewright.compiler.artifact import CompiledKernel
from tilewright.compiler.source import runtime_arguments
from tilewright.frontend.dependencies import Recorded
from tilewright.ir.types import DType, Pointer, Tile
from tilewright.language.values import constexpr
from tilewright.runtime.config import Config
from tilewright.runtime.kinds import category, int_range
from tilewright.runtime.native import layout
from tilewright.runtime.native.guard_tables import WatchedName, fill_guards
from tilewright.runtime.native.layout import (
    FIELDS,
    INT64_MAX,
    INT64_MIN,
    MAX_PARAMS,
    MAX_SLOTS,
    WORD,
)
from tilewright.runtime.native.names_read import names_read
from tilewright.runtime.native.runtime import Runtime, runtime
from tilewright.runtime.native.structure import Structure
from tilewright.runtime.specialize import KernelParam, mode_of

MAX_ENTRIES = 4096
"""The most keys of a kernel; the cache is cleared when it is full. Keys may contain addresses of
temporary objects, so their number is not bounded by that of the variants."""

MAX_CODES = 64
"""The most grid functions of a kernel that are analysed; later ones get all arguments."""

RESERVED = -1
"""Marks keywords in State.keywords that are parameters of `run` rather than of the kernel."""

_RUN_KEYWORDS = ("self", "grid", "warmup")
_IMMUTABLE = bool | int | float | str | None | DType | Pointer | Tile | Enum


class Kernel(Protocol):
    """The attributes of a `JITFunction` that a launcher uses."""

    pre_run_hooks: list[Callable[..., Any]]
    used_global_vals: Recorded
    used_objects: Recorded

    @property
    def signature(self) -> Signature: ...
    @property
    def params(self) -> list[Any]: ...


@dataclass(frozen=True, slots=True)
class Start:
    """The start of a loaded kernel by native code: the contents of its structure Record.

    Attributes:
        fields: values of fields by name; several of an array.
        objects: values of the fields that are Python objects, by name.
        slots: for each of the kernel's arguments, in order, the index of its slot, and TO_FP32 if
            it must be rounded.
    """

    fields: Mapping[str, int | Sequence[int]]
    objects: dict[str, Any]
    slots: list[int]

    def record(self, kernel: CompiledKernel) -> bytes:
        """The structure as bytes, truncated after its last slot."""
        fields = FIELDS["Record"]
        words = [0] * (fields["slots"].offset // WORD)
        addresses = {name: id(value) for name, value in self.objects.items()}
        common = {"kernel": id(kernel), "count": len(self.slots)}
        for name, value in {**self.fields, **addresses, **common}.items():
            at, values = fields[name].offset // WORD, [value] if isinstance(value, int) else value
            words[at : at + len(values)] = values
        return struct.pack(f"={len(words) + len(self.slots)}Q", *words, *self.slots)


NativeStart: TypeAlias = Callable[[Runtime], Start | None]
"""The method `native_start` of a loaded kernel; returns None if native code cannot start it."""


def slots_of(arguments: Sequence[Any], types: Sequence[Any]) -> list[int] | None:
    """`Start.slots` of a variant; None if only Python can pack its arguments: floats narrower than
    fp32, or more than MAX_SLOTS slots.

    Args:
        arguments: path and type string of each argument that is passed at run time.
        types: types of all parameters; nested tuples for tuples.
    """
    numbers: dict[tuple[int, ...], int] = {}
    used = len(types)
    for i, kind in enumerate(types):
        used = _number((i,), kind, i, used, numbers)
    if used > MAX_SLOTS or any(k.startswith(("fp16", "bf", "fp8")) for _, k in arguments):
        return None
    return [
        numbers[tuple(path)] | (layout.TO_FP32 if kind == "fp32" else 0) for path, kind in arguments
    ]


def _number(
    path: tuple[int, ...], kind: Any, slot: int, used: int, numbers: dict[tuple[int, ...], int]
) -> int:
    """Assign the slots of an argument, in the order in which `read_any` allocates them.

    Each item of a tuple gets a slot, followed by the slots of its own items. A tensor descriptor
    has its base in its own slot, and its extents and strides in newly allocated ones.

    Returns:
        the number of slots used so far.
    """
    if isinstance(kind, tuple | list):
        for i, item in enumerate(kind):
            used = _number((*path, i), item, used, used + 1, numbers)
    elif kind.startswith("tensordesc"):
        parts = [part for part, _ in runtime_arguments([kind])]
        rank = kind.partition("[")[2].partition("]")[0].count(",") + 1
        for _, place in parts:
            numbers[*path, place] = slot if place == 0 else used + place - 1
        used += 2 * rank
    else:
        numbers[path] = slot
    return used


# -- parameters -----------------------------------------------------------------------------------


class InKey(NamedTuple):
    """The parts of a key that describe arguments beyond the specialisation of variants.

    Attributes:
        values: the parameters whose whole value it has.
        integers: those whose value it has if that is an int or a bool.
        layouts: the parameters of tensors whose shape and strides it has.
    """

    values: frozenset[str] = frozenset()
    integers: frozenset[str] = frozenset()
    layouts: frozenset[str] = frozenset()


PLAIN = InKey()
"""Nothing more."""

Mappings: TypeAlias = Mapping[str, Mapping[str, str]]
"""By parameter that takes a dict, the last ones of a kernel: by key of the dict the parameter that
its value is the argument of. These are consecutive, in this order."""


def _flags(param: KernelParam, in_key: InKey) -> int:
    """The field Param.flags of a parameter."""
    if param.is_constexpr:
        return layout.IS_CONSTEXPR
    mode, annotation = mode_of(param), param.annotation_type
    flags = sum(flag for field, flag in layout.BY.items() if getattr(mode, field))
    flags |= layout.TAKES_WIDE * (annotation in ("", "u64"))
    flags |= layout.BY_EVERY_VALUE * (param.name in in_key.values)
    flags |= layout.BY_INTEGER * (param.name in in_key.integers)
    flags |= layout.BY_LAYOUT * (param.name in in_key.layouts)
    return flags | layout.kind_flags(annotation)


def int_limits(annotation: str) -> tuple[int, int]:
    """The range of ints that a parameter accepts, clipped to int64."""
    if not annotation or category(annotation) != "int":
        return INT64_MIN, INT64_MAX
    low, high = int_range(annotation)
    return low, min(high, INT64_MAX)


def _param_structures(kernel: Kernel, in_key: InKey, mappings: Mappings) -> Structure:
    params = Structure("Param", len(kernel.params))
    declared = kernel.signature.parameters.values()
    for i, (param, parameter) in enumerate(zip(kernel.params, declared, strict=True)):
        if param.name in _keywords(kernel.signature):
            params.put_object("keyword", param.name, i)
        params.put_object("name", param.name, i)
        if parameter.default is not Parameter.empty:
            params.put_object("default", parameter.default, i)
        params.put("flags", _flags(param, in_key), i)
        low, high = int_limits(param.annotation_type)
        params.put("low", low, i)
        params.put("high", high, i)
    _put_mappings(params, kernel, mappings)
    return params


def _put_mappings(params: Structure, kernel: Kernel, mappings: Mappings) -> None:
    """Fill in the parameters that are mappings, and those that are their items."""
    numbers = {param.name: i for i, param in enumerate(kernel.params)}
    for name, items in mappings.items():
        i = numbers[name]
        params.put("flags", layout.kind_flags(""), i)
        params.put("low", min((numbers[item] for item in items.values()), default=0), i)
        params.put("high", len(items), i)
        for key, item in items.items():
            params.put_object("key", key, numbers[item])


def _keywords(signature: Signature) -> dict[str, int]:
    """The indices of parameters that may be passed by keyword."""
    return {
        name: i
        for i, (name, parameter) in enumerate(signature.parameters.items())
        if parameter.kind is not Parameter.POSITIONAL_ONLY and name not in _RUN_KEYWORDS
    }


# -- wrappers -------------------------------------------------------------------------------------


class Stage:
    """The arguments that a wrapper of a kernel adds to a call.

    Args:
        watched: attributes of the wrapper that must not change; see `WatchedName`.

    Attributes:
        keys: names of the parameters whose values its result depends on.
    """

    kind: int
    keys: frozenset[str] = frozenset()

    def __init__(self, watched: Sequence[WatchedName]) -> None:
        self.watched = list(watched)

    def fill(self, structures: Structure, index: int) -> None:
        """Fill in the structure Stage with an index."""
        structures.put("kind", self.kind, index)

    def forget(self) -> None:
        """Drop cached results."""


class Computed(Stage):
    """Arguments that functions compute on each launch (heuristics).

    Args:
        values: by parameter, a function of the dict of arguments.
    """

    kind = layout.COMPUTE

    def __init__(
        self, values: dict[str, Callable[[dict[str, Any]], Any]], watched: Sequence[WatchedName]
    ) -> None:
        super().__init__(watched)
        self._values = values

    def fill(self, structures: Structure, index: int) -> None:
        super().fill(structures, index)
        structures.put_object("values", self._values, index)


class Tuner(Protocol):
    """The attributes of an autotuner that a launcher uses."""

    configs: list[Config]
    keys: list[str]

    def known_config(self, named: dict[str, Any]) -> Config | None:
        """The tuned configuration for a dict of arguments; None if there is none yet."""
        ...


class Chosen(Stage):
    """The keywords of an autotuner's configuration."""

    kind = layout.TUNE

    def __init__(self, tuner: Tuner, watched: Sequence[WatchedName]) -> None:
        super().__init__(watched)
        self._tuner = tuner
        self._chosen: dict[bytes, tuple[Any, ...] | None] = {}
        self.keys = frozenset(tuner.keys)

    def fill(self, structures: Structure, index: int) -> None:
        super().fill(structures, index)
        structures.put_object("owner", self._tuner, index)
        structures.put_object("configs", self._tuner.configs, index)
        structures.put_object("chosen", self._chosen, index)
        structures.put_object("note", self._note, index)

    def forget(self) -> None:
        self._chosen.clear()

    def _note(self, words: bytes, objects: tuple[Any, ...], named: dict[str, Any]) -> None:
        """Cache the configuration of a call that has just been made on the slow path."""
        if len(self._chosen) >= MAX_ENTRIES:
            self.forget()
        config = self._tuner.known_config(named)
        found = None
        if config is not None and config.pre_hook is None:
            added = config.all_kwargs()
            found = (config, tuple(added), *added.values(), objects)
        self._chosen.setdefault(words, found)


# -- one kernel -----------------------------------------------------------------------------------


class Launcher:
    """The structure State of a kernel, and its cache of variants.

    Args:
        runtime: the native runtime of the process.
        kernel: the kernel.
        fallback: launches on the slow path: ``fallback(grid, *args, **kwargs)``.
        stages: the wrappers, outermost first.
        warm: compiles and loads without a launch; same arguments as `fallback`.
        in_key: what the key has besides what variants are specialised for.
        mappings: the parameters that take dicts.

    Attributes:
        bind: a builtin function from a grid to a builtin that launches on the grid.
        entries: by key: (key, record, compiled, objects in the key, Start, loaded kernel); None
            for a variant that only the slow path can start.
    """

    def __init__(
        self,
        runtime: Runtime,
        kernel: Kernel,
        fallback: Callable[..., CompiledKernel],
        stages: Sequence[Stage] = (),
        warm: Callable[..., CompiledKernel] | None = None,
        in_key: InKey = PLAIN,
        mappings: Mappings | None = None,
    ) -> None:
        self._runtime = runtime
        self._kernel = kernel
        self._stages = stages
        self._in_key = in_key
        self._mappings = mappings or {}
        self._grids = Structure("Grid", layout.GRIDS)
        self._grid_turn = count()
        self._codes: list[CodeType] = []
        self._guarded = False
        self._is_python = False
        self._variables: list[tuple[WatchedName, Any, Any]] = []
        self.entries: dict[bytes, tuple[Any, ...] | None] = {}
        self._state = self._new_state(kernel, fallback)
        self._state.put_object("warm", partial(self._by_python, warm or fallback))
        self._box = struct.pack("=Q", self._state.address)
        self.bind: Callable[[Any], Callable[..., CompiledKernel]] = runtime.new_bind(
            self._box, self
        )

    def _new_state(self, kernel: Kernel, fallback: Callable[..., CompiledKernel]) -> Structure:
        state = Structure("State")
        declared = kernel.signature.parameters.values()
        names = [param.name for param in kernel.params]
        tuned_by = {name for stage in self._stages for name in stage.keys}
        in_key = self._in_key._replace(values=self._in_key.values | tuned_by)
        state.put("runtime", self._runtime.address)
        state.put("count", len(names))
        state.put("positional", sum(p.kind is not Parameter.KEYWORD_ONLY for p in declared))
        state.keep("params", _param_structures(kernel, in_key, self._mappings))
        state.put("mapping_count", len(self._mappings))
        reserved = dict.fromkeys(_RUN_KEYWORDS, RESERVED)
        state.put_object("keywords", {**_keywords(kernel.signature), **reserved})
        state.put_object("names", dict.fromkeys(names))
        state.put_words("numbers", [id(None)] * len(names))
        state.put_object("fallback", partial(self._by_python, fallback))
        state.put_object("adopt", self._adopt)
        state.put_object("hooks", kernel.pre_run_hooks)
        state.put_object("entries", self.entries)
        state.put_object("spare", [None])
        state.keep("grids", self._grids)
        state.put_object("note_grid", self._note_grid)
        stages = Structure("Stage", len(self._stages))
        for i, stage in enumerate(self._stages):
            stage.fill(stages, i)
        state.keep("stages", stages)
        state.put("stage_count", len(self._stages))
        return state

    def _by_python(self, launch: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        self._runtime.look_for_torch()
        compiled = launch(*args, **kwargs)
        self._look_again_at_variables()
        self._runtime.know_device(getattr(compiled, "device", ""))
        return compiled

    def forget(self) -> None:
        """Drop every variant: the next launches take the slow path."""
        self._state.put_words("recents", [0] * (4 * layout.RECENTS))
        self.entries.clear()
        for stage in self._stages:
            stage.forget()

    def _note_grid(self, code: CodeType) -> None:
        """Cache which parameters grid functions with a code object read."""
        turn = next(self._grid_turn)
        if turn >= MAX_CODES:
            return
        names, known = names_read(code), [param.name for param in self._kernel.params]
        numbers = [] if names is None else [known.index(name) for name in names if name in known]
        few = names is not None and len(numbers) <= layout.GRID_NAMES
        self._codes.append(code)  # never released: an address in `_grids` must stay valid
        words = [id(code), *((len(numbers), *numbers) if few else (layout.ALL_NAMES,))]
        self._grids.put_words("code", words, turn % layout.GRIDS)

    def bound(
        self, fallback: Callable[[], Any], grid: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Callable[[], CompiledKernel] | None:
        """A builtin that launches with these arguments; None if they need the slow path.

        Args:
            fallback: the same launch on the slow path.
        """
        self._runtime.look_for_torch()
        found = self._runtime.new_freeze(self._box, grid, self)(*args, **kwargs)
        if found is None:
            return None
        entry, slots, extents = found
        bound, room = Structure("Bound"), (ctypes.c_char * len(slots)).from_buffer_copy(slots)
        bound.put("record", id(entry[1]) + FIELDS["Bytes"]["data"].offset)
        bound.put("debug", self._runtime.debug)
        bound.put_words("grid", extents)
        bound.put("slot_count", len(slots) // WORD)
        bound.put("slots", ctypes.addressof(room))
        kept = (bound, room, entry, self, args, kwargs)
        box = struct.pack("=2Q", self._state.address, bound.address)
        return self._runtime.new_bound(box, fallback, *kept)

    def _adopt(self, words: bytes, objects: tuple[Any, ...], compiled: CompiledKernel) -> None:
        """Cache a variant that the slow path has just launched, for launches with the same key."""
        loaded = getattr(compiled, "loaded", None)
        if loaded is None or not self._watch():
            return  # compiled but not loaded, e.g. if a hook stopped the launch
        if len(self.entries) >= MAX_ENTRIES:
            self.forget()
        native_start: NativeStart | None = getattr(loaded, "native_start", None)
        start = native_start(self._runtime) if native_start else None
        # An entry of another thread is not replaced: native code may have borrowed it.
        self.entries.setdefault(
            words,
            None
            if start is None
            else (words, start.record(compiled), compiled, objects, start, loaded),
        )

    def _watch(self) -> bool:
        """Set up the guards on names, once; false if a variable is a mutable object, whose changes
        guards cannot detect."""
        if not self._guarded:
            kernel = self._kernel
            # An instance attribute `run` would override the method.
            own: list[WatchedName] = [(vars(kernel), "run")]
            own += [watched for stage in self._stages for watched in stage.watched]
            constants = [(scope, name) for (name, _), (_, scope) in kernel.used_global_vals.items()]
            objects = [(scope, name) for (name, _), (_, scope) in kernel.used_objects.items()]
            values = [_inside(scope.get(name)) for scope, name in constants]
            self._is_python = not all(map(_keeps_its_value, values))
            self._variables = [(names, *_present(names)) for names in constants + objects]
            fill_guards(self._state, own, constants + objects)
            self._guarded = True
        return not self._is_python

    def _look_again_at_variables(self) -> None:
        """Guard the present values of variables if they have changed. A launch by Python has
        found them equal to those of the compilation, or it would have raised an error."""
        if any(
            now is not then
            for names, *before in self._variables
            for now, then in zip(_present(names), before, strict=True)
        ):
            self._guarded, self._variables = False, []
            self.forget()
            for count in ("global_count", "guard_count"):
                self._state.put(count, 0)


def _keeps_its_value(value: Any) -> bool:
    return isinstance(value, _IMMUTABLE) or callable(value)


def _inside(value: Any) -> Any:
    return value.value if type(value) is constexpr else value


def _present(name: WatchedName) -> tuple[Any, Any]:
    """The present value of a name, and, if it is a constexpr, the value in it."""
    scope, key = name
    value = scope.get(key)
    return value, _inside(value)


def make_launcher(
    kernel: Any,
    fallback: Callable[..., CompiledKernel],
    stages: Sequence[Stage] = (),
    warm: Callable[..., CompiledKernel] | None = None,
    in_key: InKey = PLAIN,
    mappings: Mappings | None = None,
) -> Launcher | None:
    """The native launcher of a kernel in its wrappers; None if native launches are not supported:
    here, or for this kernel (variadic, or more than MAX_PARAMS parameters)."""
    kinds = {p.kind for p in kernel.signature.parameters.values()}
    if Parameter.VAR_POSITIONAL in kinds or len(kernel.params) > MAX_PARAMS:
        return None
    found = runtime()
    if found is None:
        return None
    found.look_for_torch()
    return Launcher(found, kernel, fallback, stages, warm, in_key, mappings)
