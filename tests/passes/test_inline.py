"""Source locations of inlined ops."""

from tilewright.base.diagnostics import Loc
from tilewright.ir.parser import parse_module
from tilewright.ir.passes import PASSES, PassContext, Step, run
from tilewright.ops.arith import Mul

TEXT = """
func @kernel(%x: i32) -> i32 {
  %a = control.call [%x], callee="outer", types=(i32,) : i32 -> i32
  control.return [%a] : i32 -> ()
}
func @outer(%p: i32) -> i32 {
  %r = control.call [%p], callee="inner", types=(i32,) : i32 -> i32
  control.return [%r] : i32 -> ()
}
func @inner(%p: i32) -> i32 {
  %r = arith.mul %p, %p : (i32, i32) -> i32
  control.return [%r] : i32 -> ()
}
"""


def test_inlined_op_names_its_callers() -> None:
    module = parse_module(TEXT, "k.ir")
    run(module, [Step(PASSES["inline"])], PassContext())
    assert list(module.functions) == ["kernel"]
    (product,) = [op for op in module.walk() if isinstance(op, Mul)]
    assert product.loc == Loc("k.ir", 11, 1, caller=Loc("k.ir", 7, 1, caller=Loc("k.ir", 3, 1)))


def test_function_that_another_still_calls_stays() -> None:
    """A pass runs function by function: @inner is removed only after @outer."""
    module = parse_module(TEXT, "k.ir")
    ctx = PassContext(module=module)
    PASSES["inline"](module.functions["outer"], ctx)
    assert list(module.functions) == ["kernel", "outer"]
