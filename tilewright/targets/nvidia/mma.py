"""Emission of matrix instructions: `mma.sync` on registers, `wgmma` on shared memory.

The layouts that `choose_mma.py` requests give each thread its registers in the order of the
instruction's operands, so emission only packs narrow elements into words. Accumulators are tied
operands of inline assembly, in place. The number of instructions is (M / 16) (N / 8) K-steps for
`mma.sync` (more where it has smaller shapes only) and (M / 64) (N / columns) K-steps for `wgmma`,
divided by the warps or warpgroups.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from copy import copy
from typing import NamedTuple

from tilewright.ir import types as ir
from tilewright.ir.core import Value
from tilewright.layout.linear import OFFSET, REGISTER, LinearLayout
from tilewright.lowering.emit import (
    F16,
    F32,
    F64,
    I16,
    I32,
    I64,
    VOID,
    Builder,
    V,
    const,
    vector,
)
from tilewright.lowering.simt.buffers import emit_fetch
from tilewright.lowering.simt.kernel import Kernel, Registers, emits, register_count
from tilewright.lowering.simt.tile_access import layout_of
from tilewright.lowering.simt.words import words
from tilewright.lowering.types import memory_type
from tilewright.ops.arith import is_positive_zero
from tilewright.ops.control import For, Yield
from tilewright.ops.gpu import Allocate, Share
from tilewright.ops.nvidia import FetchAcross, Mma, Wgmma, WgmmaWait
from tilewright.ops.roles import WaitBarrier
from tilewright.targets.nvidia.choose_mma import (
    GROUP_ROWS,
    GROUP_WARPS,
    groups_of,
    instruction_columns,
)
from tilewright.targets.nvidia.convert import fp16_pair
from tilewright.targets.nvidia.name import NAME
from tilewright.targets.nvidia.notes import HeldRegisters, PtxVersion, Waits
from tilewright.targets.nvidia.rewrite_products import step_along_k

_NAMES = {
    ir.FP16: "f16", ir.BF16: "bf16", ir.FP32: "tf32", ir.I8: "s8", ir.U8: "u8",
    ir.FP8E4NV: "e4m3", ir.FP8E5: "e5m2", ir.FP64: "f64",
}  # fmt: skip
_RESULTS = {ir.FP32: "f32", ir.FP16: "f16", ir.I32: "s32", ir.FP64: "f64"}

# Element type of accumulators -> the letter of an assembly operand, and its type.
_OPERANDS = {ir.FP32: ("f", F32), ir.FP64: ("d", F64)}


class Accumulators:
    """Accumulators in the instructions' registers: fp16 in pairs, others one in each."""

    def __init__(self, kernel: Kernel, value: Value) -> None:
        self.kernel = kernel
        self.element = ir.dtype_of(value.type)
        values = kernel.env[value]
        self.registers = (
            words(kernel.b, values, value.type) if self.element == ir.FP16 else list(values)
        )
        # Whether they are known to be zeros before the first product.
        self.zero = is_positive_zero(value)
        self.letter, self.type = _OPERANDS.get(self.element, ("r", I32))

    @property
    def per_register(self) -> int:
        return 2 if self.element == ir.FP16 else 1

    def values(self) -> Registers:
        b = self.kernel.b
        if self.element != ir.FP16:
            return self.registers
        pairs = [b.bitcast(word, vector(F16, 2)) for word in self.registers]
        return [b.extract(pair, i) for pair in pairs for i in range(2)]

    def zeros(self, count: int) -> Accumulators:
        """As many accumulators of the same type, of zeros."""
        assert self.element == ir.FP32
        found = copy(self)
        found.registers = [const(F32, 0.0)] * count
        found.zero = True
        return found

    def add(self, first: int, other: Accumulators) -> None:
        """Add others to the accumulators from `first` on."""
        b = self.kernel.b
        for i, value in enumerate(other.registers, first):
            self.registers[i] = b.fadd(self.registers[i], value)

    def wait(self, pending: int = 0) -> None:
        """Wait for all products but the last ones. The accumulators are operands, so that no use of
        them can move before it."""
        code = f"wgmma.wait_group.sync.aligned {pending};"
        self.update(0, len(self.registers), code, "", [])

    def keep_moves_behind(self) -> None:
        """Keep moves of the accumulators to other registers after the last update: LLVM places
        those that tied operands need directly before the assembly, here one without code."""
        self.update(0, len(self.registers), "", "", [])

    def update(
        self,
        first: int,
        count: int,
        code: str,
        letters: str,
        inputs: list[V],
        *,
        overwrites: bool = False,
    ) -> None:
        """Emit code that reads and writes `count` accumulators from `first` on.

        They are ``$0`` to ``$(count - 1)`` in the code. As each is a tied input too, the further
        inputs start at ``$(2 * count)``; at ``$count`` if the code `overwrites` the accumulators.
        """
        b = self.kernel.b
        old = [] if overwrites else self.registers[first : first + count]
        ties = [str(i) for i in range(len(old))]
        # Further inputs may be read after accumulators have been written.
        result = f"=&{self.letter}" if inputs else f"={self.letter}"
        constraints = [result] * count + ties + list(letters)
        ret = b.module.row(self.type, count) if count > 1 else self.type
        new = b.inline_asm(code, ",".join(constraints), ret, [*old, *inputs], True, True)
        for i in range(count):
            self.registers[first + i] = b.extract_value(new, i, self.type) if count > 1 else new


