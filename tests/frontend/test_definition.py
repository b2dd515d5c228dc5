"""The lines of definitions are those that Python's tokenizer finds."""

import gzip
import inspect
import linecache
import textwrap
import types
import typing
from typing import Any

import numpy as np
import pytest

from tests.frontend.kernels import launch
from tilewright.frontend.definition import definition_of
from tilewright.frontend.source import SourceFunction

SOURCE = '''\
def decorated(fn, *_):
    return fn


def plain(x):
    y = x

    # a comment
    return y


def in_one_line(x): return x
def after_it(x): return x


@(lambda fn: decorated(
    fn, "text"
))
@decorated
def with_decorators(
    x,
    y=(
        1,
),
) -> int:
    return x
# a comment behind it


def with_comments(x):
# at the margin
    return x
    # behind the last statement

# behind the function

def with_text(x):
    text = """
first
def other(x):
    second
"""
    return text


def with_text_last(x):
    """
# third"""


def with_brackets(x):
    return (x +
(1)
+ 2)


def with_continuation(x):
    return x + \\
1


if True:
    def nested(x):
        def inner(y):
            return y
        return inner(x)
    other = 1


class Holder:
    def method(self):
        return self

    @staticmethod
    def last():
        return 1
method = Holder.method
last = Holder.last


def end(x):
    return x'''


@pytest.fixture(scope="module")
def scope() -> dict[str, Any]:
    file, names = "<definitions>", {"__name__": __name__}
    lines = [str(line) for line in SOURCE.splitlines(keepends=True)]
    linecache.cache[file] = len(SOURCE), None, lines, file
    exec(compile(SOURCE, file, "exec"), names)
    return names


def _functions(names: dict[str, Any]) -> list[types.FunctionType]:
    return [x for x in names.values() if inspect.isfunction(x) and x.__name__ != "<lambda>"]


def test_definitions_end_where_the_tokenizer_ends_them(scope: dict[str, Any]) -> None:
    found = {fn.__name__: definition_of(fn) for fn in _functions(scope)}
    assert len(found) == 14
    for fn in _functions(scope):
        lines, first = inspect.getsourcelines(fn)
        assert (found[fn.__name__].lines, found[fn.__name__].first) == (lines, first)


def test_only_unusual_definitions_need_the_tokenizer(
    scope: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    needed: list[str] = []
    block = inspect.getblock

    def recorded(lines: Any) -> Any:
        needed.append(lines[0].split("(")[0])
        return block(lines)

    monkeypatch.setattr(inspect, "getblock", recorded)
    for fn in _functions(scope):
        definition_of(fn)
    unusual = ["with_text", "with_text_last", "with_brackets", "with_continuation"]
    assert needed == [f"def {name}" for name in unusual]


@pytest.mark.parametrize("module", [gzip, inspect, textwrap, typing])
def test_definitions_of_the_standard_library(module: types.ModuleType) -> None:
    functions = [f for f in _functions(vars(module)) if f.__module__ == module.__name__]
    assert functions
    for fn in functions:
        assert definition_of(fn)[:2] == inspect.getsourcelines(inspect.unwrap(fn)), fn


NESTED = '''\
import tilewright.language as tl


def factory():
    def kernel(
  x,
    ):
        """Text
at the margin, {}

        """
#       a comment
        tl.store(x, tl.load(x) +
1)
    return kernel
'''


def test_lines_of_a_nested_definition_may_be_indented_less_than_it() -> None:
    file = "<nested>"
    names: dict[str, Any] = {"__name__": __name__}
    lines = [str(line) for line in NESTED.splitlines(keepends=True)]
    linecache.cache[file] = len(NESTED), None, lines, file
    exec(compile(NESTED, file, "exec"), names)
    kernel = SourceFunction(names["factory"]())
    x = np.full(1, 4, np.int32)
    launch(kernel, x)
    assert x[0] == 5
    assert kernel.src.splitlines()[3:5] == ['    """Text', "at the margin, {}"]
