"""The reference interpreter: executes tile IR on NumPy, through the `evaluate` or `execute` of ops.

    x, y = np.arange(8.0, dtype=np.float32), np.zeros(8, np.float32)
    interpret(module, grid=(2,), args=[x, y, 8])

Compiled code must agree with it. Programs run sequentially, each to completion, so a program that
waits for a later one deadlocks; kernels must not rely on programs running concurrently.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from tilewright.base.diagnostics import DeviceAssertionError, InterpreterError
from tilewright.base.record import replace
from tilewright.ir.core import Function, Module, Op, Region
from tilewright.ir.memory import Buffer, Checks, Memory
from tilewright.ir.numbers import array_of, with_numbers
from tilewright.ir.types import (
    DType,
    Pointer,
    Tile,
    Type,
    dtype_of,
    numpy_of,
    shape_of,
    text_of,
)

__all__ = ["Buffer", "Checks", "State", "evaluate_function", "interpret"]

Array = np.ndarray[tuple[Any, ...], np.dtype[Any]]


class _Out(NamedTuple):
    """The frame slot of a result, and its expected element type and shape."""

    slot: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]


class _Step(NamedTuple):
    """An op prepared for execution; `inputs` are the frame slots of its operands."""

    op: Op
    call: Callable[..., Any]
    takes_state: bool
    inputs: tuple[int, ...]
    outputs: tuple[_Out, ...]


class _Code(NamedTuple):
    """A region prepared for execution.

    Attributes:
        params: the frame slots of its arguments.
        steps: its ops, without the terminator.
        yields: the frame slots of the terminator's operands.
        vectorises: whether all ops are elementwise on scalars, so that the region can be evaluated
            on arrays.
    """

    params: tuple[int, ...]
    steps: tuple[_Step, ...]
    yields: tuple[int, ...]
    vectorises: bool


class _Once:
    """An op without operands, whose value is the same in all programs: evaluated at most once."""

    def __init__(self, evaluate: Callable[[], Any]) -> None:
        self.evaluate = evaluate
        self.value: Any = None

    def __call__(self) -> Any:
        if self.value is None:
            self.value = self.evaluate()
        return self.value


class _OverflowChecked:
    """An op on integers that raises OverflowError instead of wrapping."""

    def __init__(self, op: Op) -> None:
        self.op = op
        self.type = dtype_of(op.results[0].type)

    def __call__(self, *operands: Array) -> Any:
        exact = self.op.exact(*operands)
        if exact is not None:
            low, high = self.type.get_int_min_value(), self.type.get_int_max_value()
            outside = (exact < low) | (exact > high)
            if outside.any():
                raise OverflowError(self._message(exact, outside))
        return self.op.evaluate(*operands)

    def _message(self, exact: Array, outside: Array) -> str:
        first = np.unravel_index(int(np.argmax(outside)), outside.shape)
        lane = f"lane {tuple(int(i) for i in first)}" if first else "it"
        return (
            f"overflow: {lane} gives {int(exact[first])}, which {text_of(self.type)} does not "
            "hold; give an operand more bits first, as `.to(tl.int64)` does"
        )


class State:
    """The state of the abstract machine, passed to `Op.execute`.

    Attributes:
        program_id: the index of the current program along each of the three axes.
        grid: the extent of the launch along each of the three axes.
        blocks: likewise, of the blocks of threads that run the programs (`gpu.block_id`); one of
            them is then the current program.
        memory: see `ir/memory.py`.
    """

    def __init__(
        self,
        module: Module,
        memory: Memory | None = None,
        grid: Sequence[int] = (1, 1, 1),
        blocks: Sequence[int] | None = None,
    ) -> None:
        self.module = module
        self.memory = memory or Memory()
        self.grid = tuple(grid)
        self.blocks = tuple(blocks or grid)
        self.program_id: tuple[int, int, int] = (0, 0, 0)
        self.turns: Any = None  # of the roles that run at the same time (`ir/turns.py`)
        self._codes: dict[Region, _Code] = {}
        self._sizes: dict[str, int] = {}
        self._frame: list[Any] = []

    # -- called by ops --------------------------------------------------------------------------

    def run(self, region: Region, args: Sequence[Any]) -> list[Array]:
        """Run a region and return the values of its terminator's operands."""
        code = self._codes[region]
        frame = self._frame
        for slot, arg in zip(code.params, args, strict=True):
            frame[slot] = arg
        self._execute(code, check_shapes=True)
        return [frame[slot] for slot in code.yields]

    def run_vectorised(
        self, region: Region, arrays: Sequence[Array], shape: tuple[int, ...]
    ) -> list[Array]:
        """Run a region with scalar arguments on each element of arrays of this shape.

        Each op is one NumPy operation if all of them are elementwise; otherwise the region runs
        once per element.
        """
        code = self._codes[region]
        if not code.vectorises:
            return self._run_each(region, arrays, shape)
        frame = self._frame
        for slot, array in zip(code.params, arrays, strict=True):
            frame[slot] = array
        self._execute(code, check_shapes=False)
        return [np.broadcast_to(frame[slot], shape) for slot in code.yields]

    def call(self, name: str, args: Sequence[Any]) -> list[Array]:
        """Call a function of the module and return its results.

        Raises:
            LookupError: the module has no function of this name.
        """
        function = self.module.functions.get(name)
        if function is None:
            raise LookupError(f"there is no function @{name} in the module")
        if name not in self._sizes:
            self._prepare(function)
        saved = self._frame
        self._frame = [None] * self._sizes[name]
        try:
            return self.run(function.body, args)
        finally:
            self._frame = saved

    # -- execution ------------------------------------------------------------------------------

    def _execute(self, code: _Code, check_shapes: bool) -> None:
        frame = self._frame
        step = None
        try:
            for step in code.steps:
                _, call, takes_state, inputs, outputs = step
                operands = [frame[slot] for slot in inputs]
                results = call(self, *operands) if takes_state else call(*operands)
                if type(results) is not tuple:
                    results = (results,)
                for (slot, dtype, shape), value in zip(outputs, results, strict=True):
                    array = np.asarray(value)
                    if array.dtype != dtype or (check_shapes and array.shape != shape):
                        raise TypeError(
                            f"`evaluate` returned {array.dtype} of shape {array.shape}, but the "
                            f"result type is {dtype} of shape {shape}"
                        )
                    frame[slot] = array
        except (InterpreterError, DeviceAssertionError):
            raise
        except Exception as error:
            assert step is not None
            operands = [frame[slot] for slot in step.inputs]
            raise self._failure(step.op, operands, error) from error

    def _run_each(
        self, region: Region, arrays: Sequence[Array], shape: tuple[int, ...]
    ) -> list[Array]:
        outs = [np.zeros(shape, numpy_of(v.type)) for v in region.terminator.operands]
        for index in np.ndindex(shape):
            results = self.run(region, [np.asarray(a[index]) for a in arrays])
            for out, value in zip(outs, results, strict=True):
                out[index] = value
        return outs

    def _failure(self, op: Op, operands: list[Any], error: Exception) -> InterpreterError:
        reason = str(error) or type(error).__name__
        lines = [f"{op.loc}: {op.name}: {reason}" if op.loc else f"{op.name}: {reason}"]
        lines.append(f"  in program {self.program_id} of the grid {self.grid}")
        for i, (value, array) in enumerate(zip(op.operands, operands, strict=True)):
            lines.append(f"  operand {i}: {text_of(value.type)} = {_excerpt(array)}")
        return InterpreterError("\n".join(lines))

    # -- preparation ----------------------------------------------------------------------------

    def _prepare(self, function: Function) -> None:
        """Assign frame slots to the function's values and prepare its regions."""
        slots: dict[Any, int] = {}
        self._prepare_region(function.body, slots)
        self._sizes[function.name] = len(slots)

    def _prepare_region(self, region: Region, slots: dict[Any, int]) -> None:
        for arg in region.args:
            slots[arg] = len(slots)
        steps: list[_Step] = []
        for op in region:
            for nested in op.regions:
                self._prepare_region(nested, slots)
            for result in op.results:
                slots[result] = len(slots)
            if not op.terminator:
                steps.append(self._step(op, slots))
        self._codes[region] = _Code(
            params=tuple(slots[a] for a in region.args),
            steps=tuple(steps),
            yields=tuple(slots[v] for v in region.terminator.operands),
            vectorises=all(_is_scalar_elementwise(step.op) for step in steps),
        )

    def _step(self, op: Op, slots: dict[Any, int]) -> _Step:
        # The state is passed at each call instead of being bound here: the reference cycle would
        # keep the arguments alive.
        takes_state = _needs_state(op)
        call = op.execute if takes_state else with_numbers(op)
        if not takes_state and not op.operands:
            call = _Once(call)
        if self.memory.checks.overflow and type(op).exact is not Op.exact:
            call = _OverflowChecked(op)
        outputs = tuple(_Out(slots[r], numpy_of(r.type), shape_of(r.type)) for r in op.results)
        return _Step(op, call, takes_state, tuple(slots[v] for v in op.operands), outputs)


