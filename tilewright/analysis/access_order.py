"""The order of the axes of an access of which no elements are known to be adjacent in memory.

Strides are often numbers that are known at launch only, such as those of a tensor that is not
contiguous, or of the filters of a convolution. Memory is transferred in sectors, so lanes should
lie along the axis along which elements may share them:

- first an axis with a constant stride of less than a sector, the least first, also of most elements
  only: those of an image, whose rows are parts of the axis;
- then one whose stride is not known to be a multiple of a sector, that of the least known factor
  first. Of a row-major tensor, each stride is a multiple of the next one: the filters of 3 x 3
  elements of 64 channels have the strides 576 and 9, of which 16 divides the first;
- then the others, of which each element has a sector of its own, or all have the same element.

Axes that are alike are in row-major order, the last one first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import gcd, prod

from tilewright.analysis.affine_form import Affine
from tilewright.analysis.axis_rules import power_of_two_in
from tilewright.analysis.polynomial import Polynomial
from tilewright.ir.core import Value
from tilewright.ops.arith import IntDiv

SECTOR_BYTES = 32
"""The granularity of transfers from and to the memory of GPUs."""

Divisibility = Callable[[Value], int]
"""A power of two that divides a scalar."""


def in_order(axes: Sequence[int], form: Affine, size: int, divisibility: Divisibility) -> list[int]:
    """Sort axes, the one along which lanes should lie first; alike ones stay as they are.

    Args:
        form: of the pointers.
        size: bytes of an element.
    """
    return sorted(axes, key=lambda axis: _rank(form, axis, size, divisibility))


def _rank(form: Affine, axis: int, size: int, divisibility: Divisibility) -> tuple[int, int]:
    step = _usual_step(form, axis)
    number = None if step is None else step.constant
    if number or (number == 0 and not form.varies(axis)):
        apart = abs(number) * size
        return (0, apart) if 0 < apart < SECTOR_BYTES else (2, 0)
    factors = (form.strides[axis], *(f for f, piece in form.pieces if axis in piece.axes))
    apart = gcd(*(_factor(polynomial, divisibility) for polynomial in factors)) * size
    return (1, apart) if apart < SECTOR_BYTES else (2, 0)


def _usual_step(form: Affine, axis: int) -> Polynomial | None:
    """The difference of most elements from their neighbours along an axis, if it is known.

    Most remainders by a number that is not small differ as what is divided does, and most quotients
    are equal: ``(i // width) * stride + i % width`` is mostly consecutive.
    """
    total = form.strides[axis]
    for factor, piece in form.pieces:
        inner = [place for place, found in enumerate(piece.axes) if found == axis]
        if not inner:
            continue
        if piece.index is None or len(inner) > 1:
            return None
        if isinstance(piece.value.op, IntDiv):
            continue
        step = _usual_step(piece.index, inner[0])
        if step is None:
            return None
        total += factor * step
    return total


def _factor(polynomial: Polynomial, divisibility: Divisibility) -> int:
    """A power of two that divides the value of a polynomial; 0 if it is 0."""
    return gcd(
        *(
            power_of_two_in(term.coefficient)
            * prod(divisibility(f) for f in term.factors if isinstance(f, Value))
            for term in polynomial.terms
        )
    )
