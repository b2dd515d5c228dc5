"""Inlining of calls of device functions.

Input: a module in `ctx.module` whose callees end with `control.return`. Output: no calls, except of
functions marked ``noinline`` if the option ``keep_noinline`` is set; functions without callers are
removed. Recursion is an error. Inlined ops keep their source locations, with the location of the
call as their caller. Linear in the size of the result.
"""

from __future__ import annotations

from tilewright.base.diagnostics import IRError, Loc
from tilewright.base.record import replace
from tilewright.ir.core import Function, Module, Op, Value
from tilewright.ir.passes import PassContext, compiler_pass
from tilewright.ops.control import Call


@compiler_pass("inline", required=True)
def inline_calls(fn: Function, ctx: PassContext) -> bool:
    """Replace every call by the body of the callee, and remove functions without callers.

    Raises:
        IRError: a call is recursive, or the callee does not exist.
    """
    module = ctx.module
    assert module is not None
    calls = [op for op in fn.walk() if isinstance(op, Call)]
    keep_noinline = bool(ctx.options.get("keep_noinline", False))
    inlined = 0
    for call in calls:
        inlined += _expand(call, module, keep_noinline, (fn.name,))
    if inlined:
        _remove_unused(module)
    ctx.count("inlined", inlined)
    return inlined > 0


def _expand(call: Call, module: Module, keep_noinline: bool, stack: tuple[str, ...]) -> int:
    """Inline one call, then the calls in the inlined body; `stack` are the enclosing functions.
    Returns the number of calls inlined."""
    callee = module.functions.get(call.callee)
    if callee is None:
        raise IRError("callee", f"there is no function @{call.callee} in the module", call.loc)
    if callee.name in stack:
        names = " → ".join(f"@{name}" for name in (*stack, callee.name))
        raise IRError("recursion", f"recursion is not supported: {names}", call.loc)
    if keep_noinline and callee.attrs.get("noinline"):
        return 0
    inlined = 1
    for op in _copy_body(call, callee):
        if isinstance(op, Call):
            inlined += _expand(op, module, keep_noinline, (*stack, callee.name))
    return inlined


def _copy_body(call: Call, callee: Function) -> list[Op]:
    """Replace the call by a copy of the callee's body; returns the new ops, nested ones too."""
    assert call.parent is not None
    mapping: dict[Value, Value] = dict(zip(callee.args, call.args, strict=True))
    locations: dict[Loc | None, Loc | None] = {}
    copied: list[Op] = []
    for op in callee.body:
        if op.terminator:
            break
        new = op.clone(mapping)
        call.parent.insert_before(new, call)
        for inner in new.walk():
            if inner.loc not in locations:
                locations[inner.loc] = _called_from(inner.loc, call.loc)
            inner.loc = locations[inner.loc]
            copied.append(inner)
    returned = callee.body.terminator.operands
    for result, value in zip(call.results, returned, strict=True):
        result.replace_with(mapping.get(value, value))
    call.erase()
    return copied


def _called_from(loc: Loc | None, caller: Loc | None) -> Loc | None:
    """The location with `caller` as the outermost of its callers."""
    if loc is None:
        return caller
    return replace(loc, caller=_called_from(loc.caller, caller) if caller else loc.caller)


def _remove_unused(module: Module) -> None:
    entry = module.entry.name
    called: set[str] = set()
    pending = [entry]
    while pending:
        name = pending.pop()
        if name not in called and name in module.functions:
            called.add(name)
            pending += [op.callee for op in module.functions[name].walk() if isinstance(op, Call)]
    for name in list(module.functions):
        if name not in called:
            del module.functions[name]
