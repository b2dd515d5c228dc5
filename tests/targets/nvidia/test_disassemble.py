"""cubin → SASS, and what tests count in it."""

from __future__ import annotations

import pytest

from tests.targets.nvidia.modules import many_values, scaled_add, wgmma
from tilewright.base import knobs
from tilewright.targets.nvidia import disassemble, emit
from tilewright.targets.nvidia.assemble import Request, find_assembler
from tilewright.targets.nvidia.cubin import resources
from tilewright.targets.nvidia.disassemble import count_instructions, find_disassembler, sass

ATTRIBUTES = emit.kernel_attributes(128)

TEXT = """\
add_kernel:
.text.add_kernel:
\t//## File "/sources/kernel.py", line 4
        /*0000*/                   LDC R1, c[0x0][0x28] ;
        /*0070*/               @P0 EXIT ;
.L_x_1:
        /*00d0*/              @!P1 LDG.E.128 R16, desc[UR4][R4.64] ;
        /*00d8*/             @!UP1 UIADD3 UR4, UR4, 0x1, URZ ;
        /*00e0*/                   LDG.E R2, desc[UR4][R6.64] ;
        /*0150*/                   NOP;
"""


def assembled(text: str) -> bytes:
    assembler = find_assembler()
    if assembler is None:
        pytest.skip("needs ptxas or nvJitLink")
    return assembler.assemble(emit.compile_text(text, "sm_90a", 81)[1], Request("sm_90a")).content


def disassembled(text: str) -> str:
    if find_disassembler() is None:
        pytest.skip("needs nvdisasm: pip install nvidia-cuda-nvdisasm")
    return sass(assembled(text))


def test_instructions_are_counted_by_full_name_and_by_first_part() -> None:
    assert count_instructions(TEXT) == {
        "LDC": 1,
        "EXIT": 1,
        "LDG.E.128": 1,
        "LDG.E": 1,
        "LDG": 2,
        "UIADD3": 1,
        "NOP": 1,
    }


def test_vector_accesses_and_fused_arithmetic_reach_the_machine() -> None:
    counts = count_instructions(disassembled(scaled_add(ATTRIBUTES, flags="contract")))
    assert (counts["LDG.E.128"], counts["LDG"]) == (2, 2)
    assert (counts["STG.E.128"], counts["STG"]) == (1, 1)
    assert (counts["FFMA"], counts["FMUL"], counts["FADD"]) == (4, 0, 0)
    counts = count_instructions(disassembled(scaled_add(ATTRIBUTES)))
    assert (counts["FFMA"], counts["FMUL"], counts["FADD"]) == (0, 4, 4)


def test_product_of_a_warp_group_is_one_instruction() -> None:
    counts = count_instructions(disassembled(wgmma(ATTRIBUTES)))
    assert counts["HGMMA"] == 1
    assert counts["HGMMA.64x8x16.F32"] == 1


def test_spills_equal_the_stores_in_the_code() -> None:
    """The frame that `resources` reads has a slot for each value spilled to local memory.

    Its size is a multiple of 8 bytes.
    """
    text = many_values(emit.kernel_attributes(128, maxnreg=32), 48)
    counts = count_instructions(disassembled(text))
    spilled = resources(assembled(text), "many_values").spilled_registers
    assert counts["STL"] > 0
    assert spilled == (counts["STL"] + 1) // 2 * 2


def test_lines_of_the_kernel_are_shown() -> None:
    text = disassembled(scaled_add(ATTRIBUTES, lines="DebugDirectivesOnly"))
    assert '"/sources/kernel.py", line 4' in text
    assert '"/sources/kernel.py", line 6' in text


def test_missing_disassembler_error_names_the_package(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(disassemble, "find_program", lambda name, given: given)
    with knobs.nvidia.scope():
        knobs.nvidia.nvdisasm_path = knobs.env
        monkeypatch.delenv("TRITON_NVDISASM_PATH", raising=False)
        monkeypatch.delenv("TILEWRIGHT_NVDISASM_PATH", raising=False)
        with pytest.raises(FileNotFoundError, match="pip install nvidia-cuda-nvdisasm"):
            sass(b"")


def test_disassembler_rejects_other_files_than_cubins() -> None:
    if find_disassembler() is None:
        pytest.skip("needs nvdisasm: pip install nvidia-cuda-nvdisasm")
    with pytest.raises(RuntimeError, match="nvdisasm failed"):
        sass(b"something else")
