"""Random loops of products leave the same memory on a GPU and in the interpreter.

pytest tests/gpu/test_products.py --fuzz-count=500 --fuzz-seed=random    # 5,000 of them
"""

from __future__ import annotations

from concurrent.futures import Executor
from dataclasses import dataclass

import pytest

from tests.fuzz.disabled import random_disabled
from tests.fuzz.products import random_options, random_products
from tests.gpu.batches import BATCH, batch, batches_ahead, run_all
from tests.gpu.harness import Ahead
from tests.gpu.programs import HOPPER, Prepared, prepare
from tilewright.base import knobs
from tilewright.compiler.pipeline import pipeline
from tilewright.runtime.devices.cuda_function import Function
from tilewright.targets.registry import target


@dataclass(frozen=True)
class ProductJob:
    """A random loop of products, with random options."""

    seed: int

    @property
    def name(self) -> str:
        return f"products of seed {self.seed}"

    def prepare(self) -> Prepared:
        program, options = random_products(self.seed), random_options(self.seed)
        # A kernel that was sent has no source from which to compile another one without copies of
        # blocks, if the rows of its matrices do not begin at multiples of 16 bytes.
        narrowest = min(array.itemsize for array in program.args[:2])
        rows = [value * narrowest for value in program.args[-3:]]
        options["tensor_copies"] &= all(size % 16 == 0 for size in rows)
        disabled = random_disabled(self.seed, pipeline(target(HOPPER))) - {"choose_mma"}
        with knobs.nvidia.scope(), knobs.compilation.scope():
            knobs.nvidia.strict_products = False  # arithmetic on sums in flight may serialise them
            knobs.compilation.disabled_passes = ",".join(disabled)
            return prepare(program, f"{self.name}, {options}", options)


@pytest.fixture(scope="module")
def ahead(pool: Executor, request: pytest.FixtureRequest) -> Ahead:
    return batches_ahead(ProductJob, pool, request)


@pytest.mark.gpu
def test_random_products_agree(fuzz_seed: int, ahead: Ahead) -> None:
    run_all(batch(ProductJob, fuzz_seed), ahead)


@pytest.mark.gpu
@pytest.mark.parametrize("blocks", [1, 3])
def test_random_products_agree_on_few_blocks(
    fuzz_seed: int, blocks: int, ahead: Ahead, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a GPU on which fewer blocks are resident than there are programs."""
    monkeypatch.setattr(Function, "_resident_blocks", lambda _: blocks)
    run_all(batch(ProductJob, fuzz_seed), ahead)


def test_random_products_compile(fuzz_seed: int) -> None:
    """Without a GPU: what the test above runs compiles, with all its options."""
    prepared = batch(ProductJob, fuzz_seed)[fuzz_seed % BATCH].prepare()
    assert prepared.kernel.asm["cubin"]