def _needs_state(op: Op) -> bool:
    return type(op).execute is not Op.execute


def _is_scalar_elementwise(op: Op) -> bool:
    tiles = any(isinstance(r.type, Tile) for r in op.results)
    return op.elementwise and not (tiles or op.regions or _needs_state(op))


def _excerpt(array: Any) -> str:
    """The abbreviated value on one line, for messages."""
    text = np.array2string(np.asarray(array), threshold=8, edgeitems=3, max_line_width=1000)
    return " ".join(text.split())


def interpret(
    module: Module,
    grid: int | Sequence[int],
    args: Sequence[Any],
    *,
    checks: Checks | None = None,
    seed: int | None = None,
    reachable: Sequence[Any] = (),
    blocks: int | Sequence[int] | None = None,
) -> None:
    """Run the module's entry for every program of the grid, x fastest.

    Args:
        module: verified tile IR at any stage.
        grid: the extent on one to three axes.
        args: one for each argument of the entry. For a pointer: an array, of which the pointer
            is the address of the first element, for any strides; a `Buffer`; or an int, the
            address of memory of unknown extent (0 is null). Otherwise a number, or an array of the
            argument's type and shape. Arrays are written in place.
        checks: the errors to detect; by default, accesses out of bounds.
        seed: shuffle the order of the programs with this seed, to find kernels that depend on it.
        reachable: further arrays or buffers that the kernel reaches through pointers in memory.
        blocks: the extent of the launch in blocks of threads, of a module whose blocks loop over
            programs (`gpu.block_id`); by default as many as programs.

    Raises:
        InterpreterError: an op failed, or a check detected an error; the message names the source
            line, the program and the operands.
        TypeError: the arguments do not match the parameters of the entry.
    """
    extents = _grid(grid)
    launched = extents if blocks is None else _grid(blocks)
    programs = list(_programs(launched))
    if seed is not None:
        random.Random(seed).shuffle(programs)
    with np.errstate(all="ignore"):
        values, buffers = _bind(module.entry, args, reachable)
        state = State(module, Memory(buffers, checks, launched), extents, launched)
        for x, y, z in programs:
            state.program_id = x, y, z
            state.memory.begin_program((x, y, z))
            state.call(module.entry.name, values)


