"""Guards: what a cached variant depends on besides the arguments.

These are hooks (which need the slow path), the kernel's global variables, the attributes of the
kernel and its wrappers, and settings. All are compared with the values at the first launch.
"""

from __future__ import annotations

from tilewright.lowering.emit import I1, I64
from tilewright.runtime.native.read import small
from tilewright.runtime.native.routine import Global, Knob, Routine, routine


@routine(I1, inline=True)
def guards_hold(r: Routine) -> None:
    """Whether no hooks are set, and every watched variable (State.globals) is unchanged."""
    for hooks in (r.state["hooks"], r.rt["launch_hooks"]):
        r.require(r.eq(r.api("PyList_Size", hooks), 0))
    with r.loop(0, r.state["global_count"]) as loop:
        r.require(_is_unchanged(r, r.ref("Global", r.state["globals"], loop.index)))


@routine(I1)
def _is_unchanged(r: Routine, variable: Global) -> None:
    """Whether an entry of a dict is still the same object, or still absent, and, if it is a
    constexpr, whether its value is still the same object."""
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
