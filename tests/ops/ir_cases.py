"""Reads `<stem>.ir` and `<stem>.invalid.ir`, the cases of the ops of `tilewright/ops/<stem>.py`.

A case is one function. In an invalid one a line ends with `# error[code]: part of the message`,
which is what parsing or verifying it must say of that line.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import tilewright.ops as ops
from tilewright.base.diagnostics import IRError
from tilewright.ir.core import Module, Op
from tilewright.ir.define import REGISTRY
from tilewright.ir.parser import parse_module
from tilewright.ir.printer import print_module
from tilewright.ir.verify import verify_module

FOLDER = Path(__file__).parent
STEMS = ops.__all__

_FUNCTION = re.compile(r"^(?:layout .*\n)*func @(\w+)", re.MULTILINE)
_ERROR = re.compile(r"# error\[([a-z-]+)\]: (.*)$")


@dataclass(frozen=True)
class Case:
    """One function of a file, with as many empty lines before it as keep its line numbers."""

    file: str
    name: str
    text: str

    @property
    def id(self) -> str:
        return f"{self.file}:{self.name}"


def read_cases(path: Path) -> list[Case]:
    """The functions of a file; none when it does not exist."""
    text = path.read_text("utf-8") if path.exists() else ""
    found = list(_FUNCTION.finditer(text))
    ends = [*(m.start() for m in found[1:]), len(text)] if found else []
    return [
        Case(path.name, m[1], "\n" * text.count("\n", 0, m.start()) + text[m.start() : end])
        for m, end in zip(found, ends, strict=True)
    ]


def round_trip(text: str, file: str = "<ir>") -> Module:
    """Parse and verify; what the printer makes of it must parse back to the same text."""
    module = parse_module(text, file)
    verify_module(module)
    printed = print_module(module)
    again = parse_module(printed, file)
    verify_module(again)
    assert print_module(again) == printed
    return module


def faulty_line(case: Case) -> tuple[int, str, str]:
    """The line on which an error is expected, its code and a part of its message."""
    lines = enumerate(case.text.split("\n"), 1)
    (found,) = [(i, m[1], m[2].strip()) for i, line in lines if (m := _ERROR.search(line))]
    return found


def fault_of(case: Case) -> str | None:
    """The fault of an invalid case: no error, or another than the expected."""
    line, code, message = faulty_line(case)
    try:
        verify_module(parse_module(case.text, case.file))
    except IRError as error:
        found = error.loc.line if error.loc else None
        if (found, error.code) != (line, code) or message not in str(error):
            return f"expected error[{code}]: {message} on line {line}, found {error}"
        return None
    return "parses and verifies"


def ops_of_valid(case: Case) -> set[type[Op]]:
    return {type(op) for op in round_trip(case.text, case.file).walk()}


def ops_of_invalid(case: Case) -> set[type[Op]]:
    """The ops on the faulty line, or that the expected message names."""
    line, _, message = faulty_line(case)
    text = case.text.split("\n")[line - 1].split("#")[0] + message
    return {REGISTRY[word] for word in re.findall(r"[a-z]+\.[a-z_0-9]+", text) if word in REGISTRY}
