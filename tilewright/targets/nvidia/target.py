"""The NVIDIA target: options, stages and launch metadata; implements `targets/protocol.py`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from tilewright.base import knobs
from tilewright.base.lazy_import import lazy_import
from tilewright.base.llvm_version import llvm_version
from tilewright.frontend.defaults import FP8_TYPES
from tilewright.targets.gpu.target import GpuTarget
from tilewright.targets.nvidia.assemble import Ptxas, find_assembler
from tilewright.targets.nvidia.features import (
    DEFAULT_ARCH,
    MAX_REGISTERS,
    REGISTERS,
    UNROLLED_WORK,
    WARP_SIZE,
    Processor,
    processor,
)
from tilewright.targets.nvidia.name import NAME
from tilewright.targets.nvidia.options import CudaOptions, check_options
from tilewright.targets.nvidia.toolkit import find_program
from tilewright.targets.protocol import Resource, Stage, options_from

if TYPE_CHECKING:  # a kernel loaded from the disk cache needs only the key
    from tilewright.base.findings import Finding
    from tilewright.frontend.options import FrontendOptions
    from tilewright.ir import machine
    from tilewright.ir.machine import GpuMachine
    from tilewright.ir.passes import PassContext, Step
    from tilewright.ir.types import DType
    from tilewright.lowering.simt.hardware import Hardware
    from tilewright.targets.export import Export
    from tilewright.targets.gpu.codegen import Declaration, ThreadCode
    from tilewright.targets.gpu.compilation import MachineCode
    from tilewright.targets.nvidia import (
        codegen,
        compilation,
        disassemble,
        doctor,
        export,
        resources,
        steps,
    )
else:
    steps = lazy_import("tilewright.targets.nvidia.steps")
    machine = lazy_import("tilewright.ir.machine")
    codegen = lazy_import("tilewright.targets.nvidia.codegen")
    compilation = lazy_import("tilewright.targets.nvidia.compilation")
    resources = lazy_import("tilewright.targets.nvidia.resources")
    disassemble = lazy_import("tilewright.targets.nvidia.disassemble")
    doctor = lazy_import("tilewright.targets.nvidia.doctor")
    export = lazy_import("tilewright.targets.nvidia.export")


class NvidiaTarget(GpuTarget):
    """Compiles tile IR to cubins, or to PTX without an assembler. Requires no GPU.

    Args:
        arch: compute capability without the dot, such as 90. The setting `runtime.override_arch`
            overrides it.
    """

    name = NAME
    export_options = MappingProxyType({"tensor_copies": False})

    def __init__(self, arch: int | str = DEFAULT_ARCH) -> None:
        self._own = processor(arch)

    @property
    def processor(self) -> Processor:
        """The architecture to compile for: that of the setting `runtime.override_arch`, or else the
        target's own.

        Raises:
            ValueError: the setting is not the name of an architecture, such as ``sm90``.
        """
        override = knobs.runtime.override_arch
        if override is None:
            return self._own
        if not re.fullmatch(r"sm\d+", override):
            raise ValueError(f"the setting override_arch must be as `sm90`, not {override!r}")
        return processor(override)

    def key(self) -> str:
        chip = self.processor
        assembler = find_assembler() if chip.assembles else None
        maker = f"{assembler.name}-{assembler.version()}" if assembler else "driver"
        return f"cuda llvm-{llvm_version()} {chip.llvm_cpu} ptx-{chip.ptx_version} {maker}"

    def features(self) -> frozenset[str]:
        return self.processor.features

    def _fp8_types(self) -> tuple[str, ...]:
        """The fp8 types that a kernel may use."""
        if not knobs.language.strict_triton:
            return FP8_TYPES
        return (*self.processor.fp8_types, "fp8e4b15")

    def _overlaps_launches(self) -> bool:
        """Whether launches overlap where a kernel does not specify it."""
        return knobs.nvidia.overlap_launches and "dependent_launch" in self.processor.features

    def parse_options(self, given: Mapping[str, Any]) -> CudaOptions:
        """The complete options of a kernel, checked.

        Raises:
            KeyError: a name is not an option.
            AssertionError: `num_warps` is not a power of two.
            ValueError: the architecture does not support a value.
        """
        chip = self.processor
        of_chip: dict[str, Any] = {
            "arch": f"sm{chip.capability}",
            "launch_pdl": None if self._overlaps_launches() else False,
            "tensor_copies": knobs.nvidia.tensor_copies,
            "random_delays": knobs.nvidia.random_delays,
            "supported_fp8_dtypes": self._fp8_types(),
            "deprecated_fp8_dot_operand_dtypes": chip.deprecated_fp8_operands,
            "max_num_imprecise_acc_default": chip.imprecise_accumulation,
        }
        options = options_from(CudaOptions, of_chip | dict(given))
        check_options(options, chip)
        return options

    def frontend_options(self, options: CudaOptions) -> FrontendOptions:
        return self.frontend_options_of(
            options,
            min_dot_size=min_dot_size,
            assembly="PTX",
            native_descriptors="tma" in self.features(),
        )

    def gpu_machine(self, options: CudaOptions) -> GpuMachine:
        return machine.GpuMachine(
            target=self.name,
            title="NVIDIA GPUs",
            lanes=WARP_SIZE,
            warps=options.num_warps,
            registers=REGISTERS,
            thread_registers=MAX_REGISTERS,
            shared_bytes=self.processor.shared_limit,
            access_bytes=self.processor.access_bytes,
            unrolled_work=UNROLLED_WORK,
        )

    def steps(self) -> Sequence[Step]:
        return steps.steps()

    def hardware(self, options: CudaOptions, gpu: GpuMachine) -> Hardware:
        return codegen.hardware(self.processor, gpu)

    def declaration(self, options: CudaOptions, gpu: GpuMachine, threads: int) -> Declaration:
        return codegen.declaration(options, gpu, threads)

    def may_outnumber(self, other: ThreadCode, code: ThreadCode, options: CudaOptions) -> bool:
        return compilation.may_outnumber(other, code, self.processor, options)

    def machine_code(self, code: ThreadCode, ctx: PassContext, options: CudaOptions) -> MachineCode:
        return compilation.machine_code(code, self.processor, ctx, options)

    def derive(self, stage: str, stages: Mapping[str, Stage], metadata: Mapping[str, Any]) -> Stage:
        cubin = stages.get("cubin")
        if stage != "sass" or not isinstance(cubin, bytes):
            raise KeyError(stage)
        if disassemble.find_disassembler() is None:
            raise KeyError(stage)
        return disassemble.sass(cubin)

    def export(
        self, stages: Mapping[str, Stage], metadata: Mapping[str, Any], request: Export
    ) -> dict[str, bytes]:
        """Files by which C programs call a kernel; see `targets/export.py`."""
        return export.export(stages, metadata, request)

    def tool(self, name: str) -> tuple[str, str] | None:
        """Path and version of a program of the CUDA toolkit; None if it is not installed."""
        settings = {"ptxas": knobs.nvidia.ptxas_path, "nvdisasm": knobs.nvidia.nvdisasm_path}
        path = find_program(name, settings.get(name))
        return None if path is None else (path, Ptxas(path).version())

    def examine(self) -> Iterable[Finding]:
        """Findings about the installation, for `python -m tilewright doctor`."""
        return doctor.examine()

    def resources(
        self, stages: Mapping[str, Stage], metadata: Mapping[str, Any]
    ) -> Sequence[Resource]:
        return resources.resources_of(self.processor, metadata)


def min_dot_size(lhs: DType, rhs: DType) -> tuple[int, int, int]:
    """The minimum (M, N, K) of a dot; K is that of a matrix instruction, 32 bytes."""
    return 1, 1, {8: 32, 16: 16, 32: 8, 64: 4}[lhs.primitive_bitwidth]
