"""Passes and how a list of them runs.

A pass is a function over a module's functions; it holds no printing, timing or verification:
these are observers of :func:`run`.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from tilewright.base.diagnostics import Loc
from tilewright.ir.core import Function, Module
from tilewright.ir.machine import GpuMachine
from tilewright.ir.verify import verify_module


class Remark(NamedTuple):
    """What a part of the compiler made of a line of the kernel, told to its author.

    Attributes:
        by: who says it: a pass, or the part of code generation that decided.
        text: what was done, or what was not done and why.
        loc: the line that it is about; None for the whole kernel.
        missed: whether something was not done that would have made better code.
    """

    by: str
    text: str
    loc: Loc | None
    missed: bool = True


@dataclass
class PassContext:
    """What a pass may know and report.

    Attributes:
        features: names of what the target has, which `Step.when` tests.
        options: compile options of the kernel, such as ``enable_fp_fusion``.
        machine: the GPU that is compiled for; None for other targets. See `gpu`.
        counts: how often each thing was done, by pass.
        remarks: what was done, and what was refused and why, in the order in which it was decided.
        explain: whether somebody will read how the code came about: then reasons may take time to
            find, and each instruction keeps the source line that it comes from.
        replaced: what takes the place of stages, by their names; see `replacement`.
        taken: the names of those that did.
    """

    features: frozenset[str] = frozenset()
    options: dict[str, Any] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=lambda: Counter[str]())
    remarks: list[Remark] = field(default_factory=lambda: list[Remark]())
    explain: bool = False
    module: Module | None = None
    machine: GpuMachine | None = None
    replaced: Mapping[str, bytes] = field(default_factory=dict[str, bytes])
    taken: set[str] = field(default_factory=set[str])

    @property
    def gpu(self) -> GpuMachine:
        """The GPU that is compiled for.

        Raises:
            ValueError: no pass of this target may need one.
        """
        if self.machine is None:
            raise ValueError(
                "this pass shares work among the threads of a GPU, and no GPU is known; name a "
                "target that has them, such as `opt -t sm_90`"
            )
        return self.machine

    def replacement(self, stage: str) -> bytes | None:
        """What a user has put in the place of a stage: who makes the stage goes on with that. None
        for all but a few that somebody is examining by hand."""
        found = self.replaced.get(stage)
        if found is not None:
            self.taken.add(stage)
        return found

    def replaced_text(self, stage: str) -> str | None:
        """The same for a stage that is text."""
        found = self.replacement(stage)
        return None if found is None else found.decode()

    def count(self, what: str, by: int = 1) -> None:
        self.counts[what] += by

    def missed(self, by: str, reason: str, loc: Loc | None) -> None:
        """Say why something that would have been better was not done."""
        self.remarks.append(Remark(by, reason, loc))

    def did(self, by: str, what: str, loc: Loc | None) -> None:
        """Say what was done, as far as it matters for the speed of the code."""
        self.remarks.append(Remark(by, what, loc, missed=False))

    @property
    def missed_remarks(self) -> list[Remark]:
        """Those of things that were not done."""
        return [remark for remark in self.remarks if remark.missed]


PassFunction = Callable[[Function, PassContext], bool]


@dataclass(frozen=True)
class Pass:
    """A registered pass: its name on the command line, and the function."""

    name: str
    apply: PassFunction

    def __call__(self, fn: Function, ctx: PassContext) -> bool:
        return self.apply(fn, ctx)


PASSES: dict[str, Pass] = {}


def compiler_pass(name: str) -> Callable[[PassFunction], Pass]:
    """Register a pass over functions. It returns whether it changed anything."""

    def register(fn: PassFunction) -> Pass:
        assert name not in PASSES, f"pass {name} is declared twice"
        PASSES[name] = Pass(name, fn)
        return PASSES[name]

    return register


@dataclass(frozen=True)
class Step:
    """One entry of a pipeline.

    Attributes:
        when: a feature that the target must have for the step to run; "" for always.
        optional: whether the step may be left out without making the code wrong.
    """

    pass_: Pass
    when: str = ""
    optional: bool = False

    @property
    def name(self) -> str:
        return self.pass_.name


class Observer(Protocol):
    """Sees the module before and after each step."""

    def before(self, step: Step, module: Module) -> None: ...
    def after(self, step: Step, module: Module, changed: bool) -> None: ...


class Verifier:
    """An observer that verifies the module after each step that changed it."""

    def before(self, step: Step, module: Module) -> None:
        pass

    def after(self, step: Step, module: Module, changed: bool) -> None:
        if changed:
            verify_module(module)


class Timer:
    """An observer that adds up seconds by step."""

    def __init__(self) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self._start = 0.0

    def before(self, step: Step, module: Module) -> None:
        self._start = time.perf_counter()

    def after(self, step: Step, module: Module, changed: bool) -> None:
        self.seconds[step.name] += time.perf_counter() - self._start


def run(
    module: Module,
    steps: Iterable[Step],
    ctx: PassContext,
    observers: Sequence[Observer] = (),
) -> None:
    """Run the steps in order on every function of the module."""
    ctx.module = module
    for step in steps:
        if step.when and step.when not in ctx.features:
            continue
        for observer in observers:
            observer.before(step, module)
        changed = False
        for function in list(module.functions.values()):
            if function.name in module.functions:
                changed |= step.pass_(function, ctx)
        for observer in reversed(observers):
            observer.after(step, module, changed)


def check_order(steps: Sequence[Step], order: Sequence[tuple[Pass, Pass, str]]) -> None:
    """Raise AssertionError where a pipeline breaks a (first, then, reason) constraint."""
    for first, then, reason in order:
        firsts = [i for i, s in enumerate(steps) if s.pass_ is first]
        thens = [i for i, s in enumerate(steps) if s.pass_ is then]
        assert not (firsts and thens) or firsts[0] < thens[0], (
            f"{first.name} must run before {then.name}: {reason}"
        )
