"""The instructions that access memory, the LDS and private memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from tests.amd_emulator import memory
from tests.amd_emulator.accesses import Access, access_of
from tests.amd_emulator.decode import Instruction
from tests.amd_emulator.operands import AGPR, EXEC, VGPR
from tests.amd_emulator.state import Array, EmulatorError, Waves
from tests.amd_emulator.text import returns_value
from tests.amd_emulator.values import APERTURES

if TYPE_CHECKING:
    from tests.amd_emulator.machine import Machine

Run = Callable[[Waves], None]


def signed(value: int, bits: int) -> int:
    """A field of an instruction as a signed number."""
    return value - ((value >> bits - 1 & 1) << bits)


class Data:
    """The registers of data of one access, and where its results go."""

    def __init__(self, access: Access, source: int, result: int) -> None:
        self.access, self.source, self.result = access, source, result

    def values(self, w: Waves, first: int = 0) -> list[Array]:
        """The registers that are stored, for active lanes."""
        found = [w.vector(self.source + first + i)[w.active] for i in range(self.access.words)]
        return [found[0] >> np.uint32(16)] if self.access.half == 1 else found

    def wide(self, w: Waves, first: int = 0) -> Array:
        """The data of an atomic as one number for each active lane."""
        words = self.values(w, first)
        if len(words) == 1:
            return words[0]
        return words[0].astype(np.uint64) | words[1].astype(np.uint64) << 32

    def write(self, w: Waves, values: list[Array], first: int = 0) -> None:
        """Put results for active lanes into registers."""
        for i, value in enumerate(values):
            code = self.result + first + i
            full = np.zeros(w.active.shape, np.uint32)
            full[w.active] = value
            half = self.access.half
            if half is not None and self.access.action == "load":
                old = w.vectors[code - VGPR][w.selected]
                keep, shift = (0xFFFF0000, 0) if half == 0 else (0xFFFF, 16)
                full = old & np.uint32(keep) | (full & 0xFFFF) << np.uint32(shift)
            w.load_vector(code, full)


def _split(value: Array) -> list[Array]:
    if value.dtype == np.uint32:
        return [value]
    return [
        (value & np.uint64(0xFFFFFFFF)).astype(np.uint32),
        (value >> np.uint64(32)).astype("u4"),
    ]


def perform(w: Waves, data: Array, offsets: Array, found: Data, returns: bool) -> None:
    """Execute the access at places in an array of bytes."""
    access = found.access
    if access.action == "load":
        found.write(w, memory.load(data, offsets, access))
    elif access.action == "store":
        memory.store(data, offsets, found.values(w), access)
    else:
        value, compare = found.wide(w), found.wide(w)
        if access.action == "cmpswap":
            compare = found.wide(w, access.words)
        before = memory.atomic(data, offsets, access, value, compare)
        if returns:
            found.write(w, _split(before))


# -- global and private memory ----------------------------------------------------------------


def vector_memory(made: Instruction, machine: Machine) -> Run:
    """The function that executes a FLAT, GLOBAL, SCRATCH or MUBUF instruction.

    Raises:
        NotImplementedError: the emulator does not know its semantics.
    """
    access = access_of(made.base)
    if access is None:
        if made.name.startswith(("buffer_", "global_")) and (
            "inv" in made.name or "wb" in made.name
        ):
            return lambda w: None  # caches are not modelled
        raise NotImplementedError(f"no semantics of {made.name}")
    fields = made.fields
    offset = AGPR if fields.get("acc") else VGPR
    buffer = made.format == "MUBUF"
    source = fields["vdata"] if buffer else fields["data"]
    result = source if buffer else fields["vdst"]
    found = Data(access, source + offset, result + offset)
    returns = access.action != "store" and (access.action == "load" or returns_value(fields))
    if buffer:
        return _buffer_instruction(made, machine, found)
    place = {
        "GLOBAL": _global_place,
        "FLAT": _flat_place,
        "SCRATCH": _scratch_place,
    }[made.format](made, machine, access)
    registers = [found.result + i for i in range(access.words)] if returns else []
    counter = machine.counters.load if returns else machine.counters.store
    also = machine.counters.lds if made.format == "FLAT" else None

    def run(w: Waves) -> None:
        data, offsets = place(w)
        perform(w, data, offsets, found, returns)
        w.issue(counter, registers)
        if also:
            w.issue(also, [])

    return run


Place = Callable[[Waves], tuple[Array, Array]]


def _address(w: Waves, register: int) -> Array:
    low, high = w.vector(register + VGPR), w.vector(register + 1 + VGPR)
    return low.astype(np.uint64) | high.astype(np.uint64) << 32


def _instruction_offset(made: Instruction, machine: Machine) -> np.uint64:
    bits = 24 if machine.decoder.generation == "gfx12" else 13
    return np.uint64(signed(made.fields["offset"], bits) & 0xFFFFFFFFFFFFFFFF)


def _no_register(machine: Machine) -> int:
    return 124 if machine.decoder.has_vopd else 127


def _global_place(made: Instruction, machine: Machine, access: Access) -> Place:
    fields, offset = made.fields, _instruction_offset(made, machine)
    scalar = None if fields["saddr"] == _no_register(machine) else fields["saddr"]

    def place(w: Waves) -> tuple[Array, Array]:
        if scalar is None:
            address = _address(w, fields["addr"])
        else:
            base = w.scalar(scalar).astype(np.uint64) | w.scalar(scalar + 1).astype("u8") << 32
            address = base[:, None] + w.vector(fields["addr"] + VGPR).astype(np.uint64)
        active = (address + offset)[w.active]
        return machine.memory.data, machine.memory.offsets(active, access.size)

    return place


def _flat_place(made: Instruction, machine: Machine, access: Access) -> Place:
    fields, offset = made.fields, _instruction_offset(made, machine)

    def place(w: Waves) -> tuple[Array, Array]:
        active = (_address(w, fields["addr"]) + offset)[w.active]
        spaces = active >> np.uint64(32)
        if np.isin(spaces, [x >> 32 for x in APERTURES.values()]).any():
            raise EmulatorError("a flat access to the LDS or to private memory is not emulated")
        return machine.memory.data, machine.memory.offsets(active, access.size)

    return place


def _scratch_place(made: Instruction, machine: Machine, access: Access) -> Place:
    fields = made.fields
    bits = 24 if machine.decoder.generation == "gfx12" else 13
    offset = signed(fields["offset"], bits)
    scalar = None if fields["saddr"] == _no_register(machine) else fields["saddr"]

    def place(w: Waves) -> tuple[Array, Array]:
        address = np.full(w.active.shape, offset, np.int64)
        if fields["sve"]:
            address = address + w.vector(fields["addr"] + VGPR).astype(np.int64)
        if scalar is not None:
            address = address + w.scalar(scalar).astype(np.int64)[:, None]
        size = machine.private_bytes
        active = address[w.active]
        if ((active < 0) | (active + access.size > size)).any():
            raise EmulatorError(f"access to private memory out of its {size} bytes")
        lanes = w.numbers[:, None] * w.lanes + np.arange(w.lanes)
        return machine.private, lanes[w.active] * size + active

    return place


def _buffer_instruction(made: Instruction, machine: Machine, found: Data) -> Run:
    """An access by the descriptor of a buffer: out of its range, a load gives 0, and a store does
    nothing. All words of an access must be in or out of it."""
    fields, access = made.fields, found.access
    if access.action not in ("load", "store") or fields["idxen"] or fields.get("lds"):
        raise NotImplementedError(f"no semantics of {made.name}")
    first = fields["srsrc"] * (1 if machine.decoder.generation == "gfx12" else 4)
    loads = access.action == "load"
    registers = [found.result + i for i in range(access.words)] if loads else []

    def run(w: Waves) -> None:
        descriptor = [w.scalar(first + i).astype(np.int64)[:, None] for i in range(4)]
        if ((descriptor[1] >> 16) & 0x7FFF).any():
            raise EmulatorError("buffers with a stride are not emulated")
        offset = np.full(w.active.shape, fields["offset"], np.int64)
        if fields["offen"]:
            offset = offset + w.vector(fields["vaddr"] + VGPR)
        scalar = _scalar_offset(w, fields["soffset"], machine)
        outside = offset >= descriptor[2]
        if ((outside != (offset + scalar >= descriptor[2])) & w.active).any():
            raise EmulatorError("GPUs differ in whether a scalar offset is compared with the size")
        offset = offset + scalar
        if (~outside & (offset + access.size > descriptor[2]))[w.active].any():
            raise EmulatorError("an access crosses the end of its buffer")
        before, inside = w.mask(EXEC), w.active & ~outside
        base = descriptor[0] | (descriptor[1] & 0xFFFF) << 32
        w.set_exec(inside)
        places = machine.memory.offsets((base + offset)[inside].astype(np.uint64), access.size)
        perform(w, machine.memory.data, places, found, loads)
        if loads:
            w.set_exec(before & outside)
            nothing = np.zeros(int((before & outside).sum()), np.uint32)
            found.write(w, [nothing] * access.words)
        w.set_exec(before)
        w.issue(machine.counters.load if loads else machine.counters.store, registers)

    return run


def _scalar_offset(w: Waves, code: int, machine: Machine) -> Array | int:
    if code >= 128:  # an inline constant
        return code - 128
    if machine.decoder.has_vopd and code == 124:
        return 0
    return w.scalar(code).astype(np.int64)[:, None]


# -- scalar memory ----------------------------------------------------------------------------


def scalar_memory(made: Instruction, machine: Machine) -> Run:
    """The function that executes a SMEM instruction.

    Raises:
        NotImplementedError: the emulator does not know its semantics.
    """
    fields, access = made.fields, access_of(made.base)
    if access is None or "buffer" in made.name:
        if made.name in ("s_memtime", "s_memrealtime"):
            return lambda w: _write_time(w, fields["sdata"], machine)
        if made.name.startswith("s_icache") or "inv" in made.name:
            return lambda w: None
        raise NotImplementedError(f"no semantics of {made.name}")
    generation = machine.decoder.generation
    bits = 24 if generation == "gfx12" else 21
    offset, register = signed(fields["offset"], bits), None
    if generation != "gfx9":
        register = None if fields["soffset"] == 124 else fields["soffset"]
    elif not fields["imm"]:
        register = fields["soffset"] if fields["soffset_en"] else fields["offset"] & 0x7F
        offset = 0
    elif fields["soffset_en"]:
        register = fields["soffset"]
    base, data = fields["sbase"] * 2, fields["sdata"]

    def run(w: Waves) -> None:
        address = w.scalar(base).astype(np.uint64) | w.scalar(base + 1).astype("u8") << 32
        address = address + np.uint64(offset & 0xFFFFFFFFFFFFFFFF)
        if register is not None:
            address = address + w.scalar(register)
        address &= ~np.uint64(min(access.size, 4) - 1)  # the bits below are ignored
        offsets = machine.memory.offsets(address, access.size)
        for i, value in enumerate(memory.load(machine.memory.data, offsets, access)):
            w.write_scalar(data + i, value)
        w.issue(machine.counters.scalar, [data + i for i in range(access.words)])

    return run


def _write_time(w: Waves, code: int, machine: Machine) -> None:
    w.write_scalar(code, np.array([machine.steps & 0xFFFFFFFF], np.uint32))
    w.write_scalar(code + 1, np.array([machine.steps >> 32], np.uint32))
    w.issue(machine.counters.scalar, [code, code + 1])


# -- the LDS ----------------------------------------------------------------------------------


def lds_instruction(made: Instruction, machine: Machine) -> Run:
    """The function that executes a DS instruction.

    Raises:
        NotImplementedError: the emulator does not know its semantics.
    """
    fields, access = made.fields, access_of(made.base)
    if access is None:
        return _lane_exchange(made, machine)
    offset = AGPR if fields.get("acc") else VGPR
    first = Data(access, fields["data0"] + offset, fields["vdst"] + offset)
    second = Data(access, fields["data1"] + offset, fields["vdst"] + access.words + offset)
    if access.addresses == 2:
        parts = [(first, fields["offset0"] * access.stride)]
        parts.append((second, fields["offset1"] * access.stride))
    else:
        parts = [(first, fields["offset0"] | fields["offset1"] << 8)]
    address = fields["addr"] + VGPR
    returns = access.action == "load" or access.returns
    count = access.words * access.addresses if returns else 0
    registers = [first.result + i for i in range(count)]
    swapped = access.action in ("cmpst", "cmpstore")

    def run(w: Waves) -> None:
        base = w.vector(address)[w.active].astype(np.int64)
        groups = np.repeat(w.group[w.selected], w.active.sum(axis=1))
        for part, step in parts:
            offsets = machine.lds_offsets(base + step, groups, access)
            if swapped:
                _compare_and_store(w, machine.lds, offsets, part, second, returns)
            else:
                perform(w, machine.lds, offsets, part, returns)
        w.issue(machine.counters.lds, registers)

    return run


def _compare_and_store(
    w: Waves, data: Array, offsets: Array, first: Data, second: Data, returns: bool
) -> None:
    # On CDNA the value to compare with comes first, on RDNA3 and later the new value.
    compare, value = first.wide(w), second.wide(w)
    if first.access.action == "cmpstore":
        compare, value = value, compare
    before = memory.atomic(data, offsets, first.access, value, compare)
    if returns:
        first.write(w, _split(before))


def _lane_exchange(made: Instruction, machine: Machine) -> Run:
    fields, lanes = made.fields, machine.lanes
    result = fields["vdst"] + VGPR
    offset = fields["offset0"] | fields["offset1"] << 8

    def finish(w: Waves, value: Array) -> None:
        w.write_vector(result, value)
        w.issue(machine.counters.lds, [result], memory=False)

    def swizzle(w: Waves) -> None:
        source = _swizzled_lanes(offset, lanes)
        value, active = w.vector(fields["addr"] + VGPR), w.active
        finish(w, np.where(active[:, source], value[:, source], np.uint32(0)))

    def backward(w: Waves) -> None:
        place = (w.vector(fields["addr"] + VGPR) + np.uint32(offset) >> 2 & (lanes - 1)).astype(
            "i8"
        )
        value = np.where(w.active, w.vector(fields["data0"] + VGPR), np.uint32(0))
        finish(w, np.take_along_axis(value, place, axis=1))

    def forward(w: Waves) -> None:
        place = (w.vector(fields["addr"] + VGPR) + np.uint32(offset) >> 2 & (lanes - 1)).astype(
            "i8"
        )
        value = w.vector(fields["data0"] + VGPR)
        found = np.zeros_like(value)
        rows, columns = np.nonzero(w.active)
        found[rows, place[rows, columns]] = value[rows, columns]
        finish(w, found)

    if made.base == "ds_swizzle_b32":
        return swizzle
    if made.base == "ds_bpermute_b32":
        return backward
    if made.base == "ds_permute_b32":
        return forward
    raise NotImplementedError(f"no semantics of {made.name}")


def _swizzled_lanes(offset: int, lanes: int) -> Array:
    lane = np.arange(lanes)
    if offset & 0x8000:
        return lane & ~3 | offset >> 2 * (lane & 3) & 3
    within = lane & 31
    within = (within & offset & 31 | offset >> 5 & 31) ^ (offset >> 10 & 31)
    return lane & ~31 | within
