"""The op set, one file per family. Importing this package registers all ops."""

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
    roles,
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
    "roles",
    "shape",
    "sort",
]
