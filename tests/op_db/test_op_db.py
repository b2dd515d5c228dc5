"""Operators of torch under torch.compile on the CPU: a few of its list, all of which
`python -m tests.op_db.run` compiles."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", minversion="2.13")

from tests.op_db import cases, run  # noqa: E402

ROOT = Path(__file__).parents[2]

CHOSEN = (
    "nn.functional.gelu:bfloat16", "std:float32", "cumsum:int64", "gather:float32",
    "index_put:float32", "addmm:float32",
)  # fmt: skip
"""Of each kind of kernel: pointwise, reductions, scans, gathers, atomics, extern calls."""


def test_chosen_operators_agree_with_eager_execution(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All cases, of `python -m tests.op_db.run`, take an hour."""
    names, output = tmp_path / "cases.txt", tmp_path / "op_db.jsonl"
    names.write_text("\n".join(CHOSEN))
    arguments = ["--samples=1", f"--list={names}", f"--output={output}"]
    monkeypatch.setattr(sys, "argv", ["run", *arguments])
    monkeypatch.chdir(ROOT)
    status = run.main()
    rows = [json.loads(line) for line in output.read_text().splitlines()]
    assert [row["case"] for row in rows] == list(CHOSEN)
    assert {row["case"]: row["detail"] for row in rows if row["kind"] != "same"} == {}
    assert sum(row["kernels"] > 0 for row in rows) >= len(CHOSEN) - 1
    assert status == 0


def _always(result: Callable[..., Any]) -> Callable[..., Any]:
    """Like torch.compile, but a function that returns what `result` makes of the right result."""
    return lambda function, **options: lambda *tensors: result(function(*tensors))


@pytest.mark.parametrize(
    ("result", "kind", "detail"),
    [
        (lambda x: x, "same", ""),
        (lambda x: x + 1e-3, "different", "result 0: "),
        (lambda x: x.double(), "different", "result 0: torch.float64"),
        (lambda x: x.unsqueeze(0), "different", "result 0: torch.float32[1"),
        (lambda x: (x, x), "different", "3 results instead of 2"),
        (lambda x: x.detach(), "different", "1 results instead of 2"),
        (lambda x: x.missing, "failed", "AttributeError"),
    ],
)
def test_outcomes(
    result: Callable[..., Any], kind: str, detail: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "compile", _always(result))
    found = cases.check("nn.functional.softplus:float32", "triton", 1, 0)
    assert (found.kind, found.samples) == (kind, 1)
    assert found.detail.startswith(detail)


def test_a_random_operator_is_compared_by_types_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "compile", _always(lambda x: x + 1))
    assert cases.check("normal:float32", "triton", 1, 0).kind == "same"
    monkeypatch.setattr(torch, "compile", _always(lambda x: x.double()))
    assert cases.check("normal:float32", "triton", 1, 0).kind == "different"


def test_rounding_once_in_low_precision_is_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    def compiled(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
        return lambda *given: function(*(t.float() for t in given)).bfloat16()

    monkeypatch.setattr(torch, "compile", compiled)
    assert cases.check("nn.functional.softplus:bfloat16", "triton", 2, 0).kind == "same"


def test_only_cases_that_the_other_back_end_passes_fail() -> None:
    row = {"case": "x", "kind": "different", "detail": ""}
    assert run.failed({**row, "cpp": {"kind": "same"}})
    assert not run.failed({**row, "cpp": {"kind": "different"}})
    assert not run.failed({"case": "x", "kind": "same", "detail": ""})


SERVER = """
import json, os, sys
for line in sys.stdin:
    backend, _, case = line.strip().partition(" ")
    if case == "crash":
        os.abort()
    print(json.dumps({"kind": "same", "detail": case}), flush=True)
"""


def test_a_process_that_ends_fails_its_case_only() -> None:
    workers = run.Workers([sys.executable, "-c", SERVER])
    try:
        assert workers.check("abs", "triton")["detail"] == "abs"
        broken = workers.check("crash", "triton")
        assert broken["kind"] == "failed"
        assert "exit status -6" in broken["detail"]
        after = workers.check("exp", "triton")
        assert (after["kind"], after["detail"]) == ("same", "exp")
    finally:
        workers.worker.end()
