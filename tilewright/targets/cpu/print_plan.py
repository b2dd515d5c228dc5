"""Prints a plan as text, for `python -m tilewright show` and tests.

    plan @scale
      %4 = program.id axis=0 : () -> i32
      loop over 512
        keep %9 = math.exp %8, fast=False : 512xfp32 -> 512xfp32
        %10 = tile.reduce [%9], axis=0 : 512xfp32 -> fp32
      loop over 512
        mem.store %6, %9, _, cache="", evict="" : (512xptr<fp32>, 512xfp32) -> ()

Steps are printed in execution order, those of a region indented below its op. `prefetch` lists the
pointers whose memory a loop prefetches: for the next program's loads, and for later stores.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tilewright.ir.core import Function, Region, Value
from tilewright.ir.printer import printed_parts
from tilewright.targets.cpu.plan import Group, Plan, Run


def print_plan(fn: Function, plan: Plan) -> str:
    """The text of a function's plan."""
    lines = [f"plan @{fn.name}", *_Printer(fn, plan).region(fn.body, "  ")]
    return "\n".join(lines) + "\n"


class _Printer:
    def __init__(self, fn: Function, plan: Plan) -> None:
        self.heads, self.names = printed_parts(fn)
        self.plan = plan

    def region(self, region: Region, indent: str) -> Iterator[str]:
        for step in self.plan.steps[region]:
            if isinstance(step, Group):
                yield from self.group(step, indent)
            else:
                yield from self.run(step, indent)

    def run(self, step: Run, indent: str) -> Iterator[str]:
        yield f"{indent}{self.heads[step.op]}"
        planned = [r for r in step.op.regions if r in self.plan.steps]
        for i, region in enumerate(planned):
            if i:
                yield f"{indent}}} {{"
            yield from self.region(region, indent + "  ")

    def group(self, group: Group, indent: str) -> Iterator[str]:
        head = f"loop over {'x'.join(map(str, group.shape))}"
        if group.transposed is not None:
            head += f", transposed from axis {group.transposed[0]} to {group.transposed[1]}"
        yield indent + head
        inner = indent + "  "
        for value in group.keep:
            if value.op is not None:
                yield f"{inner}keep {self.heads[value.op]}"
        for op in group.roots:
            yield inner + self.heads[op]
        planned = self.plan.prefetches.get(group)
        if planned is not None:
            yield from self.prefetches("reads", planned.reads, inner)
            yield from self.prefetches("writes", planned.writes, inner)

    def prefetches(self, kind: str, pointers: Sequence[Value], indent: str) -> Iterator[str]:
        if pointers:
            yield f"{indent}prefetch {kind} {', '.join(self.names[p] for p in pointers)}"
