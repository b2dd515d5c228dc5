"""Processors by name have what LLVM makes code for, and unknown ones are an error."""

import platform

import pytest

from tilewright.base.host import Host
from tilewright.targets import registry
from tilewright.targets.cpu import emit
from tilewright.targets.cpu import host as cpu_host
from tilewright.targets.cpu.host import host_machine
from tilewright.targets.cpu.machine import Machine
from tilewright.targets.cpu.processor import changed, features_of
from tilewright.targets.cpu.target import CpuTarget
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
        ("x86-64-v4", "avx avx2 avx512dq avx512f avx512vl f16c fma"),
        ("nehalem", ""),
        ("haswell", "avx f16c fma"),
        ("skylake-avx512", "avx avx512dq avx512f avx512vl f16c fma"),
        ("sapphirerapids", "avx avx512dq avx512f avx512vl f16c fma"),
    ],
)
def test_named_processor_has_its_own_features(cpu: str, features: str) -> None:
    assert features_of(cpu, TRIPLE) == set(features.split())


@pytest.mark.parametrize(
    ("cpu", "features"),
    [
        ("generic", ""),
        ("cortex-a72", ""),
        ("neoverse-n1", "dotprod"),
        ("neoverse-v1", "bf16 dotprod i8mm sve"),
        ("neoverse-v2", "bf16 dotprod i8mm"),
        ("a64fx", "sve"),
        ("apple-m1", "dotprod"),
        ("apple-m2", "bf16 dotprod i8mm"),
    ],
)
def test_named_processor_of_aarch64_has_its_own_features(cpu: str, features: str) -> None:
    assert features_of(cpu, "aarch64-unknown-linux-gnu") == {"neon", *features.split()}


@on_x86
def test_levels_agree_with_llvm() -> None:
    """The table that spares a process, against what the process would find."""
    for level, requested in (("x86-64-v2", ()), ("x86-64-v3", ("avx", "f16c", "fma"))):
        other = {"x86-64-v2": "nehalem", "x86-64-v3": "haswell"}[level]
        assert features_of(level, TRIPLE) - {"avx2"} == features_of(other, TRIPLE) == set(requested)


@on_x86
@pytest.mark.parametrize("cpu", ["nonsense", "i386"])
def test_unknown_processor_is_an_error(cpu: str) -> None:
    target = registry.target(GPUTarget("cpu", cpu))
    with pytest.raises(ValueError, match=f"LLVM knows no processor '{cpu}' of x86_64"):
        target.key()


# -- features by hand -----------------------------------------------------------------------------

HOST = {"sse", "sse2", "avx", "avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512bf16", "bmi"}


@pytest.mark.parametrize(
    ("text", "gone", "new"),
    [
        ("", "", ""),
        ("-bmi", "bmi", ""),
        ("-avx512f", "avx512f avx512bw avx512bf16", ""),
        (" -avx2 , +bmi2", "avx2 avx512f avx512bw avx512bf16", "bmi2"),
        ("avx512vbmi", "", "avx512vbmi sse3 ssse3 sse4.1 sse4.2"),
        ("-fma,+fma", "avx512f avx512bw avx512bf16", "sse3 ssse3 sse4.1 sse4.2"),
    ],
)
def test_features_are_added_and_removed(text: str, gone: str, new: str) -> None:
    on, off = changed(HOST, text, ())
    assert on == (HOST - set(gone.split())) | set(new.split())
    assert off == set(gone.split()) - on


def test_features_of_aarch64_are_added(monkeypatch: pytest.MonkeyPatch) -> None:
    """LLVM lists only the features that such a host has; others may be added all the same."""
    host = Host("aarch64-unknown-linux-gnu", "neoverse-n1", frozenset({"neon", "dotprod"}))
    monkeypatch.setattr(cpu_host, "host", lambda: host)
    machine = host_machine(None, "+fp16fml,+i8mm,-dotprod")
    assert machine.features == {"neon", "fp-armv8", "fullfp16", "fp16fml", "i8mm"}
    assert machine.without == {"dotprod"}


@pytest.mark.parametrize(
    ("cpu", "features", "size"),
    [
        ("", "", 32),
        ("", "-sve", 16),
        ("", "-fullfp16", 16),
        ("a64fx", "", 64),
        ("neoverse-v1", "", 32),
        *((name, "", 16) for name in ("neoverse-n2", "neoverse-v2", "grace", "apple-m1")),
    ],
)
def test_vectors_of_sve(
    cpu: str, features: str, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are used where they are known to be wider than those of Advanced SIMD."""
    has = frozenset({"neon", "fullfp16", "sve"})
    host = Host("aarch64-unknown-linux-gnu", "generic", has, frozenset(), 32)
    monkeypatch.setattr(cpu_host, "host", lambda: host)
    machine = host_machine(cpu or None, features or None)
    assert machine.vector_bytes == size
    assert ("vscale_range" in machine.function_attributes) == (size > 16)


@pytest.mark.parametrize(("sve_bytes", "size"), [(0, 16), (16, 16), (48, 16), (64, 64), (128, 16)])
def test_other_sizes_of_sve_are_not_used(sve_bytes: int, size: int) -> None:
    machine = Machine("aarch64-linux-gnu", "generic", frozenset({"sve"}), sve_bytes=sve_bytes)
    assert machine.vector_bytes == size
    assert ("vscale_range" in machine.function_attributes) == (size > 16)


def test_widths_of_sve_have_separate_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """The code runs on processors with registers of one size only."""
    has = frozenset({"neon", "fullfp16", "sve"})
    keys: set[str] = set()
    for size in (16, 32, 64):
        host = Host("aarch64-unknown-linux-gnu", "generic", has, frozenset(), size)
        monkeypatch.setattr(cpu_host, "host", lambda host=host: host)
        keys.add(CpuTarget().key())
    assert len(keys) == 3


@on_x86
def test_removed_feature_is_not_in_the_code() -> None:
    """Though the processor's name implies it."""
    text = """
define void @f(ptr %p) {
  %a = load <16 x float>, ptr %p
  %b = fadd <16 x float> %a, %a
  store <16 x float> %b, ptr %p
  ret void
}
"""
    wide = host_machine("skylake-avx512")
    narrow = host_machine("skylake-avx512", "-avx512f")
    assert (wide.vector_bytes, narrow.vector_bytes) == (64, 32)
    assert "zmm" in emit.assembly(text, wide)
    assert "zmm" not in emit.assembly(text, narrow)
    assert "ymm" in emit.assembly(text, narrow)


@on_x86
def test_present_processor_keeps_its_other_features() -> None:
    host = host_machine()
    assert host_machine(None, "-rdseed").features == host.features - {"rdseed"}
    assert host_machine(None, "+sse2").features == host.features


@on_x86
def test_unknown_feature_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"'avx512g'.*did you mean avx512f"):
        host_machine(None, "-avx512g")
