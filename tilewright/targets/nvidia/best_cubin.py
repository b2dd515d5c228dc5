"""PTX → cubin, with a number of registers that balances spills and occupancy.

ptxas selects the number without knowing how many CTAs shared memory permits (`occupancy.py`). A
directive specifies the number of CTAs; its profitability is known only from the resulting cubin. So
a kernel is assembled without a directive, and again with one if the first result suggests it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

from tilewright.base.record import record
from tilewright.targets.nvidia.advice import serialises_products
from tilewright.targets.nvidia.assemble import Assembler, Cubin, Rejection, Request
from tilewright.targets.nvidia.carries import mixes_carries
from tilewright.targets.nvidia.cubin import Resources, resources
from tilewright.targets.nvidia.features import WARP_SIZE, Processor
from tilewright.targets.nvidia.live_registers import has_loops, live_registers
from tilewright.targets.nvidia.load_waits import load_waits
from tilewright.targets.nvidia.occupancy import (
    FEW_CTAS,
    FEWEST_OTHERS,
    MAX_REGISTERS,
    OTHER_REGISTERS,
    REGISTER_UNIT,
    SQUEEZED_REGISTERS,
    ctas_by_memory,
    ctas_if_one_more,
    ctas_in_memory,
    ctas_with_all_warps,
    ctas_with_room,
    ctas_with_spare_registers,
    registers_for,
    resident_ctas,
)

SHORT_PTX = 750  # lines, up to which machine code is searched for waits

# The waits for loads, counted in machine code, from which a kernel with a loop is assembled again
# if it has registers to spare: a loop over a row and one that divides by its sum have two.
MANY_WAITS = 3

# Lines of PTX from which ptxas takes a second or more: one more CTA is not worth another run.
LONG_PTX = 10_000

# Spills with at most as many registers in use are a heuristic's choice rather than a necessity.
FEW_REGISTERS = 64

# The fraction of a thread's registers that may be spilled for one more CTA: a product whose
# accumulator was live with two loaded tiles spilled 8 of 174, and took 744 instead of 976 µs on an
# H200, with three CTAs instead of two. Attention over a window spills 10 or 12 of 210, depending on
# how its instructions are ordered.
FEW_SPILLS = 1 / 16


# The factor by which the estimate (`live_registers`) exceeds the registers that each thread has if
# CTAs fill shared memory, in kernels that are first assembled with that limit: they keep results of
# products, and have memory for few CTAs. Of 14 of the benchmarks' forms, the limit is chosen for 9,
# 8 of them without another run, and not for 3, which spill. Two with less registers than the limit
# have as many instructions with it, and up to 4 registers more.
LIKELY_LIMITED = 1.15, 2.0


# In a kernel without loops that has nearly as many registers as the estimate (`live_registers`),
# they hold values that are used later, so that a limit makes ptxas spill. Of such kernels of
# Inductor and of the benchmarks' forms, all 11 that were to save a fifth or more of the registers
# spilled too many. Where the estimate is larger by far, ptxas has chosen another order: it saved as
# many in the one such kernel.
LIKELY_USED = 1.0, 1.5
MOST_TO_SAVE_OF_USED = 1 / 5
MANY_REGISTERS = 128

# Up to which estimate (`live_registers`) a kernel with 33 to 40 registers is assembled with 32. Of
# 22 in the benchmarks' forms, 5 of the 9 up to it did not spill then, and 2 of the others.
MOST_SQUEEZED = 48


class Assembled(NamedTuple):
    """A cubin with the PTX it was assembled from, its resources, and the assembler's log."""

    ptx: str
    cubin: bytes
    used: Resources
    log: str = ""

    @property
    def serialises_products(self) -> bool:
        """Whether each product completes before the next one starts."""
        return serialises_products(self.log)

    def is_slower_than(self, other: Assembled) -> bool:
        """Whether its products are serialised and those of the other are not."""
        return self.serialises_products and not other.serialises_products


