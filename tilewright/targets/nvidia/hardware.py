"""NVIDIA's implementation of the `Hardware` interface of the shared lowering.

Instructions that LLVM has intrinsics for use them; accesses with masks, cache hints, memory order
or scope are inline PTX (`code.py`), which LLVM does not reorder with other memory accesses.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ir import types as ir
from tilewright.ir.core import Op
from tilewright.lowering.emit import (
    I8,
    I16,
    I32,
    I64,
    PTR,
    VOID,
    Builder,
    LType,
    V,
    array,
    const,
    int_type,
    pointer,
    poison,
    struct,
    vector,
    zero,
)
from tilewright.lowering.simt.hardware import Atomic, CachePolicy, PlainHardware
from tilewright.lowering.simt.team import Team
from tilewright.ops import arith
from tilewright.targets.nvidia.arith import picks_from_pairs, shifts_pairs
from tilewright.targets.nvidia.atomic import emit_atomic, instruction, longest
from tilewright.targets.nvidia.code import Code, row
from tilewright.targets.nvidia.convert import cast, narrows_pairs
from tilewright.targets.nvidia.features import DEFAULT_ARCH, WARP_SIZE, processor
from tilewright.targets.nvidia.name import NAME
from tilewright.targets.nvidia.small_integers import converts_pairs

GLOBAL_SPACE = 1
GLOBAL = pointer(GLOBAL_SPACE)
ALL_LANES = -1
AXES = "xyz"

# The last operand of `shfl.sync`: segment mask and clamp (PTX ISA, "shfl.sync").
WHOLE_WARP = 31

# Cache operators of PTX for loads and for stores; an access ignores those it does not support.
LOAD_CACHES = ("ca", "cg", "cs", "cv")
STORE_CACHES = ("wb", "cg", "cs", "wt")


# Scopes of the language -> LLVM's synchronisation scopes.
_SCOPES = {"cta": "block", "gpu": "device", "sys": ""}


def _special(b: Builder, name: str, axis: int) -> V:
    """A special register with a component for each axis, i32."""
    return b.intrinsic(f"llvm.nvvm.read.ptx.sreg.{name}.{AXES[axis]}", I32, [])


_SUMS = (arith.Add, arith.Sub, arith.Mul)
_BITS = (arith.And, arith.Or, arith.Xor)

PAIRS: dict[ir.DType, tuple[str, tuple[type[Op], ...]]] = {
    ir.FP32: ("f32x2", (*_SUMS, arith.Fma)),
    ir.FP16: ("f16x2", (*_SUMS, arith.Fma)),
    ir.BF16: ("bf16_arith", _SUMS),
    ir.I16: ("f16x2", _BITS),
    ir.U16: ("f16x2", _BITS),
}
"""By element type, a feature, and the ops of which one instruction computes two elements with it.

