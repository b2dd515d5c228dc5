"""The state of emitting one kernel, the walk over its ops, and the registry of emitters.

Input: a verified function with layouts. Output: an LLVM module as text, with one function for one
thread. Each op is emitted by the emitter registered for its class (`emits`), or, if elementwise, by
its lowering (`lowering.registry`), once for each distinct register.

Invariants: `env` holds `register_count(value)` registers for every value emitted so far. The entry
block stays open until the end, and holds what depends only on the thread (`at_entry`). Emission is
linear in the number of registers of all values.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Generator, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from tilewright.analysis.axis_info import AxisMap, axis_info
from tilewright.ir import types as ir
from tilewright.ir.core import Function, Op, Region, Value
from tilewright.ir.machine import ACCESS_BYTES
from tilewright.ir.passes import PassContext
from tilewright.layout.linear import LANE, REGISTER, WARP, LinearLayout
from tilewright.lowering.emit import (
    I32,
    PTR,
    VOID,
    Builder,
    LType,
    Module,
    V,
    const,
    poison,
    vector,
)
from tilewright.lowering.lines import Lines
from tilewright.lowering.registry import ALL, TargetTable, lowering_of
from tilewright.lowering.simt.buffer_vectors import bits_of_copies
from tilewright.lowering.simt.equal_registers import EqualRegisters
from tilewright.lowering.simt.hardware import Hardware
from tilewright.lowering.simt.notes import CarriedRegisters
from tilewright.lowering.simt.quotients import divide_runs, length_of_runs
from tilewright.lowering.simt.shared_memory import SharedMemory
from tilewright.lowering.simt.team import Team, make_team
from tilewright.lowering.simt.unread_registers import Access, unread_bits
from tilewright.lowering.types import memory_type, number_of, register_type
from tilewright.ops import arith
from tilewright.ops.gpu import CopyAsync
from tilewright.ops.memory import AddPtr, pointee_of

Registers = list[V]
Emitter = Callable[["Kernel", Any], None]
EMITTERS: TargetTable[Emitter] = TargetTable("emitters for GPUs")


def emits(*classes: type[Op], target: str = ALL) -> Callable[[Emitter], Emitter]:
    """Register the emitter of op classes, for one target or (default) for all of them.

        @emits(shape.Join)
        def emit_join(kernel: Kernel, op: shape.Join) -> None: ...

    An emitter reads operands from `kernel.env`, and binds the results with `kernel.bind`.
    """
    return EMITTERS.of(*classes, target=target)


class Provided(NamedTuple):
    """Data that a launch passes to the kernel after its arguments, by address.

    Attributes:
        what: describes it to the launch; equal ones are one parameter.
        attributes: of the parameter, in LLVM's words.
        last: whether the parameter follows all others.
    """

    what: Hashable
    attributes: str
    last: bool = False


PROVIDED: dict[type[Op], Callable[[Any], Provided]] = {}
"""What the launch provides for an op of a class."""


def _provided(fn: Function) -> list[Provided]:
    """The data that the launch provides for a function, each once."""
    found = [PROVIDED[type(op)](op) for op in fn.walk() if type(op) in PROVIDED]
    return sorted(dict.fromkeys(found), key=lambda provided: provided.last)


def emitter_of(cls: type[Op], target: str) -> Emitter | None:
    """The emitter of the target, or else the common one, or else None."""
    return EMITTERS.find(cls, target)


class Kernel:
    """One kernel while it is emitted.

    Attributes:
        fn: its function, with layouts.
        ctx: receives remarks.
        hw: the GPU's instructions.
        b: the builder of the function's code.
        env: the registers of each tile; a list of one for a scalar.
        streams: of tiles that one store takes, and that are computed with it: the registers, part
            by part.
        access_bytes: the most bytes of an access of global memory.
        infos: axis information of the function.
        shared: the allocation of shared memory, and the ops that require a barrier.
        team: the warps that execute the code emitted now; all of the program's, outside of roles.
        provided: the addresses of further parameters that the launch provides, in their order.
        notes: what emitters state about the code for the vendor's code generation; see `notes.py`.
    """

    def __init__(
        self,
        fn: Function,
        hw: Hardware,
        warps: int,
        *,
        attributes: str = "",
        calling: str = "",
        fast_flags: str = "",
        lines: bool = False,
        ctx: PassContext | None = None,
    ) -> None:
        self.fn = fn
        self.ctx = ctx or PassContext()
        self.hw = hw
        self.env: dict[Value, Registers] = {}
        self.streams: dict[Value, Callable[[], Iterator[Mapping[int, V]]]] = {}
        self.infos: AxisMap = axis_info(fn)
        self._equal = EqualRegisters(fn, self.infos)
        machine = self.ctx.machine
        self.access_bytes = machine.access_bytes if machine else ACCESS_BYTES
        self._unread = unread_bits(fn, self._unread_by, self._is_by_register)
        self.shared = SharedMemory(fn, machine.shared_bytes if machine else 0)
        self.module = Module(fn.name, hw.constant_space)
        provided = _provided(fn)
        params = [(self._param_type(a.type), "") for a in fn.args]
        params += [(PTR, p.attributes) for p in provided]
        self.function = self.module.function(
            fn.name, VOID, params, attributes=attributes, linkage=calling
        )
        self.b = Builder(self.function, fast_flags=fast_flags, rounds_to_bf16=hw.rounds_to_bf16)
        self.b.own_cast = hw.cast
        self.b.float_fence = hw.float_fence
        self.lines: Lines | None = None
        if lines and fn.loc is not None:
            self.lines = Lines(self.module, self.function, fn.loc)
            self.b.location = self.lines.of(fn.loc)
        self.entry = self.b.current
        self.team = make_team(self.b, hw.thread(self.b), hw.lanes, warps)
        self.shared.declare(self.module, hw.shared_space, hw.sizes_shared)
        if self.shared.base is not None:
            self.shared.base = hw.own_shared(self.b, self.shared.base, self.shared.bytes)
        more = self.function.params[len(fn.args) :]
        self.provided: dict[Provided, V] = dict(zip(provided, more, strict=True))
        self.notes: set[Hashable] = set()

    @staticmethod
    def _param_type(type: ir.Type) -> LType:
        return PTR if ir.is_pointer(type) else memory_type(type)

    # -- the walk -------------------------------------------------------------------------------

    def emit(self) -> str:
        """Emit the function, and return the module as text."""
        body = self.b.block("body")
        for arg, param in zip(self.fn.args, self.function.params, strict=False):
            self.env[arg] = [self._argument(arg, param)]
        self.b.at(body)
        self.region(self.fn.body)
        self.b.ret()
        self.b.at(self.entry)
        self.b.br(body)
        return self.module.text()

    def _argument(self, arg: Value, param: V) -> V:
        kind = register_type(arg.type)
        return self.b.icmp("ne", param, 0) if kind.bits == 1 else param

    def region(self, region: Region) -> None:
        """Emit the ops of a region except its terminator, which is up to the parent's emitter."""
        for op in region:
            if not op.terminator:
                self.op(op)

    def op(self, op: Op) -> None:
        if self.lines is not None:
            self.b.location = self.lines.of(op.loc)
        if op in self.shared.barriers:
            self.barrier()
        emitter = emitter_of(type(op), self.hw.name)
        if emitter is not None:
            emitter(self, op)
        elif op.elementwise:
            self.env[op.results[0]] = self.elementwise(op, [self.env[v] for v in op.operands])
        else:
            raise NotImplementedError(f"{op.name} can't be compiled for {self.hw.name} yet")

    def elementwise(self, op: Op, operands: Sequence[Registers]) -> Registers:
        """Registers of the result: one computation for each distinct tuple of operands."""
        lower = lowering_of(type(op), self.hw.name)
        if lower is None:
            raise NotImplementedError(f"{op.name} can't be compiled for {self.hw.name} yet")
        result = op.results[0]
        count = register_count(result)
        if not operands:
            return [lower(self.b, op)] * count
        read = self.read_registers(result)
        equal = self._equal.of(result) or range(count)
        first: dict[int, int] = {}
        for register in read:
            first.setdefault(equal[register], register)
        chosen = list(first.values())
        columns = [[o[r] for r in chosen] for o in operands]
        packed = self.hw.packed(op)
        length = length_of_runs(op, self.infos, self._equal)

        places = isinstance(op, arith.Add) and self._equal.is_place(result)
        add = constants_last(self.b) if places and share_sums(*columns) else None

        def make(*values: V) -> V:
            return add(*values) if add is not None else lower(self.b, op, *values)

        if length > 1:
            made = divide_runs(
                self.b, op, functools.partial(each_once, make), chosen, columns, length
            )
        elif packed > 1:
            made = packs_once(self.b, make, columns, packed)
        else:
            made = each_once(make, columns)
        at = dict(zip(first, made, strict=True))
        return with_unread({r: at[equal[r]] for r in read}, count)

    def access_length(self, ptr: Value, mask: Value | None) -> int:
        """The number of successive registers that one access of global memory may move: a power of
        two, 1 at least."""
        if ptr.layout is None:
            return 1
        axis = self.infos[ptr].order[0]
        size = pointee_of(ptr.type).nbytes_in_memory
        length = self.infos.access_length(ptr, mask, axis, size)
        return min(ptr.layout.num_consecutive((axis,)), length, self.access_bytes // size)

    def access_starts(self, ptr: Value, length: int) -> Sequence[int]:
        """The first register of each access, without registers that hold copies."""
        copies = ptr.layout.free_variables(REGISTER) if ptr.layout is not None else 0
        return [r for r in range(0, register_count(ptr), length) if not r & copies]

    def _unread_by(self, op: Access) -> int:
        """See `unread_bits`."""
        if isinstance(op, CopyAsync):
            return sum(1 << bit for bit in bits_of_copies(op, self.infos))
        return self.access_length(op.ptr, op.mask) - 1

    def _is_by_register(self, op: Op) -> bool:
        """Whether an op is emitted for each register that is read of its result, by itself."""
        own = emitter_of(type(op), self.hw.name) is not None
        return isinstance(op, AddPtr) or (op.elementwise and not own)

    def read_registers(self, value: Value) -> list[int]:
        """The registers of a value that are read."""
        unread = self.unread_bits(value)
        return [r for r in range(register_count(value)) if not r & unread]

    def unread_bits(self, value: Value) -> int:
        """A register of the value is not read if its number has one of these bits."""
        return self._unread.get(value, 0)

    # -- values ---------------------------------------------------------------------------------

    def scalar(self, value: Value) -> V:
        """The only register of a scalar."""
        (result,) = self.env[value]
        return result

    def parts(self, value: Value) -> Iterator[Mapping[int, V]]:
        """The registers of a tile, by number; those of a stream are emitted part by part."""
        stream = self.streams.pop(value, None)
        if stream is None:
            yield dict(enumerate(self.env[value]))
        else:
            yield from stream()

    def bind(self, op: Op, *results: Registers) -> None:
        """Set the registers of the op's results."""
        for value, registers in zip(op.results, results, strict=True):
            assert len(registers) == register_count(value), f"{op.name}: {len(registers)}"
            self.env[value] = registers

    def carry(self, values: Sequence[Value]) -> None:
        """Note the values that a loop carries."""
        words = (-(-memory_type(ir.element_of(v.type)).bits // 32) for v in values)
        registers = sum(register_count(v) * n for v, n in zip(values, words, strict=True))
        self.notes.add(CarriedRegisters(registers))

    def constant(self, type: ir.Type, number: Any) -> V:
        element = ir.element_of(type)
        if isinstance(element, ir.Pointer):
            return V(f"inttoptr (i64 {number} to ptr)", PTR)
        return const(register_type(element), number_of(element, number))

    # -- threads --------------------------------------------------------------------------------

    @property
    def warps(self) -> int:
        """Warps of the team."""
        return self.team.warps

    @property
    def thread(self) -> V:
        """Index of the running thread in its team."""
        return self.team.thread

    @property
    def lane(self) -> V:
        """Index of the running thread in its warp."""
        return self.team.lane

    @property
    def warp(self) -> V:
        """Index of the running thread's warp in its team."""
        return self.team.warp

    def barrier(self) -> None:
        """Wait for all threads of the team, and make their writes visible."""
        self.hw.barrier(self.b, self.team)

    def part(self, first: int, warps: int, barrier: int) -> Team:
        """A team of some of the program's warps, with its own barrier, which is not 0."""
        assert barrier > 0, "barrier 0 is the program's"
        saved = self.b.current
        self.b.at(self.entry)
        result = make_team(self.b, self.hw.thread(self.b), self.hw.lanes, warps, first, barrier)
        self.b.at(saved)
        return result

    @contextmanager
    def as_team(self, team: Team) -> Generator[None]:
        """A context in which only this team runs the emitted code; no other thread may reach it."""
        before, self.team = self.team, team
        yield
        self.team = before

    # -- places ---------------------------------------------------------------------------------

    def at_entry(self, make: Callable[[Builder], V]) -> V:
        """Emit into the entry block, whose values dominate the whole function."""
        saved = self.b.current
        self.b.at(self.entry)
        result = make(self.b)
        self.b.at(saved)
        return result

    @contextmanager
    def only_if(self, condition: V | None) -> Generator[None]:
        """Code emitted within executes only in threads where the condition holds; all if None."""
        if condition is None:
            yield
            return
        inside, after = self.b.block("if"), self.b.block("endif")
        self.b.cond_br(condition, inside, after)
        self.b.at(inside)
        yield
        self.b.br(after)
        self.b.at(after)

    def once(self, key: Hashable, make: Callable[[Builder], V]) -> V:
        """A value that depends only on lane and warp, emitted once for a key."""
        return self.team.once(key, make, self.at_entry)

    def index(self, layout: LinearLayout, out_name: str) -> V:
        """The contribution of lane and warp to a coordinate; emitted once for a layout."""
        return self.team.index(layout, out_name, self.at_entry)

    def coordinates(self, layout: LinearLayout, out_name: str, unread: int = 0) -> Registers:
        """The coordinate `out_name` (i32) of each register's element; not of `unread` ones."""
        base = self.index(layout, out_name)
        moved = layout.named(layout.moved_by(LANE, WARP))[out_name]
        starts, cache = {0: base}, dict[int, V]()
        found: dict[int, V] = {}
        for register in range(layout.in_size(REGISTER)):
            if register & unread:
                continue
            offset = layout.apply({REGISTER: register})[out_name]
            if offset not in cache:
                # Without common bits, xor equals addition, which folds into addresses.
                common = moved & offset
                if common not in starts:
                    starts[common] = self.b.xor(base, const(I32, common))
                cache[offset] = self.b.add(starts[common], const(I32, offset ^ common))
            found[register] = cache[offset]
        return with_unread(found, layout.in_size(REGISTER))

    def is_first_holder(self, layout: LinearLayout) -> V | None:
        """Predicate: no lower lane or warp holds this thread's elements; None if always true."""
        return self.all_clear(layout.free_variables(LANE), layout.free_variables(WARP))

    def all_clear(self, lanes: int = 0, warps: int = 0) -> V | None:
        """Predicate: these bits of lane and warp are 0; None if there are none. Emitted once."""
        if not lanes | warps:
            return None

        def make(b: Builder) -> V:
            masked = ((self.lane, lanes), (self.warp, warps))
            clear = [b.icmp("eq", b.and_(index, bits), 0) for index, bits in masked if bits]
            return functools.reduce(b.and_, clear)

        return self.once(("clear", lanes, warps), make)


def with_unread(read: Mapping[int, V], count: int) -> Registers:
    """The registers of a value, those that are not read too: LLVM does not parse their text."""
    unread = V("unread", next(iter(read.values())).type)
    return [read.get(register, unread) for register in range(count)]


def each_once(make: Callable[..., V], operands: Sequence[Sequence[V]]) -> Registers:
    """The result of `make` for each register; called once for each distinct tuple of operands."""
    done: dict[tuple[int, ...], V] = {}
    result: Registers = []
    for values in zip(*operands, strict=True):
        key = tuple(map(id, values))
        if key not in done:
            done[key] = make(*values)
        result.append(done[key])
    return result


def share_sums(left: Sequence[V], right: Sequence[V]) -> bool:
    """Whether there are fewer distinct sums without the constant parts of the operands."""
    pairs = list(zip(left, right, strict=True))
    rests = {tuple(id(v.parts[0] if v.parts else v) for v in pair) for pair in pairs}
    return len(rests) < len({tuple(map(id, pair)) for pair in pairs})


def constants_last(b: Builder) -> Callable[[V, V], V]:
    """Adds integers with their constant parts last, so that registers share the sum of the rest:
    addresses of a thread then differ by constants, which instructions for accesses add. LLVM finds
    these only at the end of a sum."""
    shared: dict[tuple[int, int], V] = {}

    def add(x: V, y: V) -> V:
        (x, m), (y, n) = x.parts or (x, 0), y.parts or (y, 0)
        key = id(x), id(y)
        if key not in shared:
            shared[key] = b.add(x, y)
        return b.add(shared[key], const(x.type, m + n))

    return add


def packs_once(
    b: Builder, make: Callable[..., V], operands: Sequence[Registers], packed: int
) -> Registers:
    """As `each_once`, if `make` takes vectors of `packed` values, on which one instruction
    operates. LLVM eliminates vectors that are split and recombined."""
    keys = [tuple(map(id, values)) for values in zip(*operands, strict=True)]
    tuples = dict(zip(keys, zip(*operands, strict=True), strict=True))
    done: dict[tuple[int, ...], V] = {}
    order = list(tuples)
    for start in range(0, len(order), packed):
        some = order[start : start + packed]
        if len(some) < packed:
            done |= {key: make(*tuples[key]) for key in some}
            continue
        columns = zip(*(tuples[key] for key in some), strict=True)
        found = make(*(packed_vector(b, values) for values in columns))
        done |= {key: b.extract(found, i) for i, key in enumerate(some)}
    return [done[key] for key in keys]


def packed_vector(b: Builder, values: Sequence[V]) -> V:
    """A vector of these values."""
    if all(value is values[0] for value in values):
        return b.splat(values[0], len(values))
    result = poison(vector(values[0].type, len(values)))
    for i, value in enumerate(values):
        result = b.insert(result, value, i)
    return result


def register_count(value: Value) -> int:
    """Number of registers of a thread that hold the value."""
    return value.layout.in_size(REGISTER) if value.layout is not None else 1


@emits(arith.Constant)
def emit_constant(kernel: Kernel, op: arith.Constant) -> None:
    value = kernel.constant(op.type, op.value)
    kernel.bind(op, [value] * register_count(op.result))
