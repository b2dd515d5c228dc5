"""The command line: ``python -m tilewright VERB …``. Each verb is a module of this folder.

A verb's module has `HELP` (a line), `add_arguments(parser)` and `execute(args) -> int`, the exit
status. It prints to standard output; what is wrong goes to standard error.
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
    """Run a command line; gives the exit status: 0, 1 for a failure, 2 for wrong usage."""
    args = parser().parse_args(argv)
    try:
        return args.execute(args)
    except BrokenPipeError:  # the reader, such as `head`, has seen enough
        return 0
    except (UsageError, OSError) as error:
        print(f"tilewright {args.verb}: {error}", file=sys.stderr)
        return 2
    except TritonError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
