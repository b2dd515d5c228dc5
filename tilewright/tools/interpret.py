"""Interpret tile IR in a file with NumPy, with checks, and print the arrays afterwards.

    python -m tilewright interpret kernel.ir --grid 4 "zeros(64, fp32)" "arange(64, fp32)" 64

Each argument of the entry is a number, or an array: ``zeros(N, type)``, ``arange(N, type)``,
``random(N, type)`` or ``empty(N, type)``. Reading an uninitialised element of the last is an error.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.ir.interpret import Buffer, Checks, interpret
from tilewright.ir.types import BY_SHORT
from tilewright.tools.load import UsageError, parse_value, read_ir

HELP = "interpret tile IR in a file with NumPy, with checks"

_ARRAY = re.compile(r"(zeros|arange|random|empty)\(\s*(\d+)\s*,\s*(\w+)\s*\)")


def make_argument(text: str, rng: np.random.Generator) -> tuple[Any, np.ndarray[Any, Any] | None]:
    """The argument for a text, and the array to print afterwards, if it is an array."""
    match = _ARRAY.fullmatch(text.strip())
    if match is None:
        value = parse_value(text)
        if not isinstance(value, bool | int | float):
            raise UsageError(f"{text!r} is neither a number nor an array such as zeros(64, fp32)")
        return value, None
    kind, count, type = match[1], int(match[2]), match[3]
    if type not in BY_SHORT or BY_SHORT[type].numpy is None:
        raise UsageError(f"{text!r}: unknown element type {type!r}")
    dtype = BY_SHORT[type].numpy
    if kind == "random":
        drawn = (
            rng.standard_normal(count)
            if BY_SHORT[type].is_floating()
            else rng.integers(0, 100, count)
        )
        array = drawn.astype(dtype)
    else:
        array = np.arange(count).astype(dtype) if kind == "arange" else np.zeros(count, dtype)
    if kind == "empty":
        return Buffer.of(array, initialised=False, name=text), array
    return array, array


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=Path, help="tile IR; - for standard input")
    parser.add_argument("args", nargs="*", metavar="ARGUMENT", help="a number or zeros(N, type), …")
    parser.add_argument("--grid", "-g", default="1", help="one to three extents, comma-separated")
    parser.add_argument(
        "--races", action="store_true", help="check for data races between programs"
    )
    parser.add_argument("--seed", type=int, help="seed of random(…) and of the order of programs")


def execute(args: argparse.Namespace) -> int:
    module = read_ir(args.file)
    rng = np.random.default_rng(args.seed)
    made = [make_argument(text, rng) for text in args.args]
    try:
        grid = [int(n) for n in args.grid.split(",")]
        checks = Checks(uninitialised=True, races=args.races)
        interpret(module, grid, [value for value, _ in made], checks=checks, seed=args.seed)
    except (TypeError, ValueError) as error:
        raise UsageError(str(error)) from error
    for i, (_, array) in enumerate(made):
        if array is not None:
            print(f"argument {i}: {args.args[i]}\n{array}")
    return 0
