"""The features of a processor given by name, which need not be this machine's.

LLVM terminates the process for an unknown processor, and llvmlite has no query of a processor's
features. So a sample is compiled for it in a child process, and the features are inferred from the
instructions in the assembly, except for the levels of x86-64.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Collection, Iterable
from functools import cache

from tilewright.base.spelling import similar

# The features that code generation depends on, by level of the x86-64 psABI.
_LEVELS: dict[str, tuple[str, ...]] = {
    "x86-64": (),
    "x86-64-v2": (),
    "x86-64-v3": ("avx", "avx2", "f16c", "fma"),
    "x86-64-v4": ("avx", "avx2", "avx512dq", "avx512f", "avx512vl", "f16c", "fma"),
}

_TRIAL = """
import sys
import llvmlite.binding as llvm
llvm.initialize_all_targets()
llvm.initialize_all_asmprinters()
target = llvm.Target.from_triple(sys.argv[2])
machine = target.create_target_machine(cpu=sys.argv[1], features="", opt=0)
print(machine.emit_assembly(llvm.parse_assembly(sys.stdin.read())))
"""

_X86_SAMPLE = """
define <16 x float> @wide(<16 x float> %a) {
  %b = fadd <16 x float> %a, %a
  ret <16 x float> %b
}
define float @fused(float %a) {
  %b = call float @llvm.fma.f32(float %a, float %a, float %a)
  ret float %b
}
define float @half(half %a) {
  %b = fpext half %a to float
  ret float %b
}
define <8 x i64> @products(<8 x i64> %a) {
  %b = mul <8 x i64> %a, %a
  ret <8 x i64> %b
}
define <4 x i32> @rotated(<4 x i32> %a) {
  %b = call <4 x i32> @llvm.fshl.v4i32(<4 x i32> %a, <4 x i32> %a, <4 x i32> splat (i32 3))
  ret <4 x i32> %b
}
declare float @llvm.fma.f32(float, float, float)
declare <4 x i32> @llvm.fshl.v4i32(<4 x i32>, <4 x i32>, <4 x i32>)
"""

_ARM_SAMPLE = """
define <4 x i32> @signed(<16 x i8> %a, <16 x i8> %b, <4 x i32> %sums) {
  %x = sext <16 x i8> %a to <16 x i32>
  %y = sext <16 x i8> %b to <16 x i32>
  %xy = mul <16 x i32> %x, %y
  %c = call <4 x i32> @llvm.vector.partial.reduce.add(<4 x i32> %sums, <16 x i32> %xy)
  ret <4 x i32> %c
}
define <4 x i32> @mixed(<16 x i8> %a, <16 x i8> %b, <4 x i32> %sums) {
  %x = zext <16 x i8> %a to <16 x i32>
  %y = sext <16 x i8> %b to <16 x i32>
  %xy = mul <16 x i32> %x, %y
  %c = call <4 x i32> @llvm.vector.partial.reduce.add(<4 x i32> %sums, <16 x i32> %xy)
  ret <4 x i32> %c
}
define bfloat @narrowed(float %a) {
  %b = fptrunc float %a to bfloat
  ret bfloat %b
}
declare <4 x i32> @llvm.vector.partial.reduce.add(<4 x i32>, <16 x i32>)
"""


@cache
def features_of(cpu: str, triple: str) -> frozenset[str]:
    """The features of a processor that code generation depends on, by LLVM's names.

    Instructions for products of narrow types are not detected on x86, nor ``fp16fml`` on AArch64;
    the setting `compilation.cpu_features` adds them.

    Args:
        cpu: LLVM's name of the processor.
        triple: LLVM's target triple.

    Raises:
        ValueError: LLVM does not know the processor.
    """
    if cpu in _LEVELS and triple.startswith("x86_64"):
        return frozenset(_LEVELS[cpu])
    done = subprocess.run(
        [sys.executable, "-c", _TRIAL, cpu, triple],
        input=_ARM_SAMPLE if _is_arm(triple) else _X86_SAMPLE,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode or "not a recognized processor" in done.stderr:
        raise ValueError(
            f"LLVM knows no processor {cpu!r} of {triple.partition('-')[0]}; a name is such as "
            f"{', '.join(_LEVELS)}, or what `clang -mcpu=help` lists"
        )
    found = frozenset(_features_in(done.stdout, triple))
    return found | {"sve"} if sve_bytes_of(cpu, triple) else found


_SVE_BYTES = {"a64fx": 64, "neoverse-512tvb": 32, "neoverse-v1": 32}


def sve_bytes_of(cpu: str, triple: str) -> int:
    """The size of a processor's vector registers of SVE if it is more than the 16 bytes of Advanced
    SIMD; otherwise 0, as code generation uses that then."""
    return _SVE_BYTES.get(cpu, 0) if _is_arm(triple) else 0


def _is_arm(triple: str) -> bool:
    return triple.startswith(("aarch64", "arm64"))


def _features_in(assembly: str, triple: str) -> list[str]:
    if _is_arm(triple):
        tests = {
            "neon": True,
            "dotprod": "sdot" in assembly,
            "i8mm": "usdot" in assembly,
            "bf16": "bfcvt" in assembly,
        }
        return [feature for feature, seen in tests.items() if seen]
    if not triple.startswith("x86_64"):
        return []
    tests = {
        "avx": "ymm" in assembly or "zmm" in assembly,
        "avx512dq": "vpmullq" in assembly,
        "avx512f": "zmm" in assembly,
        "avx512vl": re.search(r"vprold.*, %xmm", assembly) is not None,
        "f16c": "__extendhfsf2" not in assembly,
        "fma": "vfmadd" in assembly,
    }
    return [feature for feature, seen in tests.items() if seen]


# -- the setting compilation.cpu_features ---------------------------------------------------------

_NEEDS: dict[str, tuple[str, ...]] = {
    "amx-bf16": ("amx-tile",),
    "amx-complex": ("amx-tile",),
    "amx-fp16": ("amx-tile",),
    "amx-int8": ("amx-tile",),
    "avx": ("sse4.2",),
    "avx2": ("avx",),
    "avx512bitalg": ("avx512bw",),
    "avx512bf16": ("avx512bw",),
    "avx512f": ("avx2", "f16c", "fma"),
    "avx512fp16": ("avx512bw", "avx512dq", "avx512vl"),
    "avx512vbmi": ("avx512bw",),
    "avx512vbmi2": ("avx512bw",),
    "avxifma": ("avx2",),
    "avxneconvert": ("avx2",),
    "avxvnni": ("avx2",),
    "avxvnniint16": ("avx2",),
    "avxvnniint8": ("avx2",),
    "bf16": ("neon",),
    "dotprod": ("neon",),
    "f16c": ("avx",),
    "fma": ("avx",),
    "fp16fml": ("fullfp16",),
    "fullfp16": ("neon",),
    "i8mm": ("neon",),
    "neon": ("fp-armv8",),
    "sse2": ("sse",),
    "sse3": ("sse2",),
    "sse4.1": ("ssse3",),
    "sse4.2": ("sse4.1",),
    "ssse3": ("sse3",),
    "sve": ("fullfp16",),
    "sve2": ("sve",),
    "vaes": ("aes", "avx2"),
    "vpclmulqdq": ("avx", "pclmul"),
}
"""The features that a feature of x86 or AArch64 implies, by LLVM's names (X86.td, AArch64.td)."""


