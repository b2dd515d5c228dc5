"""Arguments in the emulator's memory."""

from __future__ import annotations

import numpy as np

from tests.amd_emulator.launch import placed
from tests.amd_emulator.machine import Machine


def test_arrays_that_overlap_are_in_one_block() -> None:
    room = np.arange(64, dtype=np.float32)
    later, earlier, apart = room[8:40], room[:32], np.ones(4, np.int64)
    machine = Machine("gfx942")
    places = placed(machine, [later, 3, apart, earlier])
    assert [*places] == [0, 2, 3]
    assert places[0] == (places[3][0], places[3][1] + 8 * room.itemsize)
    assert places[2][0] != places[3][0]
    start, shift = places[3]
    content = machine.memory.content(start)[shift:].view(np.float32)
    assert np.array_equal(content[:40], room[:40])


def test_arrays_side_by_side_are_in_separate_blocks() -> None:
    room = np.zeros(64, np.float32)
    first, second = placed(Machine("gfx942"), [room[:32], room[32:]]).values()
    assert first[0] != second[0]
