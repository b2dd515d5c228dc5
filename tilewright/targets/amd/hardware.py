"""AMD's implementation of the `Hardware` interface of the shared lowering.

A masked-off lane must not access memory: either its offset is out of the range of a buffer, or the
access is under a branch. Order and scope of accesses follow LLVM's memory model for AMD GPUs.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ir import types as ir
from tilewright.ir.core import Op
from tilewright.lowering.emit import (
    I16,
    I32,
    I64,
    VOID,
    Builder,
    LType,
    V,
    const,
    int_type,
    pointer,
    poison,
    vector,
    zero,
)
from tilewright.lowering.guard import guarded
from tilewright.lowering.simt.hardware import Atomic, CachePolicy, Place, PlainHardware
from tilewright.lowering.simt.team import Team
from tilewright.ops import arith
from tilewright.targets.amd.atomic import ORDERS, emit_atomic, longest
from tilewright.targets.amd.convert import cast, widened_at_once
from tilewright.targets.amd.features import Processor
from tilewright.targets.amd.name import NAME
from tilewright.targets.amd.shuffle import shuffle, shuffle_xor

GLOBAL = pointer(1)
CONSTANT = pointer(4)
BUFFER = pointer(8)
AXES = "xyz"
CLOCK_NANOSECONDS = 10  # a tick of the clock at 100 MHz

# Ops that two elements of are computed by one instruction.
PACKED = (arith.Add, arith.Sub, arith.Mul, arith.Fma)

# Scopes of the language -> LLVM's synchronisation scopes.
_SCOPES = {"cta": "workgroup", "gpu": "agent", "sys": ""}

# Cache hints of the language for data that is not used again soon.
_STREAMING = ("cs", "cv", "wt")


class AmdHardware(PlainHardware):
    """The instructions of a processor."""

    name = NAME
    constant_space = 4  # otherwise accesses by addresses of any space, which are slower
    has_buffers = True
    shared_space = 3
    sizes_shared = True

    def __init__(self, chip: Processor) -> None:
        self.chip = chip
        self.lanes = chip.lanes
        # LLVM selects no arithmetic fence of a value in scalar registers. No instruction is left of
        # this one but behind a load, and a conversion to fp16 flushes and quiets as it does.
        self.float_fence = "llvm.canonicalize"
        self.rounds_to_bf16 = "bf16_conversion" in chip.features

    def packed(self, op: Op) -> int:
        """Two fp16 that share a register, on all processors; two fp32 on CDNA."""
        result = op.results[0]
        element, layout = ir.element_of(result.type), result.layout
        if type(op) not in PACKED or layout is None:
            return widened_at_once(op)
        if element == ir.FP32:
            return 2 if "packed_fp32" in self.chip.features and not _mixes(op) else 1
        shared = any(layout.num_consecutive((axis,)) > 1 for axis in range(len(layout.shape)))
        return 2 if element == ir.FP16 and shared else 1

    def thread(self, b: Builder) -> V:
        return b.intrinsic("llvm.amdgcn.workitem.id.x", I32, [])

    def program_id(self, b: Builder, axis: int) -> V:
        return b.intrinsic(f"llvm.amdgcn.workgroup.id.{AXES[axis]}", I32, [])

    def num_programs(self, b: Builder, axis: int) -> V:
        """The first of the hidden arguments, which the runtime appends to those of the kernel."""
        hidden = b.intrinsic("llvm.amdgcn.implicitarg.ptr", CONSTANT, [])
        return b.load(I32, b.gep(I32, hidden, axis))

    def barrier(self, b: Builder, team: Team) -> None:
        assert team.whole, "there are no barriers for some of a program's warps"
        b.fence("release", "workgroup")
        b.call("llvm.amdgcn.s.barrier", VOID, [])
        b.fence("acquire", "workgroup")

    def sync_warp(self, b: Builder) -> None:
        """Lanes run in lockstep, and the LDS executes accesses of a wave in order."""
        b.fence("release", "wavefront")
        b.call("llvm.amdgcn.wave.barrier", VOID, [])
        b.fence("acquire", "wavefront")

    def elect(self, b: Builder) -> V:
        return b.icmp("eq", b.and_(self.thread(b), self.lanes - 1), 0)

    def shuffle(self, b: Builder, word: V, lane: V) -> V:
        return shuffle(b, word, lane)

    def shuffle_xor(self, b: Builder, word: V, mask: int) -> V:
        own = b.and_(self.thread(b), self.lanes - 1)
        return shuffle_xor(b, word, mask, own, self.chip.features)

    def cast(self, b: Builder, x: V, source: str, to: str) -> V | None:
        return cast(b, x, source, to)

    # -- memory ---------------------------------------------------------------------------------

    def load(
        self,
        b: Builder,
        ptr: V,
        words: int,
        word_bits: int,
        mask: V | None,
        other: Sequence[V] | None,
        policy: CachePolicy,
    ) -> list[V]:
        word = int_type(word_bits)
        kind = vector(word, words) if words > 1 else word
        place = b.addrspacecast(ptr, GLOBAL)

        def read() -> V:
            align = words * word_bits // 8
            return b.load(kind, place, align, _hint(b, policy), policy.volatile)

        otherwise = _row(b, other) if other else zero(kind)
        found = guarded(b, _unless_always(mask), read, otherwise)
        return [found] if words == 1 else [b.extract(found, i) for i in range(words)]

    def store(
        self, b: Builder, ptr: V, words: Sequence[V], mask: V | None, policy: CachePolicy
    ) -> None:
        self._store(b, b.addrspacecast(ptr, GLOBAL), words, mask, _hint(b, policy))

    def store_shared(self, b: Builder, ptr: V, words: Sequence[V], mask: V) -> None:
        self._store(b, ptr, words, mask, "")

    def _store(self, b: Builder, place: V, words: Sequence[V], mask: V | None, hint: str) -> None:
        row, align = _row(b, words), len(words) * words[0].type.bits // 8
        mask = _unless_always(mask)
        if mask is None:
            b.store(row, place, align, hint)
            return
        with b.when(mask):
            b.store(row, place, align, hint)

    # -- buffers --------------------------------------------------------------------------------

    def load_buffer(
        self, b: Builder, place: Place, words: int, word_bits: int, mask: V | None
    ) -> list[V]:
        bits = words * word_bits
        kind = int_type(min(bits, 32)) if bits <= 32 else vector(I32, bits // 32)
        args = [self._buffer(b, place), _offset(b, place, mask), _advance(b, place), const(I32, 0)]
        found = b.intrinsic("llvm.amdgcn.raw.ptr.buffer.load", kind, args, overloads=[kind])
        word = int_type(word_bits)
        if words == 1:
            return [b.bitcast(found, word)]
        row = b.bitcast(found, vector(word, words))
        return [b.extract(row, i) for i in range(words)]

    def store_buffer(self, b: Builder, place: Place, words: Sequence[V], mask: V | None) -> None:
        row = _row(b, words)
        bits = len(words) * words[0].type.bits
        kind = int_type(min(bits, 32)) if bits <= 32 else vector(I32, bits // 32)
        args = [b.bitcast(row, kind), self._buffer(b, place), _offset(b, place, mask)]
        args += [_advance(b, place), const(I32, 0)]
        b.intrinsic("llvm.amdgcn.raw.ptr.buffer.store", VOID, args, overloads=[kind])

    def _buffer(self, b: Builder, place: Place) -> V:
        """The descriptor of a buffer. All lanes have the same one, of which LLVM needs a proof."""
        base = b.ptrtoint(place.base, I64)
        if not place.fixed:
            base = b.intrinsic("llvm.amdgcn.readfirstlane", I64, [base], overloads=[I64])
        args = [
            b.inttoptr(base, GLOBAL),
            const(I16, 0),
            const(I64, place.size),
            const(I32, self.chip.buffer_flags),
        ]
        return b.intrinsic("llvm.amdgcn.make.buffer.rsrc", BUFFER, args, overloads=[BUFFER, GLOBAL])

    def atomic_length(self, what: Atomic) -> int:
        return longest(what, self.chip.features)

    def atomic(
        self, b: Builder, what: Atomic, ptr: V, values: Sequence[V], mask: V | None
    ) -> Sequence[V]:
        place, mask = b.addrspacecast(ptr, GLOBAL), _unless_always(mask)
        scope = self.sync_scope(what.scope)
        if mask is None:
            return emit_atomic(b, what, place, values, scope)
        before, inside, after = b.current, b.block("atomic"), b.block("updated")
        b.cond_br(mask, inside, after)
        b.at(inside)
        found = emit_atomic(b, what, place, values, scope)
        b.br(after)
        b.at(after)
        return b.merge((before, [zero(v.type) for v in found]), (inside, found))

    def load_atomic(self, b: Builder, ptr: V, bits: LType, order: str, scope: str) -> V:
        place = b.addrspacecast(ptr, GLOBAL)
        return b.load_atomic(bits, place, ORDERS.get(order, order), self.sync_scope(scope))

    def store_atomic(self, b: Builder, ptr: V, value: V, order: str, scope: str) -> None:
        place = b.addrspacecast(ptr, GLOBAL)
        b.store_atomic(value, place, ORDERS.get(order, order), self.sync_scope(scope))

    def nanoseconds(self, b: Builder) -> V:
        ticks = b.intrinsic("llvm.readsteadycounter", I64, [])
        return b.mul(ticks, const(I64, CLOCK_NANOSECONDS))

    def sync_scope(self, scope: str) -> str:
        return _SCOPES[scope]

    def fail(self, b: Builder, message: str, file: str, line: int, function: str) -> None:
        """Stop the program by a trap: the message is lost."""
        b.call("llvm.trap", VOID, [])


def _offset(b: Builder, place: Place, mask: V | None) -> V:
    """The offset of a lane; one out of the buffer's range if it is masked off."""
    if mask is None:
        return place.offset
    return b.select(mask, place.offset, const(I32, place.size - (1 << 32)))


