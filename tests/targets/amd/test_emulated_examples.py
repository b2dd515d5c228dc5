"""The kernels of the examples, compiled for AMD processors and run on the emulator, leave in memory
what the interpreter leaves.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.amd_emulator.launch import launch, target_of
from tests.gpu.examples import (
    carry_between_shares,
    convolution,
    count_tones,
    describe_shares,
    look_up_tones,
    quantized_matmul,
    scan_shares,
    tone_table,
    top_k,
)
from tests.gpu.products import attention, biased
from tests.gpu.programs import EXACT, At, Job, difference, interpreted, source_of
from tests.gpu.recipes import dropout, giou, layer_norm_forward, softmax, vector_add
from tilewright.compiler.driver import compile
from tilewright.compiler.source import CONSTEXPR
from tilewright.conformance.case import Shifted
from tilewright.targets.registry import target as find_target

JOBS = [
    Job(vector_add, (3000,)),
    Job(softmax, ("fp32", 3, 700)),
    Job(softmax, ("fp16", 2, 300)),
    Job(layer_norm_forward, ("fp32", 2, 300)),
    Job(dropout, (3000, 0.5, 7)),
    Job(giou, ("fp32", 2, 70)),
    Job(top_k, (3, 300, 8)),
    Job(count_tones, (5000,)),
    Job(tone_table, (1000,)),
    Job(look_up_tones, (3000,)),
    Job(describe_shares, (2000, 7)),
    Job(carry_between_shares, (128,)),
    Job(scan_shares, (2000, 7)),
    Job(quantized_matmul, ("fp16", 21, 136, 150, (16, 128))),
    Job(convolution, (61, 7, 26)),
    Job(attention, (64, 128, 128, (64, 32), True, 1), {"num_warps": 4}),
    Job(biased, (2, 64, 32), {"num_warps": 2}),
]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("arch", ["gfx942", "gfx1100"])
@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.name)
def test_example(job: Job, arch: str) -> None:
    program = job.recipe(*job.params)
    source, everything = source_of(program)
    target = target_of(arch)
    options = EXACT | dict(job.options)
    kernel = compile(source, target, options)
    types = source.signature.values()
    args: list[Any] = [
        Shifted(value.array, value.shift) if isinstance(value, At) else value
        for value, type in zip(everything, types, strict=True)
        if type != CONSTEXPR
    ]
    found = launch(kernel.asm["hsaco"], arch, kernel.metadata["num_warps"], program.grid, args)
    expected = program.expected
    if expected is None:
        described = find_target(target)
        frontend = described.frontend_options(described.parse_options(options))
        expected = interpreted(program, source.module(frontend))
    for actual, right in zip(found, expected, strict=True):
        assert difference(actual, right, program.bound) == ""
