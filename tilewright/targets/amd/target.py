"""The AMD target: options, stages and launch metadata; implements `targets/protocol.py`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tilewright.base.lazy_import import lazy_import
from tilewright.base.llvm_version import llvm_version
from tilewright.frontend.defaults import FP8_TYPES
from tilewright.targets.amd.features import (
    DEFAULT_ARCH,
    PREFETCH_WORK,
    VECTOR_REGISTERS,
    processor,
)
from tilewright.targets.amd.name import NAME
from tilewright.targets.amd.options import HipOptions, check_options
from tilewright.targets.gpu.target import GpuTarget
from tilewright.targets.protocol import Resource, Stage, options_from

if TYPE_CHECKING:  # a kernel loaded from the disk cache needs only the key
    from tilewright.frontend.options import FrontendOptions
    from tilewright.ir import machine
    from tilewright.ir.machine import GpuMachine
    from tilewright.ir.passes import PassContext, Step
    from tilewright.lowering.simt.hardware import Hardware
    from tilewright.targets.amd import codegen, compilation, emit, resources, steps
    from tilewright.targets.gpu.codegen import Declaration, ThreadCode
    from tilewright.targets.gpu.compilation import MachineCode
else:
    machine = lazy_import("tilewright.ir.machine")
    codegen = lazy_import("tilewright.targets.amd.codegen")
    compilation = lazy_import("tilewright.targets.amd.compilation")
    emit = lazy_import("tilewright.targets.amd.emit")
    resources = lazy_import("tilewright.targets.amd.resources")
    steps = lazy_import("tilewright.targets.amd.steps")


class AmdTarget(GpuTarget):
    """Compiles tile IR to code objects. Requires neither a GPU nor ROCm.

    Args:
        arch: the processor, such as ``gfx942``.
    """

    name = NAME
    without_effect = frozenset({"launch_cooperative_grid"})

    def __init__(self, arch: str = DEFAULT_ARCH) -> None:
        self.processor = processor(arch)

    def key(self) -> str:
        return f"{NAME} llvm-{llvm_version()} {self.processor.name}"

    def features(self) -> frozenset[str]:
        return self.processor.features

    def parse_options(self, given: Mapping[str, Any]) -> HipOptions:
        """The complete options of a kernel, checked.

        Raises:
            KeyError: a name is not an option.
            AssertionError: `num_warps` is not a power of two.
            ValueError: the processor does not support a value.
        """
        of_chip: dict[str, Any] = {
            "arch": self.processor.name,
            "warp_size": self.processor.lanes,
            "supported_fp8_dtypes": FP8_TYPES,
        }
        options = options_from(HipOptions, of_chip | dict(given))
        check_options(options, self.processor)
        return options

    def frontend_options(self, options: HipOptions) -> FrontendOptions:
        return self.frontend_options_of(options)

    def gpu_machine(self, options: HipOptions) -> GpuMachine:
        return machine.GpuMachine(
            target=self.name,
            title="AMD GPUs",
            lanes=self.processor.lanes,
            warps=options.num_warps,
            registers=self.processor.registers,
            thread_registers=VECTOR_REGISTERS,
            shared_bytes=self.processor.shared_limit,
            prefetch_work=PREFETCH_WORK,
        )

    def steps(self) -> Sequence[Step]:
        return steps.steps()

    def hardware(self, options: HipOptions, gpu: GpuMachine) -> Hardware:
        return codegen.hardware(self.processor)

    def declaration(self, options: HipOptions, gpu: GpuMachine, threads: int) -> Declaration:
        return codegen.declaration(options, threads)

    def machine_code(self, code: ThreadCode, ctx: PassContext, options: HipOptions) -> MachineCode:
        return compilation.machine_code(code, self.processor, ctx, options)

    def derive(self, stage: str, stages: Mapping[str, Stage], metadata: Mapping[str, Any]) -> Stage:
        llir = stages.get("llir")
        if stage != "amdgcn" or not isinstance(llir, str):
            raise KeyError(stage)
        return emit.assembly_of(llir, metadata["arch"])

    def resources(
        self, stages: Mapping[str, Stage], metadata: Mapping[str, Any]
    ) -> Sequence[Resource]:
        return resources.resources_of(self.processor, metadata)
