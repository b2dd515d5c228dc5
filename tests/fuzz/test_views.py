"""Random views of tiles, compiled and interpreted, leave the same memory.

A long run is ``pytest tests/fuzz/test_views.py --fuzz-count=300 --fuzz-seed=random``: of each seed
20 views on the CPU, and of each fourth some on the emulated GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from tests.fuzz.views import SLOT, views_args, views_module
from tests.lowering.simt import harness as simt
from tests.targets.cpu import harness as cpu
from tilewright.compiler.pipeline import STEPS
from tilewright.ir.core import Module
from tilewright.ir.passes import PassContext, run
from tilewright.ir.printer import print_module
from tilewright.ir.verify import verify_module

VIEWS = 20
EMULATED_VIEWS = 12  # the emulator is slow

Both = Callable[[Module, Sequence[Any]], tuple[list[Any], list[Any]]]


def _wrong(seed: int, views: Sequence[int], both: Both) -> list[int]:
    """The views whose slots differ."""
    module = views_module(seed, views)
    verify_module(module)
    found, expected = both(module, views_args(seed, views))
    slots: set[int] = set()
    for x, y in zip(found, expected, strict=True):
        if isinstance(x, np.ndarray) and x.ndim:
            slots |= {int(i) // SLOT for i in np.nonzero(x != y)[0]}
    return [views[slot] for slot in sorted(slots)]


def _agrees(seed: int, views: Iterable[int], both: Both) -> None:
    """Compute the views; show one alone that is wrong."""
    wrong = _wrong(seed, [*views], both)
    if wrong:
        alone = [view for view in wrong if _wrong(seed, [view], both)]
        shown = print_module(views_module(seed, (alone or wrong)[:1]))
        raise AssertionError(f"views {wrong} of seed {seed} differ, {alone} alone too:\n{shown}")


def test_views_agree_on_the_cpu(fuzz_seed: int) -> None:
    def both(module: Module, args: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        if fuzz_seed % 2:
            run(module, STEPS, PassContext())
        narrow = fuzz_seed % 3 == 0 and "avx2" in cpu.host().features
        machine = cpu.host(cpu.PLAIN_AVX2 if narrow else None)
        return cpu.both(module, (1, 1, 1), args, machine=machine)

    _agrees(fuzz_seed, range(VIEWS), both)


def test_views_agree_on_an_emulated_gpu(fuzz_seed: int) -> None:
    if fuzz_seed % 4:
        return
    seed = fuzz_seed // 4

    def both(module: Module, args: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        shape: Any = {"warps": (1, 2, 4)[seed % 3], "lanes": (2, 8, 32, 4)[seed % 4]}
        return simt.both(module, (1, 1, 1), args, seed=seed, tile_passes=bool(seed % 2), **shape)

    _agrees(fuzz_seed, range(EMULATED_VIEWS), both)
