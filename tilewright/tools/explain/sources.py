"""The source of a kernel: the functions whose code it contains, including inlined ones.

Each shown line has a number, by which all listings refer to it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from os.path import basename
from pathlib import Path

from tilewright.base.diagnostics import Loc
from tilewright.ir.core import Module

PACKAGE = Path(__file__).parents[2]


@dataclass(frozen=True)
class Block:
    """The lines of a function.

    Attributes:
        file, name, first: the path of its file, its name, and its first line in the file.
        library: whether it is part of tilewright and not of the program.
        lines: the text.
        number: the number of its first line among all shown lines.
    """

    file: str
    name: str
    first: int
    library: bool
    lines: list[str]
    number: int


@dataclass
class SourceMap:
    """The blocks of a kernel, and the numbers of their lines."""

    blocks: list[Block] = field(default_factory=lambda: list[Block]())
    _numbers: dict[tuple[str, int], int] = field(default_factory=dict[tuple[str, int], int])
    _calls: dict[tuple[str, int], dict[int, None]] = field(
        default_factory=dict[tuple[str, int], dict[int, None]]
    )

    def add(self, file: str, name: str, first: int, lines: list[str]) -> None:
        """Add a function, whose first line is line `first` of a file."""
        number = sum(len(block.lines) for block in self.blocks)
        library = Path(file).resolve().is_relative_to(PACKAGE)
        self.blocks.append(Block(file, name, first, library, lines, number))
        for i in range(len(lines)):
            self._numbers.setdefault((basename(file), first + i), number + i)

    def number(self, file: str, line: int) -> int | None:
        """The number of a line; None if it is not shown. Files are compared by base name, because
        assembly and debug metadata may omit folders."""
        return self._numbers.get((basename(file), line))

    def numbers(self, places: Iterable[tuple[str, int]]) -> tuple[int, ...]:
        """The numbers of those lines that are shown, without duplicates."""
        found = (self.number(file, line) for file, line in places)
        return tuple(dict.fromkeys(n for n in found if n is not None))

    def add_calls(self, loc: Loc) -> None:
        """Record the inlining chain of a location, for `with_calls`."""
        (file, line), *calls = chain(loc)
        if calls:
            known = self._calls.setdefault((basename(file), line), {})
            known.update(dict.fromkeys(self.numbers(calls)))

    def with_calls(self, places: list[tuple[str, int]]) -> tuple[int, ...]:
        """Like `numbers`; for a location without an inlining chain, adds the calls of all chains
        that its line occurs in."""
        result = self.numbers(places)
        if len(places) != 1:
            return result
        file, line = places[0]
        return tuple(dict.fromkeys((*result, *self._calls.get((basename(file), line), ()))))

    def of(self, loc: Loc | None) -> tuple[int, ...]:
        """The numbers of a location's line and of its inlining chain."""
        return self.numbers(chain(loc))

    def place(self, number: int) -> tuple[Block, int]:
        """The block of a shown line, and its line number in the file."""
        block = next(b for b in reversed(self.blocks) if b.number <= number)
        return block, block.first + number - block.number


def chain(loc: Loc | None) -> Iterator[tuple[str, int]]:
    """File and line of a location and of each call in its inlining chain, innermost first."""
    while loc is not None:
        yield loc.file, loc.line
        loc = loc.caller


def source_map(module: Module) -> SourceMap:
    """The functions that a module's ops originate from, the kernel first, library code last."""
    found = SourceMap()
    entry = module.entry.loc
    places = {(loc.file, loc.line) for loc in _locations(module)}
    spans: dict[tuple[str, int, int], str] = {}
    for file in sorted({file for file, _ in places}):
        used = {line for f, line in places if f == file}
        for name, first, last in _functions(file):
            if any(first <= line <= last for line in used):
                spans[file, first, last] = name

    def rank(span: tuple[str, int, int]) -> tuple[bool, bool, str, int]:
        file, first, last = span
        own = entry is not None and file == entry.file
        is_kernel = own and entry is not None and first <= entry.line <= last
        return not is_kernel, Path(file).resolve().is_relative_to(PACKAGE), file, first

    for span in sorted(spans, key=rank):
        file, first, last = span
        found.add(file, spans[span], first, _lines(file)[first - 1 : last])
    return found


def note_calls(sources: SourceMap, module: Module) -> None:
    """Record the inlining chains of a module's locations in the map."""
    for loc in _locations(module):
        sources.add_calls(loc)


def _locations(module: Module) -> Iterator[Loc]:
    for function in module.functions.values():
        locs = [function.loc, *(op.loc for op in function.walk())]
        for loc in locs:
            while loc is not None:
                yield loc
                loc = loc.caller


def _lines(file: str) -> list[str]:
    try:
        return Path(file).read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return []


def _functions(file: str) -> Iterator[tuple[str, int, int]]:
    """Name, first and last line of each outermost function, with its decorators."""
    try:
        tree = ast.parse("\n".join(_lines(file)))
    except SyntaxError:
        return
    pending: list[ast.AST] = [tree]
    while pending:
        for node in ast.iter_child_nodes(pending.pop()):
            if isinstance(node, ast.FunctionDef):
                first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
                yield node.name, first, node.end_lineno or node.lineno
            elif not isinstance(node, ast.expr):
                pending.append(node)
