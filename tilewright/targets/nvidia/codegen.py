"""The code of one thread for NVIDIA GPUs: what the shared lowering takes from this target."""

from __future__ import annotations

from tilewright.targets.gpu.codegen import Declaration
from tilewright.targets.nvidia import arith as _arith
from tilewright.targets.nvidia import mma as _mma
from tilewright.targets.nvidia import tma as _tma
from tilewright.targets.nvidia.emit import kernel_attributes
from tilewright.targets.nvidia.features import Processor
from tilewright.targets.nvidia.hardware import NvidiaHardware
from tilewright.targets.nvidia.options import CudaOptions

# Importing these modules registers their emitters and lowerings.
REGISTERED = (_arith, _mma, _tma)


def hardware(chip: Processor) -> NvidiaHardware:
    """The instructions of an architecture."""
    return NvidiaHardware(chip.features)


def declaration(options: CudaOptions, threads: int) -> Declaration:
    """How LLVM IR declares a kernel whose CTAs have so many threads."""
    return Declaration(
        attributes=kernel_attributes(threads, options.maxnreg),
        calling="ptx_kernel",
        fast_flags="contract" if options.enable_fp_fusion else "",
    )
