"""`tilewright.testing`: comparisons, reports, what a device can do."""

import csv
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch

from tests.runtime.fake_cuda import DEVICE, FakeCuda, Gpu
from tilewright import testing
from tilewright.base.lazy_import import lazy_import
from tilewright.testing import Benchmark, assert_close, perf_report

# -- comparing ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("x", "y"),
    [
        (1.0, 1.005),
        ([1, 2], [1, 2]),
        (np.array([1.0, np.nan]), np.array([1.0, np.nan])),
        (torch.tensor([1.0, 2.0]), np.array([1.0, 2.0])),
        (torch.tensor([1.0], dtype=torch.bfloat16), torch.tensor([1.0])),
        (np.array([1.5, 2], ml_dtypes.bfloat16), [1.5, 2.0]),
        (torch.tensor([[1.0, 2.0]]).T, [[1.0], [2.0]]),
        (torch.ones(2, requires_grad=True), [1.0, 1.0]),
    ],
)
def test_close_values_pass(x: Any, y: Any) -> None:
    assert_close(x, y)
    assert testing.allclose(x, y)


@pytest.mark.parametrize(
    ("x", "y"),
    [(1.0, 1.02), ([1, 2], [1, 3]), (np.array([1.0, np.nan]), np.array([1.0, 2.0]))],
)
def test_different_values_fail(x: Any, y: Any) -> None:
    with pytest.raises(AssertionError, match="what was compared"):
        assert_close(x, y, err_msg="what was compared")
    assert not testing.allclose(x, y)


def test_tolerance_may_depend_on_the_type() -> None:
    seen: list[Any] = []

    def atol(dtype: Any) -> float:
        seen.append(dtype)
        return 1.0

    assert_close(torch.zeros(2, dtype=torch.float16), [0.9, -0.9], atol=atol)
    assert seen == [torch.float16]
    with pytest.raises(AssertionError):
        assert_close([1.0, 100.0], [1.0, 101.0], atol=0.0, rtol=0.001)
    assert_close([1.0, 100.0], [1.0, 101.0], atol=0.0, rtol=0.01)


# -- reports --------------------------------------------------------------------------------------


def benchmark(**changes: Any) -> Benchmark:
    values: dict[str, Any] = {
        "x_names": ["n"],
        "x_vals": [1, 10, 100],
        "line_arg": "provider",
        "line_vals": ["a", "b"],
        "line_names": ["A", "B"],
        "plot_name": "plot",
        "args": {"scale": 2},
        "ylabel": "GB/s",
    }
    return Benchmark(**{**values, **changes})


def measured(n: int, provider: str, scale: int, more: int = 0) -> tuple[float, float, float]:
    value = float(n * scale + (provider == "b") + more)
    return value, value - 0.5, value + 0.5


def rows_of(table: Any) -> list[list[float]]:
    """The numbers of a table, or of a data frame where pandas is installed."""
    rows = table.rows if hasattr(table, "rows") else table.values.tolist()
    return [[float(v) for v in row] for row in rows]


def test_report_measures_every_point(capsys: pytest.CaptureFixture[str]) -> None:
    marked = perf_report(benchmark())(measured)
    table = marked.run(print_data=True, return_df=True)
    assert list(table.columns) == ["n", "A (GB/s)", "B (GB/s)"]
    assert rows_of(table) == [[1, 2, 3], [10, 20, 21], [100, 200, 201]]
    output = capsys.readouterr().out.splitlines()
    assert output == [
        "plot:",
        "  n  A (GB/s)  B (GB/s)",
        "  1         2         3",
        " 10        20        21",
        "100       200       201",
    ]
    assert marked(1, "b", 2) == (3.0, 2.5, 3.5)


