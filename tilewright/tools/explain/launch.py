"""Determine the arguments of a kernel: from the command line, or by running its script.

A script runs like under `python SCRIPT` until its first launch of the kernel, which is intercepted
and not executed. Its standard output is redirected to standard error.
"""

from __future__ import annotations

import argparse
import contextlib
import re
import runpy
import sys
from collections.abc import Generator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from tilewright.compat.install import install_as_triton
from tilewright.compiler.source import CONSTEXPR, ASTSource
from tilewright.frontend.source import SourceFunction
from tilewright.runtime.grid import extents_of
from tilewright.runtime.jit import JITFunction, watching_launches
from tilewright.tools.load import (
    SIGNATURES,
    ScriptError,
    UsageError,
    failure_of,
    kernel_source,
    parse_pairs,
    parse_value,
)

_IMPORTS_TRITON = re.compile(r"^\s*(?:import|from)\s+triton\b", re.MULTILINE)


@dataclass
class Launch:
    """A call of a kernel.

    Attributes:
        source: the kernel with its types.
        values: known values of scalar arguments, by name.
        grid: its extents; None if unknown.
        options: compile options passed by the call.
        origin: a description of where the types come from.
    """

    source: ASTSource
    values: dict[str, Any] = field(default_factory=dict)
    grid: tuple[int, ...] | None = None
    options: dict[str, Any] = field(default_factory=dict)
    origin: str = ""


class _Call(NamedTuple):
    """An intercepted launch: the kernel, its positional and keyword arguments, and the grid."""

    kernel: JITFunction
    given: tuple[Any, ...]
    named: dict[str, Any]
    grid: Any


class _Intercepted(BaseException):
    """Ends a script at its first launch. A BaseException, so that the script's own
    `except Exception` does not catch it."""


def launch_of(args: argparse.Namespace) -> Launch:
    """The launch described by the command line.

    Its types are those of ``--signature``; else, those of the first launch when the script is run;
    else, those that the file declares in `SIGNATURES`.

    Raises:
        UsageError: there is no such kernel, or its types are unknown.
    """
    if args.signature is not None:
        found = Launch(kernel_source(args), origin="types from the command line")
    else:
        found = _intercepted_or_declared(args)
    for name, value in parse_pairs(args.arg, "--arg").items():
        if name not in found.source.fn.arg_names:
            raise UsageError(f"--arg: {found.source.name} has no parameter {name!r}")
        found.values[name] = parse_value(value)
    if args.grid is not None:
        found.grid = _grid(args.grid)
    return found


def _intercepted_or_declared(args: argparse.Namespace) -> Launch:
    file, _, name = args.kernel.partition("::")
    path = Path(file)
    if not path.is_file():
        raise UsageError(f"there is no file {path}")
    no_launch = ""
    if not args.no_run:
        call, failure = _first_call(path, name)
        if call is not None:
            return _bound(path, call, args)
        no_launch = f"{path} does not launch {name or 'a kernel'}{failure}: "
    try:
        return Launch(kernel_source(args), origin=f"types from {SIGNATURES}")
    except ScriptError:
        raise
    except UsageError as error:
        raise UsageError(f"{no_launch}{error}") from None


def _first_call(path: Path, name: str) -> tuple[_Call | None, str]:
    """Run the script until its first launch of the kernel. If there is none, the second result
    describes how the script failed, or is "" if it succeeded."""
    seen: list[_Call] = []

    def watch(
        kernel: JITFunction, given: tuple[Any, ...], named: dict[str, Any], grid: Any
    ) -> None:
        if Path(kernel.fn.__code__.co_filename).resolve() != path.resolve():
            return
        if name in ("", kernel.__name__):
            seen.append(_Call(kernel, given, named, grid))
            raise _Intercepted

    print(f"running {path} up to its first launch of {name or 'a kernel'} …", file=sys.stderr)
    failure = ""
    with watching_launches(watch), _as_main(path):
        try:
            runpy.run_path(str(path), run_name="__main__")
        except _Intercepted:
            pass
        except SystemExit as error:
            failure = f" (it exited with {error.code})" if error.code else ""
        except Exception as error:  # any error of the script
            failure = f" (it failed{failure_of(error, path)})"
    return seen[0] if seen else None, failure


@contextlib.contextmanager
def _as_main(path: Path) -> Generator[None]:
    """The environment of a script run by Python: `sys.argv`, `sys.path`, and tilewright as `triton`
    if the script imports it. Standard output is redirected, so that it does not mix with the
    report."""
    argv, search = sys.argv, list(sys.path)
    if _IMPORTS_TRITON.search(path.read_text("utf-8", "replace")):
        try:
            install_as_triton()
        except RuntimeError as error:
            raise UsageError(str(error)) from error
    sys.argv, sys.path[:0] = [str(path)], [str(path.parent.resolve())]
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        sys.argv, sys.path[:] = argv, search


def _bound(path: Path, call: _Call, args: argparse.Namespace) -> Launch:
    """The intercepted launch, with the compile-time values of the command line."""
    kernel, given, named, grid = call
    changed = {name: parse_value(v) for name, v in parse_pairs(args.constexpr, "-c").items()}
    for name in changed:
        if name not in kernel.arg_names:
            raise UsageError(f"--constexpr: {kernel.__name__} has no parameter {name!r}")
    try:
        source, values, options = kernel.bound(*given, **{**named, **changed})
        extents = extents_of(grid(values) if callable(grid) else grid)
    except (TypeError, ValueError) as error:
        raise UsageError(f"the launch in {path} is invalid: {error}") from error
    passed = [name for name, type in source.signature.items() if type != CONSTEXPR]
    numbers = {n: values[n] for n in passed if isinstance(values[n], bool | int | float)}
    return Launch(source, numbers, tuple(extents), options, f"the first launch in {path}")


def _grid(text: str) -> tuple[int, ...]:
    try:
        extents = tuple(int(n) for n in text.split(","))
    except ValueError:
        extents = ()
    if not 1 <= len(extents) <= 3 or min(extents) < 1:
        raise UsageError(f"--grid: write one to three extents, as 128 or 64,8, not {text!r}")
    return extents


def described_arguments(source: ASTSource) -> dict[str, str]:
    """The type of each parameter, or the value of a compile-time one, as text."""
    result: dict[str, str] = {}
    for i, (name, type) in enumerate(source.signature.items()):
        if type == CONSTEXPR:
            value = source.constants.get((i,))
            inner = getattr(value, "value", value)
            result[name] = inner.__name__ if isinstance(inner, SourceFunction) else repr(inner)
            continue
        facts = [fact for path, facts in source.attrs.items() if path[0] == i for fact in facts]
        divisors = [f":{value}" for fact, value in facts if fact == "tt.divisibility"]
        result[name] = f"{type}{divisors[0] if divisors else ''}"
    return result
