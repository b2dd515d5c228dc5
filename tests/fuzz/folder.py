"""Launches every kernel below a folder with random arguments, interpreted and on the CPU.

    python -m tests.fuzz.folder site-packages/some_library --launches=3 --seed=1

Kernels need not be known: which parameters are addresses is read from the source, and the other
arguments are guessed by name, again and again. The interpreter, which checks each access and each
type, decides which launches are valid; those are repeated on the CPU. Any library of kernels for
Triton can be tested so, without its launch code. What it needs must be installed.

A launch has one program, since several may store to the same element. Results may differ without
a fault where a program stores different values to one element, or rounding decides on an integer.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import inspect
import random
import re
import sys
import textwrap
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

import tilewright
from tilewright import language as tl
from tilewright.base.diagnostics import InternalCompilerError, TritonError
from tilewright.runtime.jit import InterpretedFunction, JITFunction

ELEMENTS = 1 << 16
ACCESSES = ("load", "store", "make_block_ptr", "make_tensor_descriptor")
OF_POINTERS = ("to", "cast", "multiple_of", "max_contiguous", "advance")
TOLERANCE = {"float16": 2e-2, "float32": 1e-4, "float64": 1e-10}

INDICES = re.compile(r"idx|ind|ids|len|seq|table|loc|off|cu_|slot|map|num|page|pos|start|end", re.I)
CONSTANTS: tuple[tuple[str, tuple[Any, ...]], ...] = (
    (r"dtype|type", (tl.float32, tl.float16)),
    (r"^(is|has|use|enable|do|apply|even|store|with)_|causal", (True, False)),
    (r"block|tile|chunk|^b[a-z]$", (8, 16, 16, 32, 64)),
    (r"dim|size|hidden|^[dkv]$", (16, 32, 64)),
    (r"eps|scale|alpha|beta", (0.5, 1e-5, 1.0)),
    (r"", (1, 2, 4, 8, 16)),
)
SCALARS: tuple[tuple[str, tuple[Any, ...]], ...] = (
    (r"stride", (0, 1, 1, 16, 64, 65, 256)),
    (r"eps|scale|alpha|beta|gamma|prob|momentum|lr|decay", (0.5, 1e-5, 1.25)),
    (r"", (0, 1, 2, 3, 7, 8, 16, 17, 33, 48, 64, 100)),
)
"""By patterns of lower-case names, of which the first that matches counts: possible values."""


class Outcome(NamedTuple):
    """The outcome of one guess: "same", "different", "failed" on the CPU, or "invalid"."""

    name: str
    text: str = ""


def kernels_of(module: ModuleType) -> dict[str, JITFunction]:
    """The kernels that a module defines, by name, also those with an autotuner."""
    found: dict[str, JITFunction] = {}
    for name, value in list(vars(module).items()):
        fn: Any = value
        while not isinstance(fn, JITFunction) and type(fn).__module__.startswith("tilewright."):
            fn = getattr(fn, "fn", None)
        if isinstance(fn, JITFunction) and fn.fn.__module__ == module.__name__ and addresses(fn):
            found[name] = fn
    return found


def addresses(fn: JITFunction) -> set[str]:
    """The parameters from which the addresses of loads and stores are computed."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(fn.fn)))
    names: set[str] = set()
    before = -1
    while len(names) > before:
        before = len(names)
        for node in ast.walk(tree):
            names.update(name for e in _address_expressions(node, names) if (name := _base(e)))
    return names & set(fn.arg_names)


