"""The description of a kernel's use of a multiprocessor's resources."""

from typing import Any

import pytest

from tilewright.targets.nvidia.features import processor
from tilewright.targets.nvidia.resources import UNKNOWN, resources_of
from tilewright.targets.protocol import Resource

KIB = 1024


def taken(arch: int = 90, **metadata: Any) -> dict[str, Resource]:
    known = {"shared": 0, "num_warps": 4, "n_regs": 32, "n_spills": 0} | metadata
    return {r.name: r for r in resources_of(processor(arch), known)}


@pytest.mark.parametrize(
    ("metadata", "percent", "words"),
    [
        ({}, 100, "16 CTAs of 128 threads on a multiprocessor, limited by threads"),
        ({"n_regs": 128}, 25, "4 CTAs of 128 threads on a multiprocessor, limited by registers"),
        ({"shared": 100 * KIB}, 12.5, "2 CTAs of 128 threads on a multiprocessor, limited by "
         "shared memory"),
        ({"num_warps": 1}, 50, "32 CTAs of 32 threads on a multiprocessor, limited by the number "
         "of CTAs"),
        ({"num_warps": 8, "n_regs": 255}, 12.5, "1 CTA of 256 threads on a multiprocessor, "
         "limited by registers"),
    ],
)  # fmt: skip
def test_occupancy(metadata: dict[str, Any], percent: float, words: str) -> None:
    found = taken(**metadata)["occupancy"]
    assert (found.used, found.note) == (percent, words)
    assert found.missed == (percent < 25)


def test_spills_and_too_much_shared_memory_are_reported() -> None:
    found = taken(n_spills=3, shared=228 * KIB)
    assert found["spilled registers"].missed
    assert found["shared memory"].missed
    assert found["shared memory"].limit == 227 * KIB
    assert "occupancy" not in found
    assert taken(80, shared=164 * KIB)["shared memory"].limit == 163 * KIB


def test_unknown_register_count() -> None:
    found = {r.name: r for r in resources_of(processor(90), {"shared": 0, "num_warps": 4})}
    assert set(found) == {"shared memory", "threads"}
    assert found["threads"].note == UNKNOWN
