"""How often machine code waits for loads."""

from __future__ import annotations

import pytest

from tilewright.targets.nvidia.assemble import Rejection, Request, find_assembler
from tilewright.targets.nvidia.load_waits import load_waits

BODIES = {
    "none": "",
    "together": """
        ld.global.u32 %r3, [%d1];
        ld.global.u32 %r4, [%d1+64];
        add.u32 %r1, %r3, %r4;""",
    "one_after_the_other": """
        ld.global.u64 %d2, [%d1];
        ld.global.u64 %d2, [%d2];
        ld.global.u32 %r1, [%d2];""",
}
WAITS = {"none": 0, "together": 1, "one_after_the_other": 3}


@pytest.mark.parametrize("processor", ["sm_75", "sm_80", "sm_90a", "sm_100a", "sm_120a"])
def test_waits_are_counted_on_each_architecture(processor: str) -> None:
    assembler = find_assembler()
    if assembler is None:
        pytest.skip("needs ptxas or nvJitLink")
    kernels = (
        f""".visible .entry {name}(.param .u64 a)
        {{
        .reg .b32 %r<9>; .reg .b64 %d<9>;
        ld.param.u64 %d1, [a]; mov.u32 %r1, %tid.x; {body}
        st.global.u32 [%d1+4], %r1;
        ret;
        }}\n"""
        for name, body in BODIES.items()
    )
    text = f".version 8.8\n.target {processor}\n.address_size 64\n" + "".join(kernels)
    made = assembler.attempt(text, Request(processor))
    if isinstance(made, Rejection):
        pytest.skip(f"this assembler does not know {processor}")
    assert {name: load_waits(made.content, name) for name in BODIES} == WAITS
