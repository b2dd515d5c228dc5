"""The op set. Importing this package fills the registry; one file a family."""

from tilewright.ops import (
    arith,
    asm,
    atomic,
    control,
    debug,
    dot,
    gpu,
    histogram,
    map,
    math,
    memory,
    nvidia,
    reduce,
    shape,
    sort,
)

__all__ = [
    "arith",
    "asm",
    "atomic",
    "control",
    "debug",
    "dot",
    "gpu",
    "histogram",
    "map",
    "math",
    "memory",
    "nvidia",
    "reduce",
    "shape",
    "sort",
]
