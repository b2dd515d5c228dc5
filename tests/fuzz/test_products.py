"""Random loops of products after all passes for an H200, on the machine that ends all late."""

from __future__ import annotations

import random
from math import prod

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

TARGET = NvidiaTarget(90)


def _blocks(program: Program, module: Module, seed: int) -> int | None:
    """The number of blocks that run the programs, fewer or more than these; None if each is one."""
    if not any(isinstance(op, BlockId) for op in module.walk()):
        return None
    return random.Random(seed).randint(1, prod(program.grid) + 1)


def test_random_products_agree(fuzz_seed: int) -> None:
    program = random_products(fuzz_seed)
    options = TARGET.parse_options({"enable_fp_fusion": False, **random_options(fuzz_seed)})
    source, _ = source_of(program)
    expected = interpreted(program, source.module(TARGET.frontend_options(options)))
    module = source.module(TARGET.frontend_options(options))
    ctx = context_for(TARGET, options)
    ctx.disabled = random_disabled(fuzz_seed, pipeline(TARGET)) - {"choose_mma"}
    run(module, pipeline(TARGET), ctx, [Verifier(), LayoutVerifier(ctx)])
    spare = fuzz_seed % 3 != 0
    with AsyncMachine(fuzz_seed if fuzz_seed % 2 else None, spare=spare) as machine:
        found = interpreted(program, module, _blocks(program, module, fuzz_seed))
    machine.check_idle()
    for actual, array in zip(found, expected, strict=True):
        assert same_bits(actual, array)
