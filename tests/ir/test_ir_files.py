"""The harness of the `.ir` files detects each kind of failure."""

from pathlib import Path

import numpy as np
import pytest

from tests.ir_files import CaseFailure, read_cases, run_case
from tests.ir_values import same_bits, same_meaning
from tilewright.ir.parser import parse_module

ADD = """func @f(%x: fp32) -> fp32 {
  %c = arith.constant value=ZERO, type=fp32 : () -> fp32
  %a = arith.add %x, %c : (fp32, fp32) -> fp32
  control.return [%a] : fp32 -> ()
}"""
SAME = """func @f(%x: fp32) -> fp32 {
  control.return [%x] : fp32 -> ()
}"""


def _run(text: str, *, bless: Path | None = None) -> None:
    head, cases = read_cases(text)
    for case in cases:
        run_case(head, case, str(bless or "test.ir"), bless is not None)


def test_right_outcome_passes() -> None:
    _run(f"run: canonicalize\n\n# Why.\n{ADD}\nbecomes\n{SAME}\n".replace("ZERO", "-0.0"))


def test_unexpected_outcome_is_shown_as_a_diff() -> None:
    with pytest.raises(CaseFailure, match=r"-  %1 = arith.constant"):
        _run(f"run: canonicalize\n\n# Why.\n{ADD}\nunchanged\n".replace("ZERO", "-0.0"))


def test_change_of_semantics_is_found_on_special_values() -> None:
    """x + 0.0 is not x for x = -0.0: only a comparison of bits sees it."""
    before, after = parse_module(ADD.replace("ZERO", "0.0")), parse_module(SAME)
    assert "result 0 was" in same_meaning(before, after, tries=40)
    assert not same_meaning(parse_module(ADD.replace("ZERO", "-0.0")), after, tries=40)


def test_removed_store_is_found() -> None:
    text = """func @f(%p: ptr<i32>, %x: i32) {
      mem.store %p, %x, _, cache="", evict="" : (ptr<i32>, i32) -> ()
      control.return [] : () -> ()
    }"""
    without = "\n".join(line for line in text.split("\n") if "store" not in line)
    assert "argument 0" in same_meaning(parse_module(text), parse_module(without))


def test_case_without_a_valid_input_is_rejected() -> None:
    text = """func @f(%p: ptr<i32>) -> i32 {
      %c = arith.constant value=1000000, type=i32 : () -> i32
      %q = mem.addptr %p, %c : (ptr<i32>, i32) -> ptr<i32>
      %x = mem.load %q, _, _, cache="", evict="", volatile=False : ptr<i32> -> i32
      control.return [%x] : i32 -> ()
    }"""
    assert "no input could be evaluated" in same_meaning(parse_module(text), parse_module(text))


def test_bless_writes_the_outcome(tmp_path: Path) -> None:
    file = tmp_path / "f.ir"
    text = f"run: canonicalize\n\n# One.\n{ADD}\nunchanged\n\n# Two.\n{ADD}\nbecomes\n{SAME}\n"
    file.write_text(
        text.replace("ZERO", "-0.0", 1)
        .replace("ZERO", "0.0")
        .replace("# Two.\nfunc @f", "# Two.\nfunc @g")
    )
    _run(file.read_text(), bless=file)
    _, (one, two) = read_cases(file.read_text())
    assert one.expected is not None
    assert "control.return [%0]" in one.expected
    assert two.expected is None
    _run(file.read_text())


ERROR = """check: verify

# Why.
func @f(%x: i32) -> i32 {
  %a = arith.add %x, %y : (i32, i32) -> i32  # error[CODE]: says why
  control.return [%a] : i32 -> ()
}
"""


def test_expected_error_passes() -> None:
    _run(ERROR.replace("CODE", "undefined"))


def test_other_error_fails() -> None:
    with pytest.raises(CaseFailure, match=r"expected .redefinition. at line 5, got"):
        _run(ERROR.replace("CODE", "redefinition"))


def test_missing_error_fails() -> None:
    with pytest.raises(CaseFailure, match="nothing was rejected"):
        _run(ERROR.replace("CODE", "undefined").replace("%y", "%x"))


AXIS = """check: axis

# Why.
func @f() {
  %a = tile.arange start=0, end=64 : () -> 64xi32  # axis: contiguity=(64) constancy=(1)
  control.return [] : () -> ()
}
"""


def test_facts_that_hold_pass() -> None:
    _run(AXIS)


def test_facts_that_do_not_hold_fail() -> None:
    with pytest.raises(CaseFailure, match=r"line 5: .* has contiguity=\(64,\), expected \(32,\)"):
        _run(AXIS.replace("(64)", "(32)"))


def test_unknown_head_line_is_rejected() -> None:
    with pytest.raises(AssertionError, match="'runs' is no head line"):
        read_cases("runs: cse\n\n# Why.\nfunc @f() {\n}\n")


def test_bits_are_compared_except_of_nans() -> None:
    zero, nan = np.array([0.0]), np.array([np.nan])
    assert not same_bits(zero, -zero)
    assert same_bits(nan, -nan)
    assert not same_bits(zero, zero.astype(np.float32))
    assert not same_bits(nan, zero)