def _advance(b: Builder, place: Place) -> V:
    """The scalar offset. All lanes have the same one, of which LLVM needs a proof."""
    if place.advance is None:
        return const(I32, 0)
    return b.intrinsic("llvm.amdgcn.readfirstlane", I32, [place.advance], overloads=[I32])


def _mixes(op: Op) -> bool:
    """Whether LLVM combines it into `v_fma_mix`, which converts operands and results of fp16."""
    if isinstance(op, arith.Fma):
        return _converts_fp16(op)
    if isinstance(op, arith.Mul):
        sums = (user for user in op.result.users if isinstance(user, arith.Add | arith.Sub))
        return _converts_fp16(op) or any(map(_converts_fp16, sums))
    products = [v.op for v in op.operands if isinstance(v.op, arith.Mul)]
    return bool(products) and any(map(_converts_fp16, [op, *products]))


def _converts_fp16(op: Op) -> bool:
    """Whether an operand was fp16, or the result becomes fp16."""
    producers = (v.op for v in op.operands)
    if any(isinstance(v, arith.Cast) and ir.element_of(v.src.type) == ir.FP16 for v in producers):
        return True
    users = op.results[0].users
    return any(isinstance(u, arith.Cast) and u.to == ir.FP16 for u in users)


def _unless_always(mask: V | None) -> V | None:
    return None if mask is None or mask.number not in (None, 0) else mask


def _hint(b: Builder, policy: CachePolicy) -> str:
    """Metadata of an access: whether the data is not reused soon."""
    streams = policy.evict == "evict_first" or policy.cache in _STREAMING
    return f"!nontemporal {b.module.metadata('!{i32 1}')}" if streams else ""


def _row(b: Builder, words: Sequence[V]) -> V:
    """Words as a vector; a single one as a scalar."""
    if len(words) == 1:
        return words[0]
    row = poison(vector(words[0].type, len(words)))
    for i, word in enumerate(words):
        row = b.insert(row, word, i)
    return row
