"""Launching for the target `interpreter`: executes tile IR with NumPy.

Tensors on other devices are copied to the host before a launch and back after it (`Mirrors`).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from tilewright.base import knobs
from tilewright.base.diagnostics import InterpreterError
from tilewright.base.record import replace
from tilewright.compiler.artifact import CompiledKernel
from tilewright.ir.interpret import Checks, interpret
from tilewright.ir.memory import OutOfBounds
from tilewright.ir.parser import parse_module
from tilewright.ir.types import Pointer, element_of, numpy_of, scalar_type
from tilewright.ops.arith import Bitcast
from tilewright.runtime.grid import Grid
from tilewright.runtime.mirror import Mirrors
from tilewright.runtime.reachable import reachable_tensors
from tilewright.runtime.slots import at_path
from tilewright.runtime.tensors import find_reader


class InterpreterLaunch:
    """A parsed module of tile IR."""

    def __init__(self, kernel: CompiledKernel) -> None:
        metadata = kernel.metadata
        self._module = parse_module(str(kernel.kernel), kernel.name)
        self._module.entry.arg_names = list(metadata.arg_names)
        self._casts_addresses = any(
            isinstance(op, Bitcast)
            and isinstance(element_of(op.result.type), Pointer)
            and not isinstance(element_of(op.operands[0].type), Pointer)
            for function in self._module.functions.values()
            for op in function.walk()
        )
        self._arguments = [(tuple(path), type) for path, type in metadata.arguments]
        self._seed: int | None = metadata.seed
        self._cooperative: bool = metadata.launch_cooperative_grid
        self._checks = Checks(
            races=metadata.check_races,
            uninitialised=metadata.check_uninitialised,
            overflow=metadata.debug and metadata.sanitize_overflow,
        )

    @property
    def handle(self) -> Any:
        """The module."""
        return self._module

    def start(self, grid: Grid, values: Sequence[Any], slots: Sequence[Any]) -> None:
        if self._cooperative and prod(grid) > 1:
            raise InterpreterError(
                f"{self._module.entry.name} is launched with launch_cooperative_grid, but the "
                "interpreter runs programs sequentially: a program that waits for a later one "
                "would not end. Only a grid of one program can be interpreted"
            )
        arguments = [at_path(values, path) for path, _ in self._arguments]
        beyond = reachable_tensors()
        mirrors = Mirrors([v for v in (*arguments, *beyond) if find_reader(v) is not None])
        args = [
            mirrors.buffer_of(value)
            if find_reader(value) is not None
            else at_path(slots, path) or 0
            if type.startswith("*")
            else _number(value, type)
            for value, (path, type) in zip(arguments, self._arguments, strict=True)
        ]
        checks = replace(self._checks, out_of_bounds=not knobs.runtime.interpret_any_address)
        buffers = [replace(mirrors.buffer_of(tensor), name="reachable memory") for tensor in beyond]
        try:
            interpret(self._module, grid, args, reachable=buffers, checks=checks, seed=self._seed)
        except InterpreterError as error:
            if self._casts_addresses and isinstance(error.__cause__, OutOfBounds):
                error.add_note(
                    "help: a launch that reads addresses from memory names what they lead to: "
                    "`with tw.runtime.reachable(…)`"
                )
            raise
        finally:
            mirrors.write_back()


def _number(value: Any, type: str) -> Any:
    dtype = numpy_of(scalar_type(type))
    # A float out of range becomes an infinity, as on devices, without NumPy's warning.
    with np.errstate(over="ignore"):
        return dtype.type(value) if dtype.kind not in "iub" else value
