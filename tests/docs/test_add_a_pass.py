"""The pass and the rewrite rule that docs/add-a-pass.md adds behave as described."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from tests.fuzz import test_passes as fuzz
from tests.ir_files import read_cases, run_case
from tests.ir_values import same_meaning
from tilewright.compiler import pipeline
from tilewright.ir.core import Module
from tilewright.ir.parser import parse_module
from tilewright.ir.passes import PASSES, PassContext, Step, find_pass, run
from tilewright.ir.rewriter import RULES
from tilewright.ops.shape import Flip
from tilewright.rewrites import shape as shape_rules

PAGE = Path(__file__).parents[2] / "docs" / "add-a-pass.md"


def blocks() -> dict[str, str]:
    """The blocks of the page by the file that the line before names."""
    block = re.compile(r"`([\w/.]+)`:\n\n```\w*\n(.*?)^```", re.DOTALL | re.MULTILINE)
    return dict(block.findall(PAGE.read_text("utf-8")))


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """The blocks, with the pass of the page registered as if its file were there."""
    found = blocks()
    if "fold_flips" in PASSES:
        pytest.skip("someone follows the page: its pass is in the tree")
    module = ModuleType("tilewright.passes.fold_flips")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(found["tilewright/passes/fold_flips.py"], vars(module))
    yield found
    del PASSES["fold_flips"]


def flips(module: Module) -> int:
    return sum(isinstance(op, Flip) for op in module.walk())


def test_cases_of_the_page(page: dict[str, str], tmp_path: Path) -> None:
    """As described: `unchanged` fails for the case that changes, until --bless writes it."""
    file = tmp_path / "fold_flips.ir"
    file.write_text(page["tests/passes/fold_flips.ir"])
    head, cases = read_cases(file.read_text())
    assert [case.name for case in cases] == ["max_of_flip", "sum_of_flip"]
    with pytest.raises(Exception, match=r"(?s)expected.*actual"):
        run_case(head, cases[0], str(file))
    for case in cases:
        run_case(head, case, str(file), bless=True)
    _, blessed = read_cases(file.read_text())
    assert [case.expected is None for case in blessed] == [False, True]
    for case in blessed:
        run_case(head, case, str(file))


def test_pass_in_the_pipeline(page: dict[str, str]) -> None:
    """Where the page puts it, followed by dce: the flip is gone, and the result is the same."""
    line = page["tilewright/compiler/pipeline.py"].strip()
    assert line == "Step(fold_flips),"
    steps = [*pipeline.STEPS[:-1], Step(find_pass("fold_flips")), pipeline.STEPS[-1]]
    for case in read_cases(page["tests/passes/fold_flips.ir"])[1]:
        before = parse_module(case.text)
        after = before.clone()
        run(after, steps, PassContext())
        assert flips(after) == (case.name == "sum_of_flip")
        assert not same_meaning(before, after)


@pytest.mark.usefixtures("page")
def test_fuzz_test_of_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuzz, "TILE_PASSES", [*fuzz.TILE_PASSES, "fold_flips"])
    for seed in range(5):
        fuzz.test_passes_in_random_order_preserve_semantics(seed)
        fuzz.test_pass_that_reports_no_change_changed_nothing(seed)
        fuzz.test_passes_are_idempotent(seed)


def test_rewrite_of_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(RULES, Flip, list(RULES[Flip]))
    exec(blocks()["tilewright/rewrites/shape.py"], dict(vars(shape_rules)))
    module = parse_module(
        "func @f(%x: 4xi32) -> 1x4xi32 {\n"
        "  %e = tile.expand_dims %x, axis=0 : 4xi32 -> 1x4xi32\n"
        "  %f = tile.flip %e, axis=0 : 1x4xi32 -> 1x4xi32\n"
        "  control.return [%f] : 1x4xi32 -> ()\n}\n"
    )
    before = module.clone()
    run(module, [Step(find_pass("canonicalize"))], PassContext())
    assert (flips(before), flips(module)) == (1, 0)
    assert not same_meaning(before, module)


def test_files_that_the_page_names_exist() -> None:
    named = re.findall(r"(?:tests|tilewright|examples)/[\w/]+\.\w+", PAGE.read_text("utf-8"))
    files = {path for path in named if "fold_flips" not in path}
    assert len(files) > 5
    assert [path for path in sorted(files) if not (PAGE.parents[1] / path).exists()] == []
