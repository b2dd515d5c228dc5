"""The code of one thread for NVIDIA GPUs: the shared lowering with this target's instructions."""

from __future__ import annotations

from tilewright.ir.machine import GpuMachine
from tilewright.targets.gpu.codegen import Declaration
from tilewright.targets.nvidia import arith as _arith
from tilewright.targets.nvidia import counters as _counters
from tilewright.targets.nvidia import math as _math
from tilewright.targets.nvidia import mma as _mma
from tilewright.targets.nvidia import programs as _programs
from tilewright.targets.nvidia import scaled_mma as _scaled_mma
from tilewright.targets.nvidia import tensor_mma as _tensor_mma
from tilewright.targets.nvidia import tma as _tma
from tilewright.targets.nvidia import turns as _turns
from tilewright.targets.nvidia import wgmma as _wgmma
from tilewright.targets.nvidia.emit import kernel_attributes
from tilewright.targets.nvidia.features import Processor
from tilewright.targets.nvidia.hardware import NvidiaHardware
from tilewright.targets.nvidia.options import CudaOptions

# Importing these modules registers their emitters and lowerings.
REGISTERED = (
    _arith,
    _counters,
    _math,
    _mma,
    _programs,
    _scaled_mma,
    _tensor_mma,
    _tma,
    _turns,
    _wgmma,
)


def hardware(chip: Processor, gpu: GpuMachine) -> NvidiaHardware:
    """The instructions of an architecture."""
    return NvidiaHardware(chip.features, packs=gpu.packs)


def declaration(options: CudaOptions, gpu: GpuMachine, threads: int) -> Declaration:
    """The declaration in LLVM IR of a kernel whose programs have `threads` threads."""
    return Declaration(
        attributes=kernel_attributes(threads, options.maxnreg, packs=gpu.packs),
        calling="ptx_kernel",
        fast_flags="contract" if options.enable_fp_fusion else "",
    )
