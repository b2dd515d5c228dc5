"""Minimum cut of a directed graph, computed as its maximum flow (Ford and Fulkerson 1956).

Dinic's algorithm (1970): each round saturates all shortest augmenting paths, so that the number of
rounds is at most the number of nodes; O(V^2 E) in the worst case.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable
from itertools import pairwise

INFINITE = 1 << 60

Node = Hashable


class Cut:
    """A flow network with a source and a sink.

    cut = Cut()
    cut.add_edge(cut.source, "a", 3)
    cut.add_edge("a", cut.sink, 2)
    cut.solve()  # (2, {source, "a"})
    """

    source: Node = "source"
    sink: Node = "sink"

    def __init__(self) -> None:
        self.residual: dict[Node, dict[Node, int]] = {self.source: {}, self.sink: {}}

    def add_edge(self, start: Node, end: Node, capacity: int) -> None:
        """Add capacity from one node to another."""
        if start == end:
            return
        outgoing = self.residual.setdefault(start, {})
        outgoing[end] = outgoing.get(end, 0) + capacity
        self.residual.setdefault(end, {}).setdefault(start, 0)

    def add_value(self, producer: Node, users: Iterable[Node], size: int) -> None:
        """Add a value with one producer and several users, which costs `size` once if any user is
        on the other side of the cut than the producer."""
        out, back = object(), object()
        self.add_edge(producer, out, size)
        self.add_edge(back, producer, size)
        for user in users:
            self.add_edge(out, user, INFINITE)
            self.add_edge(user, back, INFINITE)

    def solve(self) -> tuple[int, set[Node]]:
        """The capacity of a minimum cut, and the nodes on the side of the source: of all minimum
        cuts, the one with the fewest. The capacities are consumed."""
        total = 0
        while True:
            distance = self._distances()
            if self.sink not in distance:
                return total, set(distance)
            total += self._saturate(distance)

    def _distances(self) -> dict[Node, int]:
        """The distances from the source, in residual edges, of the nodes that are reachable."""
        result: dict[Node, int] = {self.source: 0}
        queue = deque([self.source])
        while queue:
            node = queue.popleft()
            for other, residual in self.residual[node].items():
                if residual > 0 and other not in result:
                    result[other] = result[node] + 1
                    queue.append(other)
        return result

    def _saturate(self, distance: dict[Node, int]) -> int:
        """Saturate all shortest augmenting paths and return their flow. Edges that are saturated,
        or do not lead to the sink, are not revisited."""
        total = 0
        remaining = {node: list(self.residual[node]) for node in distance}
        path: list[Node] = [self.source]
        while path:
            node = path[-1]
            if node == self.sink:
                total += self._saturate_path(path)
                continue
            edges, next_distance = remaining[node], distance[node] + 1
            while edges and not (
                self.residual[node][edges[-1]] and distance.get(edges[-1]) == next_distance
            ):
                edges.pop()
            if edges:
                path.append(edges[-1])
            else:
                path.pop()
                if path:
                    remaining[path[-1]].pop()
        return total

    def _saturate_path(self, path: list[Node]) -> int:
        """Saturate a path, truncate it before its first saturated edge, and return its flow."""
        edges = list(pairwise(path))
        flow = min(self.residual[a][b] for a, b in edges)
        for a, b in edges:
            self.residual[a][b] -= flow
            self.residual[b][a] += flow
        saturated = next(i for i, (a, b) in enumerate(edges) if not self.residual[a][b])
        del path[saturated + 1 :]
        return flow
