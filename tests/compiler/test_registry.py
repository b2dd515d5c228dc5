"""Targets by name: built in, registered, from plug-ins; imported lazily and created once."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tilewright.base import knobs, plug_ins
from tilewright.targets import registry
from tilewright.targets.interpreter.target import InterpreterOptions, InterpreterTarget
from tilewright.targets.protocol import GPUTarget, options_from

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def empty_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_REGISTERED", {})
    monkeypatch.setattr(registry, "_INSTANCES", {})


def test_target_is_found_in_any_form() -> None:
    by_name = registry.target("interpreter")
    assert by_name.name == "interpreter"
    assert registry.target(GPUTarget("interpreter")) is by_name
    assert registry.target(by_name) is by_name
    assert registry.target().name == "cpu"


def test_target_is_created_once_for_each_architecture() -> None:
    made: list[Any] = []

    class Chip(InterpreterTarget):
        name = "chip"

        def __init__(self, arch: int | str = "default") -> None:
            super().__init__(arch)
            made.append(arch)

    registry.register("chip", Chip)
    assert registry.target("chip") is registry.target(GPUTarget("chip"))
    assert registry.target(GPUTarget("chip", 90)) is registry.target(GPUTarget("chip", 90))
    assert made == ["default", 90]


def test_registered_target_replaces_at_once() -> None:
    before = registry.target("interpreter")
    registry.register("interpreter", InterpreterTarget)
    assert registry.target("interpreter") is not before


class EntryPoint:
    """As `importlib.metadata` has them."""

    name = "plug"
    group = "tilewright.targets"
    value = "plug:Target"
    dist = None

    def load(self) -> Any:
        return InterpreterTarget


def test_plug_ins_are_looked_up_when_no_other_has_the_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    requested: list[str] = []

    def entry_points(group: str) -> list[EntryPoint]:
        requested.append(group)
        return [EntryPoint()]

    monkeypatch.setattr(plug_ins.metadata, "entry_points", entry_points)
    plug_ins.plug_ins.cache_clear()
    try:
        assert isinstance(registry.target("plug"), InterpreterTarget)
        assert "plug" in registry.names()
        with pytest.raises(
            ValueError, match="there is no target 'plog'; there are cpu, cuda, hip, interp"
        ):
            registry.target("plog")
    finally:
        plug_ins.plug_ins.cache_clear()
    assert requested == ["tilewright.targets"]


def test_interpreter_loads_no_compiler() -> None:
    probe = (
        "import sys; from tilewright.targets import registry; registry.target('interpreter'); "
        "assert 'llvmlite' not in sys.modules and 'importlib.metadata' not in sys.modules"
    )
    run = subprocess.run(
        [sys.executable, "-c", probe], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr


def fusion(**given: bool) -> bool:
    return options_from(InterpreterOptions, given).enable_fp_fusion


def test_settings_enable_fusion() -> None:
    assert fusion()
    assert not fusion(enable_fp_fusion=False)
    with knobs.language.scope():
        knobs.language.default_fp_fusion = False
        assert not fusion()
        assert fusion(enable_fp_fusion=True)
        knobs.language.force_disable_fp_fusion = True
        assert not fusion(enable_fp_fusion=True)


@pytest.mark.parametrize(
    ("text", "device"),
    [
        ("cpu", GPUTarget("cpu")),
        ("cpu:x86-64-v3", GPUTarget("cpu", "x86-64-v3")),
        ("cuda:90", GPUTarget("cuda", 90)),
        ("cuda:90:32", GPUTarget("cuda", 90, 32)),
        ("cuda:sm_90a", GPUTarget("cuda", "sm_90a")),
    ],
)
def test_text_describes_a_device(text: str, device: GPUTarget) -> None:
    assert registry.described(text) == device


@pytest.mark.parametrize("text", ["", ":90", "cuda:90:wide", "cuda:90:32:1"])
def test_text_of_another_form_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="written as NAME, NAME:ARCH or NAME:ARCH:LANES"):
        registry.target(text)
