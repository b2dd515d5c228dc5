"""Occupancy: the number of resident CTAs of a kernel, and the limits that would allow one more.

ptxas selects the number of registers regardless of occupancy. Of a kernel with 512 threads and 70
registers, only one CTA fits on a multiprocessor; with 64 registers, two fit, and one computes while
the other waits for memory.
"""

from __future__ import annotations

from tilewright.targets.nvidia.features import REGISTERS, WARP_SIZE, Processor

PARTITIONS = 4  # of a multiprocessor, each with a quarter of the registers and of the warps
REGISTER_UNIT = 8  # the granularity of register allocation, in registers of a thread
REGISTER_BYTES = 4
OTHER_REGISTERS = 32  # of a thread, beside results and operands: addresses, descriptors, masks
FEWEST_OTHERS = 16  # of these: 128 registers for a product's results of 112 spilled 2
TENSOR_COLUMNS = 512  # of tensor memory of a multiprocessor
MAX_REGISTERS = 255  # of a thread

# The largest fraction of a thread's registers to try to save. A product of 128 x 128 used 203; with
# 168, three CTAs are resident instead of two: 879 instead of 1015 µs on an H200. A loss of rows of
# 50,257 columns used 58; with 40, three are resident, too: 134 instead of 167 µs.
MOST_TO_SAVE = 1 / 3
FEW_TO_SAVE = 24  # registers: always tried. The same loss used 64 after a change of `exp`: 158 µs.
FEW_CTAS = 4  # up to this many, an additional CTA hides considerably more memory latency

FEW_PER_MEMORY = 2  # more CTAs than this hide latency by themselves

# ptxas saves registers even if no further CTA gains from it, and then has few loads in flight. A
# layer norm with 64 elements a thread had two of eight with 96 registers, and took 135 µs on an
# H200; two CTAs are resident with up to 128. Kernels of fewer registers have loads in flight, and
# those of more have not been saved any: of nine with 208 to 238, which could have 255, the machine
# code of six was the same with a directive that allows them, and that of three not shorter.
LEAST_SPARE, SAVED_REGISTERS = 16, range(64, 200)

# By default ptxas tries to use 32 registers, with which the maximum number of threads is resident.
# In doing so ptxas 13.0.88 has miscompiled a kernel, by a carry: docs/decisions/0012.
SQUEEZED_REGISTERS = 32
ROOMY_REGISTERS = 40


def resident_ctas(chip: Processor, threads: int, registers: int, shared: int) -> int:
    """The number of CTAs that are resident on a multiprocessor at once.

    Args:
        threads: threads of a CTA.
        registers: registers of a thread.
        shared: bytes of shared memory of a CTA.
    """
    by_registers = resident_by_registers(-(-threads // WARP_SIZE), registers)
    memory = ctas_in_memory(chip, shared)
    return min(by_registers, chip.max_threads // threads, memory, chip.max_ctas)


def ctas_in_memory(chip: Processor, shared: int) -> int:
    """The CTAs whose shared memory fits on a multiprocessor, which has the most that one CTA may
    use, plus the reservation for that CTA."""
    needed = shared + chip.reserved_shared
    return _shared_memory(chip) // needed if needed else chip.max_ctas


def _shared_memory(chip: Processor) -> int:
    """The bytes of shared memory of a multiprocessor."""
    return chip.shared_limit + chip.reserved_shared


def memory_bytes(chip: Processor, shared: int, columns: int) -> int:
    """The bytes of shared memory with which as many CTAs are resident as with `shared` of them and
    so many columns of tensor memory."""
    if not columns:
        return shared
    ctas = TENSOR_COLUMNS // columns
    return max(shared, _shared_memory(chip) // ctas - chip.reserved_shared)


def resident_by_registers(warps: int, registers: int) -> int:
    """The CTAs of `warps` warps whose registers fit on a multiprocessor.

    Warps do not share registers across partitions: with 176 registers each partition holds two
    warps, so that a second CTA of five warps does not fit, although 2 * 160 * 176 < 65536.
    """
    given = -(-registers // REGISTER_UNIT) * REGISTER_UNIT
    return PARTITIONS * (REGISTERS // PARTITIONS // (given * WARP_SIZE)) // warps


def registers_for(ctas: int, threads: int) -> int:
    """The most registers of a thread with which `ctas` CTAs are resident."""
    warps = -(-ctas * -(-threads // WARP_SIZE) // PARTITIONS)
    return REGISTERS // PARTITIONS // (warps * WARP_SIZE) // REGISTER_UNIT * REGISTER_UNIT


def ctas_with_room(chip: Processor, threads: int) -> int:
    """The most CTAs of `threads` threads that leave each thread ROOMY_REGISTERS."""
    return max(1, min(chip.max_ctas, REGISTERS // (ROOMY_REGISTERS * threads)))


def ctas_if_one_more(chip: Processor, threads: int, registers: int, shared: int) -> int:
    """The number of resident CTAs to aim for: one more; 0 if unlikely to be reached or to pay."""
    threads = max(threads, WARP_SIZE)
    ctas = resident_ctas(chip, threads, registers, shared)
    goal = ctas + 1
    limit = registers_for(goal, threads)
    most = max(FEW_TO_SAVE, MOST_TO_SAVE * registers)
    if ctas > FEW_CTAS or limit < ROOMY_REGISTERS or registers - limit > most:
        return 0
    return goal if resident_ctas(chip, threads, limit, shared) >= goal else 0


def ctas_with_all_warps(chip: Processor, threads: int, registers: int, shared: int) -> int:
    """The number of CTAs with which as many warps are resident as can be, if registers are a few
    more than leave room for them; else 0.

    Bytes from the least to the most of rows had 40, and three quarters of the warps: 66.0 instead
    of 62.7 µs on an H200. Rows of a table, in programs of one warp, had 34: 54.4 instead of 52.0.
    """
    if not SQUEEZED_REGISTERS < registers <= ROOMY_REGISTERS:
        return 0
    threads = max(threads, WARP_SIZE)
    goal = resident_ctas(chip, threads, SQUEEZED_REGISTERS, shared)
    return goal if goal > resident_ctas(chip, threads, registers, shared) else 0


def ctas_by_memory(chip: Processor, threads: int, registers: int, shared: int) -> int:
    """The number of CTAs that shared memory allows, if ptxas has saved registers for more; else 0.

    ptxas does not know how much shared memory a launch has. A decoding kernel with memory for one
    CTA was given 128 registers, for four, and took 558 µs on an H200; with 194, it took 471.
    """
    ctas = resident_ctas(chip, threads, registers, shared)
    more = resident_by_registers(-(-threads // WARP_SIZE), registers)
    is_saved = more > ctas and registers == registers_for(more, threads)
    return ctas if is_saved and ctas <= FEW_PER_MEMORY else 0


def ctas_with_spare_registers(chip: Processor, threads: int, registers: int, shared: int) -> int:
    """The number of resident CTAs, if registers limit it and each thread could have considerably
    more of them; else 0."""
    ctas = resident_ctas(chip, threads, registers, shared)
    if not ctas:
        return 0
    limited = ctas == resident_by_registers(-(-threads // WARP_SIZE), registers)
    spare = min(registers_for(ctas, threads), MAX_REGISTERS) - registers
    return ctas if limited and registers in SAVED_REGISTERS and spare >= LEAST_SPARE else 0
