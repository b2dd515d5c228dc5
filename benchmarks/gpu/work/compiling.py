"""How long it takes to compile kernels for sm_90, as `benchmarks.gpu.compile_time` measures it."""

from __future__ import annotations

from benchmarks.gpu.case import Setting
from benchmarks.gpu.compile_time import KERNELS, in_a_process
from benchmarks.gpu.measure import Bench, Planned
from benchmarks.gpu.results import Bars, Outcome, Row

PROCESSES = 3
BARS = Bars(triton=1.0)


class _Compilations:
    """The times of all kernels, measured on the first request."""

    def __init__(self) -> None:
        self._found: dict[str, list[dict[str, float | str]]] = {}

    def outcome(self, module: str, name: str, processes: int) -> Outcome:
        """The shortest time of some processes."""
        if module not in self._found:
            self._found[module] = [in_a_process(module) for _ in range(processes)]
        outcome, times = Outcome(config=f"best of {processes}"), list[float]()
        for found in self._found[module]:
            time = found[name]
            if isinstance(time, str):
                outcome.failures["sm_90"] = time
            else:
                times.append(time * 1e3)
        outcome.us = min(times) if times else None
        return outcome


def plan(setting: Setting) -> dict[str, Planned]:
    compilations = _Compilations()
    processes = setting.pick(1, 1, PROCESSES)

    def planned(name: str) -> Planned:
        def measure(bench: Bench, row: Row) -> None:
            row.bars = BARS
            for module in bench.modules:
                bench.announce(module)
                row.outcomes[module] = compilations.outcome(module, name, processes)

        return measure

    return {name: planned(name) for name in KERNELS}
