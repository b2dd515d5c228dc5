"""Calls of the slow path: for keys that are not in the cache, and for unsupported calls."""

from __future__ import annotations

from tilewright.lowering.emit import PTR, V
from tilewright.runtime.native.keys import key_of
from tilewright.runtime.native.match import arguments_by_name, count_of
from tilewright.runtime.native.routine import Object, Routine, routine


@routine(PTR)
def fall_back(r: Routine, function: Object, grid: Object) -> None:
    """Pass the complete call on to a Python function: ``function(grid, *args, **kwargs)``."""
    args, nargs, kwnames = (r.frame[field] for field in ("args", "nargs", "kwnames"))
    total = r.add(nargs, count_of(r, kwnames))
    all = r.alloca(PTR, r.add(total, 1))
    r.store(grid, all)
    r.copy(r.gep(PTR, all, 1), args, total)
    r.ret(r.api("PyObject_Vectorcall", function, all, r.add(nargs, 1), kwnames))


@routine(PTR)
def miss(r: Routine, python: Object) -> None:
    """Call `python`, which compiles and launches; then have the result cached for the key, by
    State.adopt(words, objects, compiled) or Stage.note(words, objects, arguments by name)."""
    result = r.not_null(fall_back(r, python, r.frame["given_grid"]))
    with (
        r.owned(result, unless_left=True),
        r.owned(r.not_null(key_of(r))) as words,
        r.owned(r.not_null(_objects_of(r))) as objects,
    ):
        _note(r, words, objects, result)
    r.ret(result)


def _note(r: Routine, words: V, objects: V, result: V) -> None:
    stage, done = r.frame["stage"], r.block("done")
    with r.when(r.ne(stage, 0)):
        with r.owned(r.not_null(arguments_by_name(r))) as named:
            note = r.ref("Stage", stage)["note"]
            r.release(r.not_null(r.python(note, words, objects, named)))
        r.br(done)
    r.release(r.not_null(r.python(r.state["adopt"], words, objects, result)))
    r.br(done)
    r.at(done)


@routine(PTR)
def _objects_of(r: Routine) -> None:
    """A tuple of the objects whose addresses are in the key, which keeps the addresses valid."""
    count = r.frame["object_count"]
    tuple = r.raising("PyTuple_New", count)
    with r.loop(0, count) as loop:
        object = r.retain(r.frame.get("objects", loop.index))
        r.api("PyTuple_SetItem", tuple, loop.index, object)
    r.ret(tuple)
