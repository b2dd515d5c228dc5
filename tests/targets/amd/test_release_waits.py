"""Accesses at the end of an iteration are waited for at a release at the beginning of the next."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import tilewright as tw
import tilewright.language as tl
from tests.amd_emulator.launch import launch
from tests.targets.amd.sources import compiled
from tilewright.base.llvm_library import parsed
from tilewright.targets.amd.features import PROCESSORS
from tilewright.targets.amd.release_waits import with_release_waits

SIZE = 32


@tw.jit
def carried(a_ptr, b_ptr, c_ptr, n, SIZE: tl.constexpr):
    """Sums that each iteration moves through the LDS, last: to where the next product's are."""
    i = tl.arange(0, SIZE)
    place = i[:, None] * SIZE + i[None, :]
    sums = tl.zeros((SIZE, SIZE), tl.float32)
    for k in range(n):
        a, b = tl.load(a_ptr + k * 16 + place), tl.load(b_ptr + k * 16 + place)
        sums = tl.dot(a, b) - sums
        sums = (sums.to(tl.int32) & 31).to(tl.float32)
    tl.store(c_ptr + place, sums)


@pytest.mark.parametrize("arch", PROCESSORS)
def test_loads_of_the_last_iteration_are_waited_for_at_a_barrier(arch: str) -> None:
    """The emulator rejects a barrier with accesses to the LDS outstanding."""
    types = {"a_ptr": "*fp16", "b_ptr": "*fp16", "c_ptr": "*fp32", "n": "i32"}
    code: Any = compiled(carried, types, arch, warps=8, SIZE=SIZE).asm["hsaco"]
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-2, 3, 32 + SIZE * SIZE).astype(np.float16) for _ in "ab")
    *_, found = launch(code, arch, 8, (1,), [a, b, np.zeros(SIZE * SIZE, np.float32), 3])
    sums = np.zeros((SIZE, SIZE))
    for k in range(3):
        part = slice(16 * k, 16 * k + SIZE * SIZE)
        product = a[part].reshape(SIZE, SIZE).astype(int) @ b[part].reshape(SIZE, SIZE).astype(int)
        sums = (product - sums).astype(int) & 31
    np.testing.assert_array_equal(found.reshape(SIZE, SIZE), sums)


@tw.jit
def published(x_ptr, flag_ptr, n):
    for i in range(n):
        tl.atomic_xchg(flag_ptr, i, sem="release")  # publishes the stores so far
        tl.store(x_ptr + i, i)


@pytest.mark.parametrize(
    ("arch", "waits"),
    [
        ("gfx942", ["buffer_wbl2 sc1", "s_waitcnt vmcnt(0) lgkmcnt(0)"]),
        ("gfx1100", ["s_waitcnt vmcnt(0) lgkmcnt(0)", "s_waitcnt_vscnt null, 0x0"]),
        ("gfx1200", ["s_wait_storecnt 0x0"]),
    ],
)
def test_stores_of_the_last_iteration_are_waited_for_at_an_atomic(
    arch: str, waits: list[str]
) -> None:
    types = {"x_ptr": "*i32", "flag_ptr": "*i32", "n": "i32"}
    text = str(compiled(published, types, arch, warps=1).asm["amdgcn"])
    lines = [line.strip() for line in text.splitlines() if re.match(r"\s+[a-z]", line)]
    at = next(i for i, line in enumerate(lines) if "atomic_swap" in line)
    assert set(waits) <= set(lines[at - 6 : at]), lines[at - 6 : at]


def test_which_releases_have_waits() -> None:
    text = """
define void @f(ptr addrspace(1) %p) {
  fence syncscope("workgroup") release, !dbg !1
  fence syncscope("wavefront") release
  fence syncscope("agent") acquire
  fence release
  %a = atomicrmw add ptr addrspace(1) %p, i32 1 syncscope("agent") acq_rel, align 4, !dbg !1
  %b = atomicrmw add ptr addrspace(1) %p, i32 1 syncscope("agent") monotonic, align 4
  %c = cmpxchg ptr addrspace(1) %p, i32 1, i32 2 acq_rel acquire, align 4
  store atomic i32 1, ptr addrspace(1) %p syncscope("agent") release, align 4
  ret void
}
"""
    text = text.replace(", !dbg !1", "")
    found = with_release_waits(text, PROCESSORS["gfx942"])
    lds, memory = (f"  call void @llvm.amdgcn.s.waitcnt(i32 {n})" for n in (0xC07F, 0x70))
    agent = ['  fence syncscope("agent") release', memory]
    assert found.splitlines()[2:-3] == [
        '  fence syncscope("workgroup") release', lds,
        '  fence syncscope("wavefront") release',
        '  fence syncscope("agent") acquire',
        "  fence release", memory,
        *agent,
        '  %a = atomicrmw add ptr addrspace(1) %p, i32 1 syncscope("agent") acquire, align 4',
        '  %b = atomicrmw add ptr addrspace(1) %p, i32 1 syncscope("agent") monotonic, align 4',
        "  fence release", memory,
        "  %c = cmpxchg ptr addrspace(1) %p, i32 1, i32 2 acquire acquire, align 4",
        *agent, '  store atomic i32 1, ptr addrspace(1) %p syncscope("agent") monotonic, align 4',
        "  ret void",
    ]  # fmt: skip
    with parsed(found) as module:
        module.verify()
