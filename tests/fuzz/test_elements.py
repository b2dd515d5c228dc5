"""Random graphs of elementwise ops compute on targets what the interpreter computes.

Many at once are run by ``python -m tests.fuzz.run --elements=10000 --elements-amd=10000``.
"""

from __future__ import annotations

from tests.fuzz.checks import elements, elements_amd
from tests.fuzz.elements import random_graph, shrunk
from tilewright.ir.printer import print_module


def test_random_graph_agrees_on_the_cpu(fuzz_seed: int) -> None:
    if fuzz_seed % 2 == 0:
        elements(fuzz_seed)


def test_random_graph_agrees_on_an_emulated_amd_processor(fuzz_seed: int) -> None:
    if fuzz_seed % 5 == 4:  # the emulator is slow
        elements_amd(fuzz_seed)


def test_graph_that_fails_is_shown_small() -> None:
    graph = random_graph(1)
    graph.roots = graph.roots[-1:]
    small = shrunk(graph, lambda tried: "arith.mul " in print_module(tried.module(tried.roots)))
    names = [op.name for op in small.module(small.roots).entry.walk() if op.name[:5] == "arith"]
    assert len(names) < 8
