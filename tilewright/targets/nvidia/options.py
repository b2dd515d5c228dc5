"""The options of a kernel on an NVIDIA GPU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tilewright.base.diagnostics import OutOfResources
from tilewright.frontend.defaults import DOT_PRECISIONS
from tilewright.targets.gpu.options import check, check_common_options
from tilewright.targets.nvidia.features import (
    DEFAULT_ARCH,
    MAX_REGISTERS,
    NEWEST_PTX,
    WARP_SIZE,
    Processor,
    processor,
)

MAX_WARPS = 32  # 1024 threads, on every architecture
MAX_CLUSTER = 16


@dataclass(frozen=True)  # without slots: programs read its __dict__
class CudaOptions:
    """Options of a kernel on an NVIDIA GPU.

    Attributes:
        num_warps: warps, of 32 threads, of a program; a power of two.
        num_stages: iterations of a loop in flight at once (software pipelining).
        num_ctas: CTAs of a cluster that share a program.
        maxnreg: the most registers of a thread; None leaves it to the assembler.
        enable_fp_fusion: whether a product and a sum may be contracted, with one rounding.
        debug: whether assertions are checked, and with `sanitize_overflow` integer overflow.
        launch_cooperative_grid: whether all programs must be resident at the same time.
        launch_pdl: whether the kernel may start before the preceding one has completed
            (programmatic dependent launch), as it is written. None, the default on SM90+: it may
            if it needs no control of its own for that, and lets the next one start early, too.
        default_dot_input_precision, allowed_dot_input_precisions: of `dot` on fp32.
        max_num_imprecise_acc_default, supported_fp8_dtypes, deprecated_fp8_dot_operand_dtypes:
            see `FrontendOptions`; they follow from the architecture.
        extern_libs: bitcode to link; not supported, must be empty.
        tensor_copies: whether a specialized warp may load operands of products by tensor copies
            (TMA).
        random_delays: the seed of delays around synchronisation, for tests; 0 for none.
        ptx_version: the PTX version as major * 10 + minor; None for the oldest sufficient one.
        ptx_options: further options of the assembler, separated by blanks.
        arch: the architecture, such as ``sm90``; must be the target's.
    """

    num_warps: int = 4
    num_stages: int = 3
    num_ctas: int = 1
    maxnreg: int | None = None
    debug: bool = False
    sanitize_overflow: bool = True
    enable_fp_fusion: bool = True
    launch_cooperative_grid: bool = False
    launch_pdl: bool | None = None
    default_dot_input_precision: str = "tf32"
    allowed_dot_input_precisions: tuple[str, ...] = DOT_PRECISIONS
    max_num_imprecise_acc_default: int = 0
    supported_fp8_dtypes: tuple[str, ...] = ()
    deprecated_fp8_dot_operand_dtypes: tuple[str, ...] = ()
    extern_libs: tuple[Any, ...] = ()
    tensor_copies: bool = True
    random_delays: int = 0
    ptx_version: int | None = None
    ptx_options: str | None = None
    arch: str = f"sm{DEFAULT_ARCH}"


def check_options(options: CudaOptions, chip: Processor) -> None:
    """Raise ValueError for options that are invalid or not supported, and OutOfResources for more
    threads than a CTA has, so that tuning skips the configuration.
    """
    cluster, registers = options.num_ctas, options.maxnreg
    if options.num_warps > MAX_WARPS:
        raise OutOfResources(options.num_warps * WARP_SIZE, MAX_WARPS * WARP_SIZE, "threads")
    check_common_options(options)
    check(
        cluster in (1, 2, 4, 8, MAX_CLUSTER),
        f"num_ctas must be 1, 2, 4, 8 or {MAX_CLUSTER}, not {cluster}",
    )
    check(
        cluster == 1 or "cluster" in chip.features,
        "num_ctas > 1 requires NVIDIA SM90+ (Hopper)",
    )
    check(
        not options.launch_pdl or "dependent_launch" in chip.features,
        "launch_pdl requires NVIDIA SM90+ (Hopper)",
    )
    check(
        registers is None or 0 < registers <= MAX_REGISTERS,
        f"maxnreg must be 1 to {MAX_REGISTERS}, not {registers}",
    )
    check(
        options.random_delays >= 0,
        f"random_delays must be 0 or a positive seed, not {options.random_delays}",
    )
    version = options.ptx_version
    check(
        version is None or chip.ptx_version <= version <= NEWEST_PTX,
        f"ptx_version must be {chip.ptx_version} to {NEWEST_PTX}, not {version}",
    )
    check(
        processor(options.arch) == chip,
        f"this compiles for sm{chip.capability}; for {options.arch} give a target such as "
        f'GPUTarget("cuda", {processor(options.arch).capability}, {WARP_SIZE})',
    )
