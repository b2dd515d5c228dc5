"""Moves accesses of arrays that are selected at run time into a branch for each array.

    if c: p = a                           if c:
    else: p = b                  →            x = load(a + i)
    x = load(p + i)                           store(y, f(x))
    store(y, f(x))                        else:
                                              x = load(b + i)
                                              store(y, f(x))

The ops after an `if` that yields pointers to several arrays, or after a select of them, are sunk
into the branches, up to the end of the region. There is a copy for each array, at most `MOST`
additional ones in all; further selections are not changed, nor are those whose pointers leave the
region, such as loop-carried ones. Derivatives require accesses through a single pointer argument,
so the pass runs on kernels that are differentiated.

Requires: canonical pointers, in which selections among addresses of one array are selections of
offsets. Leaves: pointers for canonicalize_pointers.
"""

from __future__ import annotations

from tilewright.ir.core import Function, Op, Region, Value
from tilewright.ir.passes import PassContext, compiler_pass
from tilewright.ir.rewriter import insert_before
from tilewright.ir.types import I1, is_pointer
from tilewright.ops.arith import Select
from tilewright.ops.control import If, Return, Yield
from tilewright.rewrites.control import rebuilt_if, set_yields

MOST = 8


@compiler_pass("separate_arrays")
def separate_arrays(fn: Function, ctx: PassContext) -> bool:
    """Sink the ops after a selection of arrays into branches; see the module docstring."""
    moved = 0
    while moved < MOST:
        choice = next((op for op in fn.walk() if _chooses_an_array(op)), None)
        if isinstance(choice, Select):
            _move_rest(_as_if(choice))
        elif isinstance(choice, If):
            _move_rest(choice)
        else:
            break
        moved += 1
    ctx.count("separated", moved)
    return moved > 0


def _chooses_an_array(op: Op) -> bool:
    if isinstance(op, Select) and op.condition.type != I1:
        return False
    if not isinstance(op, If | Select) or op.parent is None:
        return False
    end = op.parent.terminator
    return (
        any(is_pointer(r.type) and r.users for r in op.results)
        and isinstance(end, Yield | Return)
        and not any(is_pointer(v.type) for v in end.operands)
    )


def _as_if(choice: Select) -> If:
    then, otherwise = Region(), Region()
    then.append(Yield([choice.on_true]))
    otherwise.append(Yield([choice.on_false]))
    branch = insert_before(If(choice.condition, then, otherwise), choice)
    choice.result.replace_with(branch.result)
    choice.erase()
    return branch


def _move_rest(branch: If) -> None:
    region = branch.parent
    assert region is not None
    end, rest = region.terminator, list[Op]()
    following = branch.next
    while following is not None and following is not end:
        rest.append(following)
        following = following.next
    moved = {v for op in (branch, *rest) for v in op.results}
    places = [i for i, v in enumerate(end.operands) if v in moved]
    for inner in branch.regions:
        _append(inner, branch, rest, [end.operands[i] for i in places])
    new = insert_before(rebuilt_if(branch), branch)
    for place, value in zip(places, new.results, strict=True):
        end.set_operand(place, value)
    for op in (*reversed(rest), branch):
        op.erase()


def _append(inner: Region, branch: If, rest: list[Op], values: list[Value]) -> None:
    """Copy ops to the end of a branch, which then yields these values."""
    here = dict(zip(branch.results, inner.terminator.operands, strict=True))
    for op in rest:
        insert_before(op.clone(here), inner.terminator)
    set_yields(inner, [here[v] for v in values])
