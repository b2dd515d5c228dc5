"""Packs slots into the array of arguments that the kernel reads."""

from __future__ import annotations

from tilewright.lowering.emit import F32, F64, I32, I64, VOID, V
from tilewright.runtime.native.layout import TO_FP32
from tilewright.runtime.native.routine import Record, Routine, routine


@routine(VOID)
def pack(r: Routine, record: Record) -> None:
    """Copies the slots of the kernel's arguments, in its order, to Frame.packed, and the addresses
    of the copies to Frame.pointers (the CUDA driver reads arguments through these). Floats are
    rounded to fp32 where the kernel takes fp32; all other slots already have the right bits."""
    with r.loop(0, record["count"]) as loop:
        step = record.get("slots", loop.index)
        bits = r.frame.get("slots", r.and_(step, TO_FP32 - 1))

        def rounded() -> V:
            single = r.fptrunc(r.bitcast(bits, F64), F32)
            return r.zext(r.bitcast(single, I32), I64)

        value = r.choose(r.has(step, TO_FP32), rounded, lambda: bits)
        r.frame.put("packed", loop.index, value)
        r.frame.put("pointers", loop.index, r.frame.element("packed", loop.index))
