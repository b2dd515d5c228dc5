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
from collections.abc import Callable, Sequence
from enum import Enum
from functools import partial
from inspect import Parameter, Signature
from itertools import count
from types import CodeType
from typing import Any, Protocol

from tilewright.compiler.artifact import CompiledKernel
from tilewright.frontend.dependencies import Recorded
from tilewright.ir.types import DType, Pointer, Tile
from tilewright.language.values import constexpr
from tilewright.runtime.config import Config
from tilewright.runtime.native import layout
from tilewright.runtime.native.guard_tables import WatchedName, fill_guards
from tilewright.runtime.native.layout import FIELDS, MAX_PARAMS, WORD
from tilewright.runtime.native.names_read import names_read
from tilewright.runtime.native.parameters import (
    PLAIN,
    RUN_KEYWORDS,
    InKey,
    Mappings,
    keywords_of,
    param_structures,
)
from tilewright.runtime.native.records import NativeStart
from tilewright.runtime.native.runtime import Runtime, runtime
from tilewright.runtime.native.structure import Structure

MAX_ENTRIES = 4096
"""The most keys of a kernel; the cache is cleared when it is full. Keys may contain addresses of
temporary objects, so their number is not bounded by that of the variants."""

MAX_CODES = 64
"""The most grid functions of a kernel that are analysed; later ones get all arguments."""

RESERVED = -1
"""Marks keywords in State.keywords that are parameters of `run` rather than of the kernel."""

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
        """Cache the configuration of the last call on the slow path."""
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
        state.keep(
            "params", param_structures(kernel.params, kernel.signature, in_key, self._mappings)
        )
        state.put("mapping_count", len(self._mappings))
        reserved = dict.fromkeys(RUN_KEYWORDS, RESERVED)
        state.put_object("keywords", {**keywords_of(kernel.signature), **reserved})
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
        self._recheck_variables()
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

    def _recheck_variables(self) -> None:
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
