"""The interface of a target's compiler, which turns tile IR into code.

Targets are registered by name in `targets/registry.py`. Launchers and drivers are separate, in
`runtime/`, so that a machine without the device can compile for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

from tilewright.base import knobs
from tilewright.base.plug_ins import TARGETS, load_plug_in, plug_ins
from tilewright.base.record import field, record
from tilewright.base.spelling import similar

if TYPE_CHECKING:  # `GPUTarget` must be available without loading the compiler
    from tilewright.frontend.options import FrontendOptions
    from tilewright.ir.core import Module
    from tilewright.ir.machine import GpuMachine
    from tilewright.ir.passes import PassContext, Step


INTERFACE = 1
"""The version of this interface, to which the attribute `interface` of a target refers."""

Stage = str | bytes
AnyOptions = TypeVar("AnyOptions")


@dataclass(frozen=True, slots=True)
class GPUTarget:
    """A device to compile for, as users write it: ``GPUTarget("cuda", 90, 32)``.

    Attributes:
        backend: the target's name: ``cpu``, ``interpreter``, ``cuda``, …
        arch: the target's name of the architecture; for ``cpu``, the LLVM name of the processor,
            or "" for that of this machine.
        warp_size: lanes of a warp; 1 on targets without warps.
    """

    backend: str
    arch: int | str = ""
    warp_size: int = 1


@record
class Lowered:
    """The result of compiling a module.

    Attributes:
        stages: forms of the code by name, in the order of compilation; the last is the one to load.
            Text is str, binaries are bytes.
        metadata: data for the launcher, also available as `CompiledKernel.metadata`. Serialised as
            JSON, so of None, bool, int, float, str, lists and dicts only. Must contain ``name``,
            the symbol of the kernel in the last stage.
    """

    stages: dict[str, Stage]
    metadata: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Resource:
    """The use of a limited resource of the device by a kernel.

    Attributes:
        name: the resource.
        used: the amount that the kernel uses.
        limit: the amount available to it; None if there is no limit.
        unit: ``bytes``, ``%`` or "".
        note: an explanation of the consequences.
        missed: whether using less would make the kernel faster, or make it run at all.
    """

    name: str
    used: float
    limit: float | None = None
    unit: str = ""
    note: str = ""
    missed: bool = False


LEVELS = ("0", "1", "2", "3", "4", "5", "R", "F")
"""The levels of the conformance suite (docs/conformance.md)."""


@dataclass(frozen=True, slots=True)
class Claims:
    """The claimed support of a target, verified by `python -m tilewright conformance`: claimed
    cases must work, and others must be rejected with a `TilewrightError`.

        Claims(levels=("0", "1"), types=("i32", "fp32"), without=("x / y",))

    Attributes:
        levels: of the conformance suite, of `LEVELS`.
        types: element types of values, in short form; None for all.
        products: element types of the operands of `tl.dot`; None for those of `types`.
        atomics: element types of atomic operations; None for those of `types`.
        without: features, as the suite names them, that are not supported.
    """

    levels: tuple[str, ...] = LEVELS
    types: tuple[str, ...] | None = None
    products: tuple[str, ...] | None = None
    atomics: tuple[str, ...] | None = None
    without: tuple[str, ...] = ()


@runtime_checkable
class HasClaims(Protocol):
    """A target that does not claim to support everything."""

    def claims(self) -> Claims:
        """What the target supports."""
        ...


@runtime_checkable
class HasGpuMachine(Protocol):
    """A GPU target, whose passes depend on the number of threads (`PassContext.gpu`)."""

    def gpu_machine(self, options: Any) -> GpuMachine:
        """The GPU, and the number of threads of a program, for a kernel with these options."""
        ...


@runtime_checkable
class ReportsResources(Protocol):
    """A target that reports the resource usage of its kernels."""

    def resources(
        self, stages: Mapping[str, Stage], metadata: Mapping[str, Any]
    ) -> Sequence[Resource]:
        """The resource usage of a compiled kernel, the most significant first."""
        ...


class Target(Protocol):
    """The compile side of a backend.

    There is one instance per architecture, shared between threads, so it must not hold the state of
    a compilation.

    An optional attribute `interface` is the version of this interface that a plug-in was written
    for (`INTERFACE`); another version is reported when the target is loaded. An optional attribute
    `tile_ir` names the stages that are the tile IR after all passes (`TILE_IR` by default). An
    optional attribute `without_effect` names options that the target accepts, but that do not
    affect its code; tuning does not compare configurations that differ only in these. An optional
    method `claims` returns what it supports (`Claims`), if that is not everything. An optional
    method `export`, an `Exporter` (`targets/export.py`), writes a kernel to files that C programs
    call; an optional attribute `export_options` has options of such kernels, which turn off what a
    launch from C cannot provide. An optional method `examine` returns findings
    (`base/findings.py`) about the installation, which `python -m tilewright doctor` prints.
    """

    name: str

    def key(self) -> str:
        """The target's part of the cache key: processor, features, version of LLVM."""
        ...

    def features(self) -> frozenset[str]:
        """Names of the target's features, tested by `Step.when`."""
        ...

    def parse_options(self, given: Mapping[str, Any]) -> Any:
        """The options of a kernel, a frozen dataclass, from those that the user passes.

        Raises:
            KeyError: a name is not an option of the target (see `options_from`).
        """
        ...

    def frontend_options(self, options: Any) -> FrontendOptions:
        """The parameters of the front end that depend on the target and the options."""
        ...

    def steps(self) -> Sequence[Step]:
        """The target's passes on tile IR, run after those of `compiler/pipeline.py`."""
        ...

    def compile(self, module: Module, ctx: PassContext, options: Any) -> Lowered:
        """Generate code for a module after all passes. May modify the module."""
        ...

    def derive(self, stage: str, stages: Mapping[str, Stage], metadata: Mapping[str, Any]) -> Stage:
        """A stage that is computed only on request, such as disassembly.

        Raises:
            KeyError: there is no such stage.
        """
        ...