def _needs(feature: str) -> tuple[str, ...]:
    default = ("avx512f",) if feature.startswith("avx512") else ()
    return _NEEDS.get(feature, default)


def _with_needs(feature: str) -> frozenset[str]:
    return frozenset([feature]).union(*map(_with_needs, _needs(feature)))


def changed(
    features: Iterable[str], text: str, known: Collection[str]
) -> tuple[frozenset[str], frozenset[str]]:
    """Add and remove features. Returns those that are enabled, and those to disable explicitly.

    Adding a feature adds those it implies; removing one removes those that imply it.

    >>> on, off = changed({"avx2", "avx", "fma"}, "-avx2,+avxvnni,-fma", ())
    >>> sorted(on & {"avx", "avx2", "avxvnni", "fma"}), sorted(off)
    (['avx', 'avx2', 'avxvnni'], ['fma'])

    Args:
        text: such as ``+avx512f,-fma``, applied in order; a name without a sign is added.
        known: all valid names; empty if unknown.

    Raises:
        ValueError: a name is not a feature.
    """
    on, off = set(features), set[str]()
    for item in filter(None, (part.strip() for part in text.split(","))):
        name = item.lstrip("+-")
        if known and name not in known:
            near = similar(name, known, 3)
            hint = f"; did you mean {' or '.join(near)}?" if near else ""
            raise ValueError(
                f"the setting compilation.cpu_features names the feature {name!r}, which this "
                f"kind of processor does not have{hint}"
            )
        if item.startswith("-"):
            gone = {f for f in {name, *on} if name in _with_needs(f)}
            on, off = on - gone, off | gone
        else:
            on, off = on | _with_needs(name), off - _with_needs(name)
    return frozenset(on), frozenset(off)
