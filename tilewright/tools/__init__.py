"""The commands of `python -m tilewright`, and what Triton has in `triton.tools`."""

from typing import TYPE_CHECKING

from tilewright.base.lazy_import import lazy_names

if TYPE_CHECKING:
    from tilewright.tools import disasm as disasm
    from tilewright.tools import tensor_descriptor as tensor_descriptor
else:  # Programs access these without importing them, as a launch does so in Triton.
    __getattr__ = lazy_names(__name__, {__name__: ("disasm", "tensor_descriptor")})
