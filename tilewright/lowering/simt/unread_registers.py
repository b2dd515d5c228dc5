"""Unused registers of addresses and masks.

An access of several elements uses only the address and the mask of the first one. Those of the
others, and their operands, are not emitted: they were up to two fifths of the LLVM IR of a
memory-bound kernel.
"""

from __future__ import annotations

from collections.abc import Callable

from tilewright.ir.core import Function, Op, Value
from tilewright.ops.gpu import CopyAsync
from tilewright.ops.memory import Load, Store

EVERY = -1

Access = Load | Store | CopyAsync


def unread_bits(
    fn: Function, unread_by: Callable[[Access], int], is_by_register: Callable[[Op], bool]
) -> dict[Value, int]:
    """For each value of which some registers are not read, bits of their numbers: a register is not
    read if its number has one of these bits.

    Args:
        unread_by: these bits of the numbers of addresses and masks that an access does not take.
        is_by_register: whether an op reads the registers of its operands of the same number as
            those that are read of its result.
    """
    found: dict[Value, int] = {}
    # The users of a value follow it in this order, also those in nested regions.
    for op in reversed(list(fn.walk())):
        if not any(value.layout is not None for value in op.operands):
            continue
        by_register = len(op.results) == 1 and is_by_register(op)
        for value in op.operands:
            if isinstance(op, Access):
                bits = unread_by(op) if value in (op.ptr, op.mask) else 0
            elif by_register and op.result.layout == value.layout:
                bits = found.get(op.result, EVERY)
            else:
                bits = 0
            found[value] = found.get(value, EVERY) & bits
    return {value: bits for value, bits in found.items() if bits and value.layout is not None}
