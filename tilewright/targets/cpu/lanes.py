"""Values along the lanes of a vector, in the simplest of three forms.

At a point of a loop nest, a tile is evaluated in W lanes at once: W adjacent elements along one
axis. Often these are all equal, or affine in the lane number. Represented so, address arithmetic
remains scalar, and a contiguous access is recognised:

    Lanes(base, 0)       every lane is `base` (a scalar)
    Lanes(base, s)       lane k is base + k * s, for a constant integer s; of a pointer, s bytes
    Lanes(base, None)    `base` is an LLVM vector

Coordinates are such values of type i64: a loop's own lane coordinate is ``Lanes(i, 1)``, and shape
ops compute others from it by the same arithmetic.

A quotient of a linear coordinate is uniform only if no multiple of the divisor separates two of its
lanes. To decide that, a coordinate carries a congruence of its base, ``base % m == r``, which
arithmetic propagates. The coordinate of a lane loop is a multiple of the number of lanes; its flip,
a slice, or a reshape together with other coordinates in general is not.
"""

from __future__ import annotations

from functools import lru_cache
from math import gcd

from tilewright.lowering.emit import I64, Builder, V, const, const_vector

Congruence = tuple[int, int]
"""(m, r): a number that is r modulo m; (1, 0) is any number, (0, r) is r itself."""

ANY: Congruence = (1, 0)

LARGEST = 1 << 63
"""Bound of the numbers of a congruence; those of repeated squares would double in length each."""


class Lanes:
    """W values of one type, in one of the forms of the module's docstring.

    Compared and hashed by identity: memos are keyed by the coordinates' objects.

    Attributes:
        depth: the depth of the level with which the value varies.
        known: the congruence of a coordinate's base. Valid for coordinates only, as it presumes
            that arithmetic does not overflow.
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


@lru_cache(1024)  # constants must be unique objects, as memos are keyed by coordinates
def index(value: int) -> Lanes:
    """A constant coordinate."""
    return Lanes(const(I64, value), 0)


ZERO = index(0)


def neighbours(base: V, lanes: int, depth: int) -> Lanes:
    """Coordinates of adjacent elements; `base` is a constant or a multiple of `lanes`."""
    return Lanes(base, 1 if lanes > 1 else 0, depth, (lanes, 0))


def spread(b: Builder, scalar: V, lanes: int) -> V:
    """A scalar broadcast to all lanes; the scalar itself if there is one lane."""
    return b.splat(scalar, lanes) if lanes > 1 else scalar


def as_vector(b: Builder, x: Lanes, lanes: int) -> V:
    """All lanes as an LLVM vector, or a scalar if there is one lane."""
    if x.stride is None or lanes == 1:
        return x.base
    wide = spread(b, x.base, lanes)
    if x.stride == 0:
        return wide
    assert x.base.type.is_int, "Level.pointers computes vectors of addresses"
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
    """x * y, integers. The product of a linear form and a constant is linear."""
    depth = max(x.depth, y.depth)
    for linear, factor in ((x, y), (y, x)):
        if linear.stride is not None and factor.uniform:
            known = _product(x.known, y.known)
            if linear.stride == 0:
                return Lanes(b.mul(x.base, y.base), 0, depth, known)
            if factor.base.number is not None:
                stride = linear.stride * factor.base.number
                return Lanes(b.mul(linear.base, factor.base), stride, depth, known)
    return Lanes(b.mul(as_vector(b, x, lanes), as_vector(b, y, lanes)), None, depth)


def _product(x: Congruence, y: Congruence) -> Congruence:
    # (m * i + r) * (n * j + s) = m * n * i * j + m * s * i + n * r * j + r * s
    (m, r), (n, s) = x, y
    modulus = gcd(m * n, m * s, n * r)
    rest = r * s % modulus if modulus else r * s
    return (modulus, rest) if max(modulus, abs(rest)) < LARGEST else ANY


def is_run(x: Lanes, length: int) -> bool:
    """Whether the lanes are adjacent coordinates, of which the first is a multiple of `length`."""
    m, r = x.known
    return x.stride == 1 and m % length == 0 and r % length == 0


def divmod_const(
    b: Builder, x: Lanes, n: int, lanes: int, span: int | None = None
) -> tuple[Lanes, Lanes]:
    """Quotient and remainder of non-negative coordinates by a constant.

    The results are uniform and linear if all lanes are in one group of `n`, else vectors.

    Args:
        span: the number of adjacent coordinates for which the forms of the results must be valid;
            at least `lanes`, which is the default.
    """
    if n == 1:
        return x, ZERO
    if x.base.number is not None and x.stride == 0:
        return index(x.base.number // n), index(x.base.number % n)
    by = const(I64, n)
    if x.stride is not None and _in_one_group(x, n, span or lanes):
        m, r = x.known
        # (m * i + r) // n = (m / n) * i + r // n needs a divisible m; for the remainder, what m and
        # n have in common suffices.
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
    """Whether all lanes of a linear coordinate have the same quotient by `n`.

    The first lane is k * g + r with g = gcd(m, n) and r < g, so it is at least r above, and at
    least g - r below, a multiple of n. The distance to the last lane must not exceed either.
    """
    m, r = x.known
    g = gcd(m, n)
    r %= g
    distance = (x.stride or 0) * (lanes - 1)
    return 0 <= r + distance < g
