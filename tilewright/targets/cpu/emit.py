"""LLVM IR → object code, with LLVM as a library. The only user of llvmlite in this target."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from functools import cache

import llvmlite.binding as llvm

from tilewright.base.llvm_library import option, parsed, without_phi_of_ops
from tilewright.base.llvm_recurrences import has_long_recurrence
from tilewright.base.locks import LLVM
from tilewright.targets.cpu.machine import Machine
from tilewright.targets.cpu.repairs import repair


@cache
def target_machine(machine: Machine, *, jit: bool = True) -> llvm.TargetMachine:
    """LLVM's code generator for a machine; to be used under the lock. Cached, as creating one takes
    more than a millisecond.

    Args:
        jit: whether the code is loaded into this process, where the functions it refers to may be
            at any distance; otherwise a linker places them nearby.
    """
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_triple(machine.triple)
    return target.create_target_machine(
        cpu=machine.cpu,
        features=machine.feature_text,
        opt=2,
        reloc="pic",
        codemodel="default",
        jit=jit,
    )


# Lines of optimised LLVM IR from which loop strength reduction takes too long: its time grows
# faster than the number of loops, to half of LLVM's at 10,000 ops. Kernels of the examples and
# benchmarks have up to 1,200.
LONG = 20_000


@cache
def _passes(numbered: bool) -> llvm.ModulePassManager:
    """The clean-up that our code needs: loops, vectors and hoisting are done when LLVM sees it.

    LLVM's own pipelines take three to four times as long for the same code. Kept, like what runs
    them, as llvmlite frees neither wholly.

    Args:
        numbered: whether values are numbered (`llvm_recurrences`).
    """
    passes = llvm.create_new_module_pass_manager()
    passes.add_always_inliner_pass()
    passes.add_sroa_pass()
    passes.add_instruction_combine_pass()
    passes.add_simplify_cfg_pass()
    if numbered:
        passes.add_new_gvn_pass()
    passes.add_instruction_combine_pass()
    passes.add_aggressive_dce_pass()
    passes.add_simplify_cfg_pass()
    return passes


@cache
def _builder(machine: Machine) -> llvm.PassBuilder:
    return llvm.create_pass_builder(target_machine(machine), llvm.create_pipeline_tuning_options())


def compile_text(text: str, machine: Machine) -> tuple[str, bytes]:
    """Verify, optimise and generate code. Returns the optimised IR and an object file.

    Raises RuntimeError with LLVM's message when the text is not valid IR.
    """
    with LLVM:
        tm = target_machine(machine)
        with parsed(text) as module:
            module.triple = machine.triple
            module.data_layout = str(tm.target_data)
            module.verify()
            with without_phi_of_ops():
                _passes(not has_long_recurrence(text)).run(module, _builder(machine))
            text = str(module)
            repaired = repair(text, machine)
            if repaired == text:
                return text, _object(tm, module, text)
        with parsed(repaired) as module:
            module.verify()
            return repaired, _object(tm, module, repaired)


def _object(tm: llvm.TargetMachine, module: llvm.ModuleRef, text: str) -> bytes:
    """The object file of an optimised module, of which `text` is the IR."""
    with option("disable-lsr", "true", "false") if text.count("\n") > LONG else nullcontext():
        return tm.emit_object(module)


def object_of(texts: Sequence[str], symbol: str, machine: Machine) -> bytes:
    """An object file of several texts of IR, for a linker; only `symbol` is exported.

    Raises RuntimeError with LLVM's message when a text is not valid IR.
    """
    with LLVM, parsed(*texts) as whole:
        tm = target_machine(machine, jit=False)
        whole.name = symbol
        whole.triple, whole.data_layout = machine.triple, str(tm.target_data)
        for function in whole.functions:
            if not function.is_declaration and function.name != symbol:
                function.linkage = "internal"
        whole.verify()
        return tm.emit_object(whole)


def assembly(text: str, machine: Machine) -> str:
    """The assembly of optimised IR. Where the IR tells source lines, so do comments in it, which
    then tell of spills too."""
    with LLVM, parsed(text) as module:
        tm = target_machine(machine)
        tm.set_asm_verbosity("!llvm.dbg.cu" in text)
        return tm.emit_assembly(module)
