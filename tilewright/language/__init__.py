"""The language of kernels, conventionally imported as `tl`.

import tilewright.language as tl

Each module below lists the names that it adds to `tl` in its own `__all__`.
"""

from tilewright.language import (
    core,
    extra,
    math,
    operators,
    random,
    semantic,
    standard,
    target_info,
)
from tilewright.language.core import *
from tilewright.language.math import *
from tilewright.language.random import *
from tilewright.language.standard import *

__all__ = [
    "core", "extra", "math", "operators", "random", "semantic", "standard", "target_info",
]  # fmt: skip
__all__ += core.__all__
__all__ += math.__all__
__all__ += random.__all__
__all__ += standard.__all__
