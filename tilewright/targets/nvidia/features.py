"""What each NVIDIA architecture has. Capability numbers are compared in this file and nowhere else.

The rest of the compiler asks for a feature by name:

    processor(90).features          # frozenset({"wgmma", "tma", "async_copy", …})
    "wgmma" in ctx.features         # in a pass; or Step(pass_, when="wgmma")

An architecture is written as its compute capability without the dot: 90 is capability 9.0, Hopper.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

DEFAULT_ARCH = 90
WARP_SIZE = 32

# CUDA C++ Programming Guide, "Technical Specifications": of every architecture.
REGISTERS = 65536  # of a multiprocessor
MAX_REGISTERS = 255  # of a thread

# The newest PTX that LLVM writes, as major * 10 + minor.
NEWEST_PTX = 90

# Hopper's tensor cores keep fp8 products in an accumulator of fewer bits; so many of them may be
# summed there before the sum must go to an fp32 register: without limit.
NEVER_PROMOTE = 1 << 30


@dataclass(frozen=True, slots=True)
class _Feature:
    """A feature and the capabilities that have it, from `first` to `last`, both included."""

    name: str
    first: int
    last: int = 999


_FEATURES = (
    # Matrix instructions of one warp: mma.sync, named by the shape for 16-bit operands.
    _Feature("mma_m16n8k8", 75),
    _Feature("mma_m16n8k16", 80),
    _Feature("mma_bf16", 80),
    _Feature("mma_tf32", 80),
    _Feature("mma_int8", 80),
    _Feature("mma_fp64", 80),
    _Feature("mma_fp8", 89),
    # Matrix instructions of a warp group, with operands in shared memory.
    _Feature("wgmma", 90, 90),
    _Feature("tcgen05", 100, 110),
    # Moving matrices between shared memory and registers.
    _Feature("ldmatrix", 75),
    _Feature("stmatrix", 90),
    # Copies from global to shared memory that pass by the registers.
    _Feature("async_copy", 80),
    _Feature("tma", 90),
    # Barriers in shared memory that count the bytes of copies and can be waited for.
    _Feature("mbarrier", 90),
    # CTAs that see each other's shared memory.
    _Feature("cluster", 90),
    # Registers handed from one warp group to another: setmaxnreg.
    _Feature("setmaxnreg", 90),
    # One lane elected out of a warp: elect.sync.
    _Feature("elect", 90),
    # A kernel that starts while the one before it ends: griddepcontrol.
    _Feature("dependent_launch", 90),
    # Cache policies in a register, as loads and stores take them.
    _Feature("cache_policy", 80),
    # Reductions of 32-bit integers over a warp in one instruction.
    _Feature("redux_sync", 80),
    # Arithmetic on bf16: fma and min/max first, then add, sub and mul too.
    _Feature("bf16", 80),
    _Feature("bf16_arith", 90),
    # Two fp32 in one instruction.
    _Feature("f32x2", 100),
    # Conversions between fp32 and fp8 in one instruction.
    _Feature("fp8_cvt", 89),
    # tanh.approx on fp32 and fp16.
    _Feature("tanh_approx", 75),
    # Atomic additions: on bf16, and on vectors of floats.
    _Feature("atom_bf16", 90),
    _Feature("atom_vec", 90),
)


@dataclass(frozen=True, slots=True)
class Processor:
    """An architecture to compile for.

    Attributes:
        capability: its compute capability, such as 90.
        llvm_cpu: its name for LLVM and for assemblers. The suffix ``a`` unlocks the instructions
            of just this architecture, among them those of the warp group.
        ptx_version: the oldest PTX that has all its features, as major * 10 + minor. Older drivers
            take the PTX when it is no newer than it needs to be.
        shared_limit: bytes of shared memory that a CTA may have.
        max_threads: threads that a multiprocessor runs at once.
        features: names out of the table above.
    """

    capability: int
    llvm_cpu: str
    ptx_version: int
    shared_limit: int
    max_threads: int
    features: frozenset[str]

    @property
    def fp8_types(self) -> tuple[str, ...]:
        """The fp8 types that its own instructions know, by their short names; of the others, the
        numbers are converted and computed in software."""
        return ("fp8e4nv", "fp8e5") if "fp8_cvt" in self.features else ("fp8e5",)

    @property
    def deprecated_fp8_operands(self) -> tuple[str, ...]:
        """The fp8 types that a dot warns of: those of older architectures' software."""
        return ("fp8e4b15",) if "wgmma" in self.features else ()

    @property
    def imprecise_accumulation(self) -> int:
        """How many steps of an fp8 dot may be summed in the tensor core's own accumulator."""
        return NEVER_PROMOTE if "wgmma" in self.features else 0


KIB = 1024

# Capability -> LLVM's name, the PTX version that its features need, shared memory of a CTA, and
# threads of a multiprocessor.
_ARCHITECTURES = {
    75: ("sm_75", 63, 64 * KIB, 1024),
    80: ("sm_80", 74, 163 * KIB, 2048),
    86: ("sm_86", 74, 99 * KIB, 1536),
    87: ("sm_87", 74, 163 * KIB, 1536),
    89: ("sm_89", 84, 99 * KIB, 1536),
    90: ("sm_90a", 81, 227 * KIB, 2048),
    100: ("sm_100a", 86, 227 * KIB, 2048),
    103: ("sm_103a", 88, 227 * KIB, 2048),
    110: ("sm_110a", 90, 227 * KIB, 2048),
    120: ("sm_120a", 87, 99 * KIB, 1536),
    121: ("sm_121a", 88, 99 * KIB, 1536),
}

_ARCH_TEXT = re.compile(r"(?:sm_?)?(\d+)a?")


@cache
def processor(arch: int | str) -> Processor:
    """The architecture that a user or a device names: 90, "90", "90a", "sm90" or "sm_90a".

    Raises:
        ValueError: for text of another form, and for an architecture that is not known.
    """
    match = _ARCH_TEXT.fullmatch(str(arch))
    capability = int(match[1]) if match else None
    if capability not in _ARCHITECTURES:
        known = ", ".join(map(str, _ARCHITECTURES))
        raise ValueError(
            f"there is no NVIDIA architecture {arch!r}; known are {known}, written as 90 or 'sm90'"
        )
    cpu, ptx_version, shared, threads = _ARCHITECTURES[capability]
    features = frozenset(f.name for f in _FEATURES if f.first <= capability <= f.last)
    return Processor(capability, cpu, ptx_version, shared, threads, features)
