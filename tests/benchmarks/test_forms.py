"""The forms that `benchmarks.forms` times run on the CPU, and write all of their results."""

from pathlib import Path

import pytest
import torch

from benchmarks.forms import page
from benchmarks.forms.run import Outcome, measure
from benchmarks.forms.work import ALL
from benchmarks.gpu.case import Setting


def _tested() -> list[str]:
    """Of forms that a loop over sizes declares, the first and the last."""
    declared: dict[object, list[str]] = {}
    for form in ALL.values():
        declared.setdefault(getattr(form.prepare, "__code__", form), []).append(form.name)
    return sorted({name for names in declared.values() for name in (names[0], names[-1])})


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", _tested())
def test_form_runs(name: str) -> None:
    torch.manual_seed(0)
    outcome = measure(ALL[name], Setting("cpu", "check"), ["tilewright"], None)
    assert not outcome.failure


def test_page_has_means_and_what_is_slower(tmp_path: Path) -> None:
    first, second, third = sorted(ALL)[:3]
    outcomes = [
        Outcome(first, {"tilewright": 10.0, "triton": 40.0}, {"tilewright": 0.2, "triton": 0.4}),
        Outcome(second, {"tilewright": 20.0, "triton": 5.0}, {"tilewright": 0.5, "triton": 0.25}),
        Outcome(third, failure="triton: OutOfResources"),
    ]
    page.write(outcomes, {"device": "a GPU"}, tmp_path / "page.md")
    lines = (tmp_path / "page.md").read_text("utf-8").splitlines()
    assert "- device: a GPU" in lines
    assert "| **all** | 2 | **1.00** | 0.25 | **1.00** | 0.50 |" in lines
    assert f"| {second} | 20.0 | 5.0 | 0.25 |" in lines
    assert f"| {second} | 500 | 250 | 0.50 |" in lines
    assert not any(line.startswith(f"| {first} |") for line in lines)
    assert lines[-1] == f"- {third}: triton: OutOfResources"
