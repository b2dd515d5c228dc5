"""Generates `docs/ops/`, one page per op family, from the declarations of the ops.

python -m tilewright.tools.docs_ops          # writes the pages
python -m tilewright.tools.docs_ops --check  # lists stale pages, exits with 1 if there are any
"""

from __future__ import annotations

import argparse
import inspect
import sys
from collections.abc import Sequence
from pathlib import Path

from tilewright import ops
from tilewright.ir.core import Field, Op
from tilewright.ir.define import REGISTRY, example_of
from tilewright.ir.printer import attr_text

FOLDER = Path(__file__).parents[2] / "docs" / "ops"
NOTE = "<!-- Written by `python -m tilewright.tools.docs_ops`; edit the docstrings instead. -->"

KINDS = {
    "operand": "operand",
    "optional": "operand, may be absent: `_`",
    "variadic": "operands, any number",
    "attr": "attribute",
    "region": "region",
}


def pages() -> dict[str, str]:
    """The text of each page by file name."""
    families = {stem: _ops_of(stem) for stem in ops.__all__}
    result = {f"{stem}.md": _family(stem, members) for stem, members in families.items()}
    result["README.md"] = _index(families)
    return result


def stale_pages(folder: Path = FOLDER) -> list[str]:
    """File names of pages that are missing, out of date, or belong to no family."""
    expected = pages()
    present = {path.name: path.read_text("utf-8") for path in folder.glob("*.md")}
    return sorted(n for n in expected.keys() | present.keys() if expected.get(n) != present.get(n))


def write_pages(folder: Path = FOLDER) -> list[str]:
    """Update the folder; returns the names of the pages that changed."""
    stale, expected = stale_pages(folder), pages()
    folder.mkdir(parents=True, exist_ok=True)
    for name in stale:
        if name in expected:
            (folder / name).write_text(expected[name], "utf-8")
        else:
            (folder / name).unlink()
    return stale


def _ops_of(stem: str) -> list[type[Op]]:
    """The ops declared in `tilewright/ops/<stem>.py`, in order."""
    module = f"{ops.__name__}.{stem}"
    return [cls for cls in REGISTRY.values() if cls.__module__ == module]


def _title(stem: str) -> tuple[str, str]:
    """The first paragraph of the family's module docstring, and the rest."""
    module = vars(ops)[stem]
    title, _, rest = inspect.cleandoc(module.__doc__ or "").partition("\n\n")
    return " ".join(title.split()), rest.strip()


def _index(families: dict[str, list[type[Op]]]) -> str:
    lines = [NOTE, "", "# The ops of the tile IR", ""]
    lines += ["How to add one: [add-an-op.md](../add-an-op.md).", ""]
    lines += ["| family | ops |", "| --- | --- |"]
    for stem, members in families.items():
        names = " ".join(f"`{cls.name}`" for cls in members)
        lines.append(f"| [{stem}]({stem}.md) | {names} |")
    return "\n".join(lines) + "\n"


def _family(stem: str, members: Sequence[type[Op]]) -> str:
    title, rest = _title(stem)
    lines = [NOTE, "", f"# {stem}", "", title, ""]
    lines += [rest, ""] if rest else []
    lines += [f"Declared in `tilewright/ops/{stem}.py`.", ""]
    for cls in members:
        lines += _op(cls)
    return "\n".join(lines).rstrip() + "\n"


def _op(cls: type[Op]) -> list[str]:
    example = example_of(cls)
    doc = inspect.cleandoc(cls.__doc__ or "")
    first_line = example.split("\n")[0]
    text = doc[: doc.index(first_line)].strip() if example else doc
    lines = [f"## `{cls.name}`", "", text, "", "```", example, "```", ""]
    if cls.fields:
        lines += ["| field | kind | default |", "| --- | --- | --- |"]
        lines += [f"| `{f.name}` | {KINDS[f.kind]} | {_default(f)} |" for f in cls.fields]
        lines.append("")
    return [*lines, _summary(cls), ""]


def _default(field: Field) -> str:
    """The default of an attribute, in the syntax of the IR's text."""
    try:
        return f"`{attr_text(field.default)}`" if field.kind == "attr" else ""
    except TypeError:  # the attribute has no default
        return ""


def _summary(cls: type[Op]) -> str:
    """The traits of the op, and the reason if it has no `evaluate`."""
    facts = {
        "elementwise": cls.elementwise,
        "commutative": cls.commutative,
        "reads memory": cls.reads_memory,
        "writes memory or has another visible effect": cls.writes_memory,
        "ends a region": cls.terminator,
    }
    traits = ", ".join(name for name, holds in facts.items() if holds) or "no effects"
    meaning = f"No `evaluate`: {cls.no_evaluate}." if cls.no_evaluate else ""
    return f"Traits: {traits}. {meaning}".strip()


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of the command line; returns the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing, list stale pages")
    check = parser.parse_args(argv).check
    stale = stale_pages() if check else write_pages()
    for name in stale:
        print(f"{'stale' if check else 'wrote'} docs/ops/{name}")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
