"""The arguments that the launch of several kernels creates: numbers, and parts of the memory that
it allocates."""

from __future__ import annotations

from tilewright.lowering.emit import I1, I32, I64, PTR, const
from tilewright.runtime.native.keys import hold
from tilewright.runtime.native.layout import FAILED, MADE_SLOT, MAX_PARAMS, NOT_STARTED, STARTED
from tilewright.runtime.native.read import Argument, read_part
from tilewright.runtime.native.routine import Chain, Object, Routine, routine


@routine(I32, failure=FAILED)
def make_arguments(r: Routine, chain: Chain) -> None:
    """Fills the slots from MADE_SLOT on: the first with the address of the memory that
    Chain.prepare returns, if there is such a function, the others with `made`.

    Returns STARTED, NOT_STARTED if the slow path must launch, or FAILED with an exception set.
    """
    first, count = const(I64, MADE_SLOT), chain["made_count"]
    r.frame.put("slots", first, 0)
    with r.when(r.ne(chain["prepare"], 0)):
        memory = r.not_null(_prepare(r, chain))
        r.require(hold(r, memory), NOT_STARTED)
        with r.when(r.ne(memory, r.rt["none"])):
            r.require(_read_address(r, memory), NOT_STARTED)
    base = r.frame.get("slots", first)
    with r.loop(0, count) as loop:
        allocated, in_memory = chain.get("made", loop.index), chain.get("in_memory", loop.index)
        slot = r.add(const(I64, MADE_SLOT + 1), loop.index)
        r.frame.put("slots", slot, r.add(allocated, r.and_(in_memory, base)))
    r.ret(STARTED)


@routine(PTR)
def _prepare(r: Routine, chain: Chain) -> None:
    """Calls Chain.prepare with the arguments that it clears."""
    count = chain["cleared_count"]
    operands = r.alloca(PTR, MAX_PARAMS)
    with r.loop(0, count) as loop:
        value = r.frame.get("values", chain.get("cleared", loop.index))
        r.store(value, r.gep(PTR, operands, loop.index))
    r.ret(r.api("PyObject_Vectorcall", chain["prepare"], operands, count, 0))


@routine(I1)
def _read_address(r: Routine, memory: Object) -> None:
    """Puts the address of memory into its slot."""
    read_part(r, Argument(r.rt.part("leaf"), memory, const(I64, MADE_SLOT)))
