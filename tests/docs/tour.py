"""Generates the dumps of docs/tour.md from its kernel, by ``python -m tests.docs.tour``.

A dump is the code block after a line ``<!-- dump: NAME -->``. Its processor is a
fixed one, whatever the machine, so that it is the same everywhere; only the two that LLVM makes
change with LLVM's version, which the page names.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import llvmlite.binding as llvm
import numpy as np

from tests.docs import tour_kernel
from tilewright.base.llvm_version import llvm_version
from tilewright.compiler.pipeline import pipeline
from tilewright.compiler.source import ASTSource
from tilewright.ir.core import Module
from tilewright.ir.passes import PassContext, Step, run
from tilewright.ir.printer import print_module
from tilewright.runtime.specialize import Key
from tilewright.targets import registry
from tilewright.targets.cpu import emit
from tilewright.targets.cpu.codegen import generate
from tilewright.targets.cpu.machine import Machine
from tilewright.targets.cpu.plan_loops import plan_function
from tilewright.targets.cpu.print_plan import print_plan
from tilewright.tools.load import source_of

PAGE = Path(__file__).parents[2] / "docs" / "tour.md"

DUMP = re.compile(r"(<!-- dump: (\w+) -->\n```\w*\n)(.*?)(^```$)", re.DOTALL | re.MULTILINE)
LLVM_DUMPS = {"version", "assembly"}
"""The dumps that may change with LLVM's version."""

HASWELL_FEATURES = """
    64bit avx avx2 bmi bmi2 cmov cx16 cx8 f16c fma fxsr lzcnt movbe popcnt
    sse sse2 sse3 sse4.1 sse4.2 ssse3
"""
HASWELL = Machine(
    "x86_64-unknown-linux-gnu",
    "haswell",
    frozenset(HASWELL_FEATURES.split()),
)
"""A widespread kind of processor: AVX2 and fused multiply-add."""


class _Snapshots:
    """An observer that keeps the text of the module after each step."""

    def __init__(self) -> None:
        self.after_step: dict[str, str] = {}
        self.changed_by: list[str] = []
        self.text = ""

    def before(self, step: Step, module: Module) -> None:
        self.text = print_module(module)

    def after(self, step: Step, module: Module, changed: bool) -> None:
        text = print_module(module)
        self.after_step[step.name] = text
        if text != self.text:
            self.changed_by.append(step.name)


def source() -> ASTSource:
    kernel = tour_kernel.rms_norm
    return source_of(kernel, *tour_kernel.__tilewright_signatures__["rms_norm"])


def front_end() -> Module:
    target = registry.target("cpu")
    return source().module(target.frontend_options(target.parse_options({})))


@cache
def passes() -> tuple[Module, _Snapshots]:
    """The module after all tile passes, and what was seen on the way."""
    module, seen = front_end(), _Snapshots()
    run(module, pipeline(registry.target("cpu")), PassContext(), [seen])
    return module, seen


@cache
def llvm_ir() -> str:
    return generate(passes()[0], HASWELL)[0]


@cache
def assembly() -> str:
    llvm.initialize_all_targets()  # on an ARM machine too
    llvm.initialize_all_asmprinters()
    optimised, _ = emit.compile_text(llvm_ir(), HASWELL)
    return emit.assembly(optimised, HASWELL)


def _aligned(elements: int) -> np.ndarray:
    """An fp32 array at an address that 16 divides, as large ones are anyway."""
    memory = np.zeros(4 * elements + 16, np.uint8)
    start = -memory.ctypes.data % 16
    return memory[start : start + 4 * elements].view(np.float32)


def variant() -> str:
    """What a launch looks a compiled kernel up by."""
    x, out = _aligned(1000 * 304), _aligned(1000 * 304)
    key = Key(*tour_kernel.rms_norm.binder(x, out, 304, 300, BLOCK=512)[2])
    names = ("x_ptr", "out_ptr", "stride", "n", "BLOCK")
    specs = [f"{name:<9}{spec}" for name, spec in zip(names, key.specs, strict=True)]
    return "\n".join([*specs, f"devices  {key.devices}", f"aliases  {key.aliases}"]) + "\n"


def plan() -> str:
    """The steps of the CPU target's plan."""
    fn = passes()[0].entry
    return print_plan(fn, plan_function(fn))


def block_with(text: str, expected: str) -> str:
    """The first loop of LLVM IR or assembly with `expected`, from its label to its jump."""
    lines = text.splitlines()
    for i, line in enumerate(lines):
        label = re.match(r"(\.?\w+):", line)
        if label is None:
            continue
        name = re.escape(label[1])
        for j in range(i + 1, len(lines)):
            if re.match(r"\.?\w+:", lines[j]):
                break
            if re.search(rf"\b(br i1 .*%{name}\b|j\w+\s+{name}$)", lines[j]):
                body = "\n".join(lines[i : j + 1])
                if expected in body:
                    return body + "\n"
                break
    raise AssertionError(f"no loop holds {expected}")


DUMPS: dict[str, Callable[[], str]] = {
    "source": lambda: "\n\n".join(
        inspect.getsource(f.fn) for f in (tour_kernel.mean_square, tour_kernel.rms_norm)
    ),
    "variant": variant,
    "front_end": lambda: print_module(front_end()),
    "changed_by": lambda: "\n".join(passes()[1].changed_by) + "\n",
    "inline": lambda: passes()[1].after_step["inline"],
    "pointers": lambda: passes()[1].after_step["canonicalize_pointers"],
    "tile_ir": lambda: print_module(passes()[0]),
    "plan": plan,
    "llvm": lambda: block_with(llvm_ir(), "load <8 x float>"),
    "version": lambda: llvm_version() + "\n",
    "assembly": lambda: block_with(assembly(), "vfmadd"),
}


def dumps_of(page: str) -> dict[str, str]:
    """The dumps that the page has, by name."""
    return {name: text for _, name, text, _ in DUMP.findall(page)}


def renewed(page: str) -> str:
    """The page with all dumps regenerated."""
    return DUMP.sub(lambda m: m[1] + DUMPS[m[2]]() + m[4], page)


if __name__ == "__main__":
    PAGE.write_text(renewed(PAGE.read_text("utf-8")), "utf-8")
    sys.stdout.write(f"wrote {PAGE}\n")
