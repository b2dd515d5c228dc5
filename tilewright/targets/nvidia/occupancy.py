"""How many CTAs of a kernel a multiprocessor runs at once, and what would let it run one more.

ptxas chooses a number of registers without a look at what it costs. A kernel of 512 threads with 70
registers has the multiprocessor to itself; with 64 two CTAs fit, and one computes while the other
waits for memory.
"""

from __future__ import annotations

from tilewright.targets.nvidia.features import REGISTERS, WARP_SIZE, Processor

REGISTER_UNIT = 8  # registers of a thread are given out in these steps
MAX_CTAS = 32
RESERVED_SHARED = 1024  # bytes of shared memory that the system takes of each CTA

# The part of a thread's registers that ptxas may find ways to do without. A product of 128 x 128
# had 203, and with 168 three CTAs instead of two: 879 instead of 1015 µs on an H200.
MOST_TO_SAVE = 0.25
FEW_CTAS = 4  # one more than so many, or fewer, hides a good deal more of the time to memory

# ptxas, left to itself, tries to do with 32 registers, with which every thread that there can be is
# resident. On that way ptxas 13.0.88 has miscompiled a kernel: docs/decisions/0012.
SQUEEZED_REGISTERS = 32
ROOMY_REGISTERS = 40


def resident_ctas(chip: Processor, threads: int, registers: int, shared: int) -> int:
    """CTAs that run at once on a multiprocessor.

    Args:
        threads: of a CTA.
        registers: of a thread.
        shared: bytes of shared memory of a CTA.
    """
    given = -(-registers // REGISTER_UNIT) * REGISTER_UNIT
    # What one CTA may have at most is what there is, less what is reserved for one.
    memory = (chip.shared_limit + RESERVED_SHARED) // (shared + RESERVED_SHARED)
    return min(REGISTERS // (given * threads), chip.max_threads // threads, memory, MAX_CTAS)


def ctas_with_room(threads: int) -> int:
    """How many CTAs of so many threads leave each thread ROOMY_REGISTERS."""
    return max(1, min(MAX_CTAS, REGISTERS // (ROOMY_REGISTERS * threads)))


def ctas_if_one_more(chip: Processor, threads: int, registers: int, shared: int) -> int:
    """How many CTAs would run with one more; 0 if that takes too much, or is worth little."""
    threads = max(threads, WARP_SIZE)
    ctas = resident_ctas(chip, threads, registers, shared)
    wanted = ctas + 1
    limit = REGISTERS // (wanted * threads) // REGISTER_UNIT * REGISTER_UNIT
    if ctas > FEW_CTAS or limit < ROOMY_REGISTERS or registers - limit > MOST_TO_SAVE * registers:
        return 0
    return wanted if resident_ctas(chip, threads, limit, shared) >= wanted else 0
