"""`import tilewright` is light: heavy packages come with the first kernel that needs them."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HEAVY = ("cupy", "jax", "llvmlite", "torch", "triton")

# Which modules are loaded, and how long that took in a fresh interpreter.
PROBE = """
import json, sys, time
begin = time.perf_counter()
import {module}
seconds = time.perf_counter() - begin
print(json.dumps({{"seconds": seconds, "modules": sorted(sys.modules)}}))
"""


def _loaded_by(module: str) -> tuple[set[str], float]:
    """The top-level packages that importing `module` loads, and the seconds that it takes."""
    command = [sys.executable, "-W", "error", "-c", PROBE.format(module=module)]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    answer = json.loads(run.stdout)
    return {name.partition(".")[0] for name in answer["modules"]}, answer["seconds"]


@pytest.mark.parametrize("module", ["tilewright", "tilewright.language"])
def test_import_loads_no_heavy_package(module: str) -> None:
    loaded, seconds = _loaded_by(module)
    # Printed, not asserted: the time depends on the machine and its load.
    print(f"import {module}: {seconds * 1e3:.0f} ms")
    assert not loaded & set(HEAVY)


def test_import_loads_no_path_or_url_parsers() -> None:
    """`pathlib` imports `urllib.parse` in Python 3.11: together 3 to 4 ms."""
    loaded, _ = _loaded_by("tilewright")
    numpy, _ = _loaded_by("numpy")
    assert not (loaded - numpy) & {"ipaddress", "pathlib", "urllib"}


def test_probe_lists_loaded_modules() -> None:
    loaded, _ = _loaded_by("llvmlite")
    assert "llvmlite" in loaded
