"""Compile a kernel and collect the contents of its report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tilewright.compiler.build import context_for, lower
from tilewright.compiler.driver import compile_source
from tilewright.compiler.pipeline import STEPS, pipeline
from tilewright.ir.core import Module
from tilewright.ir.passes import PassContext, Remark, Step, run
from tilewright.layout.linear import LinearLayout
from tilewright.targets import registry
from tilewright.targets.protocol import (
    GPUTarget,
    Lowered,
    ReportsResources,
    Stage,
    Target,
    options_dict,
)
from tilewright.tools.explain.accesses import AccessSummary, accesses_of
from tilewright.tools.explain.cost import Cost, cost_of
from tilewright.tools.explain.launch import Launch, described_arguments
from tilewright.tools.explain.layouts import layouts_of
from tilewright.tools.explain.listings import Listing, code_listing, tile_listing
from tilewright.tools.explain.report import LocatedRemark, PassRun, Report, ResourceUse
from tilewright.tools.explain.roofline import roofline_of
from tilewright.tools.explain.sources import SourceMap, note_calls, source_map

TITLES = {"llir": "LLVM IR", "ptx": "PTX", "asm": "Assembly", "sass": "SASS"}
DERIVED = ("asm", "sass")  # disassembly, which targets derive from binaries
SHOWN_ELSEWHERE = ("ttir", "ttgir")  # shown as tile IR with locations


class _Watcher:
    """An observer that records the IR before and after the tile passes, and the effect of each
    pass."""

    def __init__(self, module: Module, sources: SourceMap, ctx: PassContext) -> None:
        self.sources = sources
        self.ctx = ctx
        self.listings = [tile_listing("front", "As written", module, sources)]
        self.passes: list[PassRun] = []
        self.accesses: list[AccessSummary] = []
        self._counts: Counter[str] = Counter()

    def before(self, step: Step, module: Module) -> None:
        self._counts = Counter(self.ctx.counts)

    def after(self, step: Step, module: Module, changed: bool) -> None:
        self.passes.append(PassRun(step.name, changed, dict(self.ctx.counts - self._counts)))
        if step is STEPS[-1]:
            self.listings.append(tile_listing("tile", "Tile IR", module, self.sources))
            self.accesses = accesses_of(module.entry, self.sources)


def gather(
    launch: Launch, device: GPUTarget, target: Target, options: Any, model: str = ""
) -> tuple[Report, list[LinearLayout]]:
    """The report of a launch, and the layouts of `Report.layouts`, in the same order.

    Args:
        options: the target's parsed options.
        model: the device of the roofline; "" for the first one known for the target.

    Raises:
        CompilationError: the kernel is invalid.
        UsageError: the model is unknown.
    """
    source = launch.source
    module = source.module(target.frontend_options(options))
    sources = source_map(module)
    ctx = context_for(target, options, explain=True)
    watcher = _Watcher(module, sources, ctx)
    steps = pipeline(target)
    try:
        lowered = lower(module, target, options, steps, [watcher], ctx)
    except Exception:
        # The ordinary driver raises the user-facing error and writes a reproducer.
        compile_source(source, device, options)
        raise
    listings = [*watcher.listings]
    if any(value.layout for op in module.entry.walk() for value in op.results):
        listings.append(tile_listing("laid_out", "With layouts", module, sources))
    note_calls(sources, module)
    stages = {**lowered.stages, **_derived(target, lowered)}
    listings += _code(stages, sources)
    layouts, shapes = layouts_of(module, _laid_out(listings), sources)
    cost, note = _cost(launch, target, options, sources)
    report = Report(
        kernel=source.name,
        place=_place(sources),
        target=_target(device, options),
        arguments=described_arguments(source),
        options=_unusual(target, options),
        origin=launch.origin,
        sources=sources.blocks,
        listings=listings,
        remarks=_located(ctx.remarks, sources),
        accesses=watcher.accesses,
        resources=_resource_uses(target, stages, lowered.metadata),
        layouts=layouts,
        passes=_in_order(steps, watcher.passes, target),
        cost=cost,
        cost_note=note,
        roofline=roofline_of(cost, device, model),
        assembler=str(lowered.metadata.get("assembler", "")),
    )
    return report, shapes


def _place(sources: SourceMap) -> str:
    """``file:line`` of the kernel, relative to the current folder if it is inside."""
    if not sources.blocks:
        return ""
    path = Path(sources.blocks[0].file).resolve()
    here = Path.cwd()
    shown = path.relative_to(here) if path.is_relative_to(here) else path
    return f"{shown}:{sources.blocks[0].first}"


def _target(device: GPUTarget, options: Any) -> str:
    """The target, with its architecture if it has one."""
    arch = device.arch or getattr(options, "arch", "")
    return f"{device.backend}:{arch}" if arch != "" else device.backend


def _laid_out(listings: Sequence[Listing]) -> Listing | None:
    return next((listing for listing in listings if listing.key == "laid_out"), None)


def _derived(target: Target, lowered: Lowered) -> dict[str, Stage]:
    result: dict[str, Stage] = {}
    for name in DERIVED:
        try:
            result[name] = registry.derived(target, name, lowered.stages, lowered.metadata)
        except KeyError:
            continue
    return result


def _code(stages: dict[str, Stage], sources: SourceMap) -> Iterator[Listing]:
    for name, stage in stages.items():
        if isinstance(stage, str) and name not in SHOWN_ELSEWHERE:
            yield code_listing(name, TITLES.get(name, name), stage, sources)


def _cost(
    launch: Launch, target: Target, options: Any, sources: SourceMap
) -> tuple[Cost | None, str]:
    if launch.grid is None:
        return None, "give the grid and the arguments' values: --grid 97 --arg n=98432"
    module = launch.source.module(target.frontend_options(options))
    run(module, STEPS, PassContext())
    cost = cost_of(module.entry, launch.grid, launch.values, sources)
    return cost, "; ".join(cost.notes)


def _unusual(target: Target, options: Any) -> dict[str, Any]:
    """The options that differ from their defaults, and those that are commonly tuned."""
    usual, given = options_dict(target.parse_options({})), options_dict(options)
    tuned = ("num_warps", "num_stages")
    return {
        name: value
        for name, value in given.items()
        if value != usual.get(name) or (name in tuned and len(target.steps()))
    }


def _located(remarks: Sequence[Remark], sources: SourceMap) -> list[LocatedRemark]:
    """The remarks without duplicates, missed optimisations first. Code that is compiled twice, such
    as a loop body and its peeled copy, yields the same remark twice."""
    found: dict[tuple[Any, ...], LocatedRemark] = {}
    for remark in remarks:
        lines = sources.of(remark.loc)
        place = ""
        if lines:
            block, line = sources.place(lines[0])
            place = f"{block.file}:{line}"
        key = remark.by, place, remark.text.split(":")[0]
        found.setdefault(key, LocatedRemark(remark.by, remark.text, remark.missed, lines, place))
    return sorted(found.values(), key=lambda remark: (not remark.missed, remark.lines[-1:]))


def _resource_uses(
    target: Target, stages: dict[str, Stage], metadata: dict[str, Any]
) -> list[ResourceUse]:
    if not isinstance(target, ReportsResources):
        return []
    return [
        ResourceUse(r.name, r.used, r.limit, r.unit, r.note, r.missed)
        for r in target.resources(stages, metadata)
    ]


def _in_order(steps: Sequence[Step], done: Sequence[PassRun], target: Target) -> list[PassRun]:
    """The passes in pipeline order: those that ran, and those that the target skips."""
    ran = iter(done)
    return [
        PassRun(step.name, False, {}, f"{target.name} has no {step.when}")
        if step.when and step.when not in target.features()
        else next(ran)
        for step in steps
    ]
