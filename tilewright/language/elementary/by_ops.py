"""The functions of this folder that are differentiated through their ops; see `derivatives`."""

from __future__ import annotations

BY_OPS = frozenset(
    {
        "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "tanh", "rsqrt", "floor", "ceil",
        "trunc", "rint", "sqrt", "fma", "sin", "cos", "abs", "erf", "fmod", "fdim", "saturatef",
        "nearbyint", "fast_expf", "fast_logf", "fast_log2f", "fast_log10f", "fast_tanhf",
        "fast_exp10f", "fast_powf", "fast_dividef", "fast_sinf", "fast_cosf", "fast_tanf",
        "int2double_rn", "uint2double_rn",
    }
)  # fmt: skip
"""The functions whose ops have the derivative of the function."""