def _address_expressions(node: ast.AST, names: set[str]) -> Iterator[ast.expr]:
    """Expressions of a node that are addresses, given names of variables that are."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        if node.args and (node.func.attr in ACCESSES or node.func.attr.startswith("atomic_")):
            yield node.args[0]
    elif isinstance(node, ast.Assign) and any(
        isinstance(t, ast.Name) and t.id in names for t in node.targets
    ):
        yield node.value


def _base(e: ast.expr) -> str | None:
    """The leftmost name of a sum."""
    while not isinstance(e, ast.Name):
        match e:
            case ast.BinOp(left=left):
                e = left
            case ast.Subscript(value=value):
                e = value
            case ast.Call(func=ast.Attribute(value=value, attr=name), args=[*args]) if (
                name in OF_POINTERS
            ):
                e = value if name in ("to", "cast") or not args else args[0]
            case _:
                return None
    return e.id


def guess(fn: JITFunction, rng: random.Random) -> dict[str, Any]:
    """Random arguments of a kernel, by name."""
    pointers = addresses(fn)
    element = rng.choice((np.float32, np.float32, np.float16))
    arguments: dict[str, Any] = {}
    for p in fn.params:
        if p.name in pointers and not p.is_constexpr:
            arguments[p.name] = _array(p.name, element, rng)
        elif p.has_default and rng.random() < 0.5:
            arguments[p.name] = p.default
        else:
            table = CONSTANTS if p.is_constexpr else SCALARS
            values = next(v for pattern, v in table if re.search(pattern, p.name.lower()))
            arguments[p.name] = rng.choice(values)
    return arguments


def _array(name: str, element: Any, rng: random.Random) -> np.ndarray[Any, Any]:
    numbers = np.random.default_rng(rng.randrange(1 << 30))
    if INDICES.search(name) and rng.random() < 0.8:
        kind = rng.choice((np.int32, np.int64))
        if rng.random() < 0.5:
            return np.minimum(np.arange(ELEMENTS), 64).astype(kind)
        return numbers.integers(0, 8, ELEMENTS).astype(kind)
    if rng.random() < 0.1:
        return numbers.integers(-100, 100, ELEMENTS).astype(np.int8)
    return numbers.standard_normal(ELEMENTS).astype(element)


def compare(fn: JITFunction, arguments: dict[str, Any]) -> Outcome:
    """Launch a kernel in the interpreter and on the CPU, on copies of the arguments."""
    wanted, found = (
        {n: v.copy() if isinstance(v, np.ndarray) else v for n, v in arguments.items()}
        for _ in range(2)
    )
    try:
        InterpretedFunction(fn.fn)[(1,)](**wanted)
    except InternalCompilerError as error:
        return Outcome("failed", str(error))
    except (TritonError, ArithmeticError, AssertionError, TypeError, ValueError) as error:
        return Outcome("invalid", str(error))
    try:
        fn[(1,)](**found)
    except Exception as error:
        return Outcome("failed", f"{type(error).__name__}: {error}")
    arrays = [n for n, v in arguments.items() if isinstance(v, np.ndarray)]
    limits = [TOLERANCE.get(arguments[n].dtype.name, 0.0) for n in arrays]
    for name in arrays:
        different = differences(wanted[name], found[name], max(limits))
        if different:
            return Outcome("different", f"`{name}` at {different}")
    return Outcome("same")


def differences(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any], limit: float) -> list[int]:
    """The first indices at which arrays differ; floats by more than `limit` of the largest."""
    if a.tobytes() == b.tobytes():
        return []
    if a.dtype.kind != "f":
        return np.flatnonzero(a != b)[:4].tolist()
    x, y = a.astype(np.float64), b.astype(np.float64)
    scale = max(np.abs(x[np.isfinite(x)]).max(initial=0.0), 1e-30)
    return np.flatnonzero(~np.isclose(x, y, rtol=0, atol=limit * scale, equal_nan=True))[
        :4
    ].tolist()


def modules_below(folder: Path) -> Iterator[ModuleType | str]:
    """The modules of a package that define kernels; a text for each that cannot be imported."""
    sys.path.insert(0, str(folder.parent))
    for path in sorted(folder.rglob("*.py")):
        if "triton.jit" in path.read_text(errors="replace"):
            name = ".".join(path.relative_to(folder.parent).with_suffix("").parts)
            try:
                yield importlib.import_module(name.removesuffix(".__init__"))
            except Exception as error:
                yield f"{name}: not imported: {error}"


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.folder")
    parser.add_argument("folder", type=Path, help="a package")
    parser.add_argument("--launches", type=int, default=2, help="valid launches of each kernel")
    parser.add_argument("--guesses", type=int, default=20, help="guesses for each kernel")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    tilewright.install_as_triton()
    counts: Counter[str] = Counter()
    for module in modules_below(options.folder.resolve()):
        if isinstance(module, str):
            print(module)
            continue
        for name, fn in kernels_of(module).items():
            rng = random.Random(f"{options.seed} {name}")
            valid = 0
            for number in range(options.guesses):
                outcome = compare(fn, guess(fn, rng))
                counts[outcome.name] += 1
                valid += outcome.name == "same"
                if outcome.name in ("different", "failed"):
                    print(f"{module.__name__}.{name}, guess {number}: {outcome.name}")
                    print(textwrap.indent(outcome.text, "    "))
                if valid == options.launches:
                    break
            counts["kernels without a valid launch"] += valid == 0
    print(", ".join(f"{name}: {n}" for name, n in sorted(counts.items())))
    return 1 if counts["different"] or counts["failed"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
