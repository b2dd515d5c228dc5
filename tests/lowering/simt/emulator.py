"""An emulated GPU: runs the output of the lowering for GPUs on this processor.

    run(module, grid, args, warps=4, lanes=8)

Each thread of a program is a fiber: it has a stack of its own and runs until it waits for others,
at a barrier or a shuffle. The scheduler then resumes those whose wait has ended, in a random order.
So runs are deterministic for a seed, code that lacks a barrier has other results for other orders,
and a deadlock is detected at once: no thread can run. What hardware leaves undefined gets a
conspicuous value: shared memory before it is written, and words shuffled from absent lanes.

The words between the fibers are in memory at fixed addresses, which the compiled code has as
constants. The switch from fiber to fiber is the C library's `swapcontext`.
"""

from __future__ import annotations

import ctypes
import mmap
import re
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from typing import Any

import llvmlite.binding as llvm
import numpy as np

from tests.gpu_machine import EMULATOR
from tilewright.ir.core import Module, Op
from tilewright.ir.passes import PassContext
from tilewright.lowering.emit import (
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
    vector,
    zero,
)
from tilewright.lowering.guard import guarded
from tilewright.lowering.simt.hardware import Atomic, CachePolicy, PlainHardware
from tilewright.lowering.simt.kernel import Kernel
from tilewright.lowering.simt.shared_memory import ALIGN
from tilewright.lowering.simt.team import Team
from tilewright.lowering.types import memory_type
from tilewright.runtime.devices.cpu import LoadedCode
from tilewright.targets.cpu.host import host_machine
from tilewright.targets.cpu.repairs import with_opaque_extrema

MAX_THREADS = 512
CONTEXT_BYTES = 8192  # of a ucontext_t, with room to spare
STACK_BYTES = 1 << 20  # of which a thread touches what it needs
MAX_PRINTED = 4096  # lines that a launch may print
GUARD = 256  # bytes around shared memory that must not be written

# What a thread does: it has ended, waits for its program, or for its warp.
ENDED, AT_BARRIER, AT_SHUFFLE = 0, 1, 2
AT_TEAM_BARRIER = 16  # and the barrier's number


class EmulationError(AssertionError):
    """A kernel did what hardware forbids."""


class _Words:
    """Memory that kernels and the scheduler share, at addresses that never change."""

    def __init__(self) -> None:
        self.thread = np.zeros(1, np.int32)
        self.program = np.zeros(3, np.int32)
        self.grid = np.ones(3, np.int32)
        self.faults = np.zeros(1, np.int32)
        self.clock = np.zeros(1, np.int64)
        self.state = np.zeros(MAX_THREADS, np.int32)
        # Of two words a thread writes one and then the other: when it writes the first again, all
        # have passed the wait for the second, and so have read the first.
        self.turn = np.zeros(MAX_THREADS, np.int32)
        self.words = np.zeros((MAX_THREADS, 2), np.int32)
        self.args = np.zeros(256, np.uint64)
        # What threads print: a row each, of a number of a form and the values.
        self.printed = np.zeros((MAX_PRINTED, 12), np.uint64)
        self.printed_count = np.zeros(1, np.int64)
        self.scheduler = np.zeros(CONTEXT_BYTES, np.uint8)
        self.contexts = np.zeros((MAX_THREADS, CONTEXT_BYTES), np.uint8)
        self.stacks = np.frombuffer(mmap.mmap(-1, MAX_THREADS * STACK_BYTES), np.uint8)
        self.stacks = self.stacks.reshape(MAX_THREADS, STACK_BYTES)
        # NumPy takes microseconds to find an address.
        arrays = [a for a in vars(self).values() if isinstance(a, np.ndarray)]
        self.places = {id(a): V(f"inttoptr (i64 {a.ctypes.data} to ptr)", PTR) for a in arrays}
        self.scheduler_address, start = self.scheduler.ctypes.data, self.contexts.ctypes.data
        self.context_addresses = [start + i * CONTEXT_BYTES for i in range(MAX_THREADS)]


_words = cache(_Words)


def _at(array: np.ndarray[Any, Any]) -> V:
    """The place of an array of `_words`."""
    return _words().places[id(array)]


