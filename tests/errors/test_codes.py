"""Explanations of errors are looked up by error code, and each code has a golden case."""

from importlib import import_module
from typing import get_args

import pytest

from tests.errors.cases import error_of, files, read
from tilewright.base.codes import Code, coded, mark_of
from tilewright.frontend.ast_to_ir.explain import RULES

CODES = get_args(Code)


@pytest.fixture(scope="module")
def helped() -> set[str]:
    """The codes of the kernels' errors that come with a line `help:`."""
    found: set[str] = set()
    for path in files():
        for case in read(path).cases:
            error = error_of(case.source) if case.kind == "kernels" else None
            mark = mark_of(error)
            if error is not None and mark is not None and "\nhelp: " in str(error):
                found.add(mark.code)
    return found


def test_every_code_has_a_rule_and_every_rule_a_code() -> None:
    import_module("tilewright.frontend.ast_to_ir.advice")  # registers the rules
    assert set(RULES) == set(CODES)


def test_every_code_has_a_case_with_help(helped: set[str]) -> None:
    assert helped == set(CODES)


def test_nothing_depends_on_the_text_of_an_error() -> None:
    error = coded("power-of-two", ValueError("anything"))
    assert mark_of(error) == ("power-of-two", {})
    assert mark_of(ValueError("arange's range must be a power of 2")) is None
