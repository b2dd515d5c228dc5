"""The command line: ``python -m tilewright COMMAND …``. Each command is a module in this folder."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from types import ModuleType

from tilewright.tools import (
    cache,
    compile,
    conformance,
    doctor,
    interpret,
    link,
    opt,
    profile,
    rerun,
    run,
    show,
)
from tilewright.tools.command import command_line, run_command
from tilewright.tools.explain import verb as explain

VERBS: dict[str, ModuleType] = {
    "show": show,
    "opt": opt,
    "interpret": interpret,
    "compile": compile,
    "link": link,
    "rerun": rerun,
    "run": run,
    "cache": cache,
    "doctor": doctor,
    "conformance": conformance,
    "profile": profile,
    "explain": explain,
}


def parser() -> argparse.ArgumentParser:
    """The parser of the whole command line."""
    return command_line(VERBS)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line; returns the exit status: 0, 1 for a failure, 2 for a usage error."""
    return run_command(VERBS, argv)
