"""Configurations of an autotuned kernel."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

OPTIONS = ("num_warps", "num_ctas", "num_stages", "maxnreg", "ir_override", "num_cpu_threads")


class Config:
    """Values for parameters of a kernel, and options to compile it with.

        Config({"BLOCK": 128}, num_warps=8)

    Configurations are equal if all of their settings and hooks are.

    Args:
        kwargs: values of compile-time parameters by name.
        num_warps, num_stages, num_ctas, maxnreg, ir_override, num_cpu_threads: compile options;
            None omits an option. A target ignores options that do not apply to it.
        pre_hook: called with all launch arguments by name before each launch.
    """

    def __init__(
        self,
        kwargs: Mapping[str, Any],
        num_warps: int | None = 4,
        num_stages: int | None = 3,
        num_ctas: int | None = 1,
        maxnreg: int | None = None,
        pre_hook: Callable[[dict[str, Any]], Any] | None = None,
        ir_override: str | None = None,
        *,
        num_cpu_threads: int | None = None,
    ) -> None:
        self.kwargs: dict[str, Any] = dict(kwargs)
        self.num_warps = num_warps
        self.num_ctas = num_ctas
        self.num_stages = num_stages
        self.maxnreg = maxnreg
        self.pre_hook = pre_hook
        self.ir_override = ir_override
        self.num_cpu_threads = num_cpu_threads

    def all_kwargs(self) -> dict[str, Any]:
        """The parameters, and the options that are not None, as launch keywords."""
        chosen = self.kwargs.copy()
        options = vars(self)  # on the launch path: faster than access by attribute
        for name in OPTIONS:
            value = options.get(name)
            if value is not None:
                chosen[name] = value
        return chosen

    def _key(self) -> tuple[Any, ...]:
        return (*self.all_kwargs().items(), self.pre_hook)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Config) and self._key() == other._key()

    def __hash__(self) -> int:
        try:
            return hash(self._key())
        except TypeError:  # an unhashable value, such as a list
            return hash(str(self))

    def __str__(self) -> str:
        options = {
            "num_warps": self.num_warps,
            "num_ctas": self.num_ctas,
            "num_stages": self.num_stages,
            "maxnreg": self.maxnreg,
        }
        return ", ".join(f"{k}: {v}" for k, v in {**self.kwargs, **options}.items())

    def __repr__(self) -> str:
        return f"Config({self})"
