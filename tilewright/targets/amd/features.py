"""Features and limits of each AMD processor. No other file compares names of processors.

The rest of the compiler tests for features by name:

    processor("gfx942").features          # frozenset({"mfma", "mfma_fp8_fnuz", …})
    "row_xmask" in processor("gfx1100").features

LLVM ends the process if it cannot select an instruction for an intrinsic, so each use of an
intrinsic that some processors lack is behind a feature.
"""

from __future__ import annotations

from functools import cache

from tilewright.base.record import record

DEFAULT_ARCH = "gfx942"
KIB = 1024
MAX_THREADS = 1024  # of a work-group
VECTOR_REGISTERS = 256  # of a thread that instructions other than matrix instructions address

PREFETCH_WORK = 128
"""Instructions, of 4 cycles each on CDNA, that hide a part of a load worth the moves and conditions
of a prefetched loop. A load takes some thousand cycles, and several waves share the time."""

_ALL = frozenset({"buffers", "staged_pairs"})
_CDNA = _ALL | {"mfma", "mfma_i8_4", "packed_fp32", "sdwa"}
_RDNA = _ALL | {"row_xmask", "permlanex16", "cumode"}


@record
class Processor:
    """A processor to compile for.

    Attributes:
        name: its name, which is LLVM's: ``gfx942``.
        lanes: threads of a wave.
        registers: 32-bit registers of a compute unit, those of all lanes counted.
        unit: registers of a thread are allocated in multiples of this.
        max_waves: the most waves that are resident on a SIMD unit.
        simds: SIMD units of a compute unit.
        shared_limit: the most bytes of LDS of a work-group.
        counters: the generation whose counters of outstanding accesses it has.
        features: names of what not all processors have.
    """

    name: str
    lanes: int
    registers: int
    unit: int
    max_waves: int
    simds: int
    shared_limit: int
    counters: str
    features: frozenset[str]

    @property
    def buffer_flags(self) -> int:
        """The last word of a buffer's descriptor, of which raw accesses read: a format that is not
        invalid and, on RDNA, that the offset is compared with the size."""
        compared = (3 << 28) | (1 << 24)
        return (7 << 12) | (4 << 15) | (0 if "mfma" in self.features else compared)

    @property
    def llvm_features(self) -> str:
        """Subtarget features in LLVM's words.

        In CU mode the waves of a work-group run on one compute unit and share its cache, so that a
        barrier does not have to invalidate it.

        Sums of products of bytes are not combined to `v_dot4_u32_u8`: LLVM 22 takes any operation
        on a product for an addition there, as the shift of `a * b + ((a * b) >> 7)`.

        Logic of three operands is not combined to `v_bitop3_b32`: LLVM 22 uses an operand that it
        has already replaced by its own operands, as of `(5 - (x & 1)) | ((x & 1) ^ 1)`.
        """
        features = ["-dot7-insts"]
        if "bitop3" in self.features:
            features.append("-bitop3-insts")
        if "cumode" in self.features:
            features.append("+cumode")
        return ",".join(features)


# LLVM, "User Guide for AMDGPU Backend"; AMD's instruction set reference guides of MI200 (CDNA2),
# MI300 (CDNA3), RDNA3 and RDNA4.
_PROCESSORS = (
    Processor("gfx90a", 64, 131072, 8, 8, 4, 64 * KIB, "gfx9", _CDNA),
    Processor(
        "gfx942", 64, 131072, 8, 8, 4, 64 * KIB, "gfx9", _CDNA | {"mfma_i8_8", "mfma_fp8_fnuz"}
    ),
    Processor(
        "gfx950",
        *(64, 131072, 8, 8, 4, 160 * KIB, "gfx9"),
        _CDNA
        | {"mfma_i8_8", "mfma_i8_16", "mfma_fp8_ocp", "mfma_f16_wide", "bf16_conversion"}
        | {"bitop3"},
    ),
    Processor(
        "gfx1100",
        32,
        98304,
        24,
        16,
        2,
        64 * KIB,
        "gfx11",
        _RDNA | {"wmma_gfx11", "dual_issue_hazard"},
    ),
    Processor("gfx1200", 32, 98304, 24, 16, 2, 64 * KIB, "gfx12", _RDNA | {"wmma_gfx12"}),
)
PROCESSORS = {chip.name: chip for chip in _PROCESSORS}


@cache
def processor(arch: str) -> Processor:
    """The processor of a name such as ``gfx942`` or ``gfx942:sramecc+:xnack-``, as returned by HIP.

    Raises:
        ValueError: it is unknown.
    """
    name = str(arch).partition(":")[0]
    if name not in PROCESSORS:
        raise ValueError(f"there is no AMD processor {arch!r}; known are {', '.join(PROCESSORS)}")
    return PROCESSORS[name]
