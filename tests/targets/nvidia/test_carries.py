"""Predicates of machine code that may be carries."""

from __future__ import annotations

import re

import pytest

from tilewright.targets.nvidia import carries
from tilewright.targets.nvidia.assemble import Rejection, Request, find_assembler
from tilewright.targets.nvidia.carries import mixes_carries
from tilewright.targets.nvidia.cubin import machine_code
from tilewright.targets.nvidia.disassemble import find_disassembler, sass
from tilewright.targets.nvidia.features import processor

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
    "selected": """
        ld.global.v2.u32 {%r3, %r4}, [%d1];
        setp.lt.u32 %p1, %r3, %r2;
        add.cc.u32 %r5, %r3, 77;
        addc.u32 %r6, %r4, 0;
        selp.b32 %r7, %r5, %r6, %p1;
        st.global.u32 [%d1], %r7;""",
    "in_a_loop": """
    $again:
        ld.global.v2.u32 {%r3, %r4}, [%d1];
        setp.lt.u32 %p1, %r3, %r2;
        add.cc.u32 %r5, %r3, %r1;
        addc.u32 %r6, %r4, 0;
        @%p1 st.global.v2.u32 [%d1], {%r5, %r6};
        add.s64 %d1, %d1, 8;
        add.u32 %r1, %r1, 1;
        setp.lt.u32 %p2, %r1, 999;
        @%p2 bra $again;""",
    "compared": """
        ld.global.v2.u64 {%d2, %d3}, [%d1];
        setp.lt.u64 %p1, %d2, %d3;
        selp.b32 %r3, %r1, %r2, %p1;
        st.global.u32 [%d1], %r3;""",
}


def module(name: str) -> str:
    kernels = (
        f""".visible .entry {kernel}(.param .u64 a)
        {{
        .reg .b32 %r<9>; .reg .b64 %d<9>; .reg .pred %p<9>;
        ld.param.u64 %d1, [a]; mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; {body}
        ret;
        }}\n"""
        for kernel, body in BODIES.items()
    )
    return f".version 8.6\n.target {name}\n.address_size 64\n" + "".join(kernels)


@pytest.mark.parametrize("capability", [75, 80, 90, 100])
def test_assembled_code_does_not_mix_carries_on_any_architecture(capability: int) -> None:
    cubin = assembled(capability)
    long = "long_branches" in processor(capability).features
    assert not [name for name in BODIES if mixes_carries(cubin, name, long_branches=long)]


@pytest.mark.parametrize("capability", [75, 80, 90, 100])
@pytest.mark.parametrize("operation", [SEL := 0x007, STG := 0x186])
def test_a_predicate_that_is_exchanged_for_a_carry_is_found(
    capability: int, operation: int
) -> None:
    """A selection of one kernel, and the guard of a store in another one's loop."""
    kernel, place = {SEL: ("selected", 87), STG: ("in_a_loop", 12)}[operation]
    cubin = assembled(capability)
    code = machine_code(cubin, kernel)
    words = [int.from_bytes(code[at : at + 16], "little") for at in range(0, len(code), 16)]
    sums = [w for w in words if w & 0x1FF == 0x010 and w >> 81 & 7 != 7]
    at = next(i for i, w in enumerate(words) if w & 0x1FF == operation and w >> place & 7 != 7)
    assert sums, "the kernel writes no carry"
    exchanged = words[at] & ~(7 << place) | (sums[0] >> 81 & 7) << place
    start = cubin.index(code) + 16 * at
    changed = cubin[:start] + exchanged.to_bytes(16, "little") + cubin[start + 16 :]
    long = "long_branches" in processor(capability).features
    assert exchanged == words[at] or mixes_carries(changed, kernel, long_branches=long)
    assert exchanged != words[at], "ptxas takes one predicate for both; choose other bodies"


def assembled(capability: int) -> bytes:
    assembler = find_assembler()
    if assembler is None:
        pytest.skip("needs ptxas or nvJitLink")
    suffix = "a" * (capability >= 90)
    made = assembler.attempt(
        module(f"sm_{capability}{suffix}"), Request(f"sm_{capability}{suffix}")
    )
    if isinstance(made, Rejection):
        pytest.skip(f"this assembler does not know {capability}")
    return made.content


# -- made up ---------------------------------------------------------------------------------------

