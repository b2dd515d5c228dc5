"""The list of passes satisfies its declared constraints, and violations are detected."""

import pytest

from tilewright.base import knobs
from tilewright.compiler.build import context_for
from tilewright.compiler.disabled_passes import DisabledPassError, disabled_passes
from tilewright.compiler.pipeline import ORDER, STEPS, pipeline
from tilewright.ir.core import Function
from tilewright.ir.parser import parse_module
from tilewright.ir.passes import (
    PASSES,
    Pass,
    PassContext,
    Step,
    check_order,
    find_pass,
    run,
)
from tilewright.targets.interpreter.target import InterpreterTarget


def test_steps_are_registered_passes() -> None:
    assert {step.name for step in STEPS} <= set(PASSES)
    assert all(PASSES[step.name] is step.pass_ for step in STEPS)


def test_unknown_pass_error_lists_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"there is no pass 'cce'; there are .*, cse, dce"):
        find_pass("cce")
    assert find_pass("cse") is PASSES["cse"]


def test_every_constraint_names_passes_of_the_pipeline() -> None:
    present = {step.name for step in STEPS}
    for first, then, reason in ORDER:
        assert {first.name, then.name} <= present
        assert reason


@pytest.mark.parametrize(("first", "then", "reason"), ORDER, ids=lambda x: getattr(x, "name", ""))
def test_each_constraint_is_checked(first: Pass, then: Pass, reason: str) -> None:
    with pytest.raises(AssertionError, match=f"{first.name} must run before {then.name}: "):
        check_order((Step(then), Step(first)), ORDER)


def test_calls_are_inlined_first() -> None:
    # Every other pass looks at one function at a time.
    assert STEPS[0].name == "inline"


def test_target_appends_steps() -> None:
    extra = Step(Pass("extra", lambda fn, ctx: False))

    class Target(InterpreterTarget):
        def steps(self) -> tuple[Step, ...]:
            return (extra,)

    assert pipeline(Target()) == (*STEPS, extra)


def test_disabled_pass_does_not_run() -> None:
    ran: list[str] = []

    def step(name: str) -> Step:
        def apply(fn: Function, ctx: PassContext) -> bool:
            ran.append(name)
            return False

        return Step(Pass(name, apply))

    module = parse_module("func @f() {\n  control.return [] : () -> ()\n}\n")
    target = InterpreterTarget()
    with knobs.compilation.scope():
        knobs.compilation.disabled_passes = "cse, licm"
        ctx = context_for(target, target.parse_options({}))
    run(module, [step("cse"), step("dce"), step("licm")], ctx)
    assert ran == ["dce"]


def test_passes_of_other_targets_can_be_named() -> None:
    with knobs.compilation.scope():
        knobs.compilation.disabled_passes = "specialize_warps, rotate_products,"
        assert disabled_passes(InterpreterTarget()) == {"specialize_warps", "rotate_products"}


@pytest.mark.parametrize("name", ["inline", "canonicalize_pointers", "pad_tiles", "assign_layouts"])
def test_pass_that_code_generation_needs_is_not_optional(name: str) -> None:
    with knobs.compilation.scope():
        knobs.compilation.disabled_passes = name
        with pytest.raises(DisabledPassError, match=f"every compilation needs the pass {name}; .*"):
            disabled_passes(InterpreterTarget())