class _Chain:
    """Inline assembly of instructions along K, which follow each other and share accumulators.

    With a statement for each, accumulators would pass from one to the next, and most of LLVM's time
    for a product would be spent on that.
    """

    def __init__(self, first: int) -> None:
        self.first = first  # the number of the first further input
        self.inputs: list[V] = []
        self.letters = ""
        self.lines: list[str] = []

    def input(self, value: V, letter: str) -> str:
        """Add a further input; its text."""
        self.inputs.append(value)
        self.letters += letter
        return f"${self.first + len(self.inputs) - 1}"

    def group(self, values: Iterable[V], letter: str) -> str:
        """Add further inputs; the text of all of them."""
        return f"{{{', '.join([self.input(value, letter) for value in values])}}}"

    def add_to(
        self, acc: Accumulators, first: int, count: int, *, overwrites: bool = False
    ) -> None:
        """Emit the code, which updates `count` accumulators from `first` on."""
        code = "\n\t".join(self.lines)
        acc.update(first, count, code, self.letters, self.inputs, overwrites=overwrites)


def registers_text(first: int, count: int) -> str:
    return f"{{{', '.join(f'${i}' for i in range(first, first + count))}}}"


# -- mma.sync -------------------------------------------------------------------------------------

# The PTX versions that introduced mma.sync on fp8 (wgmma always had it), by accumulator type.
_FP8_PTX = {ir.FP32: 84, ir.FP16: 87}


class _Shape(NamedTuple):
    """The shape of an instruction: m16n8k`step_along_k`, or a part of it.

    Attributes:
        rows: its rows.
        along_k: the parts along K.
    """

    rows: int = 16
    along_k: int = 1

    def text(self, element: ir.DType) -> str:
        return f"m{self.rows}n8k{step_along_k(element) // self.along_k}"


_WHOLE = _Shape()

# The largest instruction where the feature lacks; the fragments of a larger one consist of those
# of smaller ones: registers 0 and 2 of A have rows 0 to 7, registers 0 and 1 the lower half of K.
_SMALLER = {
    ir.FP16: ("mma_m16n8k16", _Shape(along_k=2)),
    ir.I8: ("mma_m16n8k16", _Shape(rows=8, along_k=2)),
    ir.U8: ("mma_m16n8k16", _Shape(rows=8, along_k=2)),
    ir.FP64: ("mma_fp64_m16n8k8", _Shape(rows=8, along_k=2)),
}


def _shape(element: ir.DType, features: frozenset[str]) -> _Shape:
    feature, smaller = _SMALLER.get(element, ("", _WHOLE))
    return _WHOLE if feature in features else smaller


