"""The runtime's uses of LLVM: assembling its own LLVM IR, and JITLink for object files.

Both are rare: assembled code is cached on disk, and JITLink is the fallback for object files that
`elf.py` does not support. Importing this module loads LLVM.
"""

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
    """Compile LLVM IR to an object file for the baseline processor of this architecture.

    Only `alwaysinline` functions are inlined. No optimisation passes run, as they may introduce
    calls of C library functions such as memcpy.

    Args:
        level: optimisation level of code generation; 0 takes a third to a fifth of the time of 1.

    Raises:
        RuntimeError: the text is not valid IR; with LLVM's message.
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
    """An LLJIT instance that links object files into this process.

    JITLink gives each object its own namespace and can unload it. Measured on a kernel of 900
    bytes: 0.16 ms, against 0.30 ms with RuntimeDyld. MCJIT takes 0.06 ms, but symbols of different
    kernels with equal names collide there, and code cannot be unloaded.
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
        # LLJIT does not permit reuse of a library's name, not even after it was unloaded.
        self.links += 1
        return builder.link(self.jit, f"tilewright.{self.links}")


_MAX_LINKS = 64
"""Object files per `_Linker`. Each leaves 8 KB in its linker even after it was unloaded, while the
creation of a linker takes 2 ms; a linker is freed with the last of its object files."""

_linker_lock = Lock()
_linker: _Linker | None = None


def link(
    code: bytes, names: Sequence[str], imports: Mapping[str, int]
) -> tuple[object, dict[str, int]]:
    """Link an object file.

    Returns:
        the object that owns the code, and the addresses of the functions `names`.

    Raises:
        RuntimeError: the bytes are not an object file, or a symbol is undefined.
    """
    global _linker
    with _linker_lock:
        if _linker is None or _linker.links >= _MAX_LINKS:
            _linker = _Linker()
        linker, tracker = _linker, _linker.link(code, names, imports)
    # The tracker unloads the code when it is destroyed, and needs the linker for that.
    return (linker, tracker), {name: int(tracker[name]) for name in names}