Elements of 16 bits come from words of memory, and most go to words of a product or of memory: taken
apart, each costs as many instructions as a pair, and half of one more to put them together."""


class NvidiaHardware(PlainHardware):
    """The instructions of an architecture.

    Args:
        features: the features of the architecture (`features.py`).
        packs: whether a block may run several programs; see `pack_programs`.
    """

    name = NAME
    lanes = WARP_SIZE
    shared_space = 3
    sizes_shared = False

    def __init__(
        self,
        features: frozenset[str] = processor(DEFAULT_ARCH).features,
        *,
        packs: bool = False,
    ) -> None:
        self.features = features
        self._packs = packs
        self.rounds_to_bf16 = "bf16" in features
        self.loads_matrices = "ldmatrix" in features
        self.stores_matrices = "stmatrix" in features

    def packed(self, op: Op) -> int:
        element = ir.element_of(op.results[0].type)
        feature, ops = PAIRS.get(element, ("", ())) if isinstance(element, ir.DType) else ("", ())
        pairs = type(op) in ops or shifts_pairs(op) or converts_pairs(op)
        if narrows_pairs(op):
            feature, pairs = "fp8_cvt", True
        if picks_from_pairs(op):
            feature, pairs = "extrema_16", True
        return 2 if pairs and feature in self.features else 1

    def thread(self, b: Builder) -> V:
        return _special(b, "tid", 0)

    def program_id(self, b: Builder, axis: int) -> V:
        block = _special(b, "ctaid", axis)
        if not self._packs or axis:
            return block
        return b.add(b.mul(block, _special(b, "ntid", 1)), _special(b, "tid", 1))

    def num_programs(self, b: Builder, axis: int) -> V:
        blocks = _special(b, "nctaid", axis)
        return b.mul(blocks, _special(b, "ntid", 1)) if self._packs and not axis else blocks

    def own_shared(self, b: Builder, block: V, bytes: int) -> V:
        if not self._packs:
            return block
        return b.gep(I8, block, b.mul(_special(b, "tid", 1), const(I32, bytes)))

    def barrier(self, b: Builder, team: Team) -> None:
        if team.threads == self.lanes and team.whole:
            b.call("llvm.nvvm.bar.warp.sync", VOID, [const(I32, ALL_LANES)])
            return
        if team.whole:
            b.call("llvm.nvvm.barrier.cta.sync.aligned.all", VOID, [const(I32, 0)])
            return
        # The number is a constant: for one in a register ptxas reserves all 16 barriers.
        args = [const(I32, team.barrier), const(I32, team.threads)]
        b.call("llvm.nvvm.barrier.cta.sync.aligned.count", VOID, args)

    def sync_warp(self, b: Builder) -> None:
        b.call("llvm.nvvm.bar.warp.sync", VOID, [const(I32, -1)])

    def take_registers(self, b: Builder, count: int) -> None:
        self._set_registers(b, "inc", count)

    def release_registers(self, b: Builder, count: int) -> None:
        self._set_registers(b, "dec", count)

    def _set_registers(self, b: Builder, how: str, count: int) -> None:
        b.inline_asm(f"setmaxnreg.{how}.sync.aligned.u32 {count};", "", VOID, [], True, True)

    def elect(self, b: Builder) -> V:
        code = "{ .reg .pred p; elect.sync _|p, 0xffffffff; selp.b32 $0, 1, 0, p; }"
        chosen = b.inline_asm(code, "=r", I32, [], True, True)
        return b.icmp("ne", chosen, 0)

    def publish(self, b: Builder) -> None:
        b.inline_asm("fence.proxy.async.shared::cta;", "~{memory}", VOID, [], True)

    def wait_launches(self, b: Builder) -> None:
        self._control_launches(b, "wait")

    def start_dependents(self, b: Builder) -> None:
        self._control_launches(b, "launch_dependents")

    def _control_launches(self, b: Builder, what: str) -> None:
        # Inline assembly that clobbers memory: LLVM's intrinsics are declared as not accessing
        # memory, so that loads would be moved across them.
        if "dependent_launch" in self.features:
            b.inline_asm(f"griddepcontrol.{what};", "~{memory}", VOID, [], True)

    def copy_async(self, b: Builder, dst: V, src: V, bytes: int, mask: V | None) -> None:
        # Bypass L1, as a tile is read once; possible for copies of 16 bytes only.
        cache = "cg" if bytes == 16 else "ca"
        args = [dst, b.addrspacecast(src, GLOBAL)]
        if _always(mask):
            code, constraints = f"cp.async.{cache}.shared.global [$0], [$1], {bytes};", "r,l"
        else:
            assert mask is not None
            args.append(b.select(mask, const(I32, bytes), const(I32, 0)))
            code = f"cp.async.{cache}.shared.global [$0], [$1], {bytes}, $2;"
            constraints = "r,l,r"
        args[0] = b.ptrtoint(dst, I32)
        b.inline_asm(code, f"{constraints},~{{memory}}", VOID, args, True)

    def commit_copies(self, b: Builder) -> None:
        b.inline_asm("cp.async.commit_group;", "~{memory}", VOID, [], True)

    def wait_copies(self, b: Builder, pending: int) -> None:
        b.inline_asm(f"cp.async.wait_group {pending};", "~{memory}", VOID, [], True)

    def load_matrices(self, b: Builder, row: V, count: int, transposed: bool) -> list[V]:
        suffix = ".trans" if transposed else ""
        name = f"llvm.nvvm.ldmatrix.sync.aligned.m8n8.x{count}{suffix}.b16"
        ret = I32 if count == 1 else struct(*[I32] * count)
        got = b.intrinsic(name, ret, [row], overloads=[row.type])
        return [got] if count == 1 else [b.extract_value(got, i, I32) for i in range(count)]

    def store_matrices(self, b: Builder, row: V, words: Sequence[V], transposed: bool) -> None:
        # Inline assembly, as LLVM has the intrinsic only since version 21.
        suffix = ".trans" if transposed else ""
        listed = ", ".join(f"${1 + i}" for i in range(len(words)))
        code = f"stmatrix.sync.aligned.m8n8.x{len(words)}{suffix}.shared.b16 [$0], {{{listed}}};"
        constraints = ",".join(["r"] * (1 + len(words))) + ",~{memory}"
        b.inline_asm(code, constraints, VOID, [b.ptrtoint(row, I32), *words], True, True)

    def _shuffle(self, b: Builder, mode: str, word: V, lane: V, clamp: int) -> V:
        args = [const(I32, ALL_LANES), word, lane, const(I32, clamp)]
        return b.intrinsic(f"llvm.nvvm.shfl.sync.{mode}.i32", I32, args)

    def shuffle(self, b: Builder, word: V, lane: V) -> V:
        return self._shuffle(b, "idx", word, lane, WHOLE_WARP)

    def shuffle_xor(self, b: Builder, word: V, mask: int) -> V:
        return self._shuffle(b, "bfly", word, const(I32, mask), WHOLE_WARP)

    def cast(self, b: Builder, x: V, source: str, to: str) -> V | None:
        return cast(b, x, source, to, self.features)

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
        place = b.addrspacecast(ptr, GLOBAL)
        if _always(mask) and not (policy.cache or policy.evict):
            return _plain_load(b, place, word, words, policy.volatile)
        held = int_type(max(16, word_bits))
        code = Code([held] * words)
        target = code.outputs()
        suffix = self._suffix(policy, LOAD_CACHES) + _width(words, word_bits)
        text = f"ld{suffix} {target}, [{code.input(place)}]{self._hint(b, code, policy)}"
        if not _always(mask):
            assert mask is not None
            text = f"@{code.input(mask)} {text}"
            # The outputs are tied to `other`: a lane that is masked off keeps it.
            code.tie([b.zext(v, held) for v in other or [zero(word)] * words])
        return [b.trunc(v, word) for v in code.emit(b, text)]

    def store(
        self, b: Builder, ptr: V, words: Sequence[V], mask: V | None, policy: CachePolicy
    ) -> None:
        count, bits = len(words), words[0].type.bits
        place = b.addrspacecast(ptr, GLOBAL)
        if _always(mask) and not (policy.cache or policy.evict):
            _plain_store(b, place, words)
            return
        held = I16 if bits < 16 else words[0].type
        code = Code([])
        source = row(code.input(b.zext(v, held)) for v in words)
        suffix = self._suffix(policy, STORE_CACHES) + _width(count, bits)
        text = f"st{suffix} [{code.input(place)}], {source}{self._hint(b, code, policy)}"
        if not _always(mask):
            assert mask is not None
            text = f"@{code.input(mask)} {text}"
        code.emit(b, text)

    def store_shared(self, b: Builder, ptr: V, words: Sequence[V], mask: V) -> None:
        code = Code([])
        place = code.input(b.ptrtoint(ptr, I32))
        source = row(code.input(b.zext(w, I16) if w.type.bits < 16 else w) for w in words)
        width = _width(len(words), words[0].type.bits)
        code.emit(b, f"@{code.input(mask)} st.shared{width} [{place}], {source}")

    def _keeps_lines(self, policy: CachePolicy) -> bool:
        """Whether the access has an eviction priority."""
        return bool(policy.evict) and not policy.volatile and "cache_policy" in self.features

    def _suffix(self, policy: CachePolicy, caches: Sequence[str]) -> str:
        """The state space and cache qualifiers of an access.

        PTX permits either a cache operator or an L1 eviction priority, and with either an L2 cache
        policy. ``.volatile`` excludes all of these; ``.cv`` is as strong.
        """
        cache = policy.cache if policy.cache in caches else ""
        hint = ".L2::cache_hint" if self._keeps_lines(policy) else ""
        if cache and (cache == "cv" or not policy.volatile):
            return f".global.{cache}{hint}"
        if policy.volatile:
            return ".volatile.global"
        return f".global.L1::{policy.evict}{hint}" if hint else ".global"

    def _hint(self, b: Builder, code: Code, policy: CachePolicy) -> str:
        """The L2 cache policy operand of an access, if `_suffix` has one."""
        if not self._keeps_lines(policy):
            return ""
        made = f"createpolicy.fractional.L2::{policy.evict}.b64 $0, 1.0;"
        return f", {code.input(b.inline_asm(made, '=l', I64, []))}"

    def atomic_length(self, what: Atomic) -> int:
        return longest(what, self.features)

    def atomic(
        self, b: Builder, what: Atomic, ptr: V, values: Sequence[V], mask: V | None
    ) -> Sequence[V]:
        place = b.addrspacecast(ptr, GLOBAL)
        name = instruction(what, self.features)
        assert name is not None
        return emit_atomic(b, what, name, place, values, None if _always(mask) else mask)

    def load_atomic(self, b: Builder, ptr: V, bits: LType, order: str, scope: str) -> V:
        code = Code([int_type(max(16, bits.bits))])
        place = code.input(b.addrspacecast(ptr, GLOBAL))
        (found,) = code.emit(b, f"ld.{order}.{scope}.global.b{bits.bits} $0, [{place}]")
        return b.trunc(found, bits)

    def store_atomic(self, b: Builder, ptr: V, value: V, order: str, scope: str) -> None:
        bits = value.type.bits
        code = Code([])
        place = code.input(b.addrspacecast(ptr, GLOBAL))
        source = code.input(b.zext(value, I16) if bits < 16 else value)
        code.emit(b, f"st.{order}.{scope}.global.b{bits} [{place}], {source}")

    def nanoseconds(self, b: Builder) -> V:
        return b.intrinsic("llvm.nvvm.read.ptx.sreg.globaltimer", I64, [])

    def sync_scope(self, scope: str) -> str:
        return _SCOPES[scope]

    # -- calls of the driver --------------------------------------------------------------------

    def printf(self, b: Builder, form: str, values: Sequence[V]) -> None:
        # CUDA C++ Programming Guide, "Formatted Output": vprintf takes the values as a C struct.
        offsets: list[int] = []
        end = 0
        for value in values:
            size = value.type.bits // 8
            offsets.append(-(-end // size) * size)
            end = offsets[-1] + size
        row = b.alloca(array(I8, max(8, end)), 1, 8)
        for offset, value in zip(offsets, values, strict=True):
            b.store(value, b.gep(I8, row, offset))
        b.call("vprintf", I32, [_text(b, form), row])

    def fail(self, b: Builder, message: str, file: str, line: int, function: str) -> None:
        args = [_text(b, message), _text(b, file), const(I32, line), _text(b, function)]
        character_size = const(I64, 1)
        b.call("__assertfail", VOID, [*args, character_size])


def _text(b: Builder, text: str) -> V:
    """The address of a C string constant, in the generic address space."""
    content = list(text.encode() + b"\0")
    return b.addrspacecast(b.module.global_constant("text", I8, content, 1, GLOBAL_SPACE), PTR)


def _always(mask: V | None) -> bool:
    return mask is None or mask.number not in (None, 0)


def _width(words: int, bits: int) -> str:
    return f".v{words}.b{bits}" if words > 1 else f".b{bits}"


def _plain_load(b: Builder, place: V, word: LType, words: int, volatile: bool) -> list[V]:
    if words == 1:
        return [b.load(word, place, volatile=volatile)]
    row = b.load(vector(word, words), place, align=words * word.bits // 8, volatile=volatile)
    return [b.extract(row, i) for i in range(words)]


def _plain_store(b: Builder, place: V, words: Sequence[V]) -> None:
    if len(words) == 1:
        b.store(words[0], place)
        return
    row = poison(vector(words[0].type, len(words)))
    for i, word in enumerate(words):
        row = b.insert(row, word, i)
    b.store(row, place, align=len(words) * words[0].type.bits // 8)
