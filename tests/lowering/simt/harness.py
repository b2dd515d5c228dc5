"""Runs tile IR on the emulated GPU and on the interpreter, and compares what memory holds after."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tests.arrays import copied
from tests.gpu_machine import EMULATOR, gpu_machine
from tests.ir_values import same_bits
from tests.lowering.simt.emulator import Emulated, EmulatedHardware
from tilewright.compiler.pipeline import STEPS
from tilewright.ir.core import Module
from tilewright.ir.interpret import interpret
from tilewright.ir.machine import ACCESS_BYTES
from tilewright.ir.parser import parse_module
from tilewright.ir.passes import PassContext, Step, Verifier, run
from tilewright.ir.verify import verify_module
from tilewright.targets.gpu.steps import steps

LAYOUT_STEPS = steps()
Grid = tuple[int, int, int]
NO_FEATURES: frozenset[str] = frozenset()


def is_buffer(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.ndim > 0


def laid_out(
    module: Module,
    *,
    warps: int,
    lanes: int,
    disabled: frozenset[str] = frozenset(),
    features: frozenset[str] = NO_FEATURES,
    target: str = EMULATOR,
    layout_steps: Sequence[Step] = LAYOUT_STEPS,
    access_bytes: int = ACCESS_BYTES,
) -> Module:
    """A copy of the module after the passes of a GPU target with these features.

    Args:
        disabled: names of optional passes that do not run.
        layout_steps: the target's; those of all GPUs, unless a maker's own are what is tested.
        access_bytes: the most bytes of an access.
    """
    module = module.clone()
    machine = gpu_machine(lanes=lanes, warps=warps, target=target, access_bytes=access_bytes)
    context = PassContext(features, {"num_stages": 3}, machine=machine, disabled=disabled)
    run(module, (*STEPS, *layout_steps), context, [Verifier()])
    return module


def run_emulated(
    module: Module,
    grid: Grid,
    args: Sequence[Any],
    *,
    warps: int = 4,
    lanes: int = 8,
    seed: int = 0,
    name: str = EMULATOR,
    disabled: frozenset[str] = frozenset(),
    features: frozenset[str] = NO_FEATURES,
    access_bytes: int = ACCESS_BYTES,
) -> Emulated:
    """Compile for the emulated GPU and run there. Arrays are written in place."""
    ready = laid_out(
        module,
        warps=warps,
        lanes=lanes,
        disabled=disabled,
        features=features,
        target=name,
        access_bytes=access_bytes,
    )
    compiled = Emulated(ready, EmulatedHardware(lanes, name), warps)
    compiled.launch(grid, args, seed)
    return compiled


def comparison(module: Module, *, warps: int, lanes: int) -> Callable[[Sequence[Any]], None]:
    """`assert_same` of one program, as a function of the arguments: compiles once."""
    code = Emulated(laid_out(module, warps=warps, lanes=lanes), EmulatedHardware(lanes), warps)

    def compare_on(args: Sequence[Any]) -> None:
        ours, theirs = copied(args), copied(args)
        code.launch((1, 1, 1), ours)
        interpret(module, (1, 1, 1), theirs)
        compare(ours, theirs)

    return compare_on


def both(
    module: Module | str, grid: Grid, args: Sequence[Any], **options: Any
) -> tuple[list[Any], list[Any]]:
    """The arguments after the emulated and the interpreted run, from equal starts."""
    if isinstance(module, str):
        module = parse_module(module)
        verify_module(module)
    ours, theirs = copied(args), copied(args)
    run_emulated(module, grid, ours, **options)
    interpret(module, grid, theirs)
    return ours, theirs


def assert_same(
    module: Module | str, grid: Grid, args: Sequence[Any], *, close: bool = False, **options: Any
) -> None:
    """Both runs must leave the same bits (any NaN is like any other)."""
    compare(*both(module, grid, args, **options), close=close)


def compare(ours: Sequence[Any], theirs: Sequence[Any], *, close: bool = False) -> None:
    """Fail where arrays differ."""
    for i, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        if is_buffer(a) and not same_bits(a, b, close=close):
            same = [same_bits(a[k], b[k], close=close) for k in range(len(a))]
            at = same.index(False)
            wrong = len(same) - sum(same)
            raise AssertionError(
                f"argument {i} differs in {wrong} elements, first at {at}: {a[at]!r} not {b[at]!r}"
            )
