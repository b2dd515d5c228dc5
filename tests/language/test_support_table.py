"""Every public name, for every element type, has the same result on all targets or is rejected.

`support_table.py` writes the results to `docs/support.md`.
"""

from __future__ import annotations

import pytest

import tilewright.language as tl
from tests.language.support_table import (
    LANGUAGE,
    NAMES,
    OPERANDS,
    TABLE,
    TARGETS,
    disagreement,
    error_of_numpy,
    language_name,
    module_of,
    names,
    probe,
    table,
    taken,
    unknown,
)
from tests.language.support_table import batch as batch_of
from tests.targets.nvidia.lowered import ptx_of
from tests.targets.repaired import run_repaired
from tilewright.conformance.libdevice_names import SIGNATURES
from tilewright.conformance.references import FUNCTIONS, MOVES, NUMBERS, Reference
from tilewright.conformance.uses import EXTRAS, SECTIONS, USES

ASSEMBLY = {"inline_asm_elementwise"}  # needs the machine whose assembly it is
CALLS_BACK = ("device_print", "CPU")  # calls into the runtime: test_debug.py launches it
METHODS = {"to", "T", "item", "logical_and", "logical_or"}  # exist only as methods


def test_every_public_name_has_a_use() -> None:
    assert not unknown()


def test_every_use_mentions_its_name() -> None:
    for section, uses in SECTIONS.items():
        if section != "Operators and tensor attributes":
            for name, use in uses.items():
                assert name in use.text or "tensor" in name or section == "Programming model"


def test_every_method_of_tensors_is_in_the_table() -> None:
    found = {n for n in vars(tl.tensor) if not n.startswith("_")}
    attributes = {"properties", "dtype", "shape", "numel", "handle", "type"}
    assert not found - attributes - METHODS - set(USES)


def test_every_function_of_libdevice_is_in_the_table() -> None:
    assert set(tl.extra.libdevice.__all__) == set(SIGNATURES)


def test_every_extra_is_in_the_table() -> None:
    found = {
        f"tl.extra.{vendor}.{name}"
        for vendor in ("cuda", "hip", "cpu")
        for name in set(getattr(tl.extra, vendor).__all__) - {"libdevice"}
    }
    assert found == set(EXTRAS)


def test_table_is_up_to_date() -> None:
    stale = TABLE.read_text("utf-8") != table()
    assert not stale, "docs/support.md is stale: run `python -m tests.language.support_table`"


def test_names_on_the_language_page_are_up_to_date() -> None:
    (found,) = NAMES.findall(LANGUAGE.read_text("utf-8"))
    assert found == names(), (
        "docs/language.md is stale: run `python -m tests.language.support_table`"
    )


REGISTERS = ("smid", "globaltimer", "memrealtime")  # GPU registers
RUNS = [
    (name, target)
    for name in USES | EXTRAS
    for target in ("CPU", "sm_90")
    if name not in ASSEMBLY and not name.endswith(REGISTERS)
]


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("name", "target"), [run for run in RUNS if run != CALLS_BACK])
def test_use_agrees_with_the_interpreter(name: str, target: str) -> None:
    assert not disagreement((USES | EXTRAS)[name], target, run_on=run_repaired)


COMPARED = [
    *((name, f, 0.0, True) for name, f in MOVES.items()),
    *((name, f, 0.0, False) for name, f in NUMBERS.items()),
    *((name, f, 4.0, False) for name, f in FUNCTIONS.items()),
]


@pytest.mark.parametrize(
    ("name", "reference", "ulp", "moves"), COMPARED, ids=[case[0] for case in COMPARED]
)
def test_interpreter_agrees_with_numpy(
    name: str, reference: Reference, ulp: float, moves: bool
) -> None:
    use = USES[name]
    elements = [t for t in taken(use, "interpreter") if moves or not (t.is_bool() or t.is_fp8())]
    assert elements
    assert not error_of_numpy(use, reference, elements, ulp)


def test_a_wrong_formula_is_found() -> None:
    assert error_of_numpy(USES["x + y"], NUMBERS["x - y"], [tl.int32, tl.float32], 0)


def test_assembly_is_accepted_by_the_assembler() -> None:
    use = USES["inline_asm_elementwise"]
    fn, args = batch_of(use, taken(use, "sm_90"), "sm_90")
    assert "mov.b64" in ptx_of(module_of(fn, args, "sm_90"))


def test_error_is_the_same_on_all_targets() -> None:
    for name in USES.keys() - ASSEMBLY:
        for element in (tl.int1, tl.int8, tl.float8e5, tl.float64):
            messages = {probe(USES[name], element, target).rejection for target in TARGETS}
            assert len(messages) == 1, (
                f"{name} on {language_name(element)}: {messages}, of {OPERANDS}"
            )
