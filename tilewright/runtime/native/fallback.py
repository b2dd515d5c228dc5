"""The way of a call through Python, where native code has not met such a call or cannot make it."""

from __future__ import annotations

from tilewright.lowering.emit import PTR, V
from tilewright.runtime.native.keys import key_of
from tilewright.runtime.native.match import count_of, given_by_name
from tilewright.runtime.native.routine import Object, Routine, routine


@routine(PTR)
def fall_back(r: Routine, function: Object, grid: Object) -> None:
    """The whole call, by Python: ``function(grid, *args, **kwargs)``."""
    args, nargs, kwnames = (r.frame[field] for field in ("args", "nargs", "kwnames"))
    given = r.add(nargs, count_of(r, kwnames))
    all = r.alloca(PTR, r.add(given, 1))
    r.store(grid, all)
    r.copy(r.gep(PTR, all, 1), args, given)
    r.ret(r.api("PyObject_Vectorcall", function, all, r.add(nargs, 1), kwnames))


@routine(PTR)
def miss(r: Routine, python: Object) -> None:
    """The call by `python`, which compiles; then State.adopt(words, objects, compiled) for the next
    time, or Stage.note(words, objects, arguments by name)."""
    result = r.given(fall_back(r, python, r.frame["given_grid"]))
    with (
        r.owned(result, unless_left=True),
        r.owned(r.given(key_of(r))) as words,
        r.owned(r.given(_objects_of(r))) as objects,
    ):
        _note(r, words, objects, result)
    r.ret(result)


def _note(r: Routine, words: V, objects: V, result: V) -> None:
    stage, done = r.frame["stage"], r.block("done")
    with r.when(r.ne(stage, 0)):
        with r.owned(r.given(given_by_name(r))) as named:
            note = r.ref("Stage", stage)["note"]
            r.release(r.given(r.python(note, words, objects, named)))
        r.br(done)
    r.release(r.given(r.python(r.state["adopt"], words, objects, result)))
    r.br(done)
    r.at(done)


@routine(PTR)
def _objects_of(r: Routine) -> None:
    """The objects whose addresses are among the words, as a tuple that keeps them."""
    count = r.frame["object_count"]
    tuple = r.raising("PyTuple_New", count)
    with r.loop(0, count) as loop:
        object = r.retain(r.frame.get("objects", loop.index))
        r.api("PyTuple_SetItem", tuple, loop.index, object)
    r.ret(tuple)
