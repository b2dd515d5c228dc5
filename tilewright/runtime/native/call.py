"""The entry points of a launch, `kernel[grid](*args, **kwargs)`, and the lookup of its variant.

`bind` and `launch` are called by Python. A call that the fast path does not support is passed on to
the slow path by `fall_back`, before it has had any side effect.
"""

from __future__ import annotations

from tilewright.lowering.emit import I1, I8, I32, I64, PTR, V, array, const
from tilewright.runtime.native import layout
from tilewright.runtime.native.fallback import fall_back, miss
from tilewright.runtime.native.guards import guards_hold, knob
from tilewright.runtime.native.keys import key_of, push, release_held
from tilewright.runtime.native.layout import FAILED, FALL_BACK, MISSED, READY, RECENTS, SIZES
from tilewright.runtime.native.match import fill_defaults, match
from tilewright.runtime.native.read import place_launch, read_new
from tilewright.runtime.native.routine import UNLIKELY, Object, Routine, Word, routine
from tilewright.runtime.native.stages import run_stages
from tilewright.runtime.native.start import start


@routine(PTR, entry=True)
def bind(r: Routine, self: Object, grid: Object) -> None:
    """kernel[grid]: `self` is (box, owner); returns the builtin `launch` with (self, grid) as self.

    State.spare is a list with the builtin that was created last. It is returned again if there is
    no other reference to it and the grid is the same object.
    """
    begin(r, self)
    spare = r.state["spare"]
    kept = r.api("PyList_GetItem", spare, 0)
    # The garbage collector has cleared the list, and a finalizer launches the dead kernel.
    with r.when(r.eq(kept, 0), UNLIKELY):
        r.api("PyErr_Clear")
        r.ret(_new_launch(r, self, grid))
    with r.when(r.eq(r.ref("Object", kept)["references"], 1)):
        its_grid = r.item(r.api("PyCFunction_GetSelf", kept), 1)
        with r.when(r.eq(its_grid, grid)):
            r.ret(r.retain(kept))
    made = r.not_null(_new_launch(r, self, grid))
    with r.when(_holds_nothing(r, grid)):
        r.api("PyList_SetItem", spare, 0, r.retain(made))
    r.ret(made)


@routine(PTR)
def _new_launch(r: Routine, self: Object, grid: Object) -> None:
    """A new builtin that launches on a grid; null with an exception set."""
    with r.owned(r.raising("PyTuple_New", 2)) as own:
        for i, object in enumerate((self, grid)):
            r.api("PyTuple_SetItem", own, i, r.retain(object))
        r.ret(r.api("PyCFunction_NewEx", r.rt["launch_method"], own, 0))


@routine(I1)
def _holds_nothing(r: Routine, grid: Object) -> None:
    """Whether a grid keeps no other objects alive after its launch: tuples of ints, and functions
    without closure and defaults. Others may refer to tensors, whose memory must be freed as soon as
    the program drops them."""
    with r.when(r.is_a(grid, "tuple")):
        count = r.size_of(grid)
        r.require(r.icmp("ule", count, 3))
        with r.loop(0, count) as loop:
            r.require(r.is_a(r.item(grid, loop.index), "int"))
        r.ret(True)
    r.require(r.is_a(grid, "function"))
    for part in ("Closure", "Defaults", "KwDefaults"):
        r.require(r.eq(r.api(f"PyFunction_Get{part}", grid), 0))


@routine(PTR, entry=True)
def launch(r: Routine, self: Object, args: Object, nargs: Word, kwnames: Object) -> None:
    """kernel[grid](*args, **kwargs): returns the compiled kernel that ran."""
    begin(r, r.item(self, 0), r.item(self, 1), args, nargs, kwnames)
    found = prepare(r)
    ways = {
        READY: lambda: start(r),
        MISSED: lambda: miss(r, r.state["fallback"]),
        FALL_BACK: lambda: fall_back(r, r.state["fallback"], r.frame["given_grid"]),
        FAILED: lambda: const(PTR, 0),
    }
    for result, way in ways.items():
        with r.when(r.eq(found, result)):
            made = way()
            release_held(r)
            r.ret(made)
    r.ret(0)