def test_report_of_several_benchmarks_and_arguments() -> None:
    pairs = benchmark(x_names=["n", "scale"], x_vals=[(1, 2), (3, 4)], args={}, ylabel="")
    marked = perf_report([benchmark(), pairs])(measured)
    tables = marked.run(return_df=True, more=5, diff_col=True)
    assert len(tables) == 2
    assert list(tables[1].columns) == ["n", "scale", "A", "B", "Diff"]
    assert rows_of(tables[1]) == [[1, 2, 7, 8, 1], [3, 4, 17, 18, 1]]
    assert marked.run() is None


def test_wrong_number_of_values_is_rejected() -> None:
    with pytest.raises(ValueError, match=r"Expected 1 values, got \(1, 2\)"):
        perf_report(benchmark(x_vals=[(1, 2)]))(measured).run()


def test_report_without_matplotlib_is_a_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = lazy_import("a_missing_module")
    monkeypatch.setattr("tilewright.tools.perf_report.pyplot", missing)
    with pytest.warns(RuntimeWarning, match=r"plot is not plotted: install matplotlib"):
        perf_report(benchmark())(measured).run(save_path=str(tmp_path / "out"))
    with open(tmp_path / "out" / "plot.csv", newline="") as lines:
        assert list(csv.reader(lines))[1] == ["1", "2.0", "3.0"]
    assert "img" not in (tmp_path / "out" / "results.html").read_text()


def test_report_is_plotted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib", reason="plots need matplotlib").use("Agg")
    styles = [("red", "-"), ("blue", "--")]
    marked = perf_report(benchmark(x_log=True, y_log=True, styles=styles))(measured)
    marked.run(save_path=str(tmp_path))
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")
    assert '<img src="plot.png"' in (tmp_path / "results.html").read_text()


# -- what a device can do -------------------------------------------------------------------------


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> FakeCuda:
    a100 = {**DEVICE, 75: 8, 76: 0, 16: 108, 13: 1410000, 36: 1215000, 37: 5120}
    made = FakeCuda([Gpu(), Gpu(b"NVIDIA A100", a100)])
    made.install(monkeypatch)
    return made


def test_peaks_equal_those_of_the_data_sheets(gpus: FakeCuda) -> None:
    # A100 (40 GB): 1555 GB/s; 19.5, 312 and 156 TFLOPS of fp32, fp16 and tf32 products.
    assert testing.get_dram_gbps(1) == pytest.approx(1555, rel=1e-3)
    assert testing.get_max_simd_tflops("fp32", device=1) == pytest.approx(19.5, rel=1e-3)
    matrix = testing.get_max_tensorcore_tflops
    assert matrix(torch.float16, device="cuda:1") == pytest.approx(312, rel=1e-3)
    assert matrix(np.dtype(np.float32), device=1) == pytest.approx(156, rel=1e-3)
    # H200: 4.8 TB/s; 989 TFLOPS of fp16 and 1979 of fp8 at 1830 MHz, 132 multiprocessors.
    assert testing.get_dram_gbps(0) == pytest.approx(4917, rel=1e-3)
    assert matrix("fp16", 1830e3, 0) == pytest.approx(989, rel=1e-3)
    assert matrix("fp8e4nv", 1830e3, 0) == pytest.approx(1979, rel=1e-3)


def test_missing_arithmetic_is_reported(gpus: FakeCuda) -> None:
    with pytest.raises(ValueError, match="NVIDIA A100 has no tensor cores for fp8e5"):
        testing.get_max_tensorcore_tflops("fp8e5", device=1)


def test_cpu_has_peaks() -> None:
    assert testing.get_dram_gbps("cpu") > 0.1
    single = testing.get_max_simd_tflops("fp32", 1e6, "cpu")
    assert single == 2 * testing.get_max_simd_tflops("fp64", 1e6, "cpu")
    assert testing.get_max_tensorcore_tflops("fp32", 2e6, "cpu") == 2 * single


def test_nvidia_smi_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(RuntimeError, match="nvidia-smi is not installed"):
        testing.nvsmi(["clocks.max.sm"])
