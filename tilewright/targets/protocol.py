"""What a target's compiler is: the eight members that turn tile IR into code.

A target is named where it is registered (`targets/registry.py`); its launcher and driver are
apart, in `runtime/devices/`, so that a machine without the device can still compile for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

from tilewright.base import knobs
from tilewright.base.late import late

if TYPE_CHECKING:  # describing a device must not load the compiler
    from tilewright.frontend.options import FrontendOptions
    from tilewright.ir.core import Module
    from tilewright.ir.machine import GpuMachine
    from tilewright.ir.passes import PassContext, Step

get_close_matches = late("difflib:get_close_matches")

Stage = str | bytes
AnyOptions = TypeVar("AnyOptions")


@dataclass(frozen=True, slots=True)
class GPUTarget:
    """A device to compile for, as users write it: ``GPUTarget("cuda", 90, 32)``.

    Attributes:
        backend: the target's name: ``cpu``, ``interpreter``, ``cuda``, …
        arch: the target's own name of the architecture; for ``cpu``, the LLVM name of the
            processor, or "" for the present one.
        warp_size: lanes that run in step; 1 where there is no such thing.
    """

    backend: str
    arch: int | str = ""
    warp_size: int = 1


@dataclass(frozen=True, slots=True)
class Lowered:
    """What a target makes of a module.

    Attributes:
        stages: forms of the code by name, in the order in which they were made; the last is the
            one that is loaded. Text is str, binaries are bytes.
        metadata: facts that the launcher needs and `CompiledKernel.metadata` shows. Plain data
            (None, bool, int, float, str, lists and dicts of these), as it is stored as JSON.
            Must hold ``name``, the symbol of the kernel in the last stage.
    """

    stages: dict[str, Stage]
    metadata: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Resource:
    """Something of which a device has little, and what a kernel takes of it.

    Attributes:
        name: what it is.
        used: how much the kernel takes.
        limit: how much there is for it; None where there is no such number.
        unit: what it is counted in: ``bytes``, ``%`` or "".
        note: what follows from it, in words.
        missed: whether less of it would make the kernel faster, or make it run at all.
    """

    name: str
    used: float
    limit: float | None = None
    unit: str = ""
    note: str = ""
    missed: bool = False


@runtime_checkable
class HasGpuMachine(Protocol):
    """A target for GPUs, whose passes must know how many threads there are (`PassContext.gpu`)."""

    def gpu_machine(self, options: Any) -> GpuMachine:
        """The GPU, and how many of its threads run a program, for a kernel with these options."""
        ...


@runtime_checkable
class TellsResources(Protocol):
    """A target that can say what its kernels take of a device."""

    def resources(
        self, stages: Mapping[str, Stage], metadata: Mapping[str, Any]
    ) -> Sequence[Resource]:
        """What a compiled kernel takes, the most telling first."""
        ...


class Target(Protocol):
    """The compile side of a backend.

    Instances are made once per architecture and shared between threads, so they hold no state
    of a compilation.

    One may have a method `examine` besides, which gives findings (`base/findings.py`) about what
    it needs on this machine: `python -m tilewright doctor` tells them.
    """

    name: str

    def key(self) -> str:
        """Everything of the target that changes the code: processor, features, LLVM's version."""
        ...

    def features(self) -> frozenset[str]:
        """Names of what the target has, which `Step.when` tests."""
        ...

    def parse_options(self, given: Mapping[str, Any]) -> Any:
        """The options of a kernel, a frozen dataclass, from what the user gave.

        Raises:
            KeyError: for a name that the target does not know; `options_from` does it.
        """
        ...

    def frontend_options(self, options: Any) -> FrontendOptions:
        """What the front end must know of the target and the options."""
        ...

    def steps(self) -> Sequence[Step]:
        """Tile passes that follow those of `compiler/pipeline.py`."""
        ...

    def compile(self, module: Module, ctx: PassContext, options: Any) -> Lowered:
        """Code for a module after the tile passes. May change the module."""
        ...

    def derive(self, stage: str, stages: Mapping[str, Stage], metadata: Mapping[str, Any]) -> Stage:
        """A stage that `compile` did not make because only readers need it, such as assembly.

        Raises:
            KeyError: when there is no such stage.
        """
        ...


class UnknownOptionError(KeyError):
    """A launch keyword that is neither a parameter nor one of the known options.

    Args:
        name: the keyword.
        known: the options.
        parameters: those of the kernel, where it is known.
    """

    def __init__(self, name: str, known: Iterable[str], parameters: Iterable[str] = ()) -> None:
        self.name, self.known, self.parameters = name, tuple(known), tuple(parameters)
        super().__init__(name, self.known, self.parameters)

    def __str__(self) -> str:
        parts = [f"Keyword argument {self.name} was specified but unrecognised"]
        if self.parameters:
            parts.append(f"the kernel's parameters are ({', '.join(self.parameters)})")
        near = get_close_matches(self.name, sorted([*self.known, *self.parameters]), 1)
        return "; ".join([*parts, *[f"did you mean {n}?" for n in near]])


def options_from(cls: type[AnyOptions], given: Mapping[str, Any]) -> AnyOptions:
    """An instance of an options dataclass from the given values.

        options_from(CpuOptions, {"num_warps": 8})

    A field `enable_fp_fusion` follows the settings of that name.

    Raises:
        KeyError: for a name that is no field of `cls`.
        TypeError: for a value that is no int where the option is one.
        AssertionError: when `num_warps` is not a power of two.
    """
    known = {f.name: f.default for f in fields(cls)}  # pyright: ignore[reportArgumentType]
    for name, value in given.items():
        if name not in known:
            raise UnknownOptionError(name, known)
        if type(known[name]) is int and value is not None and not hasattr(value, "__index__"):
            raise TypeError(f"the compile option {name} is an int, not {value!r}")
    warps = given.get("num_warps")
    assert warps is None or (warps > 0 and warps & (warps - 1) == 0), (
        f"num_warps must be a power of 2, not {warps}"
    )
    values = dict(given)
    if "enable_fp_fusion" in known:
        fusion = values.get("enable_fp_fusion", knobs.language.default_fp_fusion)
        values["enable_fp_fusion"] = fusion and not knobs.language.force_disable_fp_fusion
    return cls(**values)


def options_dict(options: Any) -> dict[str, Any]:
    """The fields of an options dataclass."""
    return {f.name: getattr(options, f.name) for f in fields(options)}
