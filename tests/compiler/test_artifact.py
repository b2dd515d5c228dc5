"""The compiled kernel as data: stages, metadata, storing, pickling, loading."""

import pickle
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from tilewright.compiler import artifact
from tilewright.compiler.artifact import METADATA_FILE, CompiledKernel, Metadata
from tilewright.targets import registry
from tilewright.targets.interpreter.target import InterpreterTarget
from tilewright.targets.protocol import GPUTarget, Stage

METADATA = {
    "name": "add",
    "hash": "abc",
    "target": GPUTarget("fake", 7, 32),
    "signature": {"x": "*fp32", "n": "constexpr", "t": ["i32", "fp32"]},
    "arguments": [[[0], "*fp32"], [[2, 0], "i32"], [[2, 1], "fp32"]],
    "n_regs": 12,
}


class FakeTarget(InterpreterTarget):
    name = "fake"

    def derive(self, stage: str, stages: Mapping[str, Stage], metadata: Mapping[str, Any]) -> Stage:
        if stage != "asm":
            raise KeyError(stage)
        return f"{metadata['name']} on {self.arch}: {stages['llir']}"


@pytest.fixture(autouse=True)
def fake_target(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_REGISTERED", {"fake": FakeTarget})
    monkeypatch.setattr(registry, "_INSTANCES", {})


def kernel() -> CompiledKernel:
    return CompiledKernel({"ttir": "tile", "llir": "llvm", "obj": b"\x00\xff"}, METADATA)


def test_stages_are_a_mapping_with_alias() -> None:
    asm = kernel().asm
    assert list(asm) == ["ttir", "llir", "obj"]
    assert asm["tile"] == asm["ttir"] == "tile"
    assert kernel().kernel == b"\x00\xff"


def test_missing_stage_is_derived_by_the_target() -> None:
    asm = kernel().asm
    assert "asm" in asm
    assert asm["asm"] == "add on 7: llvm"
    assert "ptx" not in asm
    with pytest.raises(KeyError, match="ptx"):
        asm["ptx"]


def test_metadata_reads_as_attributes_and_cannot_change() -> None:
    metadata = kernel().metadata
    assert metadata.name == metadata["name"] == "add"
    assert metadata.target == GPUTarget("fake", 7, 32)
    with pytest.raises(AttributeError, match="no 'shared'"):
        metadata.shared  # noqa: B018
    with pytest.raises(AttributeError, match="can't be changed"):
        metadata.name = "other"


def test_resources_only_where_the_target_reports_them() -> None:
    assert kernel().n_regs == 12
    with pytest.raises(AttributeError, match="n_spills"):
        kernel().n_spills  # noqa: B018
    loaded = kernel()
    loaded.loaded = SimpleNamespace(n_spills=3)  # pyright: ignore[reportAttributeAccessIssue]
    assert (loaded.n_regs, loaded.n_spills, loaded.n_max_threads) == (12, 3, 0)


@pytest.mark.parametrize("how", ["files", "pickle"])
def test_kernel_survives(how: str) -> None:
    before = kernel()
    if how == "files":
        after = CompiledKernel.from_files(before.files())
    else:
        after = pickle.loads(pickle.dumps(before))
    assert dict(after.asm) == dict(before.asm)
    assert dict(after.metadata) == dict(before.metadata)
    assert after.kernel == before.kernel
    assert after.asm["asm"] == "add on 7: llvm"


def test_metadata_has_the_methods_of_a_named_tuple() -> None:
    metadata = Metadata({"a": 1, "b": 2})
    assert metadata._asdict() == {"a": 1, "b": 2}
    assert metadata._fields == ("a", "b")
    changed = metadata._replace(b=3)
    assert (metadata.b, changed.b, changed.a) == (2, 3, 1)


def test_metadata_pickles() -> None:
    metadata = Metadata({"a": 1})
    assert pickle.loads(pickle.dumps(metadata)).a == 1


@pytest.mark.parametrize("damage", ["header", "stage", "text", "not json"])
def test_damaged_files_are_rejected(damage: str) -> None:
    files = kernel().files()
    if damage == "header":
        del files[METADATA_FILE]
    elif damage == "stage":
        del files["obj"]
    elif damage == "text":
        files["llir"] = b"\xff\xfe"
    else:
        files[METADATA_FILE] = b"{"
    with pytest.raises((ValueError, KeyError, TypeError)):
        CompiledKernel.from_files(files)


class FakeLaunch:
    """A loaded kernel that does nothing."""

    handle = 42

    def start(self, grid: Any, values: Any, slots: Any) -> None:
        pass


class FakeLauncher:
    """A launcher that records, and fails to load if so configured."""

    def __init__(self, failure: Exception | None = None) -> None:
        self.failure = failure
        self.loads = 0
        self.launches: list[tuple[Any, Any]] = []

    def load(self, kernel: CompiledKernel) -> FakeLaunch:
        self.loads += 1
        if self.failure is not None:
            raise self.failure
        return FakeLaunch()

    def launch(
        self, kernel: CompiledKernel, grid: Any, args: Any, stream: Any, hooks: bool = True
    ) -> None:
        self.launches.append((grid, args))

    def launch_metadata(self, kernel: CompiledKernel, grid: Any, stream: Any, args: Any) -> None:
        return None


def test_launch_takes_all_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    launcher = FakeLauncher()
    monkeypatch.setattr(artifact, "_launcher", launcher)
    compiled = kernel()
    compiled[(2, 1, 1)]("tensor", 64, (3, 1.5), stream=None)
    assert launcher.launches == [((2, 1, 1), ("tensor", 64, (3, 1.5)))]
    with pytest.raises(TypeError, match="add takes 3 arguments, not 1"):
        compiled[(1,)]("tensor")


def test_kernel_is_loaded_when_it_is_first_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    launcher = FakeLauncher()
    monkeypatch.setattr(artifact, "_launcher", launcher)
    compiled = kernel()
    assert compiled.loaded is None
    assert compiled.function == 42
    assert compiled.loaded is not None
    assert compiled.load().start == compiled.loaded.start
    assert launcher.loads == 1


def test_failed_load_is_raised_again(monkeypatch: pytest.MonkeyPatch) -> None:
    launcher = FakeLauncher(RuntimeError("no such device"))
    monkeypatch.setattr(artifact, "_launcher", launcher)
    compiled = kernel()
    for _ in range(2):
        with pytest.raises(RuntimeError, match="no such device"):
            compiled.run  # noqa: B018
    assert launcher.loads == 1
