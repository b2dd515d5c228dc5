"""`tile.sort`: the exchanges of the network in `ops/sort.py`, between registers, lanes or warps.

An exchange pairs each element with the one whose index along the last axis differs by an xor with a
constant. As layouts are linear, the partner is at the same xor of register, lane and warp for all
elements: an exchange between registers takes a minimum and a maximum, between lanes a shuffle in
addition, and between warps a round trip through shared memory.
"""

from __future__ import annotations

from tilewright.ir import types as ir
from tilewright.layout import gf2
from tilewright.layout.linear import LANE, REGISTER, WARP, LinearLayout
from tilewright.lowering.emit import I1, V, const
from tilewright.lowering.simt.combine import exchanged
from tilewright.lowering.simt.kernel import Kernel, Registers, emits
from tilewright.lowering.simt.shared_memory import scratch
from tilewright.lowering.simt.staging import FLAT, Staged, staged_bytes
from tilewright.ops.sort import Exchange, Sort, network


def _layout(op: Sort) -> LinearLayout:
    layout = op.src.layout
    assert layout is not None
    return layout


def _exchanges(op: Sort) -> list[Exchange]:
    return network(ir.shape_of(op.src.type)[-1], op.merge)


def _move(layout: LinearLayout, mask: int) -> dict[str, int] | None:
    """The xor of register and of lane that leads to the partner; None if to other warps."""
    near = layout.select_ins(REGISTER, LANE)
    found = gf2.solve(near.columns, mask)
    if found is None:
        return None
    registers = near.in_bits(REGISTER)
    return {REGISTER: found & ((1 << registers) - 1), LANE: found >> registers}


@scratch(Sort)
def sort_scratch(op: Sort) -> int:
    layout = _layout(op)
    stays = all(_move(layout, e.mask) is not None for e in _exchanges(op))
    return 0 if stays else staged_bytes(op.src)


@emits(Sort)
def emit_sort(kernel: Kernel, op: Sort) -> None:
    kernel.bind(op, _Sort(kernel, op).run())


class _Sort:
    """One sort while it is emitted. `values` are the elements of this thread, by register."""

    def __init__(self, kernel: Kernel, op: Sort) -> None:
        self.kernel = kernel
        self.op = op
        self.layout = _layout(op)
        self.values: Registers = list(kernel.env[op.src])
        self.staged = Staged(kernel, op, op.src) if sort_scratch(op) else None
        self.written = False

    def run(self) -> Registers:
        for exchange in _exchanges(self.op):
            self.values = self._exchanged(exchange)
        return self.values

    def _exchanged(self, exchange: Exchange) -> Registers:
        others = self._partners(exchange.mask)
        thread = self._thread_is_upper(exchange.top)
        done: dict[int, V] = {}
        result: Registers = []
        for register, (own, other) in enumerate(zip(self.values, others, strict=True)):
            place = self.layout.apply_flat(register)  # the same for copies
            if place not in done:
                greater = bool(place & exchange.top) != self.op.descending
                done[place] = self._extremum(own, other, greater, thread)
            result.append(done[place])
        return result

    def _thread_is_upper(self, top: int) -> V | None:
        """Predicate: the contribution of lane and warp to the index has this bit; None if never."""
        if not self.layout.moved_by(LANE, WARP) & top:
            return None
        index = self.kernel.index(self.layout.flatten_outs(FLAT), FLAT)
        b = self.kernel.b
        return b.icmp("ne", b.and_(index, top), 0)

    def _extremum(self, own: V, other: V, greater: bool, thread: V | None) -> V:
        """The maximum of the two if `greater`, else the minimum; inverted if `thread` is true."""
        b, signed = self.kernel.b, ir.dtype_of(self.op.src.type).is_int_signed()
        if thread is None:
            name = f"llvm.{'s' if signed else 'u'}{'max' if greater else 'min'}"
            return b.intrinsic(name, own.type, [own, other], overloads=[own.type])
        less = b.icmp("slt" if signed else "ult", own, other)
        take = b.xor(less, b.xor(thread, const(I1, int(not greater))))
        return b.select(take, other, own)

    # -- partners -------------------------------------------------------------------------------

    def _partners(self, mask: int) -> Registers:
        move = _move(self.layout, mask)
        if move is None:
            return self._through_memory(mask)
        moved = [self.values[r ^ move[REGISTER]] for r in range(len(self.values))]
        if not move[LANE]:
            return moved
        b, hw = self.kernel.b, self.kernel.hw

        def cross(word: V) -> V:
            return hw.shuffle_xor(b, word, move[LANE])

        done: dict[int, V] = {}
        for value in moved:
            if id(value) not in done:
                done[id(value)] = exchanged(b, value, cross)
        return [done[id(value)] for value in moved]

    def _through_memory(self, mask: int) -> Registers:
        assert self.staged is not None
        if self.written:
            self.kernel.barrier()  # the reads of the preceding exchange are done
        self.written = True
        self.staged.write(self.values)
        places = self.staged.own_places()
        return self.staged.read([self.kernel.b.xor(place, mask) for place in places])
