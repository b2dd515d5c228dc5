"""Programs with products in tensor memory, and their IR after all passes."""

from __future__ import annotations

from collections import Counter
from typing import Any

from tests.async_machine import AsyncMachine
from tests.gpu import products
from tests.gpu.programs import Program, difference, interpreted, source_of
from tilewright.compiler.build import context_for
from tilewright.compiler.pipeline import pipeline
from tilewright.ir.core import Module, Op
from tilewright.ir.passes import Verifier, run
from tilewright.ops.control import For
from tilewright.passes.verify_layouts import LayoutVerifier
from tilewright.targets.nvidia.target import NvidiaTarget
from tilewright.targets.protocol import GPUTarget

TARGET = NvidiaTarget(100)
CHIP = GPUTarget("cuda", 100, 32)


def lowered(program: Program, **given: Any) -> tuple[Module, Counter[str]]:
    """The program's IR after all passes, and what they have done."""
    options = TARGET.parse_options({"num_warps": 4, "num_stages": 3, **given})
    source, _ = source_of(program)
    module = source.module(TARGET.frontend_options(options))
    ctx = context_for(TARGET, options)
    run(module, pipeline(TARGET), ctx, [Verifier(), LayoutVerifier(ctx)])
    return module, ctx.counts


def check(program: Program, module: Module, seed: int | None = None) -> None:
    """Interpret late; memory must be as the program says, or as the interpreter leaves it."""
    with AsyncMachine(seed) as machine:
        ours = interpreted(program, module)
    machine.check_idle()
    assert program.expected is not None
    for actual, expected in zip(ours, program.expected, strict=True):
        assert not difference(actual, expected, program.bound)


def product(
    steps: int = 5, orders: str = "nt", type: str = "fp16", tile: tuple[int, int] = (128, 32)
) -> Program:
    """A product of one tile, in steps of 128 bytes along K."""
    k = {"fp32": 32, "fp16": 64, "bf16": 64}.get(type, 128)
    result = "i32" if type in ("i8", "u8") else "fp32"
    return products.matmul(type, result, orders, (*tile, k * steps), (*tile, k))


def all_of(module: Module, cls: type[Op]) -> list[Any]:
    """The ops of a class."""
    return [op for op in module.walk() if isinstance(op, cls)]


def insert_before(new: Op, op: Op) -> None:
    """Insert a new or removed op."""
    assert op.parent is not None
    op.parent.insert_before(new, op)


def in_loop(op: Op) -> bool:
    """Whether an op is directly in a loop."""
    return isinstance(op.parent_op(), For)
