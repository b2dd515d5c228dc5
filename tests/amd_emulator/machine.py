"""Runs the kernels of code objects: the waves of several work-groups side by side.

Waves that are at the same address execute an instruction together, on arrays with the wave as an
axis. Of waves at different addresses those at the lowest run first, so that the others of a branch
are caught up with where it joins.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.amd_emulator.accesses import Access as MemoryAccess
from tests.amd_emulator.decode import Decoder, Instruction, UnknownInstruction
from tests.amd_emulator.elf import Kernel, read_kernels
from tests.amd_emulator.memory import Memory
from tests.amd_emulator.memory_instructions import lds_instruction, scalar_memory, vector_memory
from tests.amd_emulator.operands import EXEC, VCC, VGPR, OperandReader
from tests.amd_emulator.scalar import immediate_instruction, scalar_instruction
from tests.amd_emulator.state import ENDED, EVERY, RUNS, WAITS, Array, EmulatorError, Waves
from tests.amd_emulator.text import Printer, wait_counts
from tests.amd_emulator.values import Access
from tests.amd_emulator.vector import vector_instruction

LANES = {"gfx90a": 64, "gfx942": 64, "gfx950": 64, "gfx1100": 32, "gfx1200": 32}
MAX_WAVES = 64  # that run side by side
MAX_STEPS = 20_000_000  # instructions of one launch, after which it is taken for endless
_TURN = 5_000  # instructions after which other waves get their turn

Run = Callable[[Waves], None]
Grid = tuple[int, int, int]


@dataclass(frozen=True)
class Counters:
    """The names of the counters that count outstanding accesses of each kind."""

    load: str
    store: str
    lds: str
    scalar: str


_COUNTERS = {
    "gfx9": Counters("vmcnt", "vmcnt", "lgkmcnt", "scalar"),
    "gfx11": Counters("vmcnt", "vscnt", "lgkmcnt", "scalar"),
    "gfx12": Counters("loadcnt", "storecnt", "dscnt", "kmcnt"),
}
_NO_EFFECT = (
    *("s_nop", "s_sleep", "s_setprio", "s_sendmsg", "s_clause", "s_delay_alu", "s_waitcnt_depctr"),
    *("s_wait_alu", "s_set_inst_prefetch_distance", "s_inst_prefetch", "s_wait_idle"),
    *("s_icache_inv", "s_barrier_signal", "s_code_end"),
)


@dataclass
class Step:
    """A decoded instruction, ready to execute.

    Attributes:
        run: executes it; None for those that `Machine` executes itself.
        flow: "branch", "barrier", "end", or "" if the next instruction follows.
    """

    made: Instruction
    run: Run | None
    flow: str = ""


class Machine:
    """A device with memory, for one processor.

    machine = Machine("gfx942")
    address = machine.memory.place(array)
    machine.launch(hsaco, (4, 1, 1), struct.pack("<Q", address), threads=256)
    """

    def __init__(self, processor: str, lanes: int | None = None) -> None:
        self.decoder = Decoder(processor)
        self.lanes = lanes or LANES[processor]
        self.reader = OperandReader(self.decoder, self.lanes)
        self.access = Access(self.lanes, 124 if self.decoder.has_vopd else None)
        self.printer = Printer(self.decoder, self.lanes)
        self.counters = _COUNTERS[self.decoder.generation]
        self.memory = Memory()
        self.steps = 0
        self.lds = np.zeros(0, np.uint8)
        self.lds_bytes = 0
        self.private = np.zeros(0, np.uint8)
        self.private_bytes = 0
        self._code = b""
        self._code_address = 0
        self._decoded: dict[int, Step] = {}

    # -- launching --------------------------------------------------------------------------------

    def launch(self, hsaco: bytes, grid: Grid, arguments: bytes, threads: int) -> None:
        """Run a code object's only kernel.

        Args:
            grid: the numbers of work-groups.
            arguments: the explicit arguments, laid out as the kernel expects; hidden ones follow.
            threads: of a work-group.

        Raises:
            EmulatorError: the code does what it must not.
            UnknownInstruction: the code has an instruction that the emulator does not know.
        """
        (kernel,) = read_kernels(hsaco).values()
        self._code, self._decoded = kernel.code, {}
        image = self.memory.place(np.frombuffer(kernel.image, np.uint8), 4096)
        self._code_address = image + kernel.code_address
        room = max(kernel.metadata[".kernarg_segment_size"], len(arguments))
        # Scalar loads may read up to the end of a line of 64 bytes.
        segment = bytearray(arguments.ljust(-(-room // 64) * 64, b"\0"))
        _fill_hidden(segment, kernel.metadata, grid, threads)
        address = self.memory.place(np.frombuffer(bytes(segment), np.uint8))
        waves = -(-threads // self.lanes)
        places = [(x, y, z) for z in range(grid[2]) for y in range(grid[1]) for x in range(grid[0])]
        batch = max(1, MAX_WAVES // waves)
        self.lds_bytes, self.private_bytes = kernel.lds_bytes, kernel.scratch_bytes
        with np.errstate(all="ignore"):
            for first in range(0, len(places), batch):
                self._run(kernel, places[first : first + batch], waves, threads, address)

    def _run(
        self, kernel: Kernel, places: Sequence[Grid], waves: int, threads: int, address: int
    ) -> None:
        w = Waves(waves * len(places), self.lanes, waves)
        self.lds = np.full(len(places) * self.lds_bytes + 16, 0xA5, np.uint8)
        self.private = np.full(w.count * self.lanes * self.private_bytes, 0xA5, np.uint8)
        self._start(w, kernel, places, waves, threads, address)
        while self._advance(w):
            pass

    def _start(
        self,
        w: Waves,
        kernel: Kernel,
        places: Sequence[Grid],
        waves: int,
        threads: int,
        address: int,
    ) -> None:
        """The registers that a wave begins with, as its descriptor asks for them."""
        if kernel.bits(48, 16, 4) != 15:
            raise EmulatorError("only kernels that keep denormals are emulated")
        w.pc[:] = kernel.entry
        number = 0
        properties = struct.unpack_from("<H", kernel.descriptor, 56)[0]
        for bit, size in ((0, 4), (1, 2), (2, 2), (3, 2), (4, 2), (5, 2), (6, 1)):
            if not properties >> bit & 1:
                continue
            if bit == 3:
                w.scalars[number] = address & 0xFFFFFFFF
                w.scalars[number + 1] = address >> 32
            number += size
        number = max(number, kernel.bits(52, 1, 5))
        groups = np.array(places)[w.group]
        if self.decoder.generation == "gfx12":  # in trap registers
            w.scalars[108 + 9] = groups[:, 0]
            w.scalars[108 + 7] = groups[:, 1] | groups[:, 2] << 16
        for axis in range(3):
            if kernel.bits(52, 7 + axis) and self.decoder.generation != "gfx12":
                w.scalars[number] = groups[:, axis]
                number += 1
        thread = (np.arange(w.count) % waves)[:, None] * self.lanes + np.arange(self.lanes)
        w.vectors[0] = thread
        w.set_exec(thread < threads)
        w.scalars[VCC : VCC + 2] = 0

    # -- execution --------------------------------------------------------------------------------

    def _advance(self, w: Waves) -> bool:
        """Run some waves until they part, meet others, or wait; False if all have ended."""
        running = np.nonzero(w.status == RUNS)[0]
        if not len(running):
            if (w.status == WAITS).any():
                raise EmulatorError("waves wait at a barrier that others of their group left out")
            return False
        # Those at the lowest address; in turn others, as waves may wait in a loop for them.
        addresses = np.unique(w.pc[running])
        turn = self.steps // _TURN
        pc = int(addresses[turn % len(addresses)] if turn % 2 else addresses[0])
        now = running[w.pc[running] == pc]
        w.select(EVERY if len(now) == w.count else now)
        others = [int(a) for a in addresses if a > pc]
        meeting = others[0] if others else -1
        end = self.steps + _TURN if len(addresses) > 1 else MAX_STEPS
        while True:
            step = self._decoded.get(pc) or self._prepare(pc)
            self.steps += 1
            if self.steps > MAX_STEPS:
                raise EmulatorError("the kernel does not end")
            if step.run is not None:
                try:
                    step.run(w)
                except EmulatorError as error:
                    raise EmulatorError(f"{error}\n  at {self._shown(step.made)}") from None
            pc = step.made.end
            if step.flow and not self._continues(w, step):
                return True
            if step.flow == "branch":
                pc = int(w.pc[w.selected][0])
            if pc == meeting or self.steps > end or (len(addresses) > 1 and step.flow):
                w.pc[w.selected] = pc
                return True

    def _continues(self, w: Waves, step: Step) -> bool:
        """Execute what changes the flow; whether the selected waves stay together and run on."""
        made = step.made
        if step.flow == "end":
            w.status[w.selected] = ENDED
            self._release(w)
            return False
        if step.flow == "barrier":
            if w.outstanding(self.counters.lds):
                raise EmulatorError(
                    f"the LDS is accessed without a wait before the barrier at {self._shown(made)}"
                )
            w.pc[w.selected] = made.end
            w.status[w.selected] = WAITS
            self._release(w)
            return False
        if made.name == "s_setpc_b64" or made.name == "s_swappc_b64":
            raise EmulatorError(f"calls are not emulated: {self._shown(made)}")
        jump = signed_16(made.fields["simm16"]) * 4
        taken = np.broadcast_to(self._condition(w, made.name), w.pc[w.selected].shape)
        w.pc[w.selected] = np.where(taken, made.end + jump, made.end)
        return bool(taken.all() or not taken.any())

    def _condition(self, w: Waves, name: str) -> Array:
        if name == "s_branch":
            return np.ones(1, bool)
        what = name.removeprefix("s_cbranch_")
        if what.startswith("scc"):
            return w.scc[w.selected] == (what == "scc1")
        code = VCC if what.startswith("vcc") else EXEC
        zero: Array = np.logical_not(w.mask(code).any(axis=1))
        return np.logical_not(zero) if name.endswith("nz") else zero

    def _release(self, w: Waves) -> None:
        """Let the groups go on of which all waves are at the barrier, or have ended."""
        stays = np.zeros(int(w.group.max()) + 1, bool)
        np.logical_or.at(stays, w.group, w.status == RUNS)
        w.status[(w.status == WAITS) & ~stays[w.group]] = RUNS

    # -- preparation ------------------------------------------------------------------------------

    def _prepare(self, address: int) -> Step:
        made = self.decoder.decode(self._code, address)
        try:
            step = self._step(made)
        except (NotImplementedError, KeyError) as error:
            raise UnknownInstruction(f"{self._shown(made)}: {error}") from error
        self._decoded[address] = step
        return step

    def _shown(self, made: Instruction) -> str:
        try:
            text = self.printer.text(made)
        except NotImplementedError:
            text = made.name
        return f"{made.address:#x}: {text} ({made.data.hex()})"

    def _step(self, made: Instruction) -> Step:
        if made.format == "SOPP" or made.name in _NO_EFFECT:
            return self._program_control(made)
        if made.name == "s_getpc_b64":
            return Step(made, self._get_pc(made))
        if made.name in ("s_setpc_b64", "s_swappc_b64"):
            return Step(made, None, "branch")
        if made.format == "SOPK":
            wait = self._single_wait(made)
            return Step(made, wait or immediate_instruction(made, self.access))
        if made.format.startswith("SOP"):
            return Step(made, scalar_instruction(made, self.reader, self.access))
        if made.format == "SMEM":
            return Step(made, scalar_memory(made, self))
        if made.format == "DS":
            return Step(made, lds_instruction(made, self))
        if made.format in ("FLAT", "GLOBAL", "SCRATCH", "MUBUF"):
            return Step(made, vector_memory(made, self))
        if made.half is not None:
            return Step(made, self._dual(made, made.half))
        return Step(made, vector_instruction(made, self.reader, self.access))

    def _dual(self, first: Instruction, second: Instruction) -> Run:
        """Both halves read their sources before either writes: the second is run on what was."""
        runs = [vector_instruction(x, self.reader, self.access) for x in (first, second)]
        place = first.fields["vdst"]

        def run(w: Waves) -> None:
            before = w.vector(place + VGPR).copy()
            runs[0](w)
            after = w.vector(place + VGPR).copy()
            everything = np.ones_like(w.active)
            w.write_vector(place + VGPR, before, everything)
            runs[1](w)
            w.write_vector(place + VGPR, after, everything)

        return run

    def _get_pc(self, made: Instruction) -> Run:
        code, value = made.fields["sdst"], self._code_address + made.end

        def run(w: Waves) -> None:
            w.write_scalar(code, np.array([value & 0xFFFFFFFF], np.uint32))
            w.write_scalar(code + 1, np.array([value >> 32], np.uint32))

        return run

    def _program_control(self, made: Instruction) -> Step:
        name = made.name
        if name in _NO_EFFECT:
            return Step(made, None)
        value = made.fields["simm16"]
        if name == "s_endpgm":
            return Step(made, None, "end")
        if name in ("s_barrier", "s_barrier_wait"):
            return Step(made, None, "barrier")
        if name.startswith(("s_branch", "s_cbranch")):
            return Step(made, None, "branch")
        if name == "s_waitcnt":
            return Step(made, self._waits(wait_counts(self.decoder.generation, value)))
        if name.startswith("s_wait_"):
            return Step(made, self._waits(_new_waits(name, value)))
        if name == "s_trap":
            raise EmulatorError("the kernel stops by a trap")
        raise NotImplementedError(f"no semantics of {name}")

    def _single_wait(self, made: Instruction) -> Run | None:
        names = {"s_waitcnt_vscnt": "vscnt", "s_waitcnt_vmcnt": "vmcnt"}
        names["s_waitcnt_lgkmcnt"] = "lgkmcnt"
        if made.name in names:
            return self._waits({names[made.name]: made.fields["simm16"]})
        return None

    def _waits(self, counts: dict[str, int]) -> Run:
        def run(w: Waves) -> None:
            for name, count in counts.items():
                if name != "lgkmcnt":
                    w.wait(name, count)
                elif count == 0:
                    w.wait("lgkmcnt", 0)
                    w.wait("scalar", 0)
                elif not w.outstanding("scalar"):
                    # Scalar loads end in any order: with one of them only 0 means anything.
                    w.wait("lgkmcnt", count)

        return run

    # -- the LDS ----------------------------------------------------------------------------------

    def lds_offsets(self, addresses: Array, groups: Array, access: MemoryAccess) -> Array:
        """Where addresses of the LDS of some groups are in `lds`.

        Sums of a register and an offset wrap: LLVM adds an offset to a negative register from GCN 2
        on (`hasUsableDSOffset`).

        Raises:
            EmulatorError: an access would leave the LDS of its group.
        """
        addresses = addresses & 0xFFFFFFFF
        wrong = addresses + access.size > self.lds_bytes
        if wrong.any():
            bad = int(addresses[wrong][0])
            raise EmulatorError(f"access to {bad:#x} of an LDS of {self.lds_bytes} bytes")
        return addresses + groups * self.lds_bytes


def signed_16(value: int) -> int:
    """A field of 16 bits as a signed number."""
    return value - 0x10000 if value & 0x8000 else value


def _new_waits(name: str, value: int) -> dict[str, int]:
    """The counts of RDNA4's wait instructions."""
    kinds = name.removeprefix("s_wait_").split("_")
    if len(kinds) == 1:
        return {kinds[0]: value}
    return {kinds[0]: value >> 8 & 63, kinds[1]: value & 63}


def _fill_hidden(segment: bytearray, metadata: dict[str, Any], grid: Grid, threads: int) -> None:
    """Write the hidden arguments that the metadata asks for."""
    values = {f"hidden_block_count_{axis}": grid[i] for i, axis in enumerate("xyz")}
    values |= {"hidden_group_size_x": threads, "hidden_group_size_y": 1, "hidden_group_size_z": 1}
    values |= {"hidden_grid_dims": 3}
    for entry in metadata[".args"]:
        kind = entry[".value_kind"]
        if kind in values:
            size, offset = entry[".size"], entry[".offset"]
            segment[offset : offset + size] = values[kind].to_bytes(size, "little")
