"""Drivers and launchers of other distributions, found by entry points; faults are named."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import tilewright as tw
import tilewright.language as tl
from tilewright.backends import backends
from tilewright.base import knobs
from tilewright.base.findings import OK, PROBLEM
from tilewright.base.plug_ins import DRIVERS, PlugInError, load_plug_in, plug_ins
from tilewright.runtime import driver, launch
from tilewright.targets import registry
from tilewright.tools import doctor

CODE = """
from tilewright.runtime.drivers.cpu import CpuDriver
from tilewright.targets.interpreter.target import InterpreterTarget
from tilewright.targets.protocol import GPUTarget


class Driver(CpuDriver):
    device_type = "odd"

    def get_current_target(self):
        return GPUTarget("odd")


class Target(InterpreterTarget):
    name = "odd"


class Launcher:
    def __init__(self, kernel):
        self.handle = 7

    def start(self, grid, values, slots):
        values[0][:] = grid[0]
"""
ENTRIES = """
[tilewright.targets]
odd = odd_chip:Target
[tilewright.drivers]
odd = odd_chip:Driver
broken = odd_chip:Missing
[tilewright.launchers]
odd = odd_chip:Launcher
"""


@pytest.fixture(autouse=True)
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A distribution with a target, a driver and a launcher, and a driver that does not exist."""
    (tmp_path / "odd_chip.py").write_text(CODE)
    facts = tmp_path / "odd_chip-2.5.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: odd-chip\nVersion: 2.5\n")
    (facts / "entry_points.txt").write_text(ENTRIES)
    monkeypatch.syspath_prepend(str(tmp_path))
    plug_ins.cache_clear()
    yield
    plug_ins.cache_clear()
    driver._made.cache_clear()
    launch.LOADERS.pop("odd", None)
    for name in ("odd", "broken"):
        backends.pop(name, None)
    for key in [key for key in registry._INSTANCES if key[0] == "odd"]:
        del registry._INSTANCES[key]
    sys.modules.pop("odd_chip", None)


@tw.jit
def kernel(x):
    tl.store(x, 1)


def test_driver_and_launcher_are_loaded_by_name() -> None:
    assert driver.has_driver("odd")
    assert driver.target_of("odd:0").backend == "odd"
    compiled = tw.compile(
        tw.compiler.ASTSource(kernel, {"x": "*i32"}), target=registry.described("odd")
    )
    assert launch.load(compiled).handle == 7


def test_default_backend_may_be_a_plug_in() -> None:
    with knobs.runtime.scope():
        knobs.runtime.default_backend = "odd"
        assert driver.active.get_current_target().backend == "odd"


def test_backend_of_a_plug_in() -> None:
    assert backends["odd"].compiler.name == "odd"
    assert backends["odd"].driver().get_current_target().backend == "odd"
    assert "od" not in backends
    with pytest.raises(KeyError):
        backends["od"]
    with pytest.raises(PlugInError, match="odd-chip 2"):
        _ = backends["broken"].driver


def test_broken_plug_in_is_reported_with_its_distribution_and_cause() -> None:
    with pytest.raises(PlugInError) as found:
        load_plug_in(DRIVERS, "broken")
    assert str(found.value).startswith(
        "the plug-in tilewright.drivers: broken = odd_chip:Missing, of odd-chip 2.5 cannot be "
        "loaded: AttributeError: "
    )
    with pytest.raises(PlugInError):
        driver.driver_of("broken")


def test_unknown_device_lists_plug_ins() -> None:
    with pytest.raises(ValueError, match="there are drivers for broken, cpu, cuda, odd"):
        driver.driver_of("od")


def test_doctor_reports_the_broken_plug_in_and_continues() -> None:
    found = list(doctor.CHECKS["plug-ins"]())
    levels = [(finding.level, finding.what) for finding in found]
    assert levels == [(OK, "odd"), (OK, "odd"), (PROBLEM, "broken"), (OK, "odd")]
    assert "odd-chip 2.5" in found[2].summary
