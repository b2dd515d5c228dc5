"""Functions and files stay short enough to be read in one go.

What is too long is in `EXCEPTIONS` with its exact size. Such an entry may not grow, and when
the thing shrinks the entry follows, until it goes: a number that is not today's is a fault.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.structure.sources import parsed

ROOT = Path(__file__).parents[2]
FOLDERS = ("tilewright", "tests", "examples")

MAX_STATEMENTS = 60  # of a function, those of the functions inside it included
MAX_LINES = 700  # of a file

MAX_NATIVE_LINES = 1800  # that emit the native code of launches, of XLA's handlers too
NATIVE = ("tilewright/runtime/native/*.py", "tilewright/interop/xla_*.py")

# "file" -> lines, or "file::Class.function" -> statements.
EXCEPTIONS: dict[str, int] = {}


def _is_docstring(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def _functions(node: ast.AST, prefix: str, found: list[tuple[str, int]]) -> int:
    """Append the functions below a node with their statements; return the statements below it.

    A docstring is no statement. Expressions hold none: they are not searched.
    """
    count = 0
    for field in ("body", "orelse", "handlers", "finalbody", "cases"):
        for child in getattr(node, field, ()):
            name = getattr(child, "name", None) if isinstance(child, ast.stmt) else None
            place = len(found)
            inside = _functions(child, f"{prefix}{name}." if name else prefix, found)
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                found.insert(place, (prefix + child.name, inside))
            count += inside + (isinstance(child, ast.stmt) and not _is_docstring(child))
    return count


def _sizes(root: Path) -> Iterator[tuple[str, int, int]]:
    """Each file and function with its size and its limit."""
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*.py")):
            file = path.relative_to(root).as_posix()
            text = path.read_text("utf-8")
            yield file, len(text.splitlines()), MAX_LINES
            functions: list[tuple[str, int]] = []
            _functions(parsed(path), "", functions)
            for name, statements in functions:
                yield f"{file}::{name}", statements, MAX_STATEMENTS


def size_faults(root: Path, exceptions: dict[str, int]) -> list[str]:
    """What is too long below `root`, and which of the exceptions no longer fit."""
    faults: list[str] = []
    unused = dict(exceptions)
    for name, size, limit in _sizes(root):
        if size <= limit:
            continue
        allowed = unused.pop(name, None)
        if allowed is None:
            faults.append(f"{name}: {size}, where {limit} is the limit")
        elif size != allowed:
            verb = "grew" if size > allowed else "shrank, so lower its exception"
            faults.append(f"{name}: {verb}, from {allowed} to {size}")
    faults += [f"{name}: needs no exception any more" for name in unused]
    return faults


def test_functions_and_files_are_short() -> None:
    faults = size_faults(ROOT, EXCEPTIONS)
    assert not faults, "\n" + "\n".join(faults)


def _tree(root: Path, statements: int, lines: int) -> Path:
    """A method of so many statements, a third of them in a function inside it, and a tall file."""
    folder = root / "tilewright"
    folder.mkdir()
    inner = statements // 3
    text = 'class C:\n    def f(self):\n        """Words."""\n        def g():\n'
    text += "            x = 1\n" * inner + "        y = 2\n" * (statements - 1 - inner)
    (folder / "long.py").write_text(text)
    (folder / "tall.py").write_text("\n" * lines)
    return root


def test_sizes_at_the_limit_pass(tmp_path: Path) -> None:
    assert size_faults(_tree(tmp_path, MAX_STATEMENTS, MAX_LINES), {}) == []


def test_sizes_above_the_limit_are_faults(tmp_path: Path) -> None:
    root = _tree(tmp_path, MAX_STATEMENTS + 1, MAX_LINES + 1)
    function, file = "tilewright/long.py::C.f", "tilewright/tall.py"
    assert size_faults(root, {}) == [
        f"{function}: 61, where 60 is the limit",
        f"{file}: 701, where 700 is the limit",
    ]
    assert size_faults(root, {function: 61, file: 701}) == []


def test_exceptions_must_shrink(tmp_path: Path) -> None:
    root = _tree(tmp_path, MAX_STATEMENTS + 5, MAX_LINES + 5)
    function, file = "tilewright/long.py::C.f", "tilewright/tall.py"
    assert size_faults(root, {function: 64, file: 706, "tilewright/gone.py": 900}) == [
        f"{function}: grew, from 64 to 65",
        f"{file}: shrank, so lower its exception, from 706 to 705",
        "tilewright/gone.py: needs no exception any more",
    ]


def _emits_native_code(function: ast.FunctionDef) -> bool:
    return any(a.annotation and ast.unparse(a.annotation) == "Routine" for a in function.args.args)


def _code_lines(function: ast.FunctionDef, lines: list[str]) -> set[int]:
    """The numbers of the lines of a function without docstrings, comments and empty lines."""
    numbers = range(function.lineno, (function.end_lineno or 0) + 1)
    found = {i for i in numbers if lines[i - 1].strip()[:1] not in ("", "#")}
    for node in ast.walk(function):
        if isinstance(node, ast.Expr) and _is_docstring(node):
            found -= set(range(node.lineno, (node.end_lineno or 0) + 1))
    return found


def native_lines(root: Path) -> int:
    """The lines of functions that emit native code of launches."""
    count = 0
    for path in (p for pattern in NATIVE for p in root.glob(pattern)):
        text = path.read_text("utf-8")
        found: set[int] = set()  # a function in another one counts once
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.FunctionDef) and _emits_native_code(node):
                found |= _code_lines(node, text.splitlines())
        count += len(found)
    return count


def test_native_launch_stays_small() -> None:
    assert 0 < native_lines(ROOT) <= MAX_NATIVE_LINES
