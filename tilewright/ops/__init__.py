"""The op set. Importing this package fills the registry; one file a family."""

from tilewright.ops import (
    arith,
    atomic,
    control,
    debug,
    dot,
    gpu,
    math,
    memory,
    nvidia,
    reduce,
    shape,
)

__all__ = [
    "arith",
    "atomic",
    "control",
    "debug",
    "dot",
    "gpu",
    "math",
    "memory",
    "nvidia",
    "reduce",
    "shape",
]
