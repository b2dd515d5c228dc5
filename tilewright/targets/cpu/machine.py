"""The properties of a CPU on which code generation depends, by LLVM's names of features."""

from __future__ import annotations

from tilewright.base.record import record

BLOCK = 16  # bytes; of SSE and Advanced SIMD registers, of which SVE registers are multiples
SVE_BYTES = (32, 64)  # sizes of SVE registers that are used; LLVM accepts powers of two only
CACHE_BYTES = 32 << 20  # the default if unknown: that of one chiplet of a server


@record
class Machine:
    """A CPU to compile for.

    Attributes:
        triple: LLVM target triple.
        cpu: LLVM's name of the CPU.
        features: enabled LLVM features, such as ``avx512f``.
        cache_bytes: the size of the last-level cache.
        without: LLVM features to disable, which LLVM assumes for a CPU of this name.
        sve_bytes: the size of a vector register of SVE, which is exactly that of the processor the
            code runs on; 0 if unknown.
    """

    triple: str
    cpu: str
    features: frozenset[str]
    cache_bytes: int = CACHE_BYTES
    without: frozenset[str] = frozenset()
    sve_bytes: int = 0

    @property
    def feature_text(self) -> str:
        on = [f"+{feature}" for feature in sorted(self.features)]
        return ",".join(on + [f"-{feature}" for feature in sorted(self.without)])

    @property
    def vector_bytes(self) -> int:
        """Bytes of the widest vector register."""
        if "avx512f" in self.features:
            return 64
        if self.uses_sve:
            return self.sve_bytes
        return 32 if "avx" in self.features else BLOCK

    @property
    def uses_sve(self) -> bool:
        """Whether vectors are those of SVE, rather than the 16 bytes of Advanced SIMD."""
        return "sve" in self.features and self.sve_bytes in SVE_BYTES

    @property
    def function_attributes(self) -> str:
        """Attributes in LLVM IR of functions with vectors. LLVM uses SVE for fixed vectors if it
        knows the size of the registers."""
        blocks = self.sve_bytes // BLOCK
        return f"nounwind vscale_range({blocks},{blocks})" if self.uses_sve else "nounwind"

    @property
    def is_aarch64(self) -> bool:
        return self.triple.startswith(("aarch64", "arm64"))

    @property
    def is_x86(self) -> bool:
        return self.triple.startswith(("x86_64", "i686"))

    @property
    def vector_registers(self) -> int:
        wide = "avx512f" in self.features or self.is_aarch64
        return 32 if wide else 16

    @property
    def converts_fp16(self) -> bool:
        """Whether there are conversions between fp16 and fp32: always, except on older x86."""
        return "f16c" in self.features or not self.is_x86

    @property
    def saturates_vectors(self) -> bool:
        """Whether instructions for vectors convert floats to integers, saturating."""
        return not self.is_x86

    @property
    def has_fma(self) -> bool:
        """Whether there is a fused multiply-add: always, except on older x86 and in WebAssembly.

        Only for x86 is the feature tested: for others LLVM may report none.
        """
        return "fma" in self.features or not self.triple.startswith(("x86_64", "i686", "wasm"))

    @property
    def has_quiet_extrema(self) -> bool:
        """Whether `llvm.maximumnum`, which treats a signalling NaN as a quiet one, takes few
        instructions."""
        return self.is_aarch64
