"""Hints: assumptions about values and the program, which must hold, and marks for other tools."""

from __future__ import annotations

import builtins
from typing import TYPE_CHECKING, Any

from tilewright.base.codes import coded
from tilewright.base.lazy_import import lazy_import
from tilewright.ir.types import is_float, shape_of
from tilewright.language import semantic
from tilewright.language.values import builtin, constexpr, tensor, tuple, unwrap

if TYPE_CHECKING:
    from tilewright.ops import arith, control, marks
else:
    arith = lazy_import("tilewright.ops.arith")
    control = lazy_import("tilewright.ops.control")
    marks = lazy_import("tilewright.ops.marks")

__all__ = [
    "assume", "debug_barrier", "max_constancy", "max_contiguous", "multiple_of", "recompute",
    "save", "stop_gradient",
]  # fmt: skip


def _hint(kind: str, name: str, meaning: str) -> Any:
    @builtin
    def function(input: Any, values: Any, *, _semantic: Any = None) -> Any:
        if not isinstance(input, tensor):
            return input
        facts = _hint_values(name, values, input)
        none = (0,) * len(facts)
        by_kind: dict[str, Any] = {
            "divisibility": none,
            "contiguity": none,
            "constancy": none,
            kind: facts,
        }
        return _semantic.emit(arith.Hint(input.handle, **by_kind))

    function.__name__ = function.__qualname__ = name
    setattr(function, "is_hint", True)  # noqa: B010
    function.__doc__ = f"""Assume that {meaning}; returns `input`.

    Args:
        values: a compile-time integer for each axis.
    """
    return function


def _hint_values(name: str, values: Any, input: tensor) -> builtins.tuple[int, ...]:
    numbers = values.values if isinstance(values, tuple) else values
    numbers = numbers.value if isinstance(numbers, constexpr) else numbers
    facts = list(numbers) if isinstance(numbers, list | builtins.tuple) else [numbers]
    for i, fact in enumerate(facts):
        if isinstance(fact, tensor):
            raise coded(
                "needs-constant", TypeError(f"values element {i} must have type `constexpr`")
            )
        if not isinstance(unwrap(fact), int):
            raise TypeError(
                f"values element {i} must have type `constexpr[int]`, got `{unwrap(fact)}`"
            )
    if len(facts) != max(1, len(shape_of(input.type))):
        raise ValueError(f"Shape of input to {name} does not match the length of values")
    return builtins.tuple(unwrap(f) for f in facts)


multiple_of = _hint(
    "divisibility", "multiple_of",
    "the first element of each contiguous group along an axis is a multiple of its value",
)  # fmt: skip
max_contiguous = _hint(
    "contiguity", "max_contiguous",
    "along an axis, elements come in runs of this many consecutive integers",
)  # fmt: skip
max_constancy = _hint(
    "constancy", "max_constancy", "along an axis, elements come in runs of this many equal values"
)


@builtin
def assume(cond: Any, *, _semantic: Any = None) -> None:
    """Assume that a scalar condition holds, which is checked only with the option `debug`.

    Comparisons of an integer with a constant, such as ``n >= BLOCK`` and ``n % 16 == 0``, bound it
    and its divisors, for all code that runs only if this statement does. If the condition does not
    hold, the behaviour is undefined.

    Args:
        cond: a scalar, nonzero for true.
    """
    if isinstance(cond, tensor):
        semantic.debug.assume(_semantic, cond)


@builtin
def debug_barrier(*, _semantic: Any = None) -> None:
    """Barrier: orders all memory accesses of the program before it before those after it."""
    _semantic.builder.insert(control.Barrier())


@builtin
def stop_gradient(input: Any, *, _semantic: Any = None) -> Any:
    """`input`, which is treated as a constant in differentiation.

    It has no effect on the kernel itself. Integers have no gradient and are returned unchanged.
    """
    if not isinstance(input, tensor) or not is_float(input.type):
        return input
    return _semantic.emit(marks.StopGradient(input.handle))


@builtin
def save(input: Any, *, _semantic: Any = None) -> Any:
    """`input`, marked as a residual that gradient kernels load instead of recomputing it.

        pre = tl.save(acc + bias)
        tl.store(pre_ptr + at, pre, mask=mask)
        tl.store(y_ptr + at, gelu(pre), mask=mask)

    The kernel must store it, each element once, in any float type, to which the residual is
    rounded. Add the array to ``aux`` of `grad` if it has no gradient. Without differentiation, it
    has no effect. Integers are returned unchanged.
    """
    return _residual(input, True, _semantic)


@builtin
def recompute(input: Any, *, _semantic: Any = None) -> Any:
    """`input`, which gradient kernels recompute, although the kernel stores it.

    By default, they load stored results that replace a loop, such as the log-sum-exp of attention.
    Use this if the result is overwritten before the gradient is computed, or is stored in a type
    that is too narrow. Without differentiation, it has no effect. Integers are returned unchanged.
    """
    return _residual(input, False, _semantic)


def _residual(input: Any, saved: bool, s: Any) -> Any:
    if not isinstance(input, tensor) or not is_float(input.type):
        return input
    return s.emit(marks.Residual(input.handle, saved)) if s.options.derivatives else input
