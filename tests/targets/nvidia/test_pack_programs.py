"""Which kernels run several programs in a block, and how their code tells the programs apart."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.frontend.kernels import kernel_from
from tests.gpu.programs import HOPPER
from tilewright.base import knobs
from tilewright.compiler.artifact import CompiledKernel
from tilewright.compiler.driver import compile
from tilewright.compiler.source import ASTSource

HEAD = """
def kernel(x, n):
    i = tl.arange(0, 64)
    v = tl.load(x + tl.program_id(0) * 64 + i)
"""


def compiled(text: str, **options: Any) -> CompiledKernel:
    source = ASTSource(kernel_from(HEAD + text), {"x": "*i32", "n": "i32"})
    return compile(source, HOPPER, {"num_warps": 1, **options})


STORE = "    tl.store(x + tl.program_id(0) * 64 + i, v + n)\n"
COUNTS = "    tl.store(x + i, tl.histogram(v, 64) + tl.num_programs(0))\n"


def test_programs_are_numbered_along_y() -> None:
    packed = compiled(COUNTS)
    assert packed.metadata.packed_programs == 4
    ptx = packed.asm["ptx"]
    assert ".maxntid 32, 4\n" in ptx
    assert "%ntid.y" in ptx
    assert re.search(r"mad\.lo\.s32 .*%ctaid|%tid\.y", ptx)


def test_each_program_has_separate_shared_memory() -> None:
    packed = compiled(COUNTS)
    assert packed.metadata.shared >= 64 * 4
    assert packed.metadata.shared % 16 == 0
    sizes = [int(n) for n in re.findall(r"%tid\.y;[\s\S]*?, (\d+)[;,]", packed.asm["ptx"])]
    assert packed.metadata.shared in sizes
    assert not re.search(r"\bbar(rier)?\.(cta\.)?sync\b|bar\.sync", packed.asm["ptx"])
    assert "bar.warp.sync" in packed.asm["ptx"]


@pytest.mark.parametrize(
    ("text", "options"),
    [
        (STORE, {"num_warps": 2}),
        (STORE, {"launch_cooperative_grid": True}),
        (
            """    t = tl.inline_asm_elementwise("mov.u32 $0, %tid.x;", "=r", [], tl.int32, True, 1)
    tl.store(x + i, v + t)
""",
            {},
        ),
        (
            """    p = v.reshape(4, 16).to(tl.float16)
    q = tl.dot(p, tl.trans(p)).to(tl.int32).reshape(16)
    tl.store(x + tl.arange(0, 16), q)
""",
            {},
        ),
    ],
)
def test_one_program_in_a_block(text: str, options: dict[str, Any]) -> None:
    kernel = compiled(text, **options)
    assert kernel.metadata.packed_programs == 1
    assert ".reqntid" in kernel.asm["ptx"]
    assert "%ntid" not in kernel.asm["ptx"]


def test_assembly_that_does_not_look_at_its_block() -> None:
    text = """    code: tl.constexpr = "shl.b32 $0, $1, 1;"
    tl.store(x + i, tl.inline_asm_elementwise(code, "=r,r", [v], tl.int32, True, 1))
"""
    assert compiled(text).metadata.packed_programs == 4


def test_setting_disables_it() -> None:
    with knobs.compilation.scope():
        knobs.compilation.disabled_passes = "pack_programs"
        assert compiled(STORE).metadata.packed_programs == 1