def evaluate_function(
    fn: Function,
    args: Sequence[Any],
    *,
    module: Module | None = None,
    reachable: Sequence[Any] = (),
) -> list[Array]:
    """Call a function in a grid of one program and return its results.

    Args:
        fn: the function; it may read and write memory.
        args: as for `interpret`.
        module: the module of the functions that it calls; by default a module of `fn` alone.
        reachable: arrays or buffers that it may access besides those of the arguments.

    >>> from tilewright.ir.parser import parse_module
    >>> from tilewright.ops import arith
    >>> text = '''func @twice(%0: i32) -> i32 {
    ...   %1 = arith.add %0, %0 : (i32, i32) -> i32
    ...   control.return [%1] : i32 -> ()
    ... }'''
    >>> evaluate_function(parse_module(text).entry, [21])
    [array(42, dtype=int32)]
    """
    with np.errstate(all="ignore"):
        values, buffers = _bind(fn, args, reachable)
        state = State(module or Module([fn]), Memory(buffers))
        return state.call(fn.name, values)


def _grid(grid: int | Sequence[int]) -> tuple[int, int, int]:
    axes = (grid,) if isinstance(grid, int) else tuple(grid)
    if not 1 <= len(axes) <= 3 or any(n < 0 for n in axes):
        raise TypeError(f"a grid has one to three extents of 0 or more, not {axes}")
    x, y, z = (*axes, 1, 1)[:3]
    return int(x), int(y), int(z)


