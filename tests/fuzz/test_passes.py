"""Random kernels mean the same after passes in any order, and are valid after each."""

import numpy as np

from tests.arrays import copied
from tests.fuzz.ir_generator import GRID, random_args, random_module
from tests.ir_values import same_bits
from tilewright.compiler.pipeline import STEPS
from tilewright.ir.core import Module
from tilewright.ir.interpret import interpret
from tilewright.ir.memory import Checks
from tilewright.ir.parser import parse_module
from tilewright.ir.passes import PASSES, PassContext, Step, run
from tilewright.ir.printer import print_module
from tilewright.ir.verify import verify_module

TILE_PASSES = sorted({step.name for step in STEPS})


def _outcome(module: Module, args: list[np.ndarray]) -> list[np.ndarray]:
    copies = copied(args)
    interpret(module, GRID, copies)
    return copies


def test_passes_in_random_order_preserve_semantics(fuzz_seed: int) -> None:
    rng = np.random.default_rng(fuzz_seed)
    module = random_module(rng, size=int(rng.integers(5, 40)))
    verify_module(module)
    args = random_args(module, rng)
    # Elsewhere programs run in any order, so a generated kernel must not rely on one.
    interpret(module, GRID, copied(args), checks=Checks(races=True))
    expected = _outcome(module, args)
    for name in rng.choice(TILE_PASSES, size=6):
        text = print_module(module)
        run(module, [Step(PASSES[name])], PassContext())
        verify_module(module)
        for i, (x, y) in enumerate(zip(_outcome(module, args), expected, strict=True)):
            assert same_bits(x, y), f"{name} changed what argument {i} holds, of:\n{text}"


def test_pass_that_reports_no_change_changed_nothing(fuzz_seed: int) -> None:
    rng = np.random.default_rng(fuzz_seed)
    module = random_module(rng, size=20)
    for name in (*TILE_PASSES, *TILE_PASSES):
        before = print_module(module)
        changed = PASSES[name](module.entry, PassContext(module=module))
        assert changed == (print_module(module) != before), name


def test_passes_are_idempotent(fuzz_seed: int) -> None:
    """One sweep reaches the fixed point: cleaning up again would cost compile time for nothing."""
    rng = np.random.default_rng(fuzz_seed)
    module = random_module(rng, size=20)
    for name in TILE_PASSES:
        PASSES[name](module.entry, PassContext(module=module))
        assert not PASSES[name](module.entry, PassContext(module=module)), name


def test_random_kernel_reads_back_as_printed(fuzz_seed: int) -> None:
    text = print_module(random_module(np.random.default_rng(fuzz_seed), size=20))
    assert print_module(parse_module(text)) == text
