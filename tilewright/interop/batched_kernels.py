"""Kernels over batches: one more axis of the grid, for `jax.vmap` and `torch.vmap`.

The grid has three axes, so the axis of the batch is folded into the first one, after its own
programs: program x of the batched kernel is program x mod n of the kernel, for element x div n of
the batch, where n is the extent of the kernel's own grid. The kernel's code is unchanged but for
the index and number of programs, and for the pointers of batched arrays, to which the offset of the
element is added. A batch of batches is one batch whose index has several digits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tilewright.ir.builder import Builder
from tilewright.ir.core import Function, Module, Value
from tilewright.ir.types import I32, I64
from tilewright.ops.arith import Add, Cast, Constant, IntDiv, Mul, Rem
from tilewright.ops.control import NumPrograms, ProgramId
from tilewright.ops.memory import AddPtr

_AXIS = 0


class Batches(NamedTuple):
    """The batches that a kernel runs over.

    Attributes:
        programs: the extent of the kernel's own grid along its first axis, at least 1.
        sizes: of each batch, the innermost one first. The last one is not used.
        strides: by argument of the kernel, for each batch the distance of its elements in memory,
            in elements of the array; 0 for an array without this batch.
    """

    programs: int
    sizes: tuple[int, ...]
    strides: Mapping[int, tuple[int, ...]]


def batched(module: Module, batches: Batches) -> Module:
    """The kernel over batches. Its grid has the product of all sizes times as many programs along
    the first axis.

    Args:
        module: as made by the front end.
    """
    result = module.clone()
    for function in result.functions.values():
        _renumber(function, batches.programs)
    _offset_pointers(result.entry, batches)
    return result


def _renumber(function: Function, programs: int) -> None:
    """Let a function see the programs of one element of the batch."""
    builder = Builder()
    for op in list(function.walk()):
        if isinstance(op, ProgramId | NumPrograms) and op.axis == _AXIS:
            with builder.before(op):
                extent = builder.value(Constant(programs, I32))
                if isinstance(op, NumPrograms):
                    op.result.replace_with(extent)
                else:
                    whole = builder.value(ProgramId(_AXIS))
                    op.result.replace_with(builder.value(Rem(whole, extent)))
            op.erase()


def _offset_pointers(entry: Function, batches: Batches) -> None:
    first = next(iter(entry.body))
    builder = Builder()
    with builder.before(first):
        digits = _digits(builder, batches)
        for index, strides in batches.strides.items():
            pointer = entry.args[index]
            users = list(pointer.users)
            offset = _offset(builder, digits, strides)
            if offset is not None:
                moved = builder.value(AddPtr(pointer, offset))
                for user in users:
                    user.replace_operand(pointer, moved)


def _digits(builder: Builder, batches: Batches) -> list[Value]:
    """The index in each batch, as an i64."""
    extent = builder.value(Constant(batches.programs, I32))
    rest = builder.value(IntDiv(builder.value(ProgramId(_AXIS)), extent))
    digits: list[Value] = []
    for size in batches.sizes[:-1]:
        extent = builder.value(Constant(max(size, 1), I32))
        digits.append(builder.value(Rem(rest, extent)))
        rest = builder.value(IntDiv(rest, extent))
    return [builder.value(Cast(digit, I64, "rtne")) for digit in (*digits, rest)]


def _offset(builder: Builder, digits: Sequence[Value], strides: Sequence[int]) -> Value | None:
    """The offset of an array's element of the batch; None if it is in no batch."""
    total: Value | None = None
    for digit, stride in zip(digits, strides, strict=True):
        if stride:
            part = builder.value(Mul(digit, builder.value(Constant(stride, I64))))
            total = part if total is None else builder.value(Add(total, part))
    return total
