"""The processor of this machine, as LLVM describes it.

Loading LLVM takes longer than everything else in the launch of a cached kernel, so its answer is
cached (`cached_fact`) under the state of the LLVM library and the identity of the processor. On
x86-64, the identity is what LLVM itself reads with `cpuid`, so a cache folder shared between
machines, containers or emulators never returns the description of another processor. On other
architectures it comes from `/proc/cpuinfo`; if that is unavailable, LLVM is loaded in each process.
"""

from __future__ import annotations

import ctypes
import json
import platform
import sys
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from tilewright.base.fact_cache import cached_fact
from tilewright.base.lazy_import import lazy_import
from tilewright.base.llvm_version import library_state
from tilewright.base.machine_code import MachineCode, can_hold_code

if TYPE_CHECKING:
    from tilewright.base import llvm_library
else:
    llvm_library = lazy_import("tilewright.base.llvm_library")


class Host(NamedTuple):
    """A processor.

    triple: LLVM's target triple.
    cpu: LLVM's name of the processor, such as ``znver4``.
    features: the usable features, by LLVM's names.
    lacks: known features that this processor does not have.
    sve_bytes: the size of a vector register of SVE, which the system may limit; 0 if unknown.
    """

    triple: str
    cpu: str
    features: frozenset[str]
    lacks: frozenset[str] = frozenset()
    sve_bytes: int = 0


@cache
def host() -> Host:
    """The processor of this machine."""
    library, identity = library_state(), processor_identity()
    if library is None or identity is None:
        triple, cpu, *features = llvm_library.host_facts()
    else:
        circumstances = (*library, sys.platform, platform.machine(), *identity)
        answer = cached_fact("processor", circumstances, _facts_as_json)
        triple, cpu, *features = json.loads(answer)
    on, off = (frozenset(f[1:] for f in features if f[0] == sign) for sign in "+-")
    on |= _arm_features(identity)
    return Host(triple, cpu, on, off, _sve_bytes() if "sve" in on else 0)


def _facts_as_json() -> str:
    return json.dumps(llvm_library.host_facts())


def processor_identity() -> list[Any] | None:
    """A description of the processor that is equal in all processes on one machine; None if the
    system offers none."""
    if platform.machine().lower() in ("x86_64", "amd64"):
        return _ask_x86() if can_hold_code() else None
    return _processor_file("/proc/cpuinfo")


# -- x86-64 ---------------------------------------------------------------------------------------

# void cpuid(uint32_t leaf, uint32_t subleaf, uint32_t result[4]), in the System V ABI
_CPUID = bytes.fromhex(
    "53"  # push rbx
    "4989d0"  # mov r8, rdx
    "89f8 89f1"  # mov eax, edi; mov ecx, esi
    "0fa2"  # cpuid
    "418900 41895804"  # mov [r8], eax; mov [r8 + 4], ebx
    "41894808 4189500c"  # mov [r8 + 8], ecx; mov [r8 + 12], edx
    "5b c3"  # pop rbx; ret
)
# uint64_t xcr0(): the register states that the operating system saves
_XGETBV = bytes.fromhex(
    "31c9"  # xor ecx, ecx
    "0f01d0"  # xgetbv
    "48c1e220 4809d0"  # shl rdx, 32; or rax, rdx
    "c3"
)
_STATES_AT = 32

# Leaf, subleaf, and which of eax, ebx, ecx and edx (bits 0 to 3) identify the processor. The number
# of the current core, in ebx of leaf 1, is excluded.
_ALL = 0b1111
_LEAVES = (
    (0, 0, _ALL),
    (1, 0, 0b1101),
    (7, 0, _ALL),
    (7, 1, _ALL),
    (7, 2, _ALL),
    (0xD, 1, 0b0001),
    (0x14, 0, 0b0010),
    (0x19, 0, 0b0010),
    (0x1E, 1, 0b0001),
    (0x24, 0, 0b0010),
    (0x80000000, 0, 0b0001),
    (0x80000001, 0, 0b1100),
    *((leaf, 0, _ALL) for leaf in (0x80000002, 0x80000003, 0x80000004)),
    (0x80000008, 0, 0b0010),
    (0x80000021, 0, 0b0001),
)
_SAVES_STATES = 1 << 27  # OSXSAVE, in ecx of leaf 1: XCR0 can be read


def _ask_x86() -> list[Any] | None:
    text = _CPUID.ljust(_STATES_AT, b"\x90") + _XGETBV
    try:
        code = MachineCode(len(text), lambda _: text)
    except OSError:
        return None
    words = ctypes.c_uint32 * 4
    ask = ctypes.CFUNCTYPE(None, ctypes.c_uint32, ctypes.c_uint32, words)(code.address)
    states = ctypes.CFUNCTYPE(ctypes.c_uint64)(code.address + _STATES_AT)
    found: list[Any] = []
    most = {0: 0, 0x80000000: 0x80000000}  # the last leaf of each range
    saves_states = False
    for leaf, subleaf, telling in _LEAVES:
        start = leaf & 0x80000000
        if leaf > most[start]:
            continue
        answer = words()
        ask(leaf, subleaf, answer)
        if leaf == start:
            most[start] = answer[0]
        if leaf == 1:
            saves_states = bool(answer[2] & _SAVES_STATES)
        found.append([answer[i] if telling >> i & 1 else 0 for i in range(4)])
    return [*found, states() if saves_states else 0]


# -- others ---------------------------------------------------------------------------------------

_OF_ONE_CORE = ("processor", "bogomips", "cpu mhz")


def _processor_file(path: str) -> list[Any] | None:
    """The distinct lines of a file such as /proc/cpuinfo, without values that vary between cores or
    over time."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            lines = {line.strip() for line in file}
    except OSError:
        return None
    return sorted(x for x in lines if x and not x.lower().startswith(_OF_ONE_CORE)) or None


# Features of AArch64 for products of narrow types, which LLVM derives from the processor's name
# only: Linux's names of them, and LLVM's.
_ARM_FEATURES = {"asimddp": "dotprod", "asimdfhm": "fp16fml", "bf16": "bf16", "i8mm": "i8mm"}


def _arm_features(identity: list[Any] | None) -> frozenset[str]:
    """Those of `_ARM_FEATURES` that the lines of /proc/cpuinfo list, by LLVM's names."""
    if platform.machine().lower() not in ("aarch64", "arm64"):
        return frozenset()
    fields = (line.partition(":") for line in identity or ())
    listed = next((names.split() for key, _, names in fields if key.strip() == "Features"), ())
    return frozenset(_ARM_FEATURES[name] for name in listed if name in _ARM_FEATURES)


_PR_SVE_GET_VL = 51  # include/uapi/linux/prctl.h
_VECTOR_LENGTH = 0xFFFF  # the bits of its result that are the length


def _sve_bytes() -> int:
    """The size of a vector register of SVE in this thread, and in those it starts."""
    if sys.platform != "linux":
        return 0
    found = ctypes.CDLL(None).prctl(_PR_SVE_GET_VL, 0, 0, 0, 0)
    return found & _VECTOR_LENGTH if found > 0 else 0
