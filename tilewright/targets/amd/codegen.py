"""The code of one thread for AMD GPUs: the shared lowering with this target's instructions."""

from __future__ import annotations

from tilewright.targets.amd import arith as _arith
from tilewright.targets.amd import debug as _debug
from tilewright.targets.amd import mma as _mma
from tilewright.targets.amd.emit import kernel_attributes
from tilewright.targets.amd.features import Processor
from tilewright.targets.amd.hardware import AmdHardware
from tilewright.targets.amd.options import HipOptions
from tilewright.targets.gpu.codegen import Declaration

# Importing these modules registers their emitters and lowerings.
REGISTERED = (_arith, _debug, _mma)


def hardware(chip: Processor) -> AmdHardware:
    """The instructions of a processor."""
    return AmdHardware(chip)


def declaration(options: HipOptions, threads: int) -> Declaration:
    """The declaration in LLVM IR of a kernel whose work-groups have `threads` threads."""
    return Declaration(
        attributes=kernel_attributes(threads, options.waves_per_eu),
        calling="amdgpu_kernel",
        fast_flags="contract" if options.enable_fp_fusion else "",
    )
