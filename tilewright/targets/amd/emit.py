"""LLVM IR → object file and assembly, with LLVM as a library. The only user of llvmlite here.

Requirements on the IR:

- A kernel is `define amdgpu_kernel void @name(...) #0`, with `attributes #0 = { … }` from
  `kernel_attributes`; triple, data layout and the version of the ABI are set here.
- LLVM ends the process on an intrinsic that the processor does not have, and on more LDS than it
  has: both must be ruled out before.
- Flat pointers that kernels are passed become global ones in LLVM (`PromoteKernelArguments`); other
  accesses to global memory cast their address to address space 1.

The code generator modifies the module, after which it cannot be used again: assembly text and
object file each need a module of their own.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache

import llvmlite.binding as llvm

from tilewright.base.llvm_library import option, parsed
from tilewright.base.llvm_recurrences import has_long_recurrence
from tilewright.base.locks import LLVM
from tilewright.targets.amd.features import Processor, processor
from tilewright.targets.amd.repairs import repair
from tilewright.targets.gpu.emit import clean_up

TRIPLE = "amdgcn-amd-amdhsa"

# The version of the ABI of code objects, times 100. ROCm before 6.3 rejects LLVM's default, 6.
CODE_OBJECT_VERSION = 500

# Intrinsics that read what the hardware or the runtime passes to a kernel, and the attributes that
# state that a kernel does not: LLVM reserves registers and hidden arguments for all others.
_INPUTS = {
    "llvm.amdgcn.dispatch.id": "amdgpu-no-dispatch-id",
    "llvm.amdgcn.dispatch.ptr": "amdgpu-no-dispatch-ptr",
    "llvm.amdgcn.implicitarg.ptr": "amdgpu-no-implicitarg-ptr",
    "llvm.amdgcn.queue.ptr": "amdgpu-no-queue-ptr",
    "llvm.amdgcn.lds.kernel.id": "amdgpu-no-lds-kernel-id",
    "llvm.amdgcn.workgroup.id.x": "amdgpu-no-workgroup-id-x",
    "llvm.amdgcn.workgroup.id.y": "amdgpu-no-workgroup-id-y",
    "llvm.amdgcn.workgroup.id.z": "amdgpu-no-workgroup-id-z",
    "llvm.amdgcn.workitem.id.x": "amdgpu-no-workitem-id-x",
    "llvm.amdgcn.workitem.id.y": "amdgpu-no-workitem-id-y",
    "llvm.amdgcn.workitem.id.z": "amdgpu-no-workitem-id-z",
}
_NO_SERVICES = (
    "amdgpu-no-completion-action",
    "amdgpu-no-default-queue",
    "amdgpu-no-heap-ptr",
    "amdgpu-no-hostcall-ptr",
    "amdgpu-no-multigrid-sync-arg",
)


def kernel_attributes(threads: int, waves_per_eu: int = 0) -> str:
    """The attributes of a kernel in LLVM IR, without braces, that reads no input.

    Args:
        threads: threads of a work-group, exactly.
        waves_per_eu: waves of a SIMD unit that must be resident at once; 0 for any number.
    """
    attributes = [
        "nounwind",
        '"amdgpu-agpr-alloc"="0"',
        f'"amdgpu-flat-work-group-size"="{threads},{threads}"',
        '"uniform-work-group-size"="true"',
        *(f'"{name}"' for name in (*_INPUTS.values(), *_NO_SERVICES)),
    ]
    if waves_per_eu:
        attributes.append(f'"amdgpu-waves-per-eu"="{waves_per_eu}"')
    return " ".join(attributes)


def with_inputs(text: str) -> str:
    """LLVM IR without the attributes that deny the inputs which its kernel reads."""
    for intrinsic, attribute in _INPUTS.items():
        if f"@{intrinsic}(" in text:
            text = text.replace(f' "{attribute}"', "")
    return text


@cache
def _target_machine(chip: Processor) -> llvm.TargetMachine:
    """LLVM's code generator, cached: creating one takes as long as the passes of a small kernel."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    target = llvm.Target.from_triple(TRIPLE)
    return target.create_target_machine(
        cpu=chip.name, features=chip.llvm_features, opt=3, reloc="pic"
    )


