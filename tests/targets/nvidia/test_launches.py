"""Launches that overlap: what waits for the ones before, and lets the one after begin."""

from __future__ import annotations

import re

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tests.frontend.kernels import build, kernel_from
from tests.gpu import products
from tests.gpu.programs import HOPPER, Program, source_of
from tests.targets.nvidia.lowered import lower, ptx_of
from tilewright.compiler.driver import compile
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


@tw.jit
def waiting_kernel(a_ptr, b_ptr, c_ptr, K, N: tl.constexpr, BK: tl.constexpr):
    tl.extra.cuda.gdc_wait()
    m, n, k = tl.arange(0, 64)[:, None], tl.arange(0, N)[None, :], tl.arange(0, BK)
    acc = tl.zeros((64, N), tl.float32)
    for start in range(0, K, BK):
        a = tl.load(a_ptr + m * K + start + k[None, :])
        b = tl.load(b_ptr + (start + k[:, None]) * N + n)
        acc = tl.dot(a, b, acc)
    tl.store(c_ptr + m * N + n, acc)


def test_barriers_and_maps_are_prepared_before_the_wait() -> None:
    """They are the program's own: the preceding launch may still be running."""
    a, b = products.matrix("fp16", 64, 128), products.matrix("fp16", 128, 64)
    args = [a, b, np.zeros((64, 64), np.float32), 128]
    source, _ = source_of(Program(waiting_kernel, args, {"N": 64, "BK": 32}))
    ptx = compile(source, HOPPER).asm["ptx"]
    steps = r"(prefetch\.tensormap|mbarrier\.init|griddepcontrol\.wait|cp\.async\.bulk)"
    order = list(dict.fromkeys(re.findall(steps, ptx)))
    assert order == ["prefetch.tensormap", "mbarrier.init", WAIT, "cp.async.bulk"]
