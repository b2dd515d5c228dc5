"""Each condition of recorded loops and of scans is dropped once, and a witness must notice; see
`test_mutations.py`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.autodiff.harness import check_gradients, forward_module, launch_points, vjp
from tests.autodiff.recurrences import LOOPS, arguments, check, kernel
from tilewright.autodiff import loops, rules_scan, running_maxima, taped_loops, tapes
from tilewright.autodiff.emitter import Emitter
from tilewright.autodiff.points import Points
from tilewright.autodiff.tapes import TapePlan
from tilewright.base.diagnostics import DeviceAssertionError, InterpreterError
from tilewright.ir.types import I64
from tilewright.ops.arith import Add, Mul
from tilewright.ops.control import Barrier


def a_recurrence() -> None:
    check(LOOPS["a gated sum, and a sum of its squares"], 5)


def a_decaying_sum() -> None:
    check(LOOPS["a decaying sum"], 5)


def a_sink() -> None:
    check(LOOPS["a softmax with a learned sink"], 5)


def a_state_with_infinities() -> None:
    check(LOOPS["lanes that are not stored"], 5)


def an_inner_loop() -> None:
    check(LOOPS["in a loop"], 5)


def a_while_loop() -> None:
    check(LOOPS["until it converges"], 5)


def a_loop_in_steps() -> None:
    check(LOOPS["in steps"], 5)


def offsets_that_move() -> None:
    check(LOOPS["a tile of offsets"], 5)


def checkpoints() -> None:
    body = LOOPS["a recurrent network"].replace("range(n)", "tl.range(0, n, ad_checkpoint=2)")
    check(body, 5)


def scanned(function: str, then: str) -> None:
    text = f"""
@jit
def times(a, b):
    return a * b

@jit
def matrices(a, b, c, d, e, f, g, h):
    return a * e + b * g, a * f + b * h, c * e + d * g, c * f + d * h

def kernel(x_ptr, y_ptr, n):
    i = tl.arange(0, 8)
    x = tl.load(x_ptr + i)
    w = tl.load(x_ptr + 9)
    z = 1.0 / tl.where(i < 5, 1.0 + i, 0.0).to(tl.float64)
    r = tl.associative_scan({function})
    tl.store(y_ptr + i, {then}, mask=i < 5)
"""
    args: dict[str, Any] = {"x_ptr": np.random.default_rng(0).uniform(0.5, 1, 64)}
    args |= {"y_ptr": np.zeros(64), "n": 10}
    check_gradients(text, 1, args, ("x_ptr",), ("y_ptr",))


def infinities_after_a_scan() -> None:
    scanned("w * z, 0, times", "r")


def a_scan_of_infinities() -> None:
    scanned("x * z, 0, times", "r")


def a_scan_of_matrices() -> None:
    scanned("(x, x * x, w * x, x), 0, matrices", "r[0]")


def a_short_tape() -> None:
    args = arguments(9)
    module = forward_module(kernel(LOOPS["while"]), args, {})
    plan = TapePlan(launch_points(module, 2, args), 2, 300)
    with pytest.raises(DeviceAssertionError):
        vjp(module, 2, args, {"y_ptr": np.ones(128)}, ("x_ptr", "w_ptr"), tape=plan)


def a_product(recurrence: Any, factor: Any, ahead: Any) -> Any:
    return recurrence._emit.mul(factor, ahead)


def nowhere(recurrence: Any, position: int) -> Any:
    return recurrence._emit.compare(values := recurrence._positions(), values, "ne")


def lone(running: running_maxima.RunningMaximum) -> list[running_maxima.RunningMaximum]:
    return [running]


def program_0(memory: Any) -> Any:
    return memory._emit.integer(0, I64)


def slot_0(loop: Any, memory: Any, number: Any) -> Any:
    return memory.first


def no_adjoints(steps: Any) -> list[Any]:
    return [None] * len(steps.states)


def start_of(steps: Any, t: Any) -> Any:
    return steps._bounds[0]


def init_of(steps: Any, t: Any, init: Any, by: Any) -> Any:
    return init


def one(points: Any, loop: Any) -> int:
    return 1


def whole(loop: Any, segment: Any, length: Any, trips: Any) -> Any:
    first = loop._value(Mul(segment, length))
    return first, loop._value(Add(first, length))


def barrier(*args: Any) -> Barrier:
    return Barrier()


def yes(*args: Any) -> bool:
    return True


def no_values(*args: Any) -> list[Any]:
    return []


def unchanged(self: Any, value: Any) -> Any:
    return value


CONDITIONS: dict[str, tuple[Any, str, Any, Callable[[], None]]] = {
    "loops carry sums only": (loops, "is_sum_of", yes, a_decaying_sum),
    "a running maximum starts with a constant": (
        loops, "_started_with_inputs", no_values, a_sink,
    ),
    "maxima of loops in a row are constants together": (loops, "_row", lone, a_sink),
    "a state that is zero in a lane is guarded": (
        Emitter, "zero_with_itself", unchanged, a_state_with_infinities,
    ),
    "programs have slots of their own": (tapes.TapeMemory, "_program", program_0, a_recurrence),
    "iterations have slots of their own": (taped_loops.TapedLoop, "_slot", slot_0, a_recurrence),
    "the last condition of a while loop is reversed": (
        taped_loops.WhileSteps, "_adjoints_of_last", no_adjoints, a_while_loop,
    ),
    "an iteration has the counter of its own": (
        taped_loops.ForSteps, "_counter", start_of, a_loop_in_steps,
    ),
    "what moves in steps is where it was": (
        taped_loops.ForSteps, "_moved_by", init_of, offsets_that_move,
    ),
    "tapes have a slot for each iteration": (Points, "most_trips", one, a_recurrence),
    "segments end with the loop": (taped_loops.TapedLoop, "_segment", whole, checkpoints),
    "elements behind a mask pass nothing on": (
        rules_scan._Recurrence, "_passed", a_product, a_scan_of_infinities,
    ),
    "the first element of a scan is not combined": (
        rules_scan._Recurrence, "is_at", nowhere, a_scan_of_matrices,
    ),
    "a loop that runs too often is noticed": (taped_loops, "Assert", barrier, a_short_tape),
}  # fmt: skip


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", CONDITIONS)
def test_the_witness_of_a_condition_notices_its_loss(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, attribute, replacement, witness = CONDITIONS[name]
    witness()
    monkeypatch.setattr(place, attribute, replacement)
    with pytest.raises((AssertionError, pytest.fail.Exception, InterpreterError)):
        witness()


def test_infinities_after_a_scan_do_not_spread() -> None:
    infinities_after_a_scan()
