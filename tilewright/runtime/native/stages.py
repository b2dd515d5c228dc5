"""The wrappers of a kernel: they add the arguments of an autotuner's configuration, or arguments
that heuristics compute.

State.stages has the wrappers, outermost first. Each sees the arguments assigned so far.
"""

from __future__ import annotations

from tilewright.lowering.emit import I32, I64, PTR, const
from tilewright.runtime.native import layout
from tilewright.runtime.native.keys import held, hold, key_of, push, push_object
from tilewright.runtime.native.layout import FAILED, FALL_BACK, MISSED, READY, TYPE_SHIFT
from tilewright.runtime.native.match import arguments_by_name, place
from tilewright.runtime.native.read import read_new
from tilewright.runtime.native.routine import Object, Ref, Routine, Stage, routine


@routine(I32, failure=FALL_BACK)
def run_stages(r: Routine) -> None:
    """Run all stages: READY if each has added its arguments; else a result of `prepare`."""
    with r.loop(0, r.state["stage_count"]) as loop:
        stage = r.ref("Stage", r.state["stages"], loop.index)
        r.require(read_new(r))
        result = r.choose(
            r.eq(stage["kind"], layout.TUNE), lambda: _choose(r, stage), lambda: _compute(r, stage)
        )
        with r.when(r.ne(result, READY)):
            r.ret(result)
    r.ret(READY)


@routine(I32, failure=FALL_BACK)
def _choose(r: Routine, stage: Stage) -> None:
    """Add the keywords of the tuned configuration. Stage.chosen is a dict from the key so far to
    (configuration, names, value, …), or to None for calls that need the slow path."""
    _push_configs(r, stage)
    with r.owned(r.not_null(key_of(r), clear=True)) as key:
        found = r.api("PyDict_GetItemWithError", stage["chosen"], key)
    with r.when(r.eq(found, 0)):
        r.frame["stage"] = stage.address
        r.leave(MISSED)
    r.require(r.ne(found, r.rt["none"]))
    held(r, found, FALL_BACK)
    names = r.item(found, 1)
    done = r.api("PyObject_SetAttr", stage["owner"], r.rt["best_config_name"], r.item(found, 0))
    r.require(r.eq(done, 0), FAILED)
    with r.loop(0, r.size_of(names)) as loop:
        value = r.item(found, r.add(loop.index, 2))
        name = r.item(names, loop.index)
        r.require(place(r, name, value, const(I64, 0)))
    r.ret(READY)


def _push_configs(r: Routine, stage: Ref) -> None:
    """Append the number of configurations to the key, and the address of a single one, which the
    autotuner chooses without measuring."""
    configs = stage["configs"]
    count = r.size_of(configs)
    push(r, r.or_(r.shl(count, TYPE_SHIFT), layout.CONFIGS))
    with r.when(r.eq(count, 1)):
        push_object(r, r.api("PyList_GetItem", configs, 0))


@routine(I32, failure=FALL_BACK)
def _compute(r: Routine, stage: Stage) -> None:
    """Add the arguments that the functions in Stage.values compute, in order; each sees the
    arguments assigned before it."""
    position, name_at, function_at = r.alloca(I64), r.alloca(PTR), r.alloca(PTR)
    r.store(const(I64, 0), position)
    values = stage["values"]
    with r.repeated() as loop:
        more = r.api("PyDict_Next", values, position, name_at, function_at)
        loop.stop_if(r.eq(more, 0))
        name, function = r.load(PTR, name_at), r.load(PTR, function_at)
        held(r, name, FALL_BACK)
        value = r.not_null(_computed(r, function), FAILED)
        r.require(hold(r, value))
        r.require(place(r, name, value, const(I64, 0)))
    r.ret(READY)


@routine(PTR)
def _computed(r: Routine, function: Object) -> None:
    """The result of a function of the arguments by name; null with an exception set."""
    r.retain(function)
    with r.owned(function), r.owned(r.not_null(arguments_by_name(r))) as named:
        r.ret(r.python(function, named))