_RUNTIME = """
declare i32 @swapcontext(ptr, ptr)

define void @wait(i32 %state) {{
  %thread = load i32, ptr inttoptr (i64 {thread} to ptr)
  %place = getelementptr i32, ptr inttoptr (i64 {state} to ptr), i32 %thread
  store i32 %state, ptr %place
  %own = getelementptr [{context_bytes} x i8], ptr inttoptr (i64 {contexts} to ptr), i32 %thread
  call i32 @swapcontext(ptr %own, ptr inttoptr (i64 {scheduler} to ptr))
  ret void
}}

define i32 @exchange(i32 %word, i32 %partner) {{
  %thread = load i32, ptr inttoptr (i64 {thread} to ptr)
  %turns = getelementptr i32, ptr inttoptr (i64 {turn} to ptr), i32 %thread
  %turn = load i32, ptr %turns
  %next = xor i32 %turn, 1
  store i32 %next, ptr %turns
  %mine = getelementptr [2 x i32], ptr inttoptr (i64 {words} to ptr), i32 %thread, i32 %turn
  store i32 %word, ptr %mine
  call void @wait(i32 2)
  %theirs = getelementptr [2 x i32], ptr inttoptr (i64 {words} to ptr), i32 %partner, i32 %turn
  %got = load i32, ptr %theirs
  ret i32 %got
}}
"""


class _Runtime:
    """The native functions that emulated instructions call."""

    def __init__(self) -> None:
        words = _words()
        names = ("thread", "state", "turn", "words", "contexts", "scheduler")
        addresses = {name: getattr(words, name).ctypes.data for name in names}
        text = _RUNTIME.format(context_bytes=CONTEXT_BYTES, **addresses)
        self.code = LoadedCode(_object_code(text), ["wait", "exchange"])
        library = ctypes.PyDLL(None)
        self.getcontext, self.makecontext = library.getcontext, library.makecontext
        self.swapcontext = library.swapcontext
        self.getcontext.argtypes = [ctypes.c_void_p]
        self.makecontext.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int]
        self.swapcontext.argtypes = [ctypes.c_void_p, ctypes.c_void_p]


_runtime = cache(_Runtime)


@cache
def _machine() -> llvm.TargetMachine:
    """Code generation for this processor, quick rather than good.

    Without AVX-512: unoptimised, LLVM 22 cannot select an fp16 that a comparison's bit becomes.
    """
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    llvm.initialize_native_asmparser()  # for inline assembly
    host = host_machine()
    if "avx512f" in host.features:
        older = (f for f in host.features if not f.startswith("avx512"))
        host = host_machine("x86-64", ",".join(older))
    target = llvm.Target.from_triple(host.triple)
    return target.create_target_machine(
        cpu=host.cpu, features=host.feature_text, opt=0, reloc="pic", jit=True
    )


@lru_cache(32)
def _object_code(text: str) -> bytes:
    """Code for this processor. Nothing optimises it: that takes ten times as long as running it.

    Cached for tests that run a kernel on several arguments.
    """
    machine = _machine()
    module = llvm.parse_assembly(with_opaque_extrema(text), llvm.create_context())
    module.triple = machine.triple
    module.data_layout = str(machine.target_data)
    module.verify()
    return machine.emit_object(module)


