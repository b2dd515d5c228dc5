"""Queries of the target in kernels, and the description of the host."""

import pytest

import tilewright.language as tl
from tests.frontend.kernels import build, kernel_from
from tilewright.frontend.options import FrontendOptions
from tilewright.language.target_info import TargetInfo
from tilewright.runtime import driver
from tilewright.runtime.drivers.cpu import CpuDriver
from tilewright.targets.protocol import GPUTarget

CPU = {"is_cuda": False, "cuda_capability_geq(8)": False, "is_hip": False}
H100 = {
    "is_cuda": True,
    "cuda_capability_geq(9)": True,
    "cuda_capability_geq(9, 0)": True,
    "cuda_capability_geq(8, minor=9)": True,
    "cuda_capability_geq(9, 1)": False,
    "cuda_capability_geq(10)": False,
    "is_hip": False,
    "current_target().backend == 'cuda'": True,
    "current_target().arch == 90": True,
}
MI300 = {"is_cuda": False, "is_hip": True, "is_hip_cdna3": True, "is_hip_cdna4": False}
MI350 = {"is_hip_cdna3": False, "is_hip_cdna4": True, "is_hip_gfx1250": False}
KINDS = [
    ("cpu", "", CPU),
    ("interpreter", "", CPU),
    ("cuda", "sm90", H100),
    ("hip", "gfx942", MI300),
    ("hip", "gfx950", MI350),
    ("hip", "gfx1250", {"is_hip_gfx1250": True}),
]


@pytest.mark.parametrize(("backend", "arch", "facts"), KINDS)
def test_facts_are_compile_time_values(backend: str, arch: str, facts: dict[str, bool]) -> None:
    lines = ["def kernel():"]
    for call, expected in facts.items():
        text = call if "(" in call else f"{call}()"
        lines.append(f"    tl.static_assert((tl.target_info.{text}) == {expected}, {call!r})")
    options = FrontendOptions(backend_name=backend, arch=arch)
    build(kernel_from("\n".join(lines) + "\n"), options=options)


class _Gpu(CpuDriver):
    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", 80, 32)


def test_host_queries_use_the_active_device() -> None:
    assert not tl.target_info.is_cuda()
    assert tl.target_info.current_target() == TargetInfo("cpu", "")
    driver.set_active(_Gpu())
    try:
        assert tl.target_info.is_cuda()
        assert tl.target_info.cuda_capability_geq(8, 0)
        assert not tl.target_info.cuda_capability_geq(8, 6)
    finally:
        driver.reset_active()
