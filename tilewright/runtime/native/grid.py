"""The grid of a launch: extents, or a function of the arguments by name that gives them."""

from __future__ import annotations

from tilewright.lowering.emit import I1, I32, PTR, V, const
from tilewright.runtime.native.layout import ALL_NAMES, EMPTY, GRIDS, INT64_MAX, SOME
from tilewright.runtime.native.read import param_of
from tilewright.runtime.native.routine import SELDOM, Object, Routine, routine


@routine(I32)
def extents(r: Routine) -> None:
    """Fills Frame.grid, and Frame.grid_object with what it was read from; SOME, EMPTY when an
    extent is 0, or FAILED with an exception set."""
    grid = r.frame["given_grid"]
    function = r.block("function")
    with r.when(r.not_(r.is_a(grid, "tuple"))):
        plain = r.block("plain")
        r.cond_br(r.ne(r.api("PyCallable_Check", grid), 0), function, plain)
        r.at(plain)
    r.frame["grid_object"] = r.retain(grid)
    r.ret(_checked(r, grid))
    r.at(function)
    with r.owned(r.given(_arguments(r, grid))) as named:
        result = r.given(r.python(grid, named))
    r.frame["grid_object"] = result
    r.ret(_checked(r, result))


def release_grid(r: Routine) -> None:
    """Give up Frame.grid_object, which is null until the grid is known."""
    object = r.frame["grid_object"]
    with r.when(r.ne(object, 0)):
        r.release(object)


# -- a function's arguments -----------------------------------------------------------------------


@routine(PTR)
def _arguments(r: Routine, grid: Object) -> None:
    """The arguments by name, for a grid function: a new dictionary. One that does nothing but look
    into it gets those at which it looks, by State.note_grid(code), alone."""
    all = r.block("all")
    with r.when(r.not_(r.is_a(grid, "function"))):
        r.br(all)
    # First of all, as what the garbage collector finds may launch this very kernel.
    with r.owned(r.raising("PyDict_New"), unless_left=True) as named:
        code = r.api("PyFunction_GetCode", grid)
        known = _known_grid(r, code)
        with r.when(r.eq(known, 0), SELDOM):
            noted = r.given(r.python(r.state["note_grid"], code))
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
    """What is known of grid functions of this code; null when nothing is."""
    with r.loop(0, GRIDS) as loop:
        grid = r.ref("Grid", r.state["grids"], loop.index)
        with r.when(r.eq(grid["code"], code)):
            r.ret(grid.address)
    r.ret(0)


@routine(PTR)
def _all_arguments(r: Routine) -> None:
    """All arguments by name: a new dictionary. It is copied from one that has the names and the
    last launch's numbers, so that none grows and few entries are set."""
    template, count = r.state["names"], r.state["count"]
    with r.loop(0, count) as loop:
        value, before = r.frame.get("values", loop.index), r.state.get("numbers", loop.index)
        changed = r.ne(value, before)
        # A number may be kept for as long as the kernel.
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
    """The extents that a grid which is no function gives; Python has the last word on unusual
    ones."""
    plain = _plain(r, grid)
    with r.when(r.ne(plain, 0)):
        r.ret(plain)
    with r.owned(r.given(r.python(r.rt["extents_of"], grid))) as checked:
        result = _plain(r, checked)
    with r.when(r.ne(result, 0)):
        r.ret(result)
    # Beyond 64 bits: no device has such a grid, and each has its own error for it.
    for axis in range(3):
        r.frame.put("grid", axis, INT64_MAX)
    r.ret(SOME)


@routine(I32)
def _plain(r: Routine, grid: Object) -> None:
    """The extents of a tuple of one to three ints of 0 or more; 0, without an exception, for
    anything else."""
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
    """Frame.grid as a tuple of Python's."""
    tuple = r.raising("PyTuple_New", 3)
    with r.owned(tuple, unless_left=True), r.loop(0, 3) as loop:
        number = r.raising("PyLong_FromLongLong", r.frame.get("grid", loop.index))
        r.api("PyTuple_SetItem", tuple, loop.index, number)
    r.ret(tuple)
