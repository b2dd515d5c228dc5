"""Carries that instructions of machine code write to predicates."""

from __future__ import annotations

import re

import pytest

from tilewright.targets.nvidia.assemble import Rejection, Request, find_assembler
from tilewright.targets.nvidia.carries import writes_carries
from tilewright.targets.nvidia.cubin import machine_code
from tilewright.targets.nvidia.disassemble import find_disassembler, sass

BODIES = {
    "without": """
        mul.wide.u32 %d2, %r1, 4;
        add.s64 %d1, %d1, %d2;
        setp.lt.u32 %p1, %r1, %r2;
        selp.b32 %r3, %r1, 5, %p1;
        add.u32 %r3, %r3, %r2;
        @%p1 st.global.u32 [%d1], %r3;""",
    "added": """
        add.cc.u32 %r3, %r1, %r2;
        addc.u32 %r4, %r2, %r1;
        st.global.v2.u32 [%d1], {%r3, %r4};""",
    "from_memory": """
        ld.global.v2.u32 {%r3, %r4}, [%d1];
        add.cc.u32 %r5, %r3, 77;
        addc.u32 %r6, %r4, 0;
        st.global.v2.u32 [%d1], {%r5, %r6};""",
    "compared": """
        ld.global.v2.u64 {%d2, %d3}, [%d1];
        setp.lt.u64 %p1, %d2, %d3;
        selp.b32 %r3, %r1, %r2, %p1;
        st.global.u32 [%d1], %r3;""",
}


def module(processor: str) -> str:
    kernels = (
        f""".visible .entry {name}(.param .u64 a)
        {{
        .reg .b32 %r<9>; .reg .b64 %d<9>; .reg .pred %p<9>;
        ld.param.u64 %d1, [a]; mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; {body}
        ret;
        }}\n"""
        for name, body in BODIES.items()
    )
    return f".version 8.8\n.target {processor}\n.address_size 64\n" + "".join(kernels)


@pytest.mark.parametrize("processor", ["sm_75", "sm_80", "sm_90a", "sm_100a", "sm_120a"])
def test_carries_are_found_on_each_architecture(processor: str) -> None:
    assembler = find_assembler()
    if assembler is None:
        pytest.skip("needs ptxas or nvJitLink")
    made = assembler.attempt(module(processor), Request(processor))
    if isinstance(made, Rejection):
        pytest.skip(f"this assembler does not know {processor}")
    found = {name for name in BODIES if writes_carries(made.content, name)}
    assert found == {"added", "from_memory"}


def test_a_comparison_may_need_a_second_predicate() -> None:
    """ptxas uses that of the result here, which is exchanged."""
    assembler = find_assembler()
    if assembler is None:
        pytest.skip("needs ptxas or nvJitLink")
    cubin = assembler.assemble(module("sm_90a"), Request("sm_90a")).content
    code = machine_code(cubin, "compared")
    at = next(at for at in range(0, len(code), 16) if is_upper_comparison(code[at : at + 16]))
    start = cubin.index(code) + at
    instruction = int.from_bytes(cubin[start : start + 16], "little") ^ 1 << 82
    changed = cubin[:start] + instruction.to_bytes(16, "little") + cubin[start + 16 :]
    assert not writes_carries(cubin, "compared")
    assert writes_carries(changed, "compared")


def is_upper_comparison(code: bytes) -> bool:
    """Whether it compares the upper halves of numbers of 64 bits: ISETP.EX."""
    instruction = int.from_bytes(code, "little")
    return instruction & 0x1FF == 0x00C and instruction >> 68 & 7 != 7


def test_carries_are_those_that_the_disassembler_prints() -> None:
    assembler = find_assembler()
    if assembler is None or find_disassembler() is None:
        pytest.skip("needs ptxas or nvJitLink, and nvdisasm")
    cubin = assembler.assemble(module("sm_90a"), Request("sm_90a")).content
    for name, code in re.findall(r"^\.text\.(\w+):$(.*?)(?=^\.text|\Z)", sass(cubin), re.M | re.S):
        printed = re.search(r" U?(?:IADD3|LEA)\S* U?R\d+, U?P[0-6],", code)
        assert (printed is not None) == writes_carries(cubin, name), code
