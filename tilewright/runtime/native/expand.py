"""The abbreviations of the `.ll` files, which are explained in launch.ll, as LLVM IR."""

from __future__ import annotations

import re

from tilewright.runtime.native.layout import NUMBERS, OFFSETS

_GET = re.compile(r"^  (%\w+) = get (\w+) (\w+)\.(\w+) of (%\w+)$")
_SET = re.compile(r"^  set (\w+) (\S+) in (\w+)\.(\w+) of (%\w+)$")
_AT = re.compile(r"^  (%\w+) = at (\w+)\.(\w+) of (%\w+)$")
_API = re.compile(r"^  (?:(%\w+) = )?api (\w+) (\w+)\((.*)\)$")
_NUMBER = re.compile(r"\$(\w+)(?:\.(\w+))?")


class _Expander:
    def __init__(self) -> None:
        self._count = 0

    def line(self, line: str) -> str:
        """A line of LLVM IR for a line of ours."""
        self._count += 1
        at = f"%at.{self._count}"
        if found := _GET.match(line):
            result, kind, struct, field, base = found.groups()
            return f"{self._address(at, struct, field, base)}\n  {result} = load {kind}, ptr {at}"
        if found := _SET.match(line):
            kind, value, struct, field, base = found.groups()
            store = self._numbers(f"  store {kind} {value}, ptr {at}")
            return f"{self._address(at, struct, field, base)}\n{store}"
        if found := _AT.match(line):
            result, struct, field, base = found.groups()
            return self._address(result, struct, field, base)
        if found := _API.match(line):
            result, kind, name, arguments = found.groups()
            function = f"%function.{self._count}"
            call = f"call {kind} {function}({self._numbers(arguments)})"
            return (
                f"{self._address(at, 'Runtime', name, '%rt')}\n  {function} = load ptr, ptr {at}\n"
                f"  {f'{result} = ' if result else ''}{call}"
            )
        return self._numbers(line)

    def _address(self, result: str, struct: str, field: str, base: str) -> str:
        offset = OFFSETS[struct][field]
        return f"  {result} = getelementptr i8, ptr {base}, i64 {offset}"

    def _numbers(self, line: str) -> str:
        def number(found: re.Match[str]) -> str:
            name, field = found.groups()
            return str(OFFSETS[name][field] if field else NUMBERS[name])

        return _NUMBER.sub(number, line)


def expand(text: str) -> str:
    """LLVM IR from the text of the `.ll` files."""
    expander = _Expander()
    lines = [line for line in text.splitlines() if not line.lstrip().startswith(";")]
    return "\n".join(map(expander.line, lines)) + "\n"
