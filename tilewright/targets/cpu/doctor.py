"""Diagnostics of the installation: LLVM and the processor."""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.base.findings import OK, Finding
from tilewright.base.llvm_version import llvm_version
from tilewright.targets.cpu.machine import Machine

_EXTENSIONS = ("avx2", "avx512f", "avx512bf16", "avx512fp16", "fma", "f16c", "neon", "sve")


def examine(machine: Machine) -> Iterator[Finding]:
    """Findings about LLVM and the processor to compile for."""
    yield Finding(OK, "LLVM", llvm_version())
    yield Finding(OK, "processor", f"{machine.cpu}, {machine.triple}")
    names = ", ".join(name for name in _EXTENSIONS if name in machine.features) or "no extensions"
    yield Finding(OK, "vectors", f"{8 * machine.vector_bytes} bits ({names})")
    if machine.triple.startswith("x86_64"):
        tiles = sorted(name for name in machine.features if name.startswith("amx-"))
        yield Finding(OK, "AMX", ", ".join(tiles) or "none that this process may use")
