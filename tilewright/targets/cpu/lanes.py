"""Values along the lanes of a vector, kept in the simplest of three forms.

At a point of a loop, a tile value is looked at in W lanes at once: W neighbouring elements along
one axis. Often these are all equal, or a base and a multiple of the lane number; kept so, address
arithmetic stays scalar and a load is seen to be contiguous:

    Lanes(base, 0)       every lane is `base` (a scalar)
    Lanes(base, s)       lane k is base + k * s, for a constant integer s; of a pointer, s bytes
    Lanes(base, None)    `base` is an LLVM vector

Tile coordinates are such values too, of type i64: a loop's own lane coordinate is
``Lanes(i, 1)``, and what a reshape or a flip makes of it is found by the same arithmetic.
"""

from __future__ import annotations

from tilewright.lowering.emit import I64, Builder, V, const, const_vector


class Lanes:
    """W values of one type; see the module. `depth` is the loop level the value varies with."""

    __slots__ = ("base", "depth", "stride")

    def __init__(self, base: V, stride: int | None = 0, depth: int = 0) -> None:
        self.base = base
        self.stride = stride
        self.depth = depth

    @property
    def uniform(self) -> bool:
        return self.stride == 0

    def __repr__(self) -> str:
        return f"Lanes({self.base!r}, {self.stride})"


ZERO = Lanes(const(I64, 0), 0)


def index(value: int) -> Lanes:
    """A constant coordinate."""
    return Lanes(const(I64, value), 0)


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
        return Lanes(b.add(x.base, y.base), x.stride + y.stride, depth)
    return Lanes(b.add(as_vector(b, x, lanes), as_vector(b, y, lanes)), None, depth)


def sub(b: Builder, x: Lanes, y: Lanes, lanes: int) -> Lanes:
    """x - y, integers."""
    depth = max(x.depth, y.depth)
    if x.stride is not None and y.stride is not None:
        return Lanes(b.sub(x.base, y.base), x.stride - y.stride, depth)
    return Lanes(b.sub(as_vector(b, x, lanes), as_vector(b, y, lanes)), None, depth)


def mul(b: Builder, x: Lanes, y: Lanes, lanes: int) -> Lanes:
    """x * y, integers. Of a linear form and a constant the result is linear."""
    depth = max(x.depth, y.depth)
    for linear, factor in ((x, y), (y, x)):
        if linear.stride is not None and factor.uniform:
            if linear.stride == 0:
                return Lanes(b.mul(x.base, y.base), 0, depth)
            if factor.base.number is not None:
                stride = linear.stride * factor.base.number
                return Lanes(b.mul(linear.base, factor.base), stride, depth)
    return Lanes(b.mul(as_vector(b, x, lanes), as_vector(b, y, lanes)), None, depth)


def divmod_const(b: Builder, x: Lanes, n: int, lanes: int) -> tuple[Lanes, Lanes]:
    """Quotient and remainder of non-negative coordinates by a constant.

    Of consecutive lanes that start at a multiple of their number, which divides `n`, all lie in
    one group: the quotient is uniform.
    """
    if n == 1:
        return x, ZERO
    if x.base.number is not None and x.stride == 0:
        return index(x.base.number // n), index(x.base.number % n)
    by = const(I64, n)
    if x.stride == 0 or (x.stride == 1 and n % lanes == 0):
        # loops start lanes at multiples of `lanes`, see `loops.py`
        quotient = Lanes(b.udiv(x.base, by), 0, x.depth)
        return quotient, Lanes(b.urem(x.base, by), x.stride, x.depth)
    vector = as_vector(b, x, lanes)
    by = spread(b, by, lanes)
    return Lanes(b.udiv(vector, by), None, x.depth), Lanes(b.urem(vector, by), None, x.depth)
