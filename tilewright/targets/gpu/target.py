"""Base class of the GPU targets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tilewright.base.lazy_import import lazy_import
from tilewright.targets.base_backend import BaseBackend
from tilewright.targets.protocol import Lowered

if TYPE_CHECKING:  # a kernel loaded from the disk cache needs no passes
    from tilewright.frontend import options as frontend_options
    from tilewright.frontend.options import FrontendOptions
    from tilewright.ir.core import Module
    from tilewright.ir.machine import GpuMachine
    from tilewright.ir.passes import PassContext, Step
    from tilewright.lowering.simt.hardware import Hardware
    from tilewright.targets.gpu import codegen, compilation, steps
    from tilewright.targets.gpu.codegen import Declaration, ThreadCode
    from tilewright.targets.gpu.compilation import MachineCode
else:
    frontend_options = lazy_import("tilewright.frontend.options")
    codegen = lazy_import("tilewright.targets.gpu.codegen")
    compilation = lazy_import("tilewright.targets.gpu.compilation")
    steps = lazy_import("tilewright.targets.gpu.steps")


class GpuTarget(BaseBackend):
    """A target whose programs are executed by several threads of a GPU.

    The tile IR of a module becomes the code of one thread, which is common to all GPUs
    (`lowering/simt`), with the instructions of `hardware`. `machine_code` is the rest of the way.
    """

    tile_ir = ("ttir", "ttgir")

    def features(self) -> frozenset[str]:
        """Names of the GPU's features: `async_copy`, for asynchronous copies to shared memory, and
        those that are conditions of the target's own steps (`Step.when`)."""
        return frozenset()

    def frontend_options_of(self, options: Any, **own: Any) -> FrontendOptions:
        """The front end's options, of those of a kernel that have the same names, and the target's
        own."""
        return frontend_options.FrontendOptions(
            supported_fp8_dtypes=options.supported_fp8_dtypes,
            deprecated_fp8_dot_operand_dtypes=options.deprecated_fp8_dot_operand_dtypes,
            default_dot_input_precision=options.default_dot_input_precision,
            allowed_dot_input_precisions=options.allowed_dot_input_precisions,
            max_num_imprecise_acc_default=options.max_num_imprecise_acc_default,
            debug=options.debug,
            sanitize_overflow=options.sanitize_overflow,
            lanes=self.gpu_machine(options).lanes,
            num_warps=options.num_warps,
            num_stages=options.num_stages,
            enable_fp_fusion=options.enable_fp_fusion,
            backend_name=self.name,
            arch=options.arch,
            **own,
        )

    def gpu_machine(self, options: Any) -> GpuMachine:
        """The GPU, and the number of threads of a program, for a kernel with these options."""
        raise NotImplementedError

    def steps(self) -> Sequence[Step]:
        """The steps common to all GPUs."""
        return steps.steps()

    def hardware(self, options: Any, gpu: GpuMachine) -> Hardware:
        """The GPU's instructions, for a kernel with these options."""
        raise NotImplementedError

    def declaration(self, options: Any, gpu: GpuMachine, threads: int) -> Declaration:
        """The declaration in LLVM IR of a kernel whose programs have `threads` threads."""
        return codegen.Declaration()

    def may_outnumber(self, other: ThreadCode, code: ThreadCode, options: Any) -> bool:
        """Whether more programs of a variant without a pass of `PassContext.before` may be
        resident, and make it faster."""
        return False

    def machine_code(self, code: ThreadCode, ctx: PassContext, options: Any) -> MachineCode:
        """The stages from the code of a thread on, and the metadata of the launch."""
        raise NotImplementedError

    def compile(self, module: Module, ctx: PassContext, options: Any) -> Lowered:
        """Generate code for a module after all passes."""
        return compilation.compile_module(self, module, ctx, options)
