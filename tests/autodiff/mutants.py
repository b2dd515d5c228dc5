"""Mutants of the proofs: each lacks one condition, and a witness must notice.

    python -m tests.autodiff.mutants                    # all; prints those that no witness notices
    python -m tests.autodiff.mutants distinct regrid    # of some modules
    python -m tests.autodiff.mutants --part 2/8         # an eighth of them

A proof of `autodiff/` is a chain of conditions: guards that raise or return early, and predicates
whose parts must all hold. They are found in the source, and a mutant is the function's code without
one of them. A witness is a kernel whose gradients are compared with differences (or that must be
rejected): it passes with the code as it is, and fails with a mutant that loses a condition which
the kernel needs. The order of witnesses is that of the last success, so that most mutants run few.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import signal
import sys
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib import import_module
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import Any, NamedTuple

from tests.autodiff.witnesses import Witnesses, all_witnesses

MODULES = (
    "arrays", "chains", "coarsen", "coordinates", "distinct", "emitter", "equivariance",
    "in_place", "joined_loops", "loops", "points", "regrid", "regridded", "reloads", "replay",
    "residuals", "reverse", "running_maxima", "saved", "softmax_results", "wraps",
)  # fmt: skip
DANGERS = frozenset([
    "_is_at_times", "_changes_in", "_depends_on_loop", "_moves", "_flows_through", "is_costly",
    "_is_within",
])  # fmt: skip
"""The predicates that must not miss anything: a mutant of them holds less often, not more."""
SECONDS = 10  # of the processor that a witness may take with a mutant: some loop forever


@dataclass(frozen=True)
class Mutant:
    """A function without one condition.

    Attributes:
        name: the module, the function, and the condition.
        function: the function.
        code: its code without the condition.
    """

    name: str
    function: FunctionType
    code: CodeType

    def put_in_place(self) -> CodeType:
        """Give the function this code; returns the one it had."""
        before = self.function.__code__
        setattr(self.function, "__code__", self.code)  # noqa: B010 - it has no typed setter
        return before


def mutants(module: str) -> Iterator[Mutant]:
    """All mutants of a module of `autodiff/`."""
    loaded = import_module(f"tilewright.autodiff.{module}")
    source = inspect.getsource(loaded)
    seen: dict[str, int] = {}
    for number, (path, text) in enumerate(_conditions(ast.parse(source))):
        tree = ast.parse(source)
        _drop(tree, number)
        name = f"{module}.{path}: {text}"
        seen[name] = seen.get(name, 0) + 1
        if seen[name] > 1:
            name += f" ({seen[name]})"
        function = _function(loaded, path)
        code = _code(compile(ast.fix_missing_locations(tree), loaded.__file__ or "", "exec"), path)
        yield Mutant(name, function, code)


@contextmanager
def mutated(mutant: Mutant) -> Generator[None]:
    """The function is its mutant."""
    before = mutant.put_in_place()
    try:
        yield
    finally:
        replace(mutant, code=before).put_in_place()


# -- conditions -----------------------------------------------------------------------------------


class _Site(NamedTuple):
    """A condition in a tree: what holds it, and how it is dropped."""

    path: str
    text: str
    drop: Callable[[], None]


def _conditions(tree: ast.Module) -> Iterator[tuple[str, str]]:
    for site in _sites(tree):
        yield site.path, site.text


def _drop(tree: ast.Module, number: int) -> None:
    """Drop a condition, by its place among all."""
    list(_sites(tree))[number].drop()


def _sites(tree: ast.Module) -> Iterator[_Site]:
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            yield from _sites_of(node, node.name)
        elif isinstance(node, ast.ClassDef):
            for method in node.body:
                if isinstance(method, ast.FunctionDef):
                    yield from _sites_of(method, f"{node.name}.{method.name}")


def _sites_of(function: ast.FunctionDef, path: str) -> Iterator[_Site]:
    for node in ast.walk(function):
        if isinstance(node, ast.If) and _is_guard(node, careful=function.name in DANGERS):
            yield from _of_guard(node, path)
        elif isinstance(node, ast.FunctionDef) and _returns_bool(node):
            yield from _of_predicate(node, path)


def _is_guard(node: ast.If, careful: bool) -> bool:
    """Whether a statement ends the function, or an iteration, and does nothing else.

    Args:
        careful: the answer of a predicate that is on the safe side; the other one is no guard.
    """
    (first, *others) = node.body
    if others or node.orelse:
        return False
    if isinstance(first, ast.Return):
        value = first.value
        if isinstance(value, ast.Constant) and isinstance(value.value, bool):
            return value.value is careful
        return value is None or isinstance(value, ast.Constant | ast.List | ast.Tuple | ast.Name)
    return isinstance(first, ast.Raise | ast.Continue)


def _of_guard(node: ast.If, path: str) -> Iterator[_Site]:
    def replaced(test: ast.expr) -> Callable[[], None]:
        def drop() -> None:
            node.test = test

        return drop

    what = ast.unparse(node.body[0]).partition("(")[0]
    tests = _alternatives(node.test)
    for test in tests:
        others = [other for other in tests if other is not test]
        yield _Site(path, f"if {ast.unparse(test)}: {what}", replaced(_joined(ast.Or(), others)))
    if not tests:
        yield _Site(path, f"if {ast.unparse(node.test)}: {what}", replaced(ast.Constant(False)))


def _of_predicate(node: ast.FunctionDef, path: str) -> Iterator[_Site]:
    """Each part of what a predicate returns, taken for granted."""
    granted = node.name not in DANGERS
    for inner in ast.walk(node):
        if not isinstance(inner, ast.Return) or inner.value is None:
            continue
        if isinstance(inner.value, ast.Constant):
            continue
        yield from _of_value(inner, granted, path)


def _of_value(node: ast.Return, granted: bool, path: str) -> Iterator[_Site]:
    def replaced(value: ast.expr) -> Callable[[], None]:
        def drop() -> None:
            node.value = value

        return drop

    value = node.value
    assert value is not None
    joins = isinstance(value, ast.BoolOp) and isinstance(value.op, ast.And) == granted
    parts = value.values if joins and isinstance(value, ast.BoolOp) else []
    for part in parts:
        assert isinstance(value, ast.BoolOp)
        others = [other for other in parts if other is not part]
        yield _Site(path, ast.unparse(part), replaced(_joined(value.op, others)))
    if not parts:
        yield _Site(path, ast.unparse(value), replaced(ast.Constant(granted)))


def _alternatives(test: ast.expr) -> list[ast.expr]:
    """The operands of `or`."""
    return test.values if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.Or) else []


def _joined(op: ast.boolop, values: list[ast.expr]) -> ast.expr:
    return ast.BoolOp(op, values) if len(values) > 1 else values[0]


def _returns_bool(node: ast.FunctionDef) -> bool:
    return isinstance(node.returns, ast.Name) and node.returns.id == "bool"


def _function(module: ModuleType, path: str) -> FunctionType:
    place: Any = module
    for name in path.split("."):
        place = inspect.getattr_static(place, name)
    if isinstance(place, property):
        place = place.fget
    place = inspect.unwrap(getattr(place, "__func__", place))
    assert isinstance(place, FunctionType)
    return place


def _code(module: CodeType, path: str) -> CodeType:
    """The code of a function of a compiled module."""
    code = module
    for name in path.split("."):
        code = next(c for c in code.co_consts if isinstance(c, CodeType) and c.co_name == name)
    return code


# -- witnesses ------------------------------------------------------------------------------------


class _TooLong(BaseException):
    pass


def notices(witness: Callable[[], object]) -> bool:
    """Whether a witness fails, or takes too long."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise _TooLong

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        witness()
    except (Exception, _TooLong):
        return True
    except BaseException as error:  # pytest's failures are not exceptions
        if type(error).__name__ == "Failed":
            return True
        raise
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
    return False


