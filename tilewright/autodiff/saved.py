"""Residuals that the author of a kernel marks with `tl.save`, and gradient kernels load.

    pre = tl.save(acc + bias)
    tl.store(pre_ptr + at, pre, mask=mask)

Such a value is loaded from the array to which it is stored, and must equal the recomputed value:

1. Each element of the array is stored once, by the program that computes it.
2. Masked-off lanes of the store are not used, except by stores under the same mask, or by a `where`
   with it that does not select them.
3. It does not depend on a running maximum, which the gradient kernel replaces by the last one.

A violated condition is an error.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import NamedTuple

from tilewright.analysis.pointers import base_of
from tilewright.autodiff.arrays import arrays_of
from tilewright.autodiff.coarsen import reached_by
from tilewright.autodiff.equivariance import InconsistentError
from tilewright.autodiff.registry import derivative_error
from tilewright.autodiff.running_maxima import (
    RunningMaximum,
    equivariances_of_results,
    find_free_maxima,
)
from tilewright.base.located import place_of
from tilewright.ir.core import Function, Op, Value
from tilewright.ir.types import is_float
from tilewright.ops.arith import Cast, Select
from tilewright.ops.control import ProgramId
from tilewright.ops.marks import Residual
from tilewright.ops.memory import Store


class Stored(NamedTuple):
    """Facts about the results that a gradient kernel may load.

    Attributes:
        names: the arrays whose elements are stored once, and not loaded after that.
        single: the axes of the grid along which there is one program.
        in_place: the arrays that are updated in place, see `in_place.py`.
    """

    names: Collection[str]
    single: Collection[int] = ()
    in_place: Collection[str] = ()


NOTHING_STORED = Stored(())


def saved_values(fn: Function, outputs: Collection[str], stored: Stored) -> dict[Value, Store]:
    """The stores of the values that are marked with `tl.save`, as far as it is known that each
    element is stored once. Both the value and its mark are in it, as rules need either.

    Args:
        outputs: the results that have gradients.
        stored: what may be loaded.

    Raises:
        CompilationError: a value cannot be loaded.
    """
    marks = [op for op in fn.walk() if isinstance(op, Residual) and op.saved]
    if not marks or not stored.names:
        return {}
    arrays = arrays_of(fn)
    results = [arg for arg, array in arrays.items() if array.name in outputs]
    maxima = list(find_free_maxima(fn, results).loops.values())
    found: dict[Value, Store] = {}
    for op in marks:
        store = next(
            (s for s in _stores_of(op) if arrays[base_of(s.ptr)].name in stored.names), None
        )
        if store is not None:
            _require_same_programs(op, store, stored.single)
            _require_lanes(op, store)
            _require_fixed(op, maxima)
            found.update(dict.fromkeys(_values(op), store))
    return found


def require_saved(fn: Function, outputs: Collection[str], stored: Stored) -> None:
    """Raise CompilationError unless all values that are marked are loaded; see `saved_values`."""
    found = saved_values(fn, outputs, stored)
    arrays = arrays_of(fn)
    for op in fn.walk():
        if not isinstance(op, Residual) or not op.saved or op.result in found:
            continue
        store = next(_stores_of(op), None)
        if store is None:
            raise derivative_error(
                op,
                "this value is marked with tl.save, but is not stored",
                "help: add tl.store(saved_ptr + …, x), in the same block, loop or branch as x = "
                'tl.save(…), and pass aux=("saved_ptr",) to grad',
            )
        raise derivative_error(
            store,
            f"the stored value is marked with tl.save, but elements of "
            f"{arrays[base_of(store.ptr)].name} may be stored more than once, or loaded",
            "help: store each element once, by one program, or omit tl.save",
        )


def _values(op: Residual) -> list[Value]:
    """A marked value: before the mark, if that is in the same region, and after it."""
    return [op.src, op.result] if op.src.region is op.parent else [op.result]


def _stores_of(op: Residual) -> Iterator[Store]:
    """The stores of a value, perhaps in another type, in the region of an op."""
    work = [op.result]
    while work:
        value = work.pop()
        for user in value.users:
            if isinstance(user, Cast) and is_float(user.result.type):
                work.append(user.result)
            elif isinstance(user, Store) and user.value is value and user.parent is op.parent:
                yield user


# -- conditions ------------------------------------------------------------------------------------


def _require_same_programs(op: Residual, store: Store, single: Collection[int]) -> None:
    """Raise if programs store the same value to different elements: it is unknown which of them a
    use in another program should load."""
    if not _axes(store.ptr) - set(single) <= _axes(op.src):
        raise derivative_error(
            store,
            "the stored value is marked with tl.save, but several programs compute the same value "
            "and store it to different elements",
            "help: omit tl.save, so that the value is recomputed",
        )


def _axes(value: Value) -> set[int]:
    """The axes of the grid on which a value depends."""
    found: set[int] = set()
    seen: set[Op] = set()
    work = [value]
    while work:
        value = work.pop()
        owner = value.op
        if owner is None:  # an argument of the function, or of a region
            region = value.region
            owner = region.parent if region is not None else None
        if owner is None or owner in seen:
            continue
        seen.add(owner)
        for inner in owner.walk():
            work += inner.operands
            if isinstance(inner, ProgramId):
                found.add(inner.axis)
    return found


def _require_lanes(op: Residual, store: Store) -> None:
    """Raise if a lane is used in which no value was stored."""
    if store.mask is None:
        return
    seen: set[Value] = set()
    work = _values(op)
    while work:
        value = work.pop()
        if value in seen:
            continue
        seen.add(value)
        for user in value.users:
            if isinstance(user, Store) and user.mask is store.mask and user.ptr is not value:
                continue
            if isinstance(user, Select) and user.condition is store.mask:
                if user.on_false is value:
                    raise _unknown_lanes(store, user)
            elif user.elementwise:
                work += user.results
            else:
                raise _unknown_lanes(store, user)


def _unknown_lanes(store: Store, user: Op) -> Exception:
    return derivative_error(
        store,
        "the stored value is marked with tl.save, but masked-off lanes of the store are used at "
        f"{place_of(user.loc, store.loc)}",
        "help: use tl.where(mask, x, 0) there, with the same mask, or store without a mask",
    )


def _require_fixed(op: Residual, maxima: Collection[RunningMaximum]) -> None:
    """Raise if a value depends on a running maximum, unless it follows the loop, and would be the
    same for any number in place of the maximum."""
    for running in maxima:
        changing = [running.index, *running.states]
        inner = [running.loop.body.args[i + 1] for i in changing]
        if op.result in reached_by([*inner, *running.replaced]) and not _is_fixed(op, running):
            raise derivative_error(
                op,
                "this value is marked with tl.save, but depends on the running maximum of the loop "
                f"at {place_of(running.loop.loc, op.loc)}, which gradient kernels replace by the "
                "last one",
                "help: omit tl.save, so that the value is recomputed",
            )


def _is_fixed(op: Residual, running: RunningMaximum) -> bool:
    if running.loop.contains(op.results[0]):
        return False
    try:
        return running.after is None and equivariances_of_results(running).is_fixed(op.src)
    except InconsistentError:
        return False
