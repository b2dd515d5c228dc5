"""LLVM IR → PTX, with LLVM as a library. The only user of llvmlite in this target.

Requirements on the IR:

- A kernel is `define ptx_kernel void @name(...) #0`, with `attributes #0 = { … }` from
  `kernel_attributes`; triple and data layout are set here.
- A product and a sum are contracted if both have the flag `contract`: PTX then has `fma`, or `mul`
  and `add` without a rounding mode, which the assembler may contract. Without the flag it has
  `mul.rn` and `add.rn`, which are never contracted.
- A vector load or store stays one instruction if its `align` permits.
- Synchronising instructions, including inline assembly, must be `convergent`: otherwise branches
  around them may be duplicated.
- Lines come from `!dbg` under a `DICompileUnit` with `emissionKind: DebugDirectivesOnly`. Any other
  kind makes LLVM emit `.target …, debug`, which turns optimisation off in the assembler.
"""

from __future__ import annotations

import re
from collections.abc import Generator
from contextlib import contextmanager
from functools import cache

import llvmlite.binding as llvm

from tilewright.base.llvm_library import parsed
from tilewright.base.locks import LLVM

TRIPLE = "nvptx64-nvidia-cuda"


def kernel_attributes(threads: int, maxnreg: int | None = None, cluster: int = 1) -> str:
    """The attributes of a kernel in LLVM IR, without braces.

        kernel_attributes(128, maxnreg=64)  # 'nounwind "nvvm.reqntid"="128" "nvvm.maxnreg"="64"'

    Args:
        threads: threads of a CTA.
        maxnreg: the most registers of a thread; None leaves it to the assembler.
        cluster: CTAs of a cluster, along x.
    """
    attributes = ["nounwind", f'"nvvm.reqntid"="{threads}"']
    if maxnreg is not None:
        attributes.append(f'"nvvm.maxnreg"="{maxnreg}"')
    if cluster > 1:
        attributes.append(f'"nvvm.cluster_dim"="{cluster}"')
    return " ".join(attributes)


@cache
def _target_machine(cpu: str, ptx_version: int) -> llvm.TargetMachine:
    """LLVM's code generator, cached: creating one takes as long as the passes of a small kernel."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    target = llvm.Target.from_triple(TRIPLE)
    return target.create_target_machine(cpu=cpu, features=f"+ptx{ptx_version}", opt=3)


@cache
def _passes() -> llvm.ModulePassManager:
    """The clean-up that our code needs, after which code generation does its own share.

    Nothing here unrolls, vectorises or moves code between blocks: that was decided before. LLVM's
    own pipeline takes four times as long for the same PTX (measured on a matmul kernel). Kept, like
    what runs them, as llvmlite frees neither wholly.
    """
    passes = llvm.create_new_module_pass_manager()
    passes.add_sroa_pass()
    passes.add_instruction_combine_pass()
    passes.add_new_gvn_pass()
    passes.add_simplify_cfg_pass()
    return passes


@cache
def _builder(cpu: str, ptx_version: int) -> llvm.PassBuilder:
    machine = _target_machine(cpu, ptx_version)
    return llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options())


def compile_text(text: str, cpu: str, ptx_version: int) -> tuple[str, str]:
    """Verify, optimise and generate code. Returns the optimised IR and the PTX.

    An error in LLVM's code generator terminates the process, so the verifier runs first. It does
    not detect everything: the caller must not use intrinsics that the processor does not have.

    Args:
        cpu: LLVM's name of the processor, such as ``sm_90a``.
        ptx_version: major * 10 + minor.

    Raises:
        RuntimeError: the text is not valid IR; contains LLVM's message.
    """
    with LLVM, _without_strength_reduction(), parsed(text) as module:
        machine = _target_machine(cpu, ptx_version)
        module.triple = TRIPLE
        module.data_layout = str(machine.target_data)
        module.verify()
        _passes().run(module, _builder(cpu, ptx_version))
        return str(module), _wrapping(machine.emit_assembly(module))


_SHORT_SIGN = re.compile(r"^\t(neg|abs)\.s16 \t(%\w+), (%\w+);$", re.MULTILINE)


def _wrapping(ptx: str) -> str:
    """The PTX with 16-bit `neg` and `abs` expanded, to work around a miscompile of ptxas 13.0.

    It implements both by 32-bit instructions on the extended number, without truncating the result:
    -32768 becomes 32768, which a following signed instruction observes. 16-bit `add` and `sub` of
    registers are correct (seen in SASS for all 16-bit arithmetic). No IR avoids it, as LLVM selects
    `neg` for all equivalent forms.
    """
    return _SHORT_SIGN.sub(_spelt_out, ptx) if ".s16" in ptx else ptx


def _spelt_out(match: re.Match[str]) -> str:
    name, to, x = match.groups()
    if name == "neg":
        return f"\tnot.b16 \t{to}, {x};\n\tadd.s16 \t{to}, {to}, 1;"
    sign = f"%sign{to[1:]}"
    return (
        f"\t{{ .reg .b16 {sign}; shr.s16 {sign}, {x}, 15; xor.b16 {to}, {x}, {sign}; "
        f"sub.s16 {to}, {to}, {sign}; }}"
    )


@contextmanager
def _without_strength_reduction() -> Generator[None]:
    """Disable loop strength reduction, which introduces a 64-bit induction variable per address.

    The addresses of a tile differ from a common one by constants, and registers are scarce: without
    the pass a loop of 16 copies has 149 instructions instead of 185, and compile time decreases by
    a sixth (measured). The option is global to the process, so it is restored afterwards.
    """
    llvm.set_option("tilewright", "-disable-lsr=true")
    try:
        yield
    finally:
        llvm.set_option("tilewright", "-disable-lsr=false")
