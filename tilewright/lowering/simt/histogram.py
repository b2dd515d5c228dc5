"""`tile.histogram`: bins in shared memory, incremented by atomic additions.

Barriers separate clearing, counting and reading. Values outside the bins are not counted.
"""

from __future__ import annotations

from tilewright.ir import types as ir
from tilewright.layout.linear import REGISTER
from tilewright.lowering.emit import I1, I32, V, const
from tilewright.lowering.simt.kernel import Kernel, emits
from tilewright.lowering.simt.memory import one_of_many
from tilewright.lowering.simt.shape import layout_of
from tilewright.lowering.simt.shared_memory import scratch
from tilewright.lowering.simt.staging import FLAT
from tilewright.ops.histogram import Histogram


@scratch(Histogram)
def histogram_scratch(op: Histogram) -> int:
    return 4 * op.bins


@emits(Histogram)
def emit_histogram(kernel: Kernel, op: Histogram) -> None:
    b = kernel.b
    base = kernel.shared.address(b, op)
    places = kernel.coordinates(layout_of(op).flatten_outs(FLAT), FLAT)
    bins = [b.gep(I32, base, place) for place in places]
    for address in bins:
        b.store(const(I32, 0), address)
    kernel.barrier()
    layout = op.src.layout
    assert layout is not None
    owner = one_of_many(kernel, op.src)
    masks = kernel.env[op.mask] if op.mask is not None else None
    copies = layout.free_variables(REGISTER)
    for register, value in enumerate(kernel.env[op.src]):
        if register & copies:
            continue
        condition = _in_range(kernel, value, op)
        for other in (owner, masks[register] if masks is not None else None):
            condition = condition if other is None else b.and_(condition, other)
        with kernel.only_if(condition):
            address = b.gep(I32, base, _index(kernel, value))
            b.atomicrmw("add", address, const(I32, 1), "monotonic", kernel.hw.sync_scope("cta"))
    kernel.barrier()
    kernel.bind(op, [b.load(I32, address) for address in bins])


def _in_range(kernel: Kernel, value: V, op: Histogram) -> V:
    """Predicate: the value, as an unsigned number, is less than the number of bins.

    Where the number of bins doesn't fit the type of the value, every non-negative value is.
    """
    if op.bins >> value.type.bits:
        signed = ir.dtype_of(op.src.type).is_int_signed()
        return kernel.b.icmp("sge", value, 0) if signed else const(I1, 1)
    if ir.dtype_of(op.src.type).is_int_signed() and op.bins >> (value.type.bits - 1):
        return kernel.b.icmp("sge", value, 0)
    return kernel.b.icmp("ult", value, const(value.type, op.bins))


def _index(kernel: Kernel, value: V) -> V:
    bits = value.type.bits
    return kernel.b.trunc(value, I32) if bits > 32 else kernel.b.zext(value, I32)
