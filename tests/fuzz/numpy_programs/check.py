"""Compares what a program leaves in memory on a target with what NumPy leaves.

    check(random_program(7))

raises what the program's compilation raises, or `Difference`.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import torch

from tests.arrays import copied
from tests.fuzz.disabled import random_disabled
from tests.fuzz.numpy_programs.meaning import leave
from tests.fuzz.numpy_programs.values import DTYPES, DType
from tests.fuzz.programs.check import build, load, machine_of, ops_of, require_same
from tests.gpu.programs import EXACT, Program
from tests.lowering.simt import harness as simt
from tests.targets.cpu.harness import run_compiled
from tilewright.compiler.pipeline import STEPS
from tilewright.ir.core import Module
from tilewright.ir.interpret import interpret
from tilewright.ir.memory import Checks
from tilewright.ir.passes import PassContext, run

SPECIAL = (
    0.0, -0.0, 1.0, -1.0, 0.5, np.inf, -np.inf, np.nan, 127.5, -128.5, 255.0, 256.0, 32767.0,
    -32769.0, 65504.0, 65520.0, 2147483648.0, -2147483649.0, 1e-8, 3e38,
)  # fmt: skip


def arguments(program: ModuleType) -> list[Any]:
    """The arrays, drawn from the seed, and numbers that the kernel is given."""
    rng = np.random.default_rng(program.SEED)
    return [
        _content(name, DTYPES[value[1:]], program.LENGTH, rng) if isinstance(value, str) else value
        for name, value in program.ARGS.items()
    ]


def _content(name: str, dtype: DType, length: int, rng: np.random.Generator) -> Any:
    if name[0] != "x":
        return np.full(length, 7, dtype.numpy)
    small = rng.integers(-20, 20, length)
    bits = np.frombuffer(rng.bytes(length * dtype.numpy.itemsize), f"u{dtype.numpy.itemsize}")
    if not dtype.kind:
        return bits % 2 != 0
    with np.errstate(all="ignore"):
        if not dtype.is_float:
            return np.where(
                rng.random(length) < 0.5, bits.view(dtype.numpy), small.astype(dtype.numpy)
            )
        special = rng.choice(np.array(SPECIAL), length)
        values = np.where(rng.random(length) < 0.5, special, small * 0.25).astype(dtype.numpy)
        return np.where(rng.random(length) < 0.25, bits.view(dtype.numpy), values)


def expected_of(text: str, program: ModuleType, args: list[Any]) -> list[Any]:
    """The arguments as NumPy leaves them."""
    found = copied(args)
    types = [value if isinstance(value, str) else "" for value in program.ARGS.values()]
    leave(text, found, types, program.CONSTEXPRS, program.GRID)
    return found


def compare(program: ModuleType, found: list[Any], expected: list[Any], where: str) -> None:
    for name, x, y in zip(program.ARGS, found, expected, strict=True):
        require_same(x, y, name, where, "in NumPy")


class _Built(NamedTuple):
    """A program that is compiled to tile IR.

    Attributes:
        expected: the arguments as NumPy leaves them.
        passed: the arguments that the IR takes.
    """

    program: ModuleType
    expected: list[Any]
    module: Module
    passed: list[Any]
    grid: tuple[int, int, int]


def _built(text: str) -> _Built:
    program = load(text)
    args = arguments(program)
    expected = expected_of(text, program, args)
    module, passed = build(Program(program.kernel, args, program.CONSTEXPRS, program.GRID))
    grid: Any = (*program.GRID, 1, 1)[:3]
    return _Built(program, expected, module, passed, grid)


def check(text: str) -> set[str]:
    """Compare the interpreter and the CPU with NumPy; the ops that were reached."""
    program, expected, module, passed, grid = _built(text)
    interpreted = copied(passed)
    interpret(module, grid, interpreted, checks=Checks(races=True))
    compare(program, interpreted, expected, "the interpreter")
    lowered = module.clone()
    run(lowered, STEPS, PassContext(disabled=random_disabled(program.SEED, STEPS)), [])
    run_compiled(lowered, grid, passed, machine=machine_of(program.SEED))
    compare(program, passed, expected, "the CPU")
    return ops_of(module)


def check_emulated(text: str) -> set[str]:
    """Compare an emulated GPU with the interpreter, and that with NumPy."""
    program, expected, module, passed, grid = _built(text)
    seed = program.SEED
    disabled = random_disabled(seed, (*STEPS, *simt.LAYOUT_STEPS))
    warps, lanes = (1, 2, 4)[seed % 3], (32, 8, 64)[seed // 3 % 3]
    found, _ = simt.both(module, grid, passed, warps=warps, lanes=lanes, disabled=disabled)
    compare(program, found, expected, "an emulated GPU")
    return ops_of(module)


def check_launched(text: str) -> set[str]:
    """Launch the program as its author would, on a GPU if there is one."""
    program = load(text)
    args = arguments(program)
    expected = expected_of(text, program, args)
    if torch.cuda.is_available():
        found, where = _on_gpu(program, args)
    else:
        program.kernel[program.GRID](*args, **program.CONSTEXPRS, **EXACT)
        found, where = args, "the CPU, launched"
    compare(program, found, expected, where)
    return set()


def _on_gpu(program: ModuleType, args: list[Any]) -> tuple[list[Any], str]:
    """The arguments after a launch with random options, and a description of the launch."""
    seed = program.SEED
    options = {"num_warps": (4, 1, 8, 2)[seed % 4], "num_stages": (3, 1, 2)[seed // 4 % 3]}
    passed = list(map(_to_gpu, args, map(str, program.ARGS.values())))
    program.kernel[program.GRID](*passed, **program.CONSTEXPRS, **EXACT, **options)
    try:
        torch.cuda.synchronize()
    except RuntimeError as error:  # the process can't use the GPU any more
        print(f"program {seed}: {error}", file=sys.stderr, flush=True)
        os._exit(70)
    return list(map(_from_gpu, passed, args)), f"the GPU with {options}"


TORCH_NAMES = {"int1": "bool", "float8e5": "float8_e5m2", "float8e4nv": "float8_e4m3fn"}


def _to_gpu(arg: Any, type: str) -> Any:
    if not isinstance(arg, np.ndarray):
        return arg
    dtype = getattr(torch, TORCH_NAMES.get(type[1:]) or type[1:])
    return torch.from_numpy(arg.view(np.uint8).copy()).cuda().view(dtype)


def _from_gpu(passed: Any, arg: Any) -> Any:
    if not isinstance(arg, np.ndarray):
        return arg
    return passed.view(torch.uint8).cpu().numpy().view(arg.dtype)


def main(file: str) -> None:
    """What a program does that is run as a script."""
    text = Path(file).read_text("utf-8")
    check(text)
    check_launched(text)
    print("agrees")
