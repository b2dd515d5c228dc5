"""The target that docs/add-a-target.md builds compiles and runs kernels."""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tilewright.conformance.execution import FAILED, UNCLAIMED, machine_of, run_case
from tilewright.conformance.suite import Selection
from tilewright.runtime import driver
from tilewright.runtime.drivers.cpu import CpuDriver
from tilewright.runtime.launch import LOADERS
from tilewright.targets import registry
from tilewright.tools.cli import main

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"`(mychip/(\w+)\.py)`:\n\n```python\n(.*?)^```", re.DOTALL | re.MULTILINE)


def project(text: str) -> dict[str, Any]:
    """The project of the page's `pyproject.toml`: pip requires a name and a version."""
    (block,) = re.findall(r"^```toml\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    found = tomllib.loads(block)["project"]
    assert (found["name"], found["version"]) == ("mychip", "1.0")
    return found


@tw.jit
def scale(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n, other=1.0)
    tl.store(out_ptr + i, x * 3 + 1, mask=i < n)


@tw.jit
def root(x_ptr):
    tl.store(x_ptr, tl.sqrt(tl.load(x_ptr)))


@pytest.fixture
def target(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Any]]:
    """The target of the page, known and active."""
    text = (ROOT / "docs" / "add-a-target.md").read_text("utf-8")
    monkeypatch.setitem(sys.modules, "mychip", ModuleType("mychip"))
    modules: dict[str, Any] = {}
    for file, name, code in BLOCK.findall(text):
        module = modules[name] = ModuleType(f"mychip.{name}")
        monkeypatch.setitem(sys.modules, module.__name__, module)
        exec(compile(code, file, "exec"), vars(module))
    assert list(modules) == ["compiler", "launch", "driver"]
    points = project(text)["entry-points"]
    factory, launcher = (
        getattr(modules[module.removeprefix("mychip.")], name)
        for group in ("targets", "launchers")
        for module, name in [points[f"tilewright.{group}"]["plain"].split(":")]
    )
    registry.register("plain", factory)
    monkeypatch.setitem(LOADERS, "plain", launcher)
    modules["driver"].activate()
    yield factory
    driver.reset_active()
    del registry._REGISTERED["plain"]


@pytest.mark.usefixtures("target")
def test_kernel_runs_on_the_target_of_the_page() -> None:
    x, out = np.arange(100, dtype=np.float32), np.zeros(104, np.float32)
    compiled = scale[(4,)](x, out, 100, BLOCK=32)
    assert compiled.metadata.target.backend == "plain"
    assert "def scale(program, a0, a1, a2):" in compiled.asm["python"]
    np.testing.assert_array_equal(out[:100], x * 3 + 1)
    np.testing.assert_array_equal(out[100:], 0)


@pytest.mark.usefixtures("target")
def test_launches_follow_the_active_driver() -> None:
    """Both drivers serve the CPU's arrays, so that the device has one name."""
    arguments = np.arange(100, dtype=np.float32), np.zeros(104, np.float32), 100

    def target_of_a_launch() -> str:
        return scale[(4,)](*arguments, BLOCK=32).metadata.target.backend

    plain = driver.active
    assert target_of_a_launch() == "plain"
    driver.set_active(CpuDriver())
    assert target_of_a_launch() == "cpu"
    driver.set_active(plain)
    assert target_of_a_launch() == "plain"


@pytest.mark.usefixtures("target")
def test_unsupported_op_is_reported_as_an_error_of_the_kernel() -> None:
    with pytest.raises(tw.TilewrightError, match=r"at 2:20:(.|\n)*does not support math\.sqrt"):
        root[(1,)](np.ones(1, np.float32))


@pytest.mark.usefixtures("target")
def test_target_of_the_page_fails_no_case_of_the_suite() -> None:
    machine = machine_of("plain")
    single = "conversion/fp32 to i8", "arguments are specialised", "threads may launch"
    cases = Selection(only=single).cases() + Selection(levels="12", parts=150).cases()
    found = {case.name: run_case(case, machine) for case in cases}
    failed = {name: outcome for name, outcome in found.items() if outcome.status == FAILED}
    assert not failed
    assert any(outcome.status == UNCLAIMED for outcome in found.values())


@pytest.mark.usefixtures("target")
def test_command_of_the_page(capsys: pytest.CaptureFixture[str]) -> None:
    text = (ROOT / "docs" / "add-a-target.md").read_text("utf-8")
    command = re.search(r"^python -m tilewright (.* --target plain .*)$", text, re.MULTILINE)
    assert command is not None
    arguments = [str(ROOT / a) if a.startswith("examples/") else a for a in command[1].split()]
    assert main(arguments) == 0
    assert capsys.readouterr().out.startswith("def add_kernel(program, ")
