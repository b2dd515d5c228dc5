"""Which variants of a kernel are compiled to machine code."""

from __future__ import annotations

import pytest

from tilewright.targets.gpu.codegen import ThreadCode
from tilewright.targets.nvidia.best_cubin import Assembled
from tilewright.targets.nvidia.compilation import Cubin, Residency
from tilewright.targets.nvidia.cubin import Resources
from tilewright.targets.nvidia.features import processor
from tilewright.targets.protocol import Lowered

SERIALISED = "ptxas info    : (C7510) Potential Performance Loss: instructions are serialized\n"
KIB = 1024


def cubin(ctas: int, *, spilled: int = 0, log: str = "") -> Cubin:
    """A doubtful cubin, of which so many CTAs are resident where one more would fit."""
    used = Resources(128, 4 * spilled, 0)
    return Cubin(
        Lowered({}, {}),
        None,
        Assembled("", b"", used, log),
        processor(90),
        Residency(ctas, ctas + 1),
        waits=True,
        debug=False,
        tests_protocols=False,
    )


@pytest.mark.parametrize(
    ("made", "shared", "compiled"),
    [
        pytest.param(cubin(3), 57 * KIB, False, id="memory for as many"),
        pytest.param(cubin(3), 56 * KIB, True, id="memory for one more"),
        pytest.param(cubin(3, spilled=1), 57 * KIB, True, id="with spills"),
        pytest.param(cubin(3, log=SERIALISED), 57 * KIB, True, id="with serialised products"),
    ],
)
def test_machine_code_is_made_of_variants_that_may_be_better(
    made: Cubin, shared: int, compiled: bool
) -> None:
    """An H100 has 227 KiB for programs, each of which takes one more."""
    assert made.is_doubtful()
    variant = ThreadCode("", "kernel", warps=4, tile_warps=4, shared_bytes=shared)
    assert made.may_be_worse_than(variant) is compiled
