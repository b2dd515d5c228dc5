"""A report of a kernel's resource usage and occupancy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tilewright.targets.nvidia.features import MAX_REGISTERS, REGISTERS, WARP_SIZE, Processor
from tilewright.targets.nvidia.occupancy import (
    REGISTER_UNIT,
    TENSOR_COLUMNS,
    ctas_in_memory,
    memory_bytes,
    resident_ctas,
)
from tilewright.targets.protocol import Resource

UNKNOWN = "no assembler was found, so the driver decides when it loads the kernel"
FEW = 25  # percent occupancy, below which memory latency is hard to hide


def resources_of(chip: Processor, metadata: Mapping[str, Any]) -> list[Resource]:
    """The resources of a compiled kernel, from its metadata."""
    return list(_resources(chip, metadata))


def _resources(chip: Processor, metadata: Mapping[str, Any]) -> Iterator[Resource]:
    warps = int(metadata.get("launch_warps", metadata["num_warps"]))
    shared, threads = int(metadata["shared"]), warps * WARP_SIZE
    registers = metadata.get("n_regs")
    if registers is not None:
        yield Resource("registers of a thread", registers, MAX_REGISTERS)
        spills = int(metadata.get("n_spills", 0))
        note = "each is written to memory and read back" if spills else ""
        yield Resource("spilled registers", spills, None, "", note, bool(spills))
    too_much = shared > chip.shared_limit
    note = "more than a CTA can have: the kernel can't be launched" if too_much else ""
    yield Resource("shared memory", shared, chip.shared_limit, "bytes", note, too_much)
    columns = int(metadata.get("tmem_size", 0))
    if columns:
        yield Resource("columns of tensor memory", columns, TENSOR_COLUMNS)
    if registers is None:
        yield Resource("threads", threads, None, "", UNKNOWN)
    elif not too_much:
        yield _occupancy(chip, threads, int(registers), shared, columns)


def _occupancy(
    chip: Processor, threads: int, registers: int, shared: int, columns: int
) -> Resource:
    ctas = resident_ctas(chip, threads, registers, memory_bytes(chip, shared, columns))
    percent = 100 * ctas * threads / chip.max_threads
    few = percent < FEW
    return Resource(
        "occupancy",
        round(percent, 1),
        100,
        "%",
        _occupancy_limit(chip, threads, registers, shared, columns, ctas),
        few,
    )


def _occupancy_limit(
    chip: Processor, threads: int, registers: int, shared: int, columns: int, ctas: int
) -> str:
    """A text with the number of resident CTAs, and the resource that limits it."""
    given = -(-registers // REGISTER_UNIT) * REGISTER_UNIT
    room = {
        "threads": chip.max_threads // threads,
        "registers": REGISTERS // (given * threads),
        "shared memory": ctas_in_memory(chip, shared),
        "the number of CTAs": chip.max_ctas,
    }
    if columns:
        room["tensor memory"] = TENSOR_COLUMNS // columns
    limit = next((what for what, count in room.items() if count == ctas), "")
    return (
        f"{ctas} CTA{'s' * (ctas != 1)} of {threads} threads on a multiprocessor, limited by "
        f"{limit or 'its size'}"
    )
