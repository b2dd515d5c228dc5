"""Tests that are IR text: one file, one thing to run, many small functions.

A file starts with what to do, then has cases, each under a sentence that says what must happen:

    run: cse

    # Same op, same operands: one remains.
    func @twice(%a: i32) -> i32 { … }
    becomes
    func @twice(%a: i32) -> i32 { … }

    # A load may not move past a store to unknown memory.
    func @store_between(%p: ptr<i32>) { … }
    unchanged

`run: a, b` runs these passes, and no other, verifies, and compares with the functions after
`becomes`; names of values never matter. Then the first function before and after is evaluated on
random and special inputs, and the results and the memory must be equal bit for bit (`compare:
close` in the head allows rounding; a NaN equals any NaN). `options: name=True number=3` sets
options of the passes, `features: a b` what the target has, `gpu: lanes=4 warps=2` how many threads
run a program. `pytest --bless` replaces the expected results by the present ones. Where tiles have
layouts, these are verified too.

`check: plan` compares the plan of the CPU target, which is no IR, with the text after `becomes`.

`check: verify`, `check: layouts` and `check: axis` run no pass. In every file a comment on a line
says what is expected there:

    # error[axis-range]: …             the text must be rejected, with this code at this line
    # missed: …                        a pass reports a missed transformation of this line
    # axis: contiguity=8 constancy=1   these facts of the line's first result
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import tilewright.compiler.pipeline
import tilewright.targets.cpu.pipeline
import tilewright.targets.nvidia.steps
from tests.gpu_machine import gpu_machine
from tests.ir_values import same_bits, same_meaning
from tilewright.analysis.axis_info import axis_info
from tilewright.base.diagnostics import IRError
from tilewright.ir.core import Module, Op
from tilewright.ir.machine import GpuMachine
from tilewright.ir.parser import parse_module
from tilewright.ir.passes import PassContext, Step, Verifier, find_pass, run
from tilewright.ir.printer import print_module
from tilewright.ir.types import Tile
from tilewright.ir.verify import verify_module
from tilewright.passes.verify_layouts import verify_layouts
from tilewright.targets.cpu.plan_loops import plan_function
from tilewright.targets.cpu.print_plan import print_plan

__all__ = ["collect", "same_bits"]

# Importing these registers the passes.
REGISTERED = (
    tilewright.compiler.pipeline,
    tilewright.targets.cpu.pipeline,
    tilewright.targets.nvidia.steps,
)

_ERROR = re.compile(r"# error\[([\w-]+)\]")
_AXIS = re.compile(r"# axis: (.*)")
_MISSED = re.compile(r"# missed: (.*)")

HEAD_LINES = ("run", "check", "options", "features", "gpu", "compare")


class Case(NamedTuple):
    """One case: the sentence, the input and what must become of it (None: unchanged)."""

    name: str
    line: int  # of the input's first line, from 1
    text: str
    expected: str | None
    expected_lines: tuple[int, int]  # what `--bless` replaces: first line and one past the last


class Head(NamedTuple):
    """The header of a file."""

    passes: list[str]
    check: str
    options: dict[str, Any]
    close: bool
    features: frozenset[str]
    machine: GpuMachine | None

    def context(self) -> PassContext:
        return PassContext(self.features, dict(self.options), machine=self.machine)


def read_head(lines: list[str]) -> tuple[Head, int]:
    """The head, and how many lines it takes."""
    found: dict[str, str] = {}
    count = 0
    for line in lines:
        if line.startswith("#"):
            break
        count += 1
        if line.strip():
            key, _, value = line.partition(":")
            assert key in HEAD_LINES, f"{key!r} is no head line"
            found[key] = value.strip()
    options: dict[str, Any] = {}
    for pair in found.get("options", "").split():
        key, _, value = pair.partition("=")
        options[key] = int(value) if value.isdigit() else {"True": True, "False": False}[value]
    passes = [name.strip() for name in found["run"].split(",")] if "run" in found else []
    assert bool(passes) != ("check" in found), "a file either runs passes or checks something"
    close = found.get("compare") == "close"
    features = frozenset(found.get("features", "").split())
    pairs = [pair.split("=") for pair in found.get("gpu", "").split()]
    sizes: dict[str, Any] = {name: int(size) for name, size in pairs}
    machine = gpu_machine(**sizes) if sizes else None
    return Head(passes, found.get("check", ""), options, close, features, machine), count


def read_cases(text: str) -> tuple[Head, list[Case]]:
    """The head and the cases of a file."""
    lines = text.split("\n")
    head, at = read_head(lines)
    starts = [i for i in range(at, len(lines)) if _starts_case(lines, i)]
    ends = [*starts[1:], len(lines)]
    return head, [_read_case(lines, a, b) for a, b in zip(starts, ends, strict=True)]


def _starts_case(lines: list[str], i: int) -> bool:
    return lines[i].startswith("#") and not (i > 0 and lines[i - 1].startswith("#"))


def _read_case(lines: list[str], start: int, end: int) -> Case:
    first = start
    while first < end and lines[first].startswith("#"):
        first += 1
    split = end
    while end > first and not lines[end - 1].strip():
        end -= 1
    expected, split = None, end
    for i in range(first, end):
        if lines[i] in ("becomes", "unchanged"):
            split = i
            if lines[i] == "becomes":
                expected = "\n".join(lines[i + 1 : end])
    body = "\n".join(lines[first:split])
    name = re.search(r"func @([\w.$]+)", body)
    assert name, f"line {first + 1}: a case has no function"
    return Case(name[1], first + 1, body, expected, (split, end))


class IrFile(pytest.File):
    """A file of cases."""

    def collect(self) -> Iterator[pytest.Item]:
        head, cases = read_cases(self.path.read_text("utf-8"))
        for case in cases:
            item = IrItem.from_parent(self, name=case.name)
            item.set(head, case)
            yield item


class CaseFailure(Exception):
    """What a case expected did not happen."""


class IrItem(pytest.Item):
    """One case."""

    head: Head
    case: Case

    def set(self, head: Head, case: Case) -> None:
        self.head, self.case = head, case

    def runtest(self) -> None:
        run_case(self.head, self.case, str(self.path), bool(self.config.getoption("--bless")))

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        if isinstance(excinfo.value, CaseFailure | IRError):
            return f"{self.path}:{self.case.line}: @{self.case.name}\n{excinfo.value}"
        excinfo.traceback = excinfo.traceback.filter(lambda entry: "_pytest" not in str(entry.path))
        return excinfo.getrepr(style="short")

    def reportinfo(self) -> tuple[Path, int, str]:
        return self.path, self.case.line - 1, f"@{self.case.name}"


def run_case(head: Head, case: Case, file: str, bless: bool = False) -> None:
    """Run one case; raises `CaseFailure` where it is not as expected."""
    expected_errors = _expected_errors(case)
    if expected_errors:
        _check_error(head, case, file, expected_errors)
        return
    module = _parse(case, file)
    if head.check == "axis":
        _check_axis(module, case)
        return
    if head.check == "plan":
        _check_plan(module, case, file, bless)
        return
    if head.check:
        assert head.check in ("verify", "layouts"), f"there is no check {head.check!r}"
        _check_round_trip(module)
        _run_passes(module, head)
        return
    before = module.clone()
    ctx = _run_passes(module, head)
    _check_round_trip(module)
    _check_missed(ctx, case)
    problem = same_meaning(before, module, close=head.close)
    if problem:
        raise CaseFailure(f"the passes changed what @{case.name} does: {problem}")
    _compare(before, module, case, file, bless)


def _parse(case: Case, file: str) -> Module:
    module = parse_module("\n" * (case.line - 1) + case.text, file)
    verify_module(module)
    return module


def _run_passes(module: Module, head: Head) -> PassContext:
    try:
        steps = [Step(find_pass(name)) for name in head.passes]
    except ValueError as error:
        raise CaseFailure(f"{error}; is it in a pipeline?") from error
    ctx = head.context()
    run(module, steps, ctx, [Verifier()])
    verify_module(module)  # also where a pass does not report its change
    if head.check == "layouts" or any(_has_layouts(op) for op in module.walk()):
        verify_layouts(module.entry, ctx)
    return ctx


def _has_layouts(op: Op) -> bool:
    return any(r.layout is not None and isinstance(r.type, Tile) for r in op.results)


def _check_missed(ctx: PassContext, case: Case) -> None:
    """The remarks of the passes are those that the case expects, each on its line."""
    lines = enumerate(case.text.split("\n"), case.line)
    reference = [(n, reason.strip()) for n, line in lines for reason in _MISSED.findall(line)]
    found = [(loc.line if loc else 0, reason) for _, reason, loc, _ in ctx.missed_remarks]
    if sorted(found) != reference:
        raise CaseFailure(f"expected the remarks {reference}, got {sorted(found)}")


def _check_round_trip(module: Module) -> None:
    text = print_module(module)
    again = print_module(parse_module(text))
    if text != again:
        raise CaseFailure(f"does not read back as it was printed:\n{text}\n{again}")


def _expected_errors(case: Case) -> list[tuple[int, str]]:
    lines = enumerate(case.text.split("\n"), case.line)
    return [(n, code) for n, line in lines for code in _ERROR.findall(line)]


def _check_error(head: Head, case: Case, file: str, reference: list[tuple[int, str]]) -> None:
    assert len(reference) == 1, "the first error ends the work, so a case has one"
    line, code = reference[0]
    try:
        module = _parse(case, file)
        _run_passes(module, head)
    except IRError as error:
        if error.code != code or error.loc is None or error.loc.line != line:
            raise CaseFailure(f"expected [{code}] at line {line}, got: {error}") from error
        return
    raise CaseFailure(f"expected [{code}] at line {line}, but nothing was rejected")


def _check_axis(module: Module, case: Case) -> None:
    infos = axis_info(module.entry)
    by_line = {op.loc.line: op for op in module.walk() if op.loc is not None}
    for number, line in enumerate(case.text.split("\n"), case.line):
        comment = _AXIS.search(line)
        if comment is None:
            continue
        op = by_line.get(number)
        if op is None or not op.results:
            raise CaseFailure(f"line {number} has no result to state facts about")
        _check_facts(infos[op.results[0]]._asdict(), comment[1], number, op)


def _check_plan(module: Module, case: Case, file: str, bless: bool) -> None:
    text = print_plan(module.entry, plan_function(module.entry)).rstrip("\n")
    if bless:
        _bless(case, file, text)
    elif case.expected != text:
        reference = (case.expected or "").split("\n")
        diff = difflib.unified_diff(
            reference, text.split("\n"), "expected", "actual", lineterm="", n=9
        )
        raise CaseFailure("\n".join(diff))


def _check_facts(actual: dict[str, Any], reference: str, line: int, op: Op) -> None:
    for name, number in re.findall(r"(\w+)=(\([^)]*\)|None|-?\d+)", reference):
        numbers = [int(n) for n in re.findall(r"-?\d+", number)]
        expected: Any = tuple(numbers)
        if name == "constant":
            expected = numbers[0] if numbers else None
        if actual[name] != expected:
            raise CaseFailure(
                f"line {line}: {op.name} has {name}={actual[name]}, expected {expected}"
            )


def _compare(before: Module, after: Module, case: Case, file: str, bless: bool) -> None:
    actual = print_module(after)
    if bless:
        _bless(case, file, None if actual == print_module(before) else actual)
        return
    expected = before if case.expected is None else parse_module(case.expected, file)
    reference = print_module(expected)
    if actual != reference:
        diff = difflib.unified_diff(
            reference.split("\n"), actual.split("\n"), "expected", "actual", lineterm="", n=9
        )
        raise CaseFailure("\n".join(diff))


def _bless(case: Case, file: str, expected: str | None) -> None:
    """Write the outcome into the file, from the case's place in it, which earlier ones may have
    moved: so it is looked up again by its input."""
    path = Path(file)
    text = path.read_text("utf-8")
    _, cases = read_cases(text)
    start, end = next(c.expected_lines for c in cases if c.text == case.text)
    lines = text.split("\n")
    new = ["unchanged"] if expected is None else ["becomes", *expected.rstrip().split("\n")]
    lines[start:end] = new
    path.write_text("\n".join(lines), "utf-8")


def collect(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """For `pytest_collect_file` of a folder's conftest."""
    return IrFile.from_parent(parent, path=file_path) if file_path.suffix == ".ir" else None
