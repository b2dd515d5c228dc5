"""Makes the plug-in of this checkout known to tilewright, as its installation does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.plug_in_metadata import on_module_path, write_metadata


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the metadata of the distribution."""
    folder = tmp_path_factory.mktemp("installed")
    write_metadata(Path(__file__).parents[1], folder)
    return folder


@pytest.fixture(autouse=True, scope="module")
def known(installed: Path) -> Iterator[None]:
    with on_module_path(installed):
        yield
