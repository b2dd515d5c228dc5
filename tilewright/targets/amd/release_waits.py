"""Waits at releases that LLVM must not remove, inserted by a rewrite of optimised IR.

LLVM 22 emits a wait for earlier accesses at each release, and removes those for which no access is
outstanding. For a release at the beginning of a loop, it considers only the code before the loop:
accesses at the end of the previous iteration are not waited for, and a store of another wave may
overtake a load from the LDS. LLVM does not remove the waits of the intrinsics used here.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from tilewright.targets.amd.features import Processor

# The operand of `s_waitcnt` has a field for each counter, all ones to not wait for it.
_LDS = {"gfx9": 0xC07F, "gfx11": 0xFC07}
_ALL = {"gfx9": 0x0070, "gfx11": 0x0007}

# RDNA3 counts stores apart, and no intrinsic waits for them. LLVM's own wait stays behind a store:
# this one is to a buffer without a size, which drops it.
_DROPPED = (
    "call void @llvm.amdgcn.raw.ptr.buffer.store.i32"
    "(i32 0, ptr addrspace(8) null, i32 0, i32 0, i32 0)"
)

_FENCE = re.compile(
    r'^(?P<indent>\s*)fence (?:syncscope\("(?P<scope>[\w-]+)"\) )?(?:release|acq_rel|seq_cst)\b.*$',
    re.MULTILINE,
)
_ATOMIC = re.compile(
    r"^(?P<indent>\s*)(?P<what>(?:%[\w.]+ = )?(?:atomicrmw|cmpxchg|store atomic) .*?)"
    r"(?P<scope>syncscope\(\"[\w-]+\"\) )?(?P<order>release|acq_rel)(?P<rest> .*|,.*)$",
    re.MULTILINE,
)


def with_release_waits(text: str, chip: Processor) -> str:
    """Add waits to fences that release; atomic ops that do have such a fence before them."""
    text = _ATOMIC.sub(_with_fence, text)
    used: set[str] = set()

    def waited(found: re.Match[str]) -> str:
        if found["scope"] in ("wavefront", "singlethread"):
            return found[0]
        lds_only = found["scope"] == "workgroup"
        before = [_DROPPED] if chip.counters == "gfx11" and not lds_only else []
        after = _waits(chip, lds_only)
        used.update(map(_declaration, [*before, *after]))
        return "\n".join([*_indented(found, before), found[0], *_indented(found, after)])

    text = _FENCE.sub(waited, text)
    new = (line for line in sorted(used) if line.partition("(")[0] + "(" not in text)
    return text + "".join(f"\n{line}\n" for line in new)


def _with_fence(found: re.Match[str]) -> str:
    scope, order = found["scope"] or "", found["order"]
    left = "acquire" if order == "acq_rel" else "monotonic"
    return (
        f"{found['indent']}fence {scope}release\n"
        f"{found['indent']}{found['what']}{scope}{left}{found['rest']}"
    )


def _indented(found: re.Match[str], lines: Sequence[str]) -> list[str]:
    return [found["indent"].replace("\n", "") + line for line in lines]


def _waits(chip: Processor, lds_only: bool) -> list[str]:
    """In CU mode the waves of a work-group share a cache: there only the LDS is waited for."""
    if chip.counters == "gfx12":
        counters = ("ds",) if lds_only else ("load", "store", "ds")
        return [f"call void @llvm.amdgcn.s.wait.{name}cnt(i16 0)" for name in counters]
    return [f"call void @llvm.amdgcn.s.waitcnt(i32 {(_LDS if lds_only else _ALL)[chip.counters]})"]


def _declaration(call: str) -> str:
    """The declaration of the called function."""
    return re.sub(r"(i\d+|ptr addrspace\(8\)) \w+", r"\1", call.replace("call", "declare", 1))
