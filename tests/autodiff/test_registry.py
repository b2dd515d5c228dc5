"""Every op class has a derivative, or a reason why not."""

import pytest

from tilewright import autodiff, ops
from tilewright.autodiff.registry import RULES, NotDifferentiable, Zero, rule_of
from tilewright.base.diagnostics import CompilationError
from tilewright.ir.define import REGISTRY, Op
from tilewright.ir.types import FP32
from tilewright.ops.arith import Constant

assert autodiff.__all__  # importing the packages fills the tables
assert ops.__all__


@pytest.mark.parametrize("name", sorted(REGISTRY))
def test_each_op_is_differentiated_or_rejected(name: str) -> None:
    rule = RULES.get(REGISTRY[name])
    assert rule is not None, (
        f"{name} has no derivative: declare it in tilewright/autodiff/rules_*.py"
    )
    if isinstance(rule, Zero | NotDifferentiable):
        assert rule.why


def test_an_op_without_declaration_is_an_error() -> None:
    class Undeclared(Constant, name="arith.undeclared_for_a_test"):
        pass

    try:
        with pytest.raises(CompilationError, match="no derivative is declared"):
            rule_of(Undeclared(1.0, FP32))
    finally:
        REGISTRY.pop("arith.undeclared_for_a_test")


def test_rules_are_for_registered_ops() -> None:
    assert all(issubclass(cls, Op) and REGISTRY[cls.name] is cls for cls in RULES)
