"""A lazy import imports on first access, and is the module's own namespace from then on."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from tilewright.base.lazy_import import lazy_import


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
