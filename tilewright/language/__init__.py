"""The language of kernels, conventionally imported as `tl`.

import tilewright.language as tl

Each module below lists the names that it adds to `tl` in its own `__all__`. `core` has most of
them, too, as in Triton, but type checkers need not follow its `__all__`, which is a sum.
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
from tilewright.language.asm import *
from tilewright.language.atomic import *
from tilewright.language.block_pointer import *
from tilewright.language.core import *
from tilewright.language.debug import *
from tilewright.language.hints import *
from tilewright.language.iteration import *
from tilewright.language.math import *
from tilewright.language.products import *
from tilewright.language.random import *
from tilewright.language.shape import *
from tilewright.language.standard import *
from tilewright.language.tensor_descriptor import *
from tilewright.language.types import *

__all__ = [
    "core", "extra", "math", "operators", "random", "semantic", "standard", "target_info",
]  # fmt: skip
__all__ += core.__all__
__all__ += math.__all__
__all__ += random.__all__
__all__ += standard.__all__