@record
class Attempts:
    """Assembles variants of one kernel.

    Attributes:
        assembler, request: the assembler and its options.
        name: the kernel's symbol in the PTX.
    """

    assembler: Assembler
    request: Request
    name: str

    def plain(self, ptx: str) -> Assembled:
        """Assemble the PTX unchanged.

        Raises:
            PTXASError: the assembler rejects the PTX.
        """
        return self._with_use(ptx, self.assembler.assemble(ptx, self.request))

    def holding(self, ctas: int, ptx: str) -> Assembled | None:
        """Assemble with the register limit that lets `ctas` CTAs reside on a multiprocessor.

        None if an instruction needs more registers than that: `wgmma` keeps its whole result in
        registers.
        """
        ptx = with_ctas(ptx, ctas)
        cubin = self.assembler.attempt(ptx, self.request)
        return None if isinstance(cubin, Rejection) else self._with_use(ptx, cubin)

    def _with_use(self, ptx: str, cubin: Cubin) -> Assembled:
        return Assembled(ptx, cubin.content, resources(cubin.content, self.name), cubin.log)


def with_ctas(ptx: str, ctas: int) -> str:
    """The PTX with a directive that at least `ctas` CTAs must fit on a multiprocessor.

    By default ptxas 13.0 gives 32 registers to kernels that need more than 255, and spills the
    rest. With the directive for one CTA it uses 255, which made the gradient of a layer norm with
    64 elements a thread ten times as fast. It is not the default here, as ptxas then uses more
    registers where two CTAs would fit: a layer norm of 8192 columns took 29 % longer.

    ptxas ignores the option `-maxrregcount` in the presence of `.reqntid` (12.8 to 13.5).
    """
    return re.sub(
        r"^(\.(?:req|max)ntid .*)$", rf"\1\n.minnctapersm {ctas}", ptx, count=1, flags=re.MULTILINE
    )


# Registers carried by a loop from which a kernel needs all that a thread can have (255).
MANY_CARRIED = 240


class Demand(NamedTuple):
    """The resources of a CTA that are known before assembly.

    Attributes:
        threads: their number.
        shared: bytes of shared memory, or more (`occupancy.memory_bytes`).
        carried: registers of a thread that the values carried by a loop occupy.
        held: those of a result of a product and of what is carried past it; 0 if none.
    """

    threads: int
    shared: int = 0
    carried: int = 0
    held: int = 0

    @property
    def registers(self) -> int:
        """The fewest registers of a thread."""
        return max(self.carried, self.held) + FEWEST_OTHERS

    def suits(self, registers: int) -> bool:
        """Whether an assembler may do with so many registers of a thread, without many spills."""
        return registers >= max(self.carried + OTHER_REGISTERS, self.registers)


def best_cubin(attempts: Attempts, ptx: str, chip: Processor, demand: Demand) -> Assembled:
    """The best cubin, of up to four, of a kernel without an explicit register limit.

    The number of runs depends on the PTX and the resources only, not on how long they take, so that
    equal PTX gives equal cubins. A long kernel takes two at most.

    If a loop carries nearly all registers, the first run is one for a single CTA: without, ptxas
    squeezes such kernels. If shared memory probably allows more CTAs than registers, it is one for
    as many. No limit leaves fewer registers than a kernel needs.

    Raises:
        PTXASError: the assembler rejects the PTX.
    """
    threads = demand.threads
    if demand.carried >= MANY_CARRIED:
        return attempts.holding(1, ptx) or attempts.plain(ptx)

    @cache
    def holding(ctas: int) -> Assembled | None:
        return attempts.holding(ctas, ptx)

    filled = _filling_memory(holding, ptx, chip, demand)
    if filled:
        return filled
    first = _with_room(attempts, ptx, chip, threads)
    registers = first.used.registers
    if first.used.spilled_registers:
        return (registers <= FEW_REGISTERS and holding(1)) or first
    if ptx.count("\n") > LONG_PTX:
        return first
    place = chip, threads, registers, demand.shared
    ctas = ctas_if_one_more(*place) or ctas_by_memory(*place)
    limit = registers_for(ctas, threads) if ctas else registers
    if not demand.suits(limit) or _would_spill(ptx, registers, limit):
        ctas = 0
    spare = ctas_with_spare_registers(*place) if _may_be_saved(ptx, registers) else 0
    return (
        _held(holding, ctas, first)
        or _held(holding, spare, first)
        or _squeezed(attempts, holding, chip, first, ctas_with_all_warps(*place))
        or _loading_together(attempts, holding, ptx, chip, demand, first)
        or first
    )


_Holding = Callable[[int], Assembled | None]


