"""Launching for the target `interpreter`: tile IR, run on NumPy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.compiler.artifact import CompiledKernel
from tilewright.ir.interpret import Buffer, Checks, interpret
from tilewright.ir.parser import parse_module
from tilewright.ir.types import numpy_of, scalar_type
from tilewright.runtime.launch import Grid, Path, at_path
from tilewright.runtime.tensors import UNKNOWN, find_reader


class InterpreterLaunch:
    """A module of tile IR, ready to be interpreted."""

    def __init__(self, kernel: CompiledKernel) -> None:
        metadata = kernel.metadata
        self._module = parse_module(str(kernel.kernel), kernel.name)
        self._module.entry.arg_names = list(metadata.arg_names)
        self._arguments = [(tuple(path), type) for path, type in metadata.arguments]
        self._seed: int | None = metadata.seed
        self._checks = Checks(
            races=metadata.check_races, uninitialised=metadata.check_uninitialised
        )

    @property
    def handle(self) -> Any:
        """The module."""
        return self._module

    def start(self, grid: Grid, values: Sequence[Any], slots: Sequence[Any]) -> None:
        # A number beyond the range of its type is an infinity, which is no reason for a warning.
        with np.errstate(over="ignore"):
            args = [self._argument(values, slots, *argument) for argument in self._arguments]
        interpret(self._module, grid, args, checks=self._checks, seed=self._seed)

    def _argument(self, values: Sequence[Any], slots: Sequence[Any], path: Path, type: str) -> Any:
        value = at_path(values, path)
        if not type.startswith("*"):
            dtype = numpy_of(scalar_type(type))
            return dtype.type(value) if dtype.kind not in "iub" else value
        reader = find_reader(value)
        if reader is None:
            return at_path(slots, path) or 0
        address, _, _, low, high, writable = reader(value)
        extent = (low, high) if low != UNKNOWN else None
        return Buffer(address, extent, writable, owner=value)
