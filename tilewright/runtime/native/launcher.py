"""Native launches of one kernel: what its parameters are, and which variants have run.

    launcher = make_launcher(kernel)        # None where Python launches by itself
    launcher.bind(grid)(*args, **kwargs)

The first launch of a variant goes through Python, which compiles it. The native code hands over the
words that stand for the key, and `_adopt` keeps for them how to start the variant. From then on a
launch with the same words is all native.

What is launched may be a wrapper of a kernel, or several around each other. What each adds to a
call is a `Stage`: a tuner the configuration that it has found for such calls, which is kept by
the words up to there; heuristics the results of functions, which are called each time.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial
from inspect import Parameter, Signature
from itertools import count
from types import CodeType
from typing import Any, Protocol, TypeAlias

from tilewright.compiler.artifact import CompiledKernel
from tilewright.compiler.source import runtime_arguments
from tilewright.ir.types import DType, Pointer, Tile
from tilewright.language.values import constexpr
from tilewright.runtime.config import Config
from tilewright.runtime.kinds import category, int_range
from tilewright.runtime.native import layout
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
"""How many keys are kept; then they are gathered anew. A key may hold the address of an object that
is never seen again, so that they are not as few as the variants."""

MAX_CODES = 64
"""How often a kernel finds out what a grid function looks at; later ones are given everything."""

RESERVED = -1
"""The number, among the keywords, of those that do not go to the kernel."""

_RUN_KEYWORDS = ("self", "grid", "warmup")
_IMMUTABLE = bool | int | float | str | None | DType | Pointer | Tile | Enum

ObservedDict: TypeAlias = tuple[dict[str, Any], str]
"""A dictionary, such as an object's attributes, and a name: what must stay in it as it is."""


class Kernel(Protocol):
    """What is needed of a kernel."""

    pre_run_hooks: list[Callable[..., Any]]
    used_global_vals: dict[tuple[str, int], tuple[Any, dict[str, Any]]]

    @property
    def signature(self) -> Signature: ...
    @property
    def params(self) -> list[Any]: ...


