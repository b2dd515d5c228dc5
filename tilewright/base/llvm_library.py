"""What the LLVM library says of itself and of the machine that it runs on; and its modules."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

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


@contextmanager
def parsed(text: str, *more: str) -> Generator[llvm.ModuleRef]:
    """The module that texts of IR make together, for as long as the ``with`` lasts.

        with parsed(text) as module:
            module.verify()

    It has a context of its own, so that types do not pile up. Left to Python, an error that keeps
    both in its frames would let them go in any order, and a module that outlives its context takes
    the process with it.

    Raises:
        RuntimeError: with LLVM's message, when a text is not IR.
    """
    context = llvm.create_context()
    module = llvm.parse_assembly(text, context)
    try:
        for other in more:
            module.link_in(llvm.parse_assembly(other, context))
        yield module
    finally:
        module.close()
