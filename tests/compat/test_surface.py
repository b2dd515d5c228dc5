"""Each public name of Triton 3.7 is supported, or the table states how it differs."""

import subprocess
import sys

import pytest

from tests.compat.surface import ABSENT, DIFFERS, PAGE, facts, takes


@pytest.fixture(scope="module")
def rendered() -> str:
    """The page as it is today; in a process of its own, as `triton` is installed there."""
    code = "from tests.compat.surface import render; print(render(), end='')"
    command = [sys.executable, "-W", "error", "-c", code]
    return subprocess.run(
        command, cwd=PAGE.parents[1], check=True, capture_output=True, text=True
    ).stdout


def test_table_is_up_to_date(rendered: str) -> None:
    stale = PAGE.read_text("utf-8") != rendered
    assert not stale, "docs/triton-names.md is stale: run `python -m tests.compat.surface`"


def test_every_note_belongs_to_a_name_that_needs_it(rendered: str) -> None:
    names = {f"{module}.{name}" for module, table in facts().items() for name in table}
    assert DIFFERS.keys() <= names
    for reason in {*DIFFERS.values(), *ABSENT.values()}:
        assert f": {reason} |" in rendered


def test_the_language_is_whole(rendered: str) -> None:
    section = rendered.split("## `triton.language`")[1].split("\n## ")[0]
    assert "absent" not in section
    assert "differs: takes" not in section


def test_differing_parameters_are_found() -> None:
    def function(x: int, axis: int = 0) -> None: ...

    assert takes(function, "(x)", method=False)
    assert takes(function, "(x, axis=0)", method=False)
    assert takes(function, "(axis=0)", method=True)
    assert not takes(function, "(input, axis=0)", method=False)
    assert not takes(function, "(x, axis=0, keep_dims=False)", method=False)
