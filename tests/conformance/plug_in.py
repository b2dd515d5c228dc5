"""Distributions with entry points, without an installation: a module and its metadata on a path."""

from __future__ import annotations

import textwrap
from pathlib import Path

GROUPS = ("targets", "drivers", "launchers")


def install(folder: Path, name: str, code: str, **entries: str) -> Path:
    """Write a distribution into a folder, which must be on the module path.

    Args:
        name: of the distribution, of its module, and of its entry points.
        code: the text of the module.
        entries: the object of the module by kind of entry point: `targets="Target"`.
    """
    (folder / f"{name}.py").write_text(textwrap.dedent(code))
    facts = folder / f"{name}-1.5.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.5\n")
    lines = [
        f"[tilewright.{kind}]\n{name} = {name}:{value}" for kind, value in sorted(entries.items())
    ]
    (facts / "entry_points.txt").write_text("\n".join(lines) + "\n")
    return facts
