"""What passes may assume of an op, declared with its class.

Effects are explicit: an op is free of effects only if it says `PURE`. cse, dce, licm and the order
of memory accesses are all derived from these flags.
"""

from enum import Flag, auto


class Trait(Flag):
    NONE = 0
    READS = auto()  # reads memory
    WRITES = auto()  # writes memory, or does anything else that the outside can see
    COMMUTATIVE = auto()  # the first two operands may be swapped
    ELEMENTWISE = auto()  # result element i depends on element i of the operands only
    TERMINATOR = auto()  # ends a region
    IN_FLIGHT = auto()  # goes on reading its operands until an op takes its result
    LOCAL = auto()  # what it writes is no global memory: shared memory, or nothing but an order


PURE = Trait.NONE
ELEMENTWISE = Trait.ELEMENTWISE
COMMUTATIVE = Trait.COMMUTATIVE
READS = Trait.READS
WRITES = Trait.WRITES
TERMINATOR = Trait.TERMINATOR
IN_FLIGHT = Trait.IN_FLIGHT
LOCAL = Trait.LOCAL
