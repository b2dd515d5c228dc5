"""`python -m tests.fuzz.folder`: launches of kernels with guessed arguments."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import tilewright as tw
import tilewright.language as tl
from tests.fuzz import folder

ROOT = Path(__file__).parents[2]

LIBRARY = """
import triton
import triton.language as tl

@triton.jit
def scale_rows(x_ptr, out_ptr, stride_row, n_columns, scale, BLOCK: tl.constexpr):
    columns = tl.arange(0, BLOCK)
    row = x_ptr + tl.program_id(0) * stride_row
    x = tl.load(row + columns, mask=columns < n_columns, other=0.0)
    tl.store(out_ptr + columns, x * scale, mask=columns < n_columns)

@triton.autotune(configs=[triton.Config({"BLOCK": 16})], key=[])
@triton.jit
def gather(table, indices, out, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    where = tl.load(indices + i, mask=i < n, other=0).to(tl.int32)
    places = table + where
    tl.store(out + i, tl.load(places), mask=i < n)
"""


@tw.jit
def sums_kernel(first, second, out, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    places = first + i
    x = tl.load(places, mask=i < n, other=0.0) + tl.load(second + n + i)
    tl.atomic_add(out.to(tl.pointer_type(tl.float32)) + i, x.to(tl.float32))


def test_addresses_are_found_through_variables() -> None:
    assert folder.addresses(sums_kernel) == {"first", "second", "out"}


def test_kernels_of_a_package_are_launched(tmp_path: Path) -> None:
    package = tmp_path / "some_kernels"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "rows.py").write_text(LIBRARY)
    (package / "broken.py").write_text("import triton\n@triton.jit\ndef f(: pass\n")
    command = [sys.executable, "-m", "tests.fuzz.folder", str(package), "--launches=3"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "some_kernels.broken: not imported" in done.stdout
    assert done.stdout.splitlines()[-1].endswith("kernels without a valid launch: 0, same: 6")


def test_wrong_results_and_failures_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = folder.guess(sums_kernel, random.Random(1))
    arguments.update(first=arguments["out"].astype("float32"), n=5, BLOCK=16)
    arguments.update(second=arguments["first"].copy(), out=arguments["first"].copy())
    assert folder.compare(sums_kernel, arguments) == ("same", "")

    def wrong(**arguments: Any) -> None:
        arguments["out"][3] += 1.0

    def failing(**arguments: Any) -> None:
        raise RuntimeError("no code")

    for launch, outcome in ((wrong, "different"), (failing, "failed")):
        monkeypatch.setattr(type(sums_kernel), "__getitem__", _for_compiled(launch))
        assert folder.compare(sums_kernel, arguments)[0] == outcome


def _for_compiled(launch: Any) -> Any:
    original = tw.JITFunction.__getitem__

    def get(self: Any, grid: Any) -> Any:
        return original(self, grid) if isinstance(self, folder.InterpretedFunction) else launch

    return get


def test_access_out_of_bounds_is_an_invalid_guess() -> None:
    arguments = folder.guess(sums_kernel, random.Random(1))
    arguments.update(n=1 << 40, BLOCK=16)
    assert folder.compare(sums_kernel, arguments).name == "invalid"
