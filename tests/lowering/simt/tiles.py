"""Kernels that load tiles, transform them, and store the results.

    check(lambda b, x, y: [b.value(Add(x, y))], [Tile((4, 8), FP32)] * 2)

A tile lies in memory row by row, or column by column where its number is in `columns`: so it comes
to the kernel in another layout.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Collection, Sequence
from math import prod
from typing import NamedTuple

import numpy as np

from tests.arrays import copied
from tests.gpu_machine import EMULATOR
from tests.ir_values import random_array
from tests.lowering.simt.harness import compare, run_emulated
from tilewright.ir.builder import Builder
from tilewright.ir.core import Function, Module, Value
from tilewright.ir.interpret import interpret
from tilewright.ir.printer import print_module
from tilewright.ir.types import (
    DType,
    Pointer,
    Tile,
    Type,
    dtype_of,
    shape_of,
)
from tilewright.ir.verify import verify_module
from tilewright.ops.arith import Constant
from tilewright.ops.control import Return
from tilewright.ops.memory import AddPtr, Load, Store
from tilewright.ops.shape import Arange, Permute, Reshape, Splat

Build = Callable[..., Sequence[Value]]


class Threads(NamedTuple):
    """How many run a program."""

    warps: int
    lanes: int


# One of everything, several of everything, GPUs' own numbers of lanes, more threads than elements.
THREADS = (
    Threads(1, 1),
    Threads(2, 4),
    Threads(4, 8),
    Threads(1, 32),
    Threads(4, 32),
    Threads(2, 64),
)


# Of arrays, in bytes: what a launch finds out of its arguments, and vectors need.
ALIGNMENT = 16

ONE = (1, 1, 1)


def offsets(b: Builder, shape: Sequence[int], column: bool) -> Value:
    """The place of each element of a tile in memory."""
    count = prod(shape)
    counted = b.value(Arange(0, count))
    if not column:
        return b.value(Reshape(counted, tuple(shape)))
    turned = b.value(Reshape(counted, tuple(reversed(shape))))
    return b.value(Permute(turned, tuple(reversed(range(len(shape))))))


def pointers(b: Builder, array: Value, shape: Sequence[int], column: bool = False) -> Value:
    """Pointers to the elements of a tile in an array; the array's own for a scalar."""
    if not shape:
        return array
    start = b.value(Splat(array, tuple(shape)))
    return b.value(AddPtr(start, offsets(b, shape, column)))


def load(b: Builder, ptr: Value) -> Value:
    return b.value(Load(ptr, None, None, "", "", False))


def tile_kernel(build: Build, sources: Sequence[Type], columns: Collection[int] = ()) -> Module:
    """A kernel of one array for each source, then one for each value that `build` returns."""
    aligned = {"divisibility": ALIGNMENT}
    params: list[Type] = [Pointer(dtype_of(t)) for t in sources]
    fn = Function("kernel", params, arg_attrs=[dict(aligned) for _ in params])
    b = Builder(fn.body)
    arrays = list(fn.args)
    loaded = [
        load(b, pointers(b, array, shape_of(type), i in columns))
        for i, (array, type) in enumerate(zip(arrays, sources, strict=True))
    ]
    for value in build(b, *loaded):
        out = fn.body.add_arg(Pointer(dtype_of(value.type)))
        fn.arg_attrs.append(dict(aligned))
        b.insert(Store(pointers(b, out, shape_of(value.type)), value, None, "", ""))
    b.insert(Return([]))
    module = Module([fn])
    verify_module(module)
    return module


def arguments(module: Module, sources: Sequence[Type], seed: int) -> list[np.ndarray]:
    """Random arrays for the sources, and zeros for the results."""
    rng = np.random.default_rng(seed)
    found = [random_array(Tile((max(1, prod(shape_of(t))),), dtype_of(t)), rng) for t in sources]
    for out in module.entry.args[len(sources) :]:
        stores = [op for op in module.walk() if isinstance(op, Store) and _is_into(op, out)]
        (count,) = {prod(shape_of(op.value.type)) for op in stores}
        found.append(np.zeros(max(1, count), dtype_of(stores[0].value.type).numpy))
    return found


def _is_into(store: Store, array: Value) -> bool:
    ptr: Value | None = store.ptr
    while ptr is not None and ptr is not array:
        ptr = ptr.op.operands[0] if ptr.op is not None else None
    return ptr is array


def check(
    build: Build,
    sources: Sequence[Type],
    *,
    threads: Sequence[Threads] | None = None,
    columns: Collection[int] = (),
    close: bool = False,
    name: str = EMULATOR,
) -> None:
    """The emulated GPU and the interpreter must agree, for any number of threads.

    Args:
        threads: by default every second of `THREADS`, for half of the kernels those between.
    """
    module = tile_kernel(build, sources, columns)
    if threads is None:
        threads = THREADS[zlib.crc32(print_module(module).encode()) % 2 :: 2]
    args = arguments(module, sources, seed=1)
    expected = copied(args)
    interpret(module, ONE, expected)
    for warps, lanes in threads:
        found = copied(args)
        run_emulated(module, ONE, found, warps=warps, lanes=lanes, name=name)
        try:
            compare(found, expected, close=close)
        except AssertionError as error:
            raise AssertionError(f"{warps} warps of {lanes} lanes: {error}") from error


def tile(element: DType, *shape: int) -> Type:
    return Tile(shape, element) if shape else element


def splat(b: Builder, number: int | float, like: Value) -> Value:
    """A constant of the type of a value."""
    return b.value(Constant(number, like.type))
