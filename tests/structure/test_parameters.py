"""Parameters that no caller passes are dead: they make a function look more general than it is."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import tilewright
from tests.structure.sources import parsed

PACKAGE = Path(tilewright.__file__).parent

INTERNAL = ("base", "layout", "ir", "analysis", "rewrites", "passes", "lowering", "targets")
"""Folders without an interface of their own for users: all callers are in the package."""

PASSED_OTHERWISE = {
    "ir/turns.py Turns.idle": "tests count what waits",
    "layout/families.py mma_m16n8.order": "tests cover all orders of a tile's axes",
    "layout/families.py mma_operand_a.order": "tests cover all orders of a tile's axes",
    "layout/families.py mma_operand_b.order": "tests cover all orders of a tile's axes",
    "lowering/split_function.py split_function.long": "tests split short functions",
    "lowering/split_function.py split_function.part": "tests split short functions",
    "targets/nvidia/emit.py kernel_attributes.cluster": "until a launch option sets clusters",
}
"""Parameters that only tests pass, with the reason."""


def parameters(name: str, function: ast.FunctionDef, method: bool) -> Iterator[tuple[str, int]]:
    """Parameters with a default, with their positions; -1 for keywords."""
    positional = [*function.args.posonlyargs, *function.args.args]
    decorators = {d.id for d in function.decorator_list if isinstance(d, ast.Name)}
    positional = positional[method and "staticmethod" not in decorators :]
    count = len(function.args.defaults)
    for i, argument in enumerate(positional):
        if i >= len(positional) - count:
            yield argument.arg, i
    for argument, default in zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True):
        if default is not None:
            yield argument.arg, -1


def functions(tree: ast.Module) -> Iterator[tuple[str, ast.FunctionDef, bool]]:
    """Functions of a module and of its classes, by the name that callers use."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            yield node.name, node, False
        elif isinstance(node, ast.ClassDef):
            for member in node.body:
                if isinstance(member, ast.FunctionDef):
                    name = node.name if member.name == "__init__" else member.name
                    yield name, member, True


def passes(call: ast.Call, parameter: str, position: int) -> bool:
    if any(keyword.arg in (parameter, None) for keyword in call.keywords):
        return True
    if any(isinstance(argument, ast.Starred) for argument in call.args):
        return position >= 0
    return 0 <= position < len(call.args)


@cache
def unpassed() -> frozenset[str]:
    trees = {path: parsed(path) for path in PACKAGE.rglob("*.py")}
    calls: dict[str, list[ast.Call]] = defaultdict(list)
    values: set[str] = set()  # functions that are used without being called: in tables, partial
    for tree in trees.values():
        called: set[ast.expr] = set()
        names: list[ast.Name] = []
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                called.add(node.func)
                name = getattr(node.func, "id", None) or getattr(node.func, "attr", "")
                calls[name].append(node)
            elif isinstance(node, ast.Name):
                names.append(node)
        values |= {node.id for node in names if node not in called}
    found: set[str] = set()
    for path, tree in trees.items():
        place = path.relative_to(PACKAGE).as_posix()
        if not place.startswith(INTERNAL):
            continue
        for name, function, method in functions(tree):
            if name in values or not calls[name] or name.startswith("__"):
                continue
            for parameter, position in parameters(name, function, method):
                if not any(passes(call, parameter, position) for call in calls[name]):
                    found.add(f"{place} {name}.{parameter}")
    return frozenset(found)


def test_parameters_with_defaults_are_passed_by_some_caller() -> None:
    assert unpassed() - set(PASSED_OTHERWISE) == set()


def test_exceptions_are_needed() -> None:
    assert set(PASSED_OTHERWISE) - unpassed() == set()
