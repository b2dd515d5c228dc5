"""Launches that overlap: what waits for the ones before, and lets the one after begin."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tests.frontend.kernels import build, kernel_from
from tests.gpu import products
from tests.gpu.programs import HOPPER, Program, source_of
from tests.targets.nvidia.lowered import lower, ptx_of
from tilewright.base import knobs
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
ASSEMBLY = """x = tl.inline_asm_elementwise(
        "ld.global.f32 $0, [$1];", "=f,l", [x_ptr], dtype=tl.float32, is_pure=True, pack=1)
    tl.store(y_ptr, x)"""
BY_ITSELF = """
def kernel(x_ptr, y_ptr, n):
    i = tl.arange(0, 128)
    weights = tl.load(y_ptr + i)
    tl.extra.cuda.gdc_wait()
    x = tl.load(x_ptr + i)
    tl.extra.cuda.gdc_launch_dependents()
    tl.store(y_ptr + i, x * weights)
"""


POINTERS = {"x_ptr": "*fp32", "y_ptr": "*fp32", "n": "i32"}


def module_of(text: str, **options: Any) -> Module:
    return build(kernel_from(text), POINTERS, options=replace(PTX_OPTIONS, **options))


def order_of(ptx: str) -> list[str]:
    """The accesses to global memory, the calls of functions and the controls of launches, as they
    follow in the text."""
    access = r"\b(ld|st|atom|red|cp\.async|cp\.async\.bulk)\b\S*\.global\b"
    found = re.findall(access + r"|\b(call)\.uni|(griddepcontrol\.\w+)", ptx)
    return ["".join(parts) for parts in found]


@pytest.mark.parametrize("stages", [1, 3])
def test_dependent_launch_waits_before_its_first_access(stages: int) -> None:
    order = order_of(ptx_of(module_of(PLAIN), launch_pdl=True, num_stages=stages))
    assert order[0] == WAIT
    assert order.count(WAIT) == 1
    assert "ld" in order
    assert START not in order


BODIES = {
    "a store": ("tl.store(y_ptr, 1.0)", ["st"]),
    "a load and a store": ("tl.store(y_ptr, tl.load(x_ptr))", ["ld", "st"]),
    "a load of some programs": ("if n > 4: tl.store(y_ptr, tl.load(x_ptr))", ["ld", "st"]),
    "an early end": ("if n > 4: return\n    tl.store(y_ptr, tl.load(x_ptr))", ["ld", "st"]),
    "an atomic": ("tl.atomic_add(y_ptr, 1.0)", ["atom"]),
    "a value printed": ("tl.device_print('n', n)", ["call"]),
    "an assertion": ("tl.device_assert(n > 4, 'n')", ["call"]),
    "assembly": (ASSEMBLY, ["ld", "st"]),
    "no access": ("pass", []),
}


@pytest.mark.parametrize("case", BODIES)
def test_launches_wait_before_their_first_access(case: str) -> None:
    """Without an access, too: the next launch waits for this one only."""
    body, accesses = BODIES[case]
    module = module_of(f"\ndef kernel(x_ptr, y_ptr, n):\n    {body}\n", debug=True)
    lowered = lower(module, debug=True)
    assert order_of(str(lowered.stages["ptx"])) == [WAIT, *accesses]
    assert lowered.metadata["begins_early"]


@pytest.mark.parametrize("why", ["option", "setting", "cooperative"])
def test_launches_that_do_not_begin_early(why: str) -> None:
    options = {"option": {"launch_pdl": False}, "cooperative": {"launch_cooperative_grid": True}}
    with knobs.nvidia.scope():
        knobs.nvidia.overlap_launches = why != "setting"
        lowered = lower(module_of(PLAIN), **options.get(why, {}))
    assert "griddepcontrol" not in str(lowered.stages["ptx"])
    assert not lowered.metadata["begins_early"]


def test_kernels_that_control_launches_are_launched_as_they_say() -> None:
    by_default = lower(module_of(BY_ITSELF)).metadata["begins_early"]
    by_option = lower(module_of(BY_ITSELF), launch_pdl=True).metadata["begins_early"]
    assert (by_default, by_option) == (False, True)


@pytest.mark.parametrize("option", [True, False, None])
def test_kernel_with_an_explicit_wait_may_load_before(option: bool | None) -> None:
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
def product(a_ptr, b_ptr, c_ptr, K, N: tl.constexpr, BK: tl.constexpr, WAITS: tl.constexpr):
    if WAITS:
        tl.extra.cuda.gdc_wait()
    m, n, k = tl.arange(0, 64)[:, None], tl.arange(0, N)[None, :], tl.arange(0, BK)
    acc = tl.zeros((64, N), tl.float32)
    for start in range(0, K, BK):
        a = tl.load(a_ptr + m * K + start + k[None, :])
        b = tl.load(b_ptr + (start + k[:, None]) * N + n)
        acc = tl.dot(a, b, acc)
    tl.store(c_ptr + m * N + n, acc)


@pytest.mark.parametrize("waits", [True, False])
def test_barriers_and_maps_are_prepared_before_the_wait(waits: bool) -> None:
    """They are the program's own: the preceding launch may still be running."""
    a, b = products.matrix("fp16", 64, 128), products.matrix("fp16", 128, 64)
    args = [a, b, np.zeros((64, 64), np.float32), 128]
    source, _ = source_of(Program(product, args, {"N": 64, "BK": 32, "WAITS": waits}))
    ptx = compile(source, HOPPER).asm["ptx"]
    steps = r"(prefetch\.tensormap|mbarrier\.init|griddepcontrol\.wait|cp\.async\.bulk)"
    order = list(dict.fromkeys(re.findall(steps, ptx)))
    assert order == ["prefetch.tensormap", "mbarrier.init", WAIT, "cp.async.bulk"]
