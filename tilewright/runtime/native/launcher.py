"""Native launches of one kernel: what its parameters are, and which variants have run.

    launcher = make_launcher(kernel)        # None where Python launches by itself
    launcher.bind(grid)(*args, **kwargs)

The first launch of a variant goes through Python, which compiles it. The native code hands over the
words that stand for the key, and `_adopt` keeps for them how to start the variant. From then on a
launch with the same words is all native.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from inspect import Parameter, Signature
from typing import Any, Protocol, TypeAlias

from tilewright.compiler.artifact import CompiledKernel
from tilewright.ir.types import DType
from tilewright.language.values import constexpr
from tilewright.runtime.native import layout
from tilewright.runtime.native.layout import INT64_MAX, INT64_MIN, MAX_PARAMS, OFFSETS, WORD
from tilewright.runtime.native.runtime import Runtime, runtime
from tilewright.runtime.native.structure import Structure
from tilewright.runtime.specialize import KernelParam, mode_of

MAX_ENTRIES = 4096
"""How many keys are kept; then they are gathered anew. A key may hold the address of an object that
is never seen again, so that they are not as few as the variants."""

RESERVED = -1
"""The number, among the keywords, of those that do not go to the kernel."""

_RUN_KEYWORDS = ("self", "grid", "warmup")
_PLAIN = (bool, int, float, str, type(None), DType)


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
        offsets = OFFSETS["Record"]
        words = [0] * (offsets["slots"] // WORD)
        addresses = {name: id(value) for name, value in self.objects.items()}
        common = {"kernel": id(kernel), "count": len(self.slots)}
        for name, value in {**self.fields, **addresses, **common}.items():
            words[offsets[name] // WORD] = value
        return struct.pack(f"={len(words) + len(self.slots)}Q", *words, *self.slots)


NativeStart: TypeAlias = Callable[[Runtime], Start | None]
"""A loaded kernel's method that says how native code starts it; None where it cannot."""


def slots_of(arguments: list[Any]) -> list[int] | None:
    """What `Start.slots` is for arguments of these paths and types; None where only Python can
    pack them: tuples, descriptors, and floats narrower than fp32."""
    slots: list[int] = []
    for path, kind in arguments:
        if len(path) != 1 or kind.startswith(("fp16", "bf", "fp8")):
            return None
        slots.append(path[0] | (layout.TO_FP32 if kind == "fp32" else 0))
    return slots


# -- parameters -----------------------------------------------------------------------------------


def _flags(param: KernelParam) -> int:
    """What the code knows of a parameter, apart from the range of its ints."""
    if param.is_constexpr:
        return layout.IS_CONSTEXPR
    mode = mode_of(param)
    flags = layout.BY_VALUE * mode.by_value | layout.BY_ALIGNMENT * mode.by_alignment
    annotation = param.annotation_type
    if not annotation:
        return flags | (
            layout.TAKES_TENSOR
            | layout.TAKES_INT
            | layout.TAKES_UINT64
            | layout.TAKES_FLOAT
            | layout.TAKES_BOOL
        )
    if annotation.startswith("*"):
        return flags | layout.TAKES_TENSOR
    if annotation in ("u1", "i1"):
        return flags | layout.TAKES_BOOL
    if annotation in ("fp32", "fp64"):
        return flags | layout.TAKES_FLOAT
    if annotation[0] in "iu":
        return flags | layout.TAKES_INT | layout.TAKES_UINT64 * (annotation == "u64")
    return flags


def _range(annotation: str) -> tuple[int, int]:
    """The ints of 64 bits that a parameter takes."""
    if annotation[:1] not in ("i", "u") or annotation in ("i1", "u1"):
        return INT64_MIN, INT64_MAX
    bits = int(annotation[1:])
    if annotation[0] == "u":
        return 0, min((1 << bits) - 1, INT64_MAX)
    return -(1 << bits - 1), (1 << bits - 1) - 1


