"""What the code generator knows of a CPU: vector width and instructions, as LLVM names them."""

from __future__ import annotations

from dataclasses import dataclass

CACHE_BYTES = 32 << 20  # where it is not known: what one chiplet of a server has


@dataclass(frozen=True)
class Machine:
    """A CPU to compile for.

    Attributes:
        triple: LLVM target triple.
        cpu: LLVM's name of the CPU.
        features: LLVM features that are on, such as ``avx512f``.
        cache_bytes: what the last level of its caches holds.
        without: LLVM features that are off, though LLVM takes a CPU of this name to have them.
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
    def vector_registers(self) -> int:
        wide = "avx512f" in self.features or self.triple.startswith(("aarch64", "arm64"))
        return 32 if wide else 16

    @property
    def converts_fp16(self) -> bool:
        """Whether there are instructions between fp16 and fp32: everywhere but on an older x86."""
        return "f16c" in self.features or not self.triple.startswith(("x86_64", "i686"))

    @property
    def has_fma(self) -> bool:
        """Whether products and sums fuse in one instruction: everywhere but on an older x86 and in
        WebAssembly. On x86 features decide; of others LLVM may name none, where the system does
        not say."""
        return "fma" in self.features or not self.triple.startswith(("x86_64", "i686", "wasm"))

    @property
    def has_quiet_extrema(self) -> bool:
        """Whether `llvm.maximumnum` makes a signalling NaN quiet and takes the other operand, in
        few instructions."""
        return self.triple.startswith(("aarch64", "arm64"))
