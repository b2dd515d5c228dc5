"""Pruning of configurations by an estimate of their times."""

from __future__ import annotations

from collections.abc import Callable

from tilewright.runtime.config import Config


def cheapest(configs: list[Config], most: int, estimate: Callable[..., float]) -> list[Config]:
    """At most this number of configurations, those with the least estimates for their keywords."""
    if len(configs) <= most:
        return configs
    cost = [estimate(**config.all_kwargs()) for config in configs]
    ranked = sorted(range(len(configs)), key=cost.__getitem__)
    return [configs[i] for i in ranked[:most]]


def number_kept(top_k: float | int, count: int) -> int:
    """The number of configurations to keep of `count`.

    Args:
        top_k: that number, or as a float up to 1.0 the fraction of `count`, of which at least one
            is kept.

    Raises:
        TypeError: `top_k` is a float above 1.0.
    """
    if isinstance(top_k, float) and top_k <= 1.0:
        return max(1, int(count * top_k))
    if isinstance(top_k, float):
        raise TypeError(
            "Error while pruning configs, top_k must be either 1) a float <= 1.0 or 2) an int: "
            f"it is {top_k}"
        )
    return top_k
