"""An estimate of the register pressure of PTX, before it is assembled."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import accumulate, chain, pairwise

_WORDS = {"r": 1, "rs": 1, "rd": 2, "rq": 4}  # 32-bit registers, by the prefix of a name
_REGISTER = re.compile(r"%(?:rs?|rd|rq)\d+\b")
_BRANCH = re.compile(r"\bbra[.\w]* \t?(\$\w+);")
_DIGITS = "0123456789"


def live_registers(ptx: str) -> int:
    """The most 32-bit registers whose values are live at once, in the order of the text.

    Assemblers order instructions otherwise and compute values again: ptxas gave kernels of the
    benchmarks' forms 0.3 to 1.6 times as many, the least where many loads are in flight at once.
    """
    loops = list(_loops(ptx))
    # Uses of registers are counted, as their places in the text take longer to find.
    names: list[str] = []
    uses_before = dict[int, int]()
    for begin, end in pairwise(sorted({0, *chain(*loops), len(ptx)})):
        uses_before[begin] = len(names)
        names += _REGISTER.findall(ptx, begin, end)
    last = {name: at for at, name in enumerate(names)}
    first = dict(zip(reversed(names), reversed(range(len(names))), strict=True))
    words = {name: _WORDS[name.rstrip(_DIGITS)[1:]] for name in first}
    for begin, end in sorted(loops, key=lambda loop: loop[1] - loop[0]):
        start, stop = uses_before[begin], uses_before[end]
        for name, at in first.items():
            if at < start <= last[name] < stop:
                last[name] = stop
    changes = [(at, words[name]) for name, at in first.items()]
    changes += [(at, -words[name]) for name, at in last.items()]
    return max(accumulate(change for _, change in sorted(changes)), default=0)


def has_loops(ptx: str) -> bool:
    """Whether a branch leads back."""
    return any(True for _ in _loops(ptx))


def _loops(ptx: str) -> Iterator[tuple[int, int]]:
    """The places of the label and the branch of each loop."""
    at = ptx.find("bra")
    while at >= 0:
        if found := _BRANCH.match(ptx, at):
            begin = ptx.find(f"\n{found[1]}:", 0, at)
            if begin >= 0:
                yield begin, at
        at = ptx.find("bra", at + 1)
