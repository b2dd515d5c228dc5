"""Targets by name. The modules behind them are loaded when a name is first asked for.

A target outside this package registers itself as an entry point of the group
``tilewright.targets``, whose value is a factory that takes an architecture ("" for the default):

    [project.entry-points."tilewright.targets"]
    mychip = "mychip.compiler:MyTarget"
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

from tilewright.base.late import late
from tilewright.base.locks import Lock
from tilewright.targets.protocol import GPUTarget, Target

if TYPE_CHECKING:
    from tilewright.targets.export import Exporter

GROUP = "tilewright.targets"
DEFAULT = "cpu"

Factory = Callable[..., Target]

_entry_points = late("importlib.metadata:entry_points")

# A target's compiler (and LLVM with it) loads with the first kernel for it.
BUILT_IN: dict[str, Factory] = {
    "cpu": late("tilewright.targets.cpu.target:CpuTarget"),
    "cuda": late("tilewright.targets.nvidia.target:NvidiaTarget"),
    "interpreter": late("tilewright.targets.interpreter.target:InterpreterTarget"),
}

# What makes files for programs in C of their kernels.
EXPORTERS: dict[str, Exporter] = {
    "cpu": late("tilewright.targets.cpu.export:export"),
    "cuda": late("tilewright.targets.nvidia.export:export"),
}

# Names of architectures that say by themselves whose they are: sm_90.
ARCHITECTURES = {"sm": "cuda"}
_ARCHITECTURE = re.compile(r"([a-z]+)_?(\d+)a?")

_REGISTERED: dict[str, Factory] = {}
_INSTANCES: dict[tuple[str, int | str], Target] = {}
_LOCK = Lock()


def register(name: str, factory: Factory) -> None:
    """Add a target of this process; it goes before a built-in one of the same name."""
    with _LOCK:
        _REGISTERED[name] = factory
        for key in [k for k in _INSTANCES if k[0] == name]:
            del _INSTANCES[key]


@cache
def _plug_ins() -> dict[str, Any]:
    """Entry points of the group by name."""
    # Reading the installed distributions costs more than importing this whole package (measured:
    # 28 ms), so even the module that does it loads only when a name is not built in.
    return {point.name: point for point in _entry_points(group=GROUP)}


def is_built_in(name: str) -> bool:
    """Whether every process has the target under this name, and it is the package's own."""
    return name in BUILT_IN and name not in _REGISTERED


def names() -> list[str]:
    """All targets that can be asked for."""
    return sorted({*BUILT_IN, *_REGISTERED, *_plug_ins()})


def _factory(name: str) -> Factory:
    if name in _REGISTERED:
        return _REGISTERED[name]
    if name in BUILT_IN:
        return BUILT_IN[name]
    if name in _plug_ins():
        return _plug_ins()[name].load()
    raise ValueError(f"there is no target {name!r}; there are {', '.join(names())}")


def described(text: str) -> GPUTarget:
    """A device to compile for, of a text such as ``cpu``, ``cuda:90``, ``cuda:90:32`` or ``sm_90``.

    Raises:
        ValueError: the text has other parts.
    """
    backend, _, rest = text.partition(":")
    arch, _, lanes = rest.partition(":")
    if not backend or not (lanes or "1").isdigit():
        raise ValueError(f"a target is written as NAME, NAME:ARCH or NAME:ARCH:LANES, not {text!r}")
    alone = _ARCHITECTURE.fullmatch(text)
    if alone is not None and alone[1] in ARCHITECTURES:
        backend, arch = ARCHITECTURES[alone[1]], alone[2]
    return GPUTarget(backend, int(arch) if arch.isdigit() else arch, int(lanes or 1))


def target(which: str | GPUTarget | Target | None = None) -> Target:
    """The target that is meant: by name, as a `GPUTarget`, as itself, or the default one.

    Raises:
        ValueError: for a name that is not registered.
    """
    if which is None:
        which = DEFAULT
    if isinstance(which, str):
        which = described(which)
    if not isinstance(which, GPUTarget):
        return which
    key = which.backend, which.arch
    found = _INSTANCES.get(key)
    if found is None:
        # Made outside the lock, as importing a target may itself ask for another one.
        factory = _factory(which.backend)
        made = factory(which.arch) if which.arch != "" else factory()
        with _LOCK:
            found = _INSTANCES.setdefault(key, made)
    return found
