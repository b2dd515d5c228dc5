"""Which programs load the compiler with `import triton`, and hash its files, in fresh processes."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tilewright.compat import compile_workers, names
from tilewright.runtime import driver
from tilewright.targets.protocol import GPUTarget

ROOT = Path(__file__).parents[2]

PRINTS = """
import sys, triton
version = sys.modules.get("tilewright.compiler.version")
print("tilewright.compiler.build" in sys.modules)
print(version is not None and version.compiler_key.cache_info().currsize == 1)
"""


@pytest.mark.parametrize(("program", "loads"), [(compile_workers.PROGRAM, True), ("x.py", False)])
def test_torch_forks_workers_from_a_process_with_the_compiler(
    tmp_path: Path, program: str, loads: bool
) -> None:
    file = tmp_path / program
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(PRINTS)
    path = os.pathsep.join((names.SEARCH_PATH, str(ROOT)))
    environment = {**os.environ, "PYTHONPATH": path}
    command = [sys.executable, str(file)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(loads)] * 2


class Counted:
    """A driver that counts the questions to it, in the process that they are asked in."""

    device_type = "counted"
    questions = 0

    def get_current_target(self) -> GPUTarget:
        self.questions += 1
        return GPUTarget("cpu")


def test_the_driver_is_not_started_in_the_process_that_workers_are_forked_from() -> None:
    asked: Any = Counted()
    driver.set_active(asked)
    try:
        compile_workers.load_compiler()
    finally:
        driver.reset_active()
    assert not asked.questions


class Broken:
    """A driver without a device."""

    device_type = "broken"

    def get_current_target(self) -> GPUTarget:
        raise OSError("no device is present")


def test_the_error_of_a_driver_reaches_the_process_that_workers_are_forked_from() -> None:
    broken: Any = Broken()
    driver.set_active(broken)
    try:
        with pytest.raises(RuntimeError, match="OSError: no device is present"):
            compile_workers.load_compiler()
    finally:
        driver.reset_active()