@dataclass(frozen=True, slots=True)
class Start:
    """How native code starts a loaded kernel.

    Attributes:
        fields: of the structure Record.
        objects: those of the fields that are objects.
        slots: for each of the kernel's arguments, in order, its parameter's number, and what is
            done to it.
    """

    fields: dict[str, int]
    objects: dict[str, Any]
    slots: list[int]

    def record(self, kernel: CompiledKernel) -> bytes:
        """The structure, up to its last slot."""
        fields = FIELDS["Record"]
        words = [0] * (fields["slots"].offset // WORD)
        addresses = {name: id(value) for name, value in self.objects.items()}
        common = {"kernel": id(kernel), "count": len(self.slots)}
        for name, value in {**self.fields, **addresses, **common}.items():
            words[fields[name].offset // WORD] = value
        return struct.pack(f"={len(words) + len(self.slots)}Q", *words, *self.slots)


NativeStart: TypeAlias = Callable[[Runtime], Start | None]
"""A loaded kernel's method that says how native code starts it; None where it cannot."""


def slots_of(arguments: Sequence[Any], types: Sequence[Any]) -> list[int] | None:
    """What `Start.slots` is for a variant; None where only Python can pack its arguments: floats
    narrower than fp32, and more than there are slots for.

    Args:
        arguments: path and type string of each that is passed at run time.
        types: of all parameters, tuples of them for tuples.
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
    """Number the slots of an argument as the code does; gives how many are used then.

    An item of a tuple gets a slot, then what is in it; a descriptor has its base in its own, and
    extents and strides in those that follow.
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


def _flags(param: KernelParam, tuned_by: frozenset[str]) -> int:
    """What the code knows of a parameter, apart from the range of its ints."""
    if param.is_constexpr:
        return layout.IS_CONSTEXPR
    mode, annotation = mode_of(param), param.annotation_type
    flags = sum(flag for field, flag in layout.BY.items() if getattr(mode, field))
    flags |= layout.TAKES_WIDE * (annotation in ("", "u64"))
    flags |= layout.BY_EVERY_VALUE * (param.name in tuned_by)
    return flags | layout.kind_flags(annotation)


def _range(annotation: str) -> tuple[int, int]:
    """The ints of 64 bits that a parameter takes."""
    if not annotation or category(annotation) != "int":
        return INT64_MIN, INT64_MAX
    low, high = int_range(annotation)
    return low, min(high, INT64_MAX)


def _param_structures(kernel: Kernel, tuned_by: frozenset[str]) -> Structure:
    params = Structure("Param", len(kernel.params))
    declared = kernel.signature.parameters.values()
    for i, (param, parameter) in enumerate(zip(kernel.params, declared, strict=True)):
        if param.name in _keywords(kernel.signature):
            params.put_object("keyword", param.name, i)
        params.put_object("name", param.name, i)
        if parameter.default is not Parameter.empty:
            params.put_object("default", parameter.default, i)
        params.put("flags", _flags(param, tuned_by), i)
        low, high = _range(param.annotation_type)
        params.put("low", low, i)
        params.put("high", high, i)
    return params


def _keywords(signature: Signature) -> dict[str, int]:
    """Numbers of the parameters that a keyword of a launch may name."""
    return {
        name: i
        for i, (name, parameter) in enumerate(signature.parameters.items())
        if parameter.kind is not Parameter.POSITIONAL_ONLY and name not in _RUN_KEYWORDS
    }


# -- wrappers -------------------------------------------------------------------------------------


class Stage:
    """What a wrapper of a kernel adds to a call.

    Args:
        watched: what makes the wrapper another one when it changes.

    Attributes:
        keys: the parameters whose values it depends on.
    """

    kind: int
    keys: frozenset[str] = frozenset()

    def __init__(self, watched: Sequence[ObservedDict]) -> None:
        self.watched = list(watched)

    def fill(self, structures: Structure, index: int) -> None:
        """Fill in the structure Stage of this number."""
        structures.put("kind", self.kind, index)

    def forget(self) -> None:
        """Give up what has been found."""


class Computed(Stage):
    """Arguments that functions compute.

    Args:
        values: the functions, of the arguments by name, by the names of the parameters.
    """

    kind = layout.COMPUTE

    def __init__(
        self, values: dict[str, Callable[[dict[str, Any]], Any]], watched: Sequence[ObservedDict]
    ) -> None:
        super().__init__(watched)
        self._values = values

    def fill(self, structures: Structure, index: int) -> None:
        super().fill(structures, index)
        structures.put_object("values", self._values, index)


class Tuner(Protocol):
    """What is needed of a wrapper that has configurations."""

    configs: list[Config]
    keys: list[str]

    def known_config(self, named: dict[str, Any]) -> Config | None:
        """What has been found for arguments by name; None where nothing has."""
        ...


class Chosen(Stage):
    """The keywords of a configuration.

    Args:
        tuner: the wrapper.
    """

    kind = layout.TUNE

    def __init__(self, tuner: Tuner, watched: Sequence[ObservedDict]) -> None:
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
        """Keep the configuration of a call that has just been made, for others of its words."""
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
    """The structure State of a kernel, and the variants that native code can start.

    Args:
        runtime: the process's.
        kernel: the kernel.
        fallback: launches by Python: ``fallback(grid, *args, **kwargs)``.
        stages: what wrappers add, the outermost first.
        warm: compiles and loads instead.

    Attributes:
        bind: a builtin that gives, for a grid, a builtin that launches on it.
        entries: by the words of a key: (words, record, compiled, objects of the key, how it is
            started); None for a variant that only Python can start.
    """

    def __init__(
        self,
        runtime: Runtime,
        kernel: Kernel,
        fallback: Callable[..., CompiledKernel],
        stages: Sequence[Stage] = (),
        warm: Callable[..., CompiledKernel] | None = None,
    ) -> None:
        self._runtime = runtime
        self._kernel = kernel
        self._stages = stages
        self._grids = Structure("Grid", layout.GRIDS)
        self._grid_turn = count()
        self._codes: list[CodeType] = []
        self._globals_known = False
        self._is_python = False
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
        tuned_by = frozenset(name for stage in self._stages for name in stage.keys)
        state.put("runtime", self._runtime.address)
        state.put("count", len(names))
        state.put("positional", sum(p.kind is not Parameter.KEYWORD_ONLY for p in declared))
        state.keep("params", _param_structures(kernel, tuned_by))
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
        self._runtime.know_device(getattr(compiled, "device", ""))
        return compiled

    def forget(self) -> None:
        """Give up every variant; Python decides about the next launches."""
        self._state.put_words("recents", [0] * (4 * layout.RECENTS))
        self.entries.clear()
        for stage in self._stages:
            stage.forget()

    def _note_grid(self, code: CodeType) -> None:
        """Keep which parameters a grid function of this code looks at."""
        turn = next(self._grid_turn)
        if turn >= MAX_CODES:
            return
        names, known = names_read(code), [param.name for param in self._kernel.params]
        numbers = [] if names is None else [known.index(name) for name in names if name in known]
        few = names is not None and len(numbers) <= layout.GRID_NAMES
        self._codes.append(code)  # for good: another thread may be writing the same place
        words = [id(code), *((len(numbers), *numbers) if few else (layout.ALL_NAMES,))]
        self._grids.put_words("code", words, turn % layout.GRIDS)

    def bound(
        self, fallback: Callable[[], Any], grid: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Callable[[], CompiledKernel] | None:
        """What launches these arguments again and again; None where only Python can.

        Args:
            fallback: launches them by Python.
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
        """Keep what has just run for launches with the same words."""
        loaded = getattr(compiled, "loaded", None)  # a hook may have stopped the launch
        if loaded is None or not self._watch():
            return  # compiled, but never run
        if len(self.entries) >= MAX_ENTRIES:
            self.forget()
        native_start: NativeStart | None = getattr(loaded, "native_start", None)
        start = native_start(self._runtime) if native_start else None
        # What another thread has put there meanwhile stays: the code may be using it.
        self.entries.setdefault(
            words,
            None
            if start is None
            else (words, start.record(compiled), compiled, objects, start, loaded),
        )

    def _watch(self) -> bool:
        """Have the code compare what launches depend on, as it is now; false when something may
        change without being another object."""
        if not self._globals_known:
            self._globals_known = True
            self._is_python = not self._note_watched()
        return not self._is_python

    def _note_watched(self) -> bool:
        used = [(scope, name) for (name, _), (_, scope) in self._kernel.used_global_vals.items()]
        if any(not _keeps_its_value(_inside(scope.get(name))) for scope, name in used):
            return False
        # An attribute `run` of the kernel object itself takes the place of the method.
        own: list[ObservedDict] = [(vars(self._kernel), "run")]
        own += [watched for stage in self._stages for watched in stage.watched]
        everything = own + used
        structures = Structure("Global", len(everything))
        for i, (scope, name) in enumerate(everything):
            structures.put_object("scope", scope, i)
            structures.put_object("name", name, i)
            if name in scope:
                now = scope[name]
                structures.put_object("object", now, i)
                if _inside(now) is not now:
                    structures.put_object("value", _inside(now), i)
        self._state.keep("globals", structures)
        self._state.put("global_count", len(everything))
        return True


def _keeps_its_value(value: Any) -> bool:
    return isinstance(value, _IMMUTABLE) or callable(value)


def _inside(value: Any) -> Any:
    return value.value if type(value) is constexpr else value


def make_launcher(
    kernel: Any,
    fallback: Callable[..., CompiledKernel],
    stages: Sequence[Stage] = (),
    warm: Callable[..., CompiledKernel] | None = None,
) -> Launcher | None:
    """The native launcher of a kernel, with what its wrappers add; None where Python launches it by
    itself."""
    kinds = {p.kind for p in kernel.signature.parameters.values()}
    if Parameter.VAR_POSITIONAL in kinds or len(kernel.params) > MAX_PARAMS:
        return None
    found = runtime()
    return None if found is None else Launcher(found, kernel, fallback, stages, warm)
