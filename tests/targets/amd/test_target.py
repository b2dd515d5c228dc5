"""Options, features and stages of the AMD target, and the names that lead to it."""

from __future__ import annotations

import pytest

from tests.targets.amd.sources import compiled, copy
from tilewright.base.diagnostics import OutOfResources
from tilewright.targets.amd.emit import kernel_attributes, with_inputs
from tilewright.targets.amd.features import PROCESSORS, processor
from tilewright.targets.amd.resources import resident_waves
from tilewright.targets.protocol import GPUTarget, ReportsResources
from tilewright.targets.registry import described, target


def test_processors_have_names_as_hip_gives_them() -> None:
    assert processor("gfx942:sramecc+:xnack-") is processor("gfx942")
    assert [chip.lanes for chip in PROCESSORS.values()] == [64, 64, 64, 32, 32]


@pytest.mark.parametrize("arch", PROCESSORS)
def test_a_processor_alone_names_the_target(arch: str) -> None:
    assert described(arch) == GPUTarget("hip", arch)
    assert arch in target(arch).key()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"num_stages": -1}, "num_stages must be 0 or more"),
        ({"waves_per_eu": 9}, "waves_per_eu must be 0 to 8"),
        ({"warp_size": 32}, "warp_size must be 64"),
        ({"arch": "gfx950"}, "this compiles for gfx942"),
        ({"default_dot_input_precision": "fp16"}, "must be one of"),
        ({"extern_libs": ("ocml.bc",)}, "extern_libs are not supported"),
    ],
)
def test_invalid_options_are_rejected(given: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        target("gfx942").parse_options(given)


def test_work_groups_have_at_most_1024_threads() -> None:
    assert target("gfx1100").parse_options({"num_warps": 32}).num_warps == 32
    with pytest.raises(OutOfResources):
        target("gfx942").parse_options({"num_warps": 32})


def test_attributes_deny_the_inputs_that_a_kernel_does_not_read() -> None:
    attributes = kernel_attributes(256, 2)
    assert '"amdgpu-waves-per-eu"="2"' in attributes
    text = f"declare i32 @llvm.amdgcn.workgroup.id.y()\nattributes #0 = {{ {attributes} }}"
    assert '"amdgpu-no-workgroup-id-x"' in with_inputs(text)
    assert '"amdgpu-no-workgroup-id-y"' not in with_inputs(text)


def test_stages_are_ir_code_object_and_assembly_on_request() -> None:
    kernel = compiled(copy, {"x_ptr": "*fp32", "out_ptr": "*fp32"}, BLOCK=256)
    assert [*kernel.asm][-2:] == ["llir", "hsaco"]
    assert '.amdgcn_target "amdgcn-amd-amdhsa--gfx942"' in str(kernel.asm["amdgcn"])


@pytest.mark.parametrize(
    ("arch", "registers", "warps", "shared", "waves"),
    [
        ("gfx942", 64, 4, 0, 8),  # the most there are
        ("gfx942", 140, 4, 0, 3),  # of 512 registers, 144 each
        ("gfx942", 64, 4, 32768, 2),  # two programs of four waves on four units
        ("gfx942", 64, 16, 0, 8),
        ("gfx1100", 168, 8, 0, 8),  # of 1536 registers, 168 each: 9, of which programs take 8
        ("gfx1100", 24, 8, 0, 16),
    ],
)
def test_waves_that_are_resident(
    arch: str, registers: int, warps: int, shared: int, waves: float
) -> None:
    assert resident_waves(processor(arch), registers, warps, shared) == waves


def test_resources_are_reported() -> None:
    kernel = compiled(copy, {"x_ptr": "*fp32", "out_ptr": "*fp32"}, BLOCK=256)
    chip = target("gfx942")
    assert isinstance(chip, ReportsResources)
    found = {r.name: r for r in chip.resources(kernel.asm, kernel.metadata)}
    assert found["occupancy"].used == 100
    assert found["spilled registers"].used == 0
