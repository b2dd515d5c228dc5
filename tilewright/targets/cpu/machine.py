"""The properties of a CPU on which code generation depends, by LLVM's names of features."""

from __future__ import annotations

from dataclasses import dataclass

CACHE_BYTES = 32 << 20  # the default if unknown: that of one chiplet of a server


@dataclass(frozen=True)
class Machine:
    """A CPU to compile for.

    Attributes:
        triple: LLVM target triple.
        cpu: LLVM's name of the CPU.
        features: enabled LLVM features, such as ``avx512f``.
        cache_bytes: the size of the last-level cache.
        without: LLVM features to disable, which LLVM assumes for a CPU of this name.
    """

    triple: str
    cpu: str
    features: frozenset[str]
    cache_bytes: int = CACHE_BYTES
    without: frozenset[str] = frozenset()

    @property
    def feature_text(self) -> str:
        on = [f"+{feature}" for feature in sorted(self.features)]
        return ",".join(on + [f"-{feature}" for feature in sorted(self.without)])

    @property
    def vector_bytes(self) -> int:
        """Bytes of the widest vector register."""
        if "avx512f" in self.features:
            return 64
        return 32 if "avx" in self.features else 16

    @property
    def is_aarch64(self) -> bool:
        return self.triple.startswith(("aarch64", "arm64"))

    @property
    def vector_registers(self) -> int:
        wide = "avx512f" in self.features or self.is_aarch64
        return 32 if wide else 16

    @property
    def converts_fp16(self) -> bool:
        """Whether there are conversions between fp16 and fp32: always, except on older x86."""
        return "f16c" in self.features or not self.triple.startswith(("x86_64", "i686"))

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
