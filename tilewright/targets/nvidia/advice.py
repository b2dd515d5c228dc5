"""Numbered performance diagnostics of the assembler, such as `C7510`.

ptxas prints them without `-v`. The most important ones are about `wgmma`: if the code violates the
rules for asynchronous products, ptxas serialises all products of the kernel, so that each completes
before the next starts, or inserts a wait (`warpgroup.wait is injected`). Results are correct, but
serialised products are several times slower.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from tilewright.base.diagnostics import Loc
from tilewright.targets.nvidia.ptx_lines import source_of

_ADVICE = re.compile(r"^ptxas (?:info|warning)\s*: \((C\d+)\)\s*(.*?)\s*$", re.MULTILINE)
_AT = re.compile(r" around line (\d+)")
_PRODUCT = re.compile(r"\bwgmma\.mma_async")

# Each reason for serialisation has its own number (C7510 to C7516 and C7518 in ptxas 13.0); the
# texts have one word in common.
_SERIALISED = "serialized"
_BY_CALL = re.compile(r"\bcalls?\b")


class Advice(NamedTuple):
    """A performance diagnostic.

    Attributes:
        code: its number, such as ``C7510``.
        text: the assembler's text.
        loc: the line of the kernel that it refers to; None if unknown.
    """

    code: str
    text: str
    loc: Loc | None

    @property
    def serialises(self) -> bool:
        """Whether the products of the kernel are serialised."""
        return _SERIALISED in self.text

    @property
    def serialises_for_a_call(self) -> bool:
        """Whether the products are serialised because the kernel calls a function."""
        return self.serialises and _BY_CALL.search(self.text) is not None

    def __str__(self) -> str:
        return f"{self.text} (ptxas, {self.code})"


def advice_in(log: str, ptx: str) -> list[Advice]:
    """The diagnostics of a log, without duplicates.

        advice_in("ptxas info    : (C7510) Potential Performance Loss: …", ptx)

    A diagnostic that names a line of the PTX is located at the corresponding line of the kernel;
    one about serialised products, at the first product.
    """
    found: dict[tuple[str, str], Advice] = {}
    for code, text in _ADVICE.findall(log):
        if (code, text) not in found:
            found[code, text] = Advice(code, text, _place(text, ptx))
    return list(found.values())


def serialises_products(log: str) -> bool:
    """Whether, according to the log, the products of the kernel are serialised."""
    return any(_SERIALISED in text for _, text in _ADVICE.findall(log))


def _place(text: str, ptx: str) -> Loc | None:
    named = _AT.search(text)
    if named:
        return source_of(ptx.split("\n"), int(named[1]))
    product = _PRODUCT.search(ptx) if _SERIALISED in text else None
    if product is None:
        return None
    return source_of(ptx.split("\n"), ptx.count("\n", 0, product.start()))
