"""What running code asks of LLVM, which this loads: code of the runtime's own is assembled once for
a machine, and object code that `elf.py` does not link is linked."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence

import llvmlite.binding as llvm

from tilewright.base.llvm_library import parsed
from tilewright.base.locks import LLVM, Lock


def _initialize() -> None:
    with LLVM:
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()


def assemble(text: str, level: int) -> bytes:
    """The object code of a module of LLVM IR, for any processor of this architecture.

    What the text says is inlined; nothing else is optimised, as passes may put in calls of the C
    library.

    Args:
        level: of code generation; 0 takes a third to a fifth of the time that 1 does.

    Raises:
        RuntimeError: with LLVM's message, when the text is not valid IR.
    """
    _initialize()
    with LLVM, parsed(text) as module:
        target = llvm.Target.from_triple(llvm.get_process_triple())
        machine = target.create_target_machine(opt=level, reloc="pic", codemodel="default")
        module.triple = machine.triple
        module.verify()
        passes = llvm.create_new_module_pass_manager()
        passes.add_always_inliner_pass()
        options = llvm.create_pipeline_tuning_options(speed_level=0)
        passes.run(module, llvm.create_pass_builder(machine, options))
        return machine.emit_object(module)


class _Linker:
    """The process's in-memory linker.

    JITLink gives each object its own namespace and can unload it. Measured on a kernel of 900
    bytes: 0.16 ms, against 0.30 ms with the older RuntimeDyld; MCJIT needs 0.06 ms, but there equal
    symbol names of two kernels collide and nothing can be unloaded.
    """

    def __init__(self) -> None:
        _initialize()
        machine = llvm.Target.from_default_triple().create_target_machine(reloc="pic")
        # JITLink's COFF support is young; RuntimeDyld is what LLVM uses by default on Windows.
        self.jit = llvm.create_lljit_compiler(machine, use_jit_link=sys.platform != "win32")
        self.links = 0

    def link(
        self, code: bytes, exports: Sequence[str], imports: Mapping[str, int]
    ) -> llvm.ResourceTracker:
        builder = llvm.JITLibraryBuilder().add_object_img(code).add_current_process()
        for name in exports:
            builder.export_symbol(name)
        for name, address in imports.items():
            builder.import_symbol(name, address)
        # LLVM never lets a library's name be used again, not even after it was unloaded.
        self.links += 1
        return builder.link(self.jit, f"tilewright.{self.links}")


_MAX_LINKS = 64
"""What is linked leaves 8 KB in its linker for ever; making a linker takes 2 ms. So each links so
much, and goes away with the last of it."""

_linker_lock = Lock()
_linker: _Linker | None = None


def link(
    code: bytes, names: Sequence[str], imports: Mapping[str, int]
) -> tuple[object, dict[str, int]]:
    """What keeps the code, and the addresses of the functions `names` in it.

    Raises:
        RuntimeError: the bytes are no object file, or a symbol is missing.
    """
    global _linker
    with _linker_lock:
        if _linker is None or _linker.links >= _MAX_LINKS:
            _linker = _Linker()
        linker, tracker = _linker, _linker.link(code, names, imports)
    # The tracker unloads the code, for which it needs the linker.
    return (linker, tracker), {name: int(tracker[name]) for name in names}
