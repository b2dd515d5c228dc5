"""Tapes: memory in which a gradient kernel records the carried values of a loop.

    for t in range(n):                      # the kernel: h depends on the previous iteration
        h = tanh(w * h + x[t])

The gradient kernel reruns the loop, stores `h` at the start of each iteration, and then loads it in
the iterations of the reverse loop. Each program has *slots*, one for each iteration; or, if that
takes too much memory, checkpoints and the slots of one segment between them:

    iterations     0  1  2  3 | 4  5  6  7 | 8  9        n = 10, a checkpoint every 4 iterations
    checkpoints    0            1            2
    slots                                    0  1        the last segment is rerun from
                   0  1  2  3   0  1  2  3               checkpoint 2, then the one before, …

The number of iterations is known at the launch if the loop's bounds are computed from program
indices and integer arguments. Otherwise, as for `while`, the kernel counts them, and determines the
distance of checkpoints accordingly.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from math import isqrt, prod

from tilewright.autodiff.emitter import Emitter
from tilewright.autodiff.errors import long_tape, unknown_loop
from tilewright.autodiff.points import Points, UnknownNumber
from tilewright.base.located import line_of
from tilewright.base.record import record
from tilewright.ir.core import Value
from tilewright.ir.types import I1, I8, I32, I64, DType, Pointer, Type, element_of, shape_of
from tilewright.ops.arith import Add, Cast, Mul
from tilewright.ops.control import For, NumPrograms, ProgramId, While
from tilewright.ops.memory import AddPtr, Load, Store
from tilewright.ops.shape import Arange, Reshape, Splat

NewArg = Callable[[str, str, Type], Value]
CHECKPOINT_HINT = "ad_checkpoint="
WHOLE_SHARE = 2
"""The part of the memory for tapes, one in so many, that a tape with a slot for each iteration may
take. On an H200, the gradient of a selective scan whose state takes 512 MiB in all iterations takes
1.21 ms with such a tape, and 1.51 ms with checkpoints, from which the loop runs once more."""
UNKNOWN_SLOTS = 1 << 10  # checkpoints, if the number of iterations is not known at the launch


@record
class Tape:
    """A buffer for one value that a loop carries.

    Attributes:
        name: of the buffer.
        element: the type of its elements.
        lanes: how many a slot has.
        slots: how many each program has.
        line: that of the loop.
    """

    name: str
    element: DType
    lanes: int
    slots: int
    line: int

    @property
    def bytes(self) -> int:
        """The size for each program."""
        return max(1, self.slots) * self.lanes * _size(self.element)


@record
class Slots:
    """The slots of a loop.

    Attributes:
        checkpoints: how many of them, the first ones, are checkpoints.
        count: of all of them.
        surely: whether they are sure to suffice.
    """

    checkpoints: int
    count: int
    surely: bool = True


class TapePlan:
    """How the loops of a launch are recorded.

    Args:
        points: the numbers of the launch; None if it has too many programs.
        programs: the number of programs.
        most_bytes: of all tapes.
    """

    def __init__(self, points: Points | None, programs: int, most_bytes: int = 1 << 30) -> None:
        self._points = points
        self.programs = max(1, programs)
        self._most = most_bytes
        self.count = 0  # of the loops that are recorded, to name their tapes

    def slots(self, loop: For | While, size: int, whole: int) -> Slots:
        """The slots of a loop.

        Args:
            size: the bytes that it stores for each iteration.
            whole: the bytes of a checkpoint.

        Raises:
            CompilationError: they take too much memory.
        """
        trips, every = self._trips(loop), checkpoint_distance(loop)
        if trips is None:
            most = min(UNKNOWN_SLOTS, self._most // (2 * whole * self.programs))
            if most == 0:
                raise long_tape(loop, trips, whole, self.programs, self._most)
            return Slots(most, 2 * most, surely=False)
        if every == 1 or (every == 0 and trips * size * self.programs <= self._most // WHOLE_SHARE):
            found, size = Slots(0, trips), size
        else:
            every = every or isqrt(max(0, trips - 1)) + 1
            checkpoints = -(-trips // every)
            found, size = Slots(checkpoints, checkpoints + min(every, trips)), whole
        if found.count * size * self.programs > self._most:
            raise long_tape(loop, trips, size, self.programs, self._most)
        return found

    def _trips(self, loop: For | While) -> int | None:
        """The largest number of iterations that a program has of a loop; None if not known."""
        if not isinstance(loop, For) or self._points is None:
            return None
        try:
            points, _ = self._points.inside(loop)
            return points.most_trips(loop)
        except UnknownNumber:
            return None


def checkpoint_distance(loop: For | While) -> int:
    """The distance of checkpoints that `tl.range(…, ad_checkpoint=)` sets; 0 if it does not."""
    for hint in loop.hints if isinstance(loop, For) else ():
        if hint.startswith(CHECKPOINT_HINT):
            return int(hint.removeprefix(CHECKPOINT_HINT))
    return 0


class TapeMemory:
    """Emits accesses of the slots of one loop.

    Args:
        loop: the loop.
        types: of what an iteration starts with.
        needed: the indices of those that are stored for each iteration. Checkpoints have all.
        plan: how large tapes are.
        new_arg: adds an argument of a kind, with a name and a type, to the derived kernel.

    Attributes:
        slots: how many there are.
        tapes: the buffers.
        numbers: arguments that are numbers, by kind and name.
        checkpoints: the number of checkpoints; None if there are none.
        first: the number of the first slot that is no checkpoint.
    """

    def __init__(
        self, loop: For | While, types: Sequence[Type], needed: Collection[int], plan: TapePlan,
        emit: Emitter, new_arg: NewArg,
    ) -> None:  # fmt: skip
        self._emit, self._types, self._needed = emit, types, needed
        elements = [_stored(loop, type) for type in types]
        sizes = [prod(shape_of(t)) * _size(e) for t, e in zip(types, elements, strict=True)]
        self.slots = plan.slots(loop, sum(sizes[i] for i in needed), sum(sizes))
        name = str(plan.count)
        plan.count += 1
        kept = range(len(types)) if self.slots.checkpoints else sorted(needed)
        self._pointers = {i: new_arg("tape", f"{name}.{i}", Pointer(elements[i])) for i in kept}
        self._count = new_arg("slots", name, I32)
        self.numbers = {("slots", name): self.slots.count}
        self.checkpoints: Value | None = None
        if self.slots.checkpoints:
            self.checkpoints = new_arg("checkpoints", name, I32)
            self.numbers["checkpoints", name] = self.slots.checkpoints
        self.first = self.checkpoints or emit.integer(0, I32)
        line = line_of(loop.loc)
        self.tapes = tuple(
            Tape(f"{name}.{i}", elements[i], prod(shape_of(types[i])), self.slots.count, line)
            for i in kept
        )

    def _address(self, index: int, slot: Value) -> Value:
        value, shape = self._emit.builder.value, shape_of(self._types[index])
        place = value(Add(value(Mul(self._program(), self._wide(self._count))), self._wide(slot)))
        row = value(Mul(place, self._emit.integer(prod(shape), I64)))
        address = value(AddPtr(self._pointers[index], row))
        if not shape:
            return address
        offsets = value(Arange(0, prod(shape)))
        if len(shape) > 1:
            offsets = value(Reshape(offsets, shape))
        return value(AddPtr(value(Splat(address, shape)), offsets))

    def _wide(self, number: Value) -> Value:
        if number.type == I64:
            return number
        return self._emit.builder.value(Cast(number, I64, rounding="rtne"))

    def _program(self) -> Value:
        """The number of the program in this launch."""
        value = self._emit.builder.value
        place = self._wide(value(ProgramId(2)))
        for axis in (1, 0):
            extent = self._wide(value(NumPrograms(axis)))
            place = value(Add(value(Mul(place, extent)), self._wide(value(ProgramId(axis)))))
        return place

    def store(self, slot: Value, values: Sequence[Value], *, checkpoint: bool = False) -> None:
        """Store the initial values of an iteration, those that are used or all of them."""
        for index in range(len(values)) if checkpoint else sorted(self._needed):
            address, found = self._address(index, slot), values[index]
            if element_of(found.type) == I1:
                found = self._emit.builder.value(Cast(found, I8, rounding="rtne"))
            self._emit.builder.insert(Store(address, found, None, cache="", evict=""))

    def load(self, slot: Value, index: int) -> Value:
        """Load a value of an iteration."""
        value = self._emit.builder.value
        loaded = Load(self._address(index, slot), None, None, cache="", evict="", volatile=False)
        found = value(loaded)
        if element_of(self._types[index]) == I1:
            zero = self._emit.integer(0, found.type)
            found = self._emit.compare(found, zero, "ne")
        return found


def _stored(loop: For | While, type: Type) -> DType:
    """The type of a value's elements in memory."""
    element = element_of(type)
    if not isinstance(element, DType):
        raise unknown_loop(loop, "a loop that carries a pointer")
    return I8 if element == I1 else element


def _size(element: DType) -> int:
    return max(1, element.primitive_bitwidth // 8)


def explained(tapes: Sequence[Tape]) -> str:
    """A description of the records of each loop, a line for each."""
    lines: list[str] = []
    for line in sorted({tape.line for tape in tapes}):
        size = sum(tape.bytes for tape in tapes if tape.line == line)
        slots = max(tape.slots for tape in tapes if tape.line == line)
        lines.append(
            f"  loop (line {line}): what it carries is stored, up to {slots} times, {size} bytes "
            "for each program"
        )
    return "\n".join(lines)
