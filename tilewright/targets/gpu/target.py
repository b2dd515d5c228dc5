"""Base of the targets for GPUs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tilewright.base.late import late
from tilewright.targets.base_backend import BaseBackend

if TYPE_CHECKING:
    from tilewright.ir.machine import GpuMachine
    from tilewright.ir.passes import Step

# A kernel that is found in the store needs no passes.
_steps = late("tilewright.targets.gpu.steps:steps")


class GpuTarget(BaseBackend):
    """A target whose passes share the work of a program among the threads of a GPU."""

    def features(self) -> frozenset[str]:
        """Names of what the GPU has: `async_copy`, where it copies to shared memory by itself, and
        the names of its own passes' steps."""
        return frozenset()

    def gpu_machine(self, options: Any) -> GpuMachine:
        """The GPU, and how many of its threads run a program, for a kernel with these options."""
        raise NotImplementedError

    def steps(self) -> Sequence[Step]:
        """Those of all GPUs, and none of its own."""
        return _steps()
