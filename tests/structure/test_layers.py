"""What may import what: the order of the layers, and the few places for a foreign package.

The rules are the tables below. `import_faults` reads a package with `ast`, without importing it,
and lists each fault as `file:line: what may not be`. Faults planted in small packages show that
each kind is found.
"""

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

import pytest

from tests.structure.sources import parsed

ROOT = Path(__file__).parents[2]
PACKAGE = "tilewright"

# Lowest first. A folder imports from lower rows and from itself; folders in one row are siblings,
# which may not import each other. Modules directly in the package are above them all.
LAYERS: tuple[tuple[str, ...], ...] = (
    ("base",),
    ("layout",),
    ("ir",),
    ("ops",),
    ("analysis",),
    ("autodiff", "language", "rewrites"),
    ("frontend",),
    ("passes",),
    ("lowering",),
    ("targets",),
    ("compiler",),
    ("runtime",),
    ("compat", "conformance", "profiler"),
    ("backends", "interop", "tools"),
)
TOP = "the package's top level"
RANK = {name: rank for rank, row in enumerate((*LAYERS, (TOP,))) for name in row}

# Foreign package -> the files that may import it. What is in neither this table nor the standard
# library may be imported nowhere.
NUMPY_PLACES = (
    "ir/interpret.py",
    "ir/memory.py",
    "ir/numbers.py",
    "ir/races.py",
    "ir/types.py",
    *(f"{name}/*" for row in LAYERS[RANK["ops"] :] for name in row),
    "*.py",
)
FOREIGN: dict[str, tuple[str, ...]] = {
    "numpy": NUMPY_PLACES,
    "ml_dtypes": NUMPY_PLACES,
    "llvmlite": (
        "base/llvm_library.py",
        "lowering/emit.py",
        "targets/*/emit.py",
        "runtime/devices/llvm.py",
    ),
    "torch": ("interop/torch_*.py",),
    "jax": ("interop/jax_*.py", "jax.py"),
    "matplotlib": ("tools/perf_report.py",),
    "pandas": ("tools/perf_report.py",),
    # Modules of Python itself, of different versions.
    "_sha2": ("base/digest.py",),
    "_sha256": ("base/digest.py",),
}

# Only here may an import be inside a function: optional packages, and tools that start fast.
# A single module that must import lazily has its own line, with the reason.
LATE_IMPORTS = (
    "interop/*",
    "tools/*",
    "compat/names.py",  # a finder imports the requested module
    "compat/cuda_path/sitecustomize.py",  # executed at the start of any Python process
)

# Calls that import, and the one of them that a module may use at its top, in the form that gives it
# a type (base/lazy_import.py, which alone may compute the name).
HIDDEN_IMPORTS = ("import_module", "__import__", "resolve_name")
DECLARED_LAZY = "lazy_import"
LAZY_NAMES = "lazy_names"  # the other form: the `__getattr__` of a module, from a table of names
COMPUTED_PLACES = ("base/lazy_import.py", "compat/managers.py", "compat/names.py")

# Packages that need not be installed, so that type checkers may not find them.
OPTIONAL = ("matplotlib", "pandas")

# What names the built-in targets, to load one on request.
REGISTRIES = ("targets/registry.py",)

# Targets' folders that are no target themselves -> the targets that share what is in them.
SHARED = {"gpu": ("amd", "nvidia")}

# Folders that are closer than their layer -> the layers they may import in addition to themselves.
CLOSED = {"runtime/devices": ("base",)}


@dataclass(frozen=True)
class Import:
    """One imported module or name, `parts` being its absolute dotted name."""

    line: int
    parts: tuple[str, ...]
    late: bool

    @property
    def name(self) -> str:
        return ".".join(self.parts)


def _matches(file: str, patterns: tuple[str, ...]) -> bool:
    """Like a shell's glob: in a pattern `*.py` or `targets/*/emit.py`, `*` does not cross a `/`.

    A pattern that ends in `/*` matches the whole tree below the folder.
    """
    for pattern in patterns:
        if pattern.endswith("/*"):
            if file.startswith(pattern[:-1]):
                return True
        elif file.count("/") == pattern.count("/") and fnmatch(file, pattern):
            return True
    return False


