"""Drivers and launchers of other distributions, found by entry points; faults are named."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tilewright.backends import backends
from tilewright.base import knobs
from tilewright.base.findings import OK, PROBLEM
from tilewright.base.plug_ins import DRIVERS, PlugInError, load_plug_in, plug_ins
from tilewright.compiler.workers import Pool
from tilewright.runtime import driver, launch
from tilewright.targets import registry
from tilewright.targets.protocol import UnknownOptionError
from tilewright.tools import doctor
from tilewright.tools.aot import export_kernel
from tilewright.tools.signature import typed_source

CODE = """
from dataclasses import dataclass

from tilewright.runtime.drivers.cpu import CpuDriver
from tilewright.targets.interpreter.target import InterpreterTarget
from tilewright.targets.protocol import GPUTarget, options_from


class Driver(CpuDriver):
    device_type = "odd"

    def get_current_target(self):
        return GPUTarget("odd")


@dataclass(frozen=True)
class Options:
    num_warps: int = 4
    num_stages: int = 3
    debug: bool = False
    sanitize_overflow: bool = False
    enable_fp_fusion: bool = False
    cores: int = 1


class Target(InterpreterTarget):
    name = "odd"

    def parse_options(self, given):
        return options_from(Options, given)

    export_options = {"num_stages": 1}

    def export(self, stages, metadata, request):
        return {".c": f"{request.symbol} {metadata['num_stages']}".encode()}


class Launcher:
    def __init__(self, kernel):
        self.handle = 7

    def start(self, grid, values, slots):
        values[0][:] = grid[0]
"""
LANGUAGE = """
import tilewright as tw


@tw.jit
def seven():
    return 7
"""
ENTRIES = """
[tilewright.targets]
odd = odd_chip:Target
[tilewright.drivers]
odd = odd_chip:Driver
broken = odd_chip:Missing
[tilewright.launchers]
odd = odd_chip:Launcher
[tilewright.language.extra]
odd = odd_language
"""


@pytest.fixture(autouse=True)
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A distribution with a target, a driver and a launcher, and a driver that does not exist."""
    (tmp_path / "odd_chip.py").write_text(CODE)
    (tmp_path / "odd_language.py").write_text(LANGUAGE)
    facts = tmp_path / "odd_chip-2.5.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: odd-chip\nVersion: 2.5\n")
    (facts / "entry_points.txt").write_text(ENTRIES)
    monkeypatch.syspath_prepend(str(tmp_path))
    plug_ins.cache_clear()
    yield
    plug_ins.cache_clear()
    driver._new_driver.cache_clear()
    launch.LOADERS.pop("odd", None)
    for name in ("odd", "broken"):
        backends.pop(name, None)
    for key in [key for key in registry._INSTANCES if key[0] == "odd"]:
        del registry._INSTANCES[key]
    sys.modules.pop("odd_chip", None)
    sys.modules.pop("odd_language", None)


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
    with pytest.raises(ValueError, match="there are drivers for broken, cpu, cuda, hip, odd"):
        driver.driver_of("od")


def test_doctor_reports_the_broken_plug_in_and_continues() -> None:
    found = list(doctor.CHECKS["plug-ins"]())
    levels = [(finding.level, finding.what) for finding in found]
    assert levels == [(OK, "odd"), (OK, "odd"), (PROBLEM, "broken"), (OK, "odd"), (OK, "odd")]
    assert "odd-chip 2.5" in found[2].summary


def test_plug_ins_that_end_the_process_are_found_by_few_processes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each imports those that are left; the one that failed is the first of the next process."""
    points = [EntryPoint(name, "odd_chip:Target", DRIVERS) for name in "abcde"]
    imported: list[str] = []

    def output_of(what: str, seconds: float) -> tuple[list[str], dict[str, Any]]:
        names = what.split()[2::2]
        imported.append("".join(names))
        before = list(takewhile(lambda name: name not in "bd", names))
        failed = {"error": "killed"} if len(before) < len(names) else {}
        return [f'{{"imported": "{name}"}}' for name in before], failed

    rejected: dict[str, str] = {}
    monkeypatch.setattr(doctor, "_output_of", output_of)
    monkeypatch.setattr(doctor.plug_ins, "reject", lambda p, why: rejected.update({p.name: why}))
    doctor._reject_crashing(points)
    assert rejected == {"b": "killed", "d": "killed"}
    assert imported == ["abcde", "bcde", "cde", "de", "e"]


@tw.jit
def store_seven(x):
    tl.store(x, tl.extra.odd.seven())


def test_functions_of_a_plug_in_are_part_of_the_language() -> None:
    x = np.zeros(1, np.int32)
    store_seven[(1,)](x)
    assert x[0] == 7
    with pytest.raises(AttributeError, match="has no attribute 'od'"):
        _ = tl.extra.od


def test_options_of_other_targets_are_ignored_and_misspelt_ones_are_not() -> None:
    for name, of_others in (("cpu", {"cores": 2}), ("odd", {"maxnreg": 64, "waves_per_eu": 2})):
        parsed = registry.target(name).parse_options({"num_warps": 8, **of_others})
        assert parsed.num_warps == 8
    assert registry.target("odd").parse_options({"cores": 2}).cores == 2
    for name in ("cpu", "odd"):
        with pytest.raises(UnknownOptionError, match="coers was specified but unrecognised"):
            registry.target(name).parse_options({"coers": 2})


def test_kernels_for_a_plug_in_are_compiled_in_workers() -> None:
    made = registry.target("odd")
    options = made.parse_options({})
    module = tw.compiler.ASTSource(kernel, {"x": "*i32"}).module(made.frontend_options(options))
    pool = Pool()
    try:
        lowered = pool.lower(module, registry.described("odd"), options)
    finally:
        pool.close()
    assert lowered is not None
    assert lowered.metadata["name"] == "kernel"


def test_kernels_for_a_plug_in_are_exported_by_it() -> None:
    exported = export_kernel(typed_source(kernel, "*i32", {}, disjoint=False), "odd")
    assert exported.files == {".c": f"{exported.symbol} 1".encode()}
