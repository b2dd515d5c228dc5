"""Targets by name. A target's module is imported when the target is first requested.

A target outside this package registers as an entry point of the group ``tilewright.targets``, whose
value is a factory that takes an architecture ("" for the default):

    [project.entry-points."tilewright.targets"]
    mychip = "mychip.compiler:MyTarget"
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import is_dataclass
from typing import TYPE_CHECKING, Any

from tilewright.base import plug_ins as installed
from tilewright.base.lazy_import import lazy_import
from tilewright.base.locks import Lock
from tilewright.base.plug_ins import TARGETS, PlugInError, faults_of, load_plug_in, plug_ins
from tilewright.targets.protocol import INTERFACE, GPUTarget, Stage, Target

if TYPE_CHECKING:
    from tilewright.frontend import options as frontend
    from tilewright.targets.amd import target as amd_target
    from tilewright.targets.cpu import target as cpu_target
    from tilewright.targets.interpreter import target as interpreter_target
    from tilewright.targets.nvidia import target as nvidia_target
else:
    frontend = lazy_import("tilewright.frontend.options")
    amd_target = lazy_import("tilewright.targets.amd.target")
    cpu_target = lazy_import("tilewright.targets.cpu.target")
    interpreter_target = lazy_import("tilewright.targets.interpreter.target")
    nvidia_target = lazy_import("tilewright.targets.nvidia.target")

DEFAULT = "cpu"

Factory = Callable[..., Target]

# Functions that return the class of a target, whose module, and with it LLVM, is imported by the
# first compilation for it.
BUILT_IN: dict[str, Callable[[], Factory]] = {
    "cpu": lambda: cpu_target.CpuTarget,
    "cuda": lambda: nvidia_target.NvidiaTarget,
    "hip": lambda: amd_target.AmdTarget,
    "interpreter": lambda: interpreter_target.InterpreterTarget,
}

# Names of architectures that imply a target, such as sm_90; the first group is its argument.
ARCHITECTURES = {
    "cuda": re.compile(r"sm_?(\d+)a?"),
    "hip": re.compile(r"(gfx[0-9a-f]+)"),
}

_REGISTERED: dict[str, Factory] = {}
_INSTANCES: dict[tuple[str, int | str], Target] = {}
_LOCK = Lock()


def register(name: str, factory: Factory) -> None:
    """Register a target in this process. It takes precedence over a built-in one of that name."""
    with _LOCK:
        _REGISTERED[name] = factory
        for key in [k for k in _INSTANCES if k[0] == name]:
            del _INSTANCES[key]


def is_built_in(name: str) -> bool:
    """Whether the name denotes a built-in target that is not overridden in this process."""
    return name in BUILT_IN and name not in _REGISTERED


def is_installed(name: str) -> bool:
    """Whether a new process finds the same target by its name: a built-in one or a plug-in, not
    overridden in this process."""
    return name not in _REGISTERED and (name in BUILT_IN or name in plug_ins(TARGETS))


def names() -> list[str]:
    """The names of all available targets."""
    return sorted({*BUILT_IN, *_REGISTERED, *plug_ins(TARGETS)})


def exporting() -> list[str]:
    """The names of the built-in targets whose kernels C programs can call."""
    return sorted(name for name, factory in BUILT_IN.items() if hasattr(factory(), "export"))


def factory_of(name: str) -> Factory:
    """The factory of a target.

    Raises:
        ValueError: the name is not registered.
        PlugInError: it is a plug-in that cannot be loaded.
    """
    if name in _REGISTERED:
        return _REGISTERED[name]
    if name in BUILT_IN:
        return BUILT_IN[name]()
    if name in plug_ins(TARGETS):
        return load_plug_in(TARGETS, name)
    raise ValueError(
        f"there is no target {name!r}; there are {', '.join(names())}\n"
        f"A target of another package is an entry point of the group {TARGETS}: install the "
        f"package that provides {name!r} (pip install, of a source tree too). "
        f"`python -m tilewright doctor` lists the plug-ins that are installed."
    )


def described(text: str) -> GPUTarget:
    """Parse a device such as ``cpu``, ``cuda:90``, ``cuda:90:32``, ``sm_90`` or ``gfx942``.

    Raises:
        ValueError: the text is malformed.
    """
    backend, _, rest = text.partition(":")
    arch, _, lanes = rest.partition(":")
    if not backend or not (lanes or "1").isdigit():
        raise ValueError(f"a target is written as NAME, NAME:ARCH or NAME:ARCH:LANES, not {text!r}")
    for implied, pattern in ARCHITECTURES.items():
        if alone := pattern.fullmatch(text):
            backend, arch = implied, alone[1]
    return GPUTarget(backend, int(arch) if arch.isdigit() else arch, int(lanes or 1))


MEMBERS = (
    "name", "key", "features", "parse_options", "frontend_options", "steps", "compile", "derive",
)  # fmt: skip
"""The members that every target has."""


def _new_target(target: GPUTarget) -> Target:
    """A new instance of a target; faults of a plug-in's target are `PlugInError`s."""
    name = target.backend
    factory = factory_of(name)
    arch_args = (target.arch,) if target.arch != "" else ()
    provider = provider_of(name)
    with faults_of(provider):
        result = factory(*arch_args)
        fault = _fault_of(result) if provider else ""
    if fault:
        raise PlugInError(f"{provider} {fault}")
    return result


