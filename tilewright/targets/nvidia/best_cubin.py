"""PTX → the cubin whose number of registers suits the processor best.

ptxas chooses that number for one thread. What suits the multiprocessor as a whole (`occupancy.py`)
it can be told by a directive; whether that was worth it shows in the cubin that comes of it. So a
kernel is assembled as it is, and again where something better may be had.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

from tilewright.base.late import late
from tilewright.targets.nvidia.advice import serialises_products
from tilewright.targets.nvidia.assemble import Assembler, Cubin, Refusal, Request
from tilewright.targets.nvidia.cubin import Resources, resources
from tilewright.targets.nvidia.features import Processor
from tilewright.targets.nvidia.occupancy import (
    SQUEEZED_REGISTERS,
    ctas_if_one_more,
    ctas_with_room,
)

_thread_pool = late("concurrent.futures:ThreadPoolExecutor")

SHORT_PTX = 700  # lines; kernels that came back with 32 registers had 300 to 550

# Spills with so few registers in use are the assembler's choice, not need.
FEW_REGISTERS = 64

# The part of a thread's registers that may be spilled for one more CTA: a product whose accumulator
# met two loaded tiles spilled 8 of 174, and took 744 instead of 976 µs on an H200 with three CTAs
# instead of two.
FEW_SPILLS = 0.05


class Assembled(NamedTuple):
    """What an assembler made of which PTX, and said of it."""

    ptx: str
    cubin: bytes
    used: Resources
    log: str = ""

    def is_slower_than(self, other: Assembled) -> bool:
        """Whether its products are serialised, and those of the other are not."""
        return serialises_products(self.log) and not serialises_products(other.log)


@dataclass(frozen=True, slots=True)
class Attempts:
    """Cubins of one kernel.

    Attributes:
        assembler: what makes them, as `request` says.
        name: of the kernel, in the PTX.
    """

    assembler: Assembler
    request: Request
    name: str

    def plain(self, ptx: str) -> Assembled:
        """That of the PTX as it is.

        Raises:
            PTXASError: the assembler refuses the PTX.
        """
        return self._with_use(ptx, self.assembler.assemble(ptx, self.request))

    def holding(self, ctas: int, ptx: str) -> Assembled | None:
        """That of which a multiprocessor holds so many CTAs at once.

        None where the registers that this leaves a thread are too few for an instruction: what
        multiplies a tile out of shared memory has its whole result in registers.
        """
        ptx = with_ctas(ptx, ctas)
        cubin = self.assembler.attempt(ptx, self.request)
        return None if isinstance(cubin, Refusal) else self._with_use(ptx, cubin)

    def _with_use(self, ptx: str, cubin: Cubin) -> Assembled:
        return Assembled(ptx, cubin.content, resources(cubin.content, self.name), cubin.log)


def with_ctas(ptx: str, ctas: int) -> str:
    """The PTX of a kernel of which a multiprocessor is to hold so many CTAs at once.

    ptxas 13.0, left to itself, gave kernels that need more than 255 registers 32 of them, and
    spilled the rest. Told that a single CTA is enough, it takes 255 (seen on a layer norm's
    gradient with 64 elements a thread: ten times as fast). It is not told always, as it then also
    takes more where two CTAs would fit: a layer norm of 8192 columns took 29 % longer.

    It is a directive, as ptxas takes no notice of `-maxrregcount` beside `.reqntid` (12.8 to 13.5).
    """
    return re.sub(
        r"^(\.reqntid .*)$", rf"\1\n.minnctapersm {ctas}", ptx, count=1, flags=re.MULTILINE
    )


def best_cubin(
    attempts: Attempts, ptx: str, chip: Processor, threads: int, shared: int
) -> Assembled:
    """The best of those that the assembler makes of a kernel that may have any registers.

    Args:
        threads: of a CTA.
        shared: bytes of shared memory of a CTA.

    Raises:
        PTXASError: the assembler refuses the PTX.
    """
    first = _with_room(attempts, ptx, threads)
    registers = first.used.registers
    if first.used.spilled_registers:
        return (registers <= FEW_REGISTERS and attempts.holding(1, ptx)) or first
    ctas = ctas_if_one_more(chip, threads, registers, shared)
    second = attempts.holding(ctas, ptx) if ctas else None
    if second is None or second.used.spilled_registers > FEW_SPILLS * registers:
        return first
    if second.is_slower_than(first):
        return first
    return second


def _with_room(attempts: Attempts, ptx: str, threads: int) -> Assembled:
    """What the assembler makes of a kernel that it may not squeeze into few registers.

    Whether it does shows only afterwards. Short kernels, of which it is most of them, are assembled
    both ways at once, so that nobody waits for the second.
    """
    ctas = ctas_with_room(threads)
    if ptx.count("\n") > SHORT_PTX:
        first = attempts.plain(ptx)
        roomy = attempts.holding(ctas, ptx) if _squeezed(first) else None
    else:
        with _thread_pool(1) as pool:
            second = pool.submit(attempts.holding, ctas, ptx)
            first = attempts.plain(ptx)
            roomy = second.result() if _squeezed(first) else None
    return roomy or first


def _squeezed(made: Assembled) -> bool:
    return made.used.registers == SQUEEZED_REGISTERS
