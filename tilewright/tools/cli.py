"""The command line: ``python -m tilewright COMMAND …``. Each command is a module in this folder."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from types import ModuleType
from typing import TYPE_CHECKING

from tilewright.base.lazy_import import lazy_import
from tilewright.tools.command import command_line, run_command

# A command imports what it needs only: all of them take longer than `import tilewright`.
if TYPE_CHECKING:
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
    from tilewright.tools.explain import verb as explain
else:
    cache = lazy_import("tilewright.tools.cache")
    compile = lazy_import("tilewright.tools.compile")
    conformance = lazy_import("tilewright.tools.conformance")
    doctor = lazy_import("tilewright.tools.doctor")
    interpret = lazy_import("tilewright.tools.interpret")
    link = lazy_import("tilewright.tools.link")
    opt = lazy_import("tilewright.tools.opt")
    profile = lazy_import("tilewright.tools.profile")
    rerun = lazy_import("tilewright.tools.rerun")
    run = lazy_import("tilewright.tools.run")
    show = lazy_import("tilewright.tools.show")
    explain = lazy_import("tilewright.tools.explain.verb")

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
