"""Listings of a kernel's code at each stage, which map each line to source lines.

Tile IR carries locations itself. In other languages, they are parsed from LLVM's debug metadata,
from `.loc` directives of assembly, or from comments of disassemblers; the language of a text is
detected by which of them it contains.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tilewright.ir.core import Module
from tilewright.ir.printer import located_lines
from tilewright.tools.explain.sources import SourceMap

MAX_LINES = 5000
MAX_CHARACTERS = 400_000
MAX_WIDTH = 400  # of a line

Places = list[tuple[str, int]]


@dataclass(frozen=True)
class Listing:
    """The code at one stage.

    Attributes:
        key: the name of the stage, such as ``llir``.
        title: its title.
        language: ``tile``, ``llvm`` or ``asm``, for syntax highlighting.
        lines: (text, numbers of source lines).
        left_out: the number of lines that were truncated.
    """

    key: str
    title: str
    language: str
    lines: list[tuple[str, tuple[int, ...]]]
    left_out: int = 0


def tile_listing(key: str, title: str, module: Module, sources: SourceMap) -> Listing:
    """The listing of tile IR."""
    lines = ((text, sources.of(loc)) for text, loc in located_lines(module))
    return _bounded(key, title, "tile", lines)


def code_listing(key: str, title: str, text: str, sources: SourceMap) -> Listing:
    """The listing of a target's stage; its language is detected."""
    if re.search(r"^!\d+ = ", text, re.MULTILINE) or "target triple" in text:
        language, parsed = "llvm", _llvm(text)
    elif "//## File" in text:
        language, parsed = "asm", _disassembly(text)
    else:
        language, parsed = "asm", _assembly(text)
    # LLVM's metadata has the whole inlining chain; `.loc` may have only the innermost line.
    number = sources.numbers if language == "llvm" else sources.with_calls
    return _bounded(key, title, language, ((line, number(places)) for line, places in parsed))


def _bounded(
    key: str, title: str, language: str, lines: Iterable[tuple[str, tuple[int, ...]]]
) -> Listing:
    kept: list[tuple[str, tuple[int, ...]]] = []
    characters = left_out = 0
    for text, numbers in lines:
        shown = text if len(text) <= MAX_WIDTH else text[: MAX_WIDTH - 2] + " …"
        characters += len(shown)
        if len(kept) >= MAX_LINES or characters > MAX_CHARACTERS:
            left_out += 1
        else:
            kept.append((shown, numbers))
    return Listing(key, title, language, kept, left_out)


# -- LLVM -----------------------------------------------------------------------------------------

_NODE = re.compile(r"^!(\d+) = (?:distinct )?!(\w+)\((.*)\)$", re.MULTILINE)
_ATTACHED = re.compile(r", !dbg !(\d+)")
_OTHER_METADATA = re.compile(r"^(?:!|attributes #|source_filename|target )")


class _Metadata:
    """The debug locations of a module in LLVM IR."""

    def __init__(self, text: str) -> None:
        self.nodes = {m[1]: (m[2], m[3]) for m in _NODE.finditer(text)}
        self._places: dict[str, Places] = {}

    def places(self, node: str) -> Places:
        """File and line of a location, followed by those of its inlining chain."""
        result = self._places.get(node)
        if result is None:
            kind, fields = self.nodes.get(node, ("", ""))
            result = []
            if kind == "DILocation":
                scope, caller = _field(fields, "scope"), _field(fields, "inlinedAt")
                line = re.search(r"line: (\d+)", fields)
                result = [(self._file(scope), int(line[1]) if line else 0)]
                result += self.places(caller) if caller else []
            self._places[node] = result
        return result

    def _file(self, scope: str) -> str:
        _, fields = self.nodes.get(scope, ("", ""))
        _, of_file = self.nodes.get(_field(fields, "file"), ("", ""))
        name = re.search(r'filename: "([^"]*)"', of_file)
        return name[1] if name else ""


