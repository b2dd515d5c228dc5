"""The command line: ``python -m tilewright COMMAND …``. Each command is a module in this folder.

A command's module has `HELP` (one line), `add_arguments(parser)` and `execute(args) -> int`, which
returns the exit status. Output goes to standard output, errors to standard error.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from tilewright.base.diagnostics import TritonError
from tilewright.tools import (
    cache,
    compile,
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
from tilewright.tools.load import UsageError

VERBS = {
    "show": show,
    "opt": opt,
    "interpret": interpret,
    "compile": compile,
    "link": link,
    "rerun": rerun,
    "run": run,
    "cache": cache,
    "doctor": doctor,
    "profile": profile,
    "explain": explain,
}


def parser() -> argparse.ArgumentParser:
    """The parser of the whole command line."""
    top = argparse.ArgumentParser(
        prog="python -m tilewright", description="Tools for kernels and their IR."
    )
    verbs = top.add_subparsers(dest="verb", required=True, metavar="VERB")
    for name, module in VERBS.items():
        verb = verbs.add_parser(
            name,
            help=module.HELP,
            description=module.__doc__,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        module.add_arguments(verb)
        verb.set_defaults(execute=module.execute)
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line; returns the exit status: 0, 1 for a failure, 2 for a usage error."""
    args = parser().parse_args(argv)
    try:
        return args.execute(args)
    except BrokenPipeError:  # the reader, such as `head`, has closed the pipe
        return 0
    except (UsageError, OSError) as error:
        print(f"tilewright {args.verb}: {error}", file=sys.stderr)
        return 2
    except TritonError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
