"""The least cut, against all cuts of small graphs."""

from __future__ import annotations

import random
from itertools import product

import pytest

from tilewright.passes.least_cut import Cut, Node

Edges = list[tuple[Node, Node, int]]


def cut_of(edges: Edges) -> Cut:
    cut = Cut()
    for edge in edges:
        cut.edge(*edge)
    return cut


def capacity(edges: Edges, side: set[Node]) -> int:
    """Of the edges that leave one side."""
    return sum(room for a, b, room in edges if a in side and b not in side)


def least_of_all(edges: Edges, nodes: list[Node]) -> int:
    choices = product([False, True], repeat=len(nodes))
    chosen = ({n for n, there in zip(nodes, c, strict=True) if there} for c in choices)
    return min(capacity(edges, {Cut.source, *side}) for side in chosen)


@pytest.mark.parametrize("seed", range(60))
def test_random_graphs(seed: int) -> None:
    rng = random.Random(seed)
    nodes: list[Node] = list("abcdefg"[: rng.randint(1, 7)])
    ends = [Cut.source, *nodes, Cut.sink]
    edges: Edges = [
        (a, b, rng.choice((0, 1, 1, 2, 5, 100)))
        for a, b in product(ends, ends)
        if a != Cut.sink and b != Cut.source and rng.random() < 0.6
    ]
    total, side = cut_of(edges).least()
    assert total == capacity(edges, side) == least_of_all(edges, nodes)
    assert Cut.source in side
    assert Cut.sink not in side


def test_what_is_made_once_crosses_once() -> None:
    for there, here in ((Cut.sink, Cut.source), (Cut.source, Cut.sink)):
        cut = Cut()
        cut.passes(here, [there, there, "a"], 5)
        cut.edge("a", here, 1)
        cut.edge(here, "a", 1)
        assert cut.least()[0] == 5


def test_nothing_crosses_on_one_side() -> None:
    cut = Cut()
    cut.passes(Cut.source, ["a", "b"], 7)
    total, side = cut.least()
    assert total == 0
    assert {"a", "b"} <= side


def test_long_paths() -> None:
    cut = Cut()
    for i in range(5000):
        cut.edge(i, i + 1, 300)
        cut.edge(i, Cut.sink, 1)
    cut.edge(Cut.source, 0, 1000)
    assert cut.least()[0] == 301