def _filling_memory(
    holding: _Holding, ptx: str, chip: Processor, demand: Demand
) -> Assembled | None:
    """The cubin for as many CTAs as shared memory permits, if the default one probably has too many
    registers for them, and `best_cubin` would then select this one."""
    ctas = ctas_in_memory(chip, demand.shared)
    if not demand.held or not 1 < ctas < FEW_CTAS:
        return None
    limit = registers_for(ctas, max(demand.threads, WARP_SIZE))
    if not demand.suits(limit):
        return None
    if limit >= MAX_REGISTERS or ptx.count("\n") > LONG_PTX:
        return None
    least, most = LIKELY_LIMITED
    if not least * limit <= live_registers(ptx) <= most * limit:
        return None
    held = holding(ctas)
    if held is None or held.serialises_products:
        return None
    return held if held.used.spilled_registers <= FEW_SPILLS * limit else None


def _would_spill(ptx: str, registers: int, limit: int) -> bool:
    """Whether a limit takes registers from a kernel without loops whose values probably need all
    that it has."""
    if registers - limit < MOST_TO_SAVE_OF_USED * registers or has_loops(ptx):
        return False
    least, most = LIKELY_USED
    return least * registers <= live_registers(ptx) <= most * registers


def _may_be_saved(ptx: str, registers: int) -> bool:
    """Whether ptxas may have saved registers: in a kernel without loops that has few, it does so
    down to a multiple of the unit of allocation.

    Of eight kernels of Inductor with other numbers, three had the same machine code with a
    directive that allows more, one as many instructions, three 8 more and one 8 less. In loops it
    orders loads in another way even then, and in long kernels all instructions: a product of
    rotated operands has 140 registers or, with the directive, 255, and took 149 or 132 µs.
    """
    return registers % REGISTER_UNIT == 0 or registers > MANY_REGISTERS or has_loops(ptx)


def _loading_together(
    attempts: Attempts,
    holding: _Holding,
    ptx: str,
    chip: Processor,
    demand: Demand,
    first: Assembled,
) -> Assembled | None:
    """The cubin for as many CTAs as are resident anyway, if it waits for the loads of a loop less
    often: ptxas puts loads one after the other to save registers, also where that gains no CTA."""
    if demand.held or not has_loops(ptx) or ptx.count("\n") > SHORT_PTX:
        return None
    registers = first.used.registers
    ctas = resident_ctas(chip, demand.threads, registers, demand.shared)
    if not ctas or registers_for(ctas, demand.threads) <= registers:
        return None
    waits = load_waits(first.cubin, attempts.name)
    together = _held(holding, ctas, first) if waits >= MANY_WAITS else None
    if together is None or load_waits(together.cubin, attempts.name) >= waits:
        return None
    return together


def _squeezed(
    attempts: Attempts, holding: _Holding, chip: Processor, first: Assembled, ctas: int
) -> Assembled | None:
    """The cubin for a number of CTAs, if it is not 0, with 32 registers, no spills, and no doubt,
    for which the first one has more already: docs/decisions/0012."""
    if not ctas or ".minnctapersm" in first.ptx or live_registers(first.ptx) > MOST_SQUEEZED:
        return None
    held = holding(ctas)
    if held is None or held.used.spilled_registers or _may_mix_carries(attempts, held, chip):
        return None
    return held


def _held(holding: _Holding, ctas: int, first: Assembled) -> Assembled | None:
    """The cubin for a number of CTAs, unless that is 0 or it has a drawback against the first."""
    held = holding(ctas) if ctas else None
    if held is None or held.used.spilled_registers > FEW_SPILLS * first.used.registers:
        return None
    return None if held.is_slower_than(first) else held


def _with_room(attempts: Attempts, ptx: str, chip: Processor, threads: int) -> Assembled:
    """The cubin of a kernel, with more than 32 registers if ptxas may have miscompiled it with 32:
    docs/decisions/0012.

    Spills with 32 registers are for `best_cubin`, which removes the limit altogether.
    """
    first = attempts.plain(ptx)
    used = first.used
    if used.registers != SQUEEZED_REGISTERS or used.spilled_registers:
        return first
    if not _may_mix_carries(attempts, first, chip):
        return first
    return attempts.holding(ctas_with_room(chip, threads), ptx) or first


def _may_mix_carries(attempts: Attempts, made: Assembled, chip: Processor) -> bool:
    long_branches = "long_branches" in chip.features
    return mixes_carries(made.cubin, attempts.name, long_branches=long_branches)