def provider_of(name: str) -> str:
    """The plug-in that provides a target, in words; "" if none does."""
    own = name in _REGISTERED or name in BUILT_IN
    return "" if own else installed.provider_of(TARGETS, name)


def _fault_of(made: Any) -> str:
    """The reason for which an object is not a target of this interface version; "" if it is one.
    Exceptions of its members propagate."""
    interface = getattr(made, "interface", INTERFACE)
    if interface != INTERFACE:
        return (
            f"is written for version {interface} of the interface of targets; this version of "
            f"tilewright has version {INTERFACE}: update the older one of the two"
        )
    missing = [name for name in MEMBERS if not hasattr(made, name)]
    if missing:
        return f"is not a target: it has no {', '.join(missing)}"
    options = made.parse_options({})
    if not is_dataclass(options):
        return f"is not a target: its `parse_options` returns {options!r}, not a dataclass"
    front_end = made.frontend_options(options)
    results: dict[str, tuple[Any, type, str]] = {
        "key": (made.key(), str, "text"),
        "features": (made.features(), Collection, "a set of names"),
        "frontend_options": (front_end, frontend.FrontendOptions, "a FrontendOptions"),
        "steps": (made.steps(), Sequence, "a sequence of steps"),
    }
    for member, (found, kind, expected) in results.items():
        if not isinstance(found, kind):
            return f"is not a target: its `{member}` returns {found!r}, not {expected}"
    return ""


def derived(
    target: Target, stage: str, stages: Mapping[str, Stage], metadata: Mapping[str, Any]
) -> Stage:
    """A stage of a kernel that its target computes on request.

    Raises:
        KeyError: there is no such stage.
        PlugInError: the target is of a plug-in, which fails otherwise.
    """
    provider = provider_of(target.name)
    with faults_of(provider, KeyError):
        found: Any = target.derive(stage, stages, metadata)
    if provider and not isinstance(found, str | bytes):
        raise PlugInError(
            f"{provider} is not a target: its `derive` returns {found!r}, neither text nor bytes"
        )
    return found


def parsed_options(target: Target, given: Mapping[str, Any]) -> Any:
    """The options of a kernel for a target, from those that the user passes.

    Raises:
        KeyError, TypeError, ValueError, AssertionError: an option is wrong.
        PlugInError: the target is of a plug-in, which fails otherwise.
    """
    wrong = KeyError, TypeError, ValueError, AssertionError
    with faults_of(provider_of(target.name), *wrong):
        return target.parse_options(given)


def target(target: str | GPUTarget | Target | None = None) -> Target:
    """The target for a name, a `GPUTarget`, or a target itself; None for the default one.

    Raises:
        ValueError: the name is not registered.
        PlugInError: it is a plug-in that cannot be used.
    """
    if target is None:
        target = DEFAULT
    if isinstance(target, str):
        target = described(target)
    if not isinstance(target, GPUTarget):
        return target
    key = target.backend, target.arch
    result = _INSTANCES.get(key)
    if result is None:
        # Created outside the lock, as importing a target may itself request another one.
        instance = _new_target(target)
        with _LOCK:
            result = _INSTANCES.setdefault(key, instance)
    return result
