"""CTAs per multiprocessor, and when fewer registers for one more CTA pay off."""

from __future__ import annotations

import pytest

from tilewright.targets.nvidia.features import processor
from tilewright.targets.nvidia.occupancy import (
    REGISTERS,
    ROOMY_REGISTERS,
    ctas_by_memory,
    ctas_if_one_more,
    ctas_with_room,
    ctas_with_spare_registers,
    resident_ctas,
)

HOPPER = processor(90)
THREADS = [32 << i for i in range(6)]


@pytest.mark.parametrize(
    ("threads", "registers", "shared", "ctas"),
    [
        (128, 32, 0, 16),  # 2048 threads
        (128, 33, 0, 12),  # 40 registers each: 65536 / 5120
        (1024, 64, 0, 1),
        (32, 16, 0, 32),  # no more CTAs than that
        (128, 32, 100 * 1024, 2),  # 228 KiB of shared memory, and one for the system of each
    ],
)
def test_resident_ctas(threads: int, registers: int, shared: int, ctas: int) -> None:
    assert resident_ctas(HOPPER, threads, registers, shared) == ctas


@pytest.mark.parametrize(
    ("capability", "shared", "ctas"),
    [
        (75, 0, 16),
        (75, 32 * 1024, 2),  # of 64 KiB, none of which is reserved
        (86, 0, 16),
        (89, 0, 24),
        (90, 0, 32),
        (120, 0, 24),
    ],
)
def test_resident_ctas_of_one_warp(capability: int, shared: int, ctas: int) -> None:
    assert resident_ctas(processor(capability), 32, 16, shared) == ctas


@pytest.mark.parametrize("threads", THREADS)
def test_each_thread_has_at_least_40_registers_and_ctas_are_maximal(threads: int) -> None:
    ctas = ctas_with_room(HOPPER, threads)
    assert REGISTERS // (ctas * threads) >= ROOMY_REGISTERS
    assert ctas == HOPPER.max_ctas or REGISTERS // ((ctas + 1) * threads) < ROOMY_REGISTERS


@pytest.mark.parametrize("threads", THREADS)
def test_no_kernel_is_limited_to_fewer_than_40_registers(threads: int) -> None:
    requested = {ctas_if_one_more(HOPPER, threads, n, 0) for n in range(16, 256)} - {0}
    assert all(REGISTERS // (ctas * threads) >= ROOMY_REGISTERS for ctas in requested)


@pytest.mark.parametrize(
    ("threads", "registers", "shared", "ctas"),
    [
        (512, 74, 0, 2),
        (128, 203, 64 * 1024, 3),
        (128, 203, 96 * 1024, 0),  # there is shared memory for two
        (128, 254, 0, 0),  # the next would take 86 fewer
        (512, 58, 0, 3),
        (512, 64, 0, 3),
        (256, 86, 0, 3),
        (512, 98, 0, 0),  # and this 34 fewer
        (512, 74, 150 * 1024, 0),  # there is no shared memory for two
        (32, 80, 0, 0),  # 25 run
    ],
)
def test_one_more_cta_is_requested_where_it_costs_little(
    threads: int, registers: int, shared: int, ctas: int
) -> None:
    assert ctas_if_one_more(HOPPER, threads, registers, shared) == ctas


@pytest.mark.parametrize(
    ("threads", "registers", "shared", "ctas"),
    [
        (128, 128, 160 * 1024, 1),  # saved for four
        (128, 128, 100 * 1024, 2),
        (128, 128, 50 * 1024, 0),  # four fit
        (128, 128, 70 * 1024, 0),  # three fit, which is enough
        (128, 194, 160 * 1024, 0),  # no number of CTAs needs just these
        (256, 128, 160 * 1024, 1),
        (384, 168, 160 * 1024, 0),  # for one
    ],
)
def test_registers_are_not_saved_for_ctas_that_memory_excludes(
    threads: int, registers: int, shared: int, ctas: int
) -> None:
    assert ctas_by_memory(HOPPER, threads, registers, shared) == ctas


@pytest.mark.parametrize(
    ("threads", "registers", "shared", "ctas"),
    [
        (256, 96, 0, 2),  # up to 128 each
        (256, 113, 0, 0),
        (128, 150, 0, 3),  # up to 168
        (256, 199, 0, 1),  # up to 255
        (256, 208, 0, 0),  # none was saved
        (256, 60, 0, 0),
        (256, 80, 110 * 1024, 0),  # memory limits the number to 2
        (160, 174, 256 * 1024, 0),  # none fits
    ],
)
def test_registers_that_no_further_cta_needs_are_spare(
    threads: int, registers: int, shared: int, ctas: int
) -> None:
    assert ctas_with_spare_registers(HOPPER, threads, registers, shared) == ctas
