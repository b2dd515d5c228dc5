"""A module after the target's passes → cubin, or PTX without an assembler.

A kernel whose loads a warp of its own does (`specialize_warps`) may need registers that this warp
takes from the others. Whether it does is known once it is assembled. Where the result is poor, the
function as it was before that pass is compiled, too, and the better one is taken.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from tilewright.base import knobs
from tilewright.base.diagnostics import Loc, PTXASError
from tilewright.ir import passes
from tilewright.ir.core import Function, Module
from tilewright.ir.parser import parse_module
from tilewright.ir.passes import PassContext
from tilewright.targets.nvidia import occupancy
from tilewright.targets.nvidia.advice import advice_in, serialises_products
from tilewright.targets.nvidia.assemble import NO_ASSEMBLER, Request, find_assembler
from tilewright.targets.nvidia.best_cubin import Assembled, Attempts, best_cubin
from tilewright.targets.nvidia.codegen import Generated, generate
from tilewright.targets.nvidia.copied_loops import NAME as SPECIALIZE
from tilewright.targets.nvidia.emit import compile_text
from tilewright.targets.nvidia.features import WARP_SIZE, Processor
from tilewright.targets.nvidia.options import CudaOptions
from tilewright.targets.nvidia.steps import steps_after
from tilewright.targets.protocol import Lowered, Stage

SCRATCH_ALIGN = 128  # bytes, of a program's global scratch memory; sufficient for a tensor map

Residency = Callable[[int, int, int], int]
"""The number of resident CTAs, by threads, registers of a thread, and bytes of shared memory."""


def compile_module(
    module: Module, chip: Processor, ctx: PassContext, options: CudaOptions
) -> Lowered:
    """Compile a module after the target's passes; remarks are reported to the context."""
    laid_out = ctx.replaced_text("ttgir")
    if laid_out is not None:
        module = parse_module(laid_out, "ttgir")
    made = _compiled(module, chip, ctx, options)
    original = ctx.before.get(SPECIALIZE)
    if original is not None and made.assembled is not None and not ctx.replaced:
        made = _better(made, original, chip, ctx, options)
    if made.assembled is not None:
        _report_advice(made.assembled, ctx, module.entry.loc, debug=options.debug)
    return made.lowered


class _Compiled(NamedTuple):
    """A compiled kernel.

    Attributes:
        generated: what it was assembled from.
        assembled: None if there is no assembler, or the cubin was replaced.
    """

    lowered: Lowered
    generated: Generated
    assembled: Assembled | None = None

    @property
    def spills(self) -> int:
        """Spilled registers of a thread."""
        return self.assembled.used.spilled_registers if self.assembled is not None else 0

    def residency(self, fits: Residency, warps: int, part: float = 1) -> int:
        """The number of resident CTAs with these warps, and a part of the registers."""
        assert self.assembled is not None
        registers = int(self.assembled.used.registers * part)
        return fits(warps * WARP_SIZE, registers, self.generated.shared_bytes)


def _better(
    made: _Compiled, original: Function, chip: Processor, ctx: PassContext, options: CudaOptions
) -> _Compiled:
    """The better one of a kernel with a copying warp and the original kernel."""
    fits = partial(occupancy.resident_ctas, chip)
    resident = made.residency(fits, made.generated.warps)
    # A program that waits for its products in each iteration leaves the tensor cores to others
    # meanwhile; one that does not gains nothing by more resident programs.
    more = made.generated.waits_for_products and resident < made.residency(
        fits, ctx.gpu.warps, 1 - occupancy.MOST_TO_SAVE
    )
    assert made.assembled is not None
    if not (more or made.spills or serialises_products(made.assembled.log)):
        return made
    module = Module([original])
    passes.run(module, steps_after(SPECIALIZE), ctx)
    plain = _compiled(module, chip, ctx, options)
    assert plain.assembled is not None
    if not (
        made.assembled.is_slower_than(plain.assembled)
        or made.spills > plain.spills
        or (more and plain.residency(fits, plain.generated.warps) > resident)
    ):
        return made
    why = "without a copying warp there are more registers for the others, or more programs"
    ctx.missed(SPECIALIZE, f"undone: {why} on a multiprocessor", original.loc)
    return plain


