"""Random loops of products after all passes, on the machine that ends all late."""

from __future__ import annotations

import random
from math import prod

import pytest

from tests.async_machine import AsyncMachine
from tests.fuzz.disabled import random_disabled
from tests.fuzz.products import random_options, random_products
from tests.gpu.programs import Program, interpreted, source_of
from tests.ir_values import same_bits
from tilewright.compiler.build import context_for
from tilewright.compiler.pipeline import pipeline
from tilewright.ir.core import Module
from tilewright.ir.passes import Verifier, run
from tilewright.ops.gpu import BlockId
from tilewright.passes.verify_layouts import LayoutVerifier
from tilewright.targets.nvidia.target import NvidiaTarget

CHIPS = {90: "choose_mma", 100: "choose_tensor_mma"}
"""Chips, and the pass that is never disabled: it chooses what the tests are about."""


def _blocks(program: Program, module: Module, seed: int) -> int | None:
    """The number of blocks that run the programs, fewer or more than these; None if each is one."""
    if not any(isinstance(op, BlockId) for op in module.walk()):
        return None
    return random.Random(seed).randint(1, prod(program.grid) + 1)


@pytest.mark.parametrize("chip", CHIPS)
def test_random_products_agree(chip: int, fuzz_seed: int) -> None:
    target = NvidiaTarget(chip)
    program = random_products(fuzz_seed)
    options = target.parse_options({"enable_fp_fusion": False, **random_options(fuzz_seed)})
    source, _ = source_of(program)
    expected = interpreted(program, source.module(target.frontend_options(options)))
    module = source.module(target.frontend_options(options))
    ctx = context_for(target, options)
    ctx.disabled = random_disabled(fuzz_seed, pipeline(target)) - {CHIPS[chip]}
    run(module, pipeline(target), ctx, [Verifier(), LayoutVerifier(ctx)])
    spare = fuzz_seed % 3 != 0
    with AsyncMachine(fuzz_seed if fuzz_seed % 2 else None, spare=spare) as machine:
        found = interpreted(program, module, _blocks(program, module, fuzz_seed))
    machine.check_idle()
    for actual, array in zip(found, expected, strict=True):
        assert same_bits(actual, array)
