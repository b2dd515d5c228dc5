"""Every error has the text of its case, and `docs/errors.md` shows these."""

from pathlib import Path

import pytest

from tests.docs import errors as page
from tests.errors.cases import Case, Cases, error_of, files, read, shown, text_of, write

CASES = [pytest.param(p, c, id=f"{p.stem}: {c.name}") for p in files() for c in read(p).cases]


@pytest.mark.parametrize(("path", "case"), CASES)
def test_text(path: Path, case: Case, pytestconfig: pytest.Config) -> None:
    text = text_of(case)
    assert text != "no error", "nothing is wrong with it"
    if pytestconfig.getoption("--bless"):
        intro, cases = read(path)
        write(path, Cases(intro, [c._replace(text=text) if c == case else c for c in cases]))
    else:
        assert text == case.text, "--bless writes the present text; read it"


def test_page_is_not_stale() -> None:
    assert page.PAGE.read_text("utf-8") == page.made(), "run python -m tests.docs.errors"


def test_a_file_round_trips(tmp_path: Path) -> None:
    for path in files():
        write(tmp_path / path.name, read(path))
        assert (tmp_path / path.name).read_text("utf-8") == path.read_text("utf-8")
    assert len({c.source for p in files() for c in read(p).cases}) == len(CASES)


def test_a_kernel_without_an_error_is_rejected_as_a_case() -> None:
    assert error_of("@triton.jit\ndef kernel(n):\n    n + 1\n") is None
    assert shown(None) == "no error"
    assert text_of(Case("programs", "", "1 + 1", "")) == "no error"
    assert text_of(Case("programs", "", "$ python -m tilewright run --path", "")) == "no error"
