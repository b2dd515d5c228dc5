"""Narrows loads in which runs of elements have equal addresses: each address is loaded once.

    w = load(p + arange(0, 64) // 8)      becomes      v = load(p + arange(0, 8))
                                                       w = each element of v 8 times

Kernels with 4-bit weights load a tile of words in which groups of eight rows are equal, and shift
each row by a different count. Loaded once, a word takes one access and one register of a thread.

Input: tile IR with pointers in canonical form, extents that are powers of two. Output: the same
effects; dead ops are left to dce. Runs are those of `axis_info`. A load qualifies if its pointers
and masks can be computed for every n-th index; the new ops are placed next to the old ones, so that
hoisted ops stay hoisted. Linear in the size of the function times the number of narrowed loads.
"""

from __future__ import annotations

from math import prod

from tilewright.analysis.axis_info import AxisMap, axis_info
from tilewright.ir.core import Function, Op, Value
from tilewright.ir.index_map import Along
from tilewright.ir.passes import PassContext, compiler_pass
from tilewright.ir.rewriter import insert_before
from tilewright.ir.types import Tile, element_of, shape_of
from tilewright.ops.arith import Add, Constant, Hint, IntDiv, Mul, Shr, constant_value
from tilewright.ops.memory import Load
from tilewright.ops.shape import Arange, Broadcast, Reshape, Splat, broadcast_along
from tilewright.ops.view import View

NAME = "narrow_loads"


@compiler_pass(NAME)
def narrow_loads(fn: Function, ctx: PassContext) -> bool:
    """Load each address of a tile once; see the module docstring."""
    infos = axis_info(fn)
    count = 0
    for op in list(fn.walk()):
        if isinstance(op, Load) and isinstance(op.result.type, Tile) and not op.volatile:
            count += _narrow(op, infos, ctx)
    ctx.count("narrowed", count)
    return count > 0


def _narrow(load: Load, infos: AxisMap, ctx: PassContext) -> bool:
    """Narrow a load along the axis with the longest runs, if each thread then still has an address:
    otherwise threads hold copies of it anyway. An axis of equal addresses only is left to
    broadcasts."""
    shape = shape_of(load.result.type)
    runs = {axis: _run(load, axis, infos) for axis in range(len(shape))}
    axis = max((a for a in runs if runs[a] < shape[a]), key=runs.__getitem__, default=None)
    if axis is None or runs[axis] == 1 or prod(shape) // runs[axis] < ctx.gpu.threads:
        return False
    every = _EveryNth(runs[axis], infos)
    try:
        ptr, mask, other = (v and every.of(v, axis) for v in (load.ptr, load.mask, load.other))
    except _Unknown:
        every.undo()
        return False
    assert ptr is not None
    narrow = Load(ptr, mask, other, **load.attributes)
    ctx.did(NAME, f"loads one of {runs[axis]} equal elements along axis {axis}", load.loc)
    load.result.replace_with(_repeated(_before(load, narrow), load, axis, runs[axis]))
    load.erase()
    return True


def _run(load: Load, axis: int, infos: AxisMap) -> int:
    """The length of the runs along an axis in which pointers, masks and others are equal."""
    return min(infos[v].constancy[axis] for v in load.operands)


def _repeated(value: Value, load: Load, axis: int, times: int) -> Value:
    """Each element of a tile several times, computed before the load."""
    shape = shape_of(value.type)
    lengths = (*shape[: axis + 1], times, *shape[axis + 1 :])
    copies = broadcast_along(lambda op: _before(load, op), value, (axis + 1,), lengths)
    return _before(load, Reshape(copies, shape_of(load.result.type)))


class _Unknown(Exception):
    """A value of which every n-th element cannot be computed by itself."""


