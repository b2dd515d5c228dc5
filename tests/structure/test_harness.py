"""The options of the test suite work, tested with a small suite that uses them."""

import gc
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def _run_suite(folder: Path, tests: Mapping[str, str], *options: str) -> str:
    """What pytest prints for some test files under this project's settings, with no GPU in sight.

    A file that cannot be imported is an error, and the others are run.
    """
    (folder / "tests").mkdir()
    shutil.copy(ROOT / "pyproject.toml", folder)
    shutil.copy(ROOT / "tests" / "conftest.py", folder / "tests")
    for name, text in tests.items():
        (folder / "tests" / f"test_{name}.py").write_text(text)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *options]
    command.append("--continue-on-collection-errors")
    # The inner run does not inherit the worker of the outer one.
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
    environment = {**inherited, "CUDA_VISIBLE_DEVICES": ""}
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    ).stdout


DEVICE = "import pytest\n@pytest.mark.gpu\ndef test_it(): raise AssertionError\n"
WARNING = "import warnings\ndef test_it(): warnings.warn('careful')\n"
MARKER = "import pytest\n@pytest.mark.gpus\ndef test_it(): pass\n"
SEED = "def test_it(fuzz_seed): assert fuzz_seed != 8\n"
SAMPLED = """
import pytest
@pytest.mark.sampled(3)
@pytest.mark.parametrize("n", range(7))
def test_it(n): print(f"case {n} of 7")
"""
CACHE = """
import os, pathlib, pytest
@pytest.mark.parametrize("n", range(4))
def test_it(n):
    folder = pathlib.Path(os.environ["TILEWRIGHT_CACHE_DIR"])
    assert folder.is_dir()
    pathlib.Path(f"seen-{n}").write_text(str(folder))
"""


@pytest.mark.parametrize("workers", [0, 2])
def test_settings_of_the_suite(workers: int, tmp_path: Path) -> None:
    """Tests of a GPU are skipped without one, warnings and unknown markers are errors, seeds that
    fail are reported with their command, and all workers have one temporary cache."""
    tests = {"device": DEVICE, "warning": WARNING, "marker": MARKER, "seed": SEED, "cache": CACHE}
    output = _run_suite(tmp_path, tests, f"-n{workers}", "--fuzz-seed=7", "--fuzz-count=3")
    assert re.search(r"SKIPPED .*: needs a CUDA device: ", output)
    assert "UserWarning: careful" in output
    assert "'gpus' not found in `markers`" in output
    rerun = "rerun: pytest 'tests/test_seed.py::test_it[seed=8]' --fuzz-seed=8 --fuzz-count=1"
    assert rerun in output
    assert "2 failed, 6 passed, 1 skipped, " in output
    seen = {path.read_text() for path in tmp_path.glob("seen-*")}
    assert len(seen) == 1
    folder = Path(seen.pop())
    assert str(folder) != os.environ["TILEWRIGHT_CACHE_DIR"]
    assert not folder.exists()


def test_random_seeds_are_the_same_for_all_workers(tmp_path: Path) -> None:
    """Workers that drew seeds of their own would disagree on the names of the tests."""
    tests = {"seed": "def test_it(fuzz_seed): pass\n"}
    output = _run_suite(tmp_path, tests, "-n2", "--fuzz-seed=random", "--fuzz-count=4")
    assert "4 passed" in output


def test_garbage_is_collected_while_tests_run() -> None:
    assert gc.isenabled()


@pytest.mark.parametrize(
    ("options", "cases"),
    [
        ((), (0, 3, 6)),
        (("--all-cases",), range(7)),
        (("-k", "5 or 4"), (4,)),
        (("tests/test_sampled.py::test_it[2]",), (2,)),
    ],
)
def test_one_in_n_cases_runs(options: Sequence[str], cases: Sequence[int], tmp_path: Path) -> None:
    output = _run_suite(tmp_path, {"sampled": SAMPLED}, "-n0", "-rP", *options)
    assert re.findall(r"case (\d) of 7", output) == [str(case) for case in cases]


@pytest.mark.parametrize("options", [("-n2",), ("-d", "--tx=2*popen")], ids=" ".join)
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
    assert "4 passed" in _run_suite(tmp_path, {"it": text}, "--bless", *options)
    assert len({path.read_text() for path in tmp_path.glob("process-*")}) == 1


@pytest.mark.parametrize("name", ["emulator", "harness", "tiles"])
def test_emulated_gpu_is_vendor_neutral(name: str) -> None:
    text = (ROOT / "tests" / "lowering" / "simt" / f"{name}.py").read_text("utf-8")
    assert "nvidia" not in text.lower()
    assert "cuda" not in text.lower()
