"""Printing and assertions on a GPU. A failed assertion is the end of a process's use of the GPU, so
each case is a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

SCRIPT = """
import torch
import tilewright as tw
import tilewright.language as tl


@tw.jit
def kernel(x_ptr, n, SIZE: tl.constexpr):
    i = tl.arange(0, SIZE)
    x = tl.load(x_ptr + i)
    tl.device_print("x", x)
    tl.device_print("n", n, hex=True)
    tl.device_print("uneven", tl.arange(0, 3)[:, None] * 5 + tl.arange(0, 5))
    tl.device_print("done")
    tl.device_assert(x < n, "x is small")
    tl.store(x_ptr + i, x + 1)


x = torch.arange(8, device="cuda", dtype=torch.float32)
kernel[(2,)](x, {limit}, SIZE=8, debug={debug})
try:
    torch.cuda.synchronize()
except RuntimeError as error:
    print("RAISED", type(error).__name__)
else:
    print("FINE", x.tolist())
"""


def run(limit: int, debug: bool, folder: Path) -> tuple[list[str], str]:
    """The lines that it prints, and its error messages."""
    path = folder / "script.py"
    path.write_text(SCRIPT.format(limit=limit, debug=debug))
    done = subprocess.run(
        [sys.executable, str(path)], cwd=ROOT, capture_output=True, text=True, timeout=300,
        check=False, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    return done.stdout.splitlines(), done.stderr


@pytest.mark.gpu
def test_each_element_is_printed_once(tmp_path: Path) -> None:
    lines, errors = run(100, False, tmp_path)
    assert any(line.startswith("FINE") for line in lines), errors
    for program in range(2):
        place = f"pid ({program}, 0, 0)"
        assert f"{place} done" in lines
        assert f"{place} idx () n: 0x00000064" in lines
        values = [line for line in lines if line.startswith(f"{place} idx (") and " x: " in line]
        assert len(values) == 8
        uneven = [line for line in lines if line.startswith(f"{place} idx (") and "uneven" in line]
        expected = [f"{place} idx ({i}, {j}) uneven: {5 * i + j}" for i in range(3)
                    for j in range(5)]  # fmt: skip
        assert sorted(uneven) == sorted(expected)


@pytest.mark.gpu
@pytest.mark.parametrize("debug", [True, False])
def test_failed_assertion_is_raised_at_the_next_synchronization(
    debug: bool, tmp_path: Path
) -> None:
    lines, errors = run(3, debug, tmp_path)
    assert any(line.startswith("RAISED" if debug else "FINE") for line in lines), errors
    assert ("Assertion `x is small` failed" in errors) == debug


HANGING = '''
import torch
import tilewright as tw
import tilewright.language as tl
from tilewright.targets.nvidia import bound_waits, tma

bound_waits.LIMIT_NS = 20_000_000
run = tma._run


def without_arrivals(b, code, constraints, args):
    """Slots never become free."""
    if "mbarrier.arrive.shared::cta" not in code:
        run(b, code, constraints, args)


tma._run = without_arrivals


@tw.jit
def product(a_ptr, b_ptr, c_ptr, steps, stride):
    m, k = tl.arange(0, 64), tl.arange(0, 64)
    acc = tl.zeros((64, 64), tl.float32)
    for step in range(steps):
        a = tl.load(a_ptr + m[:, None] * stride + step * 64 + k)
        b = tl.load(b_ptr + (step * 64 + k)[:, None] * 64 + m)
        acc = tl.dot(a, b, acc)
    tl.store(c_ptr + m[:, None] * 64 + m, acc)


a, b = (torch.ones(shape, device="cuda", dtype=torch.float16) for shape in ((64, 1024), (1024, 64)))
c = torch.empty((64, 64), device="cuda")
options = {"debug": True, "sanitize_overflow": False, "num_stages": 3}
kernel = product[(1,)](a, b, c, 16, 1024, **options)
try:
    torch.cuda.synchronize()
except RuntimeError as error:
    print("RAISED", type(error).__name__)
else:
    print("FINE")
'''


@pytest.mark.gpu
def test_wait_that_never_ends_is_reported_in_a_debug_build(tmp_path: Path) -> None:
    path = tmp_path / "hanging.py"
    path.write_text(HANGING)
    done = subprocess.run(
        [sys.executable, str(path)], cwd=ROOT, capture_output=True, text=True, timeout=120,
        check=False, env={**os.environ, "PYTHONPATH": str(ROOT), "TILEWRIGHT_ALWAYS_COMPILE": "1"},
    )  # fmt: skip
    assert "RAISED" in done.stdout, done.stderr
    assert "waited too long for parity" in done.stdout
    assert "hanging.py" in done.stderr
    assert "a wait for a barrier did not end" in done.stderr
