"""The target `triton`, its launcher and its driver, on a stand-in for Triton (`fake/`)."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tilewright_triton import client as clients
from tilewright_triton.client import PYTHON, UNTESTED, TritonFailure, TritonMissingError, client
from tilewright_triton.driver import TritonDriver
from tilewright_triton.target import TritonTarget
from tilewright_triton.upstream import upstream

import tilewright as tw
import tilewright.language as tl
from tilewright.base.diagnostics import CompilationError, TilewrightError
from tilewright.compat import search_path
from tilewright.compiler.driver import compile
from tilewright.compiler.source import ASTSource
from tilewright.runtime import driver
from tilewright.targets.protocol import GPUTarget, UnknownOptionError
from tilewright.targets.registry import target

FAKE = Path(__file__).with_name("fake")
ROOT = Path(__file__).parents[3]
TOY = GPUTarget("triton", "toy/t1")


@pytest.fixture(autouse=True)
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The stand-in is the Triton of this process and of its children."""
    monkeypatch.setenv("PYTHONPATH", str(FAKE))
    monkeypatch.delenv(PYTHON, raising=False)
    monkeypatch.delenv(UNTESTED, raising=False)
    monkeypatch.syspath_prepend(str(FAKE))
    client.cache_clear()
    yield
    if clients.client.cache_info().currsize:
        client().close()
    client.cache_clear()
    for name in [n for n in sys.modules if n == "triton" or n.startswith("triton.")]:
        del sys.modules[name]


def toy() -> TritonTarget:
    return TritonTarget("toy/t1")


