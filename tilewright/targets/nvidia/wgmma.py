"""Emission of `wgmma`, whose operands are in shared memory.

The number of instructions is (M / 64) (N / columns) K-steps, divided by the warpgroups.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from tilewright.ir import types as ir
from tilewright.ir.core import Value
from tilewright.layout.linear import OFFSET, REGISTER, LinearLayout
from tilewright.lowering.emit import (
    I32,
    I64,
    VOID,
    Builder,
    V,
    const,
)
from tilewright.lowering.simt.kernel import Kernel, Registers, emits, register_count
from tilewright.lowering.simt.tile_access import layout_of
from tilewright.lowering.simt.words import words
from tilewright.lowering.types import memory_type
from tilewright.ops.control import For, Yield
from tilewright.ops.gpu import Allocate, Share
from tilewright.ops.nvidia import Wgmma, WgmmaWait
from tilewright.ops.roles import WaitBarrier
from tilewright.targets.nvidia.accumulators import (
    RESULT_NAMES,
    TYPE_NAMES,
    Accumulators,
    Chain,
    registers_text,
)
from tilewright.targets.nvidia.choose_mma import (
    GROUP_ROWS,
    GROUP_WARPS,
    groups_of,
    instruction_columns,
)
from tilewright.targets.nvidia.name import NAME
from tilewright.targets.nvidia.notes import HeldRegisters, Waits
from tilewright.targets.nvidia.rewrite_products import step_along_k

MOST_DESCRIPTORS = 16
"""The most descriptors of an operand that are computed at the entry, in uniform registers."""


class MatrixOperand:
    """An operand of wgmma in shared memory, and the matrix descriptors of its parts.

    A descriptor (PTX ISA, "Matrix-descriptor") has, in units of 16 bytes, the address in bits 0-13,
    the leading dimension offset in 16-29 and the stride dimension offset in 32-45, and in bits
    62-63 the swizzle. With a swizzle, the leading offset is the distance between row-long parts
    along the contiguous axis (used only if that is not K), and the stride offset the distance
    between groups of 8 rows.

    Args:
        k_axis: the axis of K.
        uniform: whether all warps read the same parts.
        version: of descriptors, bits 46-48: 0 for wgmma, 1 for tcgen05.
    """

    def __init__(
        self, kernel: Kernel, value: Value, k_axis: int, *, uniform: bool, version: int = 0
    ) -> None:
        layout = layout_of(value)
        self.kernel = kernel
        # The address is known at the entry, unless it is that of a slot of a ring. Descriptors
        # computed there are not recomputed in loops by ptxas; see `_early` for teams.
        fixed = uniform and kernel.team.whole and isinstance(value.op, Share | Allocate)
        self.fixed = value.op if fixed else None
        self.keeps_all = False
        self.k_axis = k_axis
        self.size = ir.dtype_of(value.type).nbytes_in_memory
        self.places = layout.invert()
        bases = layout.bases(OFFSET)
        self.across_k = layout.coordinates(bases[0])[k_axis] == 0
        contiguous = 1 - k_axis if self.across_k else k_axis
        row = self._row_bytes(layout, contiguous)
        leading = 1
        if self.across_k and layout.shape[contiguous] * self.size > row:
            leading = self._bytes(contiguous, row // self.size) // 16
        strided = 1 - contiguous
        stride = self._bytes(strided, 8) // 16 if layout.shape[strided] > 8 else 1
        swizzle = {128: 1, 64: 2, 32: 3}[row]
        self.value = value
        self.leading = leading
        self.low = self._emit(self._low)
        self.high = const(I64, stride << 32 | version << 46 | swizzle << 62)

    def keep(self, parts: int) -> None:
        """Have the descriptors of all `parts` computed at the entry, if they are few."""
        self.keeps_all = parts <= MOST_DESCRIPTORS

    def _emit(self, make: Callable[[Builder], V], *, keep: bool = True) -> V:
        fixed = keep and self.fixed is not None
        return self.kernel.at_entry(make) if fixed else make(self.kernel.b)

    def _low(self, b: Builder) -> V:
        kernel = self.kernel
        place = kernel.scalar(self.value)
        if self.fixed is not None:
            place = kernel.shared.address(b, self.fixed)
        address = b.lshr(b.ptrtoint(place, I32), 4)
        return b.or_(b.and_(address, 0x3FFF), self.leading << 16)

    def _row_bytes(self, layout: LinearLayout, contiguous: int) -> int:
        """Bytes of adjacent elements along the contiguous axis: the row length of the swizzle."""
        count = 1
        for basis in layout.bases(OFFSET):
            place = layout.coordinates(basis)
            if not place[contiguous] or place[1 - contiguous]:
                break
            count *= 2
        return count * self.size

    def _bytes(self, axis: int, coordinate: int) -> int:
        return self.places.apply({f"dim{axis}": coordinate})[OFFSET] * self.size

    def offset(self, k: int, other: int) -> int:
        """Offset in bytes of the part that begins at these coordinates."""
        coordinates = {f"dim{self.k_axis}": k, f"dim{1 - self.k_axis}": other}
        return self.places.apply(coordinates)[OFFSET] * self.size

    def descriptor(self, offset: int, start: V) -> V:
        """The descriptor of the part at an offset in bytes from a start (i32, the same at the
        entry).

        The addition cannot carry out of the 14 bits of the address: in units of 16 bytes, all
        addresses of shared memory fit them.
        """

        def make(b: Builder) -> V:
            low = b.add(self.low, b.lshr(b.add(start, offset), 4))
            return b.or_(b.zext(low, I64), self.high)

        return self._emit(make, keep=self.keeps_all)


class _Block(NamedTuple):
    """A part of the result that one chain of instructions along K computes."""

    first: int  # its first accumulator
    row: int
    column: int


@emits(Wgmma, target=NAME)
def emit_wgmma(kernel: Kernel, op: Wgmma) -> None:
    b = kernel.b
    acc = Accumulators(kernel, op.acc)
    if acc.zero:
        kernel.notes.add(HeldRegisters(_held_with(op)))
    groups = groups_of(ir.shape_of(op.acc.type), kernel.warps)
    right = MatrixOperand(kernel, op.rhs, 0, uniform=groups.columns == 1)
    width = instruction_columns(op, kernel.warps)
    count = width // 2 // acc.per_register
    group = _warpgroup(kernel)
    if isinstance(op.lhs.type, ir.Shared):
        left: MatrixOperand | Registers = MatrixOperand(kernel, op.lhs, 1, uniform=groups.rows == 1)
    else:
        left = words(kernel.b, kernel.env[op.lhs], op.lhs.type)
    blocks = list(_blocks(op, kernel.warps, width, count))
    steps = ir.shape_of(op.rhs.type)[0] // step_along_k(ir.dtype_of(op.lhs.type))
    right.keep(steps * len({block.column for block in blocks}))
    if isinstance(left, MatrixOperand):
        left.keep(steps * len({block.row for block in blocks}))

    def start(blocks: Iterable[_Block], into: Accumulators, steps: range) -> None:
        _side_effect(b, "wgmma.fence.sync.aligned;")
        for block in blocks:
            _emit_block(kernel, op, block, into, left, right, group, count, steps)
        _side_effect(b, "wgmma.commit_group.sync.aligned;")

    if not _sums_are_limited(op):
        start(
            blocks,
            acc,
            range(0, ir.shape_of(op.rhs.type)[0], step_along_k(ir.dtype_of(op.lhs.type))),
        )
    else:
        _add_in_parts(op, blocks, acc, count, start)
    kernel.bind(op, acc.values())


def _held_with(op: Wgmma) -> int:
    """The registers of a product's result, with those of values that a loop carries past it."""
    loop = op.parent_op()
    past: set[Value] = set()
    if isinstance(loop, For):
        following = op.next
        while following is not None:
            past.update(following.all_operands())
            following = following.next
        past &= set(loop.body.args[1:])
    return sum(_words_of(value) for value in (op.result, *past))


