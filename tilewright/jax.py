"""Kernels in JAX programs.

import tilewright.jax

y = tilewright.jax.call(kernel, x, out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype), grid=(8,))
"""

from tilewright.interop.jax_versions import INSTALL, require_version

try:
    import jax as _jax
except ImportError as error:
    raise ImportError(
        f"tilewright.jax needs JAX, which cannot be imported ({error}): {INSTALL}"
    ) from error
require_version(_jax.__version_info__)

from tilewright.interop.jax_call import call, enable  # noqa: E402  # the version comes first

__all__ = ["call", "enable"]
