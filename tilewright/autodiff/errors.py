"""Errors of differentiation, with the source line and a suggested fix."""

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
        "help: use tl.stop_gradient(x) for operands without a gradient",
    )


def _a(type: Type) -> str:
    return f"a tile of {element_of(type)}" if type.is_block() else f"{element_of(type)}"


def unnamed_output(op: Op, array: Array) -> Exception:
    """The error of a float that is stored to an array which is neither an output nor auxiliary."""
    return derivative_error(
        op,
        f"{array.name} is stored here, and its values depend on the inputs, but it is not an "
        "output",
        f'help: add it to outputs=("{array.name}", …), or to aux=("{array.name}", …) if it has no '
        "gradient",
    )


def stored_input(op: Op, array: Array) -> Exception:
    """The error of an input that the kernel writes, and does not load."""
    return derivative_error(
        op,
        f"{array.name} is stored here: only arrays that are loaded, not stored, have a gradient",
    )


def result_of_atomic(op: Op) -> Exception:
    """The error of an atomic that affects a derivative and is not a plain sum."""
    return derivative_error(
        op,
        f"no gradient through {op.name}: its result, or the memory after it, depends on the order "
        "of programs",
        "help: use tl.atomic_add without its result, which has a gradient",
    )


def unknown_loop(op: Op, what: str) -> Exception:
    """The error of a loop that cannot be recorded."""
    return derivative_error(
        op,
        f"no gradient through {what}: its intermediate values are not recorded",
        "help: use a `for` loop whose carried values are sums",
    )


def unknown_carried(loop: For, index: int) -> Exception:
    """The error of a carried value that is not a sum, where only sums are possible."""
    kind = text_of(loop.inits[index].type)
    return derivative_error(
        loop,
        f"no gradient through this loop: its carried value {index + 1} ({kind}) is used in each "
        "iteration, and intermediate values are not recorded",
        "help: a carried value has a gradient if the loop only adds terms to it that do not depend "
        "on it",
    )


def long_tape(loop: Op, trips: int | None, size: int, programs: int, most: int) -> Exception:
    """The error of a loop whose intermediate values take too much memory."""
    often = "an unknown number of" if trips is None else str(trips)
    more = "help: increase tape_bytes of grad"
    if trips is not None:
        more += (
            ", or use tl.range(…, ad_checkpoint=k), which records every k-th iteration and "
            "recomputes those between them"
        )
    return derivative_error(
        loop,
        f"the tape of this loop has its carried values ({size} bytes) at {often} iterations in "
        f"each of {programs} programs: that is more than tape_bytes={most}",
        more,
    )


def stored_twice(array: Array, verdict: Verdict) -> Exception:
    """The error of a result whose elements may be stored more than once."""
    return derivative_error(
        verdict.at,
        f"elements of the result {array.name} may be stored more than once: {verdict.reason}",
        "help: store each element once, by one program; declare arrays from which indices are "
        "loaded in tables=(…)",
    )


def not_deterministic(array: Array, verdict: Verdict) -> Exception:
    """The error of gradients that require atomic additions, with deterministic=True."""
    return derivative_error(
        verdict.at,
        f"the gradient of {array.name} requires atomic additions, in an unspecified order: "
        f"{verdict.reason}",
        "help: omit deterministic=True to allow them",
    )
