"""Every op has every facet that `completeness.py` requires, and missing ones are reported."""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tilewright_triton.ttir.writer import EMITTERS as TTIR_EMITTERS

from tests.ops.completeness import WITHOUT_SPELLING, OpClass, documentation, missing_facets
from tilewright.autodiff import registry as derivatives
from tilewright.compiler.python_source import FUNCTIONS
from tilewright.ir.core import Value
from tilewright.ir.define import REGISTRY, Op, operand
from tilewright.ir.index_map import Every, replaced
from tilewright.ir.traits import ELEMENTWISE, PURE, Trait
from tilewright.ir.types import Type
from tilewright.lowering.simt.kernel import EMITTERS
from tilewright.ops.math import MathFunction
from tilewright.ops.view import View
from tilewright.passes import padding
from tilewright.passes.layout_rules import DERIVED
from tilewright.targets.cpu import lazy


@pytest.mark.parametrize("name", sorted(REGISTRY))
def test_op_is_complete(name: str) -> None:
    faults = missing_facets(REGISTRY[name])
    assert not faults, "\n".join(faults)


# -- the check reports what is missing -----------------------------------------------------------


@contextmanager
def fake_op(
    doc: str = "", traits: Trait = PURE, base: type[Op] = Op, **facets: Any
) -> Generator[OpClass]:
    """An op `arith.fake` of one operand, registered within the block."""
    body: dict[str, Any] = {
        "__doc__": doc or None,
        "__module__": "tilewright.ops.arith",
        "result_type": same_type,
        **facets,
    }
    if base is Op:  # others have the operand already
        body |= {"__annotations__": {"src": Value}, "src": operand()}
    try:
        made: Any = type("Fake", (base,), body, name="arith.fake", traits=traits)
        yield made
    finally:
        REGISTRY.pop("arith.fake", None)


def same_type(self: Any) -> Type:
    return self.src.type


def identity(self: Any, src: Any) -> Any:
    return src


def maps(self: Any, result: int = 0) -> Any:
    return (replaced((4,), 0, Every()),)


TILES = "The operand.\n\n    %1 = arith.fake %0 : 4xi32 -> 4xi32\n"
DOC = "The operand.\n\n    %1 = arith.fake %0 : i32 -> i32\n"
CASE = "func @f(%0: i32) {\n  %1 = arith.fake %0 : i32 -> i32\n  control.return [] : () -> ()\n}\n"
INVALID = "func @f(%0: i32) {\n  %1 = arith.fake %0 : i32 -> i64 }  # error[result-type]: gives\n"


def cases_in(folder: Path) -> Path:
    (folder / "arith.ir").write_text(CASE)
    (folder / "arith.invalid.ir").write_text(INVALID)
    return folder


TABLES: tuple[dict[Any, Any], ...] = (
    EMITTERS, lazy.RULES, DERIVED, padding.RULES, derivatives.RULES, TTIR_EMITTERS, FUNCTIONS,
)  # fmt: skip


@contextmanager
def complete_op(doc: str = DOC, **facets: Any) -> Generator[OpClass]:
    """A fake op with the facets that are registered in tables."""
    with fake_op(doc, **facets) as cls, pytest.MonkeyPatch.context() as patch:
        for table in TABLES:
            patch.setitem(table, cls, {"": identity} if table is EMITTERS else identity)
        yield cls


def test_complete_op_has_no_faults(tmp_path: Path) -> None:
    with complete_op(evaluate=identity) as cls:
        assert missing_facets(cls, cases_in(tmp_path)) == []


def test_empty_op_has_every_fault(tmp_path: Path) -> None:
    with fake_op() as cls:
        assert missing_facets(cls, tmp_path) == [
            "arith.fake has no docstring",
            "arith.fake has neither `evaluate` nor the reason in `no_evaluate`",
            "arith.fake has no valid case in tests/ops/arith.ir",
            "arith.fake has no invalid case in tests/ops/arith.invalid.ir",
            "arith.fake has no GPU lowering: "
            "write one with @emits in tilewright/lowering/simt/arith.py, a module that REGISTERED "
            "in tilewright/targets/gpu/codegen.py lists",
            "arith.fake has no CPU lowering: write one for an element of its result with "
            "@computes in tilewright/targets/cpu/evaluate.py, or one for all of it in "
            "tilewright/targets/cpu/arith.py, with a line in tilewright/targets/cpu/rare_steps.py",
            "arith.fake has no derivative: write a rule, or declare why there is none, in "
            "tilewright/autodiff/rules_*.py",
            "arith.fake has no text for Triton's back ends: write it with @EMITTERS.of in "
            "plugins/triton/tilewright_triton/ttir/, or raise `w.unsupported` there with an "
            "alternative",
        ]


def test_missing_elementwise_lowering_is_reported(tmp_path: Path) -> None:
    with fake_op(DOC, traits=ELEMENTWISE, evaluate=identity) as cls:
        fault, *_ = missing_facets(cls, cases_in(tmp_path))
    assert fault == (
        "arith.fake has no lowering: write one with @lowers in tilewright/lowering/arith.py"
    )