def _dynamic_import(call: ast.Call) -> tuple[str, ...] | None:
    """The name that `import_module("a.b")` and its like import; `?` where computed."""
    function = call.func
    called = function.attr if isinstance(function, ast.Attribute) else None
    called = function.id if isinstance(function, ast.Name) else called
    if called not in (*HIDDEN_IMPORTS, DECLARED_LAZY):
        return None
    match call.args:
        case [ast.Constant(value=str(name)), *_]:
            return tuple(name.split("."))
        case _:
            return ("?",)


def _is_declared(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Name) and call.func.id == DECLARED_LAZY


def _names_of(node: ast.AST, package: tuple[str, ...]) -> list[tuple[str, ...]]:
    """The absolute names that a statement or call in a module of `package` imports."""
    match node:
        case ast.Import(names=names):
            return [tuple(alias.name.split(".")) for alias in names]
        case ast.ImportFrom(module=module, names=names, level=level):
            start = package[: len(package) - level + 1] if level else ()
            origin = start + tuple(module.split(".") if module else ())
            return [(*origin, alias.name) for alias in names]
        case ast.Call():
            name = _dynamic_import(node)
            return [] if name is None else [name]
        case _:
            return []


def _imports(tree: ast.AST, package: tuple[str, ...], late: bool = False) -> Iterator[Import]:
    """Every import in the module, also those under `if TYPE_CHECKING` and inside functions."""
    for node in ast.iter_child_nodes(tree):
        # A call that imports is as good as an import statement inside a function, unless it is
        # the declared form at the module's top.
        hidden = late or (isinstance(node, ast.Call) and not _is_declared(node))
        for name in _names_of(node, package):
            yield Import(getattr(node, "lineno", 0), name, hidden)
        function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        yield from _imports(node, package, late or function)


def _lazy_module(statement: ast.stmt) -> tuple[str, str] | None:
    """The name and the module of `name = lazy_import("module")`."""
    match statement:
        case (
            ast.Assign(targets=[ast.Name(id=name)], value=ast.Call() as call)
            | ast.AnnAssign(target=ast.Name(id=name), value=ast.Call() as call)
        ) if _is_declared(call):
            return name, ".".join(_dynamic_import(call) or ())
        case _:
            return None


def _bound_modules(statements: list[ast.stmt]) -> dict[str, str]:
    """The modules that import statements bind, by name."""
    bound: dict[str, str] = {}
    for statement in statements:
        if isinstance(statement, ast.Import):
            bound.update((a.asname or a.name, a.name) for a in statement.names)
        elif isinstance(statement, ast.ImportFrom):
            bound.update(
                (a.asname or a.name, f"{statement.module}.{a.name}") for a in statement.names
            )
    return bound


def _is_lazy(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Name) and call.func.id in (DECLARED_LAZY, LAZY_NAMES)


def _lazy_names(statement: ast.stmt, module: str) -> set[str] | None:
    """The imports of `__getattr__ = lazy_names(__name__, {source: names})`, in full."""
    match statement:
        case ast.Assign(
            targets=[ast.Name(id="__getattr__")],
            value=ast.Call(args=[ast.Name(id="__name__"), ast.Dict() as table, *_]) as call,
        ) if _is_lazy(call):
            return {
                f"{module if isinstance(source, ast.Name) else ast.literal_eval(source)}.{name}"
                for source, names in zip(table.keys, table.values, strict=True)
                if source is not None
                for name in ast.literal_eval(names)
            }
        case _:
            return None


def _untyped_lazy_imports(tree: ast.Module, module: str) -> Iterator[tuple[int, str]]:
    """Lazy imports, with their lines, of which type checkers do not see the same module."""
    typed: set[int] = set()
    for statement in tree.body:
        match statement:
            case ast.If(test=ast.Name(id="TYPE_CHECKING"), body=body, orelse=orelse):
                seen = _bound_modules(body)
                typed |= {
                    other.lineno
                    for other in orelse
                    if (lazy := _lazy_module(other)) is not None and seen.get(lazy[0]) == lazy[1]
                }
                typed |= {
                    other.lineno
                    for other in orelse
                    if (names := _lazy_names(other, module)) and names <= set(seen.values())
                }
            case ast.AnnAssign():
                lazy = _lazy_module(statement)
                if lazy is not None and lazy[1].partition(".")[0] in OPTIONAL:
                    typed.add(statement.lineno)
            case _:
                pass
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _is_lazy(node) and node.lineno not in typed:
            yield node.lineno, "no import under TYPE_CHECKING gives this lazy import its type"


