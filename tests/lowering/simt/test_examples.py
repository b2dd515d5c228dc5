"""The examples that show more of the language, on the emulated GPU against the interpreter."""

from __future__ import annotations

import numpy as np
import pytest

from tests.gpu import examples
from tests.gpu.programs import At, Job, difference, interpreted, source_of
from tests.lowering.simt.harness import run_emulated
from tilewright.compiler.source import CONSTEXPR
from tilewright.targets import registry

JOBS = (
    Job(examples.top_k, (2, 300, 5)),
    Job(examples.count_tones, (5000,)),
    Job(examples.tone_table, (1000,)),
    Job(examples.look_up_tones, (1500,)),
    Job(examples.describe_shares, (1200, 7)),
    Job(examples.carry_between_shares, (300,)),
    Job(examples.scan_shares, (1200, 7)),
    Job(examples.quantized_matmul, ("fp16", 21, 40, 150, (16, 32))),
    Job(examples.convolution, (31, 7, 14)),
)


@pytest.mark.parametrize(("warps", "lanes"), [(1, 8), (4, 8), (2, 64)])
@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.name)
def test_example(job: Job, warps: int, lanes: int) -> None:
    program = job.recipe(*job.params)
    source, everything = source_of(program)
    target = registry.target("cpu")
    module = source.module(target.frontend_options(target.parse_options({})))
    expected = interpreted(program, module)
    types = source.signature.values()
    values = [v for v, type in zip(everything, types, strict=True) if type != CONSTEXPR]
    args = [v.array.copy() if isinstance(v, At) else v for v in values]
    x, y, z = (*program.grid, 1, 1)[:3]
    run_emulated(module, (x, y, z), args, warps=warps, lanes=lanes)
    arrays = [a for a in args if isinstance(a, np.ndarray)]
    for place, (array, reference) in enumerate(zip(arrays, expected, strict=True)):
        problem = difference(array, reference, program.bound)
        assert not problem, f"array {place} {problem}"
