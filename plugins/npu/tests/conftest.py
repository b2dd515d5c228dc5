"""Makes the plug-in of this checkout known to tilewright, as its installation does."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tilewright.base.plug_ins import plug_ins

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the metadata of the distribution."""
    folder = tmp_path_factory.mktemp("installed")
    facts = folder / "tilewright_npu-0.1.0.dist-info"
    facts.mkdir()
    name, version = PROJECT["name"], PROJECT["version"]
    (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    lines = [
        f"[{group}]\n" + "\n".join(f"{key} = {value}" for key, value in points.items())
        for group, points in PROJECT["entry-points"].items()
    ]
    (facts / "entry_points.txt").write_text("\n".join(lines) + "\n")
    return folder


@pytest.fixture(autouse=True, scope="session")
def known(installed: Path) -> Iterator[None]:
    sys.path.insert(0, str(installed))
    plug_ins.cache_clear()
    yield
    sys.path.remove(str(installed))
    plug_ins.cache_clear()
