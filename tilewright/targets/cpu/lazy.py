"""Lazy and root ops, and the cost of computing an element of a lazy value.

A *lazy* op is computed element by element inside the loops of its consumers: elementwise ops,
`View`s, and ops with a function in `RULES`. A *root* has loops of its own: stores, volatile loads,
reductions, assertions, and atomic updates without a result. All other ops on tiles are steps of
their own (see `plan`).
"""

from __future__ import annotations

from collections.abc import Callable, Container, Generator, Iterable, Iterator
from typing import Any

from tilewright.analysis.affine import AffineForms
from tilewright.ir.core import Op, Value, is_tile
from tilewright.ir.op_table import OpTable
from tilewright.ops import arith, atomic, debug, math, memory, reduce, shape
from tilewright.ops.view import View

MATH_COST = 20
DIVIDE_COST = 6
GATHER_COST = 10
COST_LIMIT = 32  # costs saturate here, which bounds the time to compute one

RULES: OpTable[Callable[..., Generator[Any, Any, Any]]] = OpTable("rules of elements on the CPU")
"""The computation of one element of a result, by op class; `evaluate` fills the table."""


def moves_elements(op: Op | None) -> bool:
    """Whether the op only moves elements, by a change of coordinates that depends on attributes."""
    if isinstance(op, View):
        return not op.elementwise and not isinstance(op, shape.Gather)
    return isinstance(op, shape.Join | shape.Cat)


def is_root(op: Op) -> bool:
    """Whether the op is a root of a loop nest."""
    if isinstance(op, memory.Store):
        return is_tile(op.ptr)
    if isinstance(op, memory.Load):
        return op.volatile and is_tile(op.ptr)
    if isinstance(op, debug.Assert):
        return is_tile(op.condition)
    return isinstance(op, reduce.Reduce) or is_update(op)


def is_update(op: Op) -> bool:
    """Whether the op updates the elements of a tile of pointers, and the old values are unused."""
    return isinstance(op, atomic.AtomicRMW) and is_tile(op.ptr) and not op.result.users


def is_lazy(op: Op) -> bool:
    """Whether the op is computed inside the loops of its consumers."""
    if isinstance(op, memory.Load):
        return not op.volatile
    return op.elementwise or isinstance(op, View) or type(op) in RULES


def cone(roots: Iterable[Value], kept: Container[Value]) -> Iterator[Value]:
    """These values and the lazy tile values from which they are computed, each once.

    Kept values end the traversal, unless they are among `roots`.
    """
    seen: set[Value] = set()
    for root in roots:
        stack = [root]
        while stack:
            v = stack.pop()
            if v in seen or not is_tile(v):
                continue
            seen.add(v)
            yield v
            op = v.op
            if op is not None and is_lazy(op) and (v is root or v not in kept):
                stack.extend(op.operands)


def loads_in(roots: Iterable[Value], kept: Container[Value]) -> Iterator[memory.Load]:
    """The loads that are executed by evaluating the roots."""
    for v in cone(roots, kept):
        if isinstance(v.op, memory.Load) and v not in kept:
            yield v.op


class Costs:
    """Estimated costs of values, roughly in vector instructions.

    Args:
        forms: affine forms of pointers, to tell contiguous loads from gathers.
    """

    def __init__(self, forms: AffineForms) -> None:
        self.forms = forms
        self._known: dict[Value, int] = {}

    def of(self, value: Value, kept: Container[Value]) -> int:
        """The cost of computing one element of a lazy value; saturates above `COST_LIMIT`."""
        total = 0
        for v in cone([value], kept):
            own = self._known.get(v)
            if own is None:
                own = self._known[v] = self._own(v.op)
            if own and (v is value or v not in kept):
                total += own
                if total > COST_LIMIT:
                    break
        return total

    def _own(self, op: Op | None) -> int:
        if op is None or not is_lazy(op):
            return 0
        match op:
            case math.MathFunction():
                return 1 if isinstance(op, math.ROUNDINGS) else MATH_COST
            case arith.Div() | arith.IntDiv() | arith.Rem():
                return DIVIDE_COST
            case arith.Constant():
                return 0
            case arith.Fma():
                return 2  # a product and a sum: whether they were contracted changes no estimate
            case View() if op.aligned and not isinstance(op, arith.Hint | shape.Permute):
                return 0
            case memory.Load():
                strides = self.forms.constant_strides(op.ptr)
                contiguous = 1 in strides or all(s == 0 for s in strides)
                return 1 if contiguous else GATHER_COST
            case _:
                return 1
