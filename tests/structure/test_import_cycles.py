"""Imports have no cycles: between modules, and between the files and folders of each folder.

An import counts wherever it stands: under `if TYPE_CHECKING` and inside functions, too. Python
executes the `__init__.py` of each folder on the path of a module; that does not count.
"""

import ast
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

from tests.structure.sources import parsed

ROOT = Path(__file__).parents[2]
PACKAGE = "tilewright"

Graph = Mapping[str, set[str]]


def _modules(package: str, folder: Path) -> dict[str, Path]:
    """The files of a package by the names of the modules."""
    files: dict[str, Path] = {}
    for path in folder.rglob("*.py"):
        parts = path.relative_to(folder).with_suffix("").parts
        files[".".join((package, *parts)).removesuffix(".__init__")] = path
    return files


def _names(node: ast.AST, within: str) -> Iterator[tuple[str, str]]:
    """What a statement in the package `within` imports: a name, and the module it may be in."""
    if isinstance(node, ast.Import):
        yield from ((alias.name, "") for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        above = within.split(".")[: within.count(".") + 2 - node.level] if node.level else []
        origin = ".".join([*above, *([node.module] if node.module else [])])
        yield from ((f"{origin}.{alias.name}", origin) for alias in node.names)


def imports(package: str, folder: Path) -> dict[str, set[str]]:
    """The modules of a package that each of them imports, those for type checkers included."""
    files = _modules(package, folder)
    found: dict[str, set[str]] = {}
    for module, path in files.items():
        within = module if path.name == "__init__.py" else module.rpartition(".")[0]
        tree = ast.walk(parsed(path))
        names = [pair for node in tree for pair in _names(node, within)]
        found[module] = {name if name in files else origin for name, origin in names} & files.keys()
        found[module].discard(module)
    return found


def within_folder(graph: Graph, folder: str) -> dict[str, set[str]]:
    """The graph between the files and folders directly within a folder."""
    depth = folder.count(".") + 2

    def part(module: str) -> str:
        return ".".join([*module.split("."), "__init__"][:depth])

    found: dict[str, set[str]] = {}
    for module, imported in graph.items():
        if f"{module}.".startswith(f"{folder}."):
            ends = {part(name) for name in imported if f"{name}.".startswith(f"{folder}.")}
            found.setdefault(part(module), set()).update(ends - {part(module)})
    return found


def cycles(graph: Graph) -> list[str]:
    """The nodes that reach themselves."""
    found: list[str] = []
    for start in graph:
        seen: set[str] = set()
        stack = list(graph[start])
        while stack:
            name = stack.pop()
            if name not in seen:
                seen.add(name)
                stack.extend(graph.get(name, ()))
        if start in seen:
            found.append(start)
    return sorted(found)


@cache
def graph() -> Graph:
    return imports(PACKAGE, ROOT / PACKAGE)


MODULES = _modules(PACKAGE, ROOT / PACKAGE)
FOLDERS = sorted({name.rpartition(".")[0] for name in MODULES if "." in name})


def test_modules_have_no_import_cycles() -> None:
    assert graph()["tilewright.targets.cpu.evaluate"], "the walk found no imports"
    assert cycles(graph()) == []


@pytest.mark.parametrize("folder", FOLDERS)
def test_files_and_folders_have_no_import_cycles(folder: str) -> None:
    assert cycles(within_folder(graph(), folder)) == []


@pytest.mark.parametrize("late", ["", "if TYPE_CHECKING:\n    ", "def f():\n    "])
@pytest.mark.parametrize("last", ["from p.a import y", "from .a import y", "from . import a"])
def test_a_planted_cycle_is_found(tmp_path: Path, late: str, last: str) -> None:
    (tmp_path / "a.py").write_text("from p.b import x\n")
    (tmp_path / "b.py").write_text("from p import c\n")
    (tmp_path / "c.py").write_text(f"{late}{last}\n")
    (tmp_path / "d.py").write_text("import p.a\n")
    assert cycles(imports("p", tmp_path)) == ["p.a", "p.b", "p.c"]


def test_a_planted_cycle_through_an_init_file_is_found(tmp_path: Path) -> None:
    (tmp_path / "__init__.py").write_text("from p.a import x\n")
    (tmp_path / "a.py").write_text("from p import name\n")
    (tmp_path / "b.py").write_text("from p import a\n")
    assert cycles(imports("p", tmp_path)) == ["p", "p.a"]


def test_a_planted_cycle_of_folders_is_found(tmp_path: Path) -> None:
    """The modules have none."""
    files = {"q/a.py": "from p import b", "b.py": "from p.q import c", "q/c.py": "", "d.py": ""}
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(f"{text}\n")
    graph = imports("p", tmp_path)
    assert cycles(graph) == []
    assert cycles(within_folder(graph, "p")) == ["p.b", "p.q"]
    assert cycles(within_folder(graph, "p.q")) == []
