"""The minimum cut, against all cuts of small graphs."""

from __future__ import annotations

import random
from itertools import product

import pytest

from tilewright.passes.min_cut import Cut, Node

Edges = list[tuple[Node, Node, int]]


def cut_of(edges: Edges) -> Cut:
    cut = Cut()
    for edge in edges:
        cut.add_edge(*edge)
    return cut


def capacity(edges: Edges, side: set[Node]) -> int:
    """The capacity of the edges that leave one side."""
    return sum(room for a, b, room in edges if a in side and b not in side)


def minimum_by_enumeration(edges: Edges, nodes: list[Node]) -> int:
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
    total, side = cut_of(edges).solve()
    assert total == capacity(edges, side) == minimum_by_enumeration(edges, nodes)
    assert Cut.source in side
    assert Cut.sink not in side


def test_value_with_several_users_costs_once() -> None:
    for there, here in ((Cut.sink, Cut.source), (Cut.source, Cut.sink)):
        cut = Cut()
        cut.add_value(here, [there, there, "a"], 5)
        cut.add_edge("a", here, 1)
        cut.add_edge(here, "a", 1)
        assert cut.solve()[0] == 5


def test_value_used_on_its_side_costs_nothing() -> None:
    cut = Cut()
    cut.add_value(Cut.source, ["a", "b"], 7)
    total, side = cut.solve()
    assert total == 0
    assert {"a", "b"} <= side


def test_long_paths() -> None:
    cut = Cut()
    for i in range(1500):
        cut.add_edge(i, i + 1, 300)
        cut.add_edge(i, Cut.sink, 1)
    cut.add_edge(Cut.source, 0, 1000)
    assert cut.solve()[0] == 301
