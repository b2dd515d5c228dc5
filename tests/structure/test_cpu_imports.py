"""The files of the CPU target are in an order: none imports, in any way, one that imports it."""

import ast
from collections.abc import Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = "tilewright.targets.cpu"


def imports(package: str, folder: Path) -> dict[str, set[str]]:
    """The modules of a package that each of them imports, those for type checkers included."""
    files = {}
    for path in folder.rglob("*.py"):
        parts = path.relative_to(folder).with_suffix("").parts
        files[".".join((package, *parts)).removesuffix(".__init__")] = path
    found: dict[str, set[str]] = {}
    for name, path in files.items():
        named: set[str] = set()
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module:
                named |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
            elif isinstance(node, ast.Import):
                named |= {alias.name for alias in node.names}
        found[name] = named & files.keys() - {name, package}
    return found


def circles(graph: Mapping[str, set[str]]) -> list[str]:
    """The modules that reach themselves."""
    found: list[str] = []
    for start in graph:
        seen: set[str] = set()
        stack = list(graph[start])
        while stack:
            name = stack.pop()
            if name not in seen:
                seen.add(name)
                stack.extend(graph[name])
        if start in seen:
            found.append(start)
    return sorted(found)


def test_cpu_target_has_no_import_cycles() -> None:
    graph = imports(PACKAGE, ROOT / "tilewright/targets/cpu")
    assert graph["tilewright.targets.cpu.evaluate"], "the walk found no imports"
    assert circles(graph) == []


@pytest.mark.parametrize("late", ["", "if TYPE_CHECKING:\n    "])
def test_a_planted_cycle_is_found(tmp_path: Path, late: str) -> None:
    (tmp_path / "a.py").write_text("from p.b import x\n")
    (tmp_path / "b.py").write_text("from p import c\n")
    (tmp_path / "c.py").write_text(f"{late}from p.a import y\n")
    (tmp_path / "d.py").write_text("import p.a\n")
    assert circles(imports("p", tmp_path)) == ["p.a", "p.b", "p.c"]
