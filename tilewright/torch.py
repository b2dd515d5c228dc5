"""tilewright under torch.compile, and kernels as operators of torch.

import tilewright, torch
tilewright.torch.enable()
y = torch.compile(torch.nn.functional.gelu)(x)
"""

from tilewright.interop.torch_compile import disable, enable
from tilewright.interop.torch_operators import Operator, custom_op

__all__ = ["Operator", "custom_op", "disable", "enable"]
