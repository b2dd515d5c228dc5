"""Every op has every facet: documentation with an example, a meaning, a valid and an invalid case.

Adding an op is: write the class, run this test, do what it says. See `docs/add-an-op.md`.
"""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.ops.ir_cases import FOLDER, ops_of_invalid, ops_of_valid, read_cases, round_trip
from tilewright.base.diagnostics import IRError
from tilewright.ir.core import Op as CoreOp
from tilewright.ir.core import Value
from tilewright.ir.define import REGISTRY, Op, example_of, operand
from tilewright.ir.parser import parse_example
from tilewright.ir.printer import print_function
from tilewright.ir.types import Type
from tilewright.ops.control import Return

OpClass = type[CoreOp]
Facet = Callable[[OpClass, Path], str | None]


def stem_of(cls: OpClass) -> str:
    """The name that the op's files share: of `tilewright/ops/reduce.py`, `reduce`."""
    return cls.__module__.rpartition(".")[2]


def documentation(cls: OpClass, folder: Path) -> str | None:
    if "__doc__" not in cls.__dict__ or not (cls.__doc__ or "").strip():
        return "has no docstring"
    text = example_of(cls)
    if not text:
        return "has no example in its docstring"
    try:
        fn = parse_example(text)
        found = [type(op) for op in fn.body]
        if fn.body.last is None or not fn.body.last.terminator:
            fn.body.append(Return([]))
        round_trip(print_function(fn))
    except (IRError, AssertionError) as error:
        return f"has an example that does not parse, verify and round-trip: {error}"
    return None if cls in found else f"has an example without {cls.name}"


def meaning(cls: OpClass, folder: Path) -> str | None:
    evaluates = cls.evaluate is not CoreOp.evaluate
    executes = cls.execute is not CoreOp.execute
    if evaluates and cls.no_evaluate:
        return "has both `evaluate` and a reason why it has none"
    if not (evaluates or cls.no_evaluate):
        return "has neither `evaluate` nor the reason in `no_evaluate`"
    if not (evaluates or executes or cls.terminator):
        return "has neither `evaluate` nor `execute`"
    return None


def valid_case(cls: OpClass, folder: Path) -> str | None:
    path = folder / f"{stem_of(cls)}.ir"
    if any(cls in ops_of_valid(case) for case in read_cases(path)):
        return None
    return f"has no valid case in tests/ops/{path.name}"


def invalid_case(cls: OpClass, folder: Path) -> str | None:
    path = folder / f"{stem_of(cls)}.invalid.ir"
    if any(cls in ops_of_invalid(case) for case in read_cases(path)):
        return None
    return f"has no invalid case in tests/ops/{path.name}"


# A facet of a layer above (a lowering for each target, a derivative) is one more function here.
FACETS: tuple[Facet, ...] = (documentation, meaning, valid_case, invalid_case)


def sheet_faults(cls: OpClass, folder: Path = FOLDER) -> list[str]:
    """What the op lacks, a sentence each."""
    found = [facet(cls, folder) for facet in FACETS]
    return [f"{cls.name} {fault}" for fault in found if fault]


@pytest.mark.parametrize("name", sorted(REGISTRY))
def test_op_has_every_facet(name: str) -> None:
    faults = sheet_faults(REGISTRY[name])
    assert not faults, "\n".join(faults)


# -- the sheet finds what is missing --------------------------------------------------------------


@contextmanager
def fake_op(doc: str = "", **facets: Any) -> Generator[OpClass]:
    """An op `arith.fake` of one operand, registered within the block."""
    body: dict[str, Any] = {
        "__doc__": doc or None,
        "__module__": "tilewright.ops.arith",
        "__annotations__": {"src": Value},
        "src": operand(),
        "result_type": same_type,
        **facets,
    }
    try:
        yield type("Fake", (Op,), body, name="arith.fake")
    finally:
        REGISTRY.pop("arith.fake", None)


def same_type(self: Any) -> Type:
    return self.src.type


def identity(self: Any, src: Any) -> Any:
    return src


DOC = "The operand.\n\n    %1 = arith.fake %0 : i32 -> i32\n"
CASE = "func @f(%0: i32) {\n  %1 = arith.fake %0 : i32 -> i32\n  control.return [] : () -> ()\n}\n"
INVALID = "func @f(%0: i32) {\n  %1 = arith.fake %0 : i32 -> i64 }  # error[result-type]: gives\n"


def cases_in(folder: Path) -> Path:
    (folder / "arith.ir").write_text(CASE)
    (folder / "arith.invalid.ir").write_text(INVALID)
    return folder


def test_op_with_every_facet_has_no_faults(tmp_path: Path) -> None:
    with fake_op(DOC, evaluate=identity) as cls:
        assert sheet_faults(cls, cases_in(tmp_path)) == []


def test_op_with_no_facet_has_every_fault(tmp_path: Path) -> None:
    with fake_op() as cls:
        assert sheet_faults(cls, tmp_path) == [
            "arith.fake has no docstring",
            "arith.fake has neither `evaluate` nor the reason in `no_evaluate`",
            "arith.fake has no valid case in tests/ops/arith.ir",
            "arith.fake has no invalid case in tests/ops/arith.invalid.ir",
        ]


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
    with fake_op(doc, evaluate=identity) as cls:
        (found,) = sheet_faults(cls, cases_in(tmp_path))
    assert fault in found


@pytest.mark.parametrize(
    ("facets", "fault"),
    [
        ({"no_evaluate": "because"}, "has neither `evaluate` nor `execute`"),
        ({"no_evaluate": "because", "evaluate": identity}, "has both `evaluate` and a reason"),
        ({"execute": identity}, "has neither `evaluate` nor the reason"),
    ],
)
def test_faulty_meaning_is_found(facets: dict[str, Any], fault: str, tmp_path: Path) -> None:
    with fake_op(DOC, **facets) as cls:
        (found,) = sheet_faults(cls, cases_in(tmp_path))
    assert fault in found
