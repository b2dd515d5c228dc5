"""Every rewrite rule has a case in `rewrites/*.ir` in which it applies, and states its equation.

The cases compare bits before and after on random and special operands; see `tests/ir_files.py`.
"""

import re
from collections import Counter
from pathlib import Path

import pytest

from tests.ir_files import read_cases
from tests.ir_values import same_meaning
from tilewright.base.diagnostics import IRError
from tilewright.ir.core import Module, Op, Value
from tilewright.ir.parser import parse_module
from tilewright.ir.passes import PASSES, PassContext
from tilewright.ir.rewriter import Rewriter, Rule, all_rules, apply_greedily
from tilewright.ir.verify import verify_module
from tilewright.ops.arith import Add, Constant
from tilewright.rewrites.patterns import known

FOLDER = Path(__file__).parent / "rewrites"


def _counts_of(path: Path) -> Counter[str]:
    counts: Counter[str] = Counter()
    head, cases = read_cases(path.read_text("utf-8"))
    for case in cases:
        module = parse_module(case.text)
        ctx = PassContext(module=module)
        for name in head.passes:
            PASSES[name](module.entry, ctx)
        counts += ctx.counts
    return counts


def test_every_rule_applies_in_some_case() -> None:
    counts: Counter[str] = Counter()
    for path in FOLDER.glob("*.ir"):
        counts += _counts_of(path)
    missing = sorted({rule.name for rule in all_rules()} - set(counts))
    assert not missing, f"rules without a case in {FOLDER.name}/: {missing}"


# Rules on loops, which are sentences.
IN_WORDS = frozenset({"for_carried_needed"})


def test_every_rule_states_an_equation() -> None:
    stated = {rule.name for rule in all_rules() if "=" in rule.equation}
    assert {rule.name for rule in all_rules()} - stated == IN_WORDS


def test_file_of_cases_covers_one_file_of_rules() -> None:
    rules = {Path(rule.apply.__code__.co_filename).stem for rule in all_rules()}
    cases = {path.stem for path in FOLDER.glob("*.ir")}
    assert rules <= cases


INTEGERS = ("i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64")
FLOATS = ("fp64", "fp32", "fp16", "bf16", "fp8e5", "fp8e4nv", "fp8e5b16", "fp8e4b8", "fp8e4b15")
_INTEGER = re.compile(r"\b[iu](8|16|32|64)\b|(?<=x)[iu](8|16|32|64)\b")
_FLOAT = re.compile(r"\b(fp64|fp32|fp16|bf16|fp8\w+)\b|(?<=x)(fp64|fp32|fp16|bf16|fp8\w+)\b")
FIXED = {  # files whose cases fix their types
    _INTEGER: frozenset({"dot", "dot_float", "math", "random"}),
    _FLOAT: frozenset({"control", "dot"}),
}


def _retyped(text: str, kind: re.Pattern[str], type: str) -> Module | None:
    """The module with every number of a kind of this type; None if that is not a valid one."""
    try:
        module = parse_module(kind.sub(type, text))
        verify_module(module)
    except (IRError, OverflowError):
        return None
    return module


@pytest.mark.parametrize(("kind", "types"), [(_INTEGER, INTEGERS), (_FLOAT, FLOATS)])
@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.ir")), ids=lambda path: path.stem)
def test_rules_preserve_semantics_for_every_type(
    path: Path, kind: re.Pattern[str], types: tuple[str, ...]
) -> None:
    """A rule that is right for the type its case has may be wrong for others.

    |-u| is not |u| of an unsigned u, and x * 1.0 not x of an infinite fp8e5.
    """
    head, cases = read_cases(path.read_text("utf-8"))
    tried = 0
    for case in cases:
        if not kind.search(case.text):
            continue
        for type in types:
            module = _retyped(case.text, kind, type)
            if module is None:
                continue
            before = module.clone()
            ctx = PassContext(module=module)
            for name in head.passes:
                PASSES[name](module.entry, ctx)
            problem = same_meaning(before, module, close=head.close)
            assert not problem, f"{case.name} with {type}: {problem}"
            tried += 1
    assert tried or path.stem in FIXED[kind]


TEXT = """
func @f(%x: i32, %y: i32) -> i32 {
  %n = arith.neg %y : i32 -> i32
  %a = arith.add %x, %n : (i32, i32) -> i32
  %b = arith.add %a, %n : (i32, i32) -> i32
  control.return [%b] : i32 -> ()
}
"""


def _flip(op: Add, rw: Rewriter) -> Value | None:
    """x + y = y + x, for ever"""
    return rw.insert(Add(op.rhs, op.lhs))


def test_rules_that_do_not_end_are_found() -> None:
    module = parse_module(TEXT)
    rules: dict[type[Op], list[Rule]] = {Add: [Rule("flip", Add, _flip)]}
    with pytest.raises(AssertionError, match="do not end; the last one was flip"):
        apply_greedily(module.entry, rules, lambda name: None)


def _with_constant(op: Add, rw: Rewriter) -> Value | None:
    """x + y = x + 1, once"""
    return None if known(op.rhs) else rw.insert(Add(op.lhs, rw.insert(Constant(1, op.lhs.type))))


def test_new_ops_have_the_location_of_the_replaced_op() -> None:
    module = parse_module(TEXT, "kernel.ir")
    rules: dict[type[Op], list[Rule]] = {Add: [Rule("one", Add, _with_constant)]}
    apply_greedily(module.entry, rules, lambda name: None)
    lines = [op.loc.line for op in module.walk() if op.loc is not None]
    assert lines == [4, 4, 5, 5, 6]