def _param_structures(kernel: Kernel) -> Structure:
    params = Structure("Param", len(kernel.params))
    declared = kernel.signature.parameters.values()
    for i, (param, parameter) in enumerate(zip(kernel.params, declared, strict=True)):
        if param.name in _keywords(kernel.signature):
            params.put_object("keyword", param.name, i)
        params.put_object("name", param.name, i)
        if parameter.default is not Parameter.empty:
            params.put_object("default", parameter.default, i)
        params.put("flags", _flags(param), i)
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


# -- one kernel -----------------------------------------------------------------------------------


class Launcher:
    """The structure State of a kernel, and the variants that native code can start.

    Args:
        runtime: the process's.
        kernel: the kernel.
        fallback: launches by Python: ``fallback(grid, *args, **kwargs)``.

    Attributes:
        bind: a builtin that gives, for a grid, a builtin that launches on it.
        entries: by the words of a key: (words, record, compiled, objects of the key, how it is
            started); None for a variant that only Python can start.
    """

    def __init__(
        self, runtime: Runtime, kernel: Kernel, fallback: Callable[..., CompiledKernel]
    ) -> None:
        self._runtime = runtime
        self._kernel = kernel
        self._globals_known = False
        self._is_python = False
        self.entries: dict[bytes, tuple[Any, ...] | None] = {}
        self._state = self._new_state(kernel, fallback)
        self.bind: Callable[[Any], Callable[..., CompiledKernel]] = runtime.new_bind(
            struct.pack("=Q", self._state.address), self
        )

    def _new_state(self, kernel: Kernel, fallback: Callable[..., CompiledKernel]) -> Structure:
        state = Structure("State")
        declared = kernel.signature.parameters.values()
        names = [param.name for param in kernel.params]
        state.put("runtime", self._runtime.address)
        state.put("count", len(names))
        state.put("positional", sum(p.kind is not Parameter.KEYWORD_ONLY for p in declared))
        state.keep("params", _param_structures(kernel))
        reserved = dict.fromkeys(_RUN_KEYWORDS, RESERVED)
        state.put_object("keywords", {**_keywords(kernel.signature), **reserved})
        state.put_object("names", dict.fromkeys(names))
        state.put_object("fallback", partial(self._by_python, fallback))
        state.put_object("adopt", self._adopt)
        state.put_object("hooks", kernel.pre_run_hooks)
        state.put_object("attributes", vars(kernel))
        state.put_object("entries", self.entries)
        return state

    def _by_python(self, launch: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        self._runtime.look_for_torch()
        return launch(*args, **kwargs)

    def forget(self) -> None:
        """Give up every variant; Python decides about the next launches."""
        self._state.put_words("recents", [0] * (4 * layout.RECENTS))
        self.entries.clear()

    def _adopt(self, words: bytes, objects: tuple[Any, ...], compiled: CompiledKernel) -> None:
        """Keep what has just run for launches with the same words."""
        loaded = getattr(compiled, "loaded", None)  # a hook may have stopped the launch
        if loaded is None or not self._watch_globals():
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

    def _watch_globals(self) -> bool:
        """Have the code compare the global variables that the kernel reads, as they are now; false
        when one may change without being another object."""
        if not self._globals_known:
            self._globals_known = True
            self._is_python = not self._note_globals()
        return not self._is_python

    def _note_globals(self) -> bool:
        used = self._kernel.used_global_vals
        watched = Structure("Global", len(used))
        for i, ((name, _), (_, scope)) in enumerate(used.items()):
            now = scope.get(name)
            value = now.value if type(now) is constexpr else now
            if type(value) not in _PLAIN:
                return False
            watched.put_object("scope", scope, i)
            watched.put_object("name", name, i)
            watched.put_object("object", now, i)
            if now is not value:
                watched.put_object("value", value, i)
        self._state.keep("globals", watched)
        self._state.put("global_count", len(used))
        return True


def make_launcher(kernel: Any, fallback: Callable[..., CompiledKernel]) -> Launcher | None:
    """The native launcher of a kernel; None where Python launches it by itself."""
    kinds = {p.kind for p in kernel.signature.parameters.values()}
    if Parameter.VAR_POSITIONAL in kinds or len(kernel.params) > MAX_PARAMS:
        return None
    found = runtime()
    return None if found is None else Launcher(found, kernel, fallback)
