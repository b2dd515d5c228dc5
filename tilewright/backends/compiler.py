"""`GPUTarget` names what to compile for: ``compile(src, target=GPUTarget("cpu"))``."""

from tilewright.targets.protocol import GPUTarget, Lowered, Target

__all__ = ["GPUTarget", "Lowered", "Target"]
