"""Op traits: properties that passes may assume, declared with the op's class.

Effects are explicit: only an op declared `PURE` has none. cse, dce, licm and the ordering of memory
accesses are derived from these flags.
"""

from enum import Flag, auto


class Trait(Flag):
    NONE = 0
    READS = auto()  # reads memory
    WRITES = auto()  # writes memory or has another observable effect
    COMMUTATIVE = auto()  # the first two operands may be swapped
    ELEMENTWISE = auto()  # result element i depends only on element i of the operands
    TERMINATOR = auto()  # ends a region
    IN_FLIGHT = auto()  # asynchronous: reads its operands until the first use of its result
    CONCURRENT = auto()  # its regions run concurrently, each on its own warps
    LOCAL = auto()  # WRITES, but not global memory: writes shared memory, or is only a barrier
    FREE_LAYOUT = auto()  # takes no tiles, and any thread can compute any element of the result


PURE = Trait.NONE
ELEMENTWISE = Trait.ELEMENTWISE
COMMUTATIVE = Trait.COMMUTATIVE
READS = Trait.READS
WRITES = Trait.WRITES
TERMINATOR = Trait.TERMINATOR
IN_FLIGHT = Trait.IN_FLIGHT
LOCAL = Trait.LOCAL
CONCURRENT = Trait.CONCURRENT
FREE_LAYOUT = Trait.FREE_LAYOUT
