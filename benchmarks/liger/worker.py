"""A worker process, in which `triton` is one of the contestants.

python -m benchmarks.liger.worker CONTESTANT PATH
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from importlib import import_module
from importlib.metadata import version
from types import ModuleType
from typing import Any

import torch

from benchmarks.contestants import OURS, free_memory, serve
from benchmarks.liger.call import Call, worst_error
from benchmarks.liger.clock import CudaClock, HostClock, Timed
from benchmarks.liger.make import Make
from benchmarks.liger.operators import OPERATORS, Operator

CHECK_CONFIGS, TIMED_CONFIGS = 2, 5
"""The number of configurations for autotuned operators: the first of the list, which usually needs
the fewest resources, and a random sample of the others, the same for both contestants. Measuring
all would take Triton many minutes."""


class Worker:
    """Handles requests, which are named like its methods.

    Args:
        contestant: "tilewright", or "triton" for the one that is installed.
    """

    def __init__(self, contestant: str) -> None:
        self.ours = contestant == OURS
        if self.ours:
            import tilewright

            tilewright.install_as_triton()
        self._configs: dict[int, list[Any]] = {}
        self._timed: Timed | None = None

    def about(self) -> dict[str, Any]:
        """Versions of the libraries."""
        name = f"Triton {import_module('triton').__version__}"
        if self.ours:
            import tilewright

            name = f"tilewright {tilewright.__version__}"
        return {"contestant": name, "torch": torch.__version__, "liger": version("liger_kernel")}

    def check(self, operator: int, device: str, dtype: str) -> dict[str, Any]:
        """The error with small inputs, and the number of kernel launches."""
        chosen = OPERATORS[operator]
        apply = self._apply(chosen, device, CHECK_CONFIGS)
        kind = getattr(torch, dtype)

        def make(exact: bool) -> Make:
            return Make(device, kind, exact)

        error = worst_error(chosen, apply, chosen.small, make)
        call = Call(apply, chosen.inputs(make(False), *chosen.small))
        return {"error": error, "launches": self._launches(call.forward)}

    def prepare(self, operator: int, device: str, dtype: str, small: bool) -> dict[str, Any]:
        """Compile and tune with large inputs; returns the error. `samples` may follow."""
        chosen = OPERATORS[operator]
        apply = self._apply(chosen, device, TIMED_CONFIGS)
        kind = getattr(torch, dtype)
        sizes = chosen.small if small else chosen.large

        def make(exact: bool) -> Make:
            return Make(device, kind, exact, on_device=True)

        error = worst_error(chosen, apply, sizes, make)
        free_memory()
        call = Call(apply, chosen.inputs(make(False), *sizes))
        launches = self._launches(call.forward)
        count = len(Call(chosen.reference, chosen.inputs(make(True), *chosen.small)).forward())
        clock = CudaClock() if device == "cuda" else HostClock()
        self._timed = Timed(Call(apply, chosen.inputs(make(False), *sizes)), count, clock)
        return {"error": error, "launches": launches}

    def samples(self, seconds: float) -> dict[str, Any]:
        """Times of the prepared operator, in microseconds by part."""
        assert self._timed is not None
        return {"samples": self._timed.samples(seconds)}

    def drop(self) -> dict[str, Any]:
        """Free the prepared operator."""
        self._timed = None
        free_memory()
        return {}

    def _apply(self, operator: Operator, device: str, configs: int) -> Callable[..., Any]:
        module = import_module(f"liger_kernel.ops.{operator.name}")
        if operator.pose_as and device == "cpu":
            vars(module)["infer_device"] = lambda: operator.pose_as
        self._draw_configs(module, configs)
        return getattr(module, operator.function).apply

    def _draw_configs(self, module: ModuleType, most: int) -> None:
        for value in vars(module).values():
            if not (hasattr(value, "configs") and hasattr(value, "prune_configs")):
                continue
            every = self._configs.setdefault(id(value), list(value.configs))
            others = range(1, len(every))
            drawn = random.Random(most).sample(others, min(most - 1, len(others)))
            value.configs = [every[i] for i in (0, *sorted(drawn))]

    def _launches(self, run: Callable[[], Any]) -> int | None:
        """The number of launches of tilewright kernels: some operators may use torch only."""
        if not self.ours:
            return None
        import tilewright

        seen: list[Any] = []
        hook = seen.append
        tilewright.knobs.runtime.launch_enter_hook.add(hook)
        try:
            run()
        finally:
            tilewright.knobs.runtime.launch_enter_hook.remove(hook)
        return len(seen)


def main(contestant: str, path: str) -> None:
    if path:
        sys.path.append(path)
    serve(lambda: Worker(contestant))


if __name__ == "__main__":
    main(*sys.argv[1:])
