"""LLVM as a library: text in, object code out. All of llvmlite that compiling for the CPU needs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path

import llvmlite.binding as llvm

from tilewright.base.amx import amx_permitted
from tilewright.base.locks import LLVM
from tilewright.targets.cpu.machine import CACHE_BYTES, Machine
from tilewright.targets.cpu.processor import changed, features_of
from tilewright.targets.cpu.repairs import repair


def host_machine(cpu: str | None = None, features: str | None = None) -> Machine:
    """This machine, or the one that LLVM calls `cpu`, with features added and removed.

    Raises:
        ValueError: LLVM does not know the processor, or a feature.
    """
    with LLVM:
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
    host, triple = llvm.get_host_cpu_name(), llvm.get_process_triple()
    named = frozenset[str]() if cpu in (None, host) else features_of(cpu, triple)
    if cpu in (None, host):
        named = frozenset(k for k, on in llvm.get_host_cpu_features().items() if on)
        if not amx_permitted():
            named = frozenset(f for f in named if not f.startswith("amx-"))
    found, without = named, frozenset[str]()
    if features is not None:
        found, without = changed(named, features, llvm.get_host_cpu_features())
    cache = None if cpu else _last_cache_bytes()
    return Machine(triple, cpu or host, found, cache or CACHE_BYTES, without)


def target_machine(machine: Machine, *, jit: bool = True) -> llvm.TargetMachine:
    """LLVM for a machine. Code that is not for this process (`jit`) takes what it refers to to be
    near it, as a linker puts it."""
    target = llvm.Target.from_triple(machine.triple)
    return target.create_target_machine(
        cpu=machine.cpu,
        features=machine.feature_text,
        opt=2,
        reloc="pic",
        codemodel="default",
        jit=jit,
    )


@cache
def _passes() -> llvm.ModulePassManager:
    """The clean-up that our code needs: loops, vectors and hoisting are done when LLVM sees it.

    LLVM's own pipelines take three to four times as long for the same code. Kept, like what runs
    them, as llvmlite frees neither wholly.
    """
    passes = llvm.create_new_module_pass_manager()
    passes.add_sroa_pass()
    passes.add_instruction_combine_pass()
    passes.add_simplify_cfg_pass()
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
        module = llvm.parse_assembly(text, llvm.create_context())
        module.triple = machine.triple
        module.data_layout = str(tm.target_data)
        module.verify()
        _passes().run(module, _builder(machine))
        text = str(module)
        repaired = repair(text, machine)
        if repaired != text:
            text, module = repaired, llvm.parse_assembly(repaired, llvm.create_context())
            module.verify()
        return text, tm.emit_object(module)


def object_of(texts: Sequence[str], symbol: str, machine: Machine) -> bytes:
    """An object file of several texts of IR, for a linker; only `symbol` is seen outside of it.

    Raises RuntimeError with LLVM's message when a text is not valid IR.
    """
    with LLVM:
        tm = target_machine(machine, jit=False)
        context = llvm.create_context()
        whole = llvm.parse_assembly(texts[0], context)
        for text in texts[1:]:
            whole.link_in(llvm.parse_assembly(text, context))
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
    with LLVM:
        tm = target_machine(machine)
        tm.set_asm_verbosity("!llvm.dbg.cu" in text)
        return tm.emit_assembly(llvm.parse_assembly(text, llvm.create_context()))


def _last_cache_bytes() -> int | None:
    """What the last level of this machine's caches holds, where the system says so."""
    levels = Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")
    found: dict[int, int] = {}
    for index in levels:
        try:
            level = int((index / "level").read_text())
            size = (index / "size").read_text().strip()
            found[level] = int(size.removesuffix("K")) << 10
        except (OSError, ValueError):
            continue
    return found[max(found)] if found else None
