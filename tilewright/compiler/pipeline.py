"""The pipeline of tile passes, common to all targets, and its ordering constraints.

Its input is the IR of the front end; its output is what targets and the interpreter take. A target
may append passes of its own (`Target.steps`).
"""

from __future__ import annotations

from tilewright.ir.passes import Step, check_order
from tilewright.passes.apply_assumptions import apply_assumptions
from tilewright.passes.canonicalize import canonicalize
from tilewright.passes.canonicalize_pointers import canonicalize_pointers
from tilewright.passes.cse import merge_equal_values
from tilewright.passes.dce import remove_dead_code
from tilewright.passes.expand_dot_scaled import expand_dot_scaled
from tilewright.passes.inline import inline_calls
from tilewright.passes.licm import hoist_invariants
from tilewright.targets.protocol import Target

STEPS = (
    Step(inline_calls),
    Step(expand_dot_scaled),
    Step(apply_assumptions),
    Step(canonicalize),
    Step(canonicalize_pointers),
    Step(canonicalize),
    Step(merge_equal_values),
    Step(hoist_invariants),
    Step(remove_dead_code),
)

ORDER = (
    (inline_calls, expand_dot_scaled, "a product may be in a called function"),
    (expand_dot_scaled, canonicalize, "conversions of operands are simplified"),
    (inline_calls, apply_assumptions, "an assumption may be about an argument of the caller"),
    (
        apply_assumptions,
        canonicalize,
        "comparisons are folded by what is assumed of their operands",
    ),
    (inline_calls, canonicalize, "inlining exposes constants to folding"),
    (inline_calls, canonicalize_pointers, "a pointer's base may be an argument of the caller"),
    (canonicalize, canonicalize_pointers, "splats of offsets are separated in canonical form"),
    (canonicalize_pointers, merge_equal_values, "equal offsets become equal values"),
    (canonicalize_pointers, hoist_invariants, "a load may only move past stores to other bases"),
    (merge_equal_values, hoist_invariants, "one copy is hoisted instead of several"),
    (hoist_invariants, remove_dead_code, "a loop may be empty after hoisting"),
)

check_order(STEPS, ORDER)


def pipeline(target: Target) -> tuple[Step, ...]:
    """All steps of a compilation for the target."""
    steps = (*STEPS, *target.steps())
    check_order(steps, ORDER)
    return steps
