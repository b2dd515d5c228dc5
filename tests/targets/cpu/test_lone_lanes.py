"""Masked stores of one lane write one element, whatever their value was narrowed from."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest

from tests.targets.cpu.harness import host
from tilewright.runtime.devices import cpu as device
from tilewright.targets.cpu import emit

STORE = """
declare void @llvm.masked.store.v{n}{t}.p0(<{n} x {t}>, ptr, <{n} x i1>)

define void @f(ptr %p, ptr %q) {{
  %w = load <{n} x {wide}>, ptr %q, align 1
  %t = {narrow} <{n} x {wide}> %w to <{n} x {t}>
  call void @llvm.masked.store.v{n}{t}.p0(<{n} x {t}> %t, ptr align 1 %p, <{n} x i1> <{mask}>)
  ret void
}}
"""


@pytest.mark.parametrize("n", [4, 8, 16])
@pytest.mark.parametrize(("t", "bits"), [("i8", 8), ("i16", 16)])
def test_one_lane_of_narrowed_integers(t: str, bits: int, n: int) -> None:
    """As LLVM 22 has it, four bytes were written."""
    for lane in range(n):
        mask = ", ".join(f"i1 {str(i == lane).lower()}" for i in range(n))
        text = STORE.format(n=n, t=t, wide="i32", narrow="trunc", mask=mask)
        _, code = emit.compile_text(text, host())
        loaded: Any = device.LoadedCode(code, ["f"])
        wide = np.arange(n, dtype=np.uint32) + 0x01020304
        out = np.full(n + 8, 0x55, f"u{bits // 8}")
        expected = out.copy()
        expected[lane] = wide[lane] & ((1 << bits) - 1)
        ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(loaded["f"])(
            out.ctypes.data, wide.ctypes.data
        )
        np.testing.assert_array_equal(out, expected)


def test_other_masks_are_left() -> None:
    for mask in ("i1 true, i1 true, i1 false, i1 false", "i1 false, i1 false, i1 false, i1 false"):
        text = STORE.format(n=4, t="i16", wide="i32", narrow="trunc", mask=mask)
        assert emit.without_lone_lanes(text) == text
