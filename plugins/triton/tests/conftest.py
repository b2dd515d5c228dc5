"""Makes the plug-in of this checkout known to tilewright, and finds Triton."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tilewright_triton.client import PYTHON, TESTED, client, python

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


@pytest.fixture(scope="session")
def triton() -> str:
    """The version of Triton; the test is skipped where there is none that is tested."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    found = subprocess.run(
        [python(), "-c", "import triton; print(triton.__version__)"],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    version = found.stdout.strip()
    if not version.startswith(TESTED):
        pytest.skip(f"{PYTHON} names no interpreter with Triton {' or '.join(TESTED)}")
    client.cache_clear()
    return version
