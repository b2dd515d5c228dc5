"""Functions of `tl.extra` other than libdevice."""

from __future__ import annotations

import numpy as np
import pytest

from tests.frontend.kernels import build, evaluate, fails, kernel_from
from tests.targets.nvidia.lowered import ptx_of
from tilewright.frontend.options import FrontendOptions
from tilewright.ir.printer import print_module
from tilewright.ir.types import BF16
from tilewright.targets.registry import target as find_target


@pytest.mark.parametrize("extra", ["cuda", "hip"])
def test_thread_counts_equal_those_of_the_launch(extra: str) -> None:
    found = evaluate(f"tl.full((2,), tl.extra.{extra}.num_threads(), tl.int32)")
    assert found.tolist() == [128, 128]
    found = evaluate(f"tl.full((2,), tl.extra.{extra}.num_warps(), tl.int32)")
    assert found.tolist() == [4, 4]


@pytest.mark.parametrize(
    ("name", "lanes"), [("cuda:90", 32), ("hip:gfx942", 64), ("hip:gfx1100", 32)]
)
def test_threads_of_a_warp_are_the_targets(name: str, lanes: int) -> None:
    kernel = kernel_from("def kernel(out):\n    tl.store(out, tl.extra.hip.num_threads())\n")
    target = find_target(name)
    options = target.frontend_options(target.parse_options({"num_warps": 8}))
    text = print_module(build(kernel, {"out": "*i32"}, options=options))
    assert f"value={8 * lanes}" in text


@pytest.mark.parametrize(
    ("name", "register", "type"), [("smid", "%smid", "i32"), ("globaltimer", "%globaltimer", "i64")]
)
def test_registers_are_read_on_nvidia_gpus(name: str, register: str, type: str) -> None:
    kernel = kernel_from(f"def kernel(out):\n    tl.store(out, tl.extra.cuda.{name}())\n")
    options = FrontendOptions(backend_name="cuda", arch="90", assembly="PTX")
    assert register in ptx_of(build(kernel, {"out": f"*{type}"}, options=options))


@pytest.mark.parametrize("name", ["cuda.smid", "cuda.globaltimer", "hip.smid", "hip.memrealtime"])
def test_registers_are_rejected_elsewhere(name: str) -> None:
    error = fails(f"def kernel(out):\n    tl.store(out, tl.extra.{name}())\n", np.zeros(1, "i8"))
    vendor = "NVIDIA" if "cuda" in name else "AMD"
    assert f"tl.extra.{name} reads a register of {vendor} GPUs" in str(error.__cause__)


def test_waiting_for_other_launches_is_a_no_op() -> None:
    text = (
        "def kernel():\n    tl.extra.cuda.gdc_wait()\n    tl.extra.cuda.gdc_launch_dependents()\n"
    )
    assert len(list(build(kernel_from(text)).walk())) == 1


def test_custom_fp8_conversion_equals_a_cast() -> None:
    x = np.array([0.5, -1.25, 1.9], np.float16)[[0, 1, 2, 2]]
    for name in ("convert_custom_float8_sm70", "convert_custom_float8_sm80"):
        there = f"tl.extra.cuda.{name}(a, tl.float8e4b15)"
        found = evaluate(f"tl.extra.cuda.{name}({there}, tl.float16)", x)
        expected = evaluate("a.to(tl.float8e4b15).to(tl.float16)", x)
        assert found.tolist() == expected.tolist()


@pytest.mark.parametrize(("dtype", "group"), [(np.int8, 4), (np.float16, 2), (BF16.numpy, 2)])
def test_vnni_decode(dtype: type, group: int) -> None:
    matrix = np.arange(64).reshape(8, 8).astype(dtype)
    packed = matrix.reshape(8 // group, group, 8).transpose(0, 2, 1).reshape(8 // group, 8 * group)
    found = evaluate("tl.extra.cpu.vnni_decode(a)", np.ascontiguousarray(packed))
    assert (found == matrix).all()
    error = fails("def k(a):\n    tl.extra.cpu.vnni_decode(tl.load(a))\n", np.zeros(1, np.float32))
    assert "8 or 16 bits" in str(error.__cause__)
