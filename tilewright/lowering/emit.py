"""A builder of LLVM IR as text.

LLVM parses text faster than Python can build an object graph of instructions. So an instruction is
one formatted line in the list of its block, and a value is a name with a type. The syntax is that
of LLVM 22: opaque pointers, ``splat (T c)`` constants, and masked memory intrinsics whose alignment
is a parameter attribute of the pointer.

    module = Module("example")
    function = module.function("axpy", VOID, [(PTR, "noalias"), (F32, "")])
    b = Builder(function)
    pointer, a = function.params
    with b.loop(0, 64, 16) as loop:
        address = b.gep(F32, pointer, loop.index)
        x = b.load(vector(F32, 16), address, align=64)
        b.store(b.fmul(x, b.splat(a, 16)), address, align=64)
    b.ret()
    text = module.text()

The builder checks types by identity (they are interned) and raises `TypeError` or `ValueError`;
LLVM's verifier detects the rest.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Literal

from tilewright.lowering.llvm_arith import ValueBuilder
from tilewright.lowering.llvm_module import Block, Function, Loop, Module, Phi
from tilewright.lowering.llvm_values import (
    BF16,
    F16,
    F32,
    F64,
    I1,
    I8,
    I16,
    I32,
    I64,
    I128,
    PTR,
    VOID,
    LType,
    Number,
    Operand,
    V,
    array,
    const,
    const_vector,
    int_type,
    like,
    pointer,
    poison,
    struct,
    vector,
    zero,
)

__all__ = [
    "BF16", "F16", "F32", "F64", "I1", "I8", "I16", "I32", "I64", "I128", "PTR", "VOID",
    "Block", "Builder", "Function", "LType", "Loop", "Module", "Number", "Operand", "Phi", "V",
    "array", "const", "const_vector", "int_type", "like", "pointer", "poison", "struct", "vector",
    "zero",
]  # fmt: skip


_ESCAPED = r'["\\\x00-\x1f\x7f]'  # characters that a string of LLVM IR cannot contain


class Builder(ValueBuilder):
    """Appends instructions to the blocks of one function, starting in its entry block.

    Attributes:
        function, module: the function and module under construction.
        current: the block to append to.
        fast_flags: fast-math flags of the float instructions, such as ``"contract"``.
        location: metadata id of a DILocation (``"!7"``) to attach to each instruction, or None.
        has_fma: whether the target has a fused multiply-add; used by `mul_add` and `lowering.math`.
        own_cast: the target's own conversions between floats, which `lowering.convert` prefers.
        own_scale: the target's instruction for x * 2**floor(y), which exponentials prefer; see
            `OwnScale`.
        float_fence: the intrinsic behind which LLVM does not look for how a float was computed;
            used by `lowering.convert`.
        rounds_to_bf16: whether the target's instruction from fp32 to bf16 rounds to nearest even
            and preserves subnormals; used by `lowering.convert`.
        saturates_vectors: whether LLVM converts vectors of floats to integers, saturating, by
            instructions for vectors; used by `lowering.convert`.

    An operand may be a Python number if another operand determines its type. Integer instructions
    on constants are folded, as are identities such as ``x + 0`` and ``x * 1``.
    """

    __slots__ = ()

    # Memory -----------------------------------------------------------------------------------

    def gep(self, element_type: LType, ptr: V, index: V | int) -> V:
        """Address of element `index`; a vector of pointers if the pointer or index is one."""
        if isinstance(index, int):
            index = const(I64, index)
        type = ptr.type
        if index.type.lanes and not type.lanes:
            type = vector(type, index.type.lanes)
        if index.number == 0 and type is ptr.type:
            return ptr
        return self._value(f"getelementptr {element_type.text}, {ptr!r}, {index!r}", type)

    @staticmethod
    def _tail(align: int | None, type: LType, metadata: str) -> str:
        # Always explicit: LLVM's default for a vector is the alignment of the whole vector.
        tail = f", align {align or max(1, type.bits // 8)}"
        return f"{tail}, {metadata}" if metadata else tail

    def load(
        self,
        type: LType,
        ptr: V,
        align: int | None = None,
        metadata: str = "",
        volatile: bool = False,
    ) -> V:
        """Load; `align` in bytes (default: of one element); metadata ``"!noalias !3"``."""
        keyword = "load volatile" if volatile else "load"
        return self._value(
            f"{keyword} {type.text}, {ptr!r}{self._tail(align, type, metadata)}", type
        )

    def store(
        self,
        value: V,
        ptr: V,
        align: int | None = None,
        metadata: str = "",
        volatile: bool = False,
    ) -> None:
        """Store; the options are those of `load`."""
        keyword = "store volatile" if volatile else "store"
        self._effect(f"{keyword} {value!r}, {ptr!r}{self._tail(align, value.type, metadata)}")

    def alloca(self, type: LType, count: int | V = 1, align: int | None = None) -> V:
        """Stack memory for `count` elements: in the entry block for a constant count, else at the
        current position, allocated each time it is executed."""
        if isinstance(count, V):
            return self._value(f"alloca {type.text}, {count!r}", PTR)
        name = f"%v{self.function.next_serial()}"
        size = f", i64 {count}" if count != 1 else ""
        tail = f", align {align}" if align else ""
        self.function.types[name] = PTR
        self.function.allocas[name] = f"  {name} = alloca {type.text}{size}{tail}{self._dbg()}"
        return V(name, PTR)

    def _check_mask(self, mask: V, type: LType) -> None:
        if not type.lanes or mask.type is not like(I1, type):
            raise TypeError(f"a mask of type {mask.type} does not fit a vector of type {type}")

    def _masked(self, name: str, ret: LType, args: Sequence[str], types: Sequence[LType]) -> str:
        self.module.declare(name, ret, types)
        return f"call {ret.text} @{name}({', '.join(args)})"

    def masked_load(
        self,
        type: LType,
        ptr: V,
        mask: V,
        passthru: V | None = None,
    ) -> V:
        """Load the lanes whose mask is set; the others are `passthru` (default zero).

        Memory of the other lanes is not accessed.
        """
        # LLVM 22 makes one load of a masked load and a selection by its mask, at the selection,
        # even if the memory is stored to in between. It does not look through `freeze`.
        loaded = self._read_masked("load", type, ptr, mask, passthru)
        return self._value(f"freeze {loaded!r}", type)

    def masked_store(self, value: V, ptr: V, mask: V) -> None:
        """Store the lanes whose mask is set."""
        self._write_masked("store", value, ptr, mask)

    def gather(
        self,
        type: LType,
        pointers: V,
        mask: V,
        passthru: V | None = None,
    ) -> V:
        """Load each lane from its own pointer where the mask is set, else `passthru` (zero)."""
        return self._read_masked("gather", type, pointers, mask, passthru)

    def scatter(self, value: V, pointers: V, mask: V) -> None:
        """Store each lane to its own pointer where the mask is set, lowest lane first."""
        self._write_masked("scatter", value, pointers, mask)

    def _read_masked(self, name: str, type: LType, at: V, mask: V, passthru: V | None) -> V:
        self._check_mask(mask, type)
        operands = [self._aligned(at, type), repr(mask), repr(passthru or zero(type))]
        name = f"llvm.masked.{name}.{type.mangled}.{at.type.mangled}"
        return self._value(self._masked(name, type, operands, [at.type, mask.type, type]), type)

    def _write_masked(self, name: str, value: V, at: V, mask: V) -> None:
        type = value.type
        self._check_mask(mask, type)
        operands = [repr(value), self._aligned(at, type), repr(mask)]
        name = f"llvm.masked.{name}.{type.mangled}.{at.type.mangled}"
        self._effect(self._masked(name, VOID, operands, [type, at.type, mask.type]))

    @staticmethod
    def _aligned(at: V, type: LType) -> str:
        """One pointer or a vector of them as an operand: elements are aligned, not vectors."""
        return f"{at.type.text} align {type.bits // 8} {at.text}"

    def load_atomic(self, type: LType, ptr: V, ordering: str, scope: str = "") -> V:
        """An aligned atomic load of an integer; `scope` is a sync scope name, "" is system."""
        place = f'syncscope("{scope}") ' if scope else ""
        align = max(1, type.bits // 8)
        return self._value(
            f"load atomic {type.text}, {ptr!r} {place}{ordering}, align {align}", type
        )

    def store_atomic(self, value: V, ptr: V, ordering: str, scope: str = "") -> None:
        """An aligned atomic store of an integer."""
        place = f'syncscope("{scope}") ' if scope else ""
        align = max(1, value.type.bits // 8)
        self._effect(f"store atomic {value!r}, {ptr!r} {place}{ordering}, align {align}")

    def atomicrmw(
        self,
        op: str,
        ptr: V,
        value: V,
        ordering: str = "seq_cst",
        scope: str = "",
        metadata: str = "",
    ) -> V:
        """Atomic read-modify-write; the old value. `scope` is a sync scope name, "" is system.

        A vector is aligned as a whole.
        """
        place = f'syncscope("{scope}") ' if scope else ""
        line = f"atomicrmw {op} {ptr!r}, {value!r} {place}{ordering}"
        align = max(1, value.type.bits * max(1, value.type.lanes) // 8)
        return self._value(f"{line}{self._tail(align, value.type, metadata)}", value.type)

    def cmpxchg(
        self, ptr: V, expected: V, new: V, ordering: str = "seq_cst", scope: str = ""
    ) -> tuple[V, V]:
        """Compare and swap (integers, pointers): the old value, and whether it swapped."""
        failure = {"release": "monotonic", "acq_rel": "acquire"}.get(ordering, ordering)
        place = f'syncscope("{scope}") ' if scope else ""
        type = struct(new.type, I1)
        both = self._value(
            f"cmpxchg {ptr!r}, {expected!r}, {new!r} {place}{ordering} {failure}, "
            f"align {max(1, new.type.bits // 8)}",
            type,
        )
        return self.extract_value(both, 0, new.type), self.extract_value(both, 1, I1)

    def fence(self, ordering: str = "seq_cst", scope: str = "") -> None:
        """A memory fence."""
        place = f'syncscope("{scope}") ' if scope else ""
        self._effect(f"fence {place}{ordering}")

    # Calls ------------------------------------------------------------------------------------

    def call(self, name: str | V, ret: LType, args: Sequence[V], attributes: str = "") -> V:
        """Call a function by name (declared if necessary) or through a pointer.

        The result of a VOID call must not be used. `attributes` are those of the call site.
        """
        if isinstance(name, V):
            target = name.text
        else:
            target = f"@{name}"
            if not self.module.defines(name):
                self.module.declare(name, ret, [a.type for a in args])
        line = f"call {ret.text} {target}({', '.join([repr(a) for a in args])})"
        if attributes:
            line = f"{line} {attributes}"
        if ret is VOID:
            self._effect(line)
            return V("void", VOID)
        return self._value(line, ret)

    def intrinsic(
        self, name: str, ret: LType, args: Sequence[V], overloads: Sequence[LType] = ()
    ) -> V:
        """Call an LLVM intrinsic: ``intrinsic("llvm.fma", t, [a, b, c], overloads=[t])``.

        The name is without its overload suffix, which follows from `overloads`. Calls that return
        floats have the fast-math flags.
        """
        full = ".".join([name, *(t.mangled for t in overloads)])
        if ret.is_float and self._fast:
            return self._call_value(full, ret, args, self._fast)
        return self.call(full, ret, args)

    def inline_asm(
        self,
        code: str,
        constraints: str,
        ret: LType,
        args: Sequence[V],
        side_effects: bool = False,
        convergent: bool = False,
    ) -> V:
        """Target assembly, with LLVM's constraint string.

        `convergent`: must be executed by the same threads as written, so that it isn't moved into
        or out of a branch.
        """
        effect = "sideeffect " if side_effects else ""
        tail = " convergent" if convergent else ""
        escaped = re.sub(_ESCAPED, lambda found: f"\\{ord(found[0]):02X}", code)
        written = ", ".join([repr(a) for a in args])
        line = f'call {ret.text} asm {effect}"{escaped}", "{constraints}"({written}){tail}'
        if ret is VOID:
            self._effect(line)
            return V("void", VOID)
        return self._value(line, ret)

    # Control ----------------------------------------------------------------------------------

    def br(self, block: Block) -> None:
        """Jump."""
        self._terminate(f"br label %{block.label}")

    def cond_br(
        self,
        condition: V,
        then: Block,
        otherwise: Block,
        weights: tuple[int, int] | None = None,
        metadata: str = "",
    ) -> None:
        """Branch on an i1; `weights` are relative frequencies of the two targets."""
        if condition.type is not I1:
            raise TypeError(f"a branch condition is an i1, not {condition!r}")
        line = f"br {condition!r}, label %{then.label}, label %{otherwise.label}"
        if weights is not None:
            profile = f'!{{!"branch_weights", i32 {weights[0]}, i32 {weights[1]}}}'
            line = f"{line}, !prof {self.module.metadata(profile)}"
        self._terminate(f"{line}, {metadata}" if metadata else line)

    @contextmanager
    def when(self, condition: V, weights: tuple[int, int] | None = None) -> Generator[None]:
        """Instructions under a condition, an i1. They may end with their own terminator.

        with b.when(b.icmp("eq", pointer, 0)):
            b.ret(const(I32, 0))
        """
        then, after = self.block("then"), self.block("after")
        self.cond_br(condition, then, after, weights)
        self.at(then)
        yield
        if not self.current.closed:
            self.br(after)
        self.at(after)

    def phi(self, type: LType) -> Phi:
        """A phi at the head of the current block."""
        name = f"%v{self.function.next_serial()}"
        self.function.types[name] = type
        result = Phi(V(name, type), self._dbg())
        self.current.phis.append(result)
        return result

    def merge(self, *sides: tuple[Block, Sequence[V]]) -> list[V]:
        """Merge values at the head of the current block: a phi for each.

            x, y = b.merge((then_end, [1, 2]), (else_end, [3, 4]))

        Args:
            sides: for each predecessor of the block, its values.
        """
        merged: list[V] = []
        for values in zip(*(values for _, values in sides), strict=True):
            phi = self.phi(values[0].type)
            for (block, _), value in zip(sides, values, strict=True):
                phi.add(value, block)
            merged.append(phi.value)
        return merged

    def ret(self, value: V | None = None) -> None:
        """Return."""
        found = VOID if value is None else value.type
        if found is not self.function.ret:
            raise TypeError(f"@{self.function.name} returns {self.function.ret}, not {found}")
        self._terminate("ret void" if value is None else f"ret {value!r}")

    def loop_metadata(
        self,
        unroll: Literal["disable", "full"] | int | None = None,
        vectorize: bool | None = None,
        align: int | None = None,
    ) -> str:
        """Metadata for the back edge of a loop; `align`: alignment of its header in bytes."""
        hints: list[str] = []
        if align is not None:
            hints.append(f'!{{!"llvm.loop.align", i32 {align}}}')
        if isinstance(unroll, int):
            hints.append(f'!{{!"llvm.loop.unroll.count", i32 {unroll}}}')
        elif unroll is not None:
            hints.append(f'!{{!"llvm.loop.unroll.{unroll}"}}')
        if vectorize is not None:
            flag = "true" if vectorize else "false"
            hints.append(f'!{{!"llvm.loop.vectorize.enable", i1 {flag}}}')
        if not hints:
            return ""
        nodes = ", ".join(["!self", *map(self.module.metadata, hints)])
        return f"!llvm.loop {self.module.metadata(f'!{{{nodes}}}', distinct=True)}"

    @contextmanager
    def loop(
        self,
        start: V | int,
        stop: V | int,
        step: V | int = 1,
        carried: Sequence[V] = (),
        unroll: Literal["disable", "full"] | int | None = None,
        vectorize: bool | None = None,
    ) -> Generator[Loop]:
        """A loop over ``range(start, stop, step)`` (signed, step > 0); the context is its body.

        The index has the type of the first bound that is a value, or else i64. ``stop + step`` must
        not overflow that type. The body may consist of several blocks; at its end the builder must
        be in the one that ends the iteration.

            with b.loop(0, n, 16, carried=[acc]) as loop:
                loop.yield_([b.fadd(loop.carried[0], term(loop.index))])
            total = loop.results[0]

        The loop is rotated: its test is at the bottom, guarded by one test before it.
        """
        type = next((x.type for x in (start, stop, step) if isinstance(x, V)), I64)
        start, stop, step = (x if isinstance(x, V) else const(type, x) for x in (start, stop, step))
        if step.number is not None and step.number <= 0:
            raise ValueError(f"a loop's step is positive, not {step.number}")
        before, body, after = self.current, self.block("loop"), self.block("done")
        enter = self.icmp("slt", start, stop)
        guarded = enter.number != 1
        if guarded:
            self.cond_br(enter, body, after)
            before = self.current
        else:
            self.br(body)
        self.at(body)
        index = self.phi(type)
        index.add(start, before)
        phis = [self.phi(c.type) for c in carried]
        for phi, c in zip(phis, carried, strict=True):
            phi.add(c, before)
        loop = Loop(index.value, [p.value for p in phis])
        yield loop

        yielded = loop.yielded()
        following = self.add(index.value, step, "nsw")
        latch = self.current
        again = self.icmp("slt", following, stop)
        self.cond_br(again, body, after, metadata=self.loop_metadata(unroll, vectorize))
        index.add(following, latch)
        for phi, y in zip(phis, yielded, strict=True):
            phi.add(y, latch)
        self.at(after)
        if not guarded:
            loop.results = yielded
            return
        loop.results += self.merge((before, carried), (latch, yielded))
