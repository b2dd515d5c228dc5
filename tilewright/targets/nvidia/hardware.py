"""NVIDIA's instructions, for the lowering that GPUs share."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.lowering.emit import (
    I16,
    I32,
    VOID,
    Builder,
    LType,
    V,
    const,
    int_type,
    pointer,
    poison,
    struct,
    vector,
    zero,
)
from tilewright.lowering.simt.hardware import Atomic, CachePolicy
from tilewright.targets.nvidia.atomic import emit_atomic, instruction
from tilewright.targets.nvidia.convert import cast
from tilewright.targets.nvidia.features import DEFAULT_ARCH, WARP_SIZE, processor

GLOBAL = pointer(1)
ALL_LANES = -1
AXES = "xyz"

# The last operand of `shfl.sync`: segment mask and clamp (PTX ISA, "shfl.sync").
WHOLE_WARP = 31
FROM_ZERO = 0

# Constraint letters of inline assembly, by bits of the register.
_LETTERS = {1: "b", 16: "h", 32: "r", 64: "l"}


# LLVM's names of the scopes of the language.
_SCOPES = {"cta": "block", "gpu": "device", "sys": ""}


class NvidiaHardware:
    """The instructions of an architecture.

    Args:
        features: what the architecture has, out of `features.py`.
    """

    name = "cuda"
    lanes = WARP_SIZE
    shared_space = 3

    def __init__(self, features: frozenset[str] = processor(DEFAULT_ARCH).features) -> None:
        self.features = features
        self.rounds_to_bf16 = "bf16" in features

    def thread(self, b: Builder) -> V:
        return b.intrinsic("llvm.nvvm.read.ptx.sreg.tid.x", I32, [])

    def program_id(self, b: Builder, axis: int) -> V:
        return b.intrinsic(f"llvm.nvvm.read.ptx.sreg.ctaid.{AXES[axis]}", I32, [])

    def num_programs(self, b: Builder, axis: int) -> V:
        return b.intrinsic(f"llvm.nvvm.read.ptx.sreg.nctaid.{AXES[axis]}", I32, [])

    def barrier(self, b: Builder) -> None:
        b.call("llvm.nvvm.barrier.cta.sync.aligned.all", VOID, [const(I32, 0)])

    def publish(self, b: Builder) -> None:
        b.inline_asm("fence.proxy.async.shared::cta;", "~{memory}", VOID, [], True)

    def copy_async(self, b: Builder, dst: V, src: V, bytes: int, mask: V | None) -> None:
        # Only 16 bytes may go past L1, where a tile that is read once would be in the way.
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

    def _shuffle(self, b: Builder, mode: str, word: V, lane: V, clamp: int) -> V:
        args = [const(I32, ALL_LANES), word, lane, const(I32, clamp)]
        return b.intrinsic(f"llvm.nvvm.shfl.sync.{mode}.i32", I32, args)

    def shuffle(self, b: Builder, word: V, lane: V) -> V:
        return self._shuffle(b, "idx", word, lane, WHOLE_WARP)

    def shuffle_xor(self, b: Builder, word: V, mask: int) -> V:
        return self._shuffle(b, "bfly", word, const(I32, mask), WHOLE_WARP)

    def shuffle_up(self, b: Builder, word: V, distance: int) -> V:
        return self._shuffle(b, "up", word, const(I32, distance), FROM_ZERO)

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
        outputs = [f"${i}" for i in range(words)]
        operand = f"{{{', '.join(outputs)}}}" if words > 1 else outputs[0]
        suffix = _suffix(policy, "ld") + _width(words, word_bits)
        guard = "" if _always(mask) else f"@${words + 1} "
        code = f"{guard}ld{suffix} {operand}, [${words}];"
        letter = _LETTERS[held.bits]
        constraints = [f"={letter}"] * words + ["l"]
        args = [place]
        if not _always(mask):
            assert mask is not None
            constraints.append("b")
            args.append(mask)
            # The outputs hold `other` before: a lane that does not load keeps it.
            constraints += [str(i) for i in range(words)]
            before = other or [zero(word)] * words
            args += [b.zext(v, held) for v in before]
        ret = held if words == 1 else struct(*[held] * words)
        got = b.inline_asm(code, ",".join([*constraints, "~{memory}"]), ret, args, True)
        found = [got] if words == 1 else [b.extract_value(got, i, held) for i in range(words)]
        return [b.trunc(v, word) for v in found]

    def store(
        self, b: Builder, ptr: V, words: Sequence[V], mask: V | None, policy: CachePolicy
    ) -> None:
        count, bits = len(words), words[0].type.bits
        place = b.addrspacecast(ptr, GLOBAL)
        if _always(mask) and not (policy.cache or policy.evict):
            _plain_store(b, place, words)
            return
        inputs = [f"${i}" for i in range(count)]
        operand = f"{{{', '.join(inputs)}}}" if count > 1 else inputs[0]
        guard = "" if _always(mask) else f"@${count + 1} "
        code = f"{guard}st{_suffix(policy, 'st')}{_width(count, bits)} [${count}], {operand};"
        held = I16 if bits < 16 else words[0].type
        constraints = [_LETTERS[held.bits]] * count + ["l"]
        args = [b.zext(v, held) for v in words] + [place]
        if not _always(mask):
            assert mask is not None
            constraints.append("b")
            args.append(mask)
        b.inline_asm(code, ",".join([*constraints, "~{memory}"]), VOID, args, True)

    def atomic(self, b: Builder, what: Atomic, ptr: V, value: V, mask: V | None) -> V | None:
        name = instruction(what, self.features)
        if name is None:
            return None
        place = b.addrspacecast(ptr, GLOBAL)
        return emit_atomic(b, what, name, place, value, None if _always(mask) else mask)

    def sync_scope(self, scope: str) -> str:
        return _SCOPES[scope]


def _always(mask: V | None) -> bool:
    return mask is None or mask.number not in (None, 0)


def _suffix(policy: CachePolicy, kind: str) -> str:
    """``.global`` with the cache operator or eviction priority, of which PTX takes one."""
    if policy.volatile:
        return ".volatile.global"
    if policy.evict:
        return f".global.L1::{policy.evict}"
    known = (".ca", ".cg", ".cs", ".cv") if kind == "ld" else (".wb", ".cg", ".cs", ".wt")
    return f".global{policy.cache}" if policy.cache in known else ".global"


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
