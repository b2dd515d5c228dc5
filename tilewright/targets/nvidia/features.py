"""Features and limits of each NVIDIA architecture. No other file compares compute capabilities.

The rest of the compiler tests for features by name:

    processor(90).features          # frozenset({"wgmma", "tma", "async_copy", …})
    "wgmma" in ctx.features         # in a pass; or Step(pass_, when="wgmma")

An architecture is its compute capability without the dot: 90 is capability 9.0, Hopper. For one
that is newer than this table, PTX for the newest one is emitted.
"""

from __future__ import annotations

import re
import warnings
from functools import cache

from tilewright.base.record import record, replace

DEFAULT_ARCH = 90
WARP_SIZE = 32

PACKED_PROGRAMS = 4
"""The most programs that a block runs. Blocks of four warps fill a multiprocessor of 64 warps with
half the blocks that it can hold."""

# CUDA C++ Programming Guide, "Technical Specifications"; the same for every architecture.
REGISTERS = 65536  # of a multiprocessor
MAX_REGISTERS = 255  # of a thread

# ptxas unrolls loops of unknown length with short iterations, usually four times. This many
# instructions are those on elements, estimated; addresses come on top.
UNROLLED_WORK = 64

# The newest PTX version that LLVM emits, as major * 10 + minor.
NEWEST_PTX = 90

# Hopper's tensor cores accumulate fp8 products with fewer bits than fp32; this many may be summed
# there before the sum must be added to an fp32 register (here: no limit).
NEVER_PROMOTE = 1 << 30


@record
class _Feature:
    """A feature, and the range of capabilities that have it, both ends included.

    Code that has a `specific` feature runs on exactly the architecture for which it was compiled.
    """

    name: str
    first: int
    last: int = 999
    specific: bool = False


_FEATURES = (
    # Matrix instructions of one warp: mma.sync, by the type of the operands.
    _Feature("mma_fp16", 75),
    _Feature("mma_int8", 75),
    _Feature("mma_bf16", 80),
    _Feature("mma_tf32", 80),
    _Feature("mma_fp64", 80),
    _Feature("mma_fp8", 89),
    # Where the last one is not in hardware: ptxas makes two products of fp16, and a sum of both.
    _Feature("mma_fp8_expanded", 90, 119),
    # And of block-scaled floats: mma.sync with block_scale.
    _Feature("mma_block_scale", 120, 121, specific=True),
    # Some products of block-scaled floats, by any of its instructions.
    _Feature("dot_scaled", 100, 121, specific=True),
    # Their largest shapes, where smaller ones came first: m16n8k16 of fp16 (not m16n8k8), m16n8k32
    # of int8 (not m8n8k16), m16n8k8 of fp64 (not m8n8k4).
    _Feature("mma_m16n8k16", 80),
    _Feature("mma_fp64_m16n8k8", 90),
    # Matrix instructions of a warp group, with operands in shared memory.
    _Feature("wgmma", 90, 90, specific=True),
    # And of one thread, with results in tensor memory; of int8, not all have them.
    _Feature("tcgen05", 100, 110, specific=True),
    _Feature("tcgen05_i8", 100, 100, specific=True),
    _Feature("tcgen05_i8", 110, 110, specific=True),
    # Moving matrices between shared memory and registers.
    _Feature("ldmatrix", 75),
    _Feature("stmatrix", 90),
    # Asynchronous copies from global to shared memory, bypassing registers.
    _Feature("async_copy", 80),
    _Feature("tma", 90),
    # Barriers in shared memory that track the bytes of copies.
    _Feature("mbarrier", 90),
    # Clusters: CTAs with access to each other's shared memory.
    _Feature("cluster", 90),
    # Programmatic dependent launch: griddepcontrol.
    _Feature("dependent_launch", 90),
    # Cache policies as operands of loads and stores: createpolicy.
    _Feature("cache_policy", 80),
    # The smaller or larger one of two numbers of 16 bits, or of those of two words.
    _Feature("extrema_16", 80),
    # Arithmetic on bf16: fma first, then add, sub and mul too.
    _Feature("bf16", 80),
    _Feature("bf16_arith", 90),
    # Loads and stores of 32 bytes of global memory.
    _Feature("wide_access", 100),
    # Two fp16, or two fp32, in one instruction.
    _Feature("f16x2", 75),
    _Feature("f32x2", 100),
    # Conversions between fp32 and fp8 in one instruction.
    _Feature("fp8_cvt", 89),
    # Atomic additions: on bf16, and on vectors of floats.
    _Feature("atom_bf16", 90),
    _Feature("atom_vec", 90),
    # In machine code, branches whose distance has 8 more bits (seen in cubins).
    _Feature("long_branches", 90),
)


