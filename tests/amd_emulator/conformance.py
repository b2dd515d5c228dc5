"""The conformance suite on the emulator: code for AMD processors, without a GPU.

    python -m tests.amd_emulator.conformance --target gfx942 --level 0-3 --part 1/8

The arguments are those of `python -m tilewright conformance`. Besides what the suite compares, each
instruction must be decoded to the text that LLVM prints for it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, cast
from zlib import crc32

import numpy as np

from tests.amd_emulator.launch import launch, target_of
from tests.amd_emulator.listing import text_faults
from tests.arrays import copied
from tilewright.analysis.buffers import POINTER_RANGE
from tilewright.compiler.build import lower
from tilewright.compiler.pipeline import pipeline
from tilewright.conformance.case import ALIGNED, Failed, Machine, Shifted, is_array
from tilewright.conformance.claims import exact_options
from tilewright.conformance.worker import answer
from tilewright.ir.core import Function, Module
from tilewright.ir.interpret import interpret
from tilewright.ir.printer import print_module
from tilewright.ir.types import Pointer
from tilewright.targets.amd.features import processor
from tilewright.targets.registry import target as find_target
from tilewright.tools import conformance
from tilewright.tools.signature import UsageError


def emulator(arch: str) -> Machine:
    """The machine of the suite for a processor."""
    return Machine(target_of(arch), "", partial(execute, arch))


def _limit_memory(fn: Function) -> None:
    """State that arrays have less than 2 GiB, as launches do: accesses are those of buffers then.
    A half of the programs is without."""
    for arg, facts in zip(fn.args, fn.arg_attrs, strict=True):
        if isinstance(arg.type, Pointer):
            facts["pointer_range"] = POINTER_RANGE


def execute(
    arch: str, module: Module, grid: tuple[int, ...], args: list[Any], **settings: Any
) -> None:
    """Compile a module and run it on the emulator, in place.

    Args:
        settings: options of a launch, besides those that keep results exact.

    Raises:
        Failed: the code has an instruction that LLVM prints otherwise than the decoder.
    """
    # Those without axes are numbers.
    args = [a[()] if isinstance(a, np.ndarray) and not a.ndim else a for a in args]
    target = find_target(target_of(arch))
    options = replace(exact_options(target), **settings)
    if crc32(print_module(module).encode()) % 2:
        _limit_memory(module.entry)
    lowered = lower(module, target, options, pipeline(target))
    assembly = cast("str", target.derive("amdgcn", lowered.stages, lowered.metadata))
    hsaco = cast("bytes", lowered.stages["hsaco"])
    faults = text_faults(assembly, hsaco, arch, processor(arch).lanes)
    if faults:
        raise Failed(f"{len(faults)} instructions are decoded as others: {faults[0]}")
    given = [_at_its_address(a) if is_array(a) else a for a in args]
    found = launch(hsaco, arch, options.num_warps, grid, given)
    for array, result in zip(filter(is_array, args), found, strict=True):
        array[...] = result


def both(
    arch: str, module: Module, grid: tuple[int, ...], args: Sequence[Any], **settings: Any
) -> tuple[list[Any], list[Any]]:
    """The arguments after a launch, by `execute` and by the interpreter."""
    found, expected = copied(args), copied(args)
    interpret(module, grid, expected)
    execute(arch, module, grid, found, **settings)
    return found, expected


def _at_its_address(array: Any) -> Shifted:
    """The array, on the emulator as far behind an aligned address as it is here."""
    return Shifted(array, array.ctypes.data % ALIGNED // array.itemsize)


def serve(arch: str, device: str, selection: Sequence[object]) -> None:
    """Answer as `tilewright.conformance.worker` does, for the emulator."""
    answer(emulator(arch), selection)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    conformance.add_arguments(parser)
    parser.set_defaults(worker="tests.amd_emulator.conformance")
    args = parser.parse_args()
    try:
        return conformance.execute(args)
    except UsageError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
