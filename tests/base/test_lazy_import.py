"""A lazy import imports on first access, and is the module's own namespace from then on."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest

from tilewright.base.lazy_import import lazy_import, lazy_names


@pytest.fixture
def lazy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    (tmp_path / "lazy_subject.py").write_text("count = 1\ndef f(): return count\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield lazy_import("lazy_subject")
    sys.modules.pop("lazy_subject", None)


def test_first_access_imports(lazy: Any) -> None:
    assert repr(lazy) == "<lazily imported module 'lazy_subject'>"
    assert lazy.__name__ == "lazy_subject"
    assert "lazy_subject" not in sys.modules
    assert lazy.f() == 1
    assert sys.modules["lazy_subject"].f is lazy.f


def test_assignment_is_seen_through_either_name(lazy: Any) -> None:
    lazy.f()
    vars(sys.modules["lazy_subject"])["count"] = 2
    assert lazy.count == 2
    lazy.count = 3
    assert lazy.f() == 3


def test_missing_attribute_is_the_modules_error(lazy: Any) -> None:
    with pytest.raises(AttributeError, match=r"module 'lazy_subject' has no attribute 'g'"):
        lazy.g()
    with pytest.raises(AttributeError, match=r"'g'"):
        lazy.g()


def test_missing_module_is_an_error_at_first_access() -> None:
    missing: Any = lazy_import("no_such_module_at_all")
    with pytest.raises(ModuleNotFoundError, match="no_such_module_at_all"):
        missing.f()


PACKAGE = """
from tilewright.base.lazy_import import lazy_names
__getattr__ = lazy_names(
    __name__, {__name__: ("part",), "lazy_subject": ("f",)}, lambda name: f"another {name}"
)
"""


@pytest.mark.usefixtures("lazy")
def test_names_are_imported_on_first_access(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "lazy_package"
    folder.mkdir()
    (folder / "__init__.py").write_text(PACKAGE)
    (folder / "part.py").write_text("value = 2")
    monkeypatch.setattr(sys, "modules", sys.modules.copy())
    package = importlib.import_module("lazy_package")
    assert not {"lazy_subject", "lazy_package.part"} & sys.modules.keys()
    assert package.part.value == 2
    assert package.part is sys.modules["lazy_package.part"]
    assert package.f() == 1
    assert vars(package)["f"] is sys.modules["lazy_subject"].f
    assert package.g == "another g"


def test_unknown_name_is_the_modules_error() -> None:
    find = lazy_names("package", {"lazy_subject": ("f",)})
    with pytest.raises(AttributeError, match="module 'package' has no attribute 'g'") as error:
        find("g")
    assert error.value.name == "g"
