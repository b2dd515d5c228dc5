"""Files of tile IR and the TTIR that it becomes.

A case is a sentence, a function of tile IR, the word `becomes`, and the body of the function in
TTIR. `PYTHONPATH=plugins/triton python plugins/triton/tests/golden.py` replaces the expected texts
by the present ones.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from tilewright_triton.ttir.print_ttir import print_ttir
from tilewright_triton.vendors import vendor_of

from tilewright.ir.parser import parse_module
from tilewright.ir.verify import verify_module

FOLDER = Path(__file__).with_name("ttir")


class Case(NamedTuple):
    """A case of a file: its sentence, the tile IR, and the expected text."""

    file: Path
    sentence: str
    source: str
    expected: str

    @property
    def name(self) -> str:
        return f"{self.file.stem}/{self.source.partition('@')[2].partition('(')[0]}"


def cases() -> list[Case]:
    """The cases of all files."""
    return [case for file in sorted(FOLDER.glob("*.txt")) for case in cases_of(file)]


def cases_of(file: Path) -> list[Case]:
    found: list[Case] = []
    for part in file.read_text("utf-8").split("\n\n# "):
        text, _, expected = f"{part}\n".removeprefix("# ").partition("\nbecomes\n")
        sentence, _, source = text.partition("\nfunc ")
        found.append(Case(file, sentence, f"func {source}\n", expected.strip("\n")))
    return found


def written(case: Case) -> str:
    """The present TTIR of a case."""
    module = parse_module(case.source, case.name)
    verify_module(module)
    return print_ttir(module, vendor_of("cuda")).rstrip("\n")


def bless(file: Path) -> None:
    """Replace the expected texts of a file."""
    parts = [
        f"# {c.sentence}\n{c.source.rstrip()}\nbecomes\n{written(c)}\n" for c in cases_of(file)
    ]
    file.write_text("\n".join(parts), "utf-8")


if __name__ == "__main__":
    for path in FOLDER.glob("*.txt"):
        bless(path)
