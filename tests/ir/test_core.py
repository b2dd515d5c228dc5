"""Ops, values and the regions that they are in."""

from __future__ import annotations

from tilewright.ir.core import Op
from tilewright.ir.parser import parse_module

NESTED = """
func @f(%n: i32, %c: i1) {
  %a = arith.add %n, %n : (i32, i32) -> i32
  control.for %n, %n, %n, [], num_stages=0, unroll=0, hints=() : (i32, i32, i32) -> () {
    (%i: i32)
    %r = control.if %c : i1 -> i32 {
      %b = arith.mul %i, %a : (i32, i32) -> i32
      control.yield [%b] : i32 -> ()
    } {
      control.yield [%i] : i32 -> ()
    }
    control.yield [] : () -> ()
  }
  control.return [] : () -> ()
}
"""


def test_ancestors() -> None:
    fn = parse_module(NESTED).entry
    ops: dict[str, Op] = {op.name: op for op in fn.walk()}
    add, loop, branch, product = (
        ops[name] for name in ("arith.add", "control.for", "control.if", "arith.mul")
    )
    assert list(product.ancestors()) == [branch, loop]
    assert not list(add.ancestors())
    assert list(product.enclosing()) == [(branch, branch.regions[0]), (loop, loop.regions[0])]
    body = loop.regions[0]
    assert fn.body.find_ancestor(product) is loop
    assert body.find_ancestor(product) is branch
    assert body.find_ancestor(branch) is branch
    assert body.find_ancestor(add) is None
    assert fn.body.users_of(add) == {loop}
    assert body.users_of(add) == {branch}
    assert body.users_of(branch) == set()
    assert branch.regions[1].users_of(add) == {None}


def test_contained_values() -> None:
    fn = parse_module(NESTED).entry
    ops: dict[str, Op] = {op.name: op for op in fn.walk()}
    loop, branch, product = ops["control.for"], ops["control.if"], ops["arith.mul"].result
    (index,) = loop.regions[0].args
    assert loop.contains(index)
    assert loop.contains(product)
    assert loop.contains(branch.result)
    assert not branch.contains(branch.result)
    assert not branch.contains(index)
    assert not loop.contains(fn.args[0])
    assert fn.body.contains(product)