def _compiled(module: Module, chip: Processor, ctx: PassContext, options: CudaOptions) -> _Compiled:
    """Generate and assemble code."""
    generated = generate(module, options, chip.features, ctx)
    ptx_version = options.ptx_version or max(chip.ptx_version, generated.ptx_version)
    llvm = ctx.replaced_text("llir") or generated.llvm
    llir, ptx = compile_text(llvm, chip.llvm_cpu, ptx_version)
    own_ptx = ctx.replaced_text("ptx")
    ptx = own_ptx or ptx
    stages: dict[str, Stage] = {"ttgir": generated.laid_out, "llir": llir, "ptx": ptx}
    metadata = launch_facts(generated, options) | {"ptx_version": ptx_version}
    replacement = ctx.replacement("cubin")
    if replacement is not None:
        stages["cubin"] = replacement
        return _Compiled(Lowered(stages, metadata | {"assembler": "replaced"}), generated)
    assembler = find_assembler()
    if assembler is None:
        ctx.missed("assemble", NO_ASSEMBLER, module.entry.loc)
        return _Compiled(Lowered(stages, metadata | {"assembler": "driver"}), generated)
    attempts = Attempts(assembler, assembly_request(options, chip), generated.name)
    if options.maxnreg is not None or own_ptx is not None or generated.hands_registers:
        best = attempts.plain(ptx)
    else:
        threads = generated.warps * WARP_SIZE
        shared, carried = generated.shared_bytes, generated.carried
        best = best_cubin(attempts, ptx, chip, threads, shared, carried)
    stages |= {"ptx": best.ptx, "cubin": best.cubin}
    metadata |= {
        "assembler": f"{assembler.name} {assembler.version()}",
        "n_regs": best.used.registers,
        "n_spills": best.used.spilled_registers,
    }
    return _Compiled(Lowered(stages, metadata), generated, best)


def _report_advice(made: Assembled, ctx: PassContext, kernel: Loc | None, *, debug: bool) -> None:
    """Report the assembler's diagnostics on a kernel as remarks.

    In a debug build, failed assertions call a function, and any call serialises products; that is
    an accepted cost of the checks.

    Raises:
        PTXASError: products are serialised, other than by the calls of a debug build, and the
            setting `nvidia.strict_products` makes that an error.
    """
    for advice in advice_in(made.log, made.ptx):
        ctx.missed("assemble", str(advice), advice.loc or kernel)
        if not knobs.nvidia.strict_products or (debug and advice.serialises_for_a_call):
            continue
        if advice.serialises:
            raise PTXASError(f"{advice.loc or kernel}: {advice}", made.log)


def launch_facts(generated: Generated, options: CudaOptions) -> dict[str, Any]:
    """The launch metadata of a kernel; that of code generation takes precedence."""
    return {
        "name": generated.name,
        "shared": generated.shared_bytes,
        "num_warps": options.num_warps,
        "num_ctas": options.num_ctas,
        "warp_size": WARP_SIZE,
        "tmem_size": 0,
        "global_scratch_size": generated.scratch_bytes,
        "global_scratch_align": SCRATCH_ALIGN,
        "profile_scratch_size": 0,
        "profile_scratch_align": 1,
        **generated.metadata,
    }


def assembly_request(options: CudaOptions, chip: Processor) -> Request:
    """The assembler's options for a kernel."""
    extra = f"{knobs.nvidia.ptxas_options or ''} {options.ptx_options or ''}"
    level = 0 if knobs.nvidia.disable_ptxas_opt else knobs.nvidia.opt_level
    return Request(chip.llvm_cpu, options.enable_fp_fusion, level, tuple(extra.split()))
