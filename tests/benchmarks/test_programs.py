"""The benchmark of any program's kernels: calls are loaded, compared and timed fairly."""

from __future__ import annotations

import importlib
import math
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.contestants import OURS, TRITON, Contestant
from benchmarks.programs.__main__ import _kernels, _line
from benchmarks.programs.calls import load, tensors
from benchmarks.programs.compare import ROUNDS, Outcome, compare, difference
from benchmarks.programs.libraries.absent import allow, bare
from benchmarks.programs.libraries.inputs import with_gradients


def test_calls_of_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    file = tmp_path / "calls.py"
    file.write_text("import torch\nCALLS = {'ones': lambda: lambda: torch.ones(3)}\n")
    assert torch.equal(load(file)["ones"]()(), torch.ones(3))
    (tmp_path / "neighbour_of_calls.py").write_text("CALLS = {'none': None}\n")
    file.write_text("from neighbour_of_calls import CALLS\n")
    assert load(file) == {"none": None}
    file.write_text("CALL = {}\n")
    with pytest.raises(ValueError, match="no dictionary CALLS"):
        load(file)


def test_tensors_of_a_nested_result() -> None:
    a, b, c = torch.ones(1), torch.ones(2), torch.ones(3, requires_grad=True)
    found = list(tensors({"x": [a, (b, None)], "y": c, "z": 3}))
    assert [len(x) for x in found] == [1, 2, 3]
    assert not found[2].requires_grad


def test_difference_is_relative_and_sees_shapes_and_infinities() -> None:
    x = torch.tensor([3.0, 4.0])
    assert difference([x], [x]) == 0
    assert difference([x * 1.01], [x]) == pytest.approx(0.01, rel=1e-5)
    assert difference([x.to(torch.complex64)], [x.to(torch.complex64)]) == 0
    assert difference([x], [x[:1]]) == math.inf
    assert difference([x], [x, x]) == math.inf
    assert difference([x / torch.tensor([0.0, 1.0])], [x]) == math.inf


class Fake(Contestant):
    """Answers with results and times of its own."""

    def __init__(self, folder: Path, value: float, us: dict[str, float]) -> None:
        self.path, self.us, self.requested = folder / f"{id(self)}.pt", us, list[str]()
        torch.save([torch.tensor([value])], self.path)

    def send(self, do: str, **request: Any) -> None:
        self.requested.append(do)

    def receive(self, patience: float) -> dict[str, Any]:
        match self.requested[-1]:
            case "prepare" if not self.us:
                return {"failure": "no kernel"}
            case "prepare":
                return {"results": str(self.path)}
            case "samples":
                # An outlier in one run is not in the median.
                return {"samples": {name: [us, us, 90 * us] for name, us in self.us.items()}}
            case _:
                return {}


def test_ratios_of_calls_and_kernels(tmp_path: Path) -> None:
    ours = Fake(tmp_path, 1.0, {"a": 10.0, "b": 30.0})
    theirs = Fake(tmp_path, 1.001, {"a": 20.0, "b": 15.0, "of_theirs": 25.0})
    (outcome,) = compare({OURS: ours, TRITON: theirs}, ["call"])
    assert ours.requested == ["prepare", *["samples"] * ROUNDS, "drop"] == theirs.requested
    assert outcome.ratio == 60 / 40
    assert outcome.kernel_ratios() == {"a": 2.0, "b": 0.5}
    assert outcome.difference == pytest.approx(0.001, rel=0.01)
    assert _line(outcome).startswith("1.500 call: tilewright 40.0 triton 60.0 µs, results 1.0e-03")
    assert _kernels([outcome, outcome]) == ["0.500 b: 60.0 30.0", "2.000 a: 20.0 40.0"]


def test_failure_and_wrong_results_are_reported(tmp_path: Path) -> None:
    fails = Fake(tmp_path, 1.0, {})
    fine = Fake(tmp_path, 1.0, {"a": 1.0})
    (outcome,) = compare({OURS: fails, TRITON: fine}, ["call"])
    assert (fails.requested, fine.requested) == (["prepare"], ["prepare", "drop"])
    assert "tilewright: no kernel" in _line(outcome)
    assert math.isnan(outcome.ratio)
    assert "RESULTS DIFFER" in _line(Outcome("call", difference=0.5))


def test_packages_that_are_not_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    monkeypatch.syspath_prepend(tmp_path)
    for path, text in {
        "a_library/__init__.py": "raise ImportError('for other purposes')",
        "a_library/settings.py": "raise ImportError('of other purposes')",
        "a_library/kernels.py": (
            "import torch, a_missing_package.part as part\n"
            "from a_library.settings import Settings\n"
            "class Launcher(part.Base, frozen=True): pass\n"
            "@part.decorator\n"
            "def kernel(): return 3\n"
        ),
    }.items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(text)
    allow("torch", "a_missing_package", "a_library.settings")
    bare("a_library")
    kernels = importlib.import_module("a_library.kernels")
    assert kernels.kernel() == 3
    assert kernels.torch is torch


def test_gradients_of_a_call() -> None:
    x, i = torch.tensor([2.0, 3.0]), torch.tensor([0, 1])
    run = with_gradients(lambda x, i: (x[i] ** 2, None), [x, i])
    y, dx = run()
    assert torch.equal(y, x**2)
    assert dx.shape == x.shape
    assert torch.equal(dx, run()[1])  # the gradient of the result is the same in each run
