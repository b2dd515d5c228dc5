"""Expressions of the language on arrays, on each target that needs no device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from tests.frontend.kernels import build, function_from, type_string
from tests.lowering.simt.harness import run_emulated
from tests.targets.cpu.harness import run_compiled
from tilewright.frontend.source import SourceFunction
from tilewright.ir.interpret import interpret

BLOCK = 256
TARGETS = ("interpreter", "cpu", "simt")
Run = Callable[[SourceFunction, list[np.ndarray]], None]


def module_of(kernel: SourceFunction, arrays: Sequence[np.ndarray]) -> Any:
    types = [type_string(a) for a in arrays]
    return build(kernel, dict(zip([p.name for p in kernel.params], types, strict=True)))


def grid_of(arrays: Sequence[np.ndarray]) -> tuple[int, int, int]:
    return (len(arrays[0]) // BLOCK, 1, 1)


def on_interpreter(kernel: SourceFunction, arrays: list[np.ndarray]) -> None:
    interpret(module_of(kernel, arrays), grid_of(arrays), arrays)


def on_cpu(kernel: SourceFunction, arrays: list[np.ndarray]) -> None:
    run_compiled(module_of(kernel, arrays), grid_of(arrays), arrays, fp_fusion=True)


def on_simt(kernel: SourceFunction, arrays: list[np.ndarray]) -> None:
    """The code for GPU threads, run on the CPU."""
    run_emulated(module_of(kernel, arrays), grid_of(arrays), arrays, warps=1, lanes=32)


RUNS: dict[str, Run] = {"interpreter": on_interpreter, "cpu": on_cpu, "simt": on_simt}


def kernel_of(expression: str, count: int, **names: Any) -> SourceFunction:
    """A kernel that stores the value of an expression of `a`, `b`, ..., a block a program."""
    letters = "abcd"[:count]
    loads = "".join(f"\n        {x} = tl.load({x}_ptr + i)" for x in letters)
    text = f"""
    def kernel(out, {", ".join(f"{x}_ptr" for x in letters)}):
        i = tl.program_id(0) * {BLOCK} + tl.arange(0, {BLOCK}){loads}
        tl.store(out + i, {expression})
    """
    return SourceFunction(function_from(text, **names))


def run(
    target: str, expression: str, args: Sequence[np.ndarray], result: Any, **names: Any
) -> np.ndarray:
    """The value of the expression, element by element, as an array of dtype `result`."""
    count = len(args[0])
    padded = [np.pad(a, (0, -count % BLOCK), mode="edge") for a in args]
    out = np.zeros(len(padded[0]), result)
    RUNS[target](kernel_of(expression, len(args), **names), [out, *padded])
    return out[:count]


def same(found: np.ndarray, expected: Any, *args: Any) -> None:
    """Equal to the bit, with any NaN equal to any other; `args` are part of the message."""
    reference = np.array(expected, found.dtype)
    equal = (found == reference) | ((found != found) & (reference != reference))
    if found.dtype.kind not in "iub":
        equal &= (np.signbit(found) == np.signbit(reference)) | (found != found)
    bad = np.nonzero(~equal)[0]
    if bad.size:
        k = bad[0]
        at = ", ".join(repr(a[k]) for a in args)
        pytest.fail(f"{bad.size} differ; of {at}: {found[k]!r}, not {reference[k]!r}")
