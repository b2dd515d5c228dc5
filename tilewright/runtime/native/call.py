"""A launch in native code: `kernel[grid](*args, **kwargs)` from Python's call to the device's.

`bind` and `launch` are what Python calls. Whatever is unusual is left to Python, by `fall_back`,
before anything has happened.
"""

from __future__ import annotations

from tilewright.lowering.emit import I1, I8, I32, I64, PTR, V, array, const
from tilewright.runtime.native import layout
from tilewright.runtime.native.fallback import fall_back, miss
from tilewright.runtime.native.keys import key_of, push, release_held
from tilewright.runtime.native.layout import FAILED, MISSED, READY, RECENTS, SIZES, UNUSUAL
from tilewright.runtime.native.match import fill_defaults, match
from tilewright.runtime.native.read import place_launch, read_new
from tilewright.runtime.native.routine import SELDOM, Object, Routine, Word, routine
from tilewright.runtime.native.stages import run_stages
from tilewright.runtime.native.start import start
from tilewright.runtime.native.usual import is_usual, knob


@routine(PTR, entry=True)
def bind(r: Routine, self: Object, grid: Object) -> None:
    """kernel[grid]: `self` is (box, owner); gives the builtin `launch` with (self, grid) as self.

    State.spare is a list of the last one, which serves again when it has no other reference and the
    grid is the same object.
    """
    begin(r, self)
    spare = r.state["spare"]
    kept = r.api("PyList_GetItem", spare, 0)
    # The kernel is garbage, and what its end calls launches it once more.
    with r.when(r.eq(kept, 0), SELDOM):
        r.api("PyErr_Clear")
        r.ret(_new_launch(r, self, grid))
    with r.when(r.eq(r.ref("Object", kept)["references"], 1)):
        its_grid = r.item(r.api("PyCFunction_GetSelf", kept), 1)
        with r.when(r.eq(its_grid, grid)):
            r.ret(r.retain(kept))
    made = r.given(_new_launch(r, self, grid))
    with r.when(_holds_nothing(r, grid)):
        r.api("PyList_SetItem", spare, 0, r.retain(made))
    r.ret(made)


@routine(PTR)
def _new_launch(r: Routine, self: Object, grid: Object) -> None:
    """A builtin that launches on a grid; null with an exception set."""
    with r.owned(r.raising("PyTuple_New", 2)) as own:
        for i, object in enumerate((self, grid)):
            r.api("PyTuple_SetItem", own, i, r.retain(object))
        r.ret(r.api("PyCFunction_NewEx", r.rt["launch_method"], own, 0))


@routine(I1)
def _holds_nothing(r: Routine, grid: Object) -> None:
    """Whether a grid may be kept after its launch: tuples of ints, and functions with neither
    closure nor defaults. Any other may hold tensors, or what someone waits to see freed."""
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
    """kernel[grid](*args, **kwargs): gives the compiled kernel that ran."""
    begin(r, r.item(self, 0), r.item(self, 1), args, nargs, kwnames)
    found = prepare(r)
    ways = {
        READY: lambda: start(r),
        MISSED: lambda: miss(r, r.state["fallback"]),
        UNUSUAL: lambda: fall_back(r, r.state["fallback"], r.frame["given_grid"]),
        FAILED: lambda: const(PTR, 0),
    }
    for result, way in ways.items():
        with r.when(r.eq(found, result)):
            made = way()
            release_held(r)
            r.ret(made)
    r.ret(0)


def begin(r: Routine, self: V, *call: V) -> None:
    """Begin a routine that Python calls: its structures, and in Frame the call as it was made.

    Args:
        self: a tuple that begins with a box, bytes, which has the address of the State.
        call: grid, arguments, count of those by position, names of the others.
    """
    r.state = r.ref("State", r.ref("Bytes", r.item(self, 0))["data"])
    r.rt = r.ref("Runtime", r.state["runtime"])
    r.frame = r.ref("Frame", _room(r) if call else const(PTR, 0))
    for field, value in zip(("given_grid", "args", "nargs", "kwnames"), call, strict=False):
        r.frame[field] = value


def _room(r: Routine) -> V:
    return r.alloca(array(I8, SIZES["Frame"]), align=16)


@routine(I32, failure=UNUSUAL)
def prepare(r: Routine) -> None:
    """Reads a call.

    READY: Frame.recent is the variant. MISSED: Frame.stage is what has not met such a call, null
    for the table of variants. UNUSUAL: Python has to launch. FAILED: an exception is set.
    """
    r.frame["held_count"] = 0
    r.frame["stage"] = 0
    r.require(match(r))
    r.require(is_usual(r))
    debug = knob(r, r.rt.part("debug"))
    r.require(r.icmp("sge", debug, 0))
    for field in ("word_count", "object_count", "tensor_count", "read_params", "read_options"):
        r.frame[field] = 0
    r.frame["slot_count"] = r.state["count"]
    r.frame["device"] = layout.NO_DEVICE
    push(r, debug)
    with r.when(r.ne(r.state["stage_count"], 0), SELDOM):
        staged = run_stages(r)
        with r.when(r.ne(staged, READY)):
            r.ret(staged)
    fill_defaults(r)
    r.require(read_new(r))
    r.require(place_launch(r))
    recent = find(r)
    r.frame["recent"] = recent
    r.given(recent, MISSED)
    # None stands for a variant that only Python can start.
    r.require(r.ne(recent, r.rt["none"]))
    r.ret(READY)


# -- the variant ----------------------------------------------------------------------------------


@routine(PTR)
def find(r: Routine) -> None:
    """The Recent whose words are the call's; None for a variant that Python starts; null for a new
    one."""
    count = r.frame["word_count"]
    with r.loop(0, RECENTS) as loop:
        recent = r.state.part("recents", loop.index)
        as_many = r.eq(recent["count"], count)
        with r.when(as_many), r.when(_equal(r, recent["words"], r.frame.at("words"), count)):
            r.ret(recent.address)
    r.ret(_find_in_table(r))


@routine(I1, inline=True)
def _equal(r: Routine, a: Object, b: Object, count: Word) -> None:
    """Whether so many words are the same."""
    with r.loop(0, count) as loop:
        left, right = (r.load(I64, r.gep(I64, words, loop.index)) for words in (a, b))
        r.require(r.eq(left, right))


@routine(PTR)
def _find_in_table(r: Routine) -> None:
    """The same by State.entries, whose values are (words, record, …) or None. What it finds takes
    the place of the oldest Recent, which borrows from the table."""
    key = key_of(r)
    with r.when(r.eq(key, 0), SELDOM):
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
