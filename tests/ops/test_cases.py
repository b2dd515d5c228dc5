"""The valid and invalid cases of the ops' verifiers; see `ir_cases.py` for the form."""

from pathlib import Path

import pytest

from tests.ops.ir_cases import FOLDER, STEMS, Case, fault_of, read_cases, round_trip

VALID = [case for stem in STEMS for case in read_cases(FOLDER / f"{stem}.ir")]
INVALID = [case for stem in STEMS for case in read_cases(FOLDER / f"{stem}.invalid.ir")]


@pytest.mark.parametrize("case", VALID, ids=lambda c: c.id)
def test_valid_case_verifies_and_round_trips(case: Case) -> None:
    round_trip(case.text, case.file)


@pytest.mark.parametrize("case", INVALID, ids=lambda c: c.id)
def test_invalid_case_gives_its_error(case: Case) -> None:
    assert fault_of(case) is None


def test_every_file_belongs_to_a_family_of_ops() -> None:
    names = {f"{stem}{end}" for stem in STEMS for end in (".ir", ".invalid.ir")}
    assert {path.name for path in FOLDER.glob("*.ir")} == names


PLANTED = """
func @right(%0: i32) {
  %1 = arith.neg %0 : i32 -> i64 }  # error[result-type]: returns ['i32']
func @none(%0: i32) {
  control.return [] : () -> ()  # error[terminator]: nothing is wrong
}
func @line(%0: i32) {
  %1 = arith.neg %0 : i32 -> i64 }
  # error[result-type]: returns ['i32']
}
func @code(%0: i32) {
  %1 = arith.neg %0 : i32 -> i64 }  # error[operand-types]: returns ['i32']
func @message(%0: i32) {
  %1 = arith.neg %0 : i32 -> i64 }  # error[result-type]: gives ['fp32']
"""


def test_wrong_expectations_are_found(tmp_path: Path) -> None:
    path = tmp_path / "planted.ir"
    path.write_text(PLANTED)
    faults = {case.name: fault_of(case) for case in read_cases(path)}
    assert faults.pop("right") is None
    assert faults.pop("none") == "parses and verifies"
    assert sorted(faults) == ["code", "line", "message"]
    for fault in faults.values():
        assert fault is not None
        assert fault.startswith("expected error[")
