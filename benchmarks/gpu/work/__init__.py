"""The workloads: `FAMILIES` has them by the name that ``--only`` selects."""

from __future__ import annotations

from functools import partial

from benchmarks.gpu.measure import Family
from benchmarks.gpu.work import (
    attention,
    chains,
    compiling,
    elementwise,
    giou,
    launching,
    layer_norm,
    matmul,
    softmax,
)

FAMILIES: dict[str, Family] = {
    "add": Family("vector add, fp32", elementwise.add),
    "copy": Family("copy, bf16", elementwise.copy),
    "softmax-row": Family("softmax fp32, one row a program", softmax.one_row),
    "softmax-rows": Family("softmax fp32, several rows a program", softmax.several_rows),
    "softmax-long": Family("softmax fp32, a loop over the row", softmax.long_rows),
    "layer-norm": Family("layer norm fp16", layer_norm.forward),
    "layer-norm-backward": Family("layer norm fp16, backward", layer_norm.backward),
    "matmul-fp16": Family("matmul fp16", partial(matmul.square, "fp16")),
    "matmul-bf16": Family("matmul bf16", partial(matmul.square, "bf16")),
    "matmul-other": Family("matmul int8, fp8, tf32", matmul.other_types),
    "attention": Family("attention fp16, forward", attention.forward),
    "attention-backward": Family("attention fp16, backward", attention.backward),
    "giou": Family("GIoU, fp32", giou.plan),
    "chain": Family("chains of 20 small kernels, launches included", chains.plan),
    "launch": Family("host time of a launch", launching.plan),
    "compile": Family("cold compile for sm_90", compiling.plan, check=False),
}


def chosen(only: str) -> dict[str, Family]:
    """The families that one of the comma-separated texts is a part of; all for ""."""
    parts = [part.strip() for part in only.split(",")]
    return {key: f for key, f in FAMILIES.items() if any(part in key for part in parts)}
