"""Guards: the dependencies of a cached variant besides the arguments.

These are hooks (which need the slow path), the globals and captured variables of the kernel, the
attributes of the kernel and its wrappers, and settings. All are compared with the values at the
first launch; `guard_tables.py` has the tables.
"""

from __future__ import annotations

from tilewright.lowering.emit import I1, I64
from tilewright.runtime.native.read import small
from tilewright.runtime.native.routine import (
    UNLIKELY,
    Global,
    Guard,
    Knob,
    Object,
    Routine,
    Word,
    routine,
)


@routine(I1, inline=True)
def guards_hold(r: Routine) -> None:
    """Whether no hooks are set, and the entries of State.globals and State.guards are unchanged."""
    for hooks in (r.state["hooks"], r.rt["launch_hooks"]):
        r.require(r.eq(r.size_of(hooks), 0))
    _require_unchanged(r, r.state["globals"], r.state["global_count"])
    with r.loop(0, r.state["guard_count"]) as loop:
        guard = r.ref("Guard", r.state["guards"], loop.index)
        now = r.load(I64, guard["word"])
        with r.when(r.ne(now, guard["value"]), UNLIKELY):
            r.require(_still_holds(r, guard))


def _require_unchanged(r: Routine, globals: Object, count: Word) -> None:
    """Exit unless each entry of a dict is still the same object, or still absent."""
    with r.loop(0, count) as loop:
        variable: Global = r.ref("Global", globals, loop.index)
        now = r.api("PyDict_GetItemWithError", variable["scope"], variable["name"])
        r.require(r.eq(now, variable["object"]))


@routine(I1)
def _still_holds(r: Routine, guard: Guard) -> None:
    """Whether a word that has changed is the version of a dict whose entries of `Guard.globals` are
    unchanged. If so, the present version is expected from now on."""
    count = guard["count"]
    r.require(r.ne(count, 0))
    now = r.load(I64, guard["word"])
    _require_unchanged(r, guard["globals"], count)
    guard["value"] = now


@routine(I64, failure=-1)
def knob(r: Routine, knob: Knob) -> None:
    """The value of a setting (a bool or a nonnegative int, 0 by default): the override, else the
    value that Python parses from the environment, else 0; -1 if it is anything else."""
    overrides, name = knob["overrides"], knob["name"]
    with r.when(r.ne(r.api("PyDict_Size", overrides), 0)):
        override = r.api("PyDict_GetItemWithError", overrides, name)
        with r.when(r.ne(override, 0)):
            r.ret(small(r, override))
    environ = r.rt["environ"]
    present = r.block("present")
    for field in ("variable", "other_variable"):
        set = r.api("PyDict_GetItemWithError", environ, knob[field])
        following = r.block("next")
        r.cond_br(r.ne(set, 0), present, following)
        r.at(following)
    r.ret(0)
    r.at(present)
    with r.owned(r.tried("PyObject_GetAttr", knob["group"], name)) as value:
        r.ret(small(r, value))
