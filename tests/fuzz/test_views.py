"""Random views of tiles, compiled and interpreted, leave the same memory.

Many at once are run by ``python -m tests.fuzz.run --views=250``, of each seed 20 views.
"""

from __future__ import annotations

from tests.fuzz.checks import views, views_emulated


def test_views_agree_on_the_cpu(fuzz_seed: int) -> None:
    views(fuzz_seed)


def test_views_agree_on_an_emulated_gpu(fuzz_seed: int) -> None:
    if fuzz_seed % 4 == 0:  # the emulator is slow
        views_emulated(fuzz_seed // 4)
