"""The kernels of the examples, on the NPU, against the interpreter."""

from __future__ import annotations

from typing import Any

import pytest

from tests.gpu import examples, recipes
from tests.gpu.programs import At, difference, interpreted, source_of
from tilewright.compiler.driver import compile_source
from tilewright.runtime.device_array import DeviceArray
from tilewright.targets.protocol import GPUTarget
from tilewright.targets.registry import target

NPU = GPUTarget("npu")
JOBS = list(dict.fromkeys((job.recipe, job.params) for job in examples.jobs()))
MORE = [
    (recipes.vector_add, (1000,)),
    (recipes.softmax, ("fp32", 5, 300)),
    (recipes.softmax, ("fp16", 3, 1000)),
    (recipes.dropout, (1000, 0.3, 7)),
    (recipes.layer_norm_forward, ("fp32", 5, 300)),
    (recipes.layer_norm_backward, (7, 200, 3)),
    (recipes.sum_shares, (300,)),
    (recipes.giou, ("fp32", 2, 100)),
    (recipes.giou_sum, (5000,)),
]


def name_of(value: Any) -> str:
    return getattr(value, "__name__", None) or "-".join(map(str, value))


@pytest.mark.parametrize(("recipe", "params"), [*JOBS, *MORE], ids=name_of)
def test_kernel_of_an_example(recipe: Any, params: tuple[Any, ...]) -> None:
    program = recipe(*params)
    source, values = source_of(program)
    options = target(NPU).parse_options({})
    expected = program.expected
    if expected is None:
        module = source.module(target(NPU).frontend_options(options))
        expected = interpreted(program, module)
    kernel = compile_source(source, NPU, options)
    args = [DeviceArray("npu:0", v.array) if isinstance(v, At) else v for v in values]
    kernel[program.grid](*args)
    arrays = [a for a in args if isinstance(a, DeviceArray)]
    for found, array in zip(arrays, expected, strict=True):
        text = difference(found.numpy().reshape(array.shape), array, program.bound)
        assert not text, text