class _EveryNth:
    """Computes values at every `step`-th index along an axis of theirs.

    Attributes:
        made: the values so far, by the value and the axis.
    """

    def __init__(self, step: int, infos: AxisMap) -> None:
        self.step = step
        self.infos = infos
        self.made: dict[tuple[Value, int], Value] = {}

    def of(self, value: Value, axis: int) -> Value:
        """Raises `_Unknown` if it cannot be computed."""
        if (value, axis) not in self.made:
            if value.op is None:
                raise _Unknown
            self.made[value, axis] = self._computed(value.op, axis)
        return self.made[value, axis]

    def undo(self) -> None:
        """Erase the unused ops among the newly created ones."""
        for value in reversed(self.made.values()):
            if value.op is not None and not any(r.users for r in value.op.results):
                value.op.erase()

    def _computed(self, op: Op, axis: int) -> Value:
        shape = self._shape(op.results[0], axis)
        match op:
            case Constant():
                return _before(op, Constant(op.value, Tile(shape, element_of(op.type))))
            case Splat():
                return _before(op, Splat(op.src, shape))
            case Arange():
                return self._arange(op)
            case Broadcast():
                one = shape_of(op.src.type)[axis] == 1
                return _before(op, Broadcast(op.src if one else self.of(op.src, axis), shape))
            case Reshape() if op.aligned:
                return _before(op, Reshape(self._source_of(op, axis), shape))
            case View() if op.aligned and op.moves_all:
                return _before(op, type(op)(self._source_of(op, axis), **op.attributes))
            case Hint():
                return self.of(op.operands[0], axis)
            case IntDiv() | Shr() if self._counts_runs(op):
                return self._quotient(op)
            case _ if op.elementwise and op.pure and not op.regions:
                operands = [self.of(v, axis) for v in op.operands]
                return _before(op, type(op)(*operands, **op.attributes))
            case _:
                raise _Unknown

    def _source_of(self, op: View, axis: int) -> Value:
        found = op.index_maps()[0]
        if found is None or Along(axis) not in found.axes:
            raise _Unknown
        return self.of(op.src, found.axes.index(Along(axis)))

    def _shape(self, value: Value, axis: int) -> tuple[int, ...]:
        shape = shape_of(value.type)
        return (*shape[:axis], shape[axis] // self.step, *shape[axis + 1 :])

    def _arange(self, op: Arange) -> Value:
        count = (op.end - op.start) // self.step
        first = _before(op, Arange(0, count))
        step, start = (_before(op, Constant(n, first.type)) for n in (self.step, op.start))
        return _before(op, Add(_before(op, Mul(first, step)), start))

    def _counts_runs(self, op: IntDiv | Shr) -> bool:
        """Whether a quotient numbers the runs: (start + 0, start + 1, …) // step, with a start that
        is a multiple of the step."""
        divisor = constant_value(op.operands[1])
        if divisor is None or (1 << int(divisor) if isinstance(op, Shr) else divisor) != self.step:
            return False
        terms = _terms(op.operands[0])
        return terms is not None and all(
            (v.op.start if isinstance(v.op, Arange) else self.infos[v].divisibility[0]) % self.step
            == 0
            for v in terms
        )

    def _quotient(self, op: IntDiv | Shr) -> Value:
        """The numbers of the runs, which are consecutive: quotients would hide that."""
        result: Value | None = None
        for value in _terms(op.operands[0]) or ():
            term = value.op
            if isinstance(term, Arange):
                narrow = _before(op, Arange(term.start // self.step, term.end // self.step))
            else:
                assert isinstance(term, Splat)
                divisor = constant_value(op.operands[1])
                assert divisor is not None
                divisor = _before(op, Constant(divisor, term.src.type))
                start = _before(op, type(op)(term.src, divisor))
                narrow = _before(op, Splat(start, self._shape(value, 0)))
            result = narrow if result is None else _before(op, Add(result, narrow))
        assert result is not None
        return result


def _terms(value: Value) -> tuple[Value, ...] | None:
    """The range, and the repeated scalar if there is one, whose sum is the value."""
    terms = tuple(value.op.operands) if isinstance(value.op, Add) else (value,)
    ranges = sum(isinstance(term.op, Arange) for term in terms)
    scalars = sum(isinstance(term.op, Splat) for term in terms)
    return terms if ranges == 1 and ranges + scalars == len(terms) else None


def _before(op: Op, new: Op) -> Value:
    return insert_before(new, op).result
