"""The CPU target: options and stages; implements `targets/protocol.py`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tilewright.base import knobs
from tilewright.base.lazy import cached_property
from tilewright.base.lazy_import import lazy_import
from tilewright.base.llvm_version import llvm_version
from tilewright.targets.base_backend import BaseBackend
from tilewright.targets.cpu.host import host_machine
from tilewright.targets.cpu.machine import Machine
from tilewright.targets.cpu.name import NAME
from tilewright.targets.protocol import Lowered, Resource, Stage, options_from

# Imported lazily: a kernel loaded from the disk cache needs only the target's key.
if TYPE_CHECKING:
    from tilewright.base.findings import Finding
    from tilewright.frontend import options as frontend_options
    from tilewright.frontend.options import FrontendOptions
    from tilewright.ir.core import Module
    from tilewright.ir.passes import PassContext, Step
    from tilewright.targets.cpu import (
        codegen,
        debug,
        doctor,
        emit,
        export,
        nativert,
        pipeline,
        resources,
    )
    from tilewright.targets.export import Export
else:
    emit = lazy_import("tilewright.targets.cpu.emit")
    frontend_options = lazy_import("tilewright.frontend.options")
    codegen = lazy_import("tilewright.targets.cpu.codegen")
    debug = lazy_import("tilewright.targets.cpu.debug")
    doctor = lazy_import("tilewright.targets.cpu.doctor")
    export = lazy_import("tilewright.targets.cpu.export")
    pipeline = lazy_import("tilewright.targets.cpu.pipeline")
    nativert = lazy_import("tilewright.targets.cpu.nativert")
    resources = lazy_import("tilewright.targets.cpu.resources")


@dataclass(frozen=True)  # without slots: programs read its __dict__
class CpuOptions:
    """Options of a kernel on the CPU.

    A program is executed by one thread, so `num_warps`, `num_stages`, `num_ctas` and `maxnreg` have
    no effect; they are accepted because kernels tuned for GPUs set them.

    Attributes:
        enable_fp_fusion: whether a product and a sum may be contracted, with one rounding.
        num_cpu_threads: threads that execute the grid; 0 for one per core.
        single_threaded: whether launches run on one thread, and no other thread accesses the
            memory of their atomics meanwhile. Relaxed atomic additions are then ordinary ones.
        launch_cooperative_grid: whether all programs run at the same time, each on its own thread,
            so that they may wait for each other.
    """

    num_warps: int = 4
    num_stages: int = 3
    num_ctas: int = 1
    maxnreg: int | None = None
    debug: bool = False
    sanitize_overflow: bool = False
    enable_fp_fusion: bool = True
    num_cpu_threads: int = 0
    single_threaded: bool = False
    launch_cooperative_grid: bool = False


class CpuTarget(BaseBackend):
    """Compiles tile IR to object code with LLVM.

    Args:
        arch: LLVM's name of the processor; "" for this one.
    """

    name = NAME
    without_effect = frozenset({"num_warps", "num_stages", "num_ctas", "maxnreg"})

    def __init__(self, arch: int | str = "") -> None:
        self.arch = str(arch)

    @cached_property
    def machine(self) -> Machine:
        cpu = self.arch or knobs.compilation.cpu_name
        return host_machine(cpu or None, knobs.compilation.cpu_features or None)

    def key(self) -> str:
        machine = self.machine
        named = f"{machine.triple} {machine.cpu} {machine.feature_text}"
        return f"cpu llvm-{llvm_version()} {named} {machine.cache_bytes} {machine.vector_bytes}"

    def features(self) -> frozenset[str]:
        return frozenset({"fma"} if self.machine.has_fma else ())

    def parse_options(self, given: Mapping[str, Any]) -> CpuOptions:
        return options_from(CpuOptions, given)

    def frontend_options(self, options: CpuOptions) -> FrontendOptions:
        return frontend_options.FrontendOptions(
            backend_name=self.name,
            default_dot_input_precision="ieee",
            debug=options.debug,
            sanitize_overflow=options.sanitize_overflow,
            num_warps=options.num_warps,
            num_stages=options.num_stages,
            enable_fp_fusion=options.enable_fp_fusion,
        )

    def steps(self) -> Sequence[Step]:
        return pipeline.STEPS

    def compile(self, module: Module, ctx: PassContext, options: CpuOptions) -> Lowered:
        text, scratch = codegen.generate(
            module,
            self.machine,
            fp_fusion=options.enable_fp_fusion,
            single_threaded=options.single_threaded,
            ctx=ctx,
        )
        optimised, code = emit.compile_text(ctx.replaced_text("llir") or text, self.machine)
        code = ctx.replacement("obj") or code
        metadata = {
            "name": module.entry.name,
            "scratch_bytes": scratch,
            "shared": 0,
            "host_calls": debug.host_calls(module),
        }
        return Lowered({"llir": optimised, "obj": code}, metadata)

    def derive(self, stage: str, stages: Mapping[str, Stage], metadata: Mapping[str, Any]) -> Stage:
        if stage == "plan":
            return codegen.plan_text(str(stages["ttir"]))
        if stage in nativert.STAGES:
            code = stages["obj"]
            assert isinstance(code, bytes)
            return nativert.shared_object(stage, code, metadata)
        if stage != "asm":
            raise KeyError(stage)
        return emit.assembly(str(stages["llir"]), self.machine)

    def export(
        self, stages: Mapping[str, Stage], metadata: Mapping[str, Any], request: Export
    ) -> dict[str, bytes]:
        """Files by which C programs call a kernel; see `targets/export.py`."""
        return export.export(self.machine, stages, metadata, request)

    def examine(self) -> Iterable[Finding]:
        """Findings about the installation, for `python -m tilewright doctor`."""
        return doctor.examine(self.machine)

    def resources(
        self, stages: Mapping[str, Stage], metadata: Mapping[str, Any]
    ) -> Sequence[Resource]:
        return resources.resources_of(self.machine, str(stages.get("asm", "")), metadata)
