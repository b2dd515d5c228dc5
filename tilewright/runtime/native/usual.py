"""What else a launch depends on: hooks, the kernel's global variables, settings."""

from __future__ import annotations

from tilewright.lowering.emit import I1, I64
from tilewright.runtime.native.read import small
from tilewright.runtime.native.routine import Global, Knob, Routine, routine


@routine(I1, inline=True)
def is_usual(r: Routine) -> None:
    """Whether nothing is to see the launch, and what it depends on in other objects is as it was:
    the kernel's global variables, and attributes of the kernel and its wrappers."""
    for hooks in (r.state["hooks"], r.rt["launch_hooks"]):
        r.require(r.eq(r.api("PyList_Size", hooks), 0))
    with r.loop(0, r.state["global_count"]) as loop:
        r.require(_is_unchanged(r, r.ref("Global", r.state["globals"], loop.index)))


@routine(I1)
def _is_unchanged(r: Routine, variable: Global) -> None:
    """Whether an entry of a dictionary is still the same object, or still absent, and a constexpr
    still has the same value."""
    now = r.api("PyDict_GetItemWithError", variable["scope"], variable["name"])
    r.require(r.eq(now, variable["object"]))
    inner = variable["value"]
    with r.when(r.eq(inner, 0)):
        r.ret(True)
    value = r.tried("PyObject_GetAttr", now, r.rt["value_name"])
    r.release(value)
    r.require(r.eq(value, inner))


@routine(I64, failure=-1)
def knob(r: Routine, knob: Knob) -> None:
    """The value of a setting that is a bool or an int of 0 or more, 0 by default: an override, else
    what Python makes of the environment; -1 when it is something else."""
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
