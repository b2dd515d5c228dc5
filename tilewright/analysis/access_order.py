"""The order of the axes of an access without elements that are known to be adjacent in memory.

Strides are often known at launch only, such as those of a non-contiguous tensor, or of the filters
of a convolution. Memory is transferred in sectors, so lanes are assigned along the axis along which
elements may share sectors:

- first axes with a constant stride of less than a sector, by increasing stride, even if only most
  elements have it, such as those of an image, whose rows are parts of the axis;
- then axes whose stride is not known to be a multiple of a sector, by increasing known factor. Each
  stride of a row-major tensor is a multiple of the next: filters of 3 x 3 elements and 64 channels
  have strides 576 and 9, and 16 divides the first;
- then the others, along which each element has its own sector, or all elements are the same.

Equal axes are in row-major order, the last one first.
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
    """Sort axes by preference for assigning lanes; the sort is stable.

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
