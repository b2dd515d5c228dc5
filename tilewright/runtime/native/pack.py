"""Arguments as the kernel gets them."""

from __future__ import annotations

from tilewright.lowering.emit import F32, F64, I32, I64, VOID, V
from tilewright.runtime.native.layout import TO_FP32
from tilewright.runtime.native.routine import Record, Routine, routine


@routine(VOID)
def pack(r: Routine, record: Record) -> None:
    """The slots that the kernel has arguments for, in its order, into Frame.packed, and their
    addresses into Frame.pointers, by which the driver reads them. A float becomes an fp32 where the
    kernel takes one; everything else is already what a slot holds."""
    with r.loop(0, record["count"]) as loop:
        step = record.get("slots", loop.index)
        bits = r.frame.get("slots", r.and_(step, TO_FP32 - 1))

        def rounded() -> V:
            single = r.fptrunc(r.bitcast(bits, F64), F32)
            return r.zext(r.bitcast(single, I32), I64)

        value = r.choose(r.has(step, TO_FP32), rounded, lambda: bits)
        r.frame.put("packed", loop.index, value)
        r.frame.put("pointers", loop.index, r.frame.element("packed", loop.index))
