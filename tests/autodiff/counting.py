"""A kernel that counts how often elements of an array are loaded: the reference of `distinct.py`.

It is the kernel with an atomic addition of 1 at each load of the array, at the same address and
under the same mask, and without its stores. It costs a launch, but it needs no proof, and holds for
addresses of any kind.
"""

from __future__ import annotations

from tilewright.autodiff.arrays import Array, Rebase, arrays_of
from tilewright.ir.builder import Builder
from tilewright.ir.core import Module, Value
from tilewright.ir.types import I32, Pointer, Tile, shape_of
from tilewright.ops.arith import Constant
from tilewright.ops.atomic import AtomicRMW


def counting_kernel(module: Module, name: str, *, stores: bool = False) -> Module:
    """The kernel that adds 1 to element i of its last argument, of i32, for each load of element i
    of an array; or for each store.

    Args:
        name: the array.
    """
    fn = module.clone().entry
    fn.name = f"{fn.name}_count"
    arrays = arrays_of(fn)
    array = next(a for a in arrays.values() if a.name == name)
    fn.arg_names.append(f"{name}_count")
    fn.arg_attrs.append({})
    counts = fn.body.add_arg(Pointer(I32))
    _count(array, counts, stores)
    for other in arrays.values():
        for op in other.stores:
            op.erase()
    return Module([fn])


def _count(array: Array, counts: Value, stores: bool) -> None:
    builder = Builder()
    rebase = Rebase(builder, lambda value: value)
    for op in array.stores if stores else array.loads:
        with builder.before(op):
            lengths = shape_of(op.ptr.type)
            one = builder.value(Constant(1, Tile(lengths, I32) if lengths else I32))
            pointer = rebase(op.ptr, counts)
            builder.insert(AtomicRMW(pointer, one, op.mask, kind="add", sem="relaxed", scope="gpu"))
