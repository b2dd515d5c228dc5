"""Lowering of arithmetic and mathematical functions to AMD's instructions."""

from __future__ import annotations

from tilewright.lowering.registry import lowers
from tilewright.lowering.without_library import rem_without_library, sin_cos_without_library
from tilewright.ops import arith, math
from tilewright.targets.amd.name import NAME

lowers(arith.Rem, target=NAME)(rem_without_library)
lowers(math.Sin, math.Cos, target=NAME)(sin_cos_without_library)
