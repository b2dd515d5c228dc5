"""A report of a kernel's resource usage and occupancy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tilewright.targets.amd.features import VECTOR_REGISTERS, Processor
from tilewright.targets.protocol import Resource

FEW = 25  # percent occupancy, below which memory latency is hard to hide


def resources_of(chip: Processor, metadata: Mapping[str, Any]) -> list[Resource]:
    """The resources of a compiled kernel, from its metadata."""
    return list(_resources(chip, metadata))


def _resources(chip: Processor, metadata: Mapping[str, Any]) -> Iterator[Resource]:
    spills, shared = int(metadata["n_spills"]), int(metadata["shared"])
    yield Resource("vector registers of a thread", metadata["n_regs"], 2 * VECTOR_REGISTERS)
    note = "each is written to memory and read back" if spills else ""
    yield Resource("spilled registers", spills, None, "", note, bool(spills))
    yield Resource("shared memory", shared, chip.shared_limit, "bytes")
    waves = resident_waves(chip, int(metadata["n_regs"]), int(metadata["num_warps"]), shared)
    percent = 100 * waves / chip.max_waves
    yield Resource(
        "occupancy",
        round(percent, 1),
        100,
        "%",
        f"{waves:g} of {chip.max_waves} waves on a SIMD unit",
        percent < FEW,
    )


def resident_waves(chip: Processor, registers: int, warps: int, shared: int) -> float:
    """Waves of a kernel that are resident on a SIMD unit, on average over those of a compute unit.

    Args:
        registers: vector registers of a thread.
        warps: waves of a program.
        shared: bytes of LDS of a program.
    """
    allocated = -(-max(registers, 1) // chip.unit) * chip.unit
    by_registers = chip.registers // chip.simds // chip.lanes // allocated
    waves = chip.simds * min(chip.max_waves, by_registers)
    programs = waves // warps
    if shared:
        programs = min(programs, chip.shared_limit // shared)
    return programs * warps / chip.simds
