"""Shared objects of kernels, with the launcher that Inductor's C++ programs call."""

from __future__ import annotations

import ctypes
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright.language as tl
from tilewright.compiler.artifact import CompiledKernel
from tilewright.compiler.driver import compile
from tilewright.compiler.source import ASTSource
from tilewright.runtime.jit import jit

needs_compiler = pytest.mark.skipif(
    not any(map(shutil.which, ("c++", "g++", "clang++"))), reason="needs a C++ compiler"
)

Array = np.ndarray[Any, np.dtype[Any]]


def scaled(x, BLOCK: tl.constexpr, out, n, factor, add, limit):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + i, mask=i < n)
    tl.device_assert(value < limit, "too large", mask=i < n)
    value = tl.sort(value.to(tl.float32)) * factor
    tl.store(out + i, tl.where(add, value + 1, value), mask=i < n)


SIGNATURE = {
    "x": "*fp32", "out": "*fp64", "n": "i32", "factor": "fp64", "add": "i1", "limit": "fp32",
}  # fmt: skip


def _load(folder: Path, kernel: CompiledKernel) -> tuple[ctypes.CDLL, ctypes.CDLL]:
    loaded: list[ctypes.CDLL] = []
    for stage in ("so", "launcher.so"):
        path = folder / stage
        path.write_bytes(kernel.asm[stage])
        loaded.append(ctypes.CDLL(str(path)))
    return loaded[0], loaded[1]


def _launch(
    library: ctypes.CDLL, launcher: ctypes.CDLL, x: Array, out: Array, limit: float
) -> None:
    numbers = (
        ctypes.c_int64(len(x)), ctypes.c_float(0.5), ctypes.c_bool(True), ctypes.c_float(limit),
    )  # fmt: skip
    args = (ctypes.c_void_p * 7)(
        x.ctypes.data, None, out.ctypes.data, *(ctypes.addressof(n) for n in numbers)
    )
    function = ctypes.cast(getattr(library, "scaled"), ctypes.c_void_p)  # noqa: B009
    launcher.run_from_nativert(-(-len(x) // 16), 1, 1, 1, args, function)


@needs_compiler
def test_launch(tmp_path: Path) -> None:
    for debug in (False, True):
        folder = tmp_path / str(debug)
        folder.mkdir()
        options = {"debug": debug}
        kernel = compile(ASTSource(jit(scaled), SIGNATURE, {"BLOCK": 16}), "cpu", options)
        library, launcher = _load(folder, kernel)
        x = np.random.default_rng(0).random(64, np.float32)
        out = np.zeros(64)
        _launch(library, launcher, x, out, 2.0)
        assert np.array_equal(out, np.sort(x.reshape(4, 16), axis=1).ravel() * np.float64(0.5) + 1)
        assert hasattr(library, "tilewright_take_failure") == debug


@needs_compiler
def test_failed_assertion(tmp_path: Path) -> None:
    kernel = compile(ASTSource(jit(scaled), SIGNATURE, {"BLOCK": 16}), "cpu", {"debug": True})
    library, _ = _load(tmp_path, kernel)
    take: Any = library.tilewright_take_failure
    take.restype = ctypes.c_char_p
    assert take() is None
    library.tilewright_fail(b"first", 0, 0, 0)
    library.tilewright_fail(b"second", 1, 0, 0)
    assert take() == b"first"
    assert take() is None


def printing(x):
    tl.device_print("x", tl.load(x))


def test_kernels_that_print_have_none() -> None:
    kernel = compile(ASTSource(jit(printing), {"x": "*fp32"}), "cpu")
    assert kernel.asm.get("so") is None


def test_there_is_no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _name: None)
    kernel = compile(ASTSource(jit(scaled), SIGNATURE, {"BLOCK": 16}), "cpu")
    with pytest.raises(RuntimeError, match="install a C\\+\\+ compiler"):
        _ = kernel.asm["so"]
