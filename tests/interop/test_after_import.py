"""Adaptations of modules that are imported later: `interop/after_import.py`."""

import importlib
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tilewright.interop.after_import import after_import

NAME = "adapted_when_it_is_imported"


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The name of a module that can be imported, and has not been."""
    (tmp_path / f"{NAME}.py").write_text("executed = True\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield NAME
    sys.modules.pop(NAME, None)


def test_functions_wait_for_the_import_and_run_once(library: str) -> None:
    seen: list[Any] = []

    def adapt(module: Any) -> None:
        seen.append(module.executed)

    for _ in range(2):
        after_import(library, adapt)
    assert importlib.util.find_spec(library) is not None  # which does not import it
    assert not seen
    module = importlib.import_module(library)
    assert seen == [True]
    assert "exec_module" not in vars(module.__loader__)
    importlib.reload(module)
    assert seen == [True]


def test_modules_that_are_imported_are_adapted_at_once(library: str) -> None:
    seen: list[Any] = []
    module = importlib.import_module(library)
    after_import(library, seen.append)
    assert seen == [module]


def test_modules_that_do_not_exist_are_not_found() -> None:
    after_import("no_module_of_this_name", print)
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("no_module_of_this_name")
