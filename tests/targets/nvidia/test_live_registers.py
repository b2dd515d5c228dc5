"""The estimate of registers from PTX."""

from __future__ import annotations

import pytest

from tilewright.targets.nvidia.live_registers import live_registers

CHAIN = """
\tld.b32 \t%r1, [%rd1];
\tadd.s32 \t%r2, %r1, 1;
\tst.b32 \t[%rd1], %r2;
"""

ENDLESS = """
\tld.param.b64 \t%rd1, [kernel_param_0];
\tmov.b32 \t%r1, 0;
\tmov.b32 \t%r2, 0;
\tmov.b32 \t%r3, 0;
$L__BB0_1:
\tadd.s32 \t%r1, %r1, %r2;
$L__BB0_2:
\tadd.s32 \t%r4, %r3, %r3;
\tadd.s32 \t%r5, %r4, %r4;
\tadd.s32 \t%r6, %r4, %r5;
\tst.b32 \t[%rd1], %r6;
"""

INNER = "\t@%p1 bra \t$L__BB0_2;\n"
OUTER = "\tbra.uni \t$L__BB0_1;\n"


@pytest.mark.parametrize(
    ("ptx", "registers"),
    [
        pytest.param("\t.reg .b32 \t%r<100>;\n", 0, id="declarations"),
        pytest.param("\t@%p1 bra \t$L__BB0_1;\n", 0, id="predicates"),
        pytest.param("\tmov.b16 \t%rs1, %rs2;\n" * 2, 2, id="halves take a register each"),
        pytest.param("\tmov.b64 \t%rd1, %rd2;\n" * 2, 4, id="64 bits"),
        pytest.param(CHAIN, 4, id="an address, and one value after the other"),
        pytest.param(CHAIN.replace("%r1", "%r8") * 50, 4, id="again"),
        pytest.param(ENDLESS, 5, id="without branches"),
        pytest.param(ENDLESS + INNER, 6, id="a loop keeps what each iteration reads"),
        pytest.param(ENDLESS + INNER + OUTER, 8, id="as does the one around it"),
    ],
)
def test_registers_live_at_once(ptx: str, registers: int) -> None:
    assert live_registers(ptx) == registers
