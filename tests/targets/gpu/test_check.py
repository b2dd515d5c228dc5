"""Kernels that can't be compiled for a GPU raise clear errors with the source line."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.gpu import compile_time
from tests.frontend.kernels import kernel_from
from tests.gpu_machine import gpu_machine
from tilewright.base.diagnostics import CompilationError, Loc
from tilewright.base.located import error_at
from tilewright.compiler.driver import compile
from tilewright.compiler.source import ASTSource
from tilewright.ir.core import Function, Value
from tilewright.ir.define import REGISTRY, Op, operand
from tilewright.ir.passes import PassContext
from tilewright.ir.types import I32, Type
from tilewright.ops.control import Return
from tilewright.targets.gpu.check import check_kernel
from tilewright.targets.nvidia.features import processor
from tilewright.targets.protocol import GPUTarget

HOPPER = GPUTarget("cuda", 90, 32)
CONTEXT = PassContext(machine=gpu_machine(lanes=32, warps=4))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("i = tl.arange(0, 0)", "arange's end argument must be greater than the start argument"),
        (
            "i = tl.atomic_add(p.to(tl.pointer_type(tl.int8)), 1)",
            "atomic_add does not support int8",
        ),
    ],
)
def test_kernel_is_rejected_at_its_line(line: str, message: str) -> None:
    kernel = kernel_from(f"def kernel(p):\n    n = 1\n    {line}\n    tl.store(p + i, i)\n")
    with pytest.raises(CompilationError, match=message) as found:
        compile(ASTSource(kernel, {"p": "*i32"}), HOPPER)
    assert str(found.value).startswith("at 3:")


PRODUCT = """def kernel(a, b, c, N: tl.constexpr):
    i = tl.arange(0, N)
    k = tl.arange(0, 32)
    x = tl.load(a + i[:, None] * 32 + k)
    y = tl.load(b + k[:, None] * N + i)
    z = tl.dot(x, y)
    tl.store(c + i[:, None] * N + i, z)
"""


def test_product_far_beyond_the_registers_is_rejected() -> None:
    def compiled(extent: int, warps: int) -> None:
        types = {"a": "*fp16", "b": "*fp16", "c": "*fp32"}
        source = ASTSource(kernel_from(PRODUCT), types, {"N": extent})
        compile(source, HOPPER, {"num_warps": warps})

    message = (
        "the product, 512x512xfp32, has 262144 sums: 2048 registers of each of 128 threads, which "
        "have 255, and a multiprocessor has 65536. Make the tile smaller"
    )
    with pytest.raises(CompilationError, match=message) as found:
        compiled(512, 4)
    assert str(found.value).startswith("at 6:")
    with pytest.raises(CompilationError, match="2048 registers of each of 32 threads"):
        compiled(256, 1)
    compiled(128, 1)  # spills, and runs


class _Strange(Op, name="arith.strange"):
    """An op without a lowering on GPUs."""

    src: Value = operand()

    def result_type(self) -> Type:
        return self.src.type


del REGISTRY[_Strange.name]  # no other test is to meet it


def _with_strange(loc: Loc | None) -> Function:
    fn = Function("kernel", [I32])
    op = _Strange(fn.args[0])
    op.loc = loc
    fn.body.append(op)
    fn.body.append(Return([]))
    return fn


KERNEL = '''
import tilewright as tw

class Holder:
    @tw.jit
    def first(x):
        pass

    @tw.jit
    def strange(x):
        """What it does."""
        y = x
        tw.language.strange(y)
        return y
'''


def test_op_without_a_lowering_shows_its_source(tmp_path: Path) -> None:
    path = tmp_path / "kernels.py"
    path.write_text(KERNEL)
    with pytest.raises(CompilationError) as found:
        check_kernel(_with_strange(Loc(str(path), 13, 9, "strange")), CONTEXT)
    assert str(found.value).splitlines() == [
        "at 4:4:",
        "def strange(x):",
        '    """What it does."""',
        "    y = x",
        "    tw.language.strange(y)",
        "    ^",
        "arith.strange can't be compiled for emulated GPUs",
    ]


def test_op_without_a_location_is_rejected() -> None:
    with pytest.raises(CompilationError, match=r"source unavailable.*\narith\.strange can't be"):
        check_kernel(_with_strange(None), CONTEXT)


@pytest.mark.parametrize("function", ["", "second"])
def test_error_where_the_source_has_no_such_function(function: str, tmp_path: Path) -> None:
    path = tmp_path / "kernels.py"
    path.write_text(KERNEL)
    message = str(error_at(Loc(str(path), 13, 9, function), "It is wrong."))
    assert message == f"at 13:8: <source unavailable>\nIt is wrong. ({path}:13:9)"


def test_shared_memory_beyond_the_limit_is_in_the_metadata() -> None:
    """Compiling needs no GPU and so rejects nothing; loading compares the two numbers."""
    kernel = compile_time.KERNELS["matmul 128 x 256 x 64"]
    larger = replace(kernel, constants={**kernel.constants, "BLOCK_K": 512})
    compiled = compile(compile_time.source("tilewright", larger), HOPPER, kernel.options)
    assert compiled.metadata.shared > processor(90).shared_limit