def _programs(grid: tuple[int, int, int]) -> Iterator[tuple[int, int, int]]:
    for z, y, x in product(range(grid[2]), range(grid[1]), range(grid[0])):
        yield x, y, z


def _bind(
    fn: Function, args: Sequence[Any], reachable: Sequence[Any]
) -> tuple[list[Array], list[Buffer]]:
    """The values of the arguments, and the buffers that they point to."""
    if len(args) != len(fn.args):
        raise TypeError(f"@{fn.name} takes {len(fn.args)} arguments, not {len(args)}")
    names = fn.arg_names or [""] * len(args)
    values: list[Array] = []
    buffers = [a if isinstance(a, Buffer) else Buffer.of(a) for a in reachable]
    for i, (value, arg) in enumerate(zip(args, fn.args, strict=True)):
        name = f"argument {i} `{names[i]}`" if names[i] else f"argument {i}"
        if isinstance(arg.type, Pointer):
            buffer = _buffer(value, arg.type, name)
            if buffer is not None:
                buffers.append(buffer)
            values.append(np.array(buffer.address if buffer else 0, np.uint64))
        else:
            values.append(_number(value, arg.type, name))
    return values, buffers


def _buffer(value: Any, type: Pointer, name: str) -> Buffer | None:
    if isinstance(value, Buffer):
        return value if value.name else replace(value, name=name)
    if isinstance(value, int | np.integer):
        return Buffer(int(value), name=name) if value else None
    if not isinstance(value, np.ndarray):
        raise TypeError(
            f"{name} is {text_of(type)}: takes an array, a Buffer or an address, not {value!r}"
        )
    size = type.element_ty.nbytes_in_memory
    if value.dtype.itemsize != size:
        raise TypeError(
            f"{name} is {text_of(type)}, whose elements have {size} bytes; those of "
            f"the array, {value.dtype}, have {value.dtype.itemsize}"
        )
    return Buffer.of(value, name=name)


def _number(value: Any, type: Type, name: str) -> Array:
    """The argument as an array of the type, from a Python or NumPy scalar that the type can
    represent, or from an array of the same element type and shape."""
    shape, dtype = shape_of(type), numpy_of(type)
    if isinstance(value, np.ndarray):
        if value.dtype != dtype or value.shape != shape:
            raise TypeError(f"{name} is {text_of(type)}, not {value.dtype} of shape {value.shape}")
        return value
    if shape or not isinstance(value, bool | int | float | np.generic):
        raise TypeError(f"{name} is {text_of(type)}, not {value!r}")
    if not dtype_of(type).is_floating():
        _require_integer(value, dtype_of(type), name)
    return array_of(value, type)


def _require_integer(value: Any, type: DType, name: str) -> None:
    integral = isinstance(value, bool | int | np.bool_ | np.integer)
    if not integral or not type.get_int_min_value() <= int(value) <= type.get_int_max_value():
        raise TypeError(f"{name} is {text_of(type)}, which does not hold {value!r}")
