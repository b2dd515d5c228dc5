"""A store of facts in memory, in place of the cache on disk."""

from __future__ import annotations


class Memory:
    """A store in memory with the interface of `tilewright.base.fact_cache`."""

    def __init__(self) -> None:
        self.kept: dict[str, dict[str, bytes]] = {}

    def get(self, key: str) -> dict[str, bytes] | None:
        return self.kept.get(key)

    def put(self, key: str, files: dict[str, bytes]) -> None:
        self.kept[key] = files