def _layer(parts: tuple[str, ...], root: Path) -> str:
    """The folder of the package that `parts` (without the package's own name) lie in."""
    return parts[0] if parts and (root / parts[0]).is_dir() else TOP


def _target(parts: tuple[str, ...], root: Path) -> str | None:
    """The `a` of targets/a, None for what all targets share."""
    if len(parts) < 2 or parts[0] != "targets" or not (root / "targets" / parts[1]).is_dir():
        return None
    return parts[1]


def _foreign_fault(file: str, imported: Import) -> str | None:
    module = imported.parts[0]
    if module in sys.stdlib_module_names:
        return None
    if module == "?":
        return None if file in COMPUTED_PLACES else "may not import a computed name"
    if module not in FOREIGN:
        return f"may not import {module}, which is no dependency of the package"
    if not _matches(file, FOREIGN[module]):
        return f"may not import {module}, which only {', '.join(FOREIGN[module])} may"
    return None


def _closed_fault(file: str, parts: tuple[str, ...], layer: str) -> str | None:
    for folder, allowed in CLOSED.items():
        inside = f"{'/'.join(parts)}/".startswith(f"{folder}/")
        if file.startswith(f"{folder}/") and not inside and layer not in allowed:
            return f"{folder} imports only {', '.join(allowed)}"
    return None


def _internal_fault(file: str, parts: tuple[str, ...], root: Path) -> str | None:
    """What is wrong with importing `parts` of the package into `file`."""
    source = tuple(file.removesuffix(".py").split("/"))
    here, there = _layer(source, root), _layer(parts, root)
    if there not in RANK:
        return f"the folder {there} has no place in LAYERS"
    if here != there and RANK[there] == RANK[here]:
        return f"{here} may not import its sibling {there}"
    if RANK[there] > RANK[here]:
        return f"{here} may not import {there}, which is above it"
    mine, other = _target(source, root), _target(parts, root)
    if other not in (None, mine) and mine not in SHARED.get(other, ()) and file not in REGISTRIES:
        return f"{f'targets/{mine}' if mine else file} may not import targets/{other}"
    return _closed_fault(file, parts, there)


def _file_faults(path: Path, root: Path) -> Iterator[tuple[int, str]]:
    file = path.relative_to(root).as_posix()
    package = (PACKAGE, *path.relative_to(root).parts[:-1])
    layer = _layer(package[1:], root)
    if layer not in RANK:
        yield 1, f"the folder {layer} has no place in LAYERS"
        return
    tree = parsed(path)
    yield from _untyped_lazy_imports(tree, ".".join(package))
    for imported in _imports(tree, package):
        name, parts = imported.name, imported.parts
        if imported.late and not _matches(file, (*LATE_IMPORTS, *COMPUTED_PLACES)):
            yield imported.line, f"{name} is imported inside a function or by a call"
        if parts[0] == PACKAGE:
            fault = _internal_fault(file, parts[1:], root)
        else:
            fault = _foreign_fault(file, imported)
        if fault is not None:
            yield imported.line, f"{fault} ({name})"


def import_faults(root: Path) -> list[str]:
    """The faults of the package whose folder is `root`, as `file:line: fault`, in order."""
    return [
        f"{path.relative_to(root).as_posix()}:{line}: {fault}"
        for path in sorted(root.rglob("*.py"))
        for line, fault in _file_faults(path, root)
    ]


def test_package_keeps_the_layers() -> None:
    root = ROOT / PACKAGE
    assert any(root.rglob("*.py")), f"no package in {root}"
    faults = import_faults(root)
    assert not faults, "\n" + "\n".join(faults)


LAZILY = "if TYPE_CHECKING:\n    {}\nelse:\n    {} = lazy_import('{}')\n"
BY_NAME = (
    "if TYPE_CHECKING:\n    from tilewright.{0} import {1}\n"
    "else:\n    __getattr__ = lazy_names(__name__, {{{2}: ('core',)}})\n"
)
LOW = LAZILY.format("from tilewright.base import knobs", "knobs", "tilewright.base.{}")

