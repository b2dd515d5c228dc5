"""The code of one thread → PTX → cubin; PTX is the last stage without an assembler.

In a warp-specialized kernel (`specialize_warps`), the copying warp takes registers that the others
may need. Whether they spill is known only after assembly.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

from tilewright.base import knobs
from tilewright.base.diagnostics import PTXASError
from tilewright.base.record import record
from tilewright.ir.passes import PassContext
from tilewright.lowering.simt.notes import Note, carried_registers
from tilewright.targets.gpu.codegen import ThreadCode
from tilewright.targets.gpu.compilation import MachineCode
from tilewright.targets.nvidia.advice import Advice, advice_in
from tilewright.targets.nvidia.assemble import NO_ASSEMBLER, Request, find_assembler
from tilewright.targets.nvidia.best_cubin import Assembled, Attempts, Demand, best_cubin
from tilewright.targets.nvidia.emit import compile_text
from tilewright.targets.nvidia.features import PACKED_PROGRAMS, WARP_SIZE, Processor
from tilewright.targets.nvidia.live_registers import has_loops
from tilewright.targets.nvidia.notes import Waits, held_registers, ptx_version, tensor_columns
from tilewright.targets.nvidia.occupancy import (
    MOST_TO_SAVE,
    memory_bytes,
    registers_for,
    resident_ctas,
)
from tilewright.targets.nvidia.options import CudaOptions
from tilewright.targets.nvidia.programs import looped_axes
from tilewright.targets.nvidia.tma import facts_of
from tilewright.targets.protocol import Lowered, Stage

# Spilled registers of a thread above which a program is compiled for twice the threads, too.
# ptxas spills up to 16 where that makes one more program resident (`best_cubin.FEW_SPILLS`).
MANY_SPILLS = 32
MANY_SPILLS_ONCE = 128
"""The same of a kernel without loops, in which each is stored and loaded once: with 56, products
within chunks of path attention took 26.0 µs on an H200, and 36.9 with twice the threads, of which
fewer programs are resident."""
FEW_SPILLS = 7
"""Of a kernel with a copying warp: they cost less than what that saves. With 8, an int8 product by
blocks of 128 took 78.8 instead of 73.4 µs on an H200."""
SPILLS_TO_SAVE = 8  # by this factor fewer of them are worth twice the threads
LIMITED_REGISTERS = 200  # of a thread: with fewer in use, spills are a heuristic's choice


class Residency(NamedTuple):
    """The CTAs of a kernel that fit on a multiprocessor.

    Attributes:
        ctas: their number.
        plain: the number without the copying warp, if that saves as many registers as it can.
    """

    ctas: int
    plain: int


@record
class Cubin(MachineCode):
    """An assembled kernel.

    Attributes:
        assembled: the cubin, with the assembler's diagnostics.
        chip: the architecture that it is for.
        residency: the CTAs that fit on a multiprocessor.
        waits: whether the loop of the copying warp's users completes its products in each
            iteration, so that others can use the tensor cores meanwhile. A program that does not
            wait gains nothing from more resident programs.
        debug: whether it is a debug build, of which failed assertions call a function. Any call
            serialises products; that is an accepted cost of the checks.
        tests_protocols: whether limits of waits or random delays are to find wrong protocols, so
            that the variant that has the protocols stays, however slow they make it.
    """

    assembled: Assembled
    chip: Processor
    residency: Residency
    waits: bool
    debug: bool
    tests_protocols: bool

    @property
    def spills(self) -> int:
        """Spilled registers of a thread."""
        return self.assembled.used.spilled_registers

    @property
    def lacks_programs(self) -> bool:
        """Whether more resident programs would make it faster, and may fit."""
        return self.waits and self.residency.ctas < self.residency.plain

    def is_doubtful(self) -> bool:
        spilled = self.spills > FEW_SPILLS
        slow = self.lacks_programs or spilled or self.assembled.serialises_products
        return slow and not self.tests_protocols

    def may_be_worse_than(self, other: ThreadCode) -> bool:
        """See `is_better_than`: a few spills do not matter, and more programs are not resident than
        there are registers and shared memory for."""
        if self.spills > FEW_SPILLS or self.assembled.serialises_products:
            return True
        return most_ctas(other, self.chip) > self.residency.ctas

    def surpasses(self, other: ThreadCode) -> bool:
        """See `is_better_than`: more programs are resident than can be of the other."""
        faster = self.residency.ctas > most_ctas(other, self.chip)
        return faster and not self.assembled.serialises_products

    def is_better_than(self, other: Cubin) -> bool:
        """Whether it is better than the cubin with a copying warp. Its spills count if there are
        many, more than twice as many as here, and no fewer programs are resident: a few do not
        outweigh addresses and barriers in the loop, nor the loss of a program. One that does not
        fit on a multiprocessor is not better."""
        most = max(2 * self.spills, FEW_SPILLS)
        return self.residency.ctas > 0 and (
            other.assembled.is_slower_than(self.assembled)
            or (other.spills > most and self.residency.ctas >= other.residency.ctas)
            or (other.waits and self.residency.ctas > other.residency.ctas)
        )

    def lacks_registers(self) -> bool:
        """Whether so much is spilled that twice the threads, each with as many registers, pay. At
        most as many programs are resident with twice the threads, so that a few spills stay."""
        if self.spills <= MANY_SPILLS or self.assembled.used.registers <= LIMITED_REGISTERS:
            return False
        return self.spills > MANY_SPILLS_ONCE or has_loops(self.assembled.ptx)

    def gains_over(self, narrow: Cubin) -> bool:
        """Whether each of twice as many threads spills at most an eighth, so that a program does a
        quarter of the accesses to local memory."""
        return (
            self.residency.ctas > 0
            and self.spills * SPILLS_TO_SAVE <= narrow.spills
            and not self.assembled.is_slower_than(narrow.assembled)
        )

    def report(self, ctx: PassContext) -> None:
        """Report the assembler's diagnostics as remarks.

        Raises:
            PTXASError: products are serialised, other than by the calls of a debug build, and the
                setting `nvidia.strict_products` makes that an error.
        """
        for advice in self._advice():
            ctx.missed("assemble", str(advice), advice.loc)
            if not knobs.nvidia.strict_products or (self.debug and advice.serialises_for_a_call):
                continue
            if advice.serialises:
                raise PTXASError(f"{advice.loc}: {advice}", self.assembled.log)

    def _advice(self) -> Iterator[Advice]:
        """The diagnostics; those that name no line are about the whole kernel."""
        for advice in advice_in(self.assembled.log, self.assembled.ptx):
            yield advice if advice.loc else advice._replace(loc=self.kernel)


@record
class Unassembled(MachineCode):
    """A kernel whose PTX the driver compiles when it is loaded.

    Attributes:
        chip: the architecture that it is for.
    """

    chip: Processor

    def report(self, ctx: PassContext) -> None:
        unknown = f"sm_{self.chip.capability} is unknown, so that the driver compiles the PTX"
        ctx.missed("assemble", NO_ASSEMBLER if self.chip.assembles else unknown, self.kernel)


def machine_code(
    code: ThreadCode, chip: Processor, ctx: PassContext, options: CudaOptions
) -> MachineCode:
    """Generate PTX, and assemble it.

    Raises:
        PTXASError: the assembler rejects the PTX.
    """
    metadata = launch_facts(code, options) | {"ptx_version": _ptx_version(code, chip, options)}
    replacement = ctx.replacement("cubin")
    if replacement is not None:
        stages = _ptx(code, chip, ctx, options) | {"cubin": replacement}
        return MachineCode(Lowered(stages, metadata | {"assembler": "replaced"}), code.loc)
    assembler = find_assembler() if chip.assembles else None
    if assembler is None:
        lowered = Lowered(_ptx(code, chip, ctx, options), metadata | {"assembler": "driver"})
        return Unassembled(lowered, code.loc, chip)
    request = assembly_request(options, chip)
    with assembler.started(request, lines="DICompileUnit" in code.llvm) as started:
        stages = _ptx(code, chip, ctx, options)
        attempts, ptx = Attempts(started, request, code.name), str(stages["ptx"])
        hands_registers = Note.HANDS_REGISTERS in code.notes
        if options.maxnreg is not None or "ptx" in ctx.replaced or hands_registers:
            best = attempts.plain(ptx)
        else:
            packed = PACKED_PROGRAMS if code.packs else 1
            best = best_cubin(attempts, ptx, chip, _demand(code, chip, packed))
    stages |= {"ptx": best.ptx, "cubin": best.cubin}
    metadata |= {
        "assembler": f"{assembler.name} {assembler.version()}",
        "n_regs": best.used.registers,
        "n_spills": best.used.spilled_registers,
    }
    return Cubin(
        Lowered(stages, metadata),
        code.loc,
        best,
        chip,
        _residency(code, chip, best.used.registers),
        Waits.FOR_PRODUCTS in code.notes,
        debug=options.debug,
        tests_protocols=options.debug or bool(options.random_delays),
    )


def _ptx_version(code: ThreadCode, chip: Processor, options: CudaOptions) -> int:
    return options.ptx_version or max(chip.ptx_version, ptx_version(code.notes))


def _ptx(
    code: ThreadCode, chip: Processor, ctx: PassContext, options: CudaOptions
) -> dict[str, Stage]:
    """The stages `llir` and `ptx`, of which the user may have replaced either."""
    llvm = ctx.replaced_text("llir") or code.llvm
    llir, ptx = compile_text(llvm, chip.llvm_cpu, _ptx_version(code, chip, options))
    return {"llir": llir, "ptx": ctx.replaced_text("ptx") or ptx}


def _demand(code: ThreadCode, chip: Processor, programs: int = 1) -> Demand:
    """The resources of a CTA of some programs."""
    threads, memory = code.warps * WARP_SIZE, _memory_bytes(code, chip)
    held = held_registers(code.notes)
    carried = carried_registers(code.notes)
    return Demand(programs * threads, programs * memory, carried, held)


def _memory_bytes(code: ThreadCode, chip: Processor) -> int:
    return memory_bytes(chip, code.shared_bytes, tensor_columns(code.notes))


def most_ctas(code: ThreadCode, chip: Processor) -> int:
    """The most CTAs of a kernel that are resident on a multiprocessor, however it is assembled."""
    demand = _demand(code, chip)
    # One is resident at least: it spills, or its warps hand registers to each other.
    registers = min(demand.registers, registers_for(1, demand.threads))
    return resident_ctas(chip, demand.threads, registers, demand.shared)


def may_outnumber(
    other: ThreadCode, code: ThreadCode, chip: Processor, options: CudaOptions
) -> bool:
    """Whether more programs of a variant may be resident than of one with a copying warp, and make
    it faster."""
    if Waits.FOR_PRODUCTS not in code.notes or options.maxnreg is not None:
        return False
    if options.debug or options.random_delays:
        return False  # see `Cubin.tests_protocols`
    return most_ctas(other, chip) > most_ctas(code, chip)


def _residency(code: ThreadCode, chip: Processor, registers: int) -> Residency:
    fits = partial(resident_ctas, chip, shared=_memory_bytes(code, chip))
    saved = int(registers * (1 - MOST_TO_SAVE))
    return Residency(
        fits(code.warps * WARP_SIZE, registers), fits(code.tile_warps * WARP_SIZE, saved)
    )


def launch_facts(code: ThreadCode, options: CudaOptions) -> dict[str, Any]:
    """The launch metadata of a kernel.

    It names no scratch memory, as kernels have no parameter for it: torch's launchers pass a
    pointer for each kind that is named, even of size 0.
    """
    return {
        "name": code.name,
        "shared": code.shared_bytes,
        "spare_shared": code.spare_bytes,
        "num_warps": options.num_warps,
        # Clusters are an optimisation that isn't implemented: a program is one CTA.
        "num_ctas": 1,
        "warp_size": WARP_SIZE,
        "tmem_size": tensor_columns(code.notes),
        "launch_warps": code.warps,
        "packed_programs": PACKED_PROGRAMS if code.packs else 1,
        "begins_early": Note.BEGINS_EARLY in code.notes or bool(options.launch_pdl),
        "tensor_maps": facts_of(code.provided),
        "looped_axes": looped_axes(code.provided),
    }


def assembly_request(options: CudaOptions, chip: Processor) -> Request:
    """The assembler's options for a kernel."""
    extra = f"{knobs.nvidia.ptxas_options or ''} {options.ptx_options or ''}"
    level = 0 if knobs.nvidia.disable_ptxas_opt else knobs.nvidia.opt_level
    return Request(chip.llvm_cpu, options.enable_fp_fusion, level, tuple(extra.split()))
