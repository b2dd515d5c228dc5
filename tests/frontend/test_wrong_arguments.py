"""Every function of `tl` rejects wrong arguments of any kind with an error message of its own.

Each parameter of each function gets, in turn, values of every wrong kind: another rank, another
element type, a pointer, a run-time value where one known at compile time is needed, a compile-time
value where a tensor is. The function may accept it; if it does not, the text must be one that was
written for users: none of Python's own, no failed assertion without words, no fault in the IR.
"""

import inspect
import re
import warnings
from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest

import tilewright.language as tl
from tests.covering import covering
from tests.frontend.kernels import build, kernel_from
from tilewright.base.diagnostics import CompilationError, CompileTimeAssertionFailure, IRError
from tilewright.frontend.source import JITCallable
from tilewright.language.values import is_builtin

HEAD = """
def kernel(p, n):
    x = tl.arange(0, 4)
    h = tl.zeros((4,), tl.float16)
    xx = tl.zeros((4, 8), tl.float32)
"""
GOOD = ("x", "h", "xx", "n", "p")
WRONG = ("p", "n", "h", "xx", "None", "'a'", "(1, 2)", "tl.float32", "99", "-99", "1.5", "p + x")
HIDDEN = ("_semantic", "_generator")

OF_PYTHON = re.compile(
    r"has no attribute|not supported between|unsupported operand type|object is not|has no len"
    r"|cannot be interpreted|slice indices|missing \d+ required positional|Did you forget to add"
    r"|not subscriptable|unhashable|expected str|list index|tuple index|invalid literal|^\W*$"
)
RAW = (AttributeError, KeyError, IndexError, UnboundLocalError, RecursionError, IRError)


def _parameters(function: Any) -> list[inspect.Parameter]:
    function = function.fn if isinstance(function, JITCallable) else function
    found = inspect.signature(function).parameters.values()
    return [p for p in found if p.name not in HIDDEN]


def _functions() -> list[str]:
    public = ((name, getattr(tl, name)) for name in sorted(tl.__all__))
    return [n for n, f in public if is_builtin(f) or isinstance(f, JITCallable)]


def _calls(name: str) -> Iterator[str]:
    params = _parameters(getattr(tl, name))
    variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    needed = [p for p in params if p.default is p.empty and p.kind not in variadic]
    count = max(len(needed), 1)
    places = range(len(params))
    # Most functions take tiles of integers.
    combined = [(GOOD[0], at, wrong) for at, wrong in product(places, WRONG)]
    combined += covering(GOOD[1:], places, WRONG) if params else []
    for good, at, wrong in combined:
        args = [good] * count
        if at < count:
            args[at] = wrong
        elif params[at].kind not in variadic:
            args.append(f"{params[at].name}={wrong}")
        yield f"tl.{name}({', '.join(args)})"


def _fault(call: str) -> str | None:
    """What is wrong with the error of a call; None if the call is accepted or rejected well."""
    kernel = kernel_from(f"{HEAD}    _ = {call}\n")
    try:
        build(kernel, {"p": "*fp32", "n": "i32"})
    except CompilationError as error:
        cause = _root(error)
        if isinstance(cause, CompileTimeAssertionFailure):  # may have no message
            return None
        text = cause.error_message or "" if isinstance(cause, CompilationError) else str(cause)
        return text or "no words" if isinstance(cause, RAW) or OF_PYTHON.search(text) else None
    return None


def _root(error: BaseException) -> BaseException:
    return error if error.__cause__ is None else _root(error.__cause__)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", _functions())
def test_wrong_arguments_have_a_clear_error(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = {call: _fault(call) for call in dict.fromkeys(_calls(name))}
    faults = [f"{call}: {fault}" for call, fault in found.items() if fault is not None]
    assert not faults, "\n" + "\n".join(faults[:20])
