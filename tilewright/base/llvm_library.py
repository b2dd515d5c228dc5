"""The LLVM library: its version, its view of the host, and parsing of modules."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager

import llvmlite.binding as llvm

from tilewright.base.locks import llvmlite_lock


def version() -> str:
    """The version of LLVM: ``22.1.0``."""
    return ".".join(map(str, llvm.llvm_version_info))


def host_facts() -> list[str]:
    """The triple of this process, the name of the processor, and its known features: ``+avx2`` if
    the processor has it, ``-sse4a`` if it does not."""
    features = sorted(llvm.get_host_cpu_features().items())
    signed = (f"{'+' if on else '-'}{name}" for name, on in features)
    return [llvm.get_process_triple(), llvm.get_host_cpu_name(), *signed]


@contextmanager
def parsed(text: str, *more: str) -> Generator[llvm.ModuleRef]:
    """Parse LLVM IR texts and link them into one module, valid within the ``with`` block.

        with parsed(text) as module:
            module.verify()

    The module has its own context, so that types do not accumulate. The context manager destroys
    both in the right order: a module that outlives its context crashes the process, and an
    exception that keeps both alive in its frames would leave the order to the garbage collector.

    Modules are not verified. By default, the parser verifies those with debug information, removes
    information that is invalid, and ends the process if the code is.

    Raises:
        RuntimeError: a text is not valid IR; LLVM's message.
    """
    context = llvm.create_context()
    with option("disable-auto-upgrade-debug-info", "true", "false"):
        module, *others = [llvm.parse_assembly(part, context) for part in (text, *more)]
    try:
        for other in others:
            module.link_in(other)
        yield module
    finally:
        module.close()


@contextmanager
def option(name: str, value: str, default: str) -> Generator[None]:
    """Set an option of LLVM's command line within the ``with`` block.

        with option("disable-lsr", "true", "false"):
            code = machine.emit_object(module)

    Options are global to the process: hold the lock `locks.LLVM`. llvmlite's own lock is held too,
    so that no other user of llvmlite compiles with the option in another thread.

    Args:
        default: LLVM's own value, which the option has afterwards.
    """
    with llvmlite_lock():
        llvm.set_option("tilewright", f"-{name}={value}")
        try:
            yield
        finally:
            llvm.set_option("tilewright", f"-{name}={default}")


def without_phi_of_ops() -> AbstractContextManager[None]:
    """Run LLVM's NewGVN without one of its optimisations, which replaces operations on phis by phis
    of operations. With it LLVM 22 may not settle on value numbers, and ends the process in an
    assertion (one of 50,000 random programs). The code of examples and benchmarks is the same."""
    return option("enable-phi-of-ops", "false", "true")