TILE_IR = ("ttir",)
"""The stages that are the tile IR after all passes, unless a target names others."""


def checked(lowered: Any, target: Target) -> Lowered:
    """The result of a target's `compile`.

    Raises:
        TypeError: it is not complete.
    """
    fault = _fault_of(lowered)
    if fault:
        raise TypeError(f"`compile` of the target {target.name} returns {fault}")
    return lowered


def _fault_of(lowered: Any) -> str:
    """The fault of the result of a target; "" if there is none."""
    if not isinstance(lowered, Lowered):
        return f"{lowered!r}, not a Lowered"
    if not lowered.stages:
        return "no stages"
    metadata: Any = lowered.metadata
    content: Any
    for stage, content in lowered.stages.items():
        if not isinstance(content, str | bytes):
            return f"a stage `{stage}` that is neither text nor bytes, but {content!r}"
    if not isinstance(metadata, dict):
        return f"metadata that is no dictionary, but {metadata!r}"
    if not isinstance(lowered.metadata.get("name"), str):
        return "metadata without `name`, the kernel's symbol"
    return ""


class UnknownOptionError(KeyError):
    """A launch keyword that is neither a parameter nor an option.

    Args:
        name: the keyword.
        known: the options.
        parameters: the kernel's parameters, if known.
    """

    def __init__(self, name: str, known: Iterable[str], parameters: Iterable[str] = ()) -> None:
        self.name, self.known, self.parameters = name, tuple(known), tuple(parameters)
        super().__init__(name, self.known, self.parameters)

    def __str__(self) -> str:
        parts = [f"Keyword argument {self.name} was specified but unrecognised"]
        if self.parameters:
            parts.append(f"the kernel's parameters are ({', '.join(self.parameters)})")
        near = similar(self.name, sorted([*self.known, *self.parameters]), 1)
        return "; ".join([*parts, *[f"did you mean {n}?" for n in near]])


OPTIONS_OF_OTHER_TARGETS = frozenset({
    "allow_flush_denorm", "allowed_dot_input_precisions", "arch", "assume_in_bounds",
    "backend_name", "clc", "default_dot_input_precision", "deprecated_fp8_dot_operand_dtypes",
    "enable_fast_math", "enable_reflect_ftz", "extern_libs", "instrumentation_mode", "ir_override",
    "kpack", "launch_pdl", "matrix_instr_nonkdim", "max_num_imprecise_acc_default", "maxnreg",
    "min_shared_mem", "num_cpu_threads", "num_ctas", "ptx_options", "ptx_version", "sched4reg",
    "schedule_hint", "single_threaded", "supported_fp8_dtypes", "ukernels", "vec_lib", "warp_size",
    "waves_per_eu",
})  # fmt: skip
"""Options of Triton's back ends. A target without one of them ignores it, so that a list of
configurations for several devices works on each. Options of plug-ins are ignored by other targets,
too (`options_of_plug_ins`)."""


def options_of_plug_ins() -> frozenset[str]:
    """The options of the targets of other packages, of those that can be used."""
    result: set[str] = set()
    for name in plug_ins(TARGETS):
        with suppress(Exception):  # a faulty plug-in is an error where it is used
            result.update(options_dict(load_plug_in(TARGETS, name)().parse_options({})))
    return frozenset(result)


def options_without_effect(target: Target) -> frozenset[str]:
    """The options that a target accepts, but that do not affect its code: those that it ignores,
    and those of its attribute `without_effect`, if it has one."""
    accepted = options_dict(target.parse_options({})).keys()
    # A replacement of the IR is an error where it is ignored.
    ignored = OPTIONS_OF_OTHER_TARGETS - accepted - {"ir_override"}
    return ignored | getattr(target, "without_effect", frozenset[str]())


def options_from(cls: type[AnyOptions], given: Mapping[str, Any]) -> AnyOptions:
    """An instance of an options dataclass from the given values.

        options_from(CpuOptions, {"num_warps": 8})

    The default of a field `enable_fp_fusion` is that of the settings of that name.

    Raises:
        KeyError: a name is not a field of `cls`.
        TypeError: the value of an integer option is not an integer.
        AssertionError: `num_warps` is not a power of two.
    """
    known = {f.name: f.default for f in fields(cls)}  # pyright: ignore[reportArgumentType]
    given = {n: v for n, v in given.items() if n in known or not _is_ignored(n, v)}
    for name, value in given.items():
        if name not in known:
            raise UnknownOptionError(name, [*known, *OPTIONS_OF_OTHER_TARGETS])
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


def _is_ignored(name: str, value: Any) -> bool:
    """Whether an unknown option has no meaning on a target. An option that replaces the IR would
    have one."""
    if name == "ir_override":
        return value is None
    return name in OPTIONS_OF_OTHER_TARGETS or name in options_of_plug_ins()


def options_dict(options: Any) -> dict[str, Any]:
    """The fields of an options dataclass."""
    return {f.name: getattr(options, f.name) for f in fields(options)}