class EmulatedHardware(PlainHardware):
    """`Hardware` of which a warp may have any number of lanes that is a power of two."""

    def __init__(self, lanes: int, name: str = EMULATOR) -> None:
        self.name = name
        self.lanes = lanes
        self.shared_space = 0
        self.sizes_shared = False
        self.rounds_to_bf16 = False
        self.forms: list[tuple[str, list[LType]]] = []
        self.pairs: tuple[type[Op], ...] = ()  # of which an instruction computes two elements
        self.teams: dict[int, slice] = {}  # threads that wait at a barrier that is not for all

    def packed(self, op: Op) -> int:
        return 2 if isinstance(op, self.pairs) else 1

    @property
    def loads_matrices(self) -> bool:
        return self.lanes == 32

    @property
    def stores_matrices(self) -> bool:
        return self.lanes == 32

    def thread(self, b: Builder) -> V:
        return b.load(I32, _at(_words().thread))

    def program_id(self, b: Builder, axis: int) -> V:
        return b.load(I32, b.gep(I32, _at(_words().program), axis))

    def num_programs(self, b: Builder, axis: int) -> V:
        return b.load(I32, b.gep(I32, _at(_words().grid), axis))

    def own_shared(self, b: Builder, block: V, bytes: int) -> V:
        return block

    def barrier(self, b: Builder, team: Team) -> None:
        if not team.whole:
            first = team.first * team.lanes
            self.teams[team.barrier] = slice(first, first + team.threads)
        state = AT_BARRIER if team.whole else AT_TEAM_BARRIER + team.barrier
        self._call(b, "wait", VOID, [const(I32, state)])

    def sync_warp(self, b: Builder) -> None:
        self._call(b, "wait", VOID, [const(I32, AT_SHUFFLE)])

    def take_registers(self, b: Builder, count: int) -> None:
        """All threads have all registers."""

    def release_registers(self, b: Builder, count: int) -> None:
        """All threads have all registers."""

    def elect(self, b: Builder) -> V:
        lane = b.and_(self.thread(b), self.lanes - 1)
        return b.icmp("eq", lane, 0)

    def publish(self, b: Builder) -> None:
        """Writes are seen at once."""

    def wait_launches(self, b: Builder) -> None:
        """Launches follow each other."""

    def start_dependents(self, b: Builder) -> None:
        """Launches follow each other."""

    def copy_async(self, b: Builder, dst: V, src: V, bytes: int, mask: V | None) -> None:
        """Copied at once: there is nothing to wait for."""
        self._check_aligned(b, dst, bytes)
        words = self.load(b, src, bytes // 4, 32, mask, None, CachePolicy())
        for i, word in enumerate(words):
            b.store(word, b.gep(I32, dst, i))

    def commit_copies(self, b: Builder) -> None:
        """All copies are complete."""

    def wait_copies(self, b: Builder, pending: int) -> None:
        """All copies are complete."""

    def load_matrices(self, b: Builder, row: V, count: int, transposed: bool) -> list[V]:
        """Each lane reads the addresses of its rows from the lanes that hold them."""
        self._check_aligned(b, row, 16)
        lane = b.and_(self.thread(b), self.lanes - 1)
        group, place = b.lshr(lane, 2), b.and_(lane, 3)
        found: list[V] = []
        for matrix in range(count):
            if not transposed:
                at = self._address(b, row, b.add(group, 8 * matrix))
                found.append(b.load(I32, b.gep(I32, at, place), align=4))
                continue
            first = b.add(b.mul(place, const(I32, 2)), const(I32, 8 * matrix))
            rows = [self._address(b, row, b.add(first, const(I32, i))) for i in (0, 1)]
            low, high = (b.zext(b.load(I16, b.gep(I16, at, group)), I32) for at in rows)
            found.append(b.or_(low, b.shl(high, const(I32, 16))))
        return found

    def store_matrices(self, b: Builder, row: V, words: Sequence[V], transposed: bool) -> None:
        """Each lane reads the addresses of its rows from the lanes that hold them."""
        self._check_aligned(b, row, 16)
        lane = b.and_(self.thread(b), self.lanes - 1)
        group, place = b.lshr(lane, 2), b.and_(lane, 3)
        for matrix, word in enumerate(words):
            if not transposed:
                at = self._address(b, row, b.add(group, 8 * matrix))
                b.store(word, b.gep(I32, at, place), align=4)
                continue
            first = b.add(b.mul(place, const(I32, 2)), const(I32, 8 * matrix))
            for i in (0, 1):
                at = self._address(b, row, b.add(first, const(I32, i)))
                half = b.trunc(b.lshr(word, const(I32, 16 * i)), I16)
                b.store(half, b.gep(I16, at, group))

    def _address(self, b: Builder, mine: V, lane: V) -> V:
        """The address that another lane has."""
        whole = b.ptrtoint(mine)
        halves = [b.trunc(whole, I32), b.trunc(b.lshr(whole, const(I64, 32)), I32)]
        low, high = (b.zext(self.shuffle(b, half, lane), I64) for half in halves)
        return b.inttoptr(b.or_(low, b.shl(high, const(I64, 32))))

    def shuffle(self, b: Builder, word: V, lane: V) -> V:
        self._fault_unless(b, b.icmp("ult", lane, const(I32, self.lanes)))
        first = b.and_(self.thread(b), -self.lanes)
        return self._call(b, "exchange", I32, [word, b.or_(first, lane)])

    def shuffle_xor(self, b: Builder, word: V, mask: int) -> V:
        assert mask < self.lanes
        return self._call(b, "exchange", I32, [word, b.xor(self.thread(b), mask)])

    def _call(self, b: Builder, name: str, ret: LType, args: list[V]) -> V:
        return b.call(V(f"inttoptr (i64 {_runtime().code[name]} to ptr)", PTR), ret, args)

    def _fault_unless(self, b: Builder, holds: V) -> None:
        faults = _at(_words().faults)
        b.store(b.or_(b.load(I32, faults), b.zext(b.not_(holds), I32)), faults)

    def cast(self, b: Builder, x: V, source: str, to: str) -> V | None:
        return None

    # -- memory ---------------------------------------------------------------------------------

    def _check_aligned(self, b: Builder, ptr: V, size: int) -> None:
        low = b.and_(b.ptrtoint(ptr), const(I64, size - 1))
        self._fault_unless(b, b.icmp("eq", low, const(I64, 0)))

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
        kind = vector(word, words)
        before = [*other] if other else [zero(word)] * words
        entered, inside, after = b.current, b.block("load"), b.block("loaded")
        b.cond_br(mask if mask is not None else const(int_type(1), 1), inside, after)
        b.at(inside)
        self._check_aligned(b, ptr, words * word_bits // 8)
        row = b.load(kind, ptr, align=1)
        got = [b.extract(row, i) for i in range(words)]
        b.br(after)
        b.at(after)
        found: list[V] = []
        for value, old in zip(got, before, strict=True):
            phi = b.phi(word)
            phi.add(value, inside)
            phi.add(old, entered)
            found.append(phi.value)
        return found

    def store(
        self, b: Builder, ptr: V, words: Sequence[V], mask: V | None, policy: CachePolicy
    ) -> None:
        inside, after = b.block("store"), b.block("stored")
        b.cond_br(mask if mask is not None else const(int_type(1), 1), inside, after)
        b.at(inside)
        self._check_aligned(b, ptr, len(words) * words[0].type.bits // 8)
        for i, word in enumerate(words):
            b.store(word, b.gep(word.type, ptr, i), align=1)
        b.br(after)
        b.at(after)

    def store_shared(self, b: Builder, ptr: V, words: Sequence[V], mask: V) -> None:
        self.store(b, ptr, words, mask, CachePolicy())

    def atomic_length(self, what: Atomic) -> int:
        """As a GPU has them: integers of 32 and 64 bits, and additions of floats of that size,
        some at a time."""
        if what.element.primitive_bitwidth < 32 or what.kind == "xchg":
            return 0
        if not what.element.is_floating():
            return 1
        return 128 // what.element.primitive_bitwidth if what.kind == "add" else 0

    def atomic(
        self, b: Builder, what: Atomic, ptr: V, values: Sequence[V], mask: V | None
    ) -> Sequence[V]:
        kind, element = what.kind, what.element
        if element.is_floating():
            kind = "fadd"
        elif kind in ("min", "max") and not element.is_int_signed():
            kind = f"u{kind}"
        found: list[V] = []
        for i, value in enumerate(values):
            place = b.gep(value.type, ptr, i)

            def act(place: V = place, value: V = value) -> V:
                return b.atomicrmw(kind, place, value, "seq_cst")

            found.append(guarded(b, mask, act, zero(value.type)))
        return found

    def load_atomic(self, b: Builder, ptr: V, bits: LType, order: str, scope: str) -> V:
        return b.load_atomic(bits, ptr, "seq_cst")

    def store_atomic(self, b: Builder, ptr: V, value: V, order: str, scope: str) -> None:
        b.store_atomic(value, ptr, "seq_cst")

    def nanoseconds(self, b: Builder) -> V:
        """Ticks: each look at the clock is one."""
        at = _at(_words().clock)
        b.store(b.add(b.load(I64, at), const(I64, 1)), at)
        return b.load(I64, at)

    def sync_scope(self, scope: str) -> str:
        return ""

    # -- what threads report --------------------------------------------------------------------

    def printf(self, b: Builder, form: str, values: Sequence[V]) -> None:
        count = b.load(I64, _at(_words().printed_count))
        row = b.gep(array(I64, 12), _at(_words().printed), b.and_(count, MAX_PRINTED - 1))
        b.store(const(I64, len(self.forms)), row)
        for i, value in enumerate(values):
            b.store(value, b.gep(I64, row, i + 1))
        b.store(b.add(count, 1), _at(_words().printed_count))
        self.forms.append((form, [v.type for v in values]))

    def fail(self, b: Builder, message: str, file: str, line: int, function: str) -> None:
        """Record it and continue: others may wait for this thread."""
        self.printf(b, f"{file}:{line}: {function}: {message} (%d)\n", [self.thread(b)])

    def printed(self) -> list[str]:
        """What threads have printed since the last call, in order."""
        words = _words()
        count = int(words.printed_count[0])
        assert count <= MAX_PRINTED, f"{count} lines were printed, only {MAX_PRINTED} are kept"
        words.printed_count[0] = 0
        found: list[str] = []
        for row in words.printed[:count]:
            form, types = self.forms[int(row[0])]
            specs = re.findall(r"%(?:%|[0-9]*(?:ll)?([dufx]))", form)
            kinds = [spec for spec in specs if spec]
            values = [_number(*v) for v in zip(row[1:], types, kinds, strict=False)]
            found.append(re.sub(r"(%[0-9]*)ll", r"\1", form) % tuple(values))
        return found


def _number(word: np.uint64, type: LType, kind: str) -> int | float:
    """The value of a word of which a thread has written the bits of a type, as C would read it."""
    if kind == "f":
        return float(np.array(word).view(np.float64))
    return int(np.array([word]).view(f"{'i' if kind == 'd' else 'u'}{type.bits // 8}")[0])


# -- running --------------------------------------------------------------------------------------


class EmulatedCode:
    """The code of a kernel, loaded.

    Args:
        text: LLVM IR with one definition of the kernel, which this process has generated.
        name: the kernel's symbol.
        types: LLVM types of its parameters, as text.
        threads, lanes: of a program, and of a warp.
        shared_bytes: shared memory of a program.
        teams: threads that wait at a barrier that is not for all, by its number.
    """

    def __init__(
        self,
        text: str,
        name: str,
        types: Sequence[str],
        *,
        threads: int,
        lanes: int,
        shared_bytes: int,
        teams: Mapping[int, slice] | None = None,
    ) -> None:
        assert threads <= MAX_THREADS
        self.threads, self.lanes, self.size = threads, lanes, shared_bytes
        self.teams = teams or {}
        self.text = text
        self.stacks = _words().stacks.ctypes.data
        self.shared = np.empty(shared_bytes + 2 * GUARD + ALIGN, np.uint8)
        start = self.shared.ctypes.data
        self.first = -(-(start + GUARD) // ALIGN) * ALIGN - start
        imports = {"shared": self.shared.ctypes.data + self.first} if shared_bytes else {}
        code = _object_code(text + _start(name, types))
        self.code = LoadedCode(code, ["start"], imports)

    def launch(self, grid: tuple[int, int, int], args: Sequence[Any], seed: int = 0) -> None:
        """Run all programs; EmulationError where one does what hardware forbids."""
        words = _words()
        for i, value in enumerate(args):
            raw = _bytes_of(value)
            words.args[i : i + 1].view(np.uint8)[: len(raw)] = np.frombuffer(raw, np.uint8)
        words.grid[:] = grid
        rng = np.random.default_rng(seed)
        for z, y, x in np.ndindex(grid[::-1]):
            words.program[:] = x, y, z
            self._program(rng)

    def _program(self, rng: np.random.Generator) -> None:
        words, runtime = _words(), _runtime()
        words.faults[0] = 0
        words.turn[:] = 0
        self.shared[:] = rng.integers(0, 256, len(self.shared), np.uint8)
        before = self.shared.copy()
        for thread in range(self.threads):
            self._prepare(thread)
        ready = np.arange(self.threads)
        while len(ready):
            for thread in rng.permutation(ready).tolist():
                words.thread[0] = thread
                runtime.swapcontext(words.scheduler_address, words.context_addresses[thread])
            ready = self._released()
        if words.stacks[: self.threads, :GUARD].any():
            raise EmulationError("a thread's stack is full; STACK_BYTES must grow")
        end = self.first + self.size
        outside = np.r_[0 : self.first, end : len(self.shared)]
        if (before[outside] != self.shared[outside]).any():
            raise EmulationError("a thread wrote beside the shared memory")
        if words.faults[0]:
            raise EmulationError("a misaligned access, or a shuffle from a lane that is not there")

    def _prepare(self, thread: int) -> None:
        """A context that starts at the beginning of the kernel, and returns to the scheduler.

        The fields that are set are the same for all Linux: flags, the next context, then the
        address, flags and size of the stack.
        """
        words, runtime = _words(), _runtime()
        context = words.context_addresses[thread]
        runtime.getcontext(context)
        fields = ctypes.cast(context, ctypes.POINTER(ctypes.c_uint64))
        fields[1] = words.scheduler_address
        fields[2] = self.stacks + thread * STACK_BYTES
        fields[4] = STACK_BYTES
        runtime.makecontext(context, self.code["start"], 0)

    def _released(self) -> np.ndarray[Any, Any]:
        """The threads whose wait is over; EmulationError if none is."""
        state = _words().state[: self.threads]
        if (state == AT_BARRIER).all():
            return np.arange(self.threads)
        by_warp = state.reshape(-1, self.lanes)
        together = (by_warp == AT_SHUFFLE).all(axis=1)
        released = np.repeat(together, self.lanes)
        for barrier, threads in self.teams.items():
            released[threads] |= (state[threads] == AT_TEAM_BARRIER + barrier).all()
        ready = np.flatnonzero(released)
        if not len(ready) and (state != ENDED).any():
            names = {ENDED: "ended", AT_BARRIER: "at a barrier", AT_SHUFFLE: "at a shuffle"}
            who = {name: np.flatnonzero(state == s).tolist() for s, name in names.items()}
            raise EmulationError(f"threads wait in vain: {who}")
        return ready


class Emulated(EmulatedCode):
    """A compiled kernel.

    Args:
        module: tile IR with layouts.
        hw: its hardware.
        warps: warps of a program.
        ctx: what is known of the machine.
    """

    def __init__(
        self, module: Module, hw: EmulatedHardware, warps: int, ctx: PassContext | None = None
    ) -> None:
        self.hw = hw
        kernel = Kernel(module.entry, hw, warps, ctx=ctx)
        super().__init__(
            kernel.emit(),
            module.entry.name,
            [memory_type(a.type).text for a in module.entry.args],
            threads=warps * hw.lanes,
            lanes=hw.lanes,
            shared_bytes=kernel.shared.bytes,
            teams=hw.teams,
        )


def _start(name: str, types: Sequence[str]) -> str:
    """What a fiber runs, as text: the kernel with the arguments out of their slots."""
    words = _words()
    places = [words.args.ctypes.data + 8 * i for i in range(len(types))]
    loads = [
        f"  %a{i} = load {t}, ptr inttoptr (i64 {place} to ptr)"
        for i, (t, place) in enumerate(zip(types, places, strict=True))
    ]
    params = ", ".join(f"{t} %a{i}" for i, t in enumerate(types))
    lines = [
        *("", "define void @start() {", *loads, f"  call void @{name}({params})"),
        f"  %thread = load i32, ptr inttoptr (i64 {words.thread.ctypes.data} to ptr)",
        f"  %state = getelementptr i32, ptr inttoptr (i64 {words.state.ctypes.data} to ptr), "
        "i32 %thread",
        *(f"  store i32 {ENDED}, ptr %state", "  ret void", "}", ""),
    ]
    return "\n".join(lines)


def _bytes_of(value: Any) -> bytes:
    if isinstance(value, np.ndarray) and value.ndim:
        return value.ctypes.data.to_bytes(8, "little")
    return np.asarray(value).tobytes()
