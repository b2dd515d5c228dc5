"""Kernels for older chips run on a newer GPU, whose driver compiles their PTX.

So the matrix instructions and the passes that these chips have instead of Hopper's are executed:
`mma.sync` of all shapes, asynchronous copies without tensor maps, and, for sm_75, loads through
registers.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor
from dataclasses import dataclass
from itertools import cycle, product

import pytest

from tests.gpu import examples, products
from tests.gpu.harness import Ahead, run
from tests.gpu.programs import Job, Prepared, prepare
from tilewright.base import knobs
from tilewright.targets.protocol import GPUTarget

CHIPS = (75, 80, 89)


@dataclass(frozen=True)
class OnChip:
    """A job whose kernel is PTX for a chip."""

    chip: int
    job: Job

    @property
    def name(self) -> str:
        return f"sm_{self.chip}-{self.job.name}"

    def prepare(self) -> Prepared:
        program = self.job.recipe(*self.job.params)
        with knobs.nvidia.scope():
            knobs.nvidia.assembler = "driver"
            gpu = GPUTarget("cuda", self.chip, 32)
            return prepare(program, self.name, self.job.options, gpu)


def _jobs() -> Iterator[OnChip]:
    orders, warps = cycle(("nn", "nt", "tn", "tt")), cycle((1, 2, 4, 8))
    kinds = (("fp16", "fp16"), ("fp16", "fp32"), ("bf16", "fp32"), ("i8", "i32"),
             ("fp8e4nv", "fp32"), ("fp8e5", "fp16"), ("fp32", "fp32"))  # fmt: skip
    sizes = (((200, 136, 104), (64, 64, 32)), ((256, 256, 192), (32, 32, 64)))
    for chip, (type, out), (shape, tile), stages in product(CHIPS, kinds, sizes, (1, 3)):
        options = {"num_warps": next(warps), "num_stages": stages}
        params = type, out, next(orders), shape, tile
        yield OnChip(chip, Job(products.matmul, params, options))
    kinds = (("fp64", "fp64"), ("fp16", "fp16"), ("i8", "i32"))
    for chip, (type, acc), shape in product(
        CHIPS, kinds, ((16, 16, 32), (64, 32, 64), (128, 64, 32))
    ):
        options = {"num_warps": next(warps)}
        yield OnChip(chip, Job(products.dot, (type, acc, shape), options))
    for chip, job in product(CHIPS, list(examples.jobs())[::4]):
        yield OnChip(chip, job)


JOBS = list(_jobs())


@pytest.fixture(scope="module")
def ahead(pool: Executor) -> Ahead:
    return Ahead(pool, JOBS, 64)


@pytest.mark.gpu
@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.name)
def test_kernel_for_an_older_chip(job: OnChip, ahead: Ahead) -> None:
    run(ahead.get(job))


@pytest.mark.parametrize("chip", CHIPS)
def test_kernels_for_a_chip_compile(chip: int) -> None:
    """Without a GPU: what the test above runs can be prepared."""
    job = next(job for job in JOBS if job.chip == chip)
    assert f".target sm_{chip}" in job.prepare().kernel.asm["ptx"]