def begin(r: Routine, self: V, *call: V) -> None:
    """The prologue of an entry point: sets up the structures, and stores the call in the Frame.

    Args:
        self: a tuple whose first item is the box: a bytes object with the address of the State.
        call: the grid, then the arguments of METH_FASTCALL | METH_KEYWORDS.
    """
    r.state = r.ref("State", r.ref("Bytes", r.item(self, 0))["data"])
    r.rt = r.ref("Runtime", r.state["runtime"])
    r.frame = r.ref("Frame", _room(r) if call else const(PTR, 0))
    for field, value in zip(("given_grid", "args", "nargs", "kwnames"), call, strict=False):
        r.frame[field] = value
    if call:
        r.frame["any_stream"] = 1
        r.frame["keeps_gil"] = 0


def _room(r: Routine) -> V:
    return r.alloca(array(I8, SIZES["Frame"]), align=16)


@routine(I32, failure=FALL_BACK)
def prepare(r: Routine) -> None:
    """Reads a call and looks up its variant.

    READY: Frame.recent is the variant. MISSED: the key is unknown to Frame.stage, or, if that is
    null, to the table of variants. FALL_BACK: the slow path must launch. FAILED: an exception is
    set.
    """
    r.frame["held_count"] = 0
    r.frame["stage"] = 0
    r.require(match(r))
    r.require(guards_hold(r))
    debug = knob(r, r.rt.part("debug"))
    r.require(r.icmp("sge", debug, 0))
    for field in ("word_count", "object_count", "tensor_count", "read_params", "read_options"):
        r.frame[field] = 0
    r.frame["slot_count"] = r.state["count"]
    r.frame["device"] = layout.NO_DEVICE
    push(r, debug)
    with r.when(r.ne(r.state["stage_count"], 0), UNLIKELY):
        staged = run_stages(r)
        with r.when(r.ne(staged, READY)):
            r.ret(staged)
    fill_defaults(r)
    r.require(read_new(r))
    r.require(place_launch(r))
    recent = find(r)
    r.frame["recent"] = recent
    r.not_null(recent, MISSED)
    # None marks a variant that only the slow path can start.
    r.require(r.ne(recent, r.rt["none"]))
    r.ret(READY)


# -- the variant ----------------------------------------------------------------------------------


@routine(PTR)
def find(r: Routine) -> None:
    """The Recent whose key is that of the call; None for a variant of the slow path; null for an
    unknown key. The inline cache State.recents is searched first."""
    count = r.frame["word_count"]
    with r.loop(0, RECENTS) as loop:
        recent = r.state.part("recents", loop.index)
        as_many = r.eq(recent["count"], count)
        with r.when(as_many), r.when(_equal(r, recent["words"], r.frame.at("words"), count)):
            r.ret(recent.address)
    r.ret(_find_in_table(r))


@routine(I1, inline=True)
def _equal(r: Routine, a: Object, b: Object, count: Word) -> None:
    """Whether `count` words are equal."""
    with r.loop(0, count) as loop:
        left, right = (r.load(I64, r.gep(I64, words, loop.index)) for words in (a, b))
        r.require(r.eq(left, right))


@routine(PTR)
def _find_in_table(r: Routine) -> None:
    """`find` in State.entries, a dict from keys to (words, record, …) or None. The entry found
    replaces the oldest Recent, which has borrowed references to it."""
    key = key_of(r)
    with r.when(r.eq(key, 0), UNLIKELY):
        r.api("PyErr_Clear")
        r.ret(r.rt["none"])
    with r.owned(key):
        found = r.api("PyDict_GetItemWithError", r.state["entries"], key)
    with r.when(r.or_(r.eq(found, 0), r.eq(found, r.rt["none"]))):
        r.ret(found)
    turn = r.state["turn"]
    r.state["turn"] = r.add(turn, 1)
    recent = r.state.part("recents", r.urem(turn, RECENTS))
    words, record = (r.ref("Bytes", r.item(found, i)).at("data") for i in (0, 1))
    recent["entry"] = found
    recent["words"] = words
    recent["record"] = record
    recent["count"] = r.frame["word_count"]
    r.ret(recent.address)