@emits(Mma, target=NAME)
def emit_mma(kernel: Kernel, op: Mma) -> None:
    """For each block of 16 x 8 of a warp's part of the result and each K step, one instruction, or
    as many smaller ones as there are parts. Products of a batch follow each other.

    The registers of a block are adjacent and in the instruction's order: a block of A is four
    words, one of B two, and one of the result `count` registers.
    """
    element = ir.dtype_of(op.lhs.type)
    acc = Accumulators(kernel, op.acc)
    left, right = (operand_registers(kernel, value) for value in (op.lhs, op.rhs))
    if element.is_fp8() and "mma_fp8_expanded" in kernel.ctx.features:
        left, right = _as_fp16(kernel.b, left, element, 4), _as_fp16(kernel.b, right, element, 2)
        element = ir.FP16
    elif element.is_fp8():
        kernel.notes.add(PtxVersion(_FP8_PTX[ir.dtype_of(op.acc.type)]))
    steps = ir.shape_of(op.lhs.type)[-1] // step_along_k(element)
    batch = _products_of_warp(kernel, op)
    rows, columns = len(left) // (4 * steps * batch), len(right) // (2 * steps * batch)
    count = len(acc.registers) // (rows * columns * batch)
    shape = _shape(element, kernel.ctx.features)
    parts = 16 // shape.rows
    kinds = f"{_RESULTS[acc.element]}.{_NAMES[element]}.{_NAMES[element]}.{_RESULTS[acc.element]}"
    some, a_words, b_words = count // parts, 4 // parts // shape.along_k, 2 // shape.along_k
    name = f"mma.sync.aligned.{shape.text(element)}.row.col.{kinds}"
    letter = "d" if element == ir.FP64 else "r"
    result = registers_text(0, some)
    for row in range(batch * rows):
        for column in range(columns):
            first = (row * columns + column) * count
            chains = [_Chain(2 * some) for _ in range(parts)]
            for step in range(steps * shape.along_k):
                # Words of A: lower and upper rows, of each half of K in turn.
                a = 4 * row * steps + 4 // shape.along_k * step
                c = 2 * (row // rows * columns + column) * steps + b_words * step
                for part, chain in enumerate(chains):
                    lhs = chain.group(left[a + part : a + part + a_words * parts : parts], letter)
                    rhs = chain.group(right[c : c + b_words], letter)
                    chain.lines.append(f"{name} {result}, {lhs}, {rhs}, {result};")
            for part, chain in enumerate(chains):
                chain.add_to(acc, first + part * some, some)
    kernel.bind(op, acc.values())


def _products_of_warp(kernel: Kernel, op: Mma) -> int:
    """The products of a batch of which a warp has elements."""
    layout = layout_of(op.acc)
    registers = range(layout.in_size(REGISTER))
    return len({layout.coordinates(layout.apply_flat(i))[:-2] for i in registers})


def _as_fp16(b: Builder, operand: Registers, source: ir.DType, block: int) -> Registers:
    """The words of an operand of fp8, of so many in a block, as those of one of fp16.

    The lower two elements of each word of a block are a block of half as many steps along K, the
    upper two the next one: K is in another order, equal for both operands. That takes one sum less
    for each element of the result than what ptxas makes of the instruction, which adds the two
    products to each other first.
    """
    found: Registers = []
    for first in range(0, len(operand), block):
        words = operand[first : first + block]
        for place in (0, 16):
            pairs = [b.trunc(b.lshr(word, place), I16) for word in words]
            found += [b.bitcast(fp16_pair(b, pair, _NAMES[source]), I32) for pair in pairs]
    return found


def operand_registers(kernel: Kernel, value: Value) -> Registers:
    """An operand in the instruction's registers: words of 32 bits, or elements of fp64."""
    values = kernel.env[value]
    wide = ir.dtype_of(value.type) == ir.FP64
    return list(values) if wide else words(kernel.b, values, value.type)


emits(FetchAcross, target=NAME)(emit_fetch)


# -- wgmma ----------------------------------------------------------------------------------------


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
            past.update(v for inner in following.walk() for v in inner.operands)
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
    """Index of the warpgroup, broadcast from lane 0 so that the compiler knows it is uniform."""
    if kernel.warps == GROUP_WARPS:
        return const(I32, 0)

    def make(b: Builder) -> V:
        group = b.lshr(kernel.warp, GROUP_WARPS.bit_length() - 1)
        return kernel.hw.shuffle(b, group, const(I32, 0))

    return kernel.once("warpgroup", make) if kernel.team.whole else make(kernel.b)


def _early(kernel: Kernel, make: Callable[[Builder], V]) -> V:
    """Emit what depends on the warp only: at the entry, unless registers are scarce, as they are
    beside a warp that copies operands."""
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
        f"{_RESULTS[acc.element]}.{_NAMES[element]}.{_NAMES[ir.dtype_of(op.rhs.type)]}"
    )
    # Zeros are not read: registers that hold them would make ptxas serialise products that are in
    # flight at the same time.
    chain = _Chain(2 * count if not acc.zero else count)
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
            acc.keep_moves_behind()
        found.append(acc.values())
    kernel.bind(op, *found)


def _is_carried_elsewhere(product: Value, result: Value) -> bool:
    """Whether a region ends with the result, but not in the place of the product's accumulator.

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