@tw.jit
def scale(x, n, factor, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(x + i, tl.load(x + i, i < n) * factor, i < n)


@tw.jit
def count(x, out):
    i = tl.arange(0, 16)
    tl.store(out + i, tl.histogram(tl.load(x + i), 16))


@tw.jit
def running(x):
    i = tl.arange(0, 16)
    tl.store(x + i, tl.cumsum(tl.load(x + i), 0))


def compiled(kernel: Any = scale, *, on: Any = TOY, **options: Any) -> Any:
    if kernel is not scale:
        return compile(ASTSource(kernel, dict.fromkeys(kernel.arg_names, "*i32")), on, options)
    types = {"x": "*fp32", "n": "i32", "factor": "fp32", "BLOCK": "constexpr"}
    return compile(ASTSource(kernel, types, {"BLOCK": 32}), on, options)


# -- compilation ----------------------------------------------------------------------------------


def test_stages_run_in_order() -> None:
    kernel = compiled(speed=3)
    assert list(kernel.asm)[1:] == ["ttir", "mlir", "toyir", "toycode"]
    assert kernel.asm["ttir"].startswith("func @scale")
    assert kernel.asm["mlir"].startswith("module {")
    assert kernel.kernel == f"// speed 3\n{kernel.asm['mlir']}".encode()
    assert (kernel.name, kernel.metadata.shared, kernel.metadata.speed) == ("scale", 64, 3)
    assert kernel.metadata.vendor["target"] == {"backend": "toy", "arch": "t1", "warp_size": 32}


def test_tiles_of_other_extents_are_padded() -> None:
    types = {"x": "*fp32", "n": "i32", "factor": "fp32", "BLOCK": "constexpr"}
    kernel = compile(ASTSource(scale, types, {"BLOCK": 24}), TOY, {})
    assert "tensor<32xf32>" in kernel.asm["mlir"]
    assert "24xf32" not in kernel.asm["mlir"]


def test_options_are_those_of_the_back_end() -> None:
    made = toy()
    options = made.parse_options({"num_warps": 8})
    assert (options.num_warps, options.speed, options.arch) == (8, 1, "t1")
    assert options == made.parse_options({"num_warps": 8})
    assert made.frontend_options(options).supported_fp8_dtypes == ("fp8e5",)
    assert made.frontend_options(options).backend_name == "toy"
    with pytest.raises(UnknownOptionError, match="sped"):
        made.parse_options({"sped": 3})
    with pytest.raises(ValueError, match="no speed above 9"):
        made.parse_options({"speed": 10})


def test_products_have_the_least_extents_of_the_back_end() -> None:
    made = toy()
    least: Any = made.frontend_options(made.parse_options({})).min_dot_size
    assert least(tl.float16, tl.float16) == (1, 1, 16)
    assert least(tl.int8, tl.int8) == (1, 1, 32)


def test_key_names_what_the_code_depends_on() -> None:
    assert toy().key().startswith("triton 3.6.0 toy/t1 toy-t1 ")
    assert toy().key() != TritonTarget("toy/t2").key()


def test_error_of_the_back_end_is_at_the_line_of_the_kernel() -> None:
    with pytest.raises(CompilationError, match="not for toys") as caught:
        compiled(count)
    assert "tl.histogram(tl.load(x + i), 16)" in str(caught.value)


def test_end_of_the_process_is_an_error_and_not_the_end() -> None:
    with pytest.raises(CompilationError, match="process of Triton ended with status -6"):
        compiled(running)
    assert compiled(speed=4).kernel


@tw.jit
def wait(flags):
    tl.atomic_poll(flags + tl.arange(0, 4), 1, timeout_ns=1000)


def test_op_that_triton_lacks_is_an_error_of_the_kernel() -> None:
    with pytest.raises(TilewrightError, match="no clock for the timeout") as caught:
        compiled(wait)
    assert "tl.atomic_poll(flags + tl.arange(0, 4), 1, timeout_ns=1000)" in str(caught.value)


# -- where Triton is missing ----------------------------------------------------------------------


@pytest.mark.parametrize("arch", ["toy", "toy/", "/t1", "toy/t1/many", "a/b/1/2"])
def test_malformed_architecture(arch: str) -> None:
    with pytest.raises(ValueError, match="is BACKEND/ARCH, such as cuda/90 or hip/gfx942"):
        TritonTarget(arch)


def test_no_such_back_end() -> None:
    with pytest.raises(
        TritonMissingError, match="0 back ends of Triton support hal/9000; there are toy"
    ):
        TritonTarget("hal/9000").parse_options({})


def test_lanes_of_a_back_end_that_is_not_known_here() -> None:
    kernel = compiled(on=GPUTarget("triton", "toy/t1/16"))
    assert kernel.metadata.vendor["target"]["warp_size"] == 16


def test_no_triton(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    if any(dist.name == "triton" for dist in metadata.distributions()):
        pytest.skip("this environment has Triton")
    with pytest.raises(
        TritonMissingError, match=f"has no Triton .*name another interpreter by {PYTHON}"
    ):
        toy().key()
    monkeypatch.setenv(PYTHON, str(tmp_path / "python"))
    with pytest.raises(TritonMissingError, match="has no Triton"):
        toy().key()
    (finding,) = toy().examine()
    assert finding.level == "note"


def test_untested_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_TRITON_VERSION", "2.1.0")
    with pytest.raises(
        TritonMissingError, match=r"Triton 2\.1\.0 .* not one of the versions .* 3\.6 and 3\.7"
    ):
        toy().key()
    monkeypatch.setenv(UNTESTED, "1")
    assert "2.1.0" in toy().key()


def test_doctor_names_version_and_back_ends() -> None:
    (finding,) = toy().examine()
    assert finding.summary.startswith("3.6.0 of ")
    assert finding.summary.endswith("back ends: toy")


def test_registry_finds_the_target() -> None:
    found = target("triton:toy/t1")
    assert isinstance(found, TritonTarget)
    assert found.arch == "toy/t1"


# -- launches -------------------------------------------------------------------------------------


def launches() -> list[Any]:
    with upstream():
        return importlib.import_module("triton.backends.toy.driver").LAUNCHES


def test_launch_by_the_driver() -> None:
    kernel = compiled()
    before = len(launches())
    kernel[(2, 3)](0x1000, np.int64(5 + (1 << 32)), np.float32(2.5), 32)
    (version, signature, speed, args) = launches()[before]
    assert (version, speed) == ("3.6.0", 1)
    assert list(signature.values()) == ["*fp32", "i32", "fp32"]
    assert {type(arg) for arg in args[-3:]} == {int, float}
    assert args == (2, 3, 1, 77, "<scale>", (4, 64), None, None, None, 0x1000, 5, 2.5)


def test_launch_beside_the_facade() -> None:
    """Where `triton` is a name of tilewright, Triton's driver still imports Triton."""
    code = (
        "import tilewright as tw; tw.install_as_triton(); import triton\n"
        "from tilewright_triton.upstream import upstream\n"
        "ours = triton\n"
        "with upstream():\n"
        "    import triton.runtime as theirs\n"
        "    first = theirs.driver.active\n"
        "import triton.runtime\n"
        "assert triton is ours and triton.runtime is not theirs, triton\n"
        "with upstream():\n"
        "    import triton.runtime as again\n"
        "    assert again.driver.active is first\n"
        "print(theirs.__file__)\n"
    )
    path = os.pathsep.join(map(str, (search_path(), FAKE, ROOT, ROOT / "plugins/triton")))
    found = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | {"PYTHONPATH": path},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert found.stdout.strip() == str(FAKE / "triton/runtime/__init__.py"), found.stderr


def test_driver_has_the_devices_of_triton() -> None:
    made = TritonDriver()
    assert made.is_active()
    assert made.get_current_target() == GPUTarget("triton", "toy/t1", 32)
    assert made.get_current_stream() == 77
    memory = made.allocate(0, 64)
    made.write_memory(0, memory.address + 8, np.arange(16, dtype=np.uint8))
    into = np.zeros(8, np.uint8)
    made.read_memory(0, memory.address + 8, into)
    assert into.tobytes() == bytes(range(8))
    with pytest.raises(ValueError, match="is not in memory that this driver allocated"):
        made.read_memory(0, memory.address + 60, into)


def test_registry_finds_the_driver() -> None:
    assert isinstance(driver.driver_of("triton"), TritonDriver)


def test_failures_without_a_diagnostic_keep_the_message() -> None:
    with pytest.raises(TritonFailure, match="ValueError: toys have no speed above 9"):
        client().ask({"what": "options", "target": ["toy", "t1", 32], "given": {"speed": 11}})
