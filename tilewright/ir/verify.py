"""The verifier: structure, dominance, types, and the invariants of each op.

One traversal of a function, linear in its number of ops; `visible` holds the values whose
definitions dominate the current op.
"""

from __future__ import annotations

from tilewright.base.diagnostics import IRError
from tilewright.ir.core import Function, Module, Op, Region, Value
from tilewright.ir.types import text_of


def verify_module(module: Module) -> None:
    """Raise `IRError` for the first invalid op."""
    for function in module.functions.values():
        verify_function(function)


def verify_function(fn: Function) -> None:
    """Raise `IRError` for the first invalid op of the function."""
    if len(fn.arg_attrs) != len(fn.args):
        raise IRError(
            "arg-attrs",
            f"@{fn.name} has {len(fn.args)} arguments but attributes for {len(fn.arg_attrs)}",
            fn.loc,
        )
    _verify_region(fn.body, set(), fn.name)


def _verify_region(region: Region, visible: set[Value], where: str) -> None:
    defined: list[Value] = list(region.args)
    visible.update(region.args)
    for i, arg in enumerate(region.args):
        if arg.owner is not region or arg.index != i:
            raise IRError("structure", f"argument {i} of a region of {where} has another owner")
    for op in region:
        _verify_op(op, region, visible)
        for nested in op.regions:
            if nested.parent is not op:
                raise IRError("structure", f"{op.name}: a region has another parent", op.loc)
            _verify_region(nested, visible, op.name)
        visible.update(op.results)
        defined.extend(op.results)
    if region.last is None or not region.last.terminator:
        loc = region.last.loc if region.last else (region.parent.loc if region.parent else None)
        raise IRError("terminator", f"a region of {where} does not end with a terminator", loc)
    visible.difference_update(defined)


def _verify_op(op: Op, region: Region, visible: set[Value]) -> None:
    if op.parent is not region:
        raise IRError("structure", f"{op.name}: its parent is not the region that lists it", op.loc)
    if op.terminator and op.next is not None:
        raise IRError("terminator", f"{op.name}: a terminator must be the last op", op.loc)
    for operand in op.operands:
        if operand not in visible:
            reason = f"{op.name}: operand {_place(op, operand)} is not defined before this use"
            raise IRError("dominance", reason, op.loc)
        if op not in operand.users:
            reason = f"{op.name}: is not a user of its operand {_place(op, operand)}"
            raise IRError("structure", reason, op.loc)
    op.verify()
    expected = tuple(op.result_types())
    actual = tuple([r.type for r in op.results])
    if expected != actual:
        raise IRError(
            "result-type",
            f"{op.name}: results are {[text_of(t) for t in actual]}, but `result_types` returns "
            f"{[text_of(t) for t in expected]}",
            op.loc,
        )


def _place(op: Op, operand: Value) -> int:
    """The index of the first operand that is this value."""
    return next(i for i, value in enumerate(op.operands) if value is operand)
