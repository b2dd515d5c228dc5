"""What a kernel is called with: said on the command line, or seen by running its script.

A script is run as Python would run it, up to its first launch of the kernel, which does not take
place. What it prints until then goes to standard error.
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
from tilewright.runtime.jit import JITFunction, watching_launches
from tilewright.runtime.launch import extents_of
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
        values: of arguments that are numbers, by name, as far as they are known.
        grid: its extents; None if they are not known.
        options: compile options that the call gives.
        origin: where all this comes from, for people.
    """

    source: ASTSource
    values: dict[str, Any] = field(default_factory=dict)
    grid: tuple[int, ...] | None = None
    options: dict[str, Any] = field(default_factory=dict)
    origin: str = ""


class _Call(NamedTuple):
    """A launch that a script makes: the kernel, its arguments by place and by name, the grid."""

    kernel: JITFunction
    given: tuple[Any, ...]
    named: dict[str, Any]
    grid: Any


class _Seen(BaseException):
    """Ends a script at the launch that was waited for. No `except Exception` catches it."""


def launch_of(args: argparse.Namespace) -> Launch:
    """The launch that the command line means.

    With a signature it is that. Without, the script is run to see its first launch; where it makes
    none, the types that the file states (`SIGNATURES`) are taken.

    Raises:
        UsageError: there is no such kernel, or nothing says its types.
    """
    if args.signature is not None:
        found = Launch(kernel_source(args), origin="types from the command line")
    else:
        found = _seen_or_stated(args)
    for name, value in parse_pairs(args.arg, "--arg").items():
        if name not in found.source.fn.arg_names:
            raise UsageError(f"--arg: {found.source.name} has no parameter {name!r}")
        found.values[name] = parse_value(value)
    if args.grid is not None:
        found.grid = _grid(args.grid)
    return found


def _seen_or_stated(args: argparse.Namespace) -> Launch:
    file, _, name = args.kernel.partition("::")
    path = Path(file)
    if not path.is_file():
        raise UsageError(f"there is no file {path}")
    unseen = ""
    if not args.no_run:
        call, failure = _first_call(path, name)
        if call is not None:
            return _bound(path, call, args)
        unseen = f"{path} does not launch {name or 'a kernel'}{failure}: "
    try:
        return Launch(kernel_source(args), origin=f"types from {SIGNATURES}")
    except ScriptError:
        raise
    except UsageError as error:
        raise UsageError(f"{unseen}{error}") from None


def _first_call(path: Path, name: str) -> tuple[_Call | None, str]:
    """Run the script up to its first launch of the kernel; where it makes none, the failure that it
    ended with, if any.
    """
    seen: list[_Call] = []

    def watch(
        kernel: JITFunction, given: tuple[Any, ...], named: dict[str, Any], grid: Any
    ) -> None:
        if Path(kernel.fn.__code__.co_filename).resolve() != path.resolve():
            return
        if name in ("", kernel.__name__):
            seen.append(_Call(kernel, given, named, grid))
            raise _Seen

    print(f"running {path} up to its first launch of {name or 'a kernel'} …", file=sys.stderr)
    failure = ""
    with watching_launches(watch), _as_main(path):
        try:
            runpy.run_path(str(path), run_name="__main__")
        except _Seen:
            pass
        except SystemExit as error:
            failure = f" (it exited with {error.code})" if error.code else ""
        except Exception as error:  # whatever it is, it is the script's
            failure = f" (it failed{failure_of(error, path)})"
    return seen[0] if seen else None, failure


@contextlib.contextmanager
def _as_main(path: Path) -> Generator[None]:
    """The state in which Python would run a script: its arguments, where it looks for modules, and
    `triton` for those that import it. What it prints does not mix with the report."""
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
    """The launch that was seen, with the compile-time values of the command line."""
    kernel, given, named, grid = call
    changed = {name: parse_value(v) for name, v in parse_pairs(args.constexpr, "-c").items()}
    for name in changed:
        if name not in kernel.arg_names:
            raise UsageError(f"--constexpr: {kernel.__name__} has no parameter {name!r}")
    try:
        source, values, options = kernel.bound(*given, **{**named, **changed})
        extents = extents_of(grid(values) if callable(grid) else grid)
    except (TypeError, ValueError) as error:
        raise UsageError(f"the launch in {path} is not right: {error}") from error
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
    """Type of each parameter, or the value of one that is fixed, as people write them."""
    found: dict[str, str] = {}
    for i, (name, type) in enumerate(source.signature.items()):
        if type == CONSTEXPR:
            value = source.constants.get((i,))
            inner = getattr(value, "value", value)
            found[name] = inner.__name__ if isinstance(inner, SourceFunction) else repr(inner)
            continue
        facts = [fact for path, facts in source.attrs.items() if path[0] == i for fact in facts]
        wide = any(fact[0] == "tt.divisibility" for fact in facts)
        found[name] = f"{type}{':16' if wide else ''}"
    return found
