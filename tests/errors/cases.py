"""The cases of `kernels/*.txt` and `programs/*.txt`, each with the whole text of its error.

A file begins with a title, ``# …``, and what it is about. A case is a line ``=== name``, the
source, a line ``---`` and the text. `pytest tests/errors --bless` replaces the texts by the present
ones; read what has changed.

In `kernels`, the source is a kernel that does not compile. Its parameters have their types by name:
``…_ptr`` is a pointer to fp32, ``i_ptr`` to int32, `f` is fp32, `u` is uint32, annotated ones are
the compile-time 16, all others are int32. A first line ``# options: strict_triton=True`` compiles
it with other `FrontendOptions` than usual.

In `programs`, the source is a program that fails. It has `triton`, `tl` and `np`, runs in an empty
folder, and what it sets of the settings and the environment lasts as long as it. A program of the
command line is a line ``$ python -m tilewright …``, after the files that it needs: each a line
``# file: NAME`` with the text below it.
"""

from __future__ import annotations

import ast
import contextlib
import io
import linecache
import math
import os
import re
import shlex
import tempfile
from collections.abc import Generator
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest import mock

import numpy as np

import tilewright
import tilewright.language as tl
from tests.frontend.kernels import build, kernel_from
from tilewright.base import knobs
from tilewright.base.diagnostics import CompilationError
from tilewright.frontend.options import FrontendOptions
from tilewright.frontend.source import ConstexprFunction, SourceFunction
from tilewright.language.aggregate import aggregate
from tilewright.tools.cli import main

FOLDER = Path(__file__).parent
TYPES = {"i_ptr": "*i32", "f": "fp32", "u": "u32"}
OPTIONS = "# options: "
COMMAND = "$ python -m tilewright "

_numbers = count()


class Case(NamedTuple):
    """What is wrong and its error; `kind` is the folder, `kernels` or `programs`."""

    kind: str
    name: str
    source: str
    text: str


class Cases(NamedTuple):
    """A file of them: its title and words with the cases."""

    intro: str
    cases: list[Case]


def files() -> list[Path]:
    """The files, in the order of the page."""
    return sorted(FOLDER.glob("*/*.txt"))


def read(path: Path) -> Cases:
    """What a file holds."""
    intro, *parts = path.read_text("utf-8").split("\n=== ")
    cases: list[Case] = []
    for part in parts:
        head, _, text = part.partition("\n---\n")
        name, _, source = head.partition("\n")
        cases.append(Case(path.parent.name, name, source.strip("\n"), text.strip("\n")))
    return Cases(intro.strip("\n"), cases)


def write(path: Path, content: Cases) -> None:
    """The reverse of `read`."""
    parts = [f"{content.intro}\n"]
    parts += [f"=== {c.name}\n{c.source}\n---\n{c.text}\n" for c in content.cases]
    path.write_text("\n".join(parts), "utf-8")


def text_of(case: Case) -> str:
    """The text of the case's error as it is now."""
    if case.kind == "kernels":
        return shown(error_of(case.source))
    with _alone():
        if COMMAND in case.source:
            return _without_addresses(_log(case.source))
        return _without_addresses(shown(_error_of_program(case.source)))


def error_of(source: str) -> CompilationError | None:
    """The error of compiling a kernel; None if there is none."""
    triton = SimpleNamespace(jit=_jit, aggregate=aggregate, constexpr_function=ConstexprFunction)
    kernel = kernel_from(source, triton=triton, math=math, np=np)
    signature = {p.name: _type(p.name) for p in kernel.params if not p.is_constexpr}
    constexprs = {p.name: 16 for p in kernel.params if p.is_constexpr}
    try:
        build(kernel, signature, constexprs, _options(source))
    except CompilationError as error:
        return error
    return None


def _jit(fn: Any = None, **options: Any) -> Any:
    """The decorator, less what the runtime adds to it."""
    return partial(_jit, **options) if fn is None else SourceFunction(fn, **options)


def _type(name: str) -> str:
    return TYPES.get(name) or ("*fp32" if name.endswith("_ptr") else "i32")


def _options(source: str) -> FrontendOptions:
    if not source.startswith(OPTIONS):
        return FrontendOptions()
    options = source.split("\n")[0].removeprefix(OPTIONS)
    call: Any = ast.parse(f"f({options})", mode="eval").body
    return replace(FrontendOptions(), **{k.arg: ast.literal_eval(k.value) for k in call.keywords})


def _error_of_program(source: str) -> BaseException | None:
    """The error that a program ends with; None if there is none."""
    file = f"<program {next(_numbers)}>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    scope = {"triton": tilewright, "tl": tl, "np": np, "__name__": "program"}
    try:
        exec(compile(source, file, "exec"), scope)
    except (Exception, SystemExit) as error:
        return error
    return None


def _log(source: str) -> str:
    """The error message of a command line."""
    *given, command = source.split("\n")
    file: list[str] = []
    for line in given:
        if line.startswith("# file: "):
            file = [line.removeprefix("# file: ")]
            continue
        with open(file[0], "a", encoding="utf-8") as out:
            out.write(f"{line}\n")
    words = io.StringIO()
    with contextlib.redirect_stderr(words), contextlib.redirect_stdout(io.StringIO()):
        status = main(shlex.split(command.removeprefix(COMMAND)))
    return words.getvalue().strip("\n") if status else "no error"


@contextlib.contextmanager
def _alone() -> Generator[None]:
    """An empty folder, and settings and variables that are put back at the end."""
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        stack.enter_context(contextlib.chdir(folder))
        stack.enter_context(mock.patch.dict(os.environ))
        for group in vars(knobs).values():
            if isinstance(group, knobs.Group):
                stack.enter_context(group.scope())
        yield


def _without_addresses(text: str) -> str:
    """The text without what differs from run to run."""
    text = re.sub(r"0x[0-9a-f]{6,}|\b\d{12,}\b|(?<=<program )\d+", "…", text)
    # Where Python is loaded at a fixed address, that of its heap has fewer digits.
    return re.sub(r"(?<=ptr<)(\w+> = .*)", lambda found: re.sub(r"\b\d+\b", "…", found[0]), text)


def shown(error: BaseException | None) -> str:
    """The error with its class, and the errors within called functions that caused it; those that
    repeat themselves once.
    """
    if error is None:
        return "no error"
    text = "\n".join(line.rstrip() for line in str(error).split("\n"))
    text = f"{type(error).__name__}: {text}"
    cause: Any = error.__cause__
    if isinstance(cause, CompilationError):
        times = 1
        while str(cause) == str(cause.__cause__):
            cause, times = cause.__cause__, times + 1
        return f"{text}\ncaused by {f'{times} times ' * (times > 1)}{shown(cause)}"
    return text if cause is None else f"{text}\ncause: {type(cause).__name__}"
