"""The registers of the waves that run together, and what loads are still to be waited for."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.amd_emulator.operands import AGPR, EXEC, VGPR

Array = np.ndarray[Any, Any]
EVERY = slice(None)
RUNS, WAITS, ENDED = 0, 1, 2  # of a wave

SCALARS = 128
VECTORS = 512  # 256 vector registers and 256 accumulation registers
POISON = 0x7FA5A5A5  # of registers that nothing has written: a signalling NaN


class EmulatorError(Exception):
    """The code does what it must not, such as an access out of bounds."""


class Counter:
    """Memory accesses of one kind of each wave: how many were issued, how many are known done.

    Lanes also exchange values by the LDS, without access to its memory: `access` is the number of
    the last that has.
    """

    def __init__(self, waves: int) -> None:
        self.issued = np.zeros(waves, np.int64)
        self.access = np.zeros(waves, np.int64)
        self.done = np.zeros(waves, np.int64)


class Waves:
    """The state of all waves of some work-groups, and of those of them that execute now.

    Arrays have the wave as an axis, and vector registers the lane behind it. Methods refer to the
    waves of `selected`.

    Attributes:
        scalars: scalar registers by their number, VCC and EXEC among them: number, wave.
        vectors: vector and accumulation registers: number, wave, lane.
        scc: the condition of scalar instructions.
        pc, status: the address of the next instruction; `RUNS`, `WAITS` (at a barrier), `ENDED`.
        group: of each wave, the number of its work-group.
        selected: all, or the numbers of some.
    """

    def __init__(self, waves: int, lanes: int, waves_of_group: int) -> None:
        self.count, self.lanes = waves, lanes
        self.scalars = np.full((SCALARS, waves), POISON, np.uint32)
        self.vectors = np.full((VECTORS, waves, lanes), POISON, np.uint32)
        self.scc = np.zeros(waves, bool)
        self.pc = np.zeros(waves, np.int64)
        self.status = np.zeros(waves, np.int64)
        self.group = np.arange(waves) // waves_of_group
        self.selected: Any = EVERY
        self.mode = 0
        self.counters: dict[str, Counter] = {}
        # register -> counter -> for each wave, the number of the last access that writes it
        self._pending: dict[int, dict[str, Array]] = {}
        self._mask: Array | None = None
        self._full = False
        self.set_exec(np.ones((waves, lanes), bool))

    # -- selection and EXEC -----------------------------------------------------------------------

    def select(self, waves: Any) -> None:
        """Execute for these waves from now on."""
        self.selected = waves
        self._mask = None

    @property
    def numbers(self) -> Array:
        """The numbers of the selected waves."""
        return np.arange(self.count)[self.selected]

    @property
    def active(self) -> Array:
        """EXEC as booleans: wave, lane."""
        if self._mask is None:
            self._mask = self.mask(EXEC)
            self._full = bool(self._mask.all())
        return self._mask

    @property
    def all_active(self) -> bool:
        """Whether EXEC is all ones in the selected waves."""
        _ = self.active
        return self._full

    def set_exec(self, mask: Array) -> None:
        """Write EXEC."""
        self.write_mask(EXEC, mask)

    def mask(self, code: int) -> Array:
        """A lane mask in scalar registers as booleans: wave, lane."""
        words = [self.scalar(code + i) for i in range(self.lanes // 32)]
        rows = np.ascontiguousarray(np.stack(words, axis=-1))
        return np.unpackbits(rows.view(np.uint8), axis=-1, bitorder="little").astype(bool)

    def write_mask(self, code: int, mask: Array) -> None:
        """Write booleans into scalar registers."""
        full = np.broadcast_to(mask, (len(self.numbers), self.lanes))
        rows = np.packbits(full, axis=-1, bitorder="little").view(np.uint32)
        for i in range(self.lanes // 32):
            self.write_scalar(code + i, rows[:, i])

    # -- registers --------------------------------------------------------------------------------

    def scalar(self, code: int) -> Array:
        """A scalar register of the selected waves."""
        if code in self._pending:
            self.require_done(code, f"s{code}")
        return self.scalars[code][self.selected]

    def write_scalar(self, code: int, value: Array) -> None:
        """Write a scalar register."""
        if code in self._pending:
            self.require_done(code, f"s{code}")
        if code in (EXEC, EXEC + 1):
            self._mask = None
        self.scalars[code][self.selected] = value

    def vector(self, code: int) -> Array:
        """A vector or accumulation register by its code: wave, lane."""
        if code in self._pending:
            self.require_done(code, self._vector_name(code))
        return self.vectors[code - VGPR][self.selected]

    def write_vector(self, code: int, value: Array, mask: Array | None = None) -> None:
        """Write a register in the active lanes, or those of a mask."""
        if code in self._pending:
            self.require_done(code, self._vector_name(code))
        self.load_vector(code, value, mask)

    def load_vector(self, code: int, value: Array, mask: Array | None = None) -> None:
        """Write a register by a load, which ends after all loads before it."""
        if mask is None:
            if self.all_active:
                self.vectors[code - VGPR][self.selected] = value
                return
            mask = self.active
        row = self.vectors[code - VGPR]
        if self.selected is EVERY:
            np.copyto(row, value, where=mask)
        else:
            row[self.selected] = np.where(mask, value, row[self.selected])

    @staticmethod
    def _vector_name(code: int) -> str:
        return f"v{code - VGPR}" if code < AGPR else f"a{code - AGPR}"

    # -- outstanding accesses ---------------------------------------------------------------------

    def issue(self, name: str, registers: list[int], *, memory: bool = True) -> None:
        """An access begins; it writes these registers (their codes) when it is done."""
        counter = self.counters.setdefault(name, Counter(self.count))
        counter.issued[self.selected] += 1
        if memory:
            counter.access[self.selected] = counter.issued[self.selected]
        for register in registers:
            numbers = self._pending.setdefault(register, {})
            if numbers.keys() - {name}:  # accesses of different kinds end in any order
                self.require_done(register, "a register", besides=name)
                numbers = self._pending.setdefault(register, {})
            if name not in numbers:
                numbers[name] = np.zeros(self.count, np.int64)
            numbers[name][self.selected] = counter.issued[self.selected]

    def outstanding(self, name: str) -> bool:
        """Whether a selected wave has accesses of memory that it has not waited for."""
        counter = self.counters.get(name)
        return counter is not None and bool((counter.access > counter.done)[self.selected].any())

    def wait(self, name: str, count: int) -> None:
        """At most `count` accesses are outstanding from now on."""
        counter = self.counters.get(name)
        if counter is not None:
            done = np.maximum(counter.done, counter.issued - count)
            counter.done[self.selected] = done[self.selected]

    def require_done(self, register: int, what: str, besides: str = "") -> None:
        """Raise unless the selected waves have waited for the register.

        Args:
            besides: a counter whose accesses need not have been waited for.
        """
        pending = self._pending[register]
        for name, numbers in list(pending.items()):
            late = numbers > self.counters[name].done
            if name != besides and late[self.selected].any():
                raise EmulatorError(
                    f"{what} is used before the load into it is waited for ({name})"
                )
            if not late.any():
                del pending[name]
        if not pending:
            del self._pending[register]