def test_missing_emitter_of_a_function_is_reported(tmp_path: Path) -> None:
    cases_in(tmp_path)
    (tmp_path / "arith.ir").write_text(CASE.replace("i32", "fp32"))
    doc = DOC.replace("i32", "fp32")
    with fake_op(doc, traits=ELEMENTWISE, base=MathFunction, evaluate=identity) as cls:
        faults = missing_facets(cls, tmp_path)
    assert any("add its emitter to MATH in tilewright/lowering/math.py" in f for f in faults)


CONTENTS = (
    "GPU lowering", "CPU lowering", "layouts on GPUs", "rule for tiles", "derivative",
    "text for Triton's back ends", "spelling in derived kernels",
)  # fmt: skip


@pytest.mark.parametrize(("table", "fault"), [*zip(TABLES, CONTENTS, strict=True)])
def test_missing_entry_of_a_table_is_reported(table: Any, fault: str, tmp_path: Path) -> None:
    with complete_op(TILES, evaluate=identity, index_maps=maps) as cls:
        del table[cls]
        (found,) = missing_facets(cls, cases_in(tmp_path))
        table[cls] = None  # which leaving the block removes
    assert f"has no {fault}" in found


def test_reason_of_an_op_with_a_spelling_is_reported(tmp_path: Path) -> None:
    with complete_op(evaluate=identity) as cls, pytest.MonkeyPatch.context() as patch:
        patch.setitem(WITHOUT_SPELLING, "is unused", {cls.name})
        (found,) = missing_facets(cls, cases_in(tmp_path))
    assert found == "arith.fake has a spelling as Python, though it is unused"


def test_lazy_op_without_index_maps_is_reported(tmp_path: Path) -> None:
    with complete_op(TILES, evaluate=identity, no_index_maps="because") as cls:
        (found,) = missing_facets(cls, cases_in(tmp_path))
    assert "has no `index_maps`, on which the plan" in found


def test_view_without_an_exact_index_map_is_reported(tmp_path: Path) -> None:
    with complete_op(TILES, base=View, evaluate=identity, index_maps=maps) as cls:
        (found,) = missing_facets(cls, cases_in(tmp_path))
    assert "derives from View" in found


@pytest.mark.parametrize(
    ("doc", "fault"),
    [
        ("Says nothing of IR.", "has no example"),
        ("It.\n\n    %1 = arith.neg %0 : i32 -> i32\n", "has an example without arith.fake"),
        ("It.\n\n    %1 = arith.fake %0 : i32 -> i64\n", "that does not parse, verify"),
        ("It.\n\n    %1 = arith.fake %0 : i32\n", "that does not parse, verify"),
    ],
)
def test_faulty_documentation_is_found(doc: str, fault: str, tmp_path: Path) -> None:
    with complete_op(doc, evaluate=identity) as cls:
        (found,) = missing_facets(cls, cases_in(tmp_path))
    assert fault in found


@pytest.mark.parametrize(
    ("doc", "facets", "faults"),
    [
        (TILES, {}, ["arith.fake has neither `index_maps` nor the reason in `no_index_maps`"]),
        (TILES, {"index_maps": maps}, []),
        (
            TILES,
            {"index_maps": maps, "no_index_maps": "because"},
            ["has both `index_maps` and a", "has no `index_maps`, on which"],
        ),
        (DOC, {}, []),
    ],
)
def test_op_without_index_maps_is_found(
    doc: str,
    facets: dict[str, Any],
    faults: list[str],
    tmp_path: Path,
) -> None:
    with complete_op(doc, evaluate=identity, **facets) as cls:
        found = missing_facets(cls, cases_in(tmp_path))
    assert len(found) == len(faults)
    assert all(fault in text for fault, text in zip(faults, found, strict=True))


@pytest.mark.parametrize(
    ("facets", "fault"),
    [
        ({"no_evaluate": "because"}, "has neither `evaluate` nor `execute`"),
        ({"no_evaluate": "because", "evaluate": identity}, "has both `evaluate` and a reason"),
        ({"execute": identity}, "has neither `evaluate` nor the reason"),
    ],
)
def test_faulty_evaluate_is_found(facets: dict[str, Any], fault: str, tmp_path: Path) -> None:
    with complete_op(**facets) as cls:
        (found,) = missing_facets(cls, cases_in(tmp_path))
    assert fault in found


def test_elementwise_op_with_two_results_is_rejected() -> None:
    two: dict[str, Any] = {"result_types": lambda self: (self.src.type, self.src.type)}
    fake = fake_op(DOC, traits=ELEMENTWISE, **two)
    with pytest.raises(TypeError, match=r"arith\.fake: an elementwise op has one result"), fake:
        pass


def test_result_types_may_be_a_list() -> None:
    doc = "The operand, twice.\n\n    %1, %2 = arith.fake %0 : i32 -> (i32, i32)\n"
    two: dict[str, Any] = {"result_types": lambda self: [self.src.type, self.src.type]}
    with fake_op(doc, **two) as cls:
        assert documentation(cls, Path()) is None
