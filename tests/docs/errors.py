"""Writes `docs/errors.md` from the cases of `tests/errors`.

python -m tests.docs.errors
"""

from __future__ import annotations

from pathlib import Path

from tests.errors.cases import COMMAND, files, read

PAGE = Path(__file__).parents[2] / "docs" / "errors.md"
HEAD = """\
<!-- Written by `python -m tests.docs.errors` from tests/errors; edit the cases there. -->

# Errors

What a wrong kernel is told, and a wrong program. Every text is a golden test, and every place of \
the package that raises an error has one here, or a reason in `tests/errors/untold.py`.

A kernel's error names the place, `at LINE:COLUMN:`, counted \
from the kernel's `def` line as 1, and shows the source up to there with a caret; then comes what \
is wrong. Below it, each operand has a caret of its own that says its element type, its shape and \
where it came from, and a line `help:` says what may be meant.

Those of kernels are `triton.CompilationError`. The exception that a function of `tl` raised is \
its `__cause__`; an error in a called function is the cause of one at the call. Tests can match on \
the message: what explains it stands after it, on lines of its own.
"""


def made() -> str:
    """The page as it should be."""
    parts = [HEAD]
    for path in files():
        intro, cases = read(path)
        parts.append(f"#{intro}\n")
        for case in cases:
            language = "console" if COMMAND in case.source else "python"
            parts.append(f"### {case.name}\n\n```{language}\n{case.source}\n```\n")
            parts.append(f"```text\n{case.text}\n```\n")
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(made(), "utf-8")
