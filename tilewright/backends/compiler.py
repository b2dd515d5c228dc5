"""`GPUTarget` names what to compile for: ``compile(src, target=GPUTarget("cpu"))``."""

from tilewright.targets.base_backend import BaseBackend
from tilewright.targets.protocol import GPUTarget, Lowered, Target

__all__ = ["BaseBackend", "GPUTarget", "Lowered", "Target"]