def first_to_notice(mutant: Mutant, order: list[str], known: Witnesses) -> str | None:
    """The name of a witness that notices a mutant, which becomes the first of the order."""
    with mutated(mutant):
        found = next((name for name in order if notices(known[name])), None)
    if found is not None:
        order.remove(found)
        order.insert(0, found)
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="drops each condition of the proofs")
    parser.add_argument("modules", nargs="*", default=list(MODULES))
    parser.add_argument("--part", default="1/1", help="which part of the mutants, as 2/8")
    parser.add_argument("--seeds", type=int, default=0, help="random kernels of each kind as well")
    given = parser.parse_args(arguments)
    part, parts = map(int, given.part.split("/"))
    known = all_witnesses(given.seeds)
    order = [name for name, witness in known.items() if not notices(witness)]
    for name in known.keys() - set(order):
        print(f"FAILS without a mutant: {name}")
    every = [mutant for module in given.modules for mutant in mutants(module)]
    survivors = 0
    for mutant in every[part - 1 :: parts]:
        found = first_to_notice(mutant, order, known)
        survivors += found is None
        print(f"{'SURVIVES' if found is None else 'noticed'}  {mutant.name}  [{found}]", flush=True)
    print(f"{survivors} of {len(every[part - 1 :: parts])} survive")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