EXIT, NOP, CALL = 0x94D, 0x918, 0x944


def word(operation: int, **predicates: int) -> int:
    """An instruction, of which the other predicates are none."""
    places = {"guard": 12, "a": 68, "b": 77, "c": 87, "first": 81, "second": 84}
    return operation | sum(predicates.get(name, 7) << place for name, place in places.items())


def branch(operation: int, distance: int, guard: int = 7) -> int:
    """To the instruction at a distance from the next one, on sm_80."""
    return operation | guard << 12 | 7 << 87 | (4 * distance & (1 << 48) - 1) << 34


SUM, SECOND = word(0x210, first=2), word(0x210, c=2)
COMPARISON, SELECTION = word(0x20C, first=2), word(0x207, c=2)
LOOP = [COMPARISON, branch(0x947, -2, guard=0)]


@pytest.mark.parametrize(
    ("words", "mixes"),
    [
        pytest.param([SUM, SECOND, word(EXIT)], False, id="a sum"),
        pytest.param([COMPARISON, SELECTION, SUM, SECOND, word(EXIT)], False, id="before"),
        pytest.param([COMPARISON, SUM, SELECTION, SECOND, word(EXIT)], True, id="between"),
        pytest.param([SUM, COMPARISON, SECOND, word(EXIT)], True, id="overwritten carry"),
        pytest.param([SUM, SECOND, COMPARISON, SELECTION, word(EXIT)], False, id="after"),
        pytest.param(
            [SUM, word(0x20C, first=2, guard=0), SELECTION, word(EXIT)], True, id="perhaps after"
        ),
        pytest.param([SUM, word(EXIT), SELECTION], False, id="never run"),
        pytest.param([SUM, word(EXIT, guard=0), SELECTION], True, id="an exit of some threads"),
        pytest.param([SELECTION, SUM, branch(0x947, -3, 0), word(EXIT)], True, id="branch back"),
        pytest.param([SELECTION, SUM, *LOOP, word(EXIT)], False, id="loop without it"),
        pytest.param([branch(0x947, 1, 0), SUM, SELECTION, word(EXIT)], True, id="one of two ways"),
        pytest.param(
            [branch(0x945, 3), SUM, word(0x941), word(EXIT), SELECTION, word(EXIT)],
            True,
            id="where threads converge",
        ),
        pytest.param([SUM, word(0x202, b=2), word(EXIT)], False, id="reads nothing"),
        pytest.param([SUM, word(0x3F, b=2), word(EXIT)], True, id="unknown operation"),
        pytest.param([word(0x290, first=2), SELECTION, word(EXIT)], False, id="uniform carry"),
        pytest.param(
            [word(0x290, first=2), word(0x287, c=2), word(EXIT)], True, id="uniform selection"
        ),
        pytest.param([word(0x20C, first=0, a=1), word(EXIT)], True, id="comparison of two parts"),
        pytest.param([CALL | 7 << 12, word(EXIT)], True, id="call"),
        pytest.param([branch(0x947, 9), word(EXIT)], True, id="branch to nowhere"),
    ],
)
def test_reading_carries(words: list[int], mixes: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    code = b"".join(word.to_bytes(16, "little") for word in words)
    monkeypatch.setattr(carries, "machine_code", lambda cubin, kernel: code)
    assert mixes_carries(b"", "kernel", long_branches=False) == mixes


def test_predicates_are_those_that_the_disassembler_prints() -> None:
    if find_disassembler() is None:
        pytest.skip("needs nvdisasm")
    cubin = assembled(90)
    text = sass(cubin)
    for name, body in re.findall(r"^\.text\.(\w+):$(.*?)(?=^\.text|\Z)", text, re.M | re.S):
        code = machine_code(cubin, name)
        for at, printed in re.findall(r"^\s*/\*([0-9a-f]{4,})\*/\s+(.*?);", body, re.M):
            uses = carries._uses(int.from_bytes(code[int(at, 16) :][:16], "little"))
            names = set(re.findall(r"(?<![\w.])(U?)P([0-6])\b", printed))
            found = sum(1 << int(number) + 8 * bool(uniform) for uniform, number in names)
            known = uses.reads | uses.reads_carries | uses.writes | uses.writes_carries
            assert not found & ~known, printed
