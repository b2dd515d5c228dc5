"""What the tests of launches share: every launch by native code, and again by Python alone."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tilewright.base import knobs
from tilewright.runtime import gradients, interface
from tilewright.runtime.native.runtime import runtime


@pytest.fixture(params=["native", "python"])
def launcher(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """What launches the kernels of the test: native code where it can, or Python."""
    if request.param == "native":
        assert runtime() is not None  # now, so that its code is in the session's cache
    else:
        monkeypatch.setattr(interface.launcher, "make_launcher", lambda *args: None)
    return request.param


@pytest.fixture
def tuning(tmp_path: Path) -> Iterator[None]:
    """A cache of its own for each test, and configurations compiled by this process."""
    with knobs.cache.scope(), knobs.autotuning.scope():
        knobs.cache.dir = str(tmp_path / "cache")
        knobs.autotuning.workers = 0
        yield


@pytest.fixture
def in_python(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Counts the launches that Python binds."""
    calls: list[int] = []
    planned = gradients.Gradient._planned

    def counted(self: Any, *args: Any) -> Any:
        calls.append(1)
        return planned(self, *args)

    monkeypatch.setattr(gradients.Gradient, "_planned", counted)
    return calls
