"""The list of passes satisfies its declared constraints, and violations are detected."""

import pytest

from tilewright.compiler.pipeline import ORDER, STEPS, pipeline
from tilewright.ir.passes import PASSES, Pass, Step, check_order, find_pass
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
