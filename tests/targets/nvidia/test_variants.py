"""Which variants of a kernel are compiled to machine code."""

from __future__ import annotations

import pytest

from tilewright.lowering.simt.notes import CarriedRegisters
from tilewright.targets.gpu.codegen import ThreadCode
from tilewright.targets.nvidia.best_cubin import Assembled
from tilewright.targets.nvidia.compilation import (
    Cubin,
    Residency,
    may_outnumber,
    most_ctas,
)
from tilewright.targets.nvidia.cubin import Resources
from tilewright.targets.nvidia.features import processor
from tilewright.targets.nvidia.notes import HeldRegisters, Waits
from tilewright.targets.nvidia.options import CudaOptions
from tilewright.targets.protocol import Lowered

SERIALISED = "ptxas info    : (C7510) Potential Performance Loss: instructions are serialized\n"
KIB = 1024


LOOP = "\n$L__BB0_1:\n@%p1 bra $L__BB0_1;\n"


def cubin(
    ctas: int, *, spilled: int = 0, log: str = "", ptx: str = "", registers: int = 128
) -> Cubin:
    """A doubtful cubin, of which so many CTAs are resident where one more would fit."""
    used = Resources(registers, 4 * spilled, 0)
    return Cubin(
        Lowered({}, {}),
        None,
        Assembled(ptx, b"", used, log),
        processor(90),
        Residency(ctas, ctas + 1),
        waits=True,
        debug=False,
        tests_protocols=False,
    )


@pytest.mark.parametrize(
    ("made", "shared", "compiled"),
    [
        pytest.param(cubin(3), 57 * KIB, False, id="memory for as many"),
        pytest.param(cubin(3), 56 * KIB, True, id="memory for one more"),
        pytest.param(cubin(3, spilled=7), 57 * KIB, False, id="with few spills"),
        pytest.param(cubin(3, spilled=8), 57 * KIB, True, id="with spills"),
        pytest.param(cubin(3, log=SERIALISED), 57 * KIB, True, id="with serialised products"),
    ],
)
def test_machine_code_is_made_of_variants_that_may_be_better(
    made: Cubin, shared: int, compiled: bool
) -> None:
    """An H100 has 227 KiB for programs, each of which takes one more."""
    assert made.is_doubtful()
    variant = ThreadCode("", "kernel", warps=4, tile_warps=4, shared_bytes=shared)
    assert made.may_be_worse_than(variant) is compiled


@pytest.mark.parametrize(
    ("spilled", "fewer", "better"), [(7, 0, False), (8, 0, True), (9, 4, True), (24, 12, False)]
)
def test_a_few_spills_do_not_outweigh_the_copying_warp(
    spilled: int, fewer: int, better: bool
) -> None:
    assert cubin(3, spilled=fewer).is_better_than(cubin(3, spilled=spilled)) is better


@pytest.mark.parametrize(
    ("spilled", "ptx", "registers", "lacks"),
    [
        pytest.param(33, LOOP, 255, True, id="in a loop"),
        pytest.param(32, LOOP, 255, False, id="few in a loop"),
        pytest.param(33, LOOP, 128, False, id="though there are more registers"),
        pytest.param(128, "", 255, False, id="once"),
        pytest.param(129, "", 255, True, id="many once"),
    ],
)
def test_spills_that_twice_the_threads_would_save(
    spilled: int, ptx: str, registers: int, lacks: bool
) -> None:
    """Those of a loop are stored and loaded in each iteration."""
    made = cubin(1, spilled=spilled, ptx=ptx, registers=registers)
    assert made.lacks_registers() is lacks


def code(warps: int, *, shared: int = 1 * KIB, carried: int = 0, held: int = 0) -> ThreadCode:
    notes = frozenset({Waits.FOR_PRODUCTS, HeldRegisters(held), CarriedRegisters(carried)})
    return ThreadCode("", "kernel", warps=warps, tile_warps=4, shared_bytes=shared, notes=notes)


@pytest.mark.parametrize(
    ("other", "surpassed"),
    [
        pytest.param(code(4), False, id="perhaps more"),
        pytest.param(code(4, shared=75 * KIB), False, id="memory for as many"),
        pytest.param(code(4, shared=76 * KIB), True, id="memory for fewer"),
        pytest.param(code(5, held=112), False, id="registers for as many"),
        pytest.param(code(5, held=113), True, id="registers for fewer"),
        pytest.param(code(5, carried=113), True, id="registers that a loop carries for fewer"),
    ],
)
def test_more_programs_than_another_variant_can_have(other: ThreadCode, surpassed: bool) -> None:
    """Three blocks of five warps have 128 registers for each thread, of which 16 are for others."""
    assert cubin(3).surpasses(other) is surpassed
    assert not cubin(3, log=SERIALISED).surpasses(other)


@pytest.mark.parametrize(
    ("other", "code", "options", "expected"),
    [
        (code(4, held=112), code(5, held=112), CudaOptions(), True),
        (code(4, held=113), code(5, held=112), CudaOptions(), False),
        (code(4, held=112), code(5, held=112)._replace(notes=frozenset()), CudaOptions(), False),
        (code(4, held=112), code(5, held=112), CudaOptions(maxnreg=64), False),
        (code(4, held=112), code(5, held=112), CudaOptions(debug=True), False),
    ],
)
def test_variants_without_a_copying_warp_may_have_more_programs(
    other: ThreadCode, code: ThreadCode, options: CudaOptions, expected: bool
) -> None:
    assert may_outnumber(other, code, processor(90), options) is expected


@pytest.mark.parametrize("held", [300, 500])
def test_one_program_is_resident_however_much_it_needs(held: int) -> None:
    """It spills, or its warps hand registers to each other."""
    assert most_ctas(code(12, held=held), processor(90)) == 1