# A small package with every kind of neighbour; the tests add one faulty file each.
SOUND = {
    "__init__.py": "from tilewright.runtime import jit\n",
    "base/knobs.py": "import os\n",
    "ir/__init__.py": "",
    "ir/core.py": "from tilewright.base import knobs\nfrom . import types\n",
    "ir/types.py": "import ml_dtypes\nimport numpy as np\n",
    "ir/interpret.py": "import numpy as np\n",
    "ops/arith.py": "import numpy as np\nfrom ..ir.core import Op\n",
    "language/core.py": "from tilewright import ops\n",
    "language/__init__.py": BY_NAME.format("language", "core", "__name__"),
    "language/extra.py": BY_NAME.format("language", "core", "'tilewright.language'"),
    "rewrites/arith.py": "import tilewright.ops.arith\n",
    "frontend/expr.py": "from tilewright.language import core\n",
    "passes/cse.py": "from tilewright.rewrites import arith\n",
    "lowering/emit.py": "import llvmlite.binding\n",
    "targets/registry.py": LAZILY.format(
        "from tilewright.targets.cpu import target", "target", "tilewright.targets.cpu.target"
    ),
    "base/lazy_import.py": "def load(name):\n    return import_module(name)\n",
    "base/digest.py": LAZILY.format("import hashlib", "hashlib", "hashlib"),
    "compiler/driver.py": LAZILY.format(
        "from tilewright.compiler import build as made", "made", "tilewright.compiler.build"
    ),
    "tools/perf_report.py": "pandas: Any = lazy_import('pandas')\n",
    "targets/protocol.py": "",
    "targets/cpu/__init__.py": "from tilewright.targets import protocol\nfrom . import emit\n",
    "targets/cpu/emit.py": "import llvmlite.binding as llvm\n",
    "targets/gpu/steps.py": "from ..protocol import Target\n",
    "targets/nvidia/__init__.py": "from ..protocol import Target\nfrom ..gpu import steps\n",
    "runtime/jit.py": "from .devices import cpu\n",
    "runtime/devices/cpu.py": "from tilewright.base import knobs\nfrom . import llvm\n",
    "runtime/devices/llvm.py": "import llvmlite\n",
    "interop/torch.py": "def late():\n    from tilewright.runtime import jit\n",
}


def _package(folder: Path, files: dict[str, str]) -> Path:
    root = folder / PACKAGE
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    return root


def test_sound_package_has_no_faults(tmp_path: Path) -> None:
    assert import_faults(_package(tmp_path, SOUND)) == []


