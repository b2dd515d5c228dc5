"""The code of the large forms grows with what is unrolled, and no faster."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.gpu.compile_time import LARGE, Kernel, source
from tilewright.compiler.build import context_for
from tilewright.compiler.pipeline import pipeline
from tilewright.ir.passes import run
from tilewright.targets.nvidia import emit
from tilewright.targets.nvidia.codegen import generate
from tilewright.targets.nvidia.target import NvidiaTarget


def ptx_lines(kernel: Kernel, **constants: int) -> int:
    kernel = replace(kernel, constants={**kernel.constants, **constants})
    target = NvidiaTarget(90)
    options = target.parse_options(kernel.options)
    ctx = context_for(target, options)
    module = source("tilewright", kernel).make_ir(target.frontend_options(options))
    run(module, pipeline(target), ctx)
    made = generate(module, options, target.processor.features, ctx)
    chip = target.processor
    ptx = emit.compile_text(made.llvm, chip.llvm_cpu, max(chip.ptx_version, made.ptx_version))[1]
    return ptx.count("\n")


@pytest.mark.parametrize(
    ("place", "parameter", "values"),
    [
        ("large.combine_parts", "UNROLL", (1, 2, 4)),
        ("large.convolve_volume", "WIDE", (1, 2, 4)),
    ],
)
def test_code_grows_with_what_is_unrolled(
    place: str, parameter: str, values: tuple[int, int, int]
) -> None:
    kernel = next(kernel for kernel in LARGE.values() if kernel.place == place)
    small = {"DEEP": 1, "HIGH": 1} if "DEEP" in kernel.constants else {}
    few, more, many = (ptx_lines(kernel, **small, **{parameter: value}) for value in values)
    assert many - more <= 2.5 * (more - few) + 200


@pytest.mark.parametrize("name", LARGE)
def test_large_forms_stay_small_enough(name: str) -> None:
    assert ptx_lines(LARGE[name]) < 40_000
