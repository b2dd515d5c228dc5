"""What is known of a kernel's compilation, as plain data: what the page, the text and JSON show."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from tilewright.tools.explain.accesses import Touched
from tilewright.tools.explain.cost import Cost
from tilewright.tools.explain.layouts import LayoutUse
from tilewright.tools.explain.listings import Listing
from tilewright.tools.explain.roofline import Roofline
from tilewright.tools.explain.sources import Block

VERSION = 1  # of the JSON's form


@dataclass(frozen=True)
class Said:
    """A remark of the compiler, with the source lines that it is about.

    Attributes:
        by, text, missed: as in `ir.passes.Remark`.
        lines: numbers of the line and of the calls through which it was inlined.
        place: ``file:line`` for people; "" for the whole kernel.
    """

    by: str
    text: str
    missed: bool
    lines: tuple[int, ...]
    place: str


@dataclass(frozen=True)
class Taken:
    """Something that the kernel takes of a device; `targets.protocol.Resource`, with its text."""

    name: str
    used: float
    limit: float | None
    unit: str
    note: str
    missed: bool


@dataclass(frozen=True)
class PassRun:
    """A step of the compilation.

    Attributes:
        changed: whether it changed the IR.
        counts: what it did, and how often.
        skipped: why it did not run; "" if it did.
    """

    name: str
    changed: bool
    counts: dict[str, int]
    skipped: str = ""


@dataclass(frozen=True)
class Report:
    """All of it.

    Attributes:
        kernel, place: its name, and ``file:line``.
        target: what it was compiled for, such as ``cpu`` or ``cuda:90``.
        arguments: type of each parameter, or the value of one that is fixed.
        options: compile options that are not the target's defaults.
        origin: how the types came to be known.
        accesses: the block of memory that each load and store touches.
        assembler: what made the machine code, if that is known.
        cost: bytes and operations of a launch; None where its sizes are not known.
        cost_note: why there is none, or what was assumed.
    """

    kernel: str
    place: str
    target: str
    arguments: dict[str, str]
    options: dict[str, Any]
    origin: str
    sources: list[Block]
    listings: list[Listing]
    remarks: list[Said]
    accesses: list[Touched]
    resources: list[Taken]
    layouts: list[LayoutUse]
    passes: list[PassRun]
    cost: Cost | None = None
    cost_note: str = ""
    roofline: Roofline | None = None
    assembler: str = ""
    version: int = field(default=VERSION)

    def plain(self) -> dict[str, Any]:
        """As JSON has it: dicts, lists, strings and numbers."""
        return asdict(self)
