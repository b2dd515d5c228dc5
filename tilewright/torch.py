"""tilewright under torch.compile.

import tilewright, torch
tilewright.torch.enable()
y = torch.compile(torch.nn.functional.gelu)(x)
"""

from tilewright.interop.torch_compile import disable, enable

__all__ = ["disable", "enable"]
