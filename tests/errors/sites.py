"""The statements of the package that raise errors, and which of them the golden cases cover.

python -m tests.errors.sites            # prints statements that have neither a case nor a reason
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from fnmatch import fnmatch
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

import tilewright
from tests.errors.cases import files, read, text_of
from tests.errors.uncovered import UNCOVERED, Uncovered

PACKAGE = Path(tilewright.__file__).parent


class Site(NamedTuple):
    """A `raise` of an exception or an `assert` with a message: file, line range and source text."""

    file: str
    first: int
    last: int
    text: str

    def __str__(self) -> str:
        return f"{self.file}:{self.first}: {self.text}"


@cache
def sites() -> tuple[Site, ...]:
    """All sites in the package, except a bare `raise`, which re-raises."""
    return tuple(_sites())


def _sites() -> Iterator[Site]:
    for path in sorted(PACKAGE.rglob("*.py")):
        file = path.relative_to(PACKAGE).as_posix()
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if not isinstance(node, ast.Raise | ast.Assert):
                continue
            if (node.exc if isinstance(node, ast.Raise) else node.msg) is not None:
                yield Site(file, node.lineno, node.end_lineno or 0, ast.unparse(node))


class Reached:
    """Records the lines of functions with sites that raise or propagate an exception while cases
    run."""

    def __init__(self) -> None:
        self.lines: set[tuple[str, int]] = set()
        self.first_lines: dict[str, list[int]] = {}  # of sites, by file
        for site in sites():
            self.first_lines.setdefault(str(PACKAGE / site.file), []).append(site.first)
        self.has_sites: dict[CodeType, bool] = {}

    def run(self) -> None:
        """Run all cases."""
        before = sys.gettrace()
        sys.settrace(self._trace)
        try:
            for path in files():
                for case in read(path).cases:
                    text_of(case)
        finally:
            sys.settrace(before)

    def _trace(self, frame: FrameType, event: str, _: Any) -> Any:
        """A call, of which there are millions."""
        code = frame.f_code
        has_sites = self.has_sites.get(code)
        if has_sites is None:
            has_sites = self.has_sites[code] = self._has_sites(code)
        if not has_sites:
            return None
        frame.f_trace_lines = False
        return self._trace_within

    def _has_sites(self, code: CodeType) -> bool:
        lines = [line for _, _, line in code.co_lines() if line is not None]
        sites = self.first_lines.get(code.co_filename, ())
        return any(min(lines) <= line <= max(lines) for line in sites)

    def _trace_within(self, frame: FrameType, event: str, _: Any) -> Any:
        if event == "exception":
            file = Path(frame.f_code.co_filename).relative_to(PACKAGE).as_posix()
            self.lines.add((file, frame.f_lineno))
        return self._trace_within

    def __contains__(self, site: Site) -> bool:
        return any((site.file, line) in self.lines for line in range(site.first, site.last + 1))


def matches(entry: Uncovered, site: Site) -> bool:
    """Whether an entry of `UNCOVERED` applies to a site."""
    return fnmatch(site.file, entry.files) and entry.text in site.text


def without_a_case() -> list[Site]:
    """The sites that no case covers."""
    reached = Reached()
    reached.run()
    return [site for site in sites() if site not in reached]


if __name__ == "__main__":
    for site in without_a_case():
        if not any(matches(entry, site) for entry in UNCOVERED):
            print(site)