def _field(fields: str, name: str) -> str:
    match = re.search(rf"\b{name}: !(\d+)", fields)
    return match[1] if match else ""


def _llvm(text: str) -> Iterator[tuple[str, Places]]:
    """The lines of functions and declarations, without metadata."""
    metadata = _Metadata(text)
    blank = True
    for line in text.splitlines():
        if _OTHER_METADATA.match(line) or (not line.strip() and blank):
            continue
        blank = not line.strip()
        match = _ATTACHED.search(line)
        places = metadata.places(match[1]) if match else []
        yield _ATTACHED.sub("", line), places


# -- assembly -------------------------------------------------------------------------------------

_FILE = re.compile(r'^\s*\.file\s+(\d+)\s+(?:"[^"]*"\s+)?"([^"]*)"')
_LOC = re.compile(
    r"^\s*\.loc\s+(\d+)\s+(\d+)\s+(\d+)(?:.*inlined_at\s+(\d+)\s+(\d+)\s+(\d+))?(.*)$"
)
_CHAIN = re.compile(r"([^\s:@\[]+):(\d+):\d+")
_NOISE = re.compile(
    r"^\s*\.(?:file|section|cfi_\w+|p2align|type|size|ident|addrsig|text|globl)\b|^\s*$|^\.Ltmp\d+:"
    r"|^\s*// (?:begin|end) inline asm"
)
_INSTRUCTION = re.compile(r"^\s+[^\s.#/]|^\s+\{")


class _Directives:
    """The current location, as set by `.loc` directives."""

    def __init__(self, files: dict[str, str]) -> None:
        self.files = files
        self.callers: dict[tuple[str, str, str], tuple[str, str, str]] = {}
        self.places: Places = []

    def move(self, match: re.Match[str]) -> None:
        own = match[1], match[2], match[3]
        if match[4]:
            self.callers[own] = match[4], match[5], match[6]
        else:
            self.callers.pop(own, None)
        named = _CHAIN.findall(match[7] or "")
        # LLVM writes the whole chain in a comment; otherwise, follow `inlined_at` of earlier ones.
        if named:
            self.places = [(file, int(line)) for file, line in named]
            return
        self.places = []
        current: tuple[str, str, str] | None = own
        seen: set[tuple[str, str, str]] = set()
        while current is not None and current not in seen:
            seen.add(current)
            self.places.append((self.files.get(current[0], ""), int(current[1])))
            current = self.callers.get(current)


def _assembly(text: str) -> Iterator[tuple[str, Places]]:
    """Instructions and labels, without directives that are irrelevant to readers."""
    lines = text.splitlines()
    files = {m[1]: m[2] for line in lines if (m := _FILE.match(line))}
    at = _Directives(files)
    for line in lines:
        moved = _LOC.match(line)
        if moved:
            at.move(moved)
        elif _NOISE.match(line):
            continue
        elif line.startswith(("}", ".Lfunc_end", "\t.section", "$L__info")):
            at.places = []
            yield line, []
        else:
            yield _tidy(line), at.places if _INSTRUCTION.match(line) else []


def _tidy(line: str) -> str:
    """The line with tabs expanded to columns of eight."""
    return line.replace(" \t", " ").expandtabs(8).rstrip()


# -- disassembly ----------------------------------------------------------------------------------

_COMMENT = re.compile(r'"([^"]+)", line (\d+)')


def _disassembly(text: str) -> Iterator[tuple[str, Places]]:
    places: Places = []
    fresh = True
    for line in text.splitlines():
        if "//##" in line:
            if not fresh:
                places = []
            fresh = True
            places = [*places, *((f, int(n)) for f, n in _COMMENT.findall(line))]
        elif re.match(r"^\s*/\*[0-9a-f]{4,}\*/", line):
            fresh = False
            yield line.expandtabs(8).strip(), places
        elif re.match(r"^\.L_\w+:|^\s*\.text", line):
            yield line.strip(), []
