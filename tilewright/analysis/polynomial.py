"""Polynomials with integer coefficients over the scalars of a kernel.

    two_rows = Polynomial.of(row) * Polynomial.of(stride) * 2 + 16
    two_rows.text(names)                    # "2*row*stride + 16"
    two_rows.value({row: 3, stride: 100})   # 616

The unknowns are `Atom`s: scalar SSA values (as the integer that its type represents), uniform
tiles, and iteration numbers of loops. Polynomials do not wrap; their creator must account for
wrapping of the kernel's arithmetic. Sums are linear in the number of terms, products in that of
pairs of terms.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from math import prod
from typing import NamedTuple

from tilewright.base.record import record
from tilewright.ir.core import Value
from tilewright.ops.control import For

Range = tuple[int, int]


@record
class Iteration:
    """The iteration number of a `for`: 0, 1, 2, …"""

    loop: For


Atom = Value | Iteration


class Term(NamedTuple):
    """`coefficient` times the product of `factors`, which may contain an atom several times."""

    coefficient: int
    factors: tuple[Atom, ...]


def _key(factors: tuple[Atom, ...]) -> Hashable:
    """A key of a product that does not depend on the order of its factors."""
    if len(factors) < 2:
        return factors
    counts: dict[Atom, int] = {}
    for factor in factors:
        counts[factor] = counts.get(factor, 0) + 1
    return frozenset(counts.items())


class Polynomial:
    """An immutable sum of terms, in insertion order, which does not affect equality."""

    __slots__ = ("_terms",)

    def __init__(self, terms: Sequence[Term] = ()) -> None:
        self._terms: dict[Hashable, Term] = {}
        for term in terms:
            self._add(term)

    def _add(self, term: Term) -> None:
        key = _key(term.factors)
        found = self._terms.get(key)
        total = term.coefficient + (found.coefficient if found else 0)
        if total:
            self._terms[key] = Term(total, found.factors if found else term.factors)
        elif found:
            del self._terms[key]

    @staticmethod
    def of(what: Atom | int) -> Polynomial:
        """The polynomial of a constant or of a single unknown."""
        polynomial = Polynomial()
        if not isinstance(what, int):
            polynomial._terms[(what,)] = Term(1, (what,))
        elif what:
            polynomial._terms[()] = Term(what, ())
        return polynomial

    @property
    def terms(self) -> tuple[Term, ...]:
        return tuple(self._terms.values())

    @property
    def constant(self) -> int | None:
        """Its value if it is constant; None otherwise."""
        if not self._terms:
            return 0
        alone = self._terms.get(())
        return alone.coefficient if alone and len(self._terms) == 1 else None

    @property
    def alone(self) -> Term | None:
        """Its only term; None if it does not have exactly one."""
        return next(iter(self._terms.values())) if len(self._terms) == 1 else None

    def fits(self, terms: int, coefficient: int) -> bool:
        """Whether it has at most `terms` terms, with coefficients of at most `coefficient` in
        magnitude."""
        if len(self._terms) > terms:
            return False
        return all([abs(t.coefficient) <= coefficient for t in self._terms.values()])

    def atoms(self) -> Iterator[Atom]:
        """Its distinct unknowns."""
        yield from dict.fromkeys(f for term in self._terms.values() for f in term.factors)

    def __bool__(self) -> bool:
        return bool(self._terms)

    def __len__(self) -> int:
        return len(self._terms)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Polynomial):
            return NotImplemented
        mine = {k: t.coefficient for k, t in self._terms.items()}
        return mine == {k: t.coefficient for k, t in other._terms.items()}

    def __hash__(self) -> int:
        return hash(frozenset((k, t.coefficient) for k, t in self._terms.items()))

    def __add__(self, other: Polynomial | int) -> Polynomial:
        if isinstance(other, int):
            other = Polynomial.of(other)
        if not other._terms:
            return self
        if not self._terms:
            return other
        total = Polynomial()
        total._terms = dict(self._terms)
        for term in other._terms.values():
            total._add(term)
        return total

    def __neg__(self) -> Polynomial:
        return self * -1

    def __sub__(self, other: Polynomial | int) -> Polynomial:
        return self + -(Polynomial.of(other) if isinstance(other, int) else other)

    def __mul__(self, other: Polynomial | int) -> Polynomial:
        if isinstance(other, int):
            if other == 1 or not self._terms:
                return self
            scaled = Polynomial()
            if other:
                scaled._terms = {
                    k: Term(t.coefficient * other, t.factors) for k, t in self._terms.items()
                }
            return scaled
        if other.constant is not None:
            return self * other.constant
        return Polynomial(
            [
                Term(a.coefficient * b.coefficient, a.factors + b.factors)
                for a in self._terms.values()
                for b in other._terms.values()
            ]
        )

    def coefficient(self, atom: Atom) -> Polynomial | None:
        """The coefficient of an unknown; None if the polynomial is not linear in it."""
        found: list[Term] = []
        for term in self._terms.values():
            rest = _without(term.factors, (atom,))
            if rest is not None:
                if atom in rest:
                    return None
                found.append(Term(term.coefficient, rest))
        return Polynomial(found)

    def divided_by(self, divisor: Term) -> tuple[Polynomial, Polynomial]:
        """The quotient of the terms that are multiples of the divisor, and the other terms."""
        quotient: list[Term] = []
        rest: list[Term] = []
        for term in self._terms.values():
            left = _without(term.factors, divisor.factors)
            if left is None or term.coefficient % divisor.coefficient:
                rest.append(term)
            else:
                quotient.append(Term(term.coefficient // divisor.coefficient, left))
        return Polynomial(quotient), Polynomial(rest)

    def reduced_by(self, part: Polynomial) -> Polynomial | None:
        """The rest without `part`, if that brings each coefficient of it nearer to 0; else None."""
        for key, term in part._terms.items():
            own = self._terms.get(key)
            if own is None or abs(own.coefficient - term.coefficient) >= abs(own.coefficient):
                return None
        return self - part

    def replaced(self, replacement: Callable[[Atom], Polynomial | None]) -> Polynomial:
        """Substitute polynomials for unknowns; those for which `replacement` returns None
        remain."""
        found = {atom: new for atom in self.atoms() if (new := replacement(atom)) is not None}
        if not found:
            return self
        total = ZERO
        for term in self._terms.values():
            product = Polynomial([Term(term.coefficient, ())])
            for factor in term.factors:
                product = product * found.get(factor, Polynomial.of(factor))
            total = total + product
        return total

    def value(self, numbers: Mapping[Atom, int]) -> int:
        """Its value for given values of its unknowns."""
        return sum(t.coefficient * prod(numbers[f] for f in t.factors) for t in self.terms)

    def bounds(self, range_of: Callable[[Atom], Range]) -> Range:
        """Inclusive bounds of its value, given those of its unknowns, by interval arithmetic. They
        are exact if no unknown occurs more than once."""
        low = high = 0
        for coefficient, factors in self._terms.values():
            ends = (coefficient, coefficient)
            for factor in factors:
                corners = [x * y for x in ends for y in range_of(factor)]
                ends = min(corners), max(corners)
            low, high = low + ends[0], high + ends[1]
        return low, high

    def text(self, name: Callable[[Atom], str]) -> str:
        """The text form, such as `2*row*stride - 16`."""
        whole = ""
        for coefficient, factors in self._terms.values():
            size = abs(coefficient)
            words = [str(size)] * (size != 1 or not factors) + [name(f) for f in factors]
            sign = "-" if coefficient < 0 else "+"
            whole += (f" {sign} " if whole else sign.strip("+")) + "*".join(words)
        return whole or "0"

    def __repr__(self) -> str:
        return f"<{self.text(repr)}>"


def _without(factors: tuple[Atom, ...], taken: tuple[Atom, ...]) -> tuple[Atom, ...] | None:
    """The factors without those in `taken`; None if one of these is missing."""
    left = list(factors)
    for factor in taken:
        if factor not in left:
            return None
        left.remove(factor)
    return tuple(left)


ZERO = Polynomial()
ONE = Polynomial([Term(1, ())])
