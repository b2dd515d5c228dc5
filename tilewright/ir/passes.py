"""Passes and the pass manager.

A pass is a function over the functions of a module. Printing, timing and verification are not part
of passes; they are observers of :func:`run`.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from tilewright.base.diagnostics import Loc
from tilewright.base.record import field, record
from tilewright.ir.core import Function, Module
from tilewright.ir.machine import GpuMachine
from tilewright.ir.verify import verify_module


class Remark(NamedTuple):
    """An optimisation remark about a line of the kernel.

    Attributes:
        by: the pass, or the part of code generation, that emitted it.
        text: what was done, or what was missed and why.
        loc: the source line; None for the whole kernel.
        missed: whether it is about a missed optimisation.
    """

    by: str
    text: str
    loc: Loc | None
    missed: bool = True


class Original(NamedTuple):
    """A function as it was before a pass whose result the target may reject.

    Attributes:
        function: a copy, without the effect of the pass.
        undone: the remark if the result is rejected.
    """

    function: Function
    undone: str


class Widening(NamedTuple):
    """More threads for a program, which the target may decide on after it has compiled it.

    Attributes:
        function: a copy, as it was before the first pass that depends on the number of threads.
        most_warps: of a program; a power of two.
        name: the pass after which the function is compiled.
    """

    function: Function
    most_warps: int
    name: str


@record(frozen=False)
class PassContext:
    """The environment of a pass: its inputs and its reports.

    Attributes:
        features: named features of the target, which `Step.when` tests.
        options: compile options of the kernel, such as ``enable_fp_fusion``.
        machine: the target GPU; None for other targets. See `gpu`.
        counts: the number of applications of each transformation, by pass.
        remarks: applied and missed optimisations in order of decision.
        explain: whether a report was requested: then reasons may be expensive to compute, and
            instructions keep their source lines.
        replaced: overriding stages by name; see `replacement`.
        taken: the names of the overriding stages that were used.
        before: the original function, by the name of the pass whose result the target may reject.
        widening: more threads for the program, which the target may use; None if it may not.
        smaller: the original of a pass, by its name, that needs less memory; it is compiled if the
            result needs more than there is.
        disabled: the names of optional passes, and of parts of passes, that do not run.
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
    before: dict[str, Original] = field(default_factory=lambda: dict[str, Original]())
    widening: Widening | None = None
    smaller: tuple[str, Original] | None = None
    disabled: frozenset[str] = frozenset()

    @property
    def gpu(self) -> GpuMachine:
        """The GPU that is compiled for.

        Raises:
            ValueError: the target is not a GPU.
        """
        if self.machine is None:
            raise ValueError(
                "this pass shares work among the threads of a GPU, and no GPU is known; name a "
                "target that has them, such as `opt -t sm_90`"
            )
        return self.machine

    def replacement(self, stage: str) -> bytes | None:
        """The user's replacement of a stage, with which compilation continues; None unless the
        stage is overridden."""
        result = self.replaced.get(stage)
        if result is not None:
            self.taken.add(stage)
        return result

    def replaced_text(self, stage: str) -> str | None:
        """The replacement of a stage that is text."""
        found = self.replacement(stage)
        return None if found is None else found.decode()

    def enabled(self, name: str) -> bool:
        """Whether an optional pass, or a part of one (`OPTIONAL_PARTS`), is to run."""
        return name not in self.disabled

    def count(self, what: str, by: int = 1) -> None:
        self.counts[what] += by

    def missed(self, by: str, reason: str, loc: Loc | None) -> None:
        """Report a missed optimisation with its reason."""
        self.remarks.append(Remark(by, reason, loc))

    def did(self, by: str, what: str, loc: Loc | None) -> None:
        """Report an applied optimisation that matters for performance."""
        self.remarks.append(Remark(by, what, loc, missed=False))

    @property
    def missed_remarks(self) -> list[Remark]:
        """The remarks about missed optimisations."""
        return [remark for remark in self.remarks if remark.missed]


PassFunction = Callable[[Function, PassContext], bool]


@record
class Pass:
    """A registered pass.

    Attributes:
        name: its name on the command line, in settings and reports.
        apply: the function.
        required: whether later passes or code generation rely on what it leaves; other passes can
            be disabled.
    """

    name: str
    apply: PassFunction
    required: bool = False

    def __call__(self, fn: Function, ctx: PassContext) -> bool:
        return self.apply(fn, ctx)


PASSES: dict[str, Pass] = {}
"""The registered passes: those of the pipelines that have been imported."""

OPTIONAL_PARTS: set[str] = set()
"""The names of transformations within passes that can be disabled by themselves."""


def compiler_pass(name: str, *, required: bool = False) -> Callable[[PassFunction], Pass]:
    """Register a function pass. It returns whether it changed the IR.

    Args:
        name: as in `Pass`.
        required: as in `Pass`.
    """

    def register(fn: PassFunction) -> Pass:
        assert name not in PASSES, f"pass {name} is declared twice"
        PASSES[name] = Pass(name, fn, required)
        return PASSES[name]

    return register


def optional_part(name: str) -> str:
    """Register a part of a pass that runs only if `PassContext.enabled`; returns its name."""
    assert name not in OPTIONAL_PARTS, f"part {name} of a pass is declared twice"
    OPTIONAL_PARTS.add(name)
    return name


def find_pass(name: str) -> Pass:
    """The registered pass with this name.

    Raises:
        ValueError: there is none.
    """
    result = PASSES.get(name)
    if result is None:
        raise ValueError(f"there is no pass {name!r}; there are {', '.join(sorted(PASSES))}")
    return result


@record
class Step:
    """One entry of a pipeline.

    Attributes:
        when: a feature that the target must have for the step to run; "" for always.
    """

    pass_: Pass
    when: str = ""

    @property
    def name(self) -> str:
        return self.pass_.name


class Observer(Protocol):
    """Called before and after each step of a pipeline."""

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
    """An observer that accumulates the seconds of each step."""

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
    """Run the steps in order on all functions of the module."""
    ctx.module = module
    for step in steps:
        if (step.when and step.when not in ctx.features) or not ctx.enabled(step.name):
            continue
        for observer in observers:
            observer.before(step, module)
        changed = False
        for function in list(module.functions.values()):
            if function.name in module.functions:
                changed |= step.pass_(function, ctx)
        for observer in reversed(observers):
            observer.after(step, module, changed)


def steps_after(steps: Sequence[Step], name: str) -> Sequence[Step]:
    """The steps after the first one of this name."""
    return steps[[step.name for step in steps].index(name) + 1 :]


def check_order(steps: Sequence[Step], order: Sequence[tuple[Pass, Pass, str]]) -> None:
    """Raise AssertionError if a pipeline violates a (first, then, reason) constraint."""
    for first, then, reason in order:
        firsts = [i for i, s in enumerate(steps) if s.pass_ is first]
        thens = [i for i, s in enumerate(steps) if s.pass_ is then]
        assert not (firsts and thens) or firsts[0] < thens[0], (
            f"{first.name} must run before {then.name}: {reason}"
        )
