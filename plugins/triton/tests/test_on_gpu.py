"""The kernels of the examples on a GPU, compiled by Triton's back end for NVIDIA's.

    python -m pytest plugins/triton/tests/test_on_gpu.py

Needs Triton and torch in this environment. `oracle.py` does the same with all jobs of `tests/gpu`.
"""

from __future__ import annotations

import pytest
import torch
from tilewright_triton.driver import TritonDriver

from tests.gpu import examples, products, programs, recipes
from tests.gpu.harness import run
from tests.gpu.programs import Job
from tilewright.targets.protocol import GPUTarget

if not torch.cuda.is_available():
    pytest.skip("needs a CUDA device", allow_module_level=True)

WARPS = {"num_warps": 4}
JOBS = [
    *(job for job in examples.jobs() if job.options == WARPS),
    Job(recipes.vector_add, (5000,), WARPS),
    Job(recipes.softmax, ("fp32", 5, 781), WARPS),
    Job(recipes.dropout, (5000, 0.3, 7), WARPS),
    Job(recipes.layer_norm_forward, ("fp32", 5, 2048), WARPS),
    Job(recipes.layer_norm_backward, (19, 1000, 4), WARPS),
    Job(recipes.sum_shares, (300,), WARPS),
    Job(recipes.giou, ("fp32", 3, 100), WARPS),
    Job(recipes.giou_sum, (9000,), WARPS),
    Job(products.example_matmul, (65, 130, 77, (64, 64, 32)), WARPS),
    Job(products.example_attention, (64, 256, True), WARPS),
]


@pytest.mark.parametrize("job", JOBS, ids=[job.name for job in JOBS])
def test_examples_leave_in_memory_what_they_must(
    job: Job, triton: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not TritonDriver().is_active():
        pytest.skip(f"Triton {triton} is not in this environment")
    major, minor = torch.cuda.get_device_capability()
    gpu = GPUTarget("triton", f"cuda/{10 * major + minor}", 32)
    monkeypatch.setattr(programs, "HOPPER", gpu)
    run(job.prepare())
