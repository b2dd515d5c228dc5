"""Error codes: the kind of mistake that an exception reports, independent of its class and text.

Users' tests match on the classes and texts of the language's errors, so neither can carry the code.
Explanations (`frontend/ast_to_ir/advice/`) are selected by the code and the facts that come with
it, never by the text.

    raise coded("signedness", TypeError("Cannot use / with int32 and uint32"))
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, TypeVar

Code = Literal[
    # names and calls
    "unknown-name",
    "unknown-attribute",
    "global-variable",
    "plain-function",
    "arguments",
    "compile-time-function",
    "length-of-tensor",
    "one-value",
    "not-callable",
    "unpacked-value",
    "context-manager",
    "tensor-class",
    # operands
    "broadcast",
    "stored-shape",
    "dot-shapes",
    "operand-types",
    "wrong-element-type",
    "added-pointers",
    "operator",
    "membership",
    "matmul-operator",
    "signedness",
    "needs-float",
    "floor-division",
    "fp8-mix",
    "unlike-types",
    "invert",
    "number-range",
    "not-a-tensor",
    "not-a-type",
    "tensor-index",
    "tuple-index",
    "axis",
    "grid-axis",
    "minor-axis",
    "bitcast-width",
    "subscripted-function",
    # memory
    "not-a-pointer",
    "pointer-cast",
    "other-without-mask",
    "tile-through-scalar-pointer",
    "mask-type",
    "item-assignment",
    # compile time
    "needs-constant",
    "run-time-text",
    "print-prefix",
    "combine-function",
    "constexpr-reassigned",
    # control flow
    "tile-condition",
    "tile-choice",
    "branch-type",
    "loop-type",
    "kernel-result",
    "loop-iterable",
    "loop-bounds",
    "iterated-tensor",
    # shapes
    "extent",
    "power-of-two",
    "too-many-elements",
    # Unsupported Python
    "syntax",
    "several-targets",
    "comprehension-source",
    "nested-comprehension",
]


class Mark(NamedTuple):
    """The mark of an exception: its code, and the facts that the explanation uses."""

    code: Code
    facts: dict[str, Any]


E = TypeVar("E", bound=BaseException)
_KEY = "tilewright_mark"


def coded(code: Code, error: E, **facts: Any) -> E:
    """The exception with a code and the facts that explain it; for use in a ``raise``."""
    return marked(error, Mark(code, facts))


def marked(error: E, mark: Mark | None) -> E:
    """The exception with this mark, if there is one."""
    if mark is not None:
        vars(error)[_KEY] = mark
    return error


def mark_of(error: BaseException | None) -> Mark | None:
    """The mark of the exception; None if it has no code."""
    if error is None:
        return None
    result = vars(error).get(_KEY)
    if result is None and isinstance(error, AttributeError) and error.name is not None:
        return Mark("unknown-attribute", {})  # Python's exception has the details as attributes
    return result
