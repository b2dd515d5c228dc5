"""Recurrences of loops in LLVM IR, on whose length the time of value numbering depends.

LLVM's NewGVN first takes the phis of a loop for equal where they begin with equal values, and then
separates those that a pass over the loop shows to differ. In a delay line,

    a0, a1, a2, … = a1, a2, a3, …

each pass separates one, so that it takes as many passes as there are phis. LLVM 22 allows for 100,
and then ends the process in an assertion.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

LIMIT = 64  # passes, where LLVM's is 100

_PHIS = re.compile(rf"(?:^[ \t]*%[^\n]* = phi [^\n]*\n){{{LIMIT},}}", re.MULTILINE)
_DEFINITION = re.compile(r"^[ \t]*(%[^ ]+) = (.*)", re.MULTILINE)
_NAME = re.compile(r"%[^ ,)\]}]+")


def has_long_recurrence(text: str) -> bool:
    """Whether some phi of a block depends on another by way of more than `LIMIT` of its phis."""
    if text.count(" = phi ") <= LIMIT:
        return False
    functions = re.split(r"^}", text, flags=re.MULTILINE)
    return any(_is_long(function, m) for function in functions for m in _PHIS.finditer(function))


def _is_long(function: str, found: re.Match[str]) -> bool:
    phis = _DEFINITION.findall(found[0])
    later = dict(_DEFINITION.findall(function, found.end()))
    slices = _Slices(later, [name for name, _ in phis])
    depends = [slices.union(_NAME.findall(operands)) for _, operands in phis]
    return any(_levels(depends, i) > LIMIT for i in range(len(depends)))


class _Slices:
    """The phis of a block from which values are computed: bit i of a set stands for phi i.

    Attributes:
        definitions: of values behind the block, by name; others do not depend on it.
        reached: what is known so far; of a value that is being looked at, nothing.
    """

    def __init__(self, definitions: dict[str, str], phis: list[str]) -> None:
        self.definitions = definitions
        self.reached = {name: 1 << i for i, name in enumerate(phis)}

    def union(self, names: list[str]) -> int:
        found = 0
        for name in names:
            found |= self._of(name)
        return found

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
        operands = _NAME.findall(self.definitions.get(name, ""))
        return name, operands, iter(operands)


def _levels(depends: list[int], start: int) -> int:
    """How many steps lead to the phi that is farthest from one."""
    seen = new = 1 << start
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
