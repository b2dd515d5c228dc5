"""Recurrences of loops in LLVM IR, whose length determines the time of value numbering.

LLVM's NewGVN first assumes that the phis of a loop with equal initial values are congruent, and
then separates those that a pass over the loop proves to differ. In a delay line,

    a0, a1, a2, … = a1, a2, a3, …

each pass separates one phi, so there are as many passes as phis. LLVM 22 allows 100 passes, and
then fails an assertion, which ends the process.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

LIMIT = 64  # passes, where LLVM's is 100

_PHI = " = phi "
_PHIS = r"(?:[ \t]*%[^ \n]+ = phi [^\n]*\n)+"
_DEFINITION = r"(?m)^[ \t]*(%[^ ]+) = (.*)"
_NAME = r"%[^ ,)\]}]+"


def has_long_recurrence(text: str) -> bool:
    """Whether some phi of a block depends on another by way of more than `LIMIT` of its phis."""
    if text.count(_PHI) <= LIMIT:
        return False
    return any(map(_has_long, text.split("\n}")))


def _has_long(function: str) -> bool:
    """As `has_long_recurrence`, of one function."""
    later: dict[str, str] = {}
    end, definitions = len(function), re.compile(_DEFINITION)
    for found in reversed(list(_blocks(function))):
        later.update(definitions.findall(function, found.end(), end))
        end = found.end()
        if _is_long(found[0], later):
            return True
    return False


def _blocks(text: str) -> Iterator[re.Match[str]]:
    """The phis of each block that has many."""
    at, phis = text.find(_PHI), re.compile(_PHIS)
    while at >= 0:
        found = phis.match(text, text.rfind("\n", 0, at) + 1)
        if found is not None and found[0].count("\n") >= LIMIT:
            yield found
        at = text.find(_PHI, found.end() if found else at + 1)


def _is_long(block: str, later: dict[str, str]) -> bool:
    """Whether the recurrences of a block's phis are long, given the definitions after it."""
    phis = re.findall(_DEFINITION, block)
    slices = _Slices(later, [name for name, _ in phis])
    depends = [slices.union(slices.names(operands)) for _, operands in phis]
    return any(_levels(depends, first) >= LIMIT for first in set(depends))


class _Slices:
    """The phis of a block from which values are computed: bit i of a set stands for phi i.

    Attributes:
        definitions: of values behind the block, by name; others do not depend on it.
        reached: what is known so far; of a value that is being looked at, nothing.
        names: finds the names in the text of operands.
    """

    def __init__(self, definitions: dict[str, str], phis: list[str]) -> None:
        self.definitions = definitions
        self.reached = {name: 1 << i for i, name in enumerate(phis)}
        self.names: Callable[[str], list[str]] = re.compile(_NAME).findall

    def union(self, names: list[str]) -> int:
        result = 0
        for name in names:
            result |= self._of(name)
        return result

    def _of(self, name: str) -> int:
        known = self.reached.get(name)
        if known is not None:
            return known
        pending = [self._begin(name)]
        while pending:
            name, operands, rest = pending[-1]
            missing = next((x for x in rest if x not in self.reached), None)
            if missing is not None:
                pending.append(self._begin(missing))
                continue
            pending.pop()
            for operand in operands:
                self.reached[name] |= self.reached[operand]
        return self.reached[name]

    def _begin(self, name: str) -> tuple[str, list[str], Iterator[str]]:
        """A value, its operands, and those of them that have not been looked at."""
        self.reached[name] = 0
        definition = self.definitions.get(name)
        operands = self.names(definition) if definition else []
        return name, operands, iter(operands)


def _levels(depends: list[int], first: int) -> int:
    """How many steps lead from a set of phis to the one that is farthest from it."""
    seen = new = first
    for level in range(len(depends)):
        found = 0
        while new:
            low = new & -new
            found |= depends[low.bit_length() - 1]
            new ^= low
        new = found & ~seen
        if not new:
            return level
        seen |= new
    return len(depends)
