"""Runs code of this processor with the repairs of AArch64's, which are IR for any processor."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from tests.ir_values import same_bits
from tests.targets.cpu.harness import run_compiled
from tilewright.ir.core import Module
from tilewright.targets.cpu import emit, repairs
from tilewright.targets.cpu.machine import Machine

AARCH64 = Machine("aarch64-unknown-linux-gnu", "generic", frozenset({"fp-armv8", "neon"}))


def run_repaired(
    module: Module, grid: tuple[int, int, int], args: Sequence[np.ndarray]
) -> Sequence[str]:
    """Run a module, and again with repairs that change its code: both must have the same results.

    Returns:
        The codes that are changed.
    """
    changed: list[str] = []

    def note(text: str, machine: Machine) -> str:
        if (other := repairs.repair(text, AARCH64)) != text:
            changed.append(other)
        return repairs.repair(text, machine)

    given = [a.copy() for a in args]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(emit, "repair", note)
        run_compiled(module, grid, args)
        if changed:
            patch.setattr(emit, "repair", lambda _, machine: repairs.repair(changed[-1], machine))
            run_compiled(module, grid, given)
            assert all(map(same_bits, given, args)), "the repairs of AArch64 change results"
    return changed
