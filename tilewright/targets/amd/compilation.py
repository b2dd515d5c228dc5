"""The code of one thread → object file → code object."""

from __future__ import annotations

from typing import Any

from tilewright.base.diagnostics import OutOfResources
from tilewright.ir.passes import PassContext
from tilewright.targets.amd.code_object import link
from tilewright.targets.amd.emit import compile_text
from tilewright.targets.amd.features import Processor
from tilewright.targets.amd.kernel_note import kernels
from tilewright.targets.amd.options import HipOptions
from tilewright.targets.gpu.codegen import ThreadCode
from tilewright.targets.gpu.compilation import MachineCode
from tilewright.targets.protocol import Lowered


def machine_code(
    code: ThreadCode, chip: Processor, ctx: PassContext, options: HipOptions
) -> MachineCode:
    """Generate the code object.

    Raises:
        OutOfResources: the kernel takes more LDS than a work-group has; LLVM would end the process.
    """
    if code.shared_bytes > chip.shared_limit:
        raise OutOfResources(code.shared_bytes, chip.shared_limit, "shared memory")
    llir, made = compile_text(ctx.replaced_text("llir") or code.llvm, chip)
    hsaco = ctx.replacement("hsaco")
    hsaco = link(made) if hsaco is None else hsaco
    facts = launch_facts(code, chip, options) | resource_facts(made)
    return MachineCode(Lowered({"llir": llir, "hsaco": hsaco}, facts), code.loc)


def launch_facts(code: ThreadCode, chip: Processor, options: HipOptions) -> dict[str, Any]:
    """The launch metadata of a kernel."""
    return {
        "name": code.name,
        "shared": code.shared_bytes,
        "num_warps": options.num_warps,
        "num_ctas": 1,
        "warp_size": chip.lanes,
        "arch": chip.name,
    }


def resource_facts(made: bytes) -> dict[str, int]:
    """The resources of the kernel of an object file, from the note that describes it."""
    (kernel,) = kernels(made)
    return {
        "n_regs": kernel[".vgpr_count"],
        "n_accumulation_regs": kernel.get(".agpr_count", 0),
        "n_scalar_regs": kernel[".sgpr_count"],
        "n_spills": kernel[".vgpr_spill_count"] + kernel[".sgpr_spill_count"],
        "scratch_bytes": kernel[".private_segment_fixed_size"],
        "kernarg_bytes": kernel[".kernarg_segment_size"],
    }
