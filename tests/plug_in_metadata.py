"""The metadata with which an installed distribution declares its entry points."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from tilewright.base.plug_ins import plug_ins


def write_metadata(root: Path, folder: Path) -> None:
    """Write the metadata of the distribution at `root` into a folder, which on the module path has
    the effect of its installation."""
    project = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]
    name, version = project["name"], project["version"]
    facts = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    lines = [
        f"[{group}]\n" + "\n".join(f"{key} = {value}" for key, value in points.items())
        for group, points in project["entry-points"].items()
    ]
    (facts / "entry_points.txt").write_text("\n".join(lines) + "\n")


@contextmanager
def on_module_path(folder: Path) -> Generator[None]:
    """The distributions whose metadata are in a folder are known to tilewright."""
    sys.path.insert(0, str(folder))
    plug_ins.cache_clear()
    yield
    sys.path.remove(str(folder))
    plug_ins.cache_clear()
