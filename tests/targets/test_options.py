"""Options of launches that programs for several devices give."""

import pytest

from tilewright.targets.protocol import (
    OPTIONS_OF_OTHER_TARGETS,
    GPUTarget,
    UnknownOptionError,
    options_dict,
)
from tilewright.targets.registry import target

TARGETS = [GPUTarget("cpu"), GPUTarget("cuda", 90, 32)]
GIVEN = {
    "matrix_instr_nonkdim": 16, "waves_per_eu": 2, "kpack": 2, "enable_reflect_ftz": True,
    "ir_override": None, "launch_pdl": True, "launch_cooperative_grid": False, "num_cpu_threads": 2,
    "vec_lib": "libsleef", "schedule_hint": "none", "maxnreg": None, "ptx_version": None,
    "extern_libs": (), "num_ctas": 1, "enable_fp_fusion": True, "sanitize_overflow": True,
    "default_dot_input_precision": "ieee", "max_num_imprecise_acc_default": 0,
    "allowed_dot_input_precisions": ("ieee",), "supported_fp8_dtypes": ("fp8e5",),
}  # fmt: skip


@pytest.mark.parametrize("device", TARGETS, ids=lambda t: t.backend)
def test_options_that_another_target_has_are_ignored(device: GPUTarget) -> None:
    found = target(device)
    default = options_dict(found.parse_options({}))
    ignored = {n: v for n, v in GIVEN.items() if n not in default}
    assert found.parse_options(ignored) == found.parse_options({})
    assert found.parse_options(GIVEN)
    assert ignored.keys() <= OPTIONS_OF_OTHER_TARGETS


@pytest.mark.parametrize("device", TARGETS, ids=lambda t: t.backend)
@pytest.mark.parametrize("name", ["num_warp", "waves_per_eus", "fp_fusion"])
def test_misspelt_options_are_rejected(device: GPUTarget, name: str) -> None:
    with pytest.raises(UnknownOptionError, match=f"Keyword argument {name} was specified but"):
        target(device).parse_options({name: 1})
