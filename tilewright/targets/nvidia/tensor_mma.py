"""Emission of `tcgen05`: products in tensor memory.

An address in tensor memory has the row in its upper 16 bits and the column, in units of 32 bits, in
the lower ones. A warp accesses the 32 rows given by its index modulo 4. One thread issues products,
which arrive at barriers on completion (PTX ISA, "tcgen05 Memory Consistency Model").
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from tilewright.ir import types as ir
from tilewright.ir.core import Value
from tilewright.layout.families import WARPS_PER_GROUP
from tilewright.lowering.emit import F32, I32, VOID, Builder, V, const
from tilewright.lowering.simt.kernel import Kernel, Registers, emits
from tilewright.lowering.simt.shared_memory import scratch
from tilewright.lowering.simt.words import words
from tilewright.ops.tensor_memory import (
    COLUMN_BYTES,
    ROWS,
    SCALE_COLUMNS,
    SCALE_ROWS,
    WORD_SCALES,
    AllocateTensor,
    CommitProducts,
    FreeTensor,
    LoadTensor,
    StoreTensor,
    TensorMma,
    TensorPart,
    TensorProduct,
    TensorScaledMma,
    TensorWait,
    columns_of,
    is_scales,
    scales_of,
)
from tilewright.targets.nvidia.accumulators import registers_text
from tilewright.targets.nvidia.choose_tensor_mma import KINDS
from tilewright.targets.nvidia.name import NAME
from tilewright.targets.nvidia.notes import TensorColumns
from tilewright.targets.nvidia.rewrite_products import step_along_k
from tilewright.targets.nvidia.scaled_kinds import MIXED, Kind, tensor_kind_of
from tilewright.targets.nvidia.tma import barrier_address
from tilewright.targets.nvidia.wgmma import MatrixOperand

LEAST_COLUMNS = 32  # of an allocation, which is a power of two
MOST_COLUMNS = 256  # of an instruction
MOST_REGISTERS = 64  # that one instruction loads or stores
WARP_ROWS = 32
ROW_SHIFT = 16

AFTER_BARRIER = "tcgen05.fence::after_thread_sync;"
BEFORE_BARRIER = "tcgen05.fence::before_thread_sync;"

# The fields of "Instruction descriptor" of the PTX ISA: the first bit of each.
_RESULT, _LEFT, _RIGHT, _LEFT_ACROSS, _RIGHT_ACROSS, _COLUMNS, _ROWS = 4, 7, 10, 15, 16, 17, 24

# The codes of the types of operands and results, of each kind of instruction.
_CODES = {
    ir.FP16: 0, ir.BF16: 1, ir.FP32: 2, ir.FP8E4NV: 0, ir.FP8E5: 1, ir.U8: 0, ir.I8: 1,
}  # fmt: skip
_RESULT_CODES = {ir.FP32: 1, ir.I32: 2}


def instruction_descriptor(
    types: tuple[ir.DType, ir.DType, ir.DType],
    shape: tuple[int, int],
    *,
    across: Sequence[bool],
) -> int:
    """The instruction descriptor.

    Args:
        types: of the operands and the result.
        shape: of the result.
        across: which of the operands lie across K.
    """
    left, right, result = types
    codes = _CODES[left] << _LEFT | _CODES[right] << _RIGHT | _RESULT_CODES[result] << _RESULT
    layouts = across[0] << _LEFT_ACROSS | across[1] << _RIGHT_ACROSS
    return codes | layouts | shape[1] // 8 << _COLUMNS | shape[0] // 16 << _ROWS


# The fields of that of block-scaled products, and their codes where they differ.
_RIGHT_SCALE, _SCALE_TYPE, _LEFT_SCALE = 4, 23, 29
_SHORT_CODES = {"e4m3": 0, "e5m2": 1}
_PACKED_CODE = 1
_SCALE_CODES = {"ue4m3": 0, "ue8m0": 1}


def scaled_descriptor(
    kind: Kind, formats: tuple[str, str], shape: tuple[int, int], scale: int
) -> int:
    """The instruction descriptor of a block-scaled product; `scale` is the place of the first scale
    of a row in its word."""
    left, right = (_SHORT_CODES[f] if kind is MIXED else _PACKED_CODE for f in formats)
    codes = left << _LEFT | right << _RIGHT | _SCALE_CODES[kind.scale_name] << _SCALE_TYPE
    places = scale << _RIGHT_SCALE | scale << _LEFT_SCALE
    return codes | places | shape[1] // 8 << _COLUMNS | shape[0] // 16 << _ROWS


def _run(b: Builder, code: str, letters: str = "", args: Sequence[V] = ()) -> None:
    b.inline_asm(code, ",".join([*letters, "~{memory}"]), VOID, list(args), True, True)


def _columns(type: ir.Type) -> int:
    """The columns to allocate for a matrix."""
    return max(LEAST_COLUMNS, 1 << (columns_of(type) - 1).bit_length())


@scratch(AllocateTensor)
def _address_bytes(op: AllocateTensor) -> int:
    return I32.bits // 8


@emits(AllocateTensor, target=NAME)
def emit_allocate_tensor(kernel: Kernel, op: AllocateTensor) -> None:
    b = kernel.b
    place = kernel.shared.address(b, op)
    count = _columns(op.type)
    kernel.notes.add(TensorColumns(count))
    with kernel.only_if(b.icmp("eq", kernel.warp, 0)):
        to = b.ptrtoint(place, I32)
        code = f"tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [$0], {count};"
        _run(b, code, "r", [to])
        _run(b, "tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;")
    _synchronize(kernel)
    kernel.env[op.result] = [b.load(I32, place)]


def _synchronize(kernel: Kernel) -> None:
    """Order all operations of the team's threads in tensor memory before their next ones."""
    _run(kernel.b, BEFORE_BARRIER)
    kernel.barrier()
    _run(kernel.b, AFTER_BARRIER)


