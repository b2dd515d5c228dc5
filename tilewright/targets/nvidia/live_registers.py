"""An estimate of the registers that PTX needs, before it is assembled."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import accumulate

_WORDS = {"r": 1, "rs": 1, "rd": 2, "rq": 4}  # 32-bit registers, by the prefix of a name
_REGISTER = re.compile(r"%(rs?|rd|rq)\d+\b")
_LABEL = re.compile(r"^(\$\w+):", re.MULTILINE)
_BRANCH = re.compile(r"\bbra[.\w]* \t?(\$\w+);")


def live_registers(ptx: str) -> int:
    """The most 32-bit registers whose values are live at once, in the order of the text.

    Assemblers order instructions otherwise and compute values again: ptxas gave kernels of the
    benchmarks' forms 0.3 to 1.6 times as many, the least where many loads are in flight at once.
    """
    first, last = dict[str, int](), dict[str, int]()
    words: dict[str, int] = {}
    for found in _REGISTER.finditer(ptx):
        name, at = found[0], found.start()
        if name not in first:
            first[name], words[name] = at, _WORDS[found[1]]
        last[name] = at
    for begin, end in sorted(_loops(ptx), key=lambda loop: loop[1] - loop[0]):
        for name, at in first.items():
            if at < begin <= last[name] < end:
                last[name] = end
    changes = [(at, words[name]) for name, at in first.items()]
    changes += [(at, -words[name]) for name, at in last.items()]
    return max(accumulate(change for _, change in sorted(changes)), default=0)


def has_loops(ptx: str) -> bool:
    """Whether a branch leads back."""
    return any(True for _ in _loops(ptx))


def _loops(ptx: str) -> Iterator[tuple[int, int]]:
    """The places of the first and the last instruction of each loop."""
    labels = {found[1]: found.start() for found in _LABEL.finditer(ptx)}
    for found in _BRANCH.finditer(ptx):
        begin = labels.get(found[1])
        if begin is not None and begin < found.start():
            yield begin, found.start()
