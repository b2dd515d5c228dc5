"""Random and special inputs for functions of tile IR, and whether two modules do the same."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np

from tilewright.base.diagnostics import InterpreterError
from tilewright.conformance.values import floats_in as floats_in
from tilewright.conformance.values import numbers as numbers
from tilewright.conformance.values import random_array as random_array
from tilewright.conformance.values import same_bits as same_bits
from tilewright.conformance.values import special_values as special_values
from tilewright.ir.core import Function, Module, Value
from tilewright.ir.interpret import Buffer, evaluate_function
from tilewright.ir.types import (
    DType,
    Pointer,
    Tile,
    Type,
    element_of,
    numpy_of,
)

# Elements before and after those that an argument's pointer covers, for offsets of either sign.
MARGIN = 4096


def random_arguments(fn: Function, rng: np.random.Generator) -> list[Any]:
    """Values for each argument. A function with pointers receives small integers; a promised
    divisibility is kept."""
    small = any(isinstance(element_of(a.type), Pointer) for a in fn.args)
    found: list[Any] = []
    for arg, attrs in zip(fn.args, fn.arg_attrs, strict=True):
        if isinstance(arg.type, Pointer):
            found.append(_buffer(arg, rng))
        elif isinstance(element_of(arg.type), Pointer):
            raise ValueError(
                "an argument is a tile of pointers, for which there are no random values: take a "
                "scalar pointer, and make a tile of it with tile.splat and mem.addptr"
            )
        else:
            array = random_array(arg.type, rng, small=small)
            divisibility = attrs.get("divisibility", 1)
            found.append(array * np.asarray(divisibility, array.dtype) if divisibility > 1
                         else array)  # fmt: skip
    return found


def _buffer(arg: Value, rng: np.random.Generator) -> Buffer:
    assert isinstance(arg.type, Pointer)
    element = arg.type.element_ty
    assert isinstance(element, DType), "no pointers to pointers here"
    content = random_array(Tile((509,), element), rng)
    array = np.resize(content, 2 * MARGIN).astype(numpy_of(element))
    low = array.__array_interface__["data"][0]
    middle = low + MARGIN * array.dtype.itemsize
    return Buffer(middle, (low, low + array.nbytes), owner=array)


def _copied(args: list[Any]) -> list[Any]:
    """The arguments with memory of their own, at the same addresses as far as offsets go."""
    found: list[Any] = []
    for arg in args:
        if isinstance(arg, Buffer):
            array, extent = arg.owner.copy(), arg.extent
            assert extent is not None
            low = array.__array_interface__["data"][0]
            arg = Buffer(low + arg.address - extent[0], (low, low + array.nbytes), owner=array)
        found.append(arg)
    return found


def same_meaning(before: Module, after: Module, *, tries: int = 6, close: bool = False) -> str:
    """What differs between the entries of two modules on random inputs; "" if nothing does.

    Inputs that the first module rejects (an access out of bounds, say) are skipped; one at
    least must be accepted.
    """
    rng = np.random.default_rng(zlib.crc32(before.entry.name.encode()))
    rejected = ""
    accepted = 0
    for _ in range(tries):
        args = random_arguments(before.entry, rng)
        mine, theirs = _copied(args), _copied(args)
        try:
            expected = evaluate_function(before.entry, mine, module=before)
        except InterpreterError as error:
            rejected = str(error)
            continue
        accepted += 1
        actual = evaluate_function(after.entry, theirs, module=after)
        for i, (x, y) in enumerate(zip(expected, actual, strict=True)):
            if not _same_result(before.entry.result_types[i], x, y, mine, theirs, close):
                return f"result {i} was {x}, is {y}, for the arguments {args}"
        for i, (x, y) in enumerate(zip(mine, theirs, strict=True)):
            if isinstance(x, Buffer) and not same_bits(x.owner, y.owner, close=close):
                return f"what argument {i} points to differs, for the arguments {args}"
    return "" if accepted else f"no input could be evaluated: {rejected}"


def _same_result(
    type: Type, x: Any, y: Any, mine: list[Any], theirs: list[Any], close: bool
) -> bool:
    if not isinstance(element_of(type), Pointer):
        return same_bits(np.asarray(x), np.asarray(y), close=close)
    # The two ran on copies of the memory: an address counts by its distance from an argument.
    distances = [
        int(b.address) - int(a.address)
        for a, b in zip(mine, theirs, strict=True)
        if isinstance(a, Buffer)
    ]
    moved = [np.asarray(x) + np.array(d % 2**64, np.uint64) for d in distances] or [np.asarray(x)]
    return any(np.array_equal(m, np.asarray(y)) for m in moved)