@record
class Processor:
    """An architecture to compile for.

    Attributes:
        capability: its compute capability, such as 90.
        llvm_cpu: its name in LLVM and assemblers. The suffix ``a`` enables instructions that are
            specific to the architecture, among them those of the warp group.
        ptx_version: the oldest PTX version with all its features, as major * 10 + minor, so that
            older drivers accept the PTX.
        shared_limit: the most bytes of shared memory of a CTA.
        reserved_shared: further bytes that the system reserves for each CTA.
        max_threads, max_ctas: the most resident threads and CTAs of a multiprocessor.
        features: names from the table above.
        assembles: whether there may be an assembler for it; if not, the driver compiles the PTX.
    """

    capability: int
    llvm_cpu: str
    ptx_version: int
    shared_limit: int
    reserved_shared: int
    max_threads: int
    max_ctas: int
    features: frozenset[str]
    assembles: bool = True

    @property
    def fp8_types(self) -> tuple[str, ...]:
        """The fp8 types with hardware support; others are converted in software."""
        return ("fp8e4nv", "fp8e5") if "fp8_cvt" in self.features else ("fp8e5",)

    @property
    def access_bytes(self) -> int:
        """The most bytes of global memory that one instruction of a thread moves."""
        return 32 if "wide_access" in self.features else 16

    @property
    def deprecated_fp8_operands(self) -> tuple[str, ...]:
        """The fp8 types for which `tl.dot` warns that they are deprecated on this architecture."""
        return ("fp8e4b15",) if "wgmma" in self.features else ()

    @property
    def imprecise_accumulation(self) -> int:
        """The number of K steps of an fp8 dot to sum in the tensor core's own accumulator."""
        return NEVER_PROMOTE if "wgmma" in self.features else 0


KIB = 1024

RESERVED_SHARED = KIB  # by the system for each CTA, since the architectures with `async_copy`

# Capability -> LLVM's name, the minimum PTX version of its features, bytes of shared memory of a
# CTA and of those reserved beside them, threads and CTAs of a multiprocessor: `arch_traits_t` of
# NVIDIA/cccl.
_ARCHITECTURES = {
    75: ("sm_75", 65, 64 * KIB, 0, 1024, 16),
    80: ("sm_80", 74, 163 * KIB, RESERVED_SHARED, 2048, 32),
    86: ("sm_86", 74, 99 * KIB, RESERVED_SHARED, 1536, 16),
    87: ("sm_87", 74, 163 * KIB, RESERVED_SHARED, 1536, 16),
    89: ("sm_89", 84, 99 * KIB, RESERVED_SHARED, 1536, 24),
    90: ("sm_90a", 81, 227 * KIB, RESERVED_SHARED, 2048, 32),
    100: ("sm_100a", 88, 227 * KIB, RESERVED_SHARED, 2048, 32),
    103: ("sm_103a", 88, 227 * KIB, RESERVED_SHARED, 2048, 32),
    110: ("sm_110a", 90, 227 * KIB, RESERVED_SHARED, 1536, 24),
    120: ("sm_120a", 88, 99 * KIB, RESERVED_SHARED, 1536, 24),
    121: ("sm_121a", 88, 99 * KIB, RESERVED_SHARED, 1536, 24),
}

_NEWEST = max(_ARCHITECTURES)

_ARCH_TEXT = re.compile(r"(?:sm_?)?(\d+)a?")


@cache
def processor(arch: int | str) -> Processor:
    """The architecture of a name: 90, "90", "90a", "sm90" or "sm_90a".

    Raises:
        ValueError: the name is malformed, or the architecture is unknown.
    """
    match = _ARCH_TEXT.fullmatch(str(arch))
    capability = int(match[1]) if match else None
    if capability is not None and capability > _NEWEST:
        return _newer(capability)
    if capability not in _ARCHITECTURES:
        known = ", ".join(map(str, _ARCHITECTURES))
        raise ValueError(
            f"there is no NVIDIA architecture {arch!r}; known are {known}, written as 90 or 'sm90'"
        )
    cpu, ptx_version, shared, reserved, threads, ctas = _ARCHITECTURES[capability]
    return Processor(
        capability=capability,
        llvm_cpu=cpu,
        ptx_version=ptx_version,
        shared_limit=shared,
        reserved_shared=reserved,
        max_threads=threads,
        max_ctas=ctas,
        features=frozenset(f.name for f in _FEATURES if f.first <= capability <= f.last),
    )


@cache
def _newer(capability: int) -> Processor:
    """An architecture that is not in the table: the features of the newest one, except
    chip-specific ones."""
    warnings.warn(
        f"tilewright does not know the NVIDIA architecture sm_{capability}: kernels are PTX for "
        f"sm_{_NEWEST}, which the driver compiles. Update tilewright",
        RuntimeWarning,
        stacklevel=3,
    )
    newest = processor(_NEWEST)
    return replace(
        newest,
        capability=capability,
        llvm_cpu=newest.llvm_cpu.removesuffix("a"),
        features=newest.features - {f.name for f in _FEATURES if f.specific},
        assembles=False,
    )
