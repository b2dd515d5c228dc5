"""The code size of the large forms is linear in the unrolled length."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.gpu.compile_time import LARGE, Kernel, source
from tilewright.compiler.build import context_for
from tilewright.compiler.pipeline import pipeline
from tilewright.ir.passes import run
from tilewright.lowering.simt.notes import carried_registers
from tilewright.targets.gpu.codegen import ThreadCode, thread_code
from tilewright.targets.nvidia import emit
from tilewright.targets.nvidia.notes import ptx_version
from tilewright.targets.nvidia.target import NvidiaTarget


def generated(kernel: Kernel, **constants: int) -> ThreadCode:
    kernel = replace(kernel, constants={**kernel.constants, **constants})
    target = NvidiaTarget(90)
    options = target.parse_options(kernel.options)
    ctx = context_for(target, options)
    module = source("tilewright", kernel).module(target.frontend_options(options))
    run(module, pipeline(target), ctx)
    return thread_code(module, target, ctx, options)


def ptx_lines(kernel: Kernel, **constants: int) -> int:
    made, chip = generated(kernel, **constants), NvidiaTarget(90).processor
    version = max(chip.ptx_version, ptx_version(made.notes))
    ptx = emit.compile_text(made.llvm, chip.llvm_cpu, version)[1]
    return ptx.count("\n")


@pytest.mark.parametrize(
    ("place", "parameter", "values"),
    [
        ("large.combine_parts", "UNROLL", (1, 2, 4)),
        ("large.convolve_volume", "WIDE", (1, 2, 4)),
    ],
)
def test_code_size_is_proportional_to_unrolling(
    place: str, parameter: str, values: tuple[int, int, int]
) -> None:
    kernel = next(kernel for kernel in LARGE.values() if kernel.place == place)
    small = {"DEEP": 1, "HIGH": 1} if "DEEP" in kernel.constants else {}
    few, more, many = (ptx_lines(kernel, **small, **{parameter: value}) for value in values)
    assert many - more <= 2.5 * (more - few) + 200


@pytest.mark.parametrize("name", LARGE)
def test_large_forms_stay_small_enough(name: str) -> None:
    assert ptx_lines(LARGE[name]) < 40_000


@pytest.mark.parametrize(("rows", "carried"), [(256, 2 * (32 + 1)), (2048, 256 + 1)])
def test_registers_that_a_loop_carries(rows: int, carried: int) -> None:
    """A tile of fp32 over 128 threads, and the index; a short tile also one iteration ahead."""
    kernel = LARGE["columns normalised, 2048 x 16"]
    assert carried_registers(generated(kernel, ROWS=rows).notes) == carried
