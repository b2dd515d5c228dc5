"""Profiles as text."""

import json
from pathlib import Path

import pytest

from tilewright.profiler.data import COUNT, CPU_TIME, TIME, Tree
from tilewright.profiler.viewer import metric, metrics_of, read, render
from tilewright.tools import cli


def profile(tmp_path: Path) -> Path:
    tree = Tree()
    tree.root.at(("step", "forward", "gemm")).add(
        {TIME: 3_000_000, COUNT: 2, "flops16": 6_000_000_000, "bytes": 12_000_000}
    )
    tree.root.at(("step", "add")).add({TIME: 1_000_000, COUNT: 1, "bytes": 4_000_000})
    tree.root.at(("step",)).add({CPU_TIME: 5_000_000, "tokens": 7})
    path = tmp_path / "p.hatchet"
    path.write_text(tree.text({}))
    return path


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("time/ms", 4), ("time/us", 4000), ("time/ns", 4e6), ("time/s", 0.004), ("time/%", 100),
        ("avg_time/us", 4000 / 3), ("cpu_time/ms", 5), ("tflop16/s", 1.5), ("gflop16/s", 1500),
        ("gbyte/s", 4), ("tbyte/s", 0.004), ("flop/s", 0), ("count", 3), ("tokens", 7),
        ("bytes", 16e6), ("time (ns)", 4e6), ("cpu_time", 5e6),
    ],
)  # fmt: skip
def test_metrics_include_the_frames_below(name: str, value: float, tmp_path: Path) -> None:
    root = read(profile(tmp_path))
    step = root.children["step"]
    assert metric(name, root)(step) == pytest.approx(value)


def test_tree_sorted_by_the_first_metric(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(profile(tmp_path))
    assert cli.main(["profile", path, "-m", "time/ms,gbyte/s"]) == 0
    assert capsys.readouterr().out == (
        "time/ms  gbyte/s\n"
        "  4.000    4.000  ROOT\n"
        "  4.000    4.000  └─ step\n"
        "  3.000    4.000     ├─ forward\n"
        "  3.000    4.000     │  └─ gemm\n"
        "  1.000    4.000     └─ add\n"
    )
    cli.main(["profile", path, "-m", "time/%", "-d", "2", "-t", "0.5"])
    assert capsys.readouterr().out.split()[1:] == [
        *("100.000", "ROOT", "100.000", "└─", "step", "75.000", "└─", "forward")
    ]
    cli.main(["profile", path, "-l"])
    assert capsys.readouterr().out.split("\n")[:-1] == metrics_of(read(path))


def test_unknown_metrics_and_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = read(profile(tmp_path))
    with pytest.raises(ValueError, match="there is no metric 'util'; those recorded are bytes, "):
        render(root, ["util"])
    (tmp_path / "x.json").write_text(json.dumps({"traceEvents": []}))
    assert cli.main(["profile", str(tmp_path / "x.json")]) == 2
    assert "is not a profile in hatchet's format" in capsys.readouterr().err
