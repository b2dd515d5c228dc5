"""The errors of differentiation: what has no derivative, where, and what to do about it."""

from __future__ import annotations

from tilewright.autodiff.arrays import Array
from tilewright.autodiff.distinct import Verdict
from tilewright.autodiff.registry import derivative_error
from tilewright.ir.core import Op
from tilewright.ir.types import Type, element_of, is_float, text_of
from tilewright.ops.control import For
from tilewright.ops.marks import FunctionResult


def no_gradient(op: Op, why: str) -> Exception:
    """The error of an op that has no derivative."""
    kinds = [v.type for v in op.operands if is_float(v.type)]
    of = f" of {_a(kinds[0])}" if kinds else ""
    name = f"libdevice.{op.function}" if isinstance(op, FunctionResult) else op.name
    return derivative_error(
        op,
        f"no gradient through {name}{of}: {why}",
        "help: tl.stop_gradient(x) for an operand whose gradient is not needed",
    )


def _a(type: Type) -> str:
    return f"a tile of {element_of(type)}" if type.is_block() else f"{element_of(type)}"


def unnamed_output(op: Op, array: Array) -> Exception:
    """The error of a float that is stored to an array of which the caller said nothing."""
    return derivative_error(
        op,
        f"{array.name} is stored here, and its values depend on the inputs",
        f'help: name it in outputs=("{array.name}", …), or in aux=("{array.name}", …) if its '
        "derivative is not needed",
    )


def stored_input(op: Op, array: Array) -> Exception:
    """The error of an input that the kernel writes, and does not load."""
    return derivative_error(
        op,
        f"{array.name} is stored here: only arrays that are loaded, not stored, have a gradient",
    )


def result_of_atomic(op: Op) -> Exception:
    """The error of an atomic that takes part in a derivative and is not a plain sum."""
    return derivative_error(
        op,
        f"no gradient through {op.name}: its result, or what is in memory after it, depends on the "
        "order of programs",
        "help: tl.atomic_add whose result is not used has a gradient",
    )


def unknown_loop(op: Op, what: str) -> Exception:
    """The error of a loop that cannot be recorded."""
    return derivative_error(
        op,
        f"no gradient through {what}: its intermediate values are not kept",
        "help: a `for` loop whose carried values are sums has a gradient",
    )


def unknown_carried(loop: For, index: int) -> Exception:
    """The error of a carried value that is not a sum, where only sums are possible."""
    kind = text_of(loop.inits[index].type)
    return derivative_error(
        loop,
        f"no gradient through this loop: value {index + 1} that it carries ({kind}) is needed in "
        "each iteration, and intermediate values are not kept",
        "help: a carried value has a gradient where the loop only adds to it, something that does "
        "not depend on it",
    )


def long_tape(loop: Op, trips: int | None, size: int, programs: int, most: int) -> Exception:
    """The error of a loop whose intermediate values take too much memory."""
    often = "an unknown number of" if trips is None else str(trips)
    more = "help: pass more tape_bytes to grad"
    if trips is not None:
        more += (
            ", or tl.range(…, ad_checkpoint=k), which keeps every k-th iteration and computes "
            "those between them again"
        )
    return derivative_error(
        loop,
        f"the gradient needs what this loop carries ({size} bytes) at {often} iterations in each "
        f"program of {programs}: that is more than tape_bytes={most}",
        more,
    )


def stored_twice(array: Array, verdict: Verdict) -> Exception:
    """The error of a result whose elements may be stored more than once."""
    return derivative_error(
        verdict.at,
        f"the gradient of {array.name} is used once for each store of an element, and it is not "
        f"known that each element is stored once: {verdict.reason}",
        "help: store each element by one program, once; arrays that an index is loaded from can be "
        "named in tables",
    )


def not_deterministic(array: Array, verdict: Verdict) -> Exception:
    """The error of gradients that are added up in any order, though deterministic ones are
    required."""
    return derivative_error(
        verdict.at,
        f"the gradient of {array.name} would be added up atomically, in any order: "
        f"{verdict.reason}",
        "help: leave out deterministic=True to allow it",
    )
