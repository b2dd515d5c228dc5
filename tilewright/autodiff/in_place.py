"""Arrays that a kernel updates in place: each element is loaded, and then stored.

    y = tl.load(y_ptr + at, mask=inside)
    tl.store(y_ptr + at, y + tl.sin(x), mask=inside)

As an input, the array has its values before the launch; as a result, those after it. The two are
distinguished if no load returns a value stored by the launch:

- Each store is of the address of one load before it in the same region, under the same mask, and
  each load has one such store.
- Each element is loaded once in a launch (`distinct.py`), by the execution of a load that is
  followed by the store of that element.

Reverse mode then treats the loads as those of an input, and the stores as those of a result. The
values before the launch are overwritten: a gradient that uses them is an error (`replay.py`).
"""

from __future__ import annotations

from tilewright.analysis.blocks import BlockFinder
from tilewright.autodiff.arrays import Array
from tilewright.autodiff.distinct import distinct
from tilewright.autodiff.points import Points
from tilewright.ir.core import Function
from tilewright.ops.memory import Load, Store


def is_updated_in_place(fn: Function, array: Array, points: Points, finder: BlockFinder) -> bool:
    """Whether a launch loads each element of an array before it stores that, and not otherwise.

    Args:
        array: it is stored, and no atomics are on it.
    """
    stores = list(array.stores)
    if len(array.loads) != len(stores):
        return False
    for load in array.loads:
        own = next((store for store in stores if _follows(store, load)), None)
        if own is None:
            return False
        stores.remove(own)
    return distinct(fn, array.loads, points, finder).distinct


def _follows(store: Store, load: Load) -> bool:
    """Whether a store is of the elements of a load, and after it in the same region."""
    if store.ptr is not load.ptr or store.mask is not load.mask or load.volatile:
        return False
    region = load.parent
    order = list(region) if region is not None and store.parent is region else []
    return bool(order) and order.index(load) < order.index(store)
