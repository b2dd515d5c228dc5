"""Base class of the GPU targets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tilewright.base.lazy_import import lazy_import
from tilewright.targets.base_backend import BaseBackend

if TYPE_CHECKING:  # a kernel loaded from the disk cache needs no passes
    from tilewright.ir.machine import GpuMachine
    from tilewright.ir.passes import Step
    from tilewright.targets.gpu import steps
else:
    steps = lazy_import("tilewright.targets.gpu.steps")


class GpuTarget(BaseBackend):
    """A target whose programs are executed by several threads of a GPU."""

    def features(self) -> frozenset[str]:
        """Names of the GPU's features: `async_copy`, for asynchronous copies to shared memory, and
        those that are conditions of the target's own steps (`Step.when`)."""
        return frozenset()

    def gpu_machine(self, options: Any) -> GpuMachine:
        """The GPU, and the number of threads of a program, for a kernel with these options."""
        raise NotImplementedError

    def steps(self) -> Sequence[Step]:
        """The steps common to all GPUs."""
        return steps.steps()
