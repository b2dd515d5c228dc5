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
from collections import Counter
from functools import cache

import llvmlite.binding as llvm

from tilewright.base.llvm_library import option, parsed
from tilewright.base.llvm_recurrences import has_long_recurrence
from tilewright.base.locks import LLVM
from tilewright.lowering.selected_zeros import with_selected_zeros
from tilewright.targets.gpu.emit import clean_up
from tilewright.targets.nvidia.extremum_repairs import with_inequalities
from tilewright.targets.nvidia.features import PACKED_PROGRAMS
from tilewright.targets.nvidia.selection_repairs import with_unpredicated_selections
from tilewright.targets.nvidia.shift_repairs import with_repaired_shifts
from tilewright.targets.nvidia.zero_repairs import with_selected_bits

TRIPLE = "nvptx64-nvidia-cuda"


def kernel_attributes(
    threads: int, maxnreg: int | None = None, cluster: int = 1, *, packs: bool = False
) -> str:
    """The attributes of a kernel in LLVM IR, without braces.

        kernel_attributes(128, maxnreg=64)  # 'nounwind "nvvm.reqntid"="128" "nvvm.maxnreg"="64"'

    Args:
        threads: threads of a program.
        maxnreg: the most registers of a thread; None leaves it to the assembler.
        cluster: CTAs of a cluster, along x.
        packs: whether a CTA runs up to `PACKED_PROGRAMS` programs, or one.
    """
    size = f'"nvvm.reqntid"="{threads}"'
    if packs:
        size = f'"nvvm.maxntid"="{threads},{PACKED_PROGRAMS}"'
    attributes = ["nounwind", size]
    if maxnreg is not None:
        attributes.append(f'"nvvm.maxnreg"="{maxnreg}"')
    if cluster > 1:
        attributes.append(f'"nvvm.cluster_dim"="{cluster}"')
    return " ".join(attributes)


# Lines of LLVM IR from which value numbering takes too long: its time grows with the square of the
# number of loads and stores, and of that of branches on one condition. What it finds beyond early
# CSE is little: tile IR is free of common subexpressions. Kernels of the examples and benchmarks
# have up to 8,000, but for those whose compile time is measured.
LONG = 10_000


