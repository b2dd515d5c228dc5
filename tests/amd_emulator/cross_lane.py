"""Instructions that move words between lanes, or between lanes and scalar registers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tests.amd_emulator.decode import Instruction
from tests.amd_emulator.floats import UNARY
from tests.amd_emulator.operands import OperandReader
from tests.amd_emulator.state import Array, Waves
from tests.amd_emulator.values import Access, Read

Run = Callable[[Waves], None]


def DPP_SOURCES(control: int, lanes: int) -> tuple[Array, Array]:
    """The lane that each lane reads, and whether it exists, for a control of DPP."""
    lane = np.arange(lanes)
    row, within = lane & ~15, lane & 15
    every = np.ones(lanes, bool)
    if control < 0x100:
        return lane & ~3 | control >> 2 * (lane & 3) & 3, every
    kind, count = control & 0x1F0, control & 15
    if kind == 0x100:
        return row | (within + count) & 15, within + count < 16
    if kind == 0x110:
        return row | (within - count) & 15, within >= count
    if kind == 0x120:
        return row | (within - count) & 15, every
    if kind == 0x150:
        return row | count, every
    if kind == 0x160:
        return row | within ^ count, every
    if control == 0x140:
        return row | 15 - within, every
    if control == 0x141:
        return lane & ~7 | 7 - (lane & 7), every
    if control == 0x142:
        return np.maximum(row - 1, 0), lane >= 16
    if control == 0x143:
        return np.full(lanes, 31), lane >= 32
    if control == 0x138:
        return (lane - 1) % lanes, lane >= 1
    raise NotImplementedError(f"no semantics of DPP control {control:#x}")


def cross_lane(made: Instruction, reader: OperandReader, access: Access) -> Run | None:
    """The function that executes the instruction, if it is one of these."""
    maker = _MAKERS.get(made.base)
    if maker is None:
        return None
    results, sources = reader.operands(made)
    reads = [access.reader(x, made) for x in sources]
    return maker(made, results[0].code, reads, reader.lanes)


def _read_first(made: Instruction, code: int, reads: list[Read], lanes: int) -> Run:
    def run(w: Waves) -> None:
        first = np.where(w.active.any(axis=1), w.active.argmax(axis=1), 0)
        value = np.broadcast_to(reads[0](w), w.active.shape)
        w.write_scalar(code, np.take_along_axis(value, first[:, None], axis=1)[:, 0])

    return run


def _read_lane(made: Instruction, code: int, reads: list[Read], lanes: int) -> Run:
    def run(w: Waves) -> None:
        place = (reads[1](w) & np.uint32(lanes - 1)).astype(np.int64)
        place = np.broadcast_to(place, (w.active.shape[0], 1))
        w.write_scalar(code, np.take_along_axis(reads[0](w), place, axis=1)[:, 0])

    return run


def _write_lane(made: Instruction, code: int, reads: list[Read], lanes: int) -> Run:
    def run(w: Waves) -> None:
        place = reads[1](w) & np.uint32(lanes - 1)
        mask = np.broadcast_to(np.arange(lanes) == place, w.active.shape)
        w.write_vector(code, reads[0](w), mask)

    return run


def _permute_rows(made: Instruction, code: int, reads: list[Read], lanes: int) -> Run:
    other = made.base == "v_permlanex16_b32"
    lane = np.arange(lanes)
    row, within = lane & ~15, lane & 15
    if other:
        row = row ^ 16

    def run(w: Waves) -> None:
        value, low, high = (read(w) for read in reads)
        select = low.astype(np.uint64) | high.astype(np.uint64) << 32
        place = row | (select >> (4 * within).astype(np.uint64) & np.uint64(15)).astype(np.int64)
        place = np.broadcast_to(place, w.active.shape)
        source = np.where(w.active, value, np.uint32(0))
        w.write_vector(code, np.take_along_axis(source, place, axis=1))

    return run


def _permute_halves(made: Instruction, code: int, reads: list[Read], lanes: int) -> Run:
    place = np.arange(lanes) ^ 32
    return lambda w: w.write_vector(code, reads[0](w)[:, place])


def _scalar_function(made: Instruction, code: int, reads: list[Read], lanes: int) -> Run:
    """A function of a scalar register by the vector unit."""
    function = UNARY[made.base.split("_")[2]]

    def run(w: Waves) -> None:
        value = np.broadcast_to(function(reads[0](w)), w.active.shape)[:, 0]
        w.write_scalar(code, np.ascontiguousarray(value).view(np.uint32))

    return run


_MAKERS = {
    **{f"v_s_{name}_f32": _scalar_function for name in ("exp", "log", "rcp", "rsq", "sqrt")},
    "v_readfirstlane_b32": _read_first,
    "v_readlane_b32": _read_lane,
    "v_writelane_b32": _write_lane,
    "v_permlane16_b32": _permute_rows,
    "v_permlanex16_b32": _permute_rows,
    "v_permlane64_b32": _permute_halves,
    "v_mbcnt_lo_u32_b32": lambda made, code, reads, lanes: _count_below(code, reads, lanes, 0),
    "v_mbcnt_hi_u32_b32": lambda made, code, reads, lanes: _count_below(code, reads, lanes, 32),
}


def _count_below(code: int, reads: list[Read], lanes: int, start: int) -> Run:
    lane = np.arange(lanes)
    count = np.clip(lane - start, 0, 32).astype(np.uint64)
    below = ((np.uint64(1) << count) - np.uint64(1)).astype(np.uint32)

    def run(w: Waves) -> None:
        mask, base = (read(w) for read in reads)
        w.write_vector(code, np.bitwise_count(mask & below) + base)

    return run
