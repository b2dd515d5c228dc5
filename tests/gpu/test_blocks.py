"""Block pointers, tensor descriptors and atomics on a GPU, against the interpreter."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from itertools import cycle, product
from typing import Any

import numpy as np
import pytest
import torch

import tilewright as tw
import tilewright.language as tl
from tests.gpu import blocks
from tests.gpu.harness import Ahead, run
from tests.gpu.programs import Job
from tilewright.tools.tensor_descriptor import TensorDescriptor

WARPS = (1, 2, 4, 8)
AHEAD = 64  # jobs that are prepared in advance
WIDE_INTEGERS = ("i32", "u32", "i64", "u64")
STORED = ("i1", "i8", "u8", "i16", "u16", *WIDE_INTEGERS, "fp16", "bf16", "fp32", "fp64", "fp8e5",
          "fp8e4nv")  # fmt: skip
ATOMICS = {
    "add": (*WIDE_INTEGERS, "fp16", "bf16", "fp32", "fp64"),
    **dict.fromkeys(("max", "min", "xchg"), (*WIDE_INTEGERS, "fp32", "fp64")),
    **dict.fromkeys(("and", "or", "xor"), WIDE_INTEGERS),
}


def _copies() -> Iterator[Job]:
    warps = cycle(WARPS)
    for type, order, (size, shift) in product(
        STORED[1:], "rc", (((64, 64), 0), ((50, 70), 3), ((50, 70), -5))
    ):
        params = type, size, order, shift
        yield Job(blocks.pointer_copy, params, {"num_warps": next(warps)})


def _products() -> Iterator[Job]:
    for kernel, type, stages in product(
        ("pointers", "descriptors"), ("fp16", "bf16"), (1, 2, 3, 4)
    ):
        for shape in ((128, 128, 128), (80, 72, 88), (64, 64, 32)):
            for warps in (4, 8):
                options = {"num_warps": warps, "num_stages": stages}
                yield Job(blocks.product, (kernel, type, shape, 32), options)


def _rows() -> Iterator[Job]:
    for type, column in product(("fp32", "fp16", "i32", "i64"), (0, 17, 40, -5)):
        yield Job(blocks.rows, (type, column), {"num_warps": 2})


def _atomics() -> Iterator[Job]:
    warps = cycle(WARPS)
    orders = cycle(product(("relaxed", "acquire", "release", "acq_rel"), ("gpu", "cta", "sys")))
    for kind, types in ATOMICS.items():
        for type in types:
            yield Job(blocks.atomic, (kind, type, *next(orders)), {"num_warps": next(warps)})
            if kind != "xchg":
                yield Job(blocks.contended, (kind, type), {"num_warps": next(warps)})
    for type in STORED:
        for load, store in (("acquire", "release"), ("relaxed", "relaxed")):
            scope = next(orders)[1]
            yield Job(blocks.atomic_copy, (type, load, store, scope), {"num_warps": next(warps)})
    for programs, count in product((2, 16, 64), WARPS):
        yield Job(blocks.relay, (programs,), {"num_warps": count})


def _advice() -> Iterator[Job]:
    types = cycle(("i8", "fp16", "fp32", "i64"))
    for load, store in ((".ca", ".wb"), (".cg", ".cg"), (".cs", ".cs"), (".cv", ".wt"), ("", "")):
        for evict, volatile in product(("", "evict_first", "evict_last"), (False, True)):
            yield Job(blocks.advice, (next(types), load, store, evict, volatile))


JOBS: list[Job] = list(
    {j.name: j for f in (_copies, _products, _rows, _atomics, _advice) for j in f()}.values()
)


@pytest.fixture(scope="module")
def ahead(pool: Executor) -> Ahead:
    return Ahead(pool, JOBS, AHEAD)


@pytest.mark.gpu
@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.name)
def test_kernel_agrees(job: Job, ahead: Ahead) -> None:
    run(ahead.get(job))


def _samples() -> Sequence[Job]:
    return JOBS[:: len(JOBS) // 12]


@pytest.mark.parametrize("job", _samples(), ids=lambda job: job.name)
def test_job_can_be_prepared(job: Job) -> None:
    """Without a GPU: it compiles, and the expected results are the interpreter's."""
    prepared = job.prepare()
    assert prepared.kernel.asm["cubin"]
    assert any(isinstance(e, np.ndarray) and e.size for e in prepared.expected)


@tw.jit
def scaled(source, target, factor):
    row = tl.program_id(0) * source.block_shape[0]
    column = tl.program_id(1) * source.block_shape[1]
    target.store([row, column], source.load([row, column]) * factor)


@pytest.mark.gpu
def test_descriptors_of_torch_tensors() -> None:
    x: Any = torch.randn(100, 72, device="cuda")
    for block in ([16, 32], [32, 8]):
        y = torch.zeros_like(x)
        descriptors = [TensorDescriptor.from_tensor(t, [1, 1]) for t in (x, y)]
        for descriptor in descriptors:
            descriptor.block_shape = block
        grid = tw.cdiv(100, block[0]), tw.cdiv(72, block[1])
        for factor in (2.0, 3.0):
            scaled[grid](*descriptors, factor)
            assert torch.equal(y, x * factor)
