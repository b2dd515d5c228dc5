"""The table of architectures: what users write, what features follow."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tilewright.targets.nvidia import features
from tilewright.targets.nvidia.features import processor

ALL = (75, 80, 86, 87, 89, 90, 100, 103, 110, 120, 121)
PACKAGE = Path(features.__file__).parent


@pytest.mark.parametrize("arch", [90, "90", "90a", "sm90", "sm_90", "sm_90a"])
def test_processor_accepts_each_spelling_of_an_architecture(arch: int | str) -> None:
    assert processor(arch) == processor(90)
    assert processor(arch).llvm_cpu == "sm_90a"


@pytest.mark.parametrize("arch", ["", "sm", "hopper", "gfx942", 9, 70, 91, "sm_90b", "90 "])
def test_processor_rejects_unknown_architectures(arch: int | str) -> None:
    with pytest.raises(ValueError, match=r"there is no NVIDIA architecture .*known are 75, 80"):
        processor(arch)


@pytest.mark.parametrize(
    ("feature", "having"),
    [
        ("ldmatrix", ALL),
        ("async_copy", ALL[1:]),
        ("mma_fp16", ALL),
        ("mma_int8", ALL),
        ("mma_m16n8k16", ALL[1:]),
        ("fp8_cvt", ALL[4:]),
        ("tma", ALL[5:]),
        ("mbarrier", ALL[5:]),
        ("cluster", ALL[5:]),
        ("stmatrix", ALL[5:]),
        ("atom_vec", ALL[5:]),
        ("wgmma", (90,)),
        ("tcgen05", (100, 103, 110)),
    ],
)
def test_feature_is_on_these_architectures_only(feature: str, having: tuple[int, ...]) -> None:
    assert tuple(arch for arch in ALL if feature in processor(arch).features) == having


def test_newer_architecture_gets_ptx_of_the_newest_known_one() -> None:
    with pytest.warns(RuntimeWarning, match="does not know the NVIDIA architecture sm_150"):
        chip = processor("sm_150")
    newest = processor(ALL[-1])
    assert chip.llvm_cpu == f"sm_{ALL[-1]}"  # without the suffix, which later ones do not run
    assert not chip.assembles
    assert chip.shared_limit == newest.shared_limit
    assert newest.features - chip.features == {"dot_scaled", "mma_block_scale"}


def test_fp8_follows_the_architecture() -> None:
    assert processor(80).fp8_types == ("fp8e5",)
    assert processor(89).fp8_types == processor(90).fp8_types == ("fp8e4nv", "fp8e5")
    assert processor(90).imprecise_accumulation == 1 << 30
    assert processor(89).imprecise_accumulation == processor(100).imprecise_accumulation == 0


def test_no_other_file_contains_capability_numbers() -> None:
    """No comparison with a capability outside the table: features have names."""
    for path in PACKAGE.glob("*.py"):
        if path.name == "features.py":
            continue
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            compared = isinstance(node, ast.Compare) and ast.unparse(node)
            assert not compared or "capability" not in compared, f"{path.name}: {compared}"
