"""Launches that overlap: what waits for the ones before, and lets the one after begin."""

from __future__ import annotations

import re

import pytest

from tests.frontend.kernels import build, kernel_from
from tests.targets.nvidia.lowered import lower, ptx_of
from tilewright.frontend.options import FrontendOptions
from tilewright.ir.core import Module

PTX_OPTIONS = FrontendOptions(backend_name="cuda", arch="sm90", assembly="PTX")
WAIT, START = "griddepcontrol.wait", "griddepcontrol.launch_dependents"

PLAIN = """
def kernel(x_ptr, y_ptr, n):
    i = tl.program_id(0) * 128 + tl.arange(0, 128)
    total = tl.zeros((128,), tl.float32)
    for k in range(n):
        total += tl.load(x_ptr + k * 128 + i)
    tl.store(y_ptr + i, total)
"""
BY_ITSELF = """
def kernel(x_ptr, y_ptr, n):
    i = tl.arange(0, 128)
    weights = tl.load(y_ptr + i)
    tl.extra.cuda.gdc_wait()
    x = tl.load(x_ptr + i)
    tl.extra.cuda.gdc_launch_dependents()
    tl.store(y_ptr + i, x * weights)
"""


def module_of(text: str) -> Module:
    return build(
        kernel_from(text), {"x_ptr": "*fp32", "y_ptr": "*fp32", "n": "i32"}, options=PTX_OPTIONS
    )


def order_of(ptx: str) -> list[str]:
    """The accesses to global memory and the controls of launches, as they follow in the text."""
    found = re.findall(r"\b(ld|st|cp\.async)\S*\.global\b|(griddepcontrol\.\w+)", ptx)
    return [access or control for access, control in found]


@pytest.mark.parametrize("stages", [1, 3])
def test_dependent_launch_waits_before_its_first_access(stages: int) -> None:
    order = order_of(ptx_of(module_of(PLAIN), launch_pdl=True, num_stages=stages))
    assert order[0] == WAIT
    assert order.count(WAIT) == 1
    assert "ld" in order
    assert START not in order


def test_other_launches_do_not_wait() -> None:
    assert "griddepcontrol" not in ptx_of(module_of(PLAIN))


@pytest.mark.parametrize("option", [True, False])
def test_kernel_with_an_explicit_wait_may_load_before(option: bool) -> None:
    ptx = ptx_of(module_of(BY_ITSELF), launch_pdl=option)
    assert order_of(ptx) == ["ld", WAIT, "ld", START, "st"]


def test_older_gpus_emit_no_wait() -> None:
    assert order_of(ptx_of(module_of(BY_ITSELF), 80)) == ["ld", "ld", "st"]
    with pytest.raises(ValueError, match=r"launch_pdl requires NVIDIA SM90\+"):
        lower(module_of(PLAIN), 80, launch_pdl=True)


def test_loads_stay_after_a_wait_within_a_loop() -> None:
    """Neither loading ahead nor hoisting may bring them before it."""
    text = """
def kernel(x_ptr, y_ptr, n):
    i = tl.arange(0, 128)
    total = tl.zeros((128,), tl.float32)
    for k in range(n):
        tl.extra.cuda.gdc_wait()
        total += tl.load(x_ptr + k * 128 + i)
    tl.store(y_ptr + i, total)
"""
    assert order_of(ptx_of(module_of(text), num_stages=3)) == [WAIT, "ld", "st"]
