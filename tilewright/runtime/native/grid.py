"""The grid of a launch: a tuple of extents, or a function of the arguments that returns one.

A grid function receives a dict of the arguments by name. To make that cheap, a function that only
subscripts its argument with constant strings (`names_read.py`) gets a dict of these names alone.
"""

from __future__ import annotations

from tilewright.lowering.emit import I1, I32, PTR, V, const
from tilewright.runtime.native.layout import ALL_NAMES, EMPTY, GRIDS, INT64_MAX, SOME
from tilewright.runtime.native.read import param_of
from tilewright.runtime.native.routine import UNLIKELY, Object, Routine, routine


@routine(I32)
def extents(r: Routine) -> None:
    """Fills Frame.grid, and Frame.grid_object with the tuple that it was read from.

    Returns SOME, EMPTY if an extent is 0, or FAILED with an exception set.
    """
    grid = r.frame["given_grid"]
    function = r.block("function")
    with r.when(r.not_(r.is_a(grid, "tuple"))):
        plain = r.block("plain")
        r.cond_br(r.ne(r.api("PyCallable_Check", grid), 0), function, plain)
        r.at(plain)
    r.frame["grid_object"] = r.retain(grid)
    r.ret(_checked(r, grid))
    r.at(function)
    with r.owned(r.not_null(_arguments(r, grid))) as named:
        result = r.not_null(r.python(grid, named))
    r.frame["grid_object"] = result
    r.ret(_checked(r, result))


def release_grid(r: Routine) -> None:
    """Release Frame.grid_object, which is null until the grid is known."""
    object = r.frame["grid_object"]
    with r.when(r.ne(object, 0)):
        r.release(object)


# -- a function's arguments -----------------------------------------------------------------------


@routine(PTR)
def _arguments(r: Routine, grid: Object) -> None:
    """The argument of a grid function: a new dict with the launch's arguments by name; with those
    that the function reads only, if State.note_grid(code) has found them."""
    all = r.block("all")
    with r.when(r.not_(r.is_a(grid, "function"))):
        r.br(all)
    # The dict is allocated first: allocation may run the garbage collector, and a finalizer may
    # launch this kernel, which changes State.grids.
    with r.owned(r.raising("PyDict_New"), unless_left=True) as named:
        code = r.api("PyFunction_GetCode", grid)
        known = _known_grid(r, code)
        with r.when(r.eq(known, 0), UNLIKELY):
            noted = r.not_null(r.python(r.state["note_grid"], code))
            r.release(noted)
            r.release(named)
            r.br(all)
        function = r.ref("Grid", known)
        count = function["count"]
        with r.when(r.eq(count, ALL_NAMES)):
            r.release(named)
            r.br(all)
        with r.loop(0, count) as loop:
            number = function.get("numbers", loop.index)
            name = param_of(r, number)["name"]
            failed = r.api("PyDict_SetItem", named, name, r.frame.get("values", number))
            r.require(r.eq(failed, 0))
        r.ret(named)
    r.at(all)
    r.ret(_all_arguments(r))


@routine(PTR, inline=True)
def _known_grid(r: Routine, code: Object) -> None:
    """The Grid of a code object; null if there is none."""
    with r.loop(0, GRIDS) as loop:
        grid = r.ref("Grid", r.state["grids"], loop.index)
        with r.when(r.eq(grid["code"], code)):
            r.ret(grid.address)
    r.ret(0)


@routine(PTR)
def _all_arguments(r: Routine) -> None:
    """A new dict with all arguments by name. It is a copy of State.names, which has the numbers of
    the last launch: copying is cheaper than insertion, and few numbers change between launches."""
    template, count = r.state["names"], r.state["count"]
    with r.loop(0, count) as loop:
        value, before = r.frame.get("values", loop.index), r.state.get("numbers", loop.index)
        changed = r.ne(value, before)
        # Only numbers stay in State.names, which lives as long as the kernel: a tensor would leak.
        with r.when(r.and_(changed, r.is_a(value, "int", "float", "bool"))):
            name = param_of(r, loop.index)["name"]
            failed = r.api("PyDict_SetItem", template, name, value)
            r.require(r.eq(failed, 0))
            r.state.put("numbers", loop.index, value)
    named = r.raising("PyDict_Copy", template)
    with r.loop(0, count) as loop:
        value = r.frame.get("values", loop.index)
        with r.when(r.ne(value, r.state.get("numbers", loop.index))):
            r.api("PyDict_SetItem", named, param_of(r, loop.index)["name"], value)
    r.ret(named)


# -- extents --------------------------------------------------------------------------------------


@routine(I32)
def _checked(r: Routine, grid: Object) -> None:
    """Reads the extents of a grid that is not a function; `extents_of` in Python converts and
    validates what `_plain` does not support."""
    plain = _plain(r, grid)
    with r.when(r.ne(plain, 0)):
        r.ret(plain)
    with r.owned(r.not_null(r.python(r.rt["extents_of"], grid))) as checked:
        result = _plain(r, checked)
    with r.when(r.ne(result, 0)):
        r.ret(result)
    # An extent does not fit into 64 bits: let the device report its own error.
    for axis in range(3):
        r.frame.put("grid", axis, INT64_MAX)
    r.ret(SOME)


@routine(I32)
def _plain(r: Routine, grid: Object) -> None:
    """Reads the extents of a tuple of one to three nonnegative ints; returns 0, without an
    exception, for anything else."""
    r.frame.put("grid", 1, 1)
    r.frame.put("grid", 2, 1)
    r.require(r.is_a(grid, "tuple"))
    count = r.size_of(grid)
    r.require(r.icmp("ult", r.sub(count, 1), 3))
    with r.loop(0, count, carried=[const(I1, 0)]) as loop:
        object = r.item(grid, loop.index)
        r.require(r.is_a(object, "int"))
        number, overflow = r.int_of(object)
        r.require(r.and_(r.eq(overflow, 0), r.icmp("sge", number, 0)))
        r.frame.put("grid", loop.index, number)
        loop.yield_([r.or_(loop.carried[0], r.eq(number, 0))])
    r.ret(r.select(loop.results[0], const(I32, EMPTY), const(I32, SOME)))


def grid_of(r: Routine) -> list[V]:
    """The three extents."""
    return [r.frame.get("grid", axis) for axis in range(3)]


@routine(PTR)
def grid_tuple(r: Routine) -> None:
    """Frame.grid as a Python tuple."""
    tuple = r.raising("PyTuple_New", 3)
    with r.owned(tuple, unless_left=True), r.loop(0, 3) as loop:
        number = r.raising("PyLong_FromLongLong", r.frame.get("grid", loop.index))
        r.api("PyTuple_SetItem", tuple, loop.index, number)
    r.ret(tuple)
