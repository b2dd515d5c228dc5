"""Processors by name have what LLVM makes code for, and unknown ones are an error."""

import platform

import pytest

from tilewright.targets import registry
from tilewright.targets.cpu.processor import features_of
from tilewright.targets.protocol import GPUTarget

TRIPLE = "x86_64-unknown-linux-gnu"

on_x86 = pytest.mark.skipif(
    platform.machine() not in ("x86_64", "AMD64"), reason="LLVM is set up for this processor alone"
)


@on_x86
@pytest.mark.parametrize(
    ("cpu", "features"),
    [
        ("x86-64", ""),
        ("x86-64-v4", "avx avx2 avx512f f16c fma"),
        ("nehalem", ""),
        ("haswell", "avx f16c fma"),
        ("skylake-avx512", "avx avx512f f16c fma"),
        ("sapphirerapids", "avx avx512f f16c fma"),
    ],
)
def test_named_processor_has_its_own_features(cpu: str, features: str) -> None:
    assert features_of(cpu, TRIPLE) == set(features.split())


@on_x86
def test_levels_are_what_llvm_says() -> None:
    """The table that spares a process, against what the process would find."""
    for level, asked in (("x86-64-v2", ()), ("x86-64-v3", ("avx", "f16c", "fma"))):
        other = {"x86-64-v2": "nehalem", "x86-64-v3": "haswell"}[level]
        assert features_of(level, TRIPLE) - {"avx2"} == features_of(other, TRIPLE) == set(asked)


@on_x86
@pytest.mark.parametrize("cpu", ["nonsense", "i386"])
def test_unknown_processor_is_an_error(cpu: str) -> None:
    target = registry.target(GPUTarget("cpu", cpu))
    with pytest.raises(ValueError, match=f"LLVM knows no processor '{cpu}' of x86_64"):
        target.key()
