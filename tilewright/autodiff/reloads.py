"""Stored values that gradient kernels load instead of repeating a reduction.

    mean = tl.sum(x) / n                        # from the array, in the gradient kernel
    rstd = 1 / tl.sqrt(variance + epsilon)      # likewise, and the root is 1 / rstd
    tl.store(mean_ptr + row, mean)
    tl.store(rstd_ptr + row, rstd)

A store preserves a value if it is neither converted nor masked. A load is cheaper than recomputing
the value if that takes a reduction of a much larger tile. Values that are compared with others are
recomputed together with them: the kernel that stored them may have rounded differently, and then no
element of a row would equal its maximum. Likewise, the root is not 1 / rstd if it is used in a
condition (`smooth.py`). Results of loops are left to `residuals.py`: they may depend on a running
maximum, which the gradient may replace.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from math import prod
from typing import NamedTuple

from tilewright.analysis.pointers import base_of
from tilewright.autodiff.memo import once_for_each_value
from tilewright.autodiff.smooth import is_used_smoothly
from tilewright.ir.builder import Builder
from tilewright.ir.core import Function, Op, Value
from tilewright.ir.types import is_float, shape_of
from tilewright.ops import arith
from tilewright.ops.control import For, While
from tilewright.ops.dot import Dot
from tilewright.ops.memory import Load, Store
from tilewright.ops.reduce import Reduce, Scan
from tilewright.ops.view import View

FEWER = 16  # times the elements of the largest tile that is reduced


class Reload(NamedTuple):
    """A value in memory.

    Attributes:
        store: the store that keeps it, or its reciprocal.
        numerator: the constant that is divided by what is stored; None for that itself.
    """

    store: Store
    numerator: Value | None = None


def find_reloads(fn: Function, stored: Collection[Value]) -> dict[Value, Reload]:
    """The values that are cheaper to load than to recompute.

    Args:
        stored: the arrays that the kernel only stores, each element once.
    """
    found: dict[Value, Reload] = {}
    for store in fn.walk():
        if not isinstance(store, Store) or not _keeps_value(store, stored):
            continue
        value = store.value
        if not is_costly(value) or _depends_on_loop(value) or _is_compared(value):
            continue
        found[value] = Reload(store)
        op = value.op
        if isinstance(op, arith.Div) and _has_inverse(op.lhs) and is_used_smoothly(op.rhs, but=op):
            found[op.rhs] = Reload(store, op.lhs)
    return found


def _has_inverse(numerator: Value) -> bool:
    """Whether the quotient of a number determines its divisor."""
    number = arith.constant_value(numerator)
    return number is not None and math.isfinite(number) and number != 0


def _keeps_value(store: Store, stored: Collection[Value]) -> bool:
    """Whether a store leaves a float that its region computes in memory, in all lanes."""
    value = store.value
    return (
        is_float(value.type)
        and _is_unmasked(store)
        and base_of(store.ptr) in stored
        and value.region is store.parent
        and value.op is not None
    )


@once_for_each_value
def _is_compared(value: Value) -> bool:
    """Whether it is compared with other values, perhaps with each element of a tile, or their
    difference is."""
    return any(
        any(map(_is_compared, op.results))
        if isinstance(op, View | arith.Cast | arith.Sub | arith.Neg)
        else isinstance(op, arith.Cmp | arith.Max | arith.Min)
        for op in value.users
    )


def _is_unmasked(store: Store) -> bool:
    return store.mask is None


def is_costly(value: Value) -> bool:
    """Whether computing a value takes a loop, or reduces tiles with many more elements."""
    most = FEWER * prod(shape_of(value.type))
    seen: set[Op] = set()
    work = [value]
    while work:
        op = work.pop().op
        if op is None or op in seen or isinstance(op, Load):
            continue
        seen.add(op)
        if isinstance(op, For | While):
            return True
        reduces = isinstance(op, Reduce | Scan | Dot)
        if reduces and any(prod(shape_of(v.type)) >= most for v in op.operands):
            return True
        work += op.operands
    return False


def _depends_on_loop(value: Value) -> bool:
    """Whether a value is computed from loop-carried values, possibly by a branch."""
    seen: set[Value] = set()
    work = [value]
    while work:
        value = work.pop()
        op = value.op
        if value in seen:
            continue
        seen.add(value)
        is_nested = op is not None and bool(op.regions) and not isinstance(op, Reduce | Scan)
        if is_nested or (op is None and _is_in_loop(value)):
            return True
        work += op.operands if op is not None else ()
    return False


def _is_in_loop(value: Value) -> bool:
    region = value.region
    return region is not None and isinstance(region.parent, For | While)


def emit_reload(reload: Reload, builder: Builder, plain: Callable[[Value], Value]) -> Value:
    """The value, loaded.

    Args:
        plain: a value of the kernel, here.
    """
    loaded = builder.value(Load(plain(reload.store.ptr), None, None, "", "", False))
    if reload.numerator is None:
        return loaded
    return builder.value(arith.Div(plain(reload.numerator), loaded, False))
