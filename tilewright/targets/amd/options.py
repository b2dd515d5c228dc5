"""The options of a kernel on an AMD GPU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tilewright.base.diagnostics import OutOfResources
from tilewright.frontend.defaults import DOT_PRECISIONS
from tilewright.targets.amd.features import DEFAULT_ARCH, MAX_THREADS, Processor, processor
from tilewright.targets.gpu.options import check, check_common_options


@dataclass(frozen=True)  # without slots: programs read its __dict__
class HipOptions:
    """Options of a kernel on an AMD GPU.

    Attributes:
        num_warps: waves of a program; a power of two.
        num_stages: iterations of a loop in flight at once; loads into registers are issued an
            iteration ahead if it is 2 or more.
        matrix_instr_nonkdim: rows and columns of the matrix instructions, 16 or 32; 0 for those
            that fit best. Ignored where there are none of that size.
        waves_per_eu: waves of a SIMD unit that must be resident at once, which limits the registers
            of a thread; 0 leaves it to LLVM.
        enable_fp_fusion: whether a product and a sum may be contracted, with one rounding.
        debug: whether assertions are checked, and with `sanitize_overflow` integer overflow.
        default_dot_input_precision, allowed_dot_input_precisions: of `dot` on fp32.
        max_num_imprecise_acc_default, supported_fp8_dtypes, deprecated_fp8_dot_operand_dtypes:
            see `FrontendOptions`; they follow from the processor.
        extern_libs: bitcode to link; not supported, must be empty.
        launch_cooperative_grid: whether all programs must be resident at the same time.
        warp_size: lanes of a wave; must be the processor's.
        arch: the processor, such as ``gfx942``; must be the target's.
    """

    num_warps: int = 4
    num_stages: int = 2
    matrix_instr_nonkdim: int = 0
    waves_per_eu: int = 0
    enable_fp_fusion: bool = True
    debug: bool = False
    sanitize_overflow: bool = True
    default_dot_input_precision: str = "ieee"
    allowed_dot_input_precisions: tuple[str, ...] = DOT_PRECISIONS
    max_num_imprecise_acc_default: int = 0
    supported_fp8_dtypes: tuple[str, ...] = ()
    deprecated_fp8_dot_operand_dtypes: tuple[str, ...] = ()
    extern_libs: tuple[Any, ...] = ()
    launch_cooperative_grid: bool = False
    warp_size: int = processor(DEFAULT_ARCH).lanes
    arch: str = DEFAULT_ARCH


def check_options(options: HipOptions, chip: Processor) -> None:
    """Raise ValueError for options that are invalid or not supported, and OutOfResources for more
    threads than a work-group has, so that tuning skips the configuration.
    """
    threads = options.num_warps * chip.lanes
    if threads > MAX_THREADS:
        raise OutOfResources(threads, MAX_THREADS, "threads")
    check_common_options(options)
    check(
        0 <= options.waves_per_eu <= chip.max_waves,
        f"waves_per_eu must be 0 to {chip.max_waves}, not {options.waves_per_eu}",
    )
    check(
        options.matrix_instr_nonkdim in (0, 16, 32),
        f"matrix_instr_nonkdim must be 0, 16 or 32, not {options.matrix_instr_nonkdim}",
    )
    check(
        options.warp_size == chip.lanes,
        f"warp_size must be {chip.lanes}, the lanes of a wave of {chip.name}, not "
        f"{options.warp_size}",
    )
    check(
        processor(options.arch) == chip,
        f"this compiles for {chip.name}; for {options.arch} give a target such as "
        f'GPUTarget("hip", "{options.arch}", {processor(options.arch).lanes})',
    )
