"""Records the values of a kernel in each program, and the addresses that it accesses.

No memory is accessed: a load returns small numbers that depend on the address, so pointers may have
any value, including 64-bit offsets and offsets that wrap.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from tests.frontend.kernels import kernel_from
from tilewright.analysis.affine import Affine
from tilewright.analysis.polynomial import Atom, Iteration
from tilewright.compiler.pipeline import STEPS
from tilewright.frontend.build import build_module
from tilewright.ir import interpret as interpreter
from tilewright.ir.core import Module, Op, Region, Value
from tilewright.ir.passes import PassContext, run
from tilewright.ir.types import numpy_of, shape_of
from tilewright.ops.atomic import AtomicCAS, AtomicLoad, AtomicPoll, AtomicRMW, AtomicStore
from tilewright.ops.control import For
from tilewright.ops.memory import Load, Store

Array = np.ndarray[Any, np.dtype[Any]]
ACCESSES = (Load, Store, AtomicRMW, AtomicCAS, AtomicLoad, AtomicStore, AtomicPoll)


@dataclass(frozen=True)
class Moment:
    """A program at one execution of an access.

    Attributes:
        values: of all SSA values that have one by then; iterations too.
        addresses: that it may touch, one for each element.
        mask: which of them it touches.
    """

    op: Op
    values: Mapping[Atom, Array]
    addresses: Array
    mask: Array

    def number(self, atom: Atom) -> int:
        """The integer that an unknown of a polynomial is."""
        return int(np.ravel(self.values[atom])[0])


def kernel_ir(text: str, signature: str, **constants: Any) -> Module:
    """Tile IR of a kernel in text after the tile passes.

    Args:
        signature: the types of its run-time parameters, as "*fp32, i32"; a trailing :16 means that
            16 divides the number.
    """
    fn = kernel_from(text)
    given = iter(signature.split(","))
    types: dict[str, str] = {}
    attrs: dict[tuple[int, ...], list[Any]] = {}
    for place, name in enumerate(fn.arg_names):
        if name not in constants:
            type, _, multiple = next(given).strip().partition(":")
            types[name] = type
            if multiple:
                attrs[place,] = [["tt.divisibility", int(multiple)]]
    module = build_module(fn, types, constants, attrs, None)
    run(module, STEPS, PassContext())
    return module


Garble = Callable[[Moment, Array], Array]


class _Recording(interpreter.State):
    """A machine without memory, which notes what it computes."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.values: dict[Atom, Array] = {}
        self.moments: list[Moment] = []
        self.garble: Garble | None = None

    def run(self, region: Region, args: Sequence[Any]) -> list[Any]:
        self.values.update(zip(region.args, map(np.asarray, args), strict=True))
        if isinstance(region.parent, For):
            turn = Iteration(region.parent)
            self.values[turn] = self.values.get(turn, np.array(-1)) + 1
        return super().run(region, args)

    def _step(self, op: Op, slots: dict[Any, int]) -> Any:
        step = super()._step(op, slots)
        if isinstance(op, ACCESSES):
            return step._replace(call=self._access(op), takes_state=False)
        return step._replace(call=self._noted(op, step.call))

    def _noted(self, op: Op, call: Callable[..., Any]) -> Callable[..., Any]:
        def noted(*operands: Any) -> Any:
            if isinstance(op, For):
                self.values.pop(Iteration(op), None)
            got = call(*operands)
            self._note(op, got if isinstance(got, tuple) else (got,))
            return got

        return noted

    def _access(self, op: Any) -> Callable[..., Any]:
        def access(*operands: Any) -> Any:
            given = dict(zip(op.operands, operands, strict=True))
            pointers = np.asarray(given[op.ptr])
            mask = np.ones(pointers.shape, bool) if op.mask is None else given[op.mask]
            self.moments.append(Moment(op, dict(self.values), pointers, mask))
            if not op.results:
                return ()
            type = numpy_of(op.result.type)
            places = pointers // np.uint64(type.itemsize)
            loaded = np.asarray(places * np.uint64(7) % np.uint64(5)).astype(type)
            if self.garble is not None:
                loaded = self.garble(self.moments[-1], loaded)
            self._note(op, (loaded,))
            return loaded

        return access

    def _note(self, op: Op, results: Sequence[Any]) -> None:
        self.values.update(zip(op.results, map(np.asarray, results), strict=True))


def moments(
    module: Module, grid: Sequence[int], args: Sequence[Any], garble: Garble | None = None
) -> list[Moment]:
    """All executions of accesses, of all programs.

    Args:
        args: of all parameters; of a pointer an address.
        garble: changes the result of a load.
    """
    machines: list[_Recording] = []

    class Launched(_Recording):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            self.garble = garble
            machines.append(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(interpreter, "State", Launched)
        interpreter.interpret(module, grid, args)
    return [moment for machine in machines for moment in machine.moments]


def elements(form: Affine, value: Value, values: Mapping[Atom, Array]) -> Array:
    """The integers that a form gives for the elements of a tile, as Python's; of pointers those
    that are added to the base."""
    lengths = shape_of(value.type)
    numbers = {atom: int(np.ravel(array)[0]) for atom, array in values.items() if array.size}

    def of(polynomial: Any) -> int:
        return polynomial.value(numbers)

    total = np.full(lengths, of(form.start), object)
    for axis, stride in enumerate(form.strides):
        along = np.arange(lengths[axis]).astype(object) * of(stride)
        total = total + along.reshape([-1 if a == axis else 1 for a in range(len(lengths))])
    for coefficient, piece in form.pieces:
        array = values[piece.value].astype(object)
        # Keep the axes that run along one here, in their order, and take the first of the others.
        index = tuple(0 if axis is None else slice(None) for axis in piece.axes)
        kept = [axis for axis in piece.axes if axis is not None]
        array = np.transpose(array[index], np.argsort(kept)) if kept else array[index]
        shape = [lengths[a] if a in kept else 1 for a in range(len(lengths))]
        total = total + np.asarray(array, object).reshape(shape) * of(coefficient)
    return np.broadcast_to(total, lengths)