def _words_of(value: Value) -> int:
    """The 32-bit registers of a thread for the distinct elements of a value."""
    copies = value.layout.free_variables(REGISTER).bit_count() if value.layout else 0
    bits = memory_type(ir.element_of(value.type)).bits
    return -(-(register_count(value) >> copies) * bits // 32)


IN_FLIGHT_REGISTERS = 160
"""The most registers of the accumulators and two parts of a limited sum, for these to be in flight
at once. With 192, they are spilled (128x128x128, 8 warps)."""


def _add_in_parts(
    op: Wgmma,
    blocks: Iterable[_Block],
    acc: Accumulators,
    count: int,
    start: Callable[[list[_Block], Accumulators, range], None],
) -> None:
    """Add sums of at most `max_imprecise` products to the accumulators, in fp32; while one is
    added, the next is computed, if there are enough registers."""
    pending: deque[tuple[int, Accumulators]] = deque()

    def finish(in_flight: int) -> None:
        while len(pending) > in_flight:
            first, part = pending.popleft()
            part.wait(len(pending))
            acc.add(first, part)

    acc.wait()  # for the product that it may be the result of
    ahead = int(len(acc.registers) + 2 * count <= IN_FLIGHT_REGISTERS)
    for block in blocks:
        for steps in _limited_steps(op):
            part = acc.zeros(count)
            start([block._replace(first=0)], part, steps)
            pending.append((block.first, part))
            finish(ahead)
    finish(0)


def _limited_steps(op: Wgmma) -> Iterator[range]:
    """The starts of instructions along K, in groups of at most `max_imprecise` products."""
    k, step = ir.shape_of(op.rhs.type)[0], step_along_k(ir.dtype_of(op.lhs.type))
    length = op.max_imprecise // step * step
    for start in range(0, k, length):
        yield range(start, min(start + length, k), step)


def _sums_are_limited(op: Wgmma) -> bool:
    """Whether the matrix unit may add fewer products than there are along K: it keeps about 14 bits
    of sums of products of fp8."""
    return ir.dtype_of(op.lhs.type).is_fp8() and op.max_imprecise < ir.shape_of(op.rhs.type)[0]


def _warpgroup(kernel: Kernel) -> V:
    """Index of the warpgroup, broadcast from lane 0 so that the compiler can prove that it is
    uniform."""
    if kernel.warps == GROUP_WARPS:
        return const(I32, 0)

    def make(b: Builder) -> V:
        group = b.lshr(kernel.warp, GROUP_WARPS.bit_length() - 1)
        return kernel.hw.shuffle(b, group, const(I32, 0))

    return kernel.once("warpgroup", make) if kernel.team.whole else make(kernel.b)


def _early(kernel: Kernel, make: Callable[[Builder], V]) -> V:
    """Emit values that depend only on the warp: at the entry, unless registers are scarce, as with
    a copying warp."""
    return kernel.at_entry(make) if kernel.team.whole else make(kernel.b)


def _side_effect(b: Builder, code: str) -> None:
    b.inline_asm(code, "~{memory}", VOID, [], True, True)


def _blocks(op: Wgmma, warps: int, width: int, count: int) -> Iterator[_Block]:
    """Blocks of the first warpgroup, in the order of their accumulators: columns first."""
    m, n = ir.shape_of(op.acc.type)
    groups = groups_of((m, n), warps)
    first = 0
    for row in range(0, m, GROUP_ROWS * groups.rows):
        for column in range(0, n, width * groups.columns):
            yield _Block(first, row, column)
            first += count


def _emit_block(
    kernel: Kernel,
    op: Wgmma,
    block: _Block,
    acc: Accumulators,
    left: MatrixOperand | Registers,
    right: MatrixOperand,
    group: V,
    count: int,
    steps: range,
) -> None:
    element = ir.dtype_of(op.lhs.type)
    m, n = ir.shape_of(op.acc.type)
    k = ir.shape_of(op.rhs.type)[0]
    groups = groups_of((m, n), kernel.warps)
    width = count * 2 * acc.per_register
    k_step = step_along_k(ir.dtype_of(op.lhs.type))
    left_start = right_start = const(I32, 0)
    if groups.rows > 1 and isinstance(left, MatrixOperand):
        distance = left.offset(0, GROUP_ROWS)
        left_start = _early(kernel, lambda b: b.mul(b.and_(group, groups.rows - 1), distance))
    if groups.columns > 1:
        bits, distance = groups.rows.bit_length() - 1, right.offset(0, width)
        right_start = _early(kernel, lambda b: b.mul(b.lshr(group, bits), distance))
    name = (
        f"wgmma.mma_async.sync.aligned.m64n{width}k{k_step}."
        f"{RESULT_NAMES[acc.element]}.{TYPE_NAMES[element]}.{TYPE_NAMES[ir.dtype_of(op.rhs.type)]}"
    )
    # Zeros are not read: registers that hold them would make ptxas serialise products that are in
    # flight at the same time.
    chain = Chain(2 * count if not acc.zero else count)
    for step in steps:
        if isinstance(left, MatrixOperand):
            source = chain.input(left.descriptor(left.offset(step, block.row), left_start), "l")
            across: list[str] = [str(int(left.across_k))]
        else:
            first = 4 * (block.row // (GROUP_ROWS * groups.rows) * (k // k_step) + step // k_step)
            source = chain.group(left[first : first + 4], "r")
            across = []
        start = right.descriptor(right.offset(step, block.column), right_start)
        descriptor = chain.input(start, "l")
        tail = "p" if element.is_int() else "p, 1, 1"
        if element.primitive_bitwidth == 16:
            tail = ", ".join([tail, *across, str(int(right.across_k))])
        adds = "ne" if acc.zero and step == steps.start else "eq"
        chain.lines.append(
            f"{{ .reg .pred p; setp.{adds}.b32 p, 0, 0; "
            f"{name} {registers_text(0, count)}, {source}, {descriptor}, {tail}; }}"
        )
    chain.add_to(acc, block.first, count, overwrites=acc.zero)


@emits(WgmmaWait, target=NAME)
def emit_wgmma_wait(kernel: Kernel, op: WgmmaWait) -> None:
    """See `Accumulators.wait`."""
    if op.values and _is_in_loop_over_slots(op):
        kernel.notes.add(Waits.FOR_PRODUCTS)
    if not op.values:
        _side_effect(kernel.b, f"wgmma.wait_group.sync.aligned {op.pending};")
        return
    found: list[Registers] = []
    for value, result in zip(op.values, op.results, strict=True):
        acc = Accumulators(kernel, value)
        acc.wait(op.pending)
        if _is_carried_elsewhere(value, result):
            acc.keep_moves_after()
        found.append(acc.values())
    kernel.bind(op, *found)


def _is_carried_elsewhere(product: Value, result: Value) -> bool:
    """Whether a region ends with the result, but not in the position of the product's accumulator.

    The moves to the registers of that place read the product's: ptxas serialises products whose
    registers are read before the wait.
    """
    own = product.op.acc if isinstance(product.op, Wgmma) else None
    for user in result.users:
        if isinstance(user, Yield):
            places = [i for i, value in enumerate(user.operands) if value is result]
            if own is None or own.owner is not user.parent or places != [own.index - 1]:
                return True
    return False


def _is_in_loop_over_slots(op: WgmmaWait) -> bool:
    """Whether an op is directly in a loop of warps that wait for the slots of a copying warp."""
    loop = op.parent_op()
    return isinstance(loop, For) and any(isinstance(inner, WaitBarrier) for inner in loop.body)