@cache
def _builder(chip: Processor) -> llvm.PassBuilder:
    return llvm.create_pass_builder(_target_machine(chip), llvm.create_pipeline_tuning_options())


def compile_text(text: str, chip: Processor) -> tuple[str, bytes]:
    """Verify, optimise and generate code. Returns the optimised IR and the object file.

    The code is generated from the text of the optimised IR, from which `assembly_of` generates the
    same. Of the module itself it could be other code, since parsing reorders the uses of values.

    Raises:
        RuntimeError: the text is not valid IR; contains LLVM's message.
    """
    with LLVM:
        with parsed(with_inputs(text), _flags()) as module:
            machine = _target_machine(chip)
            module.triple = TRIPLE
            module.data_layout = str(machine.target_data)
            module.verify()
            clean_up(module, _builder(chip), numbered=not has_long_recurrence(text))
            optimised = repair(str(module), chip)
        with parsed(optimised) as module, _without_faults(optimised, chip):
            return optimised, machine.emit_object(module)


_VECTOR_CONDITION = re.compile(r"(%[\w.]+) = (?:fcmp |icmp (?:samesign )?[su][lg][te] i64 )")
_BRANCHED = re.compile(r"^\s*br i1 (%[\w.]+),", re.MULTILINE)
_SELECTED = re.compile(r" = select (?:[a-z]+ )*i1 (%[\w.]+),")
_SIGNED_BYTE = re.compile(
    r" = (?:ashr (?:exact )?(?:<\d+ x )?i16\b|sext (?:<\d+ x )?i8>? %[\w.]+ to (?:<\d+ x )?i16\b)"
)
_LONG_EXTREMUM = re.compile(r" @llvm\.[su]m(?:in|ax)\.i64\(")  # a selection by a comparison


@contextmanager
def _without_faults(text: str, chip: Processor) -> Generator[None]:
    """Generate code without optimisations of LLVM 22 that are wrong for it."""
    with ExitStack() as stack:
        for name, value, default in _wrong_options(text, chip):
            stack.enter_context(option(name, value, default))
        yield


def _wrong_options(text: str, chip: Processor) -> Iterator[tuple[str, str, str]]:
    """Options, the values that they need, and LLVM's own values.

    A condition that only the vector unit computes may be branched and selected by, in scalar
    registers. LLVM makes one instruction of the two that mask it by the active lanes, and deletes
    it in front of the branch, though the selection reads its flag (LLVM issue 215745). So there the
    elimination of common machine instructions is left out.

    RDNA3 may read one operand of two instructions that are issued as one before it is written,
    where LLVM takes the banks of registers for different (LLVM change 220348).

    CDNA's instructions that read a part of a register (SDWA) may extend its sign. LLVM has one of
    32 bits read the upper byte of 16 so, where the shift by 8 bits, whose place it takes, leaves
    zeros above 16 bits. So these instructions are left out where bytes are extended to 16 bits.

    The peephole optimiser makes one instruction of a constant of 64 bits and its copy that remains
    without the former elimination; its literal has 32 bits (LLVM change 200576 has a like one).
    """
    shared = {*_VECTOR_CONDITION.findall(text)} & {*_BRANCHED.findall(text)}
    if shared and (not shared.isdisjoint(_SELECTED.findall(text)) or _LONG_EXTREMUM.search(text)):
        yield "disable-machine-cse", "true", "false"
        yield "disable-peephole", "true", "false"
    if "dual_issue_hazard" in chip.features:
        yield "amdgpu-enable-vopd", "false", "true"
    if "sdwa" in chip.features and _SIGNED_BYTE.search(text):
        yield "amdgpu-sdwa-peephole", "false", "true"


def _flags() -> str:
    """A module that only states the version of the ABI."""
    flag = f'!0 = !{{i32 1, !"amdhsa_code_object_version", i32 {CODE_OBJECT_VERSION}}}'
    return f"!llvm.module.flags = !{{!0}}\n{flag}\n"


def assembly_of(llir: str, arch: str) -> str:
    """The assembly text of optimised IR, of which `compile_text` has generated the object file."""
    chip = processor(arch)
    with LLVM, parsed(llir) as module, _without_faults(llir, chip):
        module.verify()
        return _target_machine(chip).emit_assembly(module)
