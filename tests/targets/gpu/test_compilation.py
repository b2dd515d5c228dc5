"""Which variants of a kernel are generated, compiled to machine code, and chosen."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tilewright.base.record import record
from tilewright.ir.core import Function
from tilewright.ir.machine import GpuMachine
from tilewright.ir.parser import parse_module
from tilewright.ir.passes import Original, Pass, PassContext, Step, Widening, run
from tilewright.targets.gpu import compilation
from tilewright.targets.gpu.codegen import ThreadCode
from tilewright.targets.gpu.compilation import MachineCode, compile_module
from tilewright.targets.protocol import Lowered

EMPTY = "func @kernel() {\n  control.return [] : () -> ()\n}\n"
WITH_ALL, WITHOUT_FIRST, WITHOUT_BOTH = "first second", "second", ""


@record
class Made(MachineCode):
    """Machine code of which `programs` are resident; ``most`` says how many may be, by code."""

    programs: int
    spills: int
    most: dict[str, int]

    def is_doubtful(self) -> bool:
        return self.spills > 0

    def may_be_worse_than(self, other: ThreadCode) -> bool:
        return self.spills > 0 or self.most[other.llvm] > self.programs

    def surpasses(self, other: ThreadCode) -> bool:
        return self.programs > self.most[other.llvm]

    def is_better_than(self, other: Any) -> bool:
        return (-self.spills, self.programs) > (-other.spills, other.programs)


class FixedTarget:
    """A target with two passes that may be in vain.

    Args:
        most: the programs that may be resident, by the passes of a variant.
        made: the programs that are, and the spills.
    """

    def __init__(self, most: dict[str, int], made: dict[str, tuple[int, int]]) -> None:
        self.most, self.made = most, made
        self.ran: list[str] = []
        self.generated: list[str] = []
        self.compiled: list[str] = []

    def steps(self) -> list[Step]:
        return [Step(Pass(name, self._pass(name))) for name in ("first", "second")]

    def _pass(self, name: str) -> Any:
        def apply(fn: Function, ctx: PassContext) -> bool:
            ctx.before.setdefault(name, Original(fn.clone(), f"without {name}"))
            self.ran.append(name)
            return True

        return apply

    def thread_code(self, *_: Any) -> ThreadCode:
        self.generated.append(" ".join(self.ran))
        self.ran.clear()
        return ThreadCode(self.generated[-1], "kernel", warps=5, tile_warps=4)

    def may_outnumber(self, other: ThreadCode, code: ThreadCode, options: Any) -> bool:
        alike = other.llvm == code.llvm and other.warps < code.warps
        return alike or self.most[other.llvm] > self.most[code.llvm]

    def machine_code(self, code: ThreadCode, ctx: PassContext, options: Any) -> MachineCode:
        self.compiled.append(code.llvm)
        return Made(Lowered({"code": code.llvm}, {}), None, *self.made[code.llvm], self.most)


def chosen(target: FixedTarget, monkeypatch: pytest.MonkeyPatch) -> tuple[str, list[str]]:
    """The passes of the variant that is taken, and the remarks."""
    monkeypatch.setattr(compilation, "thread_code", target.thread_code)
    module = parse_module(EMPTY)
    ctx = PassContext()
    run(module, target.steps(), ctx)
    lowered = compile_module(target, module, ctx, SimpleNamespace())  # pyright: ignore[reportArgumentType]
    return str(lowered.stages["code"]), [remark.text for remark in ctx.remarks]


def test_a_variant_that_surpasses_all_others_is_the_only_one_compiled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    target = FixedTarget({WITH_ALL: 1, WITHOUT_FIRST: 1, WITHOUT_BOTH: 3}, {WITHOUT_BOTH: (2, 0)})
    assert chosen(target, monkeypatch) == (WITHOUT_BOTH, ["without second"])
    assert target.compiled == [WITHOUT_BOTH]


def test_a_variant_that_may_be_surpassed_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    made = {WITH_ALL: (1, 3), WITHOUT_FIRST: (2, 0), WITHOUT_BOTH: (2, 1)}
    target = FixedTarget({WITH_ALL: 1, WITHOUT_FIRST: 2, WITHOUT_BOTH: 3}, made)
    assert chosen(target, monkeypatch) == (WITHOUT_FIRST, ["without first"])
    assert sorted(target.compiled) == sorted(made)


def test_no_variant_is_generated_for_code_without_doubt(monkeypatch: pytest.MonkeyPatch) -> None:
    target = FixedTarget(
        dict.fromkeys((WITH_ALL, WITHOUT_FIRST, WITHOUT_BOTH), 2), {WITH_ALL: (2, 0)}
    )
    target.may_outnumber = lambda *_: False  # pyright: ignore[reportAttributeAccessIssue]
    assert chosen(target, monkeypatch) == (WITH_ALL, [])
    assert target.generated == [WITH_ALL]


def test_the_variant_without_all_passes_is_compiled_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one in between is compiled only if it may be better still."""
    most = {WITH_ALL: 2, WITHOUT_FIRST: 2, WITHOUT_BOTH: 2}
    target = FixedTarget(most, {WITH_ALL: (2, 9), WITHOUT_BOTH: (2, 0)})
    assert chosen(target, monkeypatch) == (WITHOUT_BOTH, ["without second"])
    assert target.compiled == [WITH_ALL, WITHOUT_BOTH]


