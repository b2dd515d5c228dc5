"""Sums of products of scalars."""

from __future__ import annotations

import random
from typing import Any

from tilewright.analysis.polynomial import ONE, ZERO, Polynomial, Term
from tilewright.ir.core import Region, Value
from tilewright.ir.types import I32

X, Y, Z = Region([I32, I32, I32]).args
NAMES = {X: "x", Y: "y", Z: "z"}
x, y, z = map(Polynomial.of, (X, Y, Z))


def _text(polynomial: Polynomial) -> str:
    return polynomial.text(lambda atom: NAMES[atom] if isinstance(atom, Value) else "?")


def test_text() -> None:
    assert _text(x * y * 2 - 3) == "2*x*y - 3"
    assert _text(-x + 1) == "-x + 1"
    assert _text(x - y) == "x - y"
    assert _text(ZERO) == "0"
    assert _text(ONE) == "1"


def test_equality_ignores_term_order() -> None:
    assert x * y * z + y == y + z * y * x
    assert hash(x * y + 1) == hash(Polynomial.of(1) + y * x)
    assert x * x != x
    assert (x + y) - y == x
    assert (x - x) == ZERO
    assert not x - x
    assert (x * 2 + y) * (x - y) == x * x * 2 - x * y - y * y


def test_constant_and_alone() -> None:
    assert ZERO.constant == 0
    assert (ONE * 7).constant == 7
    assert x.constant is None
    assert (x + 1).constant is None
    assert (x * y * 3).alone == Term(3, (X, Y))
    assert (x + y).alone is None


def test_coefficient() -> None:
    assert (x * y * 2 + y + 5).coefficient(X) == y * 2
    assert (y + 5).coefficient(X) == ZERO
    assert (x * x).coefficient(X) is None


def test_division() -> None:
    divisor = Term(2, (X,))
    assert (x * y * 4 + x * 2 + y).divided_by(divisor) == (y * 2 + 1, y)
    assert (x * 3).divided_by(divisor) == (ZERO, x * 3)
    assert (x * -6).divided_by(Term(-2, (X,))) == (ONE * 3, ZERO)


def test_replaced() -> None:
    found = (x * x + x * y).replaced(lambda atom: y + 1 if atom is X else None)
    assert found == y * y * 2 + y * 3 + 1


def test_value_and_bounds_agree_with_integers() -> None:
    rng = random.Random(0)
    for _ in range(200):
        terms = [
            Term(rng.randint(-3, 3), tuple(rng.choices((X, Y, Z), k=rng.randint(0, 3))))
            for _ in range(4)
        ]
        p = Polynomial(terms)
        ranges: dict[Any, list[int]] = {
            a: sorted((rng.randint(-5, 5), rng.randint(-5, 5))) for a in (X, Y, Z)
        }
        low, high = p.bounds(lambda atom, r=ranges: (r[atom][0], r[atom][1]))
        for _ in range(20):
            numbers: dict[Any, int] = {a: rng.randint(*r) for a, r in ranges.items()}
            value = p.value(numbers)
            total = 0
            for coefficient, factors in terms:
                product = coefficient
                for factor in factors:
                    product *= numbers[factor]
                total += product
            assert value == total
            assert low <= value <= high
            q = p * p - p + 3
            assert q.value(numbers) == value * value - value + 3
