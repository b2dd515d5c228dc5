"""The report of a kernel's compilation as plain data, which is rendered as HTML, text and JSON."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from tilewright.tools.explain.accesses import AccessSummary
from tilewright.tools.explain.cost import Cost
from tilewright.tools.explain.layouts import LayoutUse
from tilewright.tools.explain.listings import Listing
from tilewright.tools.explain.roofline import Roofline
from tilewright.tools.explain.sources import Block

VERSION = 1  # of the JSON schema


@dataclass(frozen=True)
class LocatedRemark:
    """A remark of the compiler with its source lines.

    Attributes:
        by, text, missed: as in `ir.passes.Remark`.
        lines: numbers of the line and of its inlining chain.
        place: ``file:line``; "" for the whole kernel.
    """

    by: str
    text: str
    missed: bool
    lines: tuple[int, ...]
    place: str


@dataclass(frozen=True)
class ResourceUse:
    """A resource of the device that the kernel uses; see `targets.protocol.Resource`."""

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
        counts: its statistics, such as the number of ops it removed.
        skipped: why it did not run; "" if it did.
    """

    name: str
    changed: bool
    counts: dict[str, int]
    skipped: str = ""


@dataclass(frozen=True)
class Report:
    """The whole report.

    Attributes:
        kernel, place: name of the kernel, and its ``file:line``.
        target: the target, such as ``cpu`` or ``cuda:90``.
        arguments: type of each parameter, or the value of a compile-time one.
        options: compile options that differ from the target's defaults.
        origin: where the types come from.
        accesses: the block of memory that each load and store accesses.
        assembler: the tool that assembled the machine code; "" if unknown.
        cost: bytes and operations of a launch; None if its grid is unknown.
        cost_note: why `cost` is None, or its assumptions.
    """

    kernel: str
    place: str
    target: str
    arguments: dict[str, str]
    options: dict[str, Any]
    origin: str
    sources: list[Block]
    listings: list[Listing]
    remarks: list[LocatedRemark]
    accesses: list[AccessSummary]
    resources: list[ResourceUse]
    layouts: list[LayoutUse]
    passes: list[PassRun]
    cost: Cost | None = None
    cost_note: str = ""
    roofline: Roofline | None = None
    assembler: str = ""
    version: int = field(default=VERSION)

    def plain(self) -> dict[str, Any]:
        """The report as dicts, lists, strings and numbers, for JSON."""
        return asdict(self)
