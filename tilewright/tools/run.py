"""Run a program that imports `triton`, unchanged, on tilewright.

    python -m tilewright run train.py --steps 100
    python -m tilewright run -m package.train --steps 100
    PYTHONPATH=$(python -m tilewright run --path) ./train.sh

The program runs like under `python`, with its own arguments and exit status; `import triton`
imports tilewright in it and in the processes that it starts. Triton need not be installed; if it
is, it is not used.

    python -m tilewright run --cuda-on-cpu test_of_kernels.py

runs a program that requests CUDA's devices of torch on the CPU, where torch has no GPU.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from tilewright.base import knobs
from tilewright.compat.install import cuda_search_path, search_path
from tilewright.tools.load import UsageError

HELP = "run a program that imports `triton` on tilewright"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--path", action="store_true", help="print the folder for PYTHONPATH")
    parser.add_argument(
        "--cuda-on-cpu",
        action="store_true",
        help="where torch has no GPU, CUDA's devices and torch.cuda are the CPU",
    )
    parser.add_argument("-m", action="store_true", dest="is_module", help="SCRIPT is a module")
    parser.add_argument(
        "command", nargs=argparse.REMAINDER, metavar="SCRIPT ...", help="with its arguments"
    )


def execute(args: argparse.Namespace) -> int:
    folders = [search_path(), *([cuda_search_path()] if args.cuda_on_cpu else [])]
    if args.path:
        print(os.pathsep.join(folders))
        return 0
    command: list[str] = args.command
    if not command:
        raise UsageError("specify a script: `python -m tilewright run SCRIPT [arguments]`")
    if sys.flags.ignore_environment:
        raise UsageError(
            "this command works by PYTHONPATH, which Python's options -E and -I ignore"
        )
    if not args.is_module and not Path(command[0]).exists():
        raise UsageError(f"no such file: {command[0]}")
    module = ["-m"] if args.is_module else []
    start = [sys.executable, *_interpreter_options(), *module, *command]
    sys.stdout.flush()
    # exec a fresh interpreter, so that modules imported here are not visible to the program.
    for folder in folders:
        knobs.prepend_python_path(folder)
    return os.execv(sys.executable, start)


def _interpreter_options() -> list[str]:
    """Python's own options on this command line, such as ``-X dev`` and ``-W error``."""
    words = sys.orig_argv[1:]
    return words[: words.index("-m")] if "-m" in words else []
