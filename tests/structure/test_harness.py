"""The options of the test suite work, tested with a small suite that uses them."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def _run_suite(folder: Path, text: str, *options: str) -> str:
    """What pytest prints for one test file under this project's settings, with no GPU in sight."""
    (folder / "tests").mkdir()
    shutil.copy(ROOT / "pyproject.toml", folder)
    shutil.copy(ROOT / "tests" / "conftest.py", folder / "tests")
    (folder / "tests" / "test_it.py").write_text(text)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *options]
    # The inner run does not inherit the worker of the outer one.
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
    environment = {**inherited, "CUDA_VISIBLE_DEVICES": ""}
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    ).stdout


def test_gpu_test_without_a_device_skips_with_a_reason(tmp_path: Path) -> None:
    text = "import pytest\n@pytest.mark.gpu\ndef test_device(): raise AssertionError\n"
    output = _run_suite(tmp_path, text, "-n0")
    assert "1 skipped" in output
    assert "needs a CUDA device: " in output


def test_warning_fails_a_test(tmp_path: Path) -> None:
    text = "import warnings\ndef test_it(): warnings.warn('careful')\n"
    assert "UserWarning: careful" in _run_suite(tmp_path, text, "-n0")


def test_unknown_marker_is_rejected(tmp_path: Path) -> None:
    text = "import pytest\n@pytest.mark.gpus\ndef test_it(): pass\n"
    assert "'gpus' not found in `markers`" in _run_suite(tmp_path, text, "-n0")


@pytest.mark.parametrize("workers", [0, 2])
def test_failing_seed_is_reported_with_its_command(workers: int, tmp_path: Path) -> None:
    text = "def test_it(fuzz_seed): assert fuzz_seed != 8\n"
    output = _run_suite(tmp_path, text, f"-n{workers}", "--fuzz-seed=7", "--fuzz-count=3")
    assert "1 failed, 2 passed" in output
    assert (
        "rerun: pytest 'tests/test_it.py::test_it[seed=8]' --fuzz-seed=8 --fuzz-count=1" in output
    )


def test_random_seeds_are_the_same_for_all_workers(tmp_path: Path) -> None:
    """Workers that drew seeds of their own would disagree on the names of the tests."""
    text = "def test_it(fuzz_seed): pass\n"
    output = _run_suite(tmp_path, text, "-n2", "--fuzz-seed=random", "--fuzz-count=4")
    assert "4 passed" in output


@pytest.mark.parametrize("workers", [0, 2])
def test_cache_is_temporary_and_shared_by_the_workers(workers: int, tmp_path: Path) -> None:
    text = (
        "import os, pathlib, pytest\n"
        "@pytest.mark.parametrize('n', range(4))\n"
        "def test_it(n):\n"
        "    folder = pathlib.Path(os.environ['TILEWRIGHT_CACHE_DIR'])\n"
        "    assert folder.is_dir()\n"
        "    pathlib.Path(f'seen-{n}').write_text(str(folder))\n"
    )
    assert "4 passed" in _run_suite(tmp_path, text, f"-n{workers}")
    seen = {path.read_text() for path in tmp_path.glob("seen-*")}
    assert len(seen) == 1
    folder = Path(seen.pop())
    assert str(folder) != os.environ["TILEWRIGHT_CACHE_DIR"]
    assert not folder.exists()


@pytest.mark.parametrize("options", [(), ("-n2",), ("-d", "--tx=2*popen")], ids=" ".join)
def test_bless_runs_without_workers(options: tuple[str, ...], tmp_path: Path) -> None:
    """Tests that bless parts of one file at once would lose each other's parts."""
    text = (
        "import os, pathlib, pytest\n"
        "@pytest.mark.parametrize('n', range(4))\n"
        "def test_it(n, pytestconfig):\n"
        "    assert pytestconfig.getoption('--bless')\n"
        "    pathlib.Path(f'process-{n}').write_text(str(os.getppid()))\n"
        "    assert 'PYTEST_XDIST_WORKER' not in os.environ\n"
    )
    assert "4 passed" in _run_suite(tmp_path, text, "--bless", *options)
    assert len({path.read_text() for path in tmp_path.glob("process-*")}) == 1


@pytest.mark.parametrize("name", ["emulator", "harness", "tiles"])
def test_emulated_gpu_is_vendor_neutral(name: str) -> None:
    text = (ROOT / "tests" / "lowering" / "simt" / f"{name}.py").read_text("utf-8")
    assert "nvidia" not in text.lower()
    assert "cuda" not in text.lower()
