"""The list of passes over tile IR, in the order in which every kernel meets them.

The front end's IR goes in; what comes out is the tile IR that targets and the interpreter get. A
target may append steps (`Target.steps`), which run after these.
"""

from __future__ import annotations

from tilewright.ir.passes import Step, check_order
from tilewright.passes.canonicalize import canonicalize
from tilewright.passes.canonicalize_pointers import canonicalize_pointers
from tilewright.passes.cse import merge_equal_values
from tilewright.passes.dce import remove_dead_code
from tilewright.passes.inline import inline_calls
from tilewright.passes.licm import hoist_invariants
from tilewright.targets.protocol import Target

STEPS = (
    Step(inline_calls),
    Step(canonicalize, optional=True),
    Step(canonicalize_pointers),
    Step(canonicalize, optional=True),
    Step(merge_equal_values, optional=True),
    Step(hoist_invariants, optional=True),
    Step(remove_dead_code, optional=True),
)

ORDER = (
    (inline_calls, canonicalize, "constants meet the ops that fold them once calls are gone"),
    (inline_calls, canonicalize_pointers, "a pointer's base may be an argument of the caller"),
    (canonicalize, canonicalize_pointers, "splats of offsets are split off in canonical form"),
    (canonicalize_pointers, merge_equal_values, "equal offsets become equal values"),
    (canonicalize_pointers, hoist_invariants, "loads move only past stores through other bases"),
    (merge_equal_values, hoist_invariants, "one copy is moved instead of several"),
    (hoist_invariants, remove_dead_code, "what was moved out of a loop may leave it empty"),
)

check_order(STEPS, ORDER)


def pipeline(target: Target) -> tuple[Step, ...]:
    """All steps of a compilation for the target."""
    steps = (*STEPS, *target.steps())
    check_order(steps, ORDER)
    return steps
