"""The arguments of `python -m tilewright conformance`."""

from __future__ import annotations

import pytest

from tilewright.tools import cli
from tilewright.tools.conformance import levels_of, part_of


def test_levels_are_ranges_and_lists() -> None:
    assert levels_of("0-2,r") == ["0", "1", "2", "R"]
    assert levels_of("4") == ["4"]


def test_parts_are_counted_from_one() -> None:
    assert part_of("1/4") == (0, 4)
    assert part_of("4/4") == (3, 4)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--target", "cpu", "--level", "7"], "the levels are 0, 1, 2, 3, 4, 5, R, F, and ranges"),
        (["--target", "cpu", "--part", "5/4"], "--part is K/N with K from 1 to N, not '5/4'"),
        (["--target", "tpu"], "there is no target 'tpu'; there are cpu, cuda, hip, interpreter"),
        (["--target", "cpu", "--device", "tpu:0"], "no driver for devices of type 'tpu'"),
    ],
)
def test_wrong_arguments(args: list[str], message: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["conformance", "--only", "1/grid/1", *args]) == 2
    assert message in capfd.readouterr().err
