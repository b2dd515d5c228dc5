"""What a processor has that is named, and need not be this one.

LLVM knows processors by name, and ends the process when it does not know one. It tells nobody what
they have, but it shows in the code that it makes for them. So a name is tried in a process of its
own, unless it is one of the levels of x86-64.
"""

from __future__ import annotations

import subprocess
import sys
from functools import cache

# Of the x86-64 psABI's levels, what the code generator asks for.
_LEVELS: dict[str, tuple[str, ...]] = {
    "x86-64": (),
    "x86-64-v2": (),
    "x86-64-v3": ("avx", "avx2", "f16c", "fma"),
    "x86-64-v4": ("avx", "avx2", "avx512f", "f16c", "fma"),
}

_TRIAL = """
import sys
import llvmlite.binding as llvm
llvm.initialize_native_target()
llvm.initialize_native_asmprinter()
target = llvm.Target.from_triple(sys.argv[2])
machine = target.create_target_machine(cpu=sys.argv[1], features="", opt=0)
print(machine.emit_assembly(llvm.parse_assembly(sys.stdin.read())))
"""

_SAMPLE = """
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
declare float @llvm.fma.f32(float, float, float)
"""


@cache
def features_of(cpu: str, triple: str) -> frozenset[str]:
    """Those of a processor's features, as LLVM names them, that the code generator asks for.

    Of instructions for narrow matrix products nothing is found out; the setting
    `compilation.cpu_features` names those that there are.

    Args:
        cpu: LLVM's name of the processor.
        triple: LLVM's name of the platform.

    Raises:
        ValueError: LLVM does not know the processor.
    """
    if cpu in _LEVELS and triple.startswith("x86_64"):
        return frozenset(_LEVELS[cpu])
    done = subprocess.run(
        [sys.executable, "-c", _TRIAL, cpu, triple],
        input=_SAMPLE,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode or "not a recognized processor" in done.stderr:
        raise ValueError(
            f"LLVM knows no processor {cpu!r} of {triple.partition('-')[0]}; a name is such as "
            f"{', '.join(_LEVELS)}, or what `clang -mcpu=help` lists"
        )
    return frozenset(_seen_in(done.stdout, triple))


def _seen_in(assembly: str, triple: str) -> list[str]:
    if not triple.startswith("x86_64"):
        return ["neon"] if triple.startswith(("aarch64", "arm64")) else []
    tests = {
        "avx": "ymm" in assembly or "zmm" in assembly,
        "avx512f": "zmm" in assembly,
        "f16c": "__extendhfsf2" not in assembly,
        "fma": "vfmadd" in assembly,
    }
    return [feature for feature, seen in tests.items() if seen]
