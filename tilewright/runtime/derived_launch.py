"""Launches of derived kernels: the parts of a plan, and the launch in Python.

A *plan* belongs to one variant of a derivative: the kernel's arguments by type, its integers and
the grid. `derivation.py` creates it, `hot_launch.py` repeats its launch in native code.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tilewright.base import knobs
from tilewright.runtime.grid import Grid
from tilewright.runtime.launch import start_with_hooks
from tilewright.runtime.partial_sums import integers_like
from tilewright.runtime.slots import at_path, slot_of
from tilewright.runtime.tensors import find_reader

if TYPE_CHECKING:
    from tilewright.autodiff.derived import Saved
    from tilewright.autodiff.tapes import Tape
    from tilewright.compiler.artifact import CompiledKernel
    from tilewright.runtime.jit import JITFunction

MOST_TAPE_BYTES = 1 << 30
Arrays = Mapping[str, Any]
Path = tuple[int, ...]
Made = tuple[str, str]
"""An argument that the launch makes: its kind, such as "partial", and a name."""


class NarrowSumError(TypeError):
    """Gradients accumulated by several programs would be rounded at each addition.

    Attributes:
        names: the inputs whose gradients need an array of fp32.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self.names = tuple(names)
        super().__init__(
            f"the gradient of {', '.join(names)} is accumulated by several programs, and has fewer "
            "than 32 bits per element: pass an array of fp32"
        )


class Request(NamedTuple):
    """The requested derivative.

    Attributes:
        mode: "reverse", "forward" or "second", the gradient of a gradient.
        kernel: the kernel.
        wrt, outputs: the arrays whose derivatives are given or computed.
        aux: arrays that are stored, and count as constants.
        in_place: arrays of `wrt` that are results, too.
        accumulate: whether gradients are added to what is in memory.
        deterministic: whether atomic additions are an error.
        atomic: the inputs to whose gradients kernels of others may add atomically.
        tape_bytes: the largest size of what loops record.
        tables: arrays of integers whose elements are known to the derivation.
        results: of forward mode, whether the kernel's own results are stored, too.
        further: what the arguments after the kernel's own are.
    """

    mode: str
    kernel: JITFunction
    wrt: tuple[str, ...]
    outputs: tuple[str, ...]
    aux: tuple[str, ...]
    in_place: tuple[str, ...]
    accumulate: bool
    deterministic: bool
    atomic: tuple[str, ...]
    tape_bytes: int
    tables: tuple[str, ...]
    results: bool
    further: tuple[Made, ...]

    @property
    def positions(self) -> dict[Made, int]:
        """Where the further arrays are among the arguments."""
        first = len(self.kernel.params)
        return {made: first + i for i, made in enumerate(self.further)}


class How(NamedTuple):
    """The treatment of the arrays of `wrt` by a launch.

    Attributes:
        accumulate: whether gradients are added to what is in memory.
        in_place: those that are results, too.
        results: of forward mode, whether the kernel's own results are stored, too.
    """

    accumulate: bool = False
    in_place: tuple[str, ...] = ()
    results: bool = True


NEW = How()
"""Gradients are written; no input is a result."""


class Launch(NamedTuple):
    """The arguments of one launch.

    Attributes:
        args, kwargs: those of the kernel.
        values, slots, key, options: what the binder returned for these and the further arrays.
        grid: the launch's extents.
        tables: the elements of the tables, see `Request`, in this order.
    """

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    values: tuple[Any, ...]
    slots: tuple[Any, ...]
    key: tuple[Any, ...]
    options: dict[str, Any]
    grid: Grid
    tables: tuple[Any, ...]


class Step(NamedTuple):
    """One of the kernels of a plan.

    Attributes:
        kernel: the compiled kernel.
        arguments: for each of its arguments where it is among those of the launch, or what makes
            it.
        grid: the extents of its grid.
        axes: those of the grid over which workers add up gradients: along the first of them there
            is a program for each worker, and one along the others.
        tapes: the buffers in which it records what loops carry.
    """

    kernel: CompiledKernel
    arguments: tuple[Path | Made, ...]
    grid: Grid
    axes: tuple[int, ...] = ()
    tapes: tuple[Tape, ...] = ()


class Part(NamedTuple):
    """One of the kernels of a launch: a step of its plan, or a reduction of the partial sums of
    workers.

    Attributes:
        kernel: the compiled kernel.
        grid: the extents of its grid.
        arguments: by parameter, where an argument is among those of the launch, what makes it, or
            a number.
    """

    kernel: CompiledKernel
    grid: Grid
    arguments: tuple[Path | Made | int, ...]


class Numbers:
    """Integers that a derived kernel loads.

    Args:
        numbers: an array of NumPy of int32.
    """

    def __init__(self, numbers: Any) -> None:
        self._numbers = numbers
        self._found: dict[Any, Any] = {}

    def like(self, array: Any) -> Any:
        """An array of them where another array is."""
        device = getattr(array, "device", None)
        if device not in self._found:
            self._found[device] = integers_like(array, self._numbers)
        return self._found[device]


