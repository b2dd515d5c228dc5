"""A worker process, in which `triton` is one of the contestants; it serves requests on a pipe.

python -m benchmarks.programs.worker CONTESTANT FILE FOLDER CONFIGURATIONS
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from benchmarks.contestants import OURS, free_memory, serve
from benchmarks.programs.calls import Made, load, tensors

WARM_UPS = 2

FLUSH = 4
"""Bytes written before each run, as a multiple of the L2 size."""


class Worker:
    """Handles requests, which are named like its methods.

    Args:
        contestant: `OURS`, or the name of the installed module.
        file: a file of calls.
        folder: results are saved there.
        configurations: as many are kept of each autotuned kernel's, evenly chosen.
    """

    def __init__(self, contestant: str, file: Path, folder: Path, configurations: int) -> None:
        if contestant == OURS:
            import tilewright

            tilewright.install_as_triton()
        self.contestant, self.folder = contestant, folder
        _limit_configurations(configurations)
        self.calls = load(file)
        self.run: Made | None = None
        self.kernels = set[str]()

    def about(self) -> dict[str, Any]:
        """The contestant's version, and the names of the calls."""
        triton = import_module("triton")
        name = f"Triton {triton.__version__}"
        if self.contestant == OURS:
            import tilewright

            name = f"tilewright {tilewright.__version__}"
        return {"contestant": name, "torch": torch.__version__, "calls": list(self.calls)}

    def warm(self, at: int, step: int) -> dict[str, Any]:
        """Run every `step`-th call from `at` on, for what it leaves in the compiler's cache."""
        for name in list(self.calls)[at::step]:
            try:
                self.calls[name]()()
                torch.cuda.synchronize()
            except Exception:  # `prepare` reports it
                continue
            finally:
                free_memory()
        return {}

    def prepare(self, name: str) -> dict[str, Any]:
        """Compile a call and save its results; `samples` may follow."""
        torch.manual_seed(0)
        self.run = self.calls[name]()
        with _launched() as self.kernels:
            found = [x.cpu() for x in tensors(self.run())]
        path = self.folder / f"{self.contestant}.pt"
        torch.save(found, path)
        for _ in range(WARM_UPS):
            self.run()
        torch.cuda.synchronize()
        return {"results": str(path)}

    def samples(self, count: int) -> dict[str, Any]:
        """Microseconds of each kernel in `count` runs with a cold L2 cache: a list by name, with
        one sum for each run."""
        assert self.run is not None
        size = FLUSH * torch.cuda.get_device_properties(0).L2_cache_size
        junk = torch.empty(size, dtype=torch.int8, device="cuda")
        times: dict[str, list[float]] = {}
        for i in range(count):
            junk.zero_()
            torch.cuda.synchronize()
            # CUPTI's times are those of the kernels alone.
            with profile(activities=[ProfilerActivity.CUDA]) as seen:
                self.run()
                torch.cuda.synchronize()
            for event in seen.events() or ():
                if event.name in self.kernels:
                    sums = times.setdefault(event.name, [0.0] * count)
                    sums[i] += event.time_range.elapsed_us()
        return {"samples": times}

    def drop(self) -> dict[str, Any]:
        """Free what was prepared."""
        self.run = None
        free_memory()
        return {}


@contextmanager
def _launched() -> Generator[set[str]]:
    """The names of the kernels that are launched within."""
    names: set[str] = set()

    def hook(metadata: Any) -> None:
        names.add(metadata.get()["name"])

    hooks = import_module("triton").knobs.runtime.launch_enter_hook
    hooks.add(hook)
    try:
        yield names
    finally:
        hooks.remove(hook)


def _limit_configurations(count: int) -> None:
    """Of each list of configurations that is tuned over, keep `count`, evenly chosen: measuring
    all would take many minutes, and both compilers are to run the same."""
    autotuner: Any = import_module("triton.runtime.autotuner").Autotuner
    init: Callable[..., None] = autotuner.__init__

    def limited(self: Any, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **kwargs)
        total = len(self.configs)
        kept = [(2 * i + 1) * total // (2 * count) for i in range(min(count, total))]
        self.configs = [self.configs[i] for i in kept]

    autotuner.__init__ = limited


def main(contestant: str, file: str, folder: str, configurations: str) -> None:
    serve(lambda: Worker(contestant, Path(file), Path(folder), int(configurations)))


if __name__ == "__main__":
    main(*sys.argv[1:])
