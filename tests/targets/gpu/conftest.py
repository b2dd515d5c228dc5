"""Collects the `.ir` files of this folder; see `tests/ir_files.py` for their form."""

from pathlib import Path

import pytest

from tests.ir_files import collect


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    return collect(file_path, parent)
