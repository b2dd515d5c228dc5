"""`docs/ops/` is up to date, and the worked example of `docs/add-an-op.md` works."""

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tilewright_triton.ttir import arith as ttir_arith
from tilewright_triton.ttir.writer import EMITTERS as TTIR_EMITTERS

import tilewright.language as tl
from tests.frontend.kernels import kernel_from, launch
from tests.ops import harness
from tests.ops.completeness import missing_facets
from tests.ops.ir_cases import fault_of, read_cases
from tilewright.autodiff import registry as derivatives
from tilewright.autodiff import rules_arith
from tilewright.compiler.python_source import FUNCTIONS
from tilewright.ir.define import REGISTRY
from tilewright.language import math
from tilewright.language.semantic import arith as semantic_arith
from tilewright.lowering import arith as lowering
from tilewright.lowering.registry import LOWERINGS
from tilewright.ops import arith
from tilewright.tools.docs_ops import main, pages, stale_pages, write_pages

GUIDE = Path(__file__).parents[2] / "docs" / "add-an-op.md"


def test_pages_are_not_stale() -> None:
    assert stale_pages() == [], "run python -m tilewright.tools.docs_ops"


def test_pages_name_every_op() -> None:
    text = "\n".join(pages().values())
    assert [name for name in REGISTRY if f"## `{name}`" not in text] == []


def test_stale_pages_are_found_and_written(tmp_path: Path) -> None:
    assert write_pages(tmp_path) == sorted(pages())
    assert stale_pages(tmp_path) == []
    page = tmp_path / "arith.md"
    page.write_text(page.read_text() + "More.\n")
    (tmp_path / "gone.md").write_text("# gone\n")
    (tmp_path / "dot.md").unlink()
    assert stale_pages(tmp_path) == ["arith.md", "dot.md", "gone.md"]
    assert write_pages(tmp_path) == ["arith.md", "dot.md", "gone.md"]
    assert stale_pages(tmp_path) == []


def test_check_reports_and_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_pages(tmp_path)
    (tmp_path / "dot.md").write_text("")
    monkeypatch.setattr("tilewright.tools.docs_ops.stale_pages", lambda: stale_pages(tmp_path))
    assert main(["--check"]) == 1
    assert capsys.readouterr().out == "stale docs/ops/dot.md\n"
    assert (tmp_path / "dot.md").read_text() == ""


def guide_blocks() -> dict[str, str]:
    """The code blocks of the guide, by the file that the line before names."""
    block = re.compile(
        r"`([\w/.]+)`(?:, and the function)?:\n\n```\w*\n(.*?)^```", re.DOTALL | re.MULTILINE
    )
    return dict(block.findall(GUIDE.read_text("utf-8")))


def test_worked_example_fits_into_its_files() -> None:
    """`tests/structure/test_sizes.py` limits the length of a file."""
    for file, block in guide_blocks().items():
        text = (GUIDE.parents[1] / file).read_text("utf-8")
        lines = len(text.splitlines()) + len(block.splitlines())
        assert lines <= 700 or not file.endswith(".py"), f"{file} has no room for another op"


def test_worked_example_of_the_guide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if "arith.clz" in REGISTRY:
        pytest.skip("someone follows the guide: its op is in the tree")
    blocks = guide_blocks()
    op: Any = None
    names: dict[str, Any] = {**vars(arith)}
    try:
        exec(blocks["tilewright/ops/arith.py"], names)
        op = names["CountLeadingZeros"]
        family = SimpleNamespace(CountLeadingZeros=op)
        monkeypatch.setattr(arith, "CountLeadingZeros", op, raising=False)

        exec(blocks["tilewright/lowering/arith.py"], {**vars(lowering), "arith": family})
        exec(blocks["tilewright/autodiff/rules_arith.py"], dict(vars(rules_arith)))
        exec(blocks["plugins/triton/tilewright_triton/ttir/arith.py"], dict(vars(ttir_arith)))
        for file in ("arith.ir", "arith.invalid.ir"):
            (tmp_path / file).write_text(blocks[f"tests/ops/{file}"])
        assert 'add `arith.CountLeadingZeros: "clz"`' in GUIDE.read_text()
        monkeypatch.setitem(FUNCTIONS, op, "clz")
        assert missing_facets(op, tmp_path) == []
        assert [fault_of(c) for c in read_cases(tmp_path / "arith.invalid.ir")] == [None, None]

        tests: dict[str, Any] = dict(vars(harness))
        tests.update(pytest=pytest, arith=family)
        exec(blocks["tests/ops/test_meaning.py"], tests)
        for short in harness.INTS[1:]:
            tests["test_clz"](short)

        names = {**vars(semantic_arith), "ops": family}
        exec(blocks["tilewright/language/semantic/arith.py"], names)
        monkeypatch.setattr(semantic_arith, "clz", names["clz"], raising=False)
        language: dict[str, Any] = dict(vars(math))
        block = blocks["tilewright/language/math.py"]
        monkeypatch.setattr(tl.tensor, "clz", None, raising=False)
        exec(block, language)
        kernel = kernel_from(
            "def kernel(x, out):\n    tl.store(out, clz(tl.load(x)))\n", **language
        )
        x, out = np.array([5], np.int32), np.zeros(1, np.int32)
        launch(kernel, x, out)
        assert out.tolist() == [29]
    finally:
        REGISTRY.pop("arith.clz", None)
        if op is not None:
            assert LOWERINGS.pop(op).keys() == {""}
            del derivatives.RULES[op]
            del TTIR_EMITTERS[op]