@emits(TensorPart, target=NAME)
def emit_tensor_part(kernel: Kernel, op: TensorPart) -> None:
    kernel.env[op.result] = [kernel.b.add(kernel.scalar(op.memory), const(I32, op.column))]


@emits(FreeTensor, target=NAME)
def emit_free_tensor(kernel: Kernel, op: FreeTensor) -> None:
    b = kernel.b
    _synchronize(kernel)
    with kernel.only_if(b.icmp("eq", kernel.warp, 0)):
        count = _columns(op.memory.type)
        code = f"tcgen05.dealloc.cta_group::1.sync.aligned.b32 $0, {count};"
        _run(b, code, "r", [kernel.scalar(op.memory)])


class _Step(NamedTuple):
    """One instruction of a product.

    Attributes:
        row, column, start: where its block of the result is, and its elements along K, in units of
            what is stored.
        number: of the step along K.
        shape: of its block.
        across: which of the operands lie across K.
    """

    row: int
    column: int
    start: int
    number: int
    shape: tuple[int, int]
    across: tuple[bool, bool]


Instruction = Callable[[_Step], tuple[str, int, list[V]]]
"""The name of the instruction for a step, its descriptor, and addresses of scales."""


@emits(TensorMma, target=NAME)
def emit_tensor_mma(kernel: Kernel, op: TensorMma) -> None:
    types = ir.dtype_of(op.lhs.type), ir.dtype_of(op.rhs.type), ir.dtype_of(op.acc.type)

    def instruction(step: _Step) -> tuple[str, int, list[V]]:
        what = instruction_descriptor(types, step.shape, across=step.across)
        return f"kind::{KINDS[types[0]]}", what, []

    _start(kernel, op, instruction)


@emits(TensorScaledMma, target=NAME)
def emit_tensor_scaled_mma(kernel: Kernel, op: TensorScaledMma) -> None:
    kind = tensor_kind_of(op)
    assert kind is not None
    name = f"kind::{kind.name}.block_scale.scale_vec::{kind.scales}X"
    formats = op.lhs_format, op.rhs_format
    left, right = (partial(_scales_address, kernel, scales) for scales in scales_of(op))

    def instruction(step: _Step) -> tuple[str, int, list[V]]:
        word, first = divmod(step.number * kind.scales, WORD_SCALES)
        what = scaled_descriptor(kind, formats, step.shape, first)
        return name, what, [left(word, step.row), right(word, step.column)]

    _start(kernel, op, instruction)


def _scales_address(kernel: Kernel, scales: Value, word: int, row: int) -> V:
    """Where the scales of some rows in a word of each are."""
    column = word * columns_of_word(scales.type) + row // SCALE_ROWS
    return kernel.b.add(kernel.scalar(scales), column)


