"""The cases of `errors/*.txt`: wrong kernels, each with the whole text of its error.

A file begins with a title, ``# …``, and what it is about. A case is a line ``=== name``, the
kernel's source, a line ``---`` and the text. `pytest tests/frontend/test_error_texts.py --bless
-n0` writes the texts that there are now; read what has changed.

A kernel's parameters have their types by name: ``…_ptr`` is a pointer to fp32, ``i_ptr`` to int32,
`f` is fp32, `u` is uint32, annotated ones are the compile-time 16, all others are int32.
"""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

from tests.frontend.kernels import build, jit, kernel_from
from tilewright.base.diagnostics import CompilationError

FOLDER = Path(__file__).parent / "errors"
TYPES = {"i_ptr": "*i32", "f": "fp32", "u": "u32"}


class Case(NamedTuple):
    """A wrong kernel and its error."""

    name: str
    source: str
    text: str


class Cases(NamedTuple):
    """A file of them: its title and words with the cases."""

    intro: str
    cases: list[Case]


def files() -> list[Path]:
    """The files, in the order of their names."""
    return sorted(FOLDER.glob("*.txt"))


def read(path: Path) -> Cases:
    """What a file holds."""
    intro, *parts = path.read_text("utf-8").split("\n=== ")
    cases: list[Case] = []
    for part in parts:
        head, _, text = part.partition("\n---\n")
        name, _, source = head.partition("\n")
        cases.append(Case(name, source.strip("\n"), text.strip("\n")))
    return Cases(intro.strip("\n"), cases)


def write(path: Path, content: Cases) -> None:
    """The reverse of `read`."""
    parts = [f"{content.intro}\n"]
    parts += [f"=== {c.name}\n{c.source}\n---\n{c.text}\n" for c in content.cases]
    path.write_text("\n".join(parts), "utf-8")


def error_of(source: str) -> CompilationError | None:
    """The error of compiling a kernel; None if there is none."""
    triton = SimpleNamespace(jit=jit)
    kernel = kernel_from(source, triton=triton, math=math)
    signature = {p.name: _type(p.name) for p in kernel.params if not p.is_constexpr}
    constexprs = {p.name: 16 for p in kernel.params if p.is_constexpr}
    try:
        build(kernel, signature, constexprs)
    except CompilationError as error:
        return error
    return None


def _type(name: str) -> str:
    return TYPES.get(name) or ("*fp32" if name.endswith("_ptr") else "i32")


def shown(error: BaseException | None) -> str:
    """The error with its class, and the errors within called functions that caused it."""
    if error is None:
        return "no error"
    text = "\n".join(line.rstrip() for line in str(error).split("\n"))
    text = f"{type(error).__name__}: {text}"
    cause: Any = error.__cause__
    if isinstance(cause, CompilationError):
        return f"{text}\ncaused by {shown(cause)}"
    return text if cause is None else f"{text}\ncause: {type(cause).__name__}"