class Plan(NamedTuple):
    """The launch of one variant of a derivative.

    Attributes:
        grid: the grid of the launch.
        integers: where the integers are among the arguments of the launch.
        steps: its kernels, in order.
        summed: the arrays whose gradients are added up from rows of partial sums: how many there
            are; 0 for one of each worker.
        wide: those whose partial sums are fp64; others are fp32.
        covered: by array, how many elements the kernels write, if they write each of them once and
            no others; an array with this number of elements need not be zeroed first.
        stored: the arrays that the kernel itself stores.
        overlapping: whether arrays may share memory, so that each launch compares their extents.
        text: what was decided and why, for `explain`.
        numbers: arguments that are numbers, of kernels on grids of their own and of tapes.
        saved: the buffers that the first kernel writes for these.
        places: the positions and bounds of the programs of some of these, see
            `autodiff/regrid.py`.
        groups: the arrays of `wrt`, those together that the same kernels compute.
    """

    grid: Grid
    integers: tuple[Path, ...]
    steps: tuple[Step, ...]
    summed: Mapping[str, int]
    wide: frozenset[str]
    covered: Mapping[str, int | None]
    stored: tuple[str, ...]
    overlapping: bool
    text: str
    numbers: Mapping[Made, int]
    saved: tuple[Saved, ...]
    places: Mapping[Made, Numbers]
    groups: tuple[tuple[str, ...], ...]


class Checked(NamedTuple):
    """A launch whose arrays have been checked.

    Attributes:
        plan, launch: its plan, and its arguments.
        zeroed: the arrays of `wrt` that are zeroed first.
    """

    plan: Plan
    launch: Launch
    zeroed: tuple[str, ...]


def start_part(part: Part, launch: Launch, made: Mapping[Made, Any]) -> None:
    """Launch one kernel of a plan, through Python."""
    values = [_argument(launch.values, a, made) for a in part.arguments]
    slots = [_argument(launch.slots, a, made, slot_of) for a in part.arguments]
    if knobs.launch_hooks:
        start_with_hooks(part.kernel, part.grid, values, slots)
    else:
        part.kernel.load().start(part.grid, values, slots)


def _argument(
    given: Sequence[Any], argument: Path | Made | int, made: Mapping[Made, Any],
    convert: Callable[[Any], Any] | None = None,
) -> Any:  # fmt: skip
    """An argument of the derived kernel: one of those of the launch, or one that it creates."""
    match argument:
        case (str() as kind, str() as name):
            value = made[kind, name]
            return value if convert is None else convert(value)
        case int():
            return argument
        case _:
            return at_path(given, argument)


def not_written(plan: Plan, of_wrt: Arrays) -> tuple[str, ...]:
    """The gradients of which the plan's kernels do not write all elements."""
    return tuple(
        name
        for name, array in of_wrt.items()
        if 0 in plan.grid or (name not in plan.summed and plan.covered.get(name) != size_of(array))
    )


def zero(name: str, array: Any) -> None:
    """Zero a gradient.

    Raises:
        TypeError: the array has no method for that.
    """
    if hasattr(array, "zero_"):
        array.zero_()
    elif hasattr(array, "fill"):
        array.fill(0)
    else:
        raise TypeError(
            f"the gradient of {name} cannot be zeroed, as a {type(array).__name__} has neither "
            "zero_() nor fill(): pass an array of zeros, and accumulate=True"
        )


def require_same_layout(name: str, array: Any, derivative: Any) -> None:
    """Require that a derivative is addressed like its array.

    Raises:
        TypeError: the derivative is not an array.
        ValueError: its shape or its strides differ.
    """
    if find_reader(derivative) is None:
        raise TypeError(f"the derivative of {name} is {derivative!r}, not an array")
    mine, other = _layout(array), _layout(derivative)
    if mine is not None and other is not None and mine != other:
        raise ValueError(
            f"the derivative of {name} has shape {other[0]} and strides {other[1]} (in elements); "
            f"it must be laid out like {name}, with shape {mine[0]} and strides {mine[1]}"
        )


def _layout(array: Any) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    shape: Any = getattr(array, "shape", None)
    stride_of: Any = getattr(array, "stride", None)
    if stride_of is not None:
        return tuple(shape), tuple(stride_of())
    in_bytes: Any = getattr(array, "strides", None)
    if shape is None or in_bytes is None:
        return None
    return tuple(shape), tuple(s // array.itemsize for s in in_bytes)


def size_of(array: Any) -> Any:
    """The number of elements; None if the array does not provide it."""
    try:
        return array.numel()
    except AttributeError:
        return getattr(array, "size", None)


def elements_of_table(name: str, array: Any) -> np.ndarray[Any, Any]:
    """A copy on the host of the elements of a table.

    Raises:
        TypeError: it is not a contiguous array of integers or bools.
    """
    on_host: Any = array.detach().cpu() if hasattr(array, "detach") else array
    found = np.asarray(on_host)
    if found.dtype.kind not in "iub" or not found.flags.c_contiguous:
        raise TypeError(
            f"tables has {name!r}, which is not a contiguous array of integers or bools"
        )
    return found.ravel().copy()
