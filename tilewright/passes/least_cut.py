"""The least cut of a graph, which is its greatest flow (Ford and Fulkerson 1956).

All shortest paths are filled at a time (Dinic 1970), so that it is found in as many rounds as there
are lengths of paths, or fewer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable
from itertools import pairwise

INFINITE = 1 << 60

Node = Hashable


class Cut:
    """A graph with a source and a sink, between which it is cut.

    cut = Cut()
    cut.edge(cut.source, "a", 3)
    cut.edge("a", cut.sink, 2)
    cut.least()  # (2, {source, "a"})
    """

    source: Node = "source"
    sink: Node = "sink"

    def __init__(self) -> None:
        self.room: dict[Node, dict[Node, int]] = {self.source: {}, self.sink: {}}

    def edge(self, start: Node, end: Node, capacity: int) -> None:
        """Let so much more flow from one node to another."""
        if start == end:
            return
        outgoing = self.room.setdefault(start, {})
        outgoing[end] = outgoing.get(end, 0) + capacity
        self.room.setdefault(end, {}).setdefault(start, 0)

    def passes(self, maker: Node, users: Iterable[Node], size: int) -> None:
        """What one node makes for others costs `size` where any of them is on the other side, once
        and whichever that is."""
        out, back = object(), object()
        self.edge(maker, out, size)
        self.edge(back, maker, size)
        for user in users:
            self.edge(out, user, INFINITE)
            self.edge(user, back, INFINITE)

    def least(self) -> tuple[int, set[Node]]:
        """The capacity of the least cut, and the nodes on the side of the source, as few as can
        be. The graph is used up."""
        total = 0
        while True:
            distance = self._distances()
            if self.sink not in distance:
                return total, set(distance)
            total += self._fill(distance)

    def _distances(self) -> dict[Node, int]:
        """Of the nodes that can be reached from the source, in edges with room."""
        found: dict[Node, int] = {self.source: 0}
        waiting = deque([self.source])
        while waiting:
            node = waiting.popleft()
            for other, room in self.room[node].items():
                if room > 0 and other not in found:
                    found[other] = found[node] + 1
                    waiting.append(other)
        return found

    def _fill(self, distance: dict[Node, int]) -> int:
        """Fill all shortest paths, and tell by how much. An edge that is full or leads nowhere is
        left for good."""
        total = 0
        left = {node: list(self.room[node]) for node in distance}
        path: list[Node] = [self.source]
        while path:
            node = path[-1]
            if node == self.sink:
                total += self._fill_path(path)
                continue
            edges, deeper = left[node], distance[node] + 1
            while edges and not (self.room[node][edges[-1]] and distance.get(edges[-1]) == deeper):
                edges.pop()
            if edges:
                path.append(edges[-1])
            else:
                path.pop()
                if path:
                    left[path[-1]].pop()
        return total

    def _fill_path(self, path: list[Node]) -> int:
        """Let as much flow along a path as can, and go back to where it is full."""
        edges = list(pairwise(path))
        flow = min(self.room[a][b] for a, b in edges)
        for a, b in edges:
            self.room[a][b] -= flow
            self.room[b][a] += flow
        full = next(i for i, (a, b) in enumerate(edges) if not self.room[a][b])
        del path[full + 1 :]
        return flow
