"""Each module of the package can be imported by itself, whatever was imported before it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import tilewright

PACKAGE = Path(tilewright.__file__).parent

ENTRY_POINTS = {"tilewright.__main__"}
"""Modules that act when they are imported."""

IMPORT_EACH = """
import importlib, sys, traceback
failed = 0
for name in sys.argv[1:]:
    try:
        importlib.import_module(name)
    except Exception:
        failed += 1
        print(name)
        traceback.print_exc(limit=-1, file=sys.stdout)
sys.exit(failed)
"""


def modules() -> list[str]:
    found = [path.relative_to(PACKAGE.parent).with_suffix("") for path in PACKAGE.rglob("*.py")]
    names = {".".join(p.parts).removesuffix(".__init__") for p in found}
    return sorted(names - ENTRY_POINTS)


def test_every_module_can_be_imported() -> None:
    names = modules()
    assert len(names) > 300
    run = subprocess.run(
        [sys.executable, "-c", IMPORT_EACH, *names],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout
