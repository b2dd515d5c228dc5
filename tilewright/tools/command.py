"""Parsing and running of commands.

A command is a module with `HELP` (one line), `add_arguments(parser)` and `execute(args) -> int`,
which returns the exit status. Output goes to standard output, errors to standard error.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from types import ModuleType

from tilewright.base.diagnostics import TritonError
from tilewright.tools.signature import UsageError


def command_line(commands: Mapping[str, ModuleType]) -> argparse.ArgumentParser:
    """The parser of ``python -m tilewright COMMAND …`` with these commands."""
    top = argparse.ArgumentParser(
        prog="python -m tilewright", description="Tools for kernels and their IR."
    )
    verbs = top.add_subparsers(dest="verb", required=True, metavar="VERB")
    for name, module in commands.items():
        verb = verbs.add_parser(
            name,
            help=module.HELP,
            description=module.__doc__,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        module.add_arguments(verb)
        verb.set_defaults(execute=module.execute)
    return top


def run_command(commands: Mapping[str, ModuleType], argv: Sequence[str] | None = None) -> int:
    """Run a command line; returns the exit status: 0, 1 for a failure, 2 for a usage error."""
    argv = sys.argv[1:] if argv is None else argv
    requested = {name: commands[name] for name in argv[:1] if name in commands}
    args = command_line(requested or commands).parse_args(argv)
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
