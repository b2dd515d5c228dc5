"""What the LLVM library says of itself, and of the machine that it runs on."""

from __future__ import annotations

import llvmlite.binding as llvm


def version() -> str:
    """Its version: ``22.1.0``."""
    return ".".join(map(str, llvm.llvm_version_info))


def host_facts() -> list[str]:
    """The triple of this process, the name of its processor, and then the features that such
    processors may have: ``+avx2`` is one that this one has, ``-sse4a`` one that it lacks."""
    features = sorted(llvm.get_host_cpu_features().items())
    signed = (f"{'+' if on else '-'}{name}" for name, on in features)
    return [llvm.get_process_triple(), llvm.get_host_cpu_name(), *signed]
