"""The same kernels give the same bytes, under the same keys, wherever and whenever compiled."""

import importlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tilewright.runtime.cache import DiskCache
from tilewright.runtime.cache_entries import entries
from tilewright.runtime.cache_maintenance import contents, describe, pack

ROOT = Path(__file__).parents[2]

PROGRAM = """
import tilewright as tw
import tilewright.language as tl
from tilewright.compiler import ASTSource
from tilewright.targets.protocol import GPUTarget


@tw.jit
def helper(x):
    return tl.exp(x) + tl.sin(0.7 + tl.zeros_like(x)) * tl.rsqrt(tl.full((), 0.3, tl.float32))


@tw.jit
def rows(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < n
    tl.device_assert(i < 1 << 20, "far")
    values = helper(tl.load(x + i, inside, other=0.0))
    tl.atomic_add(out, tl.sum(values))
    tl.store(out + 1 + i, tl.cumsum(values), inside)


@tw.jit
def product(a, b, c, K, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK, BLOCK), tl.float32)
    for k in range(0, K, BLOCK):
        left = tl.load(a + i[:, None] * K + (k + i)[None, :])
        right = tl.load(b + (k + i)[:, None] * BLOCK + i[None, :])
        total = tl.dot(left, right, total)
    tl.store(c + i[:, None] * BLOCK + i[None, :], total)


SOURCES = [
    ASTSource(rows, {"x": "*fp32", "out": "*fp32", "n": "i32"}, {"BLOCK": 256}),
    ASTSource(product, {"a": "*fp16", "b": "*fp16", "c": "*fp32", "K": "i32"}, {"BLOCK": 64}),
]
TARGETS = ["cpu", GPUTarget("cuda", 90, 32)]

for source in SOURCES:
    for target in TARGETS:
        for debug in (False, True):
            tw.compile(source, target, {"debug": debug})
"""


def compiled(folder: Path, **environment: str) -> dict[str, dict[str, bytes]]:
    """The kernels' files by key, from a script, a home and a working folder in a folder."""
    for name in ("home", "cwd", "scripts"):
        (folder / name).mkdir(parents=True)
    (folder / "scripts" / "kernels.py").write_text(PROGRAM)
    own = {"HOME": str(folder / "home"), "TILEWRIGHT_CACHE_DIR": str(folder / "cache")}
    everything = {**os.environ, "PYTHONPATH": str(ROOT), **own, **environment}
    command = [sys.executable, str(folder / "scripts" / "kernels.py")]
    subprocess.run(command, cwd=folder / "cwd", env=everything, check=True)
    cache = DiskCache(folder / "cache")
    found = {entry.key: contents(entry) for entry in entries(cache.root)}
    kernels = {key: files for key, files in found.items() if describe(files).kind == "kernel"}
    assert len(kernels) == 8
    return kernels


def packed(kernels: dict[str, dict[str, bytes]]) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        cache = DiskCache(Path(folder))
        for key, files in kernels.items():
            cache.put(key, files)
        return pack(entries(cache.root))[0]


def differences(
    one: dict[str, dict[str, bytes]], two: dict[str, dict[str, bytes]]
) -> list[tuple[str, str, str]]:
    """Kernel, target and file of what is not the same in both."""
    assert one.keys() == two.keys()
    return [
        (*describe(files)[1:], name)
        for key, files in one.items()
        for name in files.keys() | two[key].keys()
        if files.get(name) != two[key].get(name)
    ]


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, bytes]]:
    return compiled(tmp_path_factory.mktemp("here"), PYTHONHASHSEED="0")


def test_other_folders_and_hash_seeds_change_nothing(
    here: dict[str, dict[str, bytes]], tmp_path: Path
) -> None:
    there = compiled(tmp_path / "another place" / "further down", PYTHONHASHSEED="12345")
    assert differences(here, there) == []
    assert packed(here) == packed(there)
    stages = {name for files in there.values() for name in files}
    assert {"obj", "ptx"} <= stages
    for files in there.values():
        for name, content in files.items():
            assert str(tmp_path).encode() not in content, name


def dispatched() -> list[str]:
    """What NumPy has special versions of its functions for, and this processor has."""
    core = importlib.import_module("numpy._core._multiarray_umath")
    return [name for name in core.__cpu_dispatch__ if core.__cpu_features__[name]]


def test_numpy_processor_detection_changes_nothing(
    here: dict[str, dict[str, bytes]], tmp_path: Path
) -> None:
    """Constants are folded by NumPy, whose functions come in a version for each processor."""
    lesser = compiled(tmp_path, NPY_DISABLE_CPU_FEATURES=" ".join(dispatched()))
    assert differences(here, lesser) == []