@record
class Narrow(MachineCode):
    """Machine code that lacks registers while it spills."""

    spills: int

    def lacks_registers(self) -> bool:
        return self.spills > 0

    def gains_over(self, narrow: Any) -> bool:
        return 8 * self.spills <= narrow.spills


class WideningTarget(FixedTarget):
    """A target that may double the warps of a program, up to eight.

    Args:
        spills: those of each thread, by the number of warps.
    """

    def __init__(self, spills: dict[int, int]) -> None:
        super().__init__({}, {})
        self.spills = spills

    def steps(self) -> list[Step]:
        return [Step(Pass("widen", self._widen)), Step(Pass("later", self._later))]

    def _widen(self, fn: Function, ctx: PassContext) -> bool:
        ctx.widening = Widening(fn.clone(), 8, "widen")
        return False

    def _later(self, fn: Function, ctx: PassContext) -> bool:
        self.ran.append(f"{ctx.gpu.warps} warps")
        return False

    def machine_code(self, code: ThreadCode, ctx: PassContext, options: Any) -> MachineCode:
        self.compiled.append(code.llvm)
        return Narrow(Lowered({"code": code.llvm}, {}), None, self.spills[ctx.gpu.warps])


@pytest.mark.parametrize(
    ("spills", "taken", "compiled"),
    [
        ({2: 0}, 2, 1),
        ({2: 80, 4: 0}, 4, 2),
        ({2: 80, 4: 40, 8: 0}, 8, 3),
        ({2: 80, 4: 10, 8: 5}, 4, 3),
        ({2: 80, 4: 40, 8: 20}, 2, 3),
    ],
)
def test_warps_are_doubled_while_registers_are_spilled(
    spills: dict[int, int], taken: int, compiled: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More warps are taken only if they are worth it, and only as many as are."""
    target = WideningTarget(spills)
    monkeypatch.setattr(compilation, "thread_code", target.thread_code)
    module = parse_module(EMPTY)
    gpu = GpuMachine("cuda", "GPUs", 32, 2, 65536, 255, 227 * 1024)
    ctx = PassContext(machine=gpu)
    run(module, target.steps(), ctx)
    lowered = compile_module(target, module, ctx, SimpleNamespace())  # pyright: ignore[reportArgumentType]
    assert str(lowered.stages["code"]) == f"{taken} warps"
    assert target.compiled == [f"{2 << i} warps" for i in range(compiled)]
    remark = f"{taken} warps instead of 2: registers were spilled"
    assert [r.text for r in ctx.remarks] == [remark] * (taken > 2)
    assert ctx.gpu.warps == taken