PLANTED = {
    "upward": ("ir/bad.py", "from tilewright.ops import arith", "ir may not import ops"),
    "upward, relative": ("ir/bad.py", "from ..ops import arith", "ir may not import ops"),
    "upward, package first": ("ir/bad.py", "from tilewright import ops", "ir may not import ops"),
    "upward, relative package": ("ir/bad.py", "from .. import ops", "ir may not import ops"),
    "upward, plain": ("base/bad.py", "import tilewright.ir.core", "base may not import ir"),
    "upward, to the top": ("runtime/bad.py", "import tilewright", "may not import the package's"),
    "upward, in try": ("ir/bad.py", "try:\n import tilewright.ops\nfinally: ...", "import ops"),
    "sibling": ("rewrites/bad.py", "from tilewright.language import core", "its sibling language"),
    "inside a function": ("passes/bad.py", "def f():\n import json", "inside a function"),
    "inside a method": ("passes/bad.py", "class C:\n def f(self):\n  import json", "inside a fun"),
    "inside a coroutine": ("passes/bad.py", "async def f():\n import json", "inside a function"),
    "by a call": ("passes/bad.py", "import_module('tilewright.runtime')", "passes may not import"),
    "by __import__": ("passes/bad.py", "f = lambda: __import__('json')", "or by a call"),
    "lazily, upward": (
        "ir/bad.py",
        LAZILY.format("from tilewright.ops import arith", "arith", "tilewright.ops.arith"),
        "ir may not import ops",
    ),
    "lazily, untyped": ("ir/bad.py", "knobs = lazy_import('tilewright.base.knobs')", "its type"),
    "lazily, typed as another": ("ir/bad.py", LOW.format("locks"), "its type"),
    "lazily, Any": ("ir/bad.py", "knobs: Any = lazy_import('tilewright.base.knobs')", "its type"),
    "names, upward": ("ir/bad.py", BY_NAME.format("ops", "core", "'tilewright.ops'"), "ir may not"),
    "names, typed as others": (
        "ops/bad.py",
        BY_NAME.format("ir", "core", "'tilewright.base'"),
        "its type",
    ),
    "names, untyped": ("ops/bad.py", "f = lazy_names(__name__, {'math': ('pi',)})", "its type"),
    "by a computed name": ("passes/bad.py", "importlib.import_module(x)", "a computed name"),
    "late and upward": ("tools/bad.py", "def f():\n import tilewright", "may not import the pack"),
    "TYPE_CHECKING": (
        "ir/bad.py",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n from tilewright.ops import arith",
        "ir may not import ops",
    ),
    "numpy too low": ("base/bad.py", "import numpy", "may not import numpy"),
    "numpy elsewhere in ir": ("ir/bad.py", "from numpy import array", "may not import numpy"),
    "ml_dtypes too low": ("layout/bad.py", "import ml_dtypes", "may not import ml_dtypes"),
    "llvmlite in lowering": ("lowering/bad.py", "import llvmlite", "may not import llvmlite"),
    "llvmlite in a target": ("targets/cpu/bad.py", "import llvmlite", "may not import llvmlite"),
    "llvmlite below a target": ("targets/cpu/x/emit.py", "import llvmlite", "import llvmlite"),
    "llvmlite in another device": ("runtime/devices/cuda.py", "import llvmlite", "import llvmlite"),
    "torch": ("interop/bad.py", "def f():\n import torch", "may not import torch"),
    "jax": ("tools/bad.py", "import jax.numpy", "may not import jax"),
    "unknown package": ("tools/bad.py", "import requests", "may not import requests"),
    "another target": (
        "targets/cpu/bad.py",
        "from tilewright.targets.nvidia import target",
        "targets/cpu may not import targets/nvidia",
    ),
    "another target, package first": (
        "targets/cpu/bad.py",
        "from .. import nvidia",
        "targets/cpu may not import targets/nvidia",
    ),
    "what other targets share": (
        "targets/cpu/bad.py",
        "from ..gpu import steps",
        "targets/cpu may not import targets/gpu",
    ),
    "a target from what it shares": (
        "targets/gpu/bad.py",
        "from ..nvidia import emit",
        "targets/gpu may not import targets/nvidia",
    ),
    "a target from shared code": (
        "targets/bad.py",
        "from . import cpu",
        "targets/bad.py may not import targets/cpu",
    ),
    "device on the IR": (
        "runtime/devices/bad.py",
        "from tilewright.ir import core",
        "runtime/devices imports only base",
    ),
    "device on the runtime": (
        "runtime/devices/bad.py",
        "from .. import jit",
        "runtime/devices imports only base",
    ),
    "folder without a rank": ("utils/bad.py", "", "the folder utils has no place in LAYERS"),
}


@pytest.mark.parametrize("kind", PLANTED)
def test_planted_fault_is_found(kind: str, tmp_path: Path) -> None:
    file, text, message = PLANTED[kind]
    root = _package(tmp_path, {**SOUND, file: text + "\n"})
    faults = import_faults(root)
    assert faults, "not found"
    assert all(fault.startswith(f"{file}:") for fault in faults), faults
    assert any(message in fault for fault in faults), faults


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("def f():\n lazy_import('json').loads()", "inside a fun"),
        ("f = lazy_import(x)", "a computed"),
    ],
)
def test_lazy_import_in_another_form_is_found(text: str, message: str, tmp_path: Path) -> None:
    faults = import_faults(_package(tmp_path, {**SOUND, "passes/bad.py": text + "\n"}))
    assert any(message in fault for fault in faults), faults


def test_fault_names_the_line(tmp_path: Path) -> None:
    text = "import os\n\nfrom tilewright.ops import (\n    arith,\n)\n"
    root = _package(tmp_path, {**SOUND, "ir/bad.py": text})
    assert import_faults(root) == [
        "ir/bad.py:3: ir may not import ops, which is above it (tilewright.ops.arith)"
    ]
