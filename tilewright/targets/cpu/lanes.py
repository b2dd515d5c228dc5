"""Values along the lanes of a vector, kept in the simplest of three forms.

At a point of a loop, a tile value is looked at in W lanes at once: W neighbouring elements along
one axis. Often these are all equal, or a base and a multiple of the lane number; kept so, address
arithmetic stays scalar and a load is seen to be contiguous:

    Lanes(base, 0)       every lane is `base` (a scalar)
    Lanes(base, s)       lane k is base + k * s, for a constant integer s; of a pointer, s bytes
    Lanes(base, None)    `base` is an LLVM vector

Tile coordinates are such values too, of type i64: a loop's own lane coordinate is
``Lanes(i, 1)``, and what a reshape or a flip makes of it is found by the same arithmetic.

A quotient of coordinates is the same in all lanes only where no multiple of the divisor lies
between two of them. So a coordinate carries what is known of its base: ``base % m == r``. A lane
loop's own coordinate is a multiple of the number of lanes; its flip, a slice of it and what a
reshape makes of it together with others are not, and arithmetic keeps track of that.
"""

from __future__ import annotations

from functools import lru_cache
from math import gcd

from tilewright.lowering.emit import I64, Builder, V, const, const_vector

Congruence = tuple[int, int]
"""(m, r): a number that is r modulo m; (1, 0) is any number, (0, r) is r itself."""

ANY: Congruence = (1, 0)


class Lanes:
    """W values of one type; see the module.

    Attributes:
        depth: the loop level the value varies with.
        known: the congruence of the base of a coordinate. It assumes that nothing wraps, as
            coordinates never do; it means nothing for other values.
    """

    __slots__ = ("_known", "base", "depth", "stride")

    def __init__(
        self, base: V, stride: int | None = 0, depth: int = 0, known: Congruence = ANY
    ) -> None:
        self.base = base
        self.stride = stride
        self.depth = depth
        self._known = known

    @property
    def uniform(self) -> bool:
        return self.stride == 0

    @property
    def known(self) -> Congruence:
        number = self.base.number
        return self._known if not isinstance(number, int) else (0, number)

    def __repr__(self) -> str:
        return f"Lanes({self.base!r}, {self.stride})"


@lru_cache(1024)  # equal ones are one, as what is computed at a point is kept by its coordinates
def index(value: int) -> Lanes:
    """A constant coordinate."""
    return Lanes(const(I64, value), 0)


ZERO = index(0)


def neighbours(base: V, lanes: int, depth: int) -> Lanes:
    """Coordinates of neighbouring elements; the first is a constant or a multiple of `lanes`."""
    return Lanes(base, 1 if lanes > 1 else 0, depth, (lanes, 0))


def spread(b: Builder, scalar: V, lanes: int) -> V:
    """A scalar in every lane; itself when there is one."""
    return b.splat(scalar, lanes) if lanes > 1 else scalar


def as_vector(b: Builder, x: Lanes, lanes: int) -> V:
    """All lanes as an LLVM vector (a scalar when there is one lane)."""
    if x.stride is None or lanes == 1:
        return x.base
    wide = spread(b, x.base, lanes)
    if x.stride == 0:
        return wide
    assert x.base.type.is_int, "a vector of addresses is made where they are used"
    steps = const_vector(x.base.type, [k * x.stride for k in range(lanes)])
    return b.add(wide, steps)


def add(b: Builder, x: Lanes, y: Lanes, lanes: int) -> Lanes:
    """x + y, integers."""
    depth = max(x.depth, y.depth)
    if x.stride is not None and y.stride is not None:
        (m, r), (n, s) = x.known, y.known
        known = (gcd(m, n), r + s)
        return Lanes(b.add(x.base, y.base), x.stride + y.stride, depth, known)
    return Lanes(b.add(as_vector(b, x, lanes), as_vector(b, y, lanes)), None, depth)


def sub(b: Builder, x: Lanes, y: Lanes, lanes: int) -> Lanes:
    """x - y, integers."""
    depth = max(x.depth, y.depth)
    if x.stride is not None and y.stride is not None:
        (m, r), (n, s) = x.known, y.known
        known = (gcd(m, n), r - s)
        return Lanes(b.sub(x.base, y.base), x.stride - y.stride, depth, known)
    return Lanes(b.sub(as_vector(b, x, lanes), as_vector(b, y, lanes)), None, depth)


def mul(b: Builder, x: Lanes, y: Lanes, lanes: int) -> Lanes:
    """x * y, integers. Of a linear form and a constant the result is linear."""
    depth = max(x.depth, y.depth)
    for linear, factor in ((x, y), (y, x)):
        if linear.stride is not None and factor.uniform:
            (m, r), (n, s) = x.known, y.known
            known = (gcd(m * n, m * s, n * r), r * s)
            if linear.stride == 0:
                return Lanes(b.mul(x.base, y.base), 0, depth, known)
            if factor.base.number is not None:
                stride = linear.stride * factor.base.number
                return Lanes(b.mul(linear.base, factor.base), stride, depth, known)
    return Lanes(b.mul(as_vector(b, x, lanes), as_vector(b, y, lanes)), None, depth)


def divmod_const(
    b: Builder, x: Lanes, n: int, lanes: int, span: int | None = None
) -> tuple[Lanes, Lanes]:
    """Quotient and remainder of non-negative coordinates by a constant.

    Args:
        span: lanes for which the forms of the results hold, `lanes` or more.
    """
    if n == 1:
        return x, ZERO
    if x.base.number is not None and x.stride == 0:
        return index(x.base.number // n), index(x.base.number % n)
    by = const(I64, n)
    if x.stride is not None and _in_one_group(x, n, span or lanes):
        m, r = x.known
        quotient = (m // n, r // n) if m % n == 0 else ANY
        rest = (gcd(m, n), r % n)
        return (
            Lanes(b.udiv(x.base, by), 0, x.depth, quotient),
            Lanes(b.urem(x.base, by), x.stride, x.depth, rest),
        )
    vector = as_vector(b, x, lanes)
    by = spread(b, by, lanes)
    return Lanes(b.udiv(vector, by), None, x.depth), Lanes(b.urem(vector, by), None, x.depth)


def _in_one_group(x: Lanes, n: int, lanes: int) -> bool:
    """Whether no multiple of `n` lies between two lanes of a linear coordinate.

    With the first lane k * g + r, where g divides n and r < g, its place in a group of n is from
    r to n - g + r: the way to the last lane must end in the group from both.
    """
    m, r = x.known
    g = gcd(m, n)
    r %= g
    way = (x.stride or 0) * (lanes - 1)
    return 0 <= r + way < g
