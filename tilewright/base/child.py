"""Commands that run Python code in a child process with the module path of this one."""

from __future__ import annotations

import os
import signal
import sys


def python_command(code: str) -> list[str]:
    """The command line of a Python process that executes `code`."""
    path = [os.path.abspath(entry) for entry in sys.path]
    return [sys.executable, "-c", f"import sys; sys.path[:] = {path!r}; {code}"]


def signal_name(number: int) -> str:
    """The name of a signal, such as ``SIGSEGV``."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