@cache
def _target_machine(cpu: str, ptx_version: int, long: bool = False) -> llvm.TargetMachine:
    """LLVM's code generator, cached: creating one takes as long as the passes of a small kernel."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    target = llvm.Target.from_triple(TRIPLE)
    return target.create_target_machine(
        cpu=cpu, features=f"+ptx{ptx_version}", opt=2 if long else 3
    )


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
    # Loop strength reduction introduces a 64-bit induction variable per address. But the addresses
    # of a tile differ from a common one by constants, and registers are scarce: without the pass a
    # loop of 16 copies has 149 instructions instead of 185, and compile time decreases by a sixth
    # (measured).
    with LLVM, option("disable-lsr", "true", "false"), parsed(text) as module:
        long = text.count("\n") > LONG
        machine = _target_machine(cpu, ptx_version, long)
        module.triple = TRIPLE
        module.data_layout = str(machine.target_data)
        module.verify()
        numbered = not long and not has_long_recurrence(text)
        clean_up(module, _builder(cpu, ptx_version), numbered=numbered)
        optimised = str(module)
        repaired = with_repaired_shifts(with_selected_zeros(optimised))
        if repaired == optimised:
            ptx = _assembly(module, optimised, machine)
        else:
            with parsed(repaired) as other:
                ptx = _assembly(other, repaired, machine)
        if has_many_wide_sums(ptx):
            ptx = with_wide_sums(ptx)
        ptx = with_inequalities(with_unpredicated_selections(_wrapping(ptx)))
        return repaired, with_selected_bits(ptx)


MOST_OTHERS = 50
"""Lines of a kernel for each wide sum, up to which these are emitted as `mad.wide`."""

_PRODUCT = re.compile(r"\tmul\.wide\.([su]32) \t(%rd\d+), (%r\d+), (\S+);")
_SUM = re.compile(r"\tadd\.s64 \t(%rd\d+), (%rd\d+), (%rd\d+);")
_WIDE_REGISTER = re.compile(r"%rd\d+")
_REGISTER = re.compile(r"%\w+")
_BLOCK = "$L__BB"  # begins the label of a block


def has_many_wide_sums(ptx: str) -> bool:
    """Whether a kernel without matrix instructions has many products of 32 bits that are added to
    64, of which each is for one address.

    The assembler computes `mad.wide` by `LEA` and `LEA.HI.X`, and `mul.wide` and `add.s64` by
    `IMAD.WIDE`, of which a multiprocessor has a quarter of the throughput, but which writes no
    carry and needs fewer registers: docs/decisions/0079.
    """
    products = [found[1] for found in _PRODUCT.findall(ptx)]
    if len(products) * MOST_OTHERS < ptx.count("\n") or "mma" in ptx:
        return False
    uses = Counter(_WIDE_REGISTER.findall(ptx))  # one of them is the product
    return sum(uses[product] == 2 for product in products) * MOST_OTHERS >= ptx.count("\n")


def with_wide_sums(ptx: str) -> str:
    """The PTX with products of 32 bits that only a sum of their block uses as a part of that sum.

    mul.wide.s32 %rd3, %r1, 4;  add.s64 %rd4, %rd2, %rd3;  →  mad.wide.s32 %rd4, %r1, 4, %rd2;
    """
    uses = Counter(_WIDE_REGISTER.findall(ptx))
    lines: list[str | None] = [*ptx.split("\n")]
    pending: dict[str, tuple[int, re.Match[str]]] = {}  # the products of a block, by their result
    for at, line in enumerate(ptx.split("\n")):
        if line.startswith(_BLOCK):
            pending.clear()
        total = _SUM.match(line)
        if total:
            result, *addends = total.groups()
            found = next((v for v in addends if v in pending), None)
            if found is not None:
                place, product = pending.pop(found)
                other = addends[1 - addends.index(found)]
                lines[place] = None
                lines[at] = (
                    f"\tmad.wide.{product[1]} \t{result}, {product[3]}, {product[4]}, {other};"
                )
        written = _may_write(line)
        pending = {v: p for v, p in pending.items() if not written & {p[1][3], p[1][4]}}
        product = _PRODUCT.match(line)
        if product and uses[product[2]] == 2:
            pending[product[2]] = at, product
    return "\n".join(line for line in lines if line is not None)


def _may_write(line: str) -> set[str]:
    """The registers that an instruction may write: the first one; in inline assembly, any."""
    registers = _REGISTER.findall(line)
    return set(registers if "@" in line or "{" in line else registers[:1])


# -- code generation without one pass --------------------------------------------------------------

MOST_PAIRS = 2600  # up to which straight-line strength reduction runs; see `_assembly`

_SLSR = "slsr"  # straight-line strength reduction

# Sums and products of two registers, and addresses at a register's distance from a symbol.
_REDUCIBLE = re.compile(
    r" = (?:(add|mul) [^%\n]*(%[^,\n]+), (%[^,\n ]+)"
    r"|getelementptr [^@%\n]*([@%][\w.]+).*, i(?:32|64) %)"
)


def _assembly(module: llvm.ModuleRef, text: str, machine: llvm.TargetMachine) -> str:
    """The PTX of an optimised module, of which `text` is the IR.

    LLVM's straight-line strength reduction compares each sum, product and address with those
    before it that share an operand, at some 10 to 20 µs a pair: LLVM 22 proves that reuse of a
    value adds no poison. 64 rounds of a hash function took it 1.5 s, a product of 128 x 128 tiles
    0.7 s. So the pass is left out where there are more pairs than in attention of 128 x 64 tiles;
    kernels of the examples of which that is so have as many instructions without it (seen in SASS).
    """
    if reducible_pairs(text) <= MOST_PAIRS or llvm.llvm_version_info[0] != 22:
        return machine.emit_assembly(module)  # a pass that LLVM does not know ends the process
    _register_passes(machine)
    with option("stop-before", _SLSR, ""):
        machine.emit_assembly(module)  # leaves the IR in the module as it is before the pass
    with option("start-after", _SLSR, ""):
        return machine.emit_assembly(module)


def reducible_pairs(text: str) -> int:
    """The approximate number of pairs that straight-line strength reduction compares."""
    groups: Counter[tuple[str, str]] = Counter()
    for operation, left, right, base in _REDUCIBLE.findall(text):
        groups.update([(operation, left), (operation, right)] if operation else [("at", base)])
    return sum(count * count for count in groups.values())


@cache
def _register_passes(machine: llvm.TargetMachine) -> None:
    """Run the code generator once, after which LLVM knows its passes by name."""
    with parsed("") as nothing:
        nothing.triple, nothing.data_layout = TRIPLE, str(machine.target_data)
        machine.emit_assembly(nothing)


_SHORT_SIGN = re.compile(r"^\t(neg|abs)\.s16 \t(%\w+), (%\w+);$", re.MULTILINE)
_SHORT_SUMS = re.compile(r"^\tadd\.[su]16x2 \t(%\w+), (%\w+), (%\w+);$", re.MULTILINE)


def _wrapping(ptx: str) -> str:
    """The PTX without instructions on integers of 16 bits that ptxas miscompiles. No IR avoids
    them, as LLVM selects them for all equivalent forms.

    `neg` and `abs`, by ptxas 13.0: it implements both by 32-bit instructions on the extended
    number, without truncating the result: -32768 becomes 32768, which a following signed
    instruction observes. 16-bit `add` and `sub` of registers are correct (seen in SASS for all
    16-bit arithmetic).

    `add` of two pairs, by ptxas 12.8 and 12.9: where one operand is a constant, and only one half
    of the result is used, it adds 0 instead of the constant (seen in SASS, and on an H200). `min`
    and `max` of pairs are correct.
    """
    if "16x2" in ptx:
        ptx = _SHORT_SUMS.sub(_halves, ptx)
    return _SHORT_SIGN.sub(_spelt_out, ptx) if ".s16" in ptx else ptx


def _halves(match: re.Match[str]) -> str:
    """The sum of two pairs, half by half."""
    to, x, y = match.groups()
    a, b, c, d = (f"%half{i}_{to[1:]}" for i in range(4))
    return (
        f"\t{{ .reg .b16 {a}, {b}, {c}, {d}; mov.b32 {{{a}, {b}}}, {x}; mov.b32 {{{c}, {d}}}, {y}; "
        f"add.s16 {a}, {a}, {c}; add.s16 {b}, {b}, {d}; mov.b32 {to}, {{{a}, {b}}}; }}"
    )


def _spelt_out(match: re.Match[str]) -> str:
    name, to, x = match.groups()
    if name == "neg":
        return f"\tnot.b16 \t{to}, {x};\n\tadd.s16 \t{to}, {to}, 1;"
    sign = f"%sign{to[1:]}"
    return (
        f"\t{{ .reg .b16 {sign}; shr.s16 {sign}, {x}, 15; xor.b16 {to}, {x}, {sign}; "
        f"sub.s16 {to}, {to}, {sign}; }}"
    )
