"""The target as a whole: options, keys, stages. Code generation is replaced by LLVM IR by hand."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.targets.nvidia.modules import many_values, scaled_add
from tilewright.base import knobs
from tilewright.base.diagnostics import OutOfResources
from tilewright.base.llvm_version import llvm_version
from tilewright.base.record import replace
from tilewright.frontend.defaults import FP8_TYPES
from tilewright.ir.passes import PassContext
from tilewright.ir.types import FP8E5, FP16, FP32, FP64, I8
from tilewright.targets.gpu.codegen import ThreadCode
from tilewright.targets.nvidia import compilation, emit, target
from tilewright.targets.nvidia.assemble import PTXASError, find_assembler
from tilewright.targets.nvidia.disassemble import find_disassembler
from tilewright.targets.nvidia.options import CudaOptions
from tilewright.targets.nvidia.target import NvidiaTarget
from tilewright.targets.protocol import GPUTarget, Lowered, options_dict
from tilewright.targets.registry import target as find_target

MODULE = """
func @scaled_add() {
  control.return [] : () -> ()
}
"""


@pytest.fixture
def hopper() -> NvidiaTarget:
    return NvidiaTarget(90)


def lower(
    hopper: NvidiaTarget,
    options: CudaOptions,
    code: ThreadCode | None = None,
    ctx: PassContext | None = None,
) -> Lowered:
    """The result of the target for the code of a thread."""
    code = code or thread(scaled_add(emit.kernel_attributes(128)), "scaled_add", shared_bytes=2048)
    ctx = ctx or PassContext()
    made = hopper.machine_code(code, ctx, options)
    made.report(ctx)
    return made.lowered


def thread(llvm: str, name: str, shared_bytes: int = 0) -> ThreadCode:
    return ThreadCode(llvm, name, tile_warps=4, warps=4, shared_bytes=shared_bytes)


def needs_assembler() -> None:
    if find_assembler() is None:
        pytest.skip("needs ptxas or nvJitLink")


# -- which target ---------------------------------------------------------------------------------


@pytest.mark.parametrize("which", ["cuda", GPUTarget("cuda", 90, 32), GPUTarget("cuda", "sm90")])
def test_target_is_registered(which: str | GPUTarget) -> None:
    found = find_target(which)
    assert isinstance(found, NvidiaTarget)
    assert found.features() == NvidiaTarget(90).features()
    assert "wgmma" in found.features()


def test_target_of_an_unknown_architecture() -> None:
    with pytest.raises(ValueError, match="no NVIDIA architecture 91"):
        find_target(GPUTarget("cuda", 91, 32))


def test_setting_overrides_the_architecture(hopper: NvidiaTarget) -> None:
    key = hopper.key()
    with knobs.runtime.scope():
        knobs.runtime.override_arch = "sm80"
        assert "wgmma" not in hopper.features()
        assert hopper.parse_options({}).arch == "sm80"
        assert hopper.key() != key
        knobs.runtime.override_arch = "80"
        with pytest.raises(ValueError, match="must be as `sm90`, not '80'"):
            hopper.features()


def test_key_names_the_tools_that_generate_the_code(hopper: NvidiaTarget) -> None:
    assembler = find_assembler()
    maker = f"{assembler.name}-{assembler.version()}" if assembler else "driver"
    assert hopper.key() == f"cuda llvm-{llvm_version()} sm_90a ptx-81 {maker}"
    with knobs.nvidia.scope():
        knobs.nvidia.assembler = "driver"
        assert hopper.key().endswith(" driver")


# -- options --------------------------------------------------------------------------------------


def test_options_have_the_language_s_defaults(hopper: NvidiaTarget) -> None:
    expected = {
        "num_warps": 4,
        "num_stages": 3,
        "num_ctas": 1,
        "maxnreg": None,
        "debug": False,
        "sanitize_overflow": True,
        "enable_fp_fusion": True,
        "launch_cooperative_grid": False,
        "launch_pdl": None,
        "default_dot_input_precision": "tf32",
        "allowed_dot_input_precisions": ("tf32", "tf32x3", "ieee", "bf16x3", "bf16x6"),
        "max_num_imprecise_acc_default": 1 << 30,
        "supported_fp8_dtypes": FP8_TYPES,
        "deprecated_fp8_dot_operand_dtypes": ("fp8e4b15",),
        "extern_libs": (),
        "tensor_copies": True,
        "random_delays": 0,
        "ptx_version": None,
        "ptx_options": None,
        "arch": "sm90",
    }
    assert options_dict(hopper.parse_options({})) == expected
    ampere = options_dict(NvidiaTarget(80).parse_options({}))
    assert ampere == expected | {
        "arch": "sm80",
        "launch_pdl": False,
        "max_num_imprecise_acc_default": 0,
        "deprecated_fp8_dot_operand_dtypes": (),
    }


def test_options_reach_the_front_end(hopper: NvidiaTarget) -> None:
    given = {"num_warps": 8, "num_stages": 5, "debug": True, "enable_fp_fusion": False}
    front = hopper.frontend_options(hopper.parse_options(given))
    assert {name: getattr(front, name) for name in given} == given
    assert (front.backend_name, front.arch) == ("cuda", "sm90")
    assert front.default_dot_input_precision == "tf32"
    assert front.supported_fp8_dtypes == FP8_TYPES


@pytest.mark.parametrize(("dtype", "k"), [(FP8E5, 32), (I8, 32), (FP16, 16), (FP32, 8), (FP64, 4)])
def test_least_dot_follows_the_width_of_its_operands(dtype: Any, k: int) -> None:
    assert target.min_dot_size(dtype, dtype) == (1, 1, k)


@pytest.mark.parametrize(
    ("arch", "given", "message"),
    [
        (90, {"num_stages": -1}, "num_stages must be 0 or more"),
        (90, {"num_ctas": 3}, "num_ctas must be 1, 2, 4, 8 or 16, not 3"),
        (80, {"num_ctas": 2}, r"num_ctas > 1 requires NVIDIA SM90\+ \(Hopper\)"),
        (80, {"launch_pdl": True}, r"launch_pdl requires NVIDIA SM90\+"),
        (90, {"maxnreg": 0}, "maxnreg must be 1 to 255, not 0"),
        (90, {"maxnreg": 256}, "maxnreg must be 1 to 255, not 256"),
        (90, {"default_dot_input_precision": "tf16"}, "must be one of .*, not 'tf16'"),
        (90, {"ptx_version": 80}, "ptx_version must be 81 to 90, not 80"),
        (90, {"ptx_version": 99}, "ptx_version must be 81 to 90, not 99"),
        (90, {"arch": "sm80"}, r'for sm80 give a target such as GPUTarget\("cuda", 80, 32\)'),
        (90, {"arch": "gfx942"}, "no NVIDIA architecture 'gfx942'"),
        (90, {"extern_libs": (("a", "b"),)}, "extern_libs are not supported"),
    ],
)
def test_option_unsupported_by_the_processor(
    arch: int, given: Mapping[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        NvidiaTarget(arch).parse_options(given)


def test_limits_of_options_are_allowed(hopper: NvidiaTarget) -> None:
    given = {"num_warps": 32, "num_stages": 0, "num_ctas": 16, "maxnreg": 255, "arch": "sm_90a"}
    assert options_dict(hopper.parse_options(given)).items() >= given.items()


def test_unknown_options_and_wrong_warp_counts_are_rejected(hopper: NvidiaTarget) -> None:
    with pytest.raises(KeyError, match=r"num_warp was specified but .*did you mean num_warps\?"):
        hopper.parse_options({"num_warp": 2})
    with pytest.raises(KeyError, match="ir_override was specified but unrecognised"):
        hopper.parse_options({"ir_override": "kernel.ttgir"})
    with pytest.raises(AssertionError, match="num_warps must be a power of 2"):
        hopper.parse_options({"num_warps": 3})


def test_too_many_threads_are_out_of_resources_which_tuning_skips(hopper: NvidiaTarget) -> None:
    with pytest.raises(OutOfResources, match="threads, Required: 2048, Hardware limit: 1024"):
        hopper.parse_options({"num_warps": 64})


# -- stages ---------------------------------------------------------------------------------------


def test_stages_and_metadata(hopper: NvidiaTarget, monkeypatch: pytest.MonkeyPatch) -> None:
    needs_assembler()
    lowered = lower(hopper, hopper.parse_options({}))
    assert list(lowered.stages) == ["llir", "ptx", "cubin"]
    assert "ptx_kernel" in str(lowered.stages["llir"])
    assert ".entry scaled_add" in str(lowered.stages["ptx"])
    facts = dict(lowered.metadata)
    assert 0 < facts.pop("n_regs") < 64
    assert facts.pop("assembler").split()[0] in ("ptxas", "nvjitlink")
    assert facts == {
        "name": "scaled_add",
        "shared": 2048,
        "spare_shared": 0,
        "num_warps": 4,
        "num_ctas": 1,
        "warp_size": 32,
        "tmem_size": 0,
        "launch_warps": 4,
        "begins_early": False,
        "packed_programs": 1,
        "looped_axes": 0,
        "tensor_maps": [],
        "ptx_version": 81,
        "n_spills": 0,
    }


def test_without_an_assembler_ptx_is_the_last_stage(
    hopper: NvidiaTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compilation, "find_assembler", lambda: None)
    ctx = PassContext()
    lowered = lower(hopper, hopper.parse_options({}), ctx=ctx)
    assert list(lowered.stages) == ["llir", "ptx"]
    assert lowered.metadata["assembler"] == "driver"
    assert "n_regs" not in lowered.metadata
    ((step, remark, _, _),) = ctx.missed_remarks
    assert step == "assemble"
    assert "the driver compiles the PTX when the kernel is loaded" in remark
    with pytest.raises(KeyError, match="sass"):
        hopper.derive("sass", lowered.stages, lowered.metadata)


def test_options_of_the_assembler(hopper: NvidiaTarget) -> None:
    options = hopper.parse_options({"ptx_options": "--a  --b=1", "enable_fp_fusion": False})
    chip = hopper.processor
    request = compilation.assembly_request(options, chip)
    assert (request.processor, request.fp_fusion, request.opt_level) == ("sm_90a", False, 3)
    assert request.extra == ("--a", "--b=1")
    with knobs.nvidia.scope():
        knobs.nvidia.ptxas_options = "--c"
        knobs.nvidia.opt_level = 1
        assert compilation.assembly_request(options, chip) == replace(
            request, extra=("--c", "--a", "--b=1"), opt_level=1
        )
        with pytest.raises(ValueError, match="expected 0 to 3"):
            knobs.nvidia.opt_level = 4


def test_ptx_version_may_be_requested(
    hopper: NvidiaTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    with knobs.nvidia.scope():
        knobs.nvidia.assembler = "driver"
        lowered = lower(hopper, hopper.parse_options({"ptx_version": 83}))
    assert lowered.metadata["ptx_version"] == 83
    assert ".version 8.3\n" in str(lowered.stages["ptx"])


def test_rejected_ptx_is_an_error_of_the_kernel(
    hopper: NvidiaTarget, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    needs_assembler()
    monkeypatch.setenv("TILEWRIGHT_REPRODUCER_DIR", str(tmp_path))
    text = """define ptx_kernel void @f() {
        call void asm sideeffect "frobnicate.b32;", ""()
        ret void
    }"""
    with pytest.raises(PTXASError, match=r"Not a name of any known instruction: 'frobnicate'"):
        lower(hopper, hopper.parse_options({}), thread(text, "f"))


def test_equal_modules_give_equal_stages(
    hopper: NvidiaTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = many_values(emit.kernel_attributes(128, maxnreg=32), 40)
    code = thread(text, "many_values")
    first, second = (lower(hopper, hopper.parse_options({}), code) for _ in range(2))
    assert first == second


def test_sass_is_derived(hopper: NvidiaTarget, monkeypatch: pytest.MonkeyPatch) -> None:
    needs_assembler()
    if find_disassembler() is None:
        pytest.skip("needs nvdisasm: pip install nvidia-cuda-nvdisasm")
    lowered = lower(hopper, hopper.parse_options({}))
    assert "LDG.E.128" in str(hopper.derive("sass", lowered.stages, lowered.metadata))
    with pytest.raises(KeyError, match="amdgcn"):
        hopper.derive("amdgcn", lowered.stages, lowered.metadata)


def test_strict_triton_rejects_fp8_of_other_vendors(hopper: NvidiaTarget) -> None:
    with knobs.language.scope():
        knobs.language.strict_triton = True
        assert hopper.parse_options({}).supported_fp8_dtypes == ("fp8e4nv", "fp8e5", "fp8e4b15")
        assert NvidiaTarget(80).parse_options({}).supported_fp8_dtypes == ("fp8e5", "fp8e4b15")


FIRST_THING = """
import tilewright as tw
import tilewright.language as tl
from tilewright.compiler.source import ASTSource

@tw.jit
def kernel(x):
    tl.store(x + tl.program_id(0), 1.0)

print(tw.compile(ASTSource(kernel, {"x": "*fp32"}), target="cuda:90").asm["ptx"])
"""


def test_a_process_may_begin_with_compiling(tmp_path: Path) -> None:
    """Nothing has been loaded then but what compiling itself loads."""
    script = tmp_path / "first.py"
    script.write_text(FIRST_THING)
    env = {**os.environ, "TILEWRIGHT_CACHE_DIR": str(tmp_path)}
    done = subprocess.run([sys.executable, str(script)], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "st.global" in done.stdout