def columns_of_word(type: ir.Type) -> int:
    """The columns of one word of each row of scales."""
    return -(-ir.shape_of(type)[0] // ROWS) * SCALE_COLUMNS


def _start(kernel: Kernel, op: TensorProduct, instruction: Instruction) -> None:
    """An instruction for each 128 rows, 256 columns and 32 bytes along K, all of one thread."""
    b = kernel.b
    (m, n), k = ir.shape_of(op.acc.type), ir.shape_of(op.lhs.type)[1]
    memory = kernel.scalar(op.acc)
    shape, step = (min(m, ROWS), min(n, MOST_COLUMNS)), step_along_k(ir.dtype_of(op.lhs.type))
    with kernel.only_if(b.icmp("eq", kernel.thread, 0)):
        _run(b, AFTER_BARRIER)
        left, right = (_operand(kernel, value, axis) for axis, value in ((1, op.lhs), (0, op.rhs)))
        for row in range(0, m, ROWS):
            for column in range(0, n, shape[1]):
                place = b.add(memory, row // ROWS * n + column)
                for number, start in enumerate(range(0, k, step)):
                    across = left.across_k, right.across_k
                    found = instruction(_Step(row, column, start, number, shape, across))
                    parts = [left.part(start, row), right.part(start, column)]
                    _run_product(b, found, [place, *parts], adds=op.adds or start > 0)
    kernel.env[op.result] = [memory]


class _InShared:
    """An operand in shared memory: its parts have descriptors."""

    def __init__(self, kernel: Kernel, value: Value, k_axis: int) -> None:
        self.matrix = MatrixOperand(kernel, value, k_axis, uniform=True, version=1)
        self.across_k = self.matrix.across_k

    def part(self, k: int, other: int) -> V:
        """The part that begins at these coordinates."""
        return self.matrix.descriptor(self.matrix.offset(k, other), const(I32, 0))


class _InTensorMemory:
    """The left operand in tensor memory: its parts have addresses."""

    across_k = False

    def __init__(self, kernel: Kernel, value: Value) -> None:
        self.kernel = kernel
        self.place = kernel.scalar(value)
        self.block = ir.TensorMemory((ROWS, ir.shape_of(value.type)[1]), ir.dtype_of(value.type))

    def part(self, k: int, other: int) -> V:
        """The part that begins at these coordinates."""
        before = k * self.block.element.nbytes_in_memory // COLUMN_BYTES
        return self.kernel.b.add(self.place, other // ROWS * columns_of(self.block) + before)


def _operand(kernel: Kernel, value: Value, k_axis: int) -> _InShared | _InTensorMemory:
    if isinstance(value.type, ir.TensorMemory):
        return _InTensorMemory(kernel, value)
    return _InShared(kernel, value, k_axis)


def _run_product(
    b: Builder, instruction: tuple[str, int, list[V]], operands: Sequence[V], *, adds: bool
) -> None:
    """One instruction on memory and two operands."""
    name, descriptor, scales = instruction
    args = [*operands, const(I32, descriptor), *scales]
    left, letter = ("[$1]", "r") if operands[1].type == I32 else ("$1", "l")
    places = "".join(f" [${i}]," for i in range(4, len(args)))
    code = f"tcgen05.mma.cta_group::1.{name} [$0], {left}, $2, $3,{places} p;"
    letters = f"r{letter}lr" + "r" * len(scales)
    _run(b, f"{{ .reg .pred p; setp.ne.b32 p, {int(adds)}, 0; {code} }}", letters, args)


@emits(TensorWait, target=NAME)
def emit_tensor_wait(kernel: Kernel, op: TensorWait) -> None:
    """The barrier before it was waited for."""
    kernel.env[op.result] = kernel.env[op.product]


@emits(CommitProducts, target=NAME)
def emit_commit_products(kernel: Kernel, op: CommitProducts) -> None:
    b = kernel.b
    place = barrier_address(kernel, op.barriers, kernel.scalar(op.index))
    code = "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [$0];"
    with kernel.only_if(b.icmp("eq", kernel.thread, 0)):  # the one that started the products
        _run(b, code, "r", [place])


class _Part(NamedTuple):
    """The part of a tile that one instruction moves.

    Attributes:
        address: in tensor memory.
        registers: the thread's.
        shape: the instruction's `.shape` and `.num`.
    """

    address: V
    registers: range
    shape: str


def _parts(kernel: Kernel, memory: V, type: ir.Type) -> list[_Part]:
    """The parts of a tile; see `families.tensor_memory`."""
    b = kernel.b
    m, _ = ir.shape_of(type)
    n = columns_of(type) // -(-m // ROWS)  # of a block of rows
    few = m < ROWS
    groups = kernel.warps // WARPS_PER_GROUP
    over_m = min(groups, -(-m // ROWS))
    columns = n // (groups // over_m)  # of a warp
    group = b.lshr(kernel.warp, WARPS_PER_GROUP.bit_length() - 1)
    rows = b.mul(b.and_(kernel.warp, WARPS_PER_GROUP - 1), WARP_ROWS << ROW_SHIFT)
    start = b.add(b.add(memory, rows), b.mul(b.and_(group, over_m - 1), n))
    start = b.add(start, b.mul(b.lshr(group, over_m.bit_length() - 1), columns))
    # A thread has a register for each column; of few rows, four for eight columns.
    count = min(columns, 2 * MOST_REGISTERS if few else MOST_REGISTERS)
    held = count // 2 if few else count
    shape = f"16x256b.x{count // 8}" if few else f"32x32b.x{count}"
    found: list[_Part] = []
    for block in range(-(-m // ROWS) // over_m):
        for column in range(0, columns, count):
            place = b.add(start, block * over_m * n + column)
            first = len(found) * held
            found.append(_Part(place, range(first, first + held), shape))
    return found


@emits(StoreTensor, target=NAME)
def emit_store_tensor(kernel: Kernel, op: StoreTensor) -> None:
    if is_scales(op.value.type):
        _store_scales(kernel, op)
    else:
        _store_rows(kernel, op)
    _synchronize(kernel)
    kernel.env[op.result] = kernel.env[op.memory]


def _store_scales(kernel: Kernel, op: StoreTensor) -> None:
    """Each of four warps stores all scales to its rows of tensor memory."""
    b = kernel.b
    rows, groups = ir.shape_of(op.value.type)
    values, each = kernel.env[op.value], min(groups, WORD_SCALES)
    chunks = [values[i : i + each] for i in range(0, len(values), each)]
    found = [b.zext(words(b, chunk, op.value.type)[0], I32) for chunk in chunks]
    count = -(-rows // SCALE_ROWS)  # of words of adjacent columns
    part = b.mul(b.and_(kernel.warp, WARPS_PER_GROUP - 1), WARP_ROWS << ROW_SHIFT)
    start = b.add(kernel.scalar(op.memory), part)
    with kernel.only_if(b.icmp("ult", kernel.warp, WARPS_PER_GROUP)):
        _run(b, AFTER_BARRIER)
        for word in range(len(found) // count):
            place = b.add(start, word * columns_of_word(op.value.type))
            _store_words(b, f"32x32b.x{count}", place, found[word * count : (word + 1) * count])
        _run(b, "tcgen05.wait::st.sync.aligned;")


def _store_words(b: Builder, shape: str, place: V, values: Sequence[V]) -> None:
    code = f"tcgen05.st.sync.aligned.{shape}.b32 [$0], {registers_text(1, len(values))};"
    _run(b, code, "r" * (1 + len(values)), [place, *values])


def _store_rows(kernel: Kernel, op: StoreTensor) -> None:
    b = kernel.b
    values = kernel.env[op.value]
    each = COLUMN_BYTES // ir.dtype_of(op.value.type).nbytes_in_memory
    for place, registers, shape in _parts(kernel, kernel.scalar(op.memory), op.value.type):
        chunks = (values[r * each : (r + 1) * each] for r in registers)
        _store_words(b, shape, place, [words(b, c, op.value.type)[0] for c in chunks])
    _run(b, "tcgen05.wait::st.sync.aligned;")


@emits(LoadTensor, target=NAME)
def emit_load_tensor(kernel: Kernel, op: LoadTensor) -> None:
    """The wait is a part of the same assembly: registers hold the values only after it."""
    b = kernel.b
    found: Registers = []
    letter, type = ("=r", I32) if ir.dtype_of(op.result.type) == ir.I32 else ("=f", F32)
    _run(b, AFTER_BARRIER)
    for place, registers, shape in _parts(kernel, kernel.scalar(op.memory), op.result.type):
        count = len(registers)
        code = (
            f"tcgen05.ld.sync.aligned.{shape}.b32 {registers_text(0, count)}, [${count}]; "
            "tcgen05.wait::ld.sync.aligned;"
        )
        constraints = ",".join([letter] * count + ["r", "~{memory}"])
        ret = b.module.row(type, count)
        got = b.inline_asm(code, constraints, ret, [place], True, True)
        found += [b.extract_value(got, i, type) for i in range(count)]
    _run(b, BEFORE_BARRIER)  # after which a product may overwrite what was loaded
    kernel.bind(op, found)
